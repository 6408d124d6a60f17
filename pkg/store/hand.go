package store

import (
	"context"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/store/internal/query"
)

// StepOf is the escalation step that made a page; zero: none did.
func (tx *Tx) StepOf(ctx context.Context, id uuid.UUID) (uuid.UUID, error) {
	return tx.q.StepOfDelivery(ctx, id)
}

// HandOver notes that a person gets a page of their own beside that of a target which is bound to somebody else. False: they
// were given one before.
func (tx *Tx) HandOver(ctx context.Context, incidentID, stepID uuid.UUID, notifier, target, userID string, page uuid.UUID) (bool, error) {
	n, err := tx.q.HandOver(ctx, query.HandOverParams{IncidentID: incidentID, StepID: stepID, Notifier: notifier, Target: target, UserID: userID, DeliveryID: page})
	return n == 1, err
}
