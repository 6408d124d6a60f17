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
	ringPause   = 5 * time.Millisecond  // least time between two rings of one replica
	eventPause  = 10 * time.Millisecond // before only listeners are rung
	hearPause   = 3 * time.Millisecond  // the replica that rang takes most of it: the others look a little later
	ringTimeout = 2 * time.Second
	listenPause = time.Second // before a lost listening connection is taken up again
)

// bell wakes workers: the own one in memory, those of other replicas by a NOTIFY outside of the accepting transaction.
// A lost ring costs the others their poll interval, nothing else.
type bell struct {
	id     string // this replica
	store  *store.Store
	nudge  func(oldest time.Time) // the own worker
	heard  func()                 // something happened: the own listeners
	log    *zap.Logger
	rung   chan struct{}
	mu     sync.Mutex
	oldest time.Time // of what is to be rung; zero with dirty: not known
	dirty  bool
	events bool // something happened that others may be told of
}

func newBell(id string, s *store.Store, nudge func(time.Time), heard func(), log *zap.Logger) *bell {
	return &bell{id: id, store: s, nudge: nudge, heard: heard, log: log, rung: make(chan struct{}, 1)}
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
	b.wake()
}

// tellEvents rings the others' listeners only. Where workers are rung too, that is enough for both.
func (b *bell) tellEvents() {
	b.mu.Lock()
	b.events = true
	b.mu.Unlock()
	b.wake()
}

func (b *bell) wake() {
	select {
	case b.rung <- struct{}{}:
	default:
	}
}

// ringLoop sends what has gathered, at most every few milliseconds, until ctx ends. Where only listeners are to be rung, it waits for a
// moment whether workers are too: one ring is enough for both.
func (b *bell) ringLoop(ctx context.Context) {
	var later <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.rung:
			if later == nil {
				later = time.After(eventPause)
			}
			if !b.urgent() {
				continue
			}
		case <-later:
			later = nil
		}
		payload, ok := b.take()
		if !ok {
			continue
		}
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

// urgent says that workers are to be rung.
func (b *bell) urgent() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.dirty
}

// take is what is to be rung now, if anything.
func (b *bell) take() (payload string, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.dirty:
		payload = encodeRing(b.id, b.oldest)
	case b.events:
		payload = b.id + " " + ringEvents
	default:
		return "", false
	}
	b.dirty, b.events = false, false
	return payload, true
}

// listenLoop hears the others until ctx ends. What was rung while nobody listened is lost, so each beginning looks
// at everything.
func (b *bell) listenLoop(ctx context.Context, url string) {
	store.Listen(ctx, url, store.DefaultNotifyChannel, listenPause,
		func() { b.nudge(time.Time{}); b.heard() },
		func(payload string) {
			if id, _, _ := strings.Cut(payload, " "); id != b.id {
				b.heard()
			}
			from, oldest, ok := decodeRing(payload)
			if ok && from != b.id {
				time.AfterFunc(hearPause, func() { b.nudge(oldest) })
			}
		},
		func(err error) { b.log.Warn("the wake-up connection was lost; polling goes on", zap.Error(err)) })
}

// ringEvents stands in the place of a due time where no worker has anything to do. A replica of an earlier version can't read it as a time, and
// passes it over.
const ringEvents = "events"

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
