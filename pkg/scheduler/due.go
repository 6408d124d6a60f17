package scheduler

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/plan"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// Escalate fires the escalation steps that are due. Each is looked at again under its incident's lock, so replicas that
// see the same step fire it once.
func (s *Scheduler) Escalate(ctx context.Context) (bool, error) {
	var due []store.EscalationStep
	if err := s.o.Store.InTx(ctx, func(tx *store.Tx) error {
		var err error
		due, err = tx.DueSteps(ctx, batch)
		return err
	}); err != nil {
		return false, fmt.Errorf("look for due escalation steps: %w", err)
	}
	var first error
	fired := false
	for _, d := range due {
		did, err := s.o.Intake.Escalate(ctx, d.IncidentID, d.ID)
		fired = fired || did
		if err != nil && first == nil {
			first = err // the others' time has come all the same
		}
	}
	return fired && len(due) == batch, first
}

// Unsilence sends what still fires and was kept back by a silence that is over, however long ago.
func (s *Scheduler) Unsilence(ctx context.Context) (bool, error) {
	return s.each(ctx, "silences that are over", (*store.Tx).SilencesOver, s.o.Intake.Unsilence)
}

// Ring makes incidents ring again whose snooze is over, however long ago.
func (s *Scheduler) Ring(ctx context.Context) (bool, error) {
	return s.each(ctx, "snoozes that are over", (*store.Tx).SnoozesOver, s.o.Intake.Ring)
}

// TakeUp sends pages again that died for want of a linked account, now that there is one: by a link, a look-up or the file.
func (s *Scheduler) TakeUp(ctx context.Context) (bool, error) {
	pages, err := s.o.Store.UnlinkedPages(ctx, batch)
	if err != nil || len(pages) == 0 {
		return false, err
	}
	linked, err := s.o.Store.Accounts(ctx)
	if err != nil {
		return false, fmt.Errorf("read the linked accounts: %w", err)
	}
	accounts := make([]plan.Account, len(linked))
	for i, a := range linked {
		accounts[i] = plan.Account{Provider: a.Provider, AccountID: a.AccountID, UserID: a.UserID}
	}
	now, err := s.o.Store.Now(ctx)
	if err != nil {
		return false, err
	}
	overrides, err := s.o.Store.OverridesFrom(ctx, now)
	if err != nil {
		return false, err
	}
	f := s.o.File().WithOverrides(overrides)
	var first error
	for _, p := range pages {
		if _, err := plan.Resolve(f, accounts, p.Notifier, p.Target, now); err != nil {
			continue // nothing has changed for it
		}
		if _, err := s.o.Intake.TakeUp(ctx, p.IncidentID, p.ID); err != nil && first == nil {
			first = err
		}
	}
	return false, first
}

// Open sends what still fires and waited for the hours of a route, which have begun, however long ago. With a new file all of it is
// looked at again, since the hours may be others: the replica that took the file last says so last.
func (s *Scheduler) Open(ctx context.Context) (bool, error) {
	if sum := s.o.File().Checksum; s.hoursOf.Load() == nil || *s.hoursOf.Load() != sum {
		if err := s.o.Store.RestAnew(ctx); err != nil {
			return false, err
		}
		s.hoursOf.Store(&sum)
	}
	return s.each(ctx, "hours that have begun", (*store.Tx).OpenedHours, s.o.Intake.Open)
}

// each does something to each incident of a batch, in a transaction of its own that looks again under the incident's lock: so
// replicas that see the same one do it once.
func (s *Scheduler) each(ctx context.Context, what string, find func(*store.Tx, context.Context, int) ([]uuid.UUID, error), do func(context.Context, uuid.UUID) (bool, error)) (bool, error) {
	var found []uuid.UUID
	if err := s.o.Store.InTx(ctx, func(tx *store.Tx) (err error) {
		found, err = find(tx, ctx, batch)
		return err
	}); err != nil {
		return false, fmt.Errorf("look for %s: %w", what, err)
	}
	var first error
	moved := false
	for _, id := range found {
		did, err := do(ctx, id)
		moved = moved || did
		if err != nil && first == nil {
			first = err // the others' time has come all the same
		}
	}
	return moved && len(found) == batch, first
}

// Expire ends deliveries whose lifetime is over.
func (s *Scheduler) Expire(ctx context.Context) (bool, error) {
	return s.end(ctx, "expire deliveries",
		func(tx *store.Tx) ([]delivery.Delivery, error) { return tx.ExpiredDeliveries(ctx, batch) }, delivery.Delivery.Expire)
}

// Remove ends deliveries that wait for a notifier that no live replica's file has known for reload.grace without break.
func (s *Scheduler) Remove(ctx context.Context) (bool, error) {
	var gone []string
	if err := s.o.Store.InTx(ctx, func(tx *store.Tx) error {
		var err error
		gone, err = tx.MissingNotifiers(ctx, Alive, s.o.File().Reload.Grace)
		return err
	}); err != nil {
		return false, fmt.Errorf("look for removed notifiers: %w", err)
	}
	again := false
	f := s.o.File()
	for _, name := range gone {
		if _, known := f.Notifiers[name]; known {
			continue // whoever asks is live, however late its heartbeats come
		}
		more, err := s.end(ctx, "end what waits for the removed notifier "+name,
			func(tx *store.Tx) ([]delivery.Delivery, error) { return tx.WaitingFor(ctx, name, batch) }, delivery.Delivery.Remove)
		if err != nil {
			return false, err
		}
		again = again || more
	}
	return again, nil
}

// Exhaust ends deliveries whose tries lie above the cap of their notifier, which a new file has lowered.
func (s *Scheduler) Exhaust(ctx context.Context) (bool, error) {
	again := false
	f := s.o.File()
	for _, name := range inOrder(f.Notifiers) {
		n := f.Notifiers[name]
		if !n.Retries.Capped {
			continue
		}
		more, err := s.end(ctx, "end what has used up the retries of "+name,
			func(tx *store.Tx) ([]delivery.Delivery, error) { return tx.OverCap(ctx, name, n.Retries.Count, batch) }, delivery.Delivery.Exhaust)
		if err != nil {
			return false, err
		}
		again = again || more
	}
	return again, nil
}

// end applies a decision to a batch of deliveries. More is true only when something moved, so that rows which the
// decision leaves alone make no loop.
func (s *Scheduler) end(ctx context.Context, what string, find func(*store.Tx) ([]delivery.Delivery, error), decide func(delivery.Delivery) (delivery.Step, bool)) (bool, error) {
	found, moved := 0, 0
	err := s.o.Store.InTx(ctx, func(tx *store.Tx) error {
		ds, err := find(tx)
		if err != nil {
			return err
		}
		var steps []delivery.Step
		for _, d := range ds {
			if step, ok := decide(d); ok {
				steps = append(steps, step)
			}
		}
		found, moved = len(ds), len(steps)
		return tx.Apply(ctx, steps...)
	})
	if err != nil {
		return false, fmt.Errorf("%s: %w", what, err)
	}
	return found == batch && moved > 0, nil
}
