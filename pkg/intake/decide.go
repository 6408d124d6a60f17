package intake

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// Word is a person's decision on deliveries.
type Word struct {
	Action     delivery.Action
	By, Reason string
	run        uuid.UUID // the run it is of; zero: it is on one delivery
	since      time.Time // when that run was made; zero: it is on one delivery
}

// Decide applies a person's word to one delivery within a transaction of the caller, who wakes the workers after the commit.
// incident is the delivery's, zero where it has none: it is locked first, as everybody does who changes its deliveries. What may
// be decided in which state is pkg/delivery's to say: a *delivery.Refusal.
func (i *Intake) Decide(ctx context.Context, tx *store.Tx, id, incident uuid.UUID, w Word) error {
	ds, err := lockAround(ctx, tx, id, incident)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(ds, func(d delivery.Delivery) bool { return d.ID == id })
	if at < 0 {
		return store.ErrNotFound
	}
	return i.decide(ctx, tx, ds, ds[at], w)
}

// lockAround locks an incident and gives its deliveries, or one delivery that belongs to none.
func lockAround(ctx context.Context, tx *store.Tx, id, incident uuid.UUID) ([]delivery.Delivery, error) {
	if incident == uuid.Nil {
		d, err := tx.Delivery(ctx, id)
		return []delivery.Delivery{d}, err
	}
	if _, err := tx.LockIncident(ctx, incident); err != nil {
		return nil, err
	}
	return tx.Deliveries(ctx, incident)
}

// decide applies a word to one of the locked deliveries.
func (i *Intake) decide(ctx context.Context, tx *store.Tx, siblings []delivery.Delivery, d delivery.Delivery, w Word) error {
	step, err := d.Decide(w.Action)
	if err != nil {
		return err
	}
	steps := []delivery.Step{step}
	if w.Action == delivery.SendAgain && d.Kind == delivery.Card {
		for _, t := range siblings {
			if revived, ok := t.Revive(); ok && t.CardID == d.ID {
				steps = append(steps, revived)
			}
		}
	}
	if err := tx.Apply(ctx, steps...); err != nil {
		return err
	}
	detail := w.Reason
	if w.run != uuid.Nil {
		detail += " (run " + w.run.String() + ")"
	}
	if w.Action == delivery.SendAgain {
		// What was mended is tried at once, not after the rest of a pause. What has begun to rest since a run was made rests for
		// what the run itself has brought to light.
		if err := tx.LiftPause(ctx, d.ID, i.file().Notifiers[d.Notifier].Account(), w.since); err != nil {
			return err
		}
	}
	if err := tx.AddDecision(ctx, d, w.By, w.Action, w.Reason); err != nil {
		return err
	}
	return tx.Audit(ctx, w.By, "decision:"+string(w.Action), d.ID.String(), detail)
}

// runBatch bounds what one transaction takes of a run: it holds an incident's lock meanwhile.
const runBatch = 50

// Why a run leaves a delivery alone, where it is not the sentence of a refusal.
const (
	SkipGone     = "gone"
	SkipMoved    = "moved:"
	SkipNotifier = "notifier_removed"
	SkipFailed   = "failed" // the log says why
)

// RunStep is what one step of a run came to.
type RunStep struct {
	Action           delivery.Action
	Applied, Skipped int
}

// DecideMany takes a few deliveries of a run, all of one incident, in one transaction that also notes what became of them: a
// crash leaves none decided and not noted. False: nothing may be taken now. A delivery whose state or effect is not what it was when
// the run was made is left alone: somebody, or another run, was faster. alive is how old the heartbeat of a live replica may be.
//
// What fails holds up neither the rest of its run nor other runs: a delivery on which the database takes no decision is left
// alone, and anything else, such as an incident that somebody holds for long, is tried again after the others had their turn.
// The error is returned in any case.
func (i *Intake) DecideMany(ctx context.Context, alive time.Duration) (RunStep, bool, error) {
	did, more, err := i.decideSome(ctx, alive, runBatch)
	var failed *itemError
	if errors.As(err, &failed) && failed.more && store.Refused(err) {
		did, more, err = i.decideSome(ctx, alive, 1) // which one is it
	}
	if errors.As(err, &failed) {
		err = errors.Join(err, i.passOver(ctx, failed, store.Refused(err)))
	}
	if err != nil {
		return RunStep{}, false, fmt.Errorf("work off a decision on many: %w", err)
	}
	return did, more, nil
}

