package scheduler

import "context"

// Decide works off decisions on many deliveries, a few deliveries at a time. A run is taken by one replica at a time, by whichever is
// there; what its pace does not allow yet waits for a later step.
func (s *Scheduler) Decide(ctx context.Context) (bool, error) {
	did, more, err := s.o.Intake.DecideMany(ctx, Alive)
	if err != nil {
		return false, err
	}
	if did.Applied > 0 {
		s.o.Decided(string(did.Action), did.Applied)
	}
	return more, nil
}
