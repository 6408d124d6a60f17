package store

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/card"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/message"
	"github.com/tocsin-oncall/tocsin/pkg/store/internal/query"
)

// StepPage is a page of an escalation step, as far as the next way or step depends on it.
type StepPage struct {
	ID     uuid.UUID
	Target string
	State  delivery.State
	Begun  bool // out or on its way; not begun: pending for later
	// Overdue: kept back by a pause, a breaker or a pace for longer than its bound. It may still go out; nobody counts on it.
	Overdue bool
}

// PagesOfStep locks the pages that one escalation step made, in the order in which they were made.
func (tx *Tx) PagesOfStep(ctx context.Context, incidentID, stepID uuid.UUID) ([]StepPage, error) {
	rows, err := tx.q.PagesOfStep(ctx, incidentID, stepID)
	if err != nil {
		return nil, err
	}
	return convert(rows, func(r query.PagesOfStepRow) (StepPage, error) {
		return StepPage{ID: r.ID, Target: r.Target, State: delivery.State(r.State), Begun: r.Begun && !r.Overdue, Overdue: r.Overdue}, nil
	})
}

// Hurry makes a delivery due now that is pending for later and was not tried yet. False: it was not so.
func (tx *Tx) Hurry(ctx context.Context, id uuid.UUID) (bool, error) {
	n, err := tx.q.Hurry(ctx, id)
	return n == 1, err
}

// LiveIncidentsOf are the live incidents of a source, oldest first, not locked.
func (tx *Tx) LiveIncidentsOf(ctx context.Context, source string, limit int) ([]Incident, error) {
	rows, err := tx.q.LiveIncidentsOfSource(ctx, source, int32(min(limit, 10_000))) //nolint:gosec // bounded on this line
	if err != nil {
		return nil, err
	}
	return convert(rows, func(r query.Incident) (Incident, error) { return toIncident(r), nil })
}

// AnyDead says whether a dead delivery with this state, notifier, target and reason waits for a decision.
func (tx *Tx) AnyDead(ctx context.Context, state delivery.State, notifier, target, reason string) (bool, error) {
	return tx.q.AnyDead(ctx, query.AnyDeadParams{State: string(state), Notifier: notifier, Target: target, Reason: reason})
}

// MissingNotifiers notes which notifiers deliveries wait for and no live replica's file knows, and returns those of
// which that has been so without break for grace. A replica is live when its last heartbeat is younger than alive.
func (tx *Tx) MissingNotifiers(ctx context.Context, alive, grace time.Duration) ([]string, error) {
	waiting, err := tx.q.LiveNotifiers(ctx)
	if err != nil {
		return nil, err
	}
	if waiting == nil {
		waiting = []string{}
	}
	if err := tx.q.ForgetMissing(ctx, waiting, alive); err != nil {
		return nil, err
	}
	if err := tx.q.NoteMissing(ctx, waiting, alive); err != nil {
		return nil, err
	}
	return tx.q.MissingFor(ctx, grace)
}

// WaitingFor locks deliveries that wait for a notifier and are not told to end, skipping those that another replica has.
func (tx *Tx) WaitingFor(ctx context.Context, notifier string, limit int) ([]delivery.Delivery, error) {
	rows, err := tx.q.LockWaitingFor(ctx, notifier, int32(min(limit, 10_000))) //nolint:gosec // bounded on this line
	if err != nil {
		return nil, err
	}
	return convert(rows, func(r query.LockWaitingForRow) (delivery.Delivery, error) { return toDelivery(query.ClaimRow(r)) })
}

// OverCap locks deliveries of a notifier whose tries lie above its cap, skipping those that another replica has.
func (tx *Tx) OverCap(ctx context.Context, notifier string, count, limit int) ([]delivery.Delivery, error) {
	rows, err := tx.q.LockOverCap(ctx, notifier, count, int32(min(limit, 10_000))) //nolint:gosec // bounded on this line
	if err != nil {
		return nil, err
	}
	return convert(rows, func(r query.LockOverCapRow) (delivery.Delivery, error) { return toDelivery(query.ClaimRow(r)) })
}

// AnyFileError says whether a live replica keeps an older file than the one on its disk.
func (tx *Tx) AnyFileError(ctx context.Context, alive time.Duration) (bool, error) {
	return tx.q.AnyFileError(ctx, alive)
}

// How long what only guards against repeats is kept.
const (
	keepAnswers   = 24 * time.Hour
	keepCallbacks = 7 * 24 * time.Hour
	keepReplicas  = 24 * time.Hour // since the last heartbeat
)

// Purge removes at most limit rows each of what only guards against repeats and is too old to: first answers of
// requests, callbacks; and replicas that are long gone and link codes that are long over. It returns how many answers
// and callbacks went, so that a caller goes on while there are full batches.
func (s *Store) Purge(ctx context.Context, limit int) (int, error) {
	most := int32(min(limit, 10_000)) //nolint:gosec // bounded on this line
	answers, err := s.q.PurgeIdempotency(ctx, keepAnswers, most)
	if err != nil {
		return 0, err
	}
	callbacks, err := s.q.PurgeCallbacks(ctx, keepCallbacks, most)
	if err != nil {
		return int(answers), err
	}
	if _, err := s.q.PurgeReplicas(ctx, keepReplicas); err != nil {
		return int(answers + callbacks), err
	}
	if err := s.q.DropStaleReceivers(ctx); err != nil {
		return int(answers + callbacks), err
	}
	if err := s.q.DropStaleInvitations(ctx); err != nil {
		return int(answers + callbacks), err
	}
	return int(answers + callbacks), s.q.DropStaleLinkCodes(ctx)
}

// IncidentState is the state of an incident, read without a lock; empty where there is none.
func (tx *Tx) IncidentState(ctx context.Context, id uuid.UUID) (message.State, error) {
	rows, err := tx.q.IncidentStates(ctx, []uuid.UUID{id})
	if err != nil || len(rows) == 0 {
		return "", err
	}
	return message.State(rows[0].State), nil
}

// SnoozesOver are incidents whose snooze is over, not locked.
func (tx *Tx) SnoozesOver(ctx context.Context, limit int) ([]uuid.UUID, error) {
	return tx.q.SnoozesOver(ctx, int32(min(limit, 10_000))) //nolint:gosec // bounded on this line
}

// LastEntry is the newest entry of a type on an incident's timeline, and its age.
func (tx *Tx) LastEntry(ctx context.Context, incidentID uuid.UUID, typ string) (e card.Entry, age time.Duration, ok bool, err error) {
	rows, err := tx.q.LastTimeline(ctx, incidentID, typ)
	if err != nil || len(rows) == 0 {
		return card.Entry{}, 0, false, err
	}
	return card.Entry{At: rows[0].At, Actor: rows[0].Actor, Type: typ, Text: rows[0].Text}, rows[0].Age, true, nil
}
