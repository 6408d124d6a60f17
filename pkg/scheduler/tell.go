package scheduler

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// numbered is how many events one transaction gives numbers to.
const numbered = 2000

// NumberEvents gives events their numbers also while nobody listens, so that the first who does has no long way to go.
func (s *Scheduler) NumberEvents(ctx context.Context) (bool, error) {
	n, err := s.o.Store.NumberEvents(ctx, numbered)
	return n == numbered, err
}

// OnCall tells of each change of who is on call, once, whichever replica sees it first. Of replicas with different files only those speak
// that have the newest one: else two would contradict each other for as long as a rolling change takes.
func (s *Scheduler) OnCall(ctx context.Context) (bool, error) {
	f := s.o.File()
	if len(f.Schedules) == 0 {
		return false, nil
	}
	// Read before the transaction whose clock says who is on call: who finds a hand-off written is not before it.
	var told map[string]store.OnCall
	speaks := false
	if err := s.o.Store.InTx(ctx, func(tx *store.Tx) error {
		newest, err := tx.NewestFile(ctx, Alive)
		if speaks = newest == "" || newest == f.Checksum; err != nil || !speaks {
			return err
		}
		told, err = tx.OnCallTold(ctx)
		return err
	}); err != nil || !speaks {
		return false, err
	}
	err := s.o.Store.InTx(ctx, func(tx *store.Tx) error {
		overrides, err := tx.OverridesFrom(ctx, tx.Now())
		if err != nil {
			return err
		}
		var ids []string
		changed := false
		for _, sch := range f.WithOverrides(overrides).Schedules {
			ids = append(ids, sch.ID)
			shift, on := sch.At(tx.Now())
			now := store.OnCall{Schedule: sch.ID}
			if on {
				now.Users, now.Layer = shift.Users, shift.Layer
			}
			before, had := told[sch.ID]
			if had && slices.Equal(before.Users, now.Users) {
				continue
			}
			first, err := tx.TellOnCall(ctx, now)
			if err != nil {
				return err
			}
			if !first || !had {
				continue // another replica tells of it; or nobody has been told of anybody yet
			}
			changed = true
			change := api.LiveOnCall{Schedule: sch.ID, Layer: now.Layer, Users: people(f, now.Users), Before: people(f, before.Users)}
			if on && !shift.End.IsZero() {
				until := shift.End.UTC()
				change.Until = &until
			}
			if err := s.o.Intake.TellOnCall(ctx, tx, change); err != nil {
				return err
			}
		}
		if changed {
			if err := wake(ctx, tx); err != nil {
				return err
			}
		}
		for id := range told {
			if !slices.Contains(ids, id) {
				return tx.ForgetOnCall(ctx, ids)
			}
		}
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("tell who is on call: %w", err)
	}
	return false, nil
}

// wake lets all escalations look again that rest since those whom they page have quiet hours: somebody else is on call, who may have none.
// Those that find nobody else rest on.
func wake(ctx context.Context, tx *store.Tx) error {
	ids, err := tx.RestingIncidents(ctx, batch)
	if err != nil {
		return fmt.Errorf("look for escalations that rest: %w", err)
	}
	for _, id := range ids { // by id, as all that lock several
		if _, err := tx.LockIncident(ctx, id); err != nil {
			return fmt.Errorf("lock an incident whose escalation rests: %w", err)
		}
		if _, err := tx.WakeSteps(ctx, id); err != nil {
			return fmt.Errorf("end the rest of an escalation: %w", err)
		}
	}
	return nil
}

// people are users with their names; one whom the file does not know any more has none.
func people(f *config.File, ids []string) []api.Person {
	out := make([]api.Person, len(ids))
	for i, id := range ids {
		u, _ := f.User(id)
		out[i] = api.Person{ID: id, Name: cmp.Or(u.Name, id)}
	}
	return out
}
