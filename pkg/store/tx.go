package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/message"
	"github.com/tocsin-oncall/tocsin/pkg/store/internal/query"
)

// Tx is a transaction of someone who is not a worker: intake, scheduler, a person's decision. The order of its locks is
// always the same: the incident first, then its deliveries by id, then attempts; batches lock by id too.
//
// What has no answer is sent with what has one, see pipe: an error of it may come from a later call, or from the commit. Rows
// of which many incidents write one or two each are gathered until then, see rows; what many incidents are asked for can be
// read at once, see [Store.InBatchTx].
type Tx struct {
	q      *query.Queries
	pipe   *pipe
	copies *copies
	now    time.Time
	ended  []Ended
	told   []Event // written at the end
	// telling: events were written already, with what they are about
	telling bool
	ahead   ahead
	rows    rows
	holding bool // rows stay where they are
}

// Ended is a delivery that came to a state in which no worker acts, by someone who is not a worker: an answer, a person's
// decision, its lifetime, a removed notifier, or nowhere to send from the first.
type Ended struct {
	ID, IncidentID   uuid.UUID
	Kind             delivery.Kind
	Notifier, Target string
	State            delivery.State
	Reason, Sentence string
	Attempts         int
}

// OnEnded sets who is told of each delivery that a transaction of [Store.InTx] has ended, after its commit. It is called
// once, before the first transaction.
func (s *Store) OnEnded(f func(Ended)) { s.onEnded = f }

// InTx runs fn in one transaction. After a deadlock or a serialization failure it runs fn again, so fn must have no
// effects but its writes. An error that is not the database's own answer, such as a lost connection, is returned as it is: the writes
// may have taken place.
func (s *Store) InTx(ctx context.Context, fn func(tx *Tx) error) error {
	return s.inTx(ctx, "", func(tx *Tx) (err error) {
		if tx.now, err = tx.q.ClockTimestamp(ctx); err != nil {
			return err
		}
		return fn(tx)
	})
}

// InBatchTx is InTx for alerts of several incidents. Those of them that are live and that nobody else holds are locked before fn runs,
// all at once in the order of their ids, and what is asked of one of them later is read for all of them together. held are the keys
// whose incident somebody else has locked: whoever waits for them does it in another transaction, and holds up no other.
//
// Its rows are all found by their index, and by as many of them as there happen to be: with one plan for any number. To plan each
// statement anew would be a third of its cost.
func (s *Store) InBatchTx(ctx context.Context, expected []Expected, fn func(tx *Tx, held []string) error) error {
	return s.inTx(ctx, batchSettings, func(tx *Tx) error {
		held, err := tx.readAhead(ctx, expected)
		if err != nil {
			return err
		}
		return fn(tx, held)
	})
}

const batchSettings = "select set_config('plan_cache_mode', 'force_generic_plan', true), set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true), set_config('enable_bitmapscan', 'off', true)"

func (s *Store) inTx(ctx context.Context, settings string, fn func(tx *Tx) error) error {
	var err error
	for range txTries {
		var ended []Ended
		told := false
		err = s.inPipe(ctx, settings, func(p *pipe) error {
			t := &Tx{q: query.New(p), pipe: p, copies: s.copies}
			p.last = t.writeRows
			if err := fn(t); err != nil {
				return err
			}
			ended, told = t.ended, t.telling || len(t.told) > 0
			return t.addEvents(ctx)
		})
		if err == nil && told && s.onTold != nil {
			s.onTold()
		}
		if err == nil && s.onEnded != nil {
			for _, e := range ended {
				s.onEnded(e)
			}
		}
		if err == nil || !again(err) {
			return err
		}
	}
	return err
}

// Now is the database's clock at the start of the transaction.
func (tx *Tx) Now() time.Time { return tx.now }

// OpenIncident returns the live incident of in.Key, locked, or makes it from in. Two replicas that get the same alert
// at once meet on its row: one makes it, the other waits and gets it.
func (tx *Tx) OpenIncident(ctx context.Context, in Incident) (inc Incident, created bool, err error) {
	// Nothing that is gathered is about an incident of this key: a crowd of new incidents writes all its rows together.
	tx.holding = tx.ahead.keys[in.Key]
	defer func() { tx.holding = false }()
	r, err := tx.q.OpenIncident(ctx, query.OpenIncidentParams{ID: in.ID, Key: in.Key, Source: in.Source, Topic: in.Topic, Title: in.Title, Criticality: in.Criticality})
	if err != nil {
		return Incident{}, false, err
	}
	return toIncident(r.Incident), r.Created, nil
}

// LockIncident locks an incident by id. It returns ErrNotFound when there is none.
func (tx *Tx) LockIncident(ctx context.Context, id uuid.UUID) (Incident, error) {
	r, err := tx.q.LockIncident(ctx, id)
	return toIncident(r), notFound(err)
}

// Alert finds one fingerprint of an incident.
func (tx *Tx) Alert(ctx context.Context, incidentID uuid.UUID, fingerprint string) (Alert, bool, error) {
	r, err := tx.q.FindAlert(ctx, incidentID, fingerprint)
	if err = notFound(err); err != nil {
		if err == ErrNotFound { //nolint:errorlint // made on the line before
			return Alert{}, false, nil
		}
		return Alert{}, false, err
	}
	a, err := toAlert(r)
	return a, true, err
}

// Alerts are the first alerts of an incident, firing first, newest first.
func (tx *Tx) Alerts(ctx context.Context, incidentID uuid.UUID, limit int) ([]Alert, error) {
	rows, err := tx.q.AlertsOfIncident(ctx, incidentID, int32(min(limit, 10_000))) //nolint:gosec // bounded on this line
	if err != nil {
		return nil, err
	}
	return convert(rows, toAlert)
}

