package store

import (
	"context"
	"time"

	"github.com/google/uuid"
)

// FiringCriticalities are the different criticalities of an incident's firing alerts.
func (tx *Tx) FiringCriticalities(ctx context.Context, incidentID uuid.UUID) ([]string, error) {
	return tx.q.FiringCriticalities(ctx, incidentID)
}

// Accounts are all linked accounts, read by the transaction's own connection.
func (tx *Tx) Accounts(ctx context.Context) ([]Account, error) {
	rows, err := tx.q.Accounts(ctx)
	if err != nil {
		return nil, err
	}
	return convert(rows, toAccount)
}

// LastAnnounced is when a resolved incident of a key was opened last that had any delivery.
func (tx *Tx) LastAnnounced(ctx context.Context, key string) (time.Time, bool, error) {
	at, err := tx.q.LastAnnounced(ctx, key)
	return at, err == nil && at.Unix() > 0, err
}

// AnyUnrouted says whether a live incident of a topic has no delivery at all.
func (tx *Tx) AnyUnrouted(ctx context.Context, topic string) (bool, error) {
	return tx.q.AnyUnrouted(ctx, topic)
}
