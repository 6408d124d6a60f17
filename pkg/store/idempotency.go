package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/tocsin-oncall/tocsin/pkg/store/internal/query"
)

// ErrKeyReused is an Idempotency-Key that came with another body before.
var ErrKeyReused = errors.New("this Idempotency-Key came with another body before: use a new key for a new request")

// KeyedRequest names a request that must be carried out once however often it is sent.
type KeyedRequest struct {
	Token    string // the API token's name: keys of two senders never meet
	Key      string // the Idempotency-Key
	BodyHash []byte // sha256 of the body
}

// FirstAnswer gives the answer that the request got the first time, or claims it for this transaction: then false
// comes back, and whoever sends it meanwhile waits until this transaction is over. [ErrKeyReused] where the key came
// with another body.
func (tx *Tx) FirstAnswer(ctx context.Context, r KeyedRequest) (answer json.RawMessage, answered bool, err error) {
	n, err := tx.q.ClaimIdempotency(ctx, r.Token, r.Key, r.BodyHash)
	if err != nil {
		return nil, false, fmt.Errorf("claim idempotency key: %w", err)
	}
	if n == 1 {
		return nil, false, nil
	}
	row, err := tx.q.ReadIdempotency(ctx, r.Token, r.Key)
	if err != nil {
		return nil, false, fmt.Errorf("read idempotency key: %w", err)
	}
	if !bytes.Equal(row.BodyHash, r.BodyHash) {
		return nil, false, ErrKeyReused
	}
	return row.Answer, true, nil
}

// KeepAnswer stores the first answer to a request that [Tx.FirstAnswer] claimed.
func (tx *Tx) KeepAnswer(ctx context.Context, r KeyedRequest, status int, answer json.RawMessage) error {
	if err := tx.q.SaveIdempotency(ctx, query.SaveIdempotencyParams{Token: r.Token, Key: r.Key, Status: status, Answer: answer}); err != nil {
		return fmt.Errorf("keep first answer: %w", err)
	}
	return nil
}
