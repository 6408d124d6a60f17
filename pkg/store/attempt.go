package store

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/store/internal/query"
)

// Begun is an attempt to be recorded before its call.
type Begun struct {
	Delivery delivery.Delivery // as claimed: its token and version fence the write
	Attempt  delivery.Attempt  // ID is made by the worker; Number and StartedAt come back
	Breaker  string            // the key of its account's breaker: nothing begins while it is open
	Raised   bool              // it may begin on an older wish than the row's, as long as nothing asks it to stop
}

// Begin records attempts, in one commit for the batch. What comes back may be called; what does not has moved: its
// lease is gone, or something was noted on it, or its destination or account rests, and nothing may be called for it. It may be repeated after a lost answer.
func (s *Store) Begin(ctx context.Context, worker string, batch []Begun) (map[uuid.UUID]Begun, error) {
	p := query.BeginParams{Worker: worker}
	for _, b := range byID(batch, func(b Begun) uuid.UUID { return b.Delivery.ID }) {
		p.Ids = append(p.Ids, b.Delivery.ID)
		p.Tokens = append(p.Tokens, b.Delivery.Token)
		p.Versions = append(p.Versions, int(b.Delivery.Version))
		p.AttemptIds = append(p.AttemptIds, b.Attempt.ID)
		p.EffectKeys = append(p.EffectKeys, b.Attempt.Key)
		p.Revisions = append(p.Revisions, b.Attempt.Revision)
		p.Operations = append(p.Operations, string(b.Attempt.Operation))
		p.Addresses = append(p.Addresses, b.Attempt.Address)
		p.Forms = append(p.Forms, b.Attempt.Form.String())
		p.Queues = append(p.Queues, b.Attempt.Queue)
		p.Accounts = append(p.Accounts, b.Breaker)
		p.Raised = append(p.Raised, b.Raised)
	}
	rows, err := s.begin(ctx, p)
	if err != nil {
		return nil, err
	}
	at := make(map[uuid.UUID]query.BeginRow, len(rows))
	for _, r := range rows {
		at[r.ID] = r
	}
	out := make(map[uuid.UUID]Begun, len(rows))
	for _, b := range batch {
		r, ok := at[b.Delivery.ID]
		if !ok {
			continue
		}
		b.Attempt.Number, b.Attempt.StartedAt = r.Attempts, r.StartedAt
		b.Delivery.Attempts, b.Delivery.Version, b.Delivery.OpenAttempt = r.Attempts, int64(r.Version), b.Attempt.ID
		b.Delivery.Queue = ""
		out[b.Delivery.ID] = b
	}
	return out, nil
}

// begin records a batch. Where something may be raised meanwhile, the rows are locked by a statement of its own: one that has waited
// for a lock does not see what was written while it waited, and in a flood it always waits.
func (s *Store) begin(ctx context.Context, p query.BeginParams) (rows []query.BeginRow, err error) {
	if !slices.Contains(p.Raised, true) {
		return s.w.Begin(ctx, p)
	}
	err = pgx.BeginFunc(ctx, s.work, func(tx pgx.Tx) error {
		q := s.w.WithTx(tx)
		if _, err := q.LockDeliveriesByID(ctx, p.Ids); err != nil {
			return err
		}
		rows, err = q.Begin(ctx, p)
		return err
	})
	return rows, err
}

// Finished is an attempt that came back, with the step that it leads to.
type Finished struct {
	Step     delivery.Step
	Attempt  delivery.Attempt
	Result   delivery.Result
	ClosedBy string // worker, shutdown
}

// Finish writes results, each row fenced by its own token and version. What does not come back has moved: see FinishAnew.
func (s *Store) Finish(ctx context.Context, worker string, batch []Finished) (map[uuid.UUID]bool, error) {
	return s.finish(ctx, s.w, worker, batch)
}

// FinishAnew decides under the rows' locks what results lead to, and gives what was written. It is for rows on which something was
// noted since; in a flood that happens again and again. decide may be asked twice; false leaves a row alone.
func (s *Store) FinishAnew(ctx context.Context, worker string, ids []uuid.UUID, decide func(delivery.Delivery) (Finished, bool)) (map[uuid.UUID]Finished, error) {
	var done map[uuid.UUID]Finished
	err := pgx.BeginFunc(ctx, s.work, func(tx pgx.Tx) error {
		q := s.w.WithTx(tx)
		done = map[uuid.UUID]Finished{}
		var batch []Finished
		err := locked(ctx, q, ids, func(d delivery.Delivery) {
			if f, ok := decide(d); ok {
				batch, done[d.ID] = append(batch, f), f
			}
		})
		if err != nil || len(batch) == 0 {
			return err
		}
		_, err = s.finish(ctx, q, worker, batch) // they are locked: none has moved
		return err
	})
	return done, err
}

