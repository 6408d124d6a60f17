package store

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/store/internal/query"
)

// Lane is how many deliveries of one notifier a worker has places for.
type Lane struct {
	Notifier string
	Free     int
	// Low begins the index scan of priorities 1 to 4 at this due time; zero: from the start. Pages have none.
	Low [4]time.Time
}

// Claimed is a delivery under a fresh lease.
type Claimed struct {
	delivery.Delivery
	Now       time.Time // the database's clock at the claim
	Due       time.Time // next_at before the claim: its due time, or the lease's end that it outlived
	Called    bool      // an attempt of it was begun before, under any lease
	TakenOver *TakenOver
}

// TakenOver says that the row's lease had run out over an open attempt, which the claim closed as unknown.
type TakenOver struct {
	Attempt delivery.Attempt
	Worker  string // who held it
}

// Claim takes due deliveries and those whose lease ran out, up to the free places of each lane. Open attempts of rows
// taken over are closed as unknown and their deliveries put in doubt in the same transaction; policy decides after it.
func (s *Store) Claim(ctx context.Context, worker string, lease time.Duration, lanes []Lane) ([]Claimed, error) {
	p := query.ClaimParams{Worker: worker, Lease: lease}
	for _, l := range lanes {
		p.Notifiers = append(p.Notifiers, l.Notifier)
		p.Free = append(p.Free, l.Free)
		p.Low1 = append(p.Low1, l.Low[0])
		p.Low2 = append(p.Low2, l.Low[1])
		p.Low3 = append(p.Low3, l.Low[2])
		p.Low4 = append(p.Low4, l.Low[3])
	}
	var out []Claimed
	err := pgx.BeginFunc(ctx, s.work, func(tx pgx.Tx) error {
		q := s.w.WithTx(tx)
		rows, err := q.Claim(ctx, p)
		if err != nil {
			return err
		}
		var open []uuid.UUID
		for _, r := range rows {
			d, err := toDelivery(r)
			if err != nil {
				return err
			}
			out = append(out, Claimed{Delivery: d, Now: r.ClaimedAt, Due: deref(r.WasDue), Called: r.CalledAt != nil})
			if d.OpenAttempt != uuid.Nil {
				open = append(open, d.OpenAttempt)
			}
		}
		if len(open) == 0 {
			return nil
		}
		return takeOver(ctx, q, out, open)
	})
	return out, err
}

// takeOver closes the open attempts of the rows just claimed. A row whose attempt row is gone (lost by a fail-over) is
// put in doubt all the same: the call may have been made.
func takeOver(ctx context.Context, q *query.Queries, claimed []Claimed, open []uuid.UUID) error {
	closed, err := q.CloseTakenOver(ctx, open)
	if err != nil {
		return err
	}
	by := make(map[uuid.UUID]query.CloseTakenOverRow, len(closed))
	for _, c := range closed {
		by[c.ID] = c
	}
	var steps []delivery.Step
	for i := range claimed {
		d := &claimed[i]
		if d.OpenAttempt == uuid.Nil {
			continue
		}
		t := TakenOver{Attempt: delivery.Attempt{ID: d.OpenAttempt, Number: d.Attempts, Operation: delivery.OpCreate, Effect: d.Effect, Key: d.Key(), Revision: d.Desired, StartedAt: d.Now}}
		if c, ok := by[d.OpenAttempt]; ok {
			t.Attempt = delivery.Attempt{ID: c.ID, Number: c.Number, Operation: delivery.Operation(c.Operation), Effect: c.Effect, Key: c.EffectKey, Address: c.Address, Revision: c.Revision, StartedAt: c.StartedAt}
			t.Worker = c.Worker
		}
		d.TakenOver = &t
		steps = append(steps, d.Takeover(t.Attempt))
	}
	done, err := q.Apply(ctx, applyParams(steps))
	if err != nil {
		return err
	}
	if len(done) != len(steps) {
		return ErrFenced // can't be: the rows are locked by this transaction
	}
	ids := make([]uuid.UUID, 0, len(steps))
	for _, st := range steps {
		ids = append(ids, st.From().ID)
	}
	rows, err := q.DeliveriesByID(ctx, ids)
	if err != nil {
		return err
	}
	fresh := make(map[uuid.UUID]delivery.Delivery, len(rows))
	for _, r := range rows {
		if fresh[r.ID], err = toDelivery(query.ClaimRow(r)); err != nil {
			return err
		}
	}
	for i := range claimed {
		if d, ok := fresh[claimed[i].ID]; ok {
			claimed[i].Delivery = d
		}
	}
	return nil
}

// EarliestDue is how long until the next row of any of the notifiers needs a worker, at most a day.
func (s *Store) EarliestDue(ctx context.Context, notifiers []string) (time.Duration, error) {
	r, err := s.w.EarliestDue(ctx, notifiers)
	if err != nil {
		return 0, err
	}
	return r.DueAt.Sub(r.Now), nil
}

// Settle writes steps of claimed deliveries that need no attempt. Rows that moved meanwhile are left to their owner;
// the ids of those that took their step come back.
func (s *Store) Settle(ctx context.Context, steps []delivery.Step) (map[uuid.UUID]bool, error) {
	if len(steps) == 0 {
		return nil, nil
	}
	ids, err := s.w.Apply(ctx, applyParams(steps))
	if err != nil {
		return nil, err
	}
	done := make(map[uuid.UUID]bool, len(ids))
	for _, id := range ids {
		done[id] = true
	}
	return done, nil
}

// SettleAnew decides under the rows' locks, and gives the steps that were written. It is for rows that a step decided without a lock
// may miss for ever: in a flood something is noted on them again and again. decide may be asked twice; false leaves a row alone.
func (s *Store) SettleAnew(ctx context.Context, ids []uuid.UUID, decide func(delivery.Delivery) (delivery.Step, bool)) (map[uuid.UUID]delivery.Step, error) {
	var done map[uuid.UUID]delivery.Step
	err := pgx.BeginFunc(ctx, s.work, func(tx pgx.Tx) error {
		q := s.w.WithTx(tx)
		done = map[uuid.UUID]delivery.Step{}
		var steps []delivery.Step
		err := locked(ctx, q, ids, func(d delivery.Delivery) {
			if step, ok := decide(d); ok {
				steps, done[d.ID] = append(steps, step), step
			}
		})
		if err != nil || len(steps) == 0 {
			return err
		}
		_, err = q.Apply(ctx, applyParams(steps)) // they are locked: none has moved
		return err
	})
	return done, err
}

// locked locks deliveries by id, which is the order of all locks, and gives them as they stand.
func locked(ctx context.Context, q *query.Queries, ids []uuid.UUID, each func(delivery.Delivery)) error {
	rows, err := q.LockDeliveriesByID(ctx, ids)
	if err != nil {
		return err
	}
	for _, r := range rows {
		d, err := toDelivery(query.ClaimRow(r))
		if err != nil {
			return err
		}
		each(d)
	}
	return nil
}
