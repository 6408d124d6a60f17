package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/store/internal/query"
)

// Callback is what a person did in a chat, as it is kept until it is applied.
type Callback struct {
	Key  string // the same on every redelivery
	Body json.RawMessage
	Age  time.Duration // since it was stored
}

// Receive stores a callback, so that it can be answered: it will be applied, by this replica or, when that is not done within hold,
// by any other. False: it is a redelivery.
func (s *Store) Receive(ctx context.Context, c Callback, hold time.Duration) (bool, error) {
	n, err := s.q.ReceiveCallback(ctx, c.Key, c.Body, hold)
	if err != nil {
		return false, fmt.Errorf("store a callback: %w", err)
	}
	return n == 1, nil
}

// Receive stores what is to be applied after the commit of what it waited for.
func (tx *Tx) Receive(ctx context.Context, c Callback, hold time.Duration) error {
	if _, err := tx.q.ReceiveCallback(ctx, c.Key, c.Body, hold); err != nil {
		return fmt.Errorf("store a callback: %w", err)
	}
	return nil
}

// DueCallbacks takes callbacks that nobody has applied in their time, for hold.
func (s *Store) DueCallbacks(ctx context.Context, hold time.Duration, limit int) ([]Callback, error) {
	rows, err := s.q.DueCallbacks(ctx, hold, int32(min(limit, 10_000))) //nolint:gosec // bounded on this line
	if err != nil {
		return nil, fmt.Errorf("look for callbacks: %w", err)
	}
	return convert(rows, func(r query.DueCallbacksRow) (Callback, error) {
		return Callback{Key: r.Key, Body: r.Body, Age: r.Age}, nil
	})
}

// CloseCallback says that there is nothing left to apply. Of one that was applied already nothing changes.
func (s *Store) CloseCallback(ctx context.Context, key, result string) error {
	return s.q.CloseCallback(ctx, result, key)
}
