package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/store/internal/query"
)

// AddSteps adds due steps of an escalation. A step that is there already stays: an escalation runs once per incident.
func (tx *Tx) AddSteps(ctx context.Context, steps ...EscalationStep) error {
	for _, s := range steps {
		if err := tx.q.AddStep(ctx, query.AddStepParams{ID: s.ID, IncidentID: s.IncidentID, Name: s.Name, Round: s.Round, Step: s.Step, Due: s.Due, Rests: s.Rests}); err != nil {
			return err
		}
	}
	return nil
}

// DueSteps names steps that are due. They are not locked: lock the incident, then look again with Steps.
func (tx *Tx) DueSteps(ctx context.Context, limit int) ([]EscalationStep, error) {
	rows, err := tx.q.DueSteps(ctx, int32(min(limit, 10_000))) //nolint:gosec // bounded on this line
	if err != nil {
		return nil, err
	}
	return convert(rows, toStep)
}

// FireStep marks a due step as fired.
func (tx *Tx) FireStep(ctx context.Context, id uuid.UUID) error { return one(tx.q.FireStep(ctx, id)) }

// WithdrawSteps ends all due steps of an incident: someone answered.
func (tx *Tx) WithdrawSteps(ctx context.Context, incidentID uuid.UUID, reason string) error {
	return tx.q.WithdrawSteps(ctx, reason, incidentID)
}

// HoldSteps lets the escalations of a locked incident stand still. False: none of them was going on.
func (tx *Tx) HoldSteps(ctx context.Context, incidentID uuid.UUID) (bool, error) {
	n, err := tx.q.HoldSteps(ctx, incidentID)
	return n > 0, err
}

// ReleaseSteps lets them go on: each step comes as much later as it stood still. False: none of them was held.
func (tx *Tx) ReleaseSteps(ctx context.Context, incidentID uuid.UUID) (bool, error) {
	n, err := tx.q.ReleaseSteps(ctx, incidentID)
	return n > 0, err
}

// ReadSteps are all steps of an incident's escalations, in order, read without a lock.
func (s *Store) ReadSteps(ctx context.Context, incidentID uuid.UUID) ([]EscalationStep, error) {
	rows, err := s.q.ReadSteps(ctx, incidentID)
	if err != nil {
		return nil, fmt.Errorf("read the steps of an escalation: %w", err)
	}
	return convert(rows, toStep)
}

// WithdrawStep ends one due step of an incident, in each of its escalations.
func (tx *Tx) WithdrawStep(ctx context.Context, incidentID uuid.UUID, step int, reason string) error {
	_, err := tx.q.WithdrawStep(ctx, reason, incidentID, step)
	return err
}

// DropStep ends one due step.
func (tx *Tx) DropStep(ctx context.Context, id uuid.UUID, reason string) error {
	return tx.q.DropStep(ctx, reason, id)
}

// BringForward makes a due step due now.
func (tx *Tx) BringForward(ctx context.Context, id uuid.UUID) error {
	return one(tx.q.BringForward(ctx, id))
}

// RestSteps moves a due step, and with it all that is due of its escalation, by a span: the step rests until then.
func (tx *Tx) RestSteps(ctx context.Context, s EscalationStep, by time.Duration) error {
	return tx.q.RestSteps(ctx, query.RestStepsParams{ID: s.ID, By: by, IncidentID: s.IncidentID, Name: s.Name})
}

// WakeSteps ends the rest of an incident's escalations: what rests is due now, and what follows comes in its distance.
func (tx *Tx) WakeSteps(ctx context.Context, incidentID uuid.UUID) (bool, error) {
	n, err := tx.q.WakeSteps(ctx, incidentID)
	return n > 0, err
}

// RestingIncidents are incidents of which an escalation rests until quiet hours are over, by id, not locked.
func (tx *Tx) RestingIncidents(ctx context.Context, limit int) ([]uuid.UUID, error) {
	return tx.q.RestingIncidents(ctx, int32(min(limit, 10_000))) //nolint:gosec // bounded on this line
}

func one(n int64, err error) error {
	if err == nil && n == 0 {
		return ErrFenced
	}
	return err
}

func toStep(r query.Escalation) (EscalationStep, error) {
	return EscalationStep{ID: r.ID, IncidentID: r.IncidentID, Name: r.Name, Round: r.Round, Step: r.Step, DueAt: r.DueAt, State: r.State, Held: r.HeldAt != nil, Rests: r.Rests, FiredAt: r.FiredAt, Reason: r.Reason}, nil
}

// DeadDelivery is a delivery that died and whose self-alert is not committed yet.
type DeadDelivery struct {
	Delivery            delivery.Delivery
	Sentence            string
	StepID              uuid.UUID // page: the escalation step that made it
	IncidentTopic       string    // empty: belongs to no incident
	IncidentCriticality string
	IncidentTitle       string
}

