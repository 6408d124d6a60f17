package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/store/internal/query"
)

// Event is something that happened, for those who listen.
type Event struct {
	Type, Topic string
	Body        api.LiveEvent // what goes with it
}

// OnTold sets who is told after the commit of a transaction of [Store.InTx] that told of events. It is called once, before the first
// transaction.
func (s *Store) OnTold(f func()) { s.onTold = f }

// Tell notes what happened. It is written at the end of the transaction, all of it in one statement, and without a number: a number
// taken here could become visible behind a greater one that somebody has read by then.
func (tx *Tx) Tell(es ...Event) { tx.told = append(tx.told, es...) }

// body is an event as it goes over the wire, but for its number.
func (tx *Tx) body(e Event) (string, error) {
	at := tx.now.UTC()
	e.Body.Topic, e.Body.Type, e.Body.At = e.Topic, e.Type, &at
	b, err := json.Marshal(e.Body)
	if err != nil {
		return "", fmt.Errorf("write an event: %w", err)
	}
	return string(b), nil
}

func (tx *Tx) addEvents(ctx context.Context) error {
	if len(tx.told) == 0 {
		return nil
	}
	types, topics, bodies := make([]string, len(tx.told)), make([]string, len(tx.told)), make([]string, len(tx.told))
	for i, e := range tx.told {
		body, err := tx.body(e)
		if err != nil {
			return err
		}
		types[i], topics[i], bodies[i] = e.Type, e.Topic, body
	}
	if err := tx.q.AddEvents(ctx, types, topics, bodies); err != nil {
		return fmt.Errorf("write the events: %w", err)
	}
	return nil
}

// NumberEvents gives numbers to events that are committed and have none, in small transactions of which there is one at a time in the
// database. So the numbers appear in their order: whoever has read up to one has read all up to it. It returns how many it was.
func (s *Store) NumberEvents(ctx context.Context, limit int) (int, error) {
	var n int64
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		q := s.q.WithTx(tx)
		if err := q.LockEventNumbers(ctx); err != nil {
			return err
		}
		var err error
		n, err = q.NumberEvents(ctx, int32(min(limit, 10_000))) //nolint:gosec // bounded on this line
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("number the events: %w", err)
	}
	return int(n), nil
}

// Told is an event that has its number. Data is a JSON object.
type Told struct {
	ID          int64
	Type, Topic string
	Data        []byte
}

// EventsAfter are the events with a greater number, in order.
func (s *Store) EventsAfter(ctx context.Context, after int64, limit int) ([]Told, error) {
	rows, err := s.q.EventsAfter(ctx, int(after), int32(min(limit, 10_000))) //nolint:gosec // bounded on this line
	if err != nil {
		return nil, fmt.Errorf("read the events: %w", err)
	}
	return convert(rows, func(r query.EventsAfterRow) (Told, error) {
		rest, ok := strings.CutPrefix(r.Body, "{")
		if !ok {
			return Told{}, fmt.Errorf("event %d is no JSON object", r.Sequence)
		}
		return Told{ID: int64(r.Sequence), Type: r.Type, Topic: r.Topic, Data: fmt.Appendf(nil, `{"id":%d,%s`, r.Sequence, rest)}, nil
	})
}

// EventBounds are the least and the greatest number that is kept; 0: there is none.
func (s *Store) EventBounds(ctx context.Context) (first, last int64, err error) {
	r, err := s.q.EventBounds(ctx)
	if err != nil {
		return 0, 0, fmt.Errorf("look for the last event: %w", err)
	}
	return int64(r.First), int64(r.Last), nil
}

// KeepEvents is how long events are kept for those who come back.
const KeepEvents = 4 * time.Hour

// PurgeEvents removes at most limit events that are too old, and returns how many.
func (s *Store) PurgeEvents(ctx context.Context, limit int) (int, error) {
	n, err := s.q.PurgeEvents(ctx, int32(min(limit, 10_000)), KeepEvents) //nolint:gosec // bounded on this line
	if err != nil {
		return 0, fmt.Errorf("purge the events: %w", err)
	}
	return int(n), nil
}

// NewestFile is the checksum of the file that a live replica has taken last; empty: none is known.
func (tx *Tx) NewestFile(ctx context.Context, alive time.Duration) (string, error) {
	return tx.q.NewestChecksum(ctx, alive)
}

// OnCall is who was last told of as on call in a schedule.
type OnCall struct {
	Schedule string
	Users    []string
	Layer    string
}

// OnCallTold is who was last told of as on call, by schedule.
func (tx *Tx) OnCallTold(ctx context.Context) (map[string]OnCall, error) {
	rows, err := tx.q.OnCallTold(ctx)
	if err != nil {
		return nil, err
	}
	out := map[string]OnCall{}
	for _, r := range rows {
		out[r.Schedule] = OnCall{Schedule: r.Schedule, Users: r.Users, Layer: r.Layer}
	}
	return out, nil
}

// TellOnCall notes who is on call. False: another replica was faster.
func (tx *Tx) TellOnCall(ctx context.Context, t OnCall) (bool, error) {
	if t.Users == nil {
		t.Users = []string{}
	}
	n, err := tx.q.TellOnCall(ctx, t.Schedule, t.Users, t.Layer)
	return n == 1, err
}

// ForgetOnCall forgets schedules that are not among these.
func (tx *Tx) ForgetOnCall(ctx context.Context, schedules []string) error {
	if schedules == nil {
		schedules = []string{}
	}
	return tx.q.ForgetOnCall(ctx, schedules)
}
