package server

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	topic "github.com/tocsin-oncall/tocsin/pkg/route"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// Bounds of the live stream.
const (
	maxListeners = 200         // of one replica
	earBuffer    = 512         // events that a listener may be behind
	earPoll      = time.Second // the net under the rings
	earPause     = 10 * time.Millisecond
	earPage      = 500              // events read at once
	earTimeout   = 10 * time.Second // of one look at the database
)

// ear reads what happened, once for all listeners of this replica, and hands it to each without waiting for any. It looks while
// somebody listens, when it is rung and every so often.
type ear struct {
	store  *store.Store
	failed func(error)
	rung   chan struct{}

	mu        sync.Mutex
	listeners map[*listener]bool
	position  int64 // number of the last event that was handed out
	closed    bool
}

// listener is one open stream.
type listener struct {
	topics []topic.Pattern
	events chan heard // closed when it is dropped; why says why
	why    heard
}

// heard is an event as it goes over the wire.
type heard struct {
	id          int64
	topic, name string
	data        []byte
}

func newEar(s *store.Store, failed func(error)) *ear {
	return &ear{store: s, failed: failed, rung: make(chan struct{}, 1), listeners: map[*listener]bool{}}
}

func of(e store.Told) heard { return heard{id: e.ID, topic: e.Topic, name: e.Type, data: e.Data} }

// word is an event about the stream itself.
func word(typ, reason, detail string) heard {
	data, _ := json.Marshal(api.LiveEvent{Type: typ, Reason: reason, Detail: detail}) // texts: can't fail
	return heard{name: typ, data: data}
}

// wants says whether an event is for the listener.
func (l *listener) wants(h heard) bool {
	return slices.ContainsFunc(l.topics, func(p topic.Pattern) bool { return p.Match(h.topic) })
}

// ring says that something happened.
func (e *ear) ring() {
	select {
	case e.rung <- struct{}{}:
	default:
	}
}

// run hands out until ctx ends.
func (e *ear) run(ctx context.Context) {
	t := time.NewTicker(earPoll)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.rung:
		case <-t.C:
		}
		if err := e.look(ctx); err != nil && ctx.Err() == nil {
			e.failed(err)
		}
		// What is rung for meanwhile is read together.
		select {
		case <-ctx.Done():
			return
		case <-time.After(earPause):
		}
	}
}

// look hands out what happened since the last look.
func (e *ear) look(ctx context.Context) error {
	e.mu.Lock()
	after, idle := e.position, len(e.listeners) == 0
	e.mu.Unlock()
	if idle {
		return nil
	}
	if err := e.number(ctx); err != nil {
		return err
	}
	for {
		events, err := e.read(ctx, after)
		if err != nil {
			return err
		}
		for _, ev := range events {
			e.hand(of(ev))
			after = ev.ID
		}
		if len(events) == 0 {
			return e.rewind(ctx, after)
		}
		if len(events) < earPage {
			return nil
		}
	}
}

// rewind looks whether the database is behind what was handed out, as after a fail-over that has lost commits: new events would have
// numbers that nobody waits for any more. Who listens comes back, and is told what is missing.
func (e *ear) rewind(ctx context.Context, after int64) error {
	ctx, cancel := context.WithTimeout(ctx, earTimeout)
	defer cancel()
	_, last, err := e.store.EventBounds(ctx)
	if err != nil || last >= after {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.position != after {
		return nil // somebody has begun anew
	}
	e.position = last
	for l := range e.listeners {
		e.drop(l, "rewound", "the database has lost events that were heard: connect again with Last-Event-ID to go on")
	}
	return nil
}

// read is a page of events.
func (e *ear) read(ctx context.Context, after int64) ([]store.Told, error) {
	ctx, cancel := context.WithTimeout(ctx, earTimeout)
	defer cancel()
	return e.store.EventsAfter(ctx, after, earPage)
}

// number gives numbers to all that is committed.
func (e *ear) number(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, earTimeout)
	defer cancel()
	for {
		n, err := e.store.NumberEvents(ctx, earPage)
		if err != nil || n < earPage {
			return err
		}
	}
}

// hand gives an event to all who want it. Whoever has no room for it is dropped: nobody waits for anybody.
func (e *ear) hand(h heard) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if h.id <= e.position {
		return // those who came meanwhile begin behind it
	}
	e.position = h.id
	for l := range e.listeners {
		if !l.wants(h) {
			continue
		}
		select {
		case l.events <- h:
		default:
			e.drop(l, "too_slow", "this listener takes events more slowly than they come: connect again with Last-Event-ID to go on")
		}
	}
}

// drop ends a listener with a word. The caller holds the lock.
func (e *ear) drop(l *listener, reason, detail string) {
	delete(e.listeners, l)
	l.why = word(api.EventDropped, reason, detail)
	close(l.events)
}

// Why nobody is let in.
type earFull struct{ leaving bool }

func (f earFull) Error() string {
	if f.leaving {
		return "this replica is leaving: ask another one"
	}
	return "as many listen here as this replica takes: ask another one, or later"
}

// join lets somebody listen. What is committed from its return on is heard; position is the number up to which it is not.
func (e *ear) join(ctx context.Context, topics []topic.Pattern) (l *listener, position int64, err error) {
	e.mu.Lock()
	idle := len(e.listeners) == 0
	e.mu.Unlock()
	var last int64
	if idle {
		if err := e.number(ctx); err != nil {
			return nil, 0, err
		}
		if _, last, err = e.store.EventBounds(ctx); err != nil {
			return nil, 0, err
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || len(e.listeners) >= maxListeners {
		return nil, 0, earFull{e.closed}
	}
	if idle && len(e.listeners) == 0 {
		e.position = last
	}
	l = &listener{topics: topics, events: make(chan heard, earBuffer)}
	e.listeners[l] = true
	return l, e.position, nil
}

// leave forgets a listener.
func (e *ear) leave(l *listener) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.listeners, l)
}

// close drops all and lets nobody in any more.
func (e *ear) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	for l := range e.listeners {
		e.drop(l, "leaving", "this replica is leaving: connect again with Last-Event-ID to go on")
	}
}
