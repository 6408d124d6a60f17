package app

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/tocsin-oncall/tocsin/pkg/store"
)

const (
	ringPause   = 5 * time.Millisecond // least time between two rings of one replica
	hearPause   = 3 * time.Millisecond // the replica that rang takes most of it: the others look a little later
	ringTimeout = 2 * time.Second
	listenPause = time.Second // before a lost listening connection is taken up again
)

// bell wakes workers: the own one in memory, those of other replicas by a NOTIFY outside of the accepting transaction.
// A lost ring costs the others their poll interval, nothing else.
type bell struct {
	id     string // this replica
	store  *store.Store
	nudge  func(oldest time.Time) // the own worker
	log    *zap.Logger
	rung   chan struct{}
	mu     sync.Mutex
	oldest time.Time // of what is to be rung; zero with dirty: not known
	dirty  bool
}

func newBell(id string, s *store.Store, nudge func(time.Time), log *zap.Logger) *bell {
	return &bell{id: id, store: s, nudge: nudge, log: log, rung: make(chan struct{}, 1)}
}

// ring wakes everybody: rows due since oldest were committed. A zero time says that it is not known since when.
func (b *bell) ring(oldest time.Time) {
	b.nudge(oldest)
	b.tell(oldest)
}

// tell rings the others only: the own worker knows already.
func (b *bell) tell(oldest time.Time) {
	b.mu.Lock()
	switch {
	case !b.dirty:
		b.oldest = oldest
	case oldest.IsZero() || b.oldest.IsZero():
		b.oldest = time.Time{}
	case oldest.Before(b.oldest):
		b.oldest = oldest
	}
	b.dirty = true
	b.mu.Unlock()
	select {
	case b.rung <- struct{}{}:
	default:
	}
}

// ringLoop sends what has gathered, at most every few milliseconds, until ctx ends.
func (b *bell) ringLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.rung:
		}
		b.mu.Lock()
		payload := encodeRing(b.id, b.oldest)
		b.dirty = false
		b.mu.Unlock()
		send, cancel := context.WithTimeout(ctx, ringTimeout)
		err := b.store.Notify(send, store.DefaultNotifyChannel, payload)
		cancel()
		if err != nil && ctx.Err() == nil {
			b.log.Debug("the other replicas were not rung, they look by themselves", zap.Error(err))
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(ringPause):
		}
	}
}

// listenLoop hears the others until ctx ends. What was rung while nobody listened is lost, so each beginning looks
// at everything.
func (b *bell) listenLoop(ctx context.Context, url string) {
	store.Listen(ctx, url, store.DefaultNotifyChannel, listenPause,
		func() { b.nudge(time.Time{}) },
		func(payload string) {
			from, oldest, ok := decodeRing(payload)
			if ok && from != b.id {
				time.AfterFunc(hearPause, func() { b.nudge(oldest) })
			}
		},
		func(err error) { b.log.Warn("the wake-up connection was lost; polling goes on", zap.Error(err)) })
}

func encodeRing(id string, oldest time.Time) string {
	if oldest.IsZero() {
		return id + " 0"
	}
	return id + " " + strconv.FormatInt(oldest.UnixMicro(), 10)
}

func decodeRing(payload string) (id string, oldest time.Time, ok bool) {
	id, stamp, found := strings.Cut(payload, " ")
	micro, err := strconv.ParseInt(stamp, 10, 64)
	if !found || err != nil {
		return "", time.Time{}, false
	}
	if micro != 0 {
		oldest = time.UnixMicro(micro)
	}
	return id, oldest, true
}