// UnannouncedDead locks dead deliveries whose self-alert is still to be raised, skipping those that another replica has.
func (tx *Tx) UnannouncedDead(ctx context.Context, limit int) ([]DeadDelivery, error) {
	rows, err := tx.q.UnannouncedDead(ctx, int32(min(limit, 10_000))) //nolint:gosec // bounded on this line
	if err != nil {
		return nil, err
	}
	return convert(rows, func(r query.UnannouncedDeadRow) (DeadDelivery, error) {
		d, err := toDelivery(query.ClaimRow{
			ID: r.ID, IncidentID: r.IncidentID, ContentID: r.ContentID, Kind: r.Kind, Notifier: r.Notifier, Target: r.Target, State: r.State, Reason: r.Reason,
			Effect: r.Effect, Desired: r.Desired, Applied: r.Applied, Reference: r.Reference, Attempts: r.Attempts, Tries: r.Tries, OpenAttempt: r.OpenAttempt,
			Doubt: r.Doubt, StopState: r.StopState, StopReason: r.StopReason, CardID: r.CardID, WaitUntil: r.WaitUntil, ExpiresAt: r.ExpiresAt,
			CreatedAt: r.CreatedAt, CalledAt: r.CalledAt, LeaseToken: r.LeaseToken, Version: r.Version,
		})
		return DeadDelivery{
			Delivery: d, Sentence: r.Sentence, StepID: deref(r.StepID), IncidentTopic: r.IncidentTopic, IncidentCriticality: r.IncidentCriticality, IncidentTitle: r.IncidentTitle,
		}, err
	})
}

// Announced marks deaths as announced; the mark belongs to this death, a later one is announced anew.
func (tx *Tx) Announced(ctx context.Context, ids ...uuid.UUID) error {
	return tx.q.Announced(ctx, ids)
}

// Callback notes a provider's callback. first is false when it came before: providers redeliver what they saw no answer to.
func (tx *Tx) Callback(ctx context.Context, key string) (first bool, err error) {
	n, err := tx.q.FirstCallback(ctx, key)
	return n == 1, err
}

// Audit notes who did what.
func (tx *Tx) Audit(ctx context.Context, actor, action, object, detail string) error {
	return tx.q.AddAudit(ctx, query.AddAuditParams{ID: NewID(), Actor: actor, Action: action, Object: object, Detail: detail})
}

// AddDecision keeps a person's word on a delivery, with the state that it was said of.
func (tx *Tx) AddDecision(ctx context.Context, d delivery.Delivery, actor string, action delivery.Action, reason string) error {
	return tx.q.AddDecision(ctx, query.AddDecisionParams{
		ID: NewID(), DeliveryID: d.ID, Actor: actor, Action: string(action), Reason: reason, FromState: string(d.State), Effect: d.Effect,
	})
}

// NewID makes a uuid v7: keys in order of time keep the indexes' hot end small.
func NewID() uuid.UUID { return uuid.Must(uuid.NewV7()) }

// Account is a chat account that belongs to a person.
type Account struct {
	Provider  string // slack, telegram
	AccountID string
	UserID    string
	LinkedAt  time.Time
	LinkedBy  string
}

// Accounts are all linked accounts: a few per person.
func (s *Store) Accounts(ctx context.Context) ([]Account, error) {
	rows, err := s.q.Accounts(ctx)
	if err != nil {
		return nil, err
	}
	return convert(rows, toAccount)
}

func toAccount(r query.Account) (Account, error) {
	return Account{Provider: r.Provider, AccountID: r.AccountID, UserID: r.UserID, LinkedAt: r.LinkedAt, LinkedBy: r.LinkedBy}, nil
}

// Replica is a live instance and what its file knows.
type Replica struct {
	ID        string
	Checksum  string
	Notifiers []string
	Version   string
	FileError string // why it keeps an older file than the one on its disk; empty: it does not
}

// Heartbeat says that a replica is alive. It is committed before the replica's intake opens.
func (s *Store) Heartbeat(ctx context.Context, r Replica) error {
	return s.q.Heartbeat(ctx, query.HeartbeatParams{ID: r.ID, Checksum: r.Checksum, Notifiers: r.Notifiers, Version: r.Version, FileError: r.FileError})
}

// RemoveReplica takes a replica out that stops in an orderly way.
func (s *Store) RemoveReplica(ctx context.Context, id string) error {
	return s.q.RemoveReplica(ctx, id)
}

// MaintainPartitions makes the attempt partitions of this month and the next two. A long reader puts it off to the next
// call, which is no error: there are weeks to try, and attempts without a partition of their own lie in the default one.
func (s *Store) MaintainPartitions(ctx context.Context) error {
	err := s.q.AddAttemptPartitions(ctx, 2)
	var p *pgconn.PgError
	if errors.As(err, &p) && p.Code == "55P03" { // lock_not_available
		return nil
	}
	return err
}