func (s *Store) finish(ctx context.Context, q *query.Queries, worker string, batch []Finished) (map[uuid.UUID]bool, error) {
	batch = byID(batch, func(f Finished) uuid.UUID { return stepID(f.Step) })
	steps := make([]delivery.Step, len(batch))
	for i, f := range batch {
		steps[i] = f.Step
	}
	a := applyParams(steps)
	p := query.FinishParams{
		Ids: a.Ids, Tokens: a.Tokens, Versions: a.Versions, States: a.States, Reasons: a.Reasons, Sentences: a.Sentences, Effects: a.Effects,
		Desireds: a.Desireds, Applieds: a.Applieds, Refs: a.Refs, Tries: a.Tries, Doubts: a.Doubts, StopStates: a.StopStates, StopReasons: a.StopReasons,
		Nexts: a.Nexts, Delays: a.Delays, Jitters: a.Jitters, Forms: a.Forms, Denials: a.Denials, Queues: a.Queues, Overdues: a.Overdues,
	}
	for _, f := range batch {
		r := f.Result
		p.AttemptIds = append(p.AttemptIds, f.Attempt.ID)
		p.Outcomes = append(p.Outcomes, string(r.Outcome))
		p.Evidences = append(p.Evidences, string(r.Evidence))
		p.ClosedBys = append(p.ClosedBys, f.ClosedBy)
		p.Faults = append(p.Faults, string(r.Fault))
		p.AttemptReasons = append(p.AttemptReasons, r.Reason)
		p.Errors = append(p.Errors, r.Error)
		p.Codes = append(p.Codes, r.Code)
		p.Statuses = append(p.Statuses, r.HTTPStatus)
		p.Bytes = append(p.Bytes, int(r.Bytes))
		p.Dns = append(p.Dns, millis(r.DNS))
		p.Connects = append(p.Connects, millis(r.Connect))
		p.Tlss = append(p.Tlss, millis(r.TLS))
		p.FirstBytes = append(p.FirstBytes, millis(r.FirstByte))
		p.Durations = append(p.Durations, millis(r.Duration))
		p.Answers = append(p.Answers, r.Answer)
		p.Phases = append(p.Phases, string(r.Phase))
		p.AttemptRefs = append(p.AttemptRefs, refText(r.Reference))
	}
	rows, err := q.Finish(ctx, p)
	if err != nil {
		return nil, err
	}
	done := make(map[uuid.UUID]bool, len(rows))
	for _, r := range rows {
		done[r.ID] = true
		if r.Closed {
			continue
		}
		for _, f := range batch {
			if f.Step.From().ID == r.ID {
				if err := s.addLost(ctx, q, worker, f); err != nil {
					return done, err
				}
			}
		}
	}
	return done, nil
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// addLost inserts again an attempt's row that is gone: the call was made, and the history must say so.
func (s *Store) addLost(ctx context.Context, q *query.Queries, worker string, f Finished) error {
	d, r := f.Step.From(), f.Result
	return q.AddLostAttempt(ctx, query.AddLostAttemptParams{
		ID: f.Attempt.ID, DeliveryID: d.ID, Number: f.Attempt.Number, Effect: f.Attempt.Effect, EffectKey: f.Attempt.Key, Revision: f.Attempt.Revision,
		Operation: string(f.Attempt.Operation), Address: f.Attempt.Address, Worker: worker, LeaseToken: d.Token, DurationMs: millis(r.Duration),
		StartedAt: f.Attempt.StartedAt, Outcome: string(r.Outcome), Evidence: string(r.Evidence), ClosedBy: f.ClosedBy, Fault: string(r.Fault), Error: r.Error,
		ProviderCode: r.Code, HttpStatus: r.HTTPStatus, BytesWritten: int(r.Bytes), Answer: r.Answer, Ref: refText(r.Reference), Form: f.Attempt.Form.String(), Phase: string(r.Phase),
	})
}

// Late keeps an answer whose lease was lost. It goes to the attempt's row as late evidence; decide then says, on the
// delivery as it stands under lock, whether it settles anything. settled says that it did; recorded is false when the
// answer stood there already as an ordinary result: an earlier Finish whose answer was lost.
func (s *Store) Late(ctx context.Context, worker string, f Finished, decide func(delivery.Delivery, delivery.Attempt) (delivery.Step, bool)) (recorded, settled bool, err error) {
	err = pgx.BeginFunc(ctx, s.work, func(tx pgx.Tx) error {
		recorded, settled = false, false
		q := s.w.WithTx(tx)
		// The delivery first, then its attempt: the order of all locks.
		var now *delivery.Delivery
		if err := locked(ctx, q, []uuid.UUID{f.Step.From().ID}, func(d delivery.Delivery) { now = &d }); err != nil {
			return err
		}
		r := f.Result
		a, err := q.LateEvidence(ctx, query.LateEvidenceParams{
			ID: f.Attempt.ID, Outcome: string(r.Outcome), Ref: refText(r.Reference), Status: r.HTTPStatus, Bytes: int(r.Bytes), Code: r.Code, Answer: r.Answer, Phase: string(r.Phase),
		})
		if errors.Is(err, pgx.ErrNoRows) {
			return s.lateNoRow(ctx, q, worker, f)
		}
		if err != nil {
			return err
		}
		recorded = true
		if now == nil {
			return nil
		}
		step, ok := decide(*now, delivery.Attempt{
			ID: a.ID, Number: a.Number, Operation: delivery.Operation(a.Operation), Effect: a.Effect, Key: a.EffectKey, Address: a.Address, Revision: a.Revision, StartedAt: a.StartedAt,
		})
		if !ok {
			return nil
		}
		done, err := q.Apply(ctx, applyParams([]delivery.Step{step}))
		settled = len(done) == 1
		return err
	})
	return recorded, settled, err
}

// lateNoRow is reached when no attempt took the late evidence: it was closed by this worker already, or has late
// evidence already, or its row is gone. Only the last needs a write.
func (s *Store) lateNoRow(ctx context.Context, q *query.Queries, worker string, f Finished) error {
	return s.addLost(ctx, q, worker, f)
}

// Adopt writes what a look-up found: the step that is decided under the row's lock, and the attempt that made it, in one transaction.
// It returns false where decide does: then nothing is written, and the next look-up finds the same.
func (s *Store) Adopt(ctx context.Context, id uuid.UUID, key string, found delivery.Reference, decide func(delivery.Delivery) (delivery.Step, bool)) (delivery.Step, bool, error) {
	var step delivery.Step
	adopted := false
	err := pgx.BeginFunc(ctx, s.work, func(tx pgx.Tx) error {
		adopted = false
		q := s.w.WithTx(tx)
		err := locked(ctx, q, []uuid.UUID{id}, func(d delivery.Delivery) { step, adopted = decide(d) })
		if err != nil || !adopted {
			return err
		}
		if _, err := q.Apply(ctx, applyParams([]delivery.Step{step})); err != nil {
			return err
		}
		p := query.ReconciledParams{DeliveryID: id, EffectKey: key, Ref: json.RawMessage(refText(found))}
		if at, ok := found.At(); ok {
			p.MadeAt = &at
		}
		return q.Reconciled(ctx, p)
	})
	return step, adopted && err == nil, err
}

// LateSent is late evidence of a success that may settle a delivery in doubt.
type LateSent struct {
	DeliveryID uuid.UUID
	Attempt    delivery.Attempt
	Reference  delivery.Reference
}

// LateSents reads late evidence of success on rows in doubt, before each of their creates.
func (s *Store) LateSents(ctx context.Context, deliveries []uuid.UUID) ([]LateSent, error) {
	rows, err := s.w.LateSent(ctx, deliveries)
	if err != nil {
		return nil, err
	}
	var out []LateSent
	for _, r := range rows {
		l := LateSent{DeliveryID: r.DeliveryID, Attempt: delivery.Attempt{
			ID: r.ID, Number: r.Number, Operation: delivery.Operation(r.Operation), Effect: r.Effect, Key: r.EffectKey, Address: r.Address, Revision: r.Revision, StartedAt: r.StartedAt,
		}}
		if len(r.LateReference) > 0 {
			if err := json.Unmarshal(r.LateReference, &l.Reference); err != nil {
				return nil, err
			}
		}
		out = append(out, l)
	}
	return out, nil
}
