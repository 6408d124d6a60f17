package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tocsin-oncall/tocsin/pkg/store/internal/query"
)

// Poll is one holder's turn at asking a bot for what people did.
type Poll struct {
	Account string    // of the notifier's credentials
	Token   uuid.UUID // of this turn
	Holder  string    // the replica
}

// HoldPoll takes the turn where it is free, or keeps one's own for ttl more, and gives the first update that is not stored yet. False:
// another replica has it.
func (s *Store) HoldPoll(ctx context.Context, p Poll, ttl time.Duration) (next int64, held bool, err error) {
	rows, err := s.q.HoldPoller(ctx, query.HoldPollerParams{Account: p.Account, Token: p.Token, Holder: p.Holder, Ttl: ttl})
	if err != nil {
		return 0, false, fmt.Errorf("take the turn at polling: %w", err)
	}
	if len(rows) == 0 {
		return 0, false, nil
	}
	return int64(rows[0]), true, nil
}

// PollHolder is the replica whose turn it is; empty: nobody's.
func (s *Store) PollHolder(ctx context.Context, account string) (string, error) {
	rows, err := s.q.PollerHolder(ctx, account)
	if err != nil || len(rows) == 0 {
		return "", err
	}
	return rows[0], nil
}

// LeavePoll ends the turn, so that another replica need not wait for its end.
func (s *Store) LeavePoll(ctx context.Context, p Poll) error {
	return s.q.ReleasePoller(ctx, p.Account, p.Token)
}

// ReceivePolled stores what a poll has brought and that it is stored, in one transaction. It returns those that are new, and [ErrFenced]
// where the turn is over: then nothing is stored, and whoever has it gets the same.
func (s *Store) ReceivePolled(ctx context.Context, p Poll, next int64, all []Callback, hold time.Duration) ([]Callback, error) {
	var fresh []Callback
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		fresh = nil
		q := s.q.WithTx(tx)
		if err := one(q.AdvancePoller(ctx, int(next), p.Account, p.Token)); err != nil {
			return err
		}
		for _, c := range all {
			n, err := q.ReceiveCallback(ctx, c.Key, c.Body, hold)
			if err != nil {
				return err
			}
			if n == 1 {
				fresh = append(fresh, c)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("store what a poll has brought: %w", err)
	}
	return fresh, nil
}

// Receiver is how one replica stands with a chat that it asks for what people do.
type Receiver struct {
	Replica, Notifier string
	Kind              string // socket, poll
	State             string // connected, waiting, failed
	Detail            string
	Since             time.Time
}

// PutReceiver notes how a receiver stands.
func (s *Store) PutReceiver(ctx context.Context, r Receiver) error {
	return s.q.PutReceiver(ctx, query.PutReceiverParams{Replica: r.Replica, Notifier: r.Notifier, Kind: r.Kind, State: r.State, Detail: r.Detail})
}

// DropReceiver forgets one, or all of the replica where the notifier is empty.
func (s *Store) DropReceiver(ctx context.Context, replica, notifier string) error {
	if notifier == "" {
		return s.q.DropReceiversOf(ctx, replica)
	}
	return s.q.DropReceiver(ctx, replica, notifier)
}

// Receivers are those that were seen within alive.
func (s *Store) Receivers(ctx context.Context, alive time.Duration) ([]Receiver, error) {
	rows, err := s.q.Receivers(ctx, alive)
	if err != nil {
		return nil, fmt.Errorf("read the receivers: %w", err)
	}
	return convert(rows, func(r query.Receiver) (Receiver, error) {
		return Receiver{Replica: r.Replica, Notifier: r.Notifier, Kind: r.Kind, State: r.State, Detail: r.Detail, Since: r.Since}, nil
	})
}
