package store

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/pace"
	"github.com/tocsin-oncall/tocsin/pkg/store/internal/query"
)

// Ask is a delivery that would call now.
type Ask struct {
	Delivery delivery.Delivery
	Queue    string        // its destination
	Buckets  []pace.Bucket // what it is paced by; none: it only waits for those ahead in its queue
}

// Turn is the answer: go now, or wait.
type Turn struct {
	Now  bool
	Wait time.Duration
}

// The bounds of waiting for a turn: who waits looks again in time, since those ahead may be gone by then.
const (
	queueMost = 300              // counted ahead in one queue
	turnMost  = 30 * time.Second // longest wait until it looks again
	// waitStep is what a place in a queue counts for at least. Who is called next is told so by the call before; that those
	// behind look for themselves is the net, and on a machine that is slower than the pace they would do nothing else.
	waitStep = 50 * time.Millisecond
)

// Turns decides who of a batch may call now, on all replicas together: within every pace, and in each destination by
// priority, then age. It locks the beginnings of the last calls, so two replicas can't take one slot; a turn that is given
// and not used costs its slot. The times are the database's. A crash after the commit costs the same.
func (s *Store) Turns(ctx context.Context, asks []Ask) (map[uuid.UUID]Turn, error) {
	asks = slices.SortedFunc(slices.Values(asks), func(a, b Ask) int {
		return cmp.Or(cmp.Compare(a.Delivery.Kind.Priority(), b.Delivery.Kind.Priority()), a.Delivery.CreatedAt.Compare(b.Delivery.CreatedAt),
			slices.Compare(a.Delivery.ID[:], b.Delivery.ID[:]))
	})
	var out map[uuid.UUID]Turn
	err := pgx.BeginFunc(ctx, s.work, func(tx pgx.Tx) error {
		q := s.w.WithTx(tx)
		begun, err := lockPace(ctx, q, asks)
		if err != nil {
			return err
		}
		ahead, asleep, err := aheadOf(ctx, q, asks)
		if err != nil {
			return err
		}
		now, err := q.ClockTimestamp(ctx) // after the wait for the locks
		if err != nil {
			return err
		}
		turns, used, call := decideTurns(asks, begun, ahead, asleep, now)
		out = turns
		if err := savePace(ctx, q, begun, used); err != nil {
			return err
		}
		if err := joinQueues(ctx, q, asks, turns); err != nil {
			return err
		}
		if len(call) > 0 {
			queues := slices.Sorted(maps.Keys(call))
			seconds := make([]float64, len(queues))
			for i, name := range queues {
				seconds[i] = call[name].Seconds()
			}
			_, err = q.CallNext(ctx, queues, seconds)
		}
		return err
	})
	return out, err
}

// decideTurns goes through the asks in their order. used are the buckets that changed, call the queues whose first should look,
// and when: at once where there is a turn and he sleeps, else when the call that begins now leaves room for the next.
func decideTurns(asks []Ask, begun map[string][]time.Time, ahead, asleep []int, now time.Time) (turns map[uuid.UUID]Turn, used map[string]bool, call map[string]time.Duration) {
	turns, used, call = make(map[uuid.UUID]Turn, len(asks)), map[string]bool{}, map[string]time.Duration{}
	for key, times := range begun {
		for i, t := range times {
			if t.After(now) { // the clock ran back: what began in the time to come has begun by now, and nobody waits for that time
				times[i], used[key] = now, true
			}
		}
	}
	waiting := map[string]int{} // of this batch, by queue
	for i, a := range asks {
		at, gap := now, time.Duration(0)
		for _, b := range a.Buckets {
			if b.Key != a.Queue && a.Delivery.Kind.Priority() > 0 {
				// In its own destination a page goes first by its place in the queue. What is paced with other destinations has no
				// queue: there the others leave room for it.
				b = b.Leaving()
			}
			if t := b.Earliest(begun[b.Key]); t.After(at) {
				at = t
			}
			gap = max(gap, b.Gap())
		}
		before := ahead[i] + waiting[a.Queue]
		if before == 0 && !at.After(now) {
			for _, b := range a.Buckets {
				begun[b.Key], used[b.Key] = b.Begin(begun[b.Key], now), true
			}
			turns[a.Delivery.ID] = Turn{Now: true}
			next := now
			for _, b := range a.Buckets {
				if t := b.Earliest(begun[b.Key]); t.After(next) {
					next = t
				}
			}
			call[a.Queue] = next.Sub(now)
			continue
		}
		if asleep[i] > 0 && !at.After(now) {
			call[a.Queue] = 0
		}
		wait := at.Sub(now) + time.Duration(before)*max(gap, waitStep)
		turns[a.Delivery.ID] = Turn{Wait: min(wait, turnMost)}
		waiting[a.Queue]++
	}
	return turns, used, call
}

func lockPace(ctx context.Context, q *query.Queries, asks []Ask) (map[string][]time.Time, error) {
	var keys []string
	for _, a := range asks {
		for _, b := range a.Buckets {
			keys = append(keys, b.Key)
		}
	}
	slices.Sort(keys)
	keys = slices.Compact(keys)
	out := make(map[string][]time.Time, len(keys))
	if len(keys) == 0 {
		return out, nil
	}
	rows, err := q.LockPace(ctx, keys)
	for _, r := range rows {
		out[r.Key] = r.Begun
	}
	return out, err
}

func savePace(ctx context.Context, q *query.Queries, begun map[string][]time.Time, used map[string]bool) error {
	if len(used) == 0 {
		return nil
	}
	var p query.SavePaceParams
	for key := range used {
		p.Keys, p.Firsts = append(p.Keys, key), append(p.Firsts, len(p.Begun)+1)
		p.Begun = append(p.Begun, begun[key]...)
		p.Lasts = append(p.Lasts, len(p.Begun))
	}
	return q.SavePace(ctx, p)
}

// joinQueues lets others see those that wait: without it, one that is younger could go between this answer and the end of
// their leases.
func joinQueues(ctx context.Context, q *query.Queries, asks []Ask, turns map[uuid.UUID]Turn) error {
	var ids, tokens []uuid.UUID
	var queues []string
	for _, a := range byID(asks, func(a Ask) uuid.UUID { return a.Delivery.ID }) { // one order of locks for all
		if !turns[a.Delivery.ID].Now && a.Delivery.Queue != a.Queue {
			ids, tokens, queues = append(ids, a.Delivery.ID), append(tokens, a.Delivery.Token), append(queues, a.Queue)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	return q.JoinQueue(ctx, ids, tokens, queues)
}

// aheadOf counts those that wait before each ask, and those of them that sleep.
func aheadOf(ctx context.Context, q *query.Queries, asks []Ask) (ahead, asleep []int, err error) {
	p := query.AheadInQueueParams{Most: queueMost}
	for i, a := range asks {
		p.Ns = append(p.Ns, i)
		p.Queues = append(p.Queues, a.Queue)
		p.Priorities = append(p.Priorities, a.Delivery.Kind.Priority())
		p.Created = append(p.Created, a.Delivery.CreatedAt)
		p.Ids = append(p.Ids, a.Delivery.ID)
	}
	rows, err := q.AheadInQueue(ctx, p)
	ahead, asleep = make([]int, len(asks)), make([]int, len(asks))
	for _, r := range rows {
		ahead[r.N], asleep[r.N] = r.Ahead, r.Asleep
	}
	return ahead, asleep, err
}