// itemError is what went wrong with the deliveries of a run, not with the run.
type itemError struct {
	run, first uuid.UUID // the first delivery of the batch
	more       bool      // the batch had others
	err        error
}

func (e *itemError) Error() string {
	return fmt.Sprintf("run %s, delivery %s: %v", e.run, e.first, e.err)
}
func (e *itemError) Unwrap() error { return e.err }

// decideSome is one transaction of DecideMany, with at most so many deliveries.
func (i *Intake) decideSome(ctx context.Context, alive time.Duration, most int) (RunStep, bool, error) {
	var did RunStep
	var due time.Time
	err := i.store.InTx(ctx, func(tx *store.Tx) error {
		did, due = RunStep{}, tx.Now()
		run, ok, err := tx.LockRun(ctx)
		if err != nil || !ok {
			return err
		}
		did.Action = run.Action
		items, err := tx.RunItems(ctx, run.ID, max(1, min(run.Allowed, most)))
		if err != nil {
			return err
		}
		whys := map[uuid.UUID]string{}
		if len(items) > 0 {
			if whys, err = i.decideItems(ctx, tx, run, items, alive); err != nil {
				return &itemError{run: run.ID, first: items[0].DeliveryID, more: len(items) > 1, err: err}
			}
		}
		for _, why := range whys {
			if why == "" {
				did.Applied++
			} else {
				did.Skipped++
			}
		}
		return tx.RunDid(ctx, run, whys, len(items) == 0 || len(items) >= run.Waiting)
	})
	if err != nil {
		return RunStep{}, false, err
	}
	if did.Applied > 0 {
		i.wake(due)
	}
	return did, did.Applied+did.Skipped > 0, nil
}

// passOver leaves alone, for good or for now, what a run failed at. Where another replica has the run by now, it is that one's to see.
func (i *Intake) passOver(ctx context.Context, failed *itemError, forGood bool) error {
	return i.store.InTx(ctx, func(tx *store.Tx) error {
		run, ok, err := tx.LockRun(ctx)
		if err != nil || !ok || run.ID != failed.run {
			return err
		}
		if !forGood {
			return tx.DeferRun(ctx, run)
		}
		items, err := tx.RunItems(ctx, run.ID, 1)
		if err != nil || len(items) == 0 || items[0].DeliveryID != failed.first {
			return err
		}
		return tx.RunDid(ctx, run, map[uuid.UUID]string{failed.first: SkipFailed}, run.Waiting <= 1)
	})
}

// decideItems says of each item why it was left alone, or nothing where the decision was applied.
func (i *Intake) decideItems(ctx context.Context, tx *store.Tx, run store.Run, items []store.RunItem, alive time.Duration) (map[uuid.UUID]string, error) {
	ds, err := lockAround(ctx, tx, items[0].DeliveryID, items[0].IncidentID)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	if err != nil {
		ds = nil
	}
	whys := map[uuid.UUID]string{}
	word := Word{Action: run.Action, By: run.Actor, Reason: run.Reason, run: run.ID, since: run.MadeAt}
	for _, item := range items {
		why, err := i.decideItem(ctx, tx, ds, item, word, alive)
		if err != nil {
			return nil, err
		}
		whys[item.DeliveryID] = why
	}
	return whys, nil
}

func (i *Intake) decideItem(ctx context.Context, tx *store.Tx, ds []delivery.Delivery, item store.RunItem, w Word, alive time.Duration) (string, error) {
	at := slices.IndexFunc(ds, func(d delivery.Delivery) bool { return d.ID == item.DeliveryID })
	switch {
	case at < 0:
		return SkipGone, nil
	case ds[at].State != item.State || ds[at].Effect != item.Effect:
		return SkipMoved + string(ds[at].State), nil
	}
	if _, here := i.file().Notifiers[item.Notifier]; !here && w.Action == delivery.SendAgain {
		// During a rolling change another replica may know it: that one sends.
		known, err := tx.NotifierKnown(ctx, alive, item.Notifier)
		if err != nil {
			return "", err
		}
		if !known {
			return SkipNotifier, nil
		}
	}
	err := i.decide(ctx, tx, ds, ds[at], w)
	var refused *delivery.Refusal
	if errors.As(err, &refused) {
		return refused.Why, nil
	}
	return "", err
}