// Delivery locks one delivery. It returns ErrNotFound when there is none. Lock its incident before.
func (tx *Tx) Delivery(ctx context.Context, id uuid.UUID) (delivery.Delivery, error) {
	rows, err := tx.q.LockDeliveriesByID(ctx, []uuid.UUID{id})
	if err != nil {
		return delivery.Delivery{}, err
	}
	if len(rows) == 0 {
		return delivery.Delivery{}, ErrNotFound
	}
	return toDelivery(query.ClaimRow(rows[0]))
}

// AddDeliveries adds deliveries. Due times are the database's clock at the write plus their delay.
func (tx *Tx) AddDeliveries(ctx context.Context, ds ...NewDelivery) error {
	for _, d := range ds {
		p := query.AddDeliveryParams{
			ID: d.ID, IncidentID: nonzero(d.IncidentID), ContentID: nonzero(d.ContentID), Kind: string(d.Kind), Priority: int16(d.Kind.Priority()), //nolint:gosec // 0 to 4
			Notifier: d.Notifier, Target: d.Target, State: string(delivery.Pending), Delay: d.Delay, Desired: max(d.Desired, 1), CardID: nonzero(d.CardID), StepID: nonzero(d.StepID),
			Lifetime: d.Lifetime, Reason: d.Reason,
		}
		if p.EndsIn = d.Lifetime; d.FromDue {
			p.EndsIn += d.Delay
		}
		if d.Wait > 0 {
			p.Waits, p.Delay, p.Reason = true, d.Wait, "waiting_for_card"
		}
		if d.Dead != nil {
			p.State, p.Reason, p.Sentence = string(d.Dead.State), d.Dead.Reason, d.Dead.Sentence
		}
		if err := tx.q.AddDelivery(ctx, p); err != nil {
			return fmt.Errorf("add %s to %s: %w", d.Kind, d.Notifier, err)
		}
		if d.Dead != nil {
			tx.ended = append(tx.ended, Ended{d.ID, d.IncidentID, d.Kind, d.Notifier, d.Target, d.Dead.State, d.Dead.Reason, d.Dead.Sentence, 0})
		}
	}
	return nil
}

// Apply writes steps decided on rows of this transaction. It returns ErrFenced when a row had moved, which can't be on
// rows that this transaction locked.
func (tx *Tx) Apply(ctx context.Context, steps ...delivery.Step) error {
	if len(steps) == 0 {
		return nil
	}
	ids, err := tx.q.Apply(ctx, applyParams(steps))
	if err != nil {
		return err
	}
	if len(ids) != len(steps) {
		return fmt.Errorf("%d of %d deliveries: %w", len(steps)-len(ids), len(steps), ErrFenced)
	}
	for _, st := range steps {
		if d, c := st.From(), st.Change(); st.Moves() && st.To().Settled() {
			tx.ended = append(tx.ended, Ended{d.ID, d.IncidentID, d.Kind, d.Notifier, d.Target, c.State, c.Reason, c.Sentence, d.Attempts})
		}
	}
	return nil
}

// ExpiredDeliveries locks deliveries whose lifetime is over, skipping those that another replica has.
func (tx *Tx) ExpiredDeliveries(ctx context.Context, limit int) ([]delivery.Delivery, error) {
	rows, err := tx.q.LockExpired(ctx, int32(min(limit, 10_000))) //nolint:gosec // bounded on this line
	if err != nil {
		return nil, err
	}
	return convert(rows, func(r query.LockExpiredRow) (delivery.Delivery, error) { return toDelivery(query.ClaimRow(r)) })
}

func convert[R, T any](rows []R, f func(R) (T, error)) ([]T, error) {
	out := make([]T, len(rows))
	for i, r := range rows {
		var err error
		if out[i], err = f(r); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// maybe turns "no row" into false.
func maybe[R, T any](f func(R) T) func(R, error) (T, bool, error) {
	return func(r R, err error) (T, bool, error) {
		var zero T
		if err = notFound(err); err != nil {
			if err == ErrNotFound { //nolint:errorlint // made on the line before
				return zero, false, nil
			}
			return zero, false, err
		}
		return f(r), true, nil
	}
}

func toIncident(r query.Incident) Incident {
	return Incident{
		ID: r.ID, Key: r.Key, Source: r.Source, Topic: r.Topic, Title: r.Title, State: message.State(r.State), Criticality: r.Criticality, Count: r.Count,
		Firing: r.Firing, Resolved: r.Resolved, Truncated: r.Truncated, Revision: r.Revision, Sequence: r.Sequence, OpenedAt: r.OpenedAt,
		AcknowledgedAt: r.AcknowledgedAt, AcknowledgedBy: deref(r.AcknowledgedBy), ResolvedAt: r.ResolvedAt, ResolvedBy: deref(r.ResolvedBy),
		SnoozedUntil: r.SnoozedUntil,
	}
}

func toAlert(r query.Alert) (Alert, error) {
	a := Alert{
		ID: r.ID, IncidentID: r.IncidentID, Fingerprint: r.Fingerprint, Topic: r.Topic, Criticality: r.Criticality, Status: r.Status, Title: r.Title, Text: r.Text,
		StartsAt: r.StartsAt, EndsAt: r.EndsAt, Count: r.Count, FirstSeenAt: r.FirstSeenAt, LastSeenAt: r.LastSeenAt,
	}
	if err := json.Unmarshal(r.Labels, &a.Labels); err != nil {
		return a, fmt.Errorf("alert %s: labels: %w", r.ID, err)
	}
	if err := json.Unmarshal(r.Links, &a.Links); err != nil {
		return a, fmt.Errorf("alert %s: links: %w", r.ID, err)
	}
	return a, nil
}
