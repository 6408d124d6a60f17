package server

import (
	"context"
	"sync"
	"time"
)

// How long an alert may wait: for its turn, and before that for the others of its incident, which pass one by one. Both
// together are well below the shortest timeout that a source is known to have.
const (
	turnWait = time.Second
	gateWait = 3 * time.Second
)

// maxAtOnce is how many incidents of one message may be written at once: a message with a thousand of them is not done within
// its sender's patience one by one, and it must leave turns to others.
const maxAtOnce = 8

// turns is how many alerts may be taken at once: most of the database's connections, so that answers of people and the
// scheduler find one also in a storm.
func turns(connections int) int { return max(connections*3/4, 1) }

// turn lets an alert of an incident in when fewer than that are being taken and no other of the same incident is on this
// replica, and refuses it with a 503 when that does not come soon.
//
// In a storm the database takes only so many alerts a second. If all were let in, they would stand in line for its
// connections until their sources give up and send again: then the line holds nothing but requests whose sources have
// left, each breaks off a transaction and with it a connection, and next to nothing is taken any more. Who is refused at
// once comes again, and finds room.
//
// Alerts of one incident wait for its row, whatever comes of it. Those that wait here hold neither a turn nor a connection,
// so that a flood into one incident leaves the others' way free.
func (s *Server) turn(ctx context.Context, key string) (leave func(), err error) {
	out, ok := s.gates.enter(ctx, key, gateWait)
	if !ok {
		return nil, comeAgain("more alerts of this incident come in at this moment than it takes: send it again")
	}
	t := time.NewTimer(turnWait)
	defer t.Stop()
	select {
	case s.turns <- struct{}{}:
		return func() { <-s.turns; out() }, nil
	case <-t.C:
	case <-ctx.Done():
	}
	out()
	return nil, comeAgain("more alerts come in at this moment than the database takes: send it again")
}

// gates let one in at a time, by key. The zero value is ready.
type gates struct {
	mu sync.Mutex
	of map[string]*gate
}

type gate struct {
	place chan struct{} // full: somebody is in
	users int           // in or before it
}

// enter waits until nobody else is in, for so long at most.
func (d *gates) enter(ctx context.Context, key string, wait time.Duration) (leave func(), ok bool) {
	d.mu.Lock()
	if d.of == nil {
		d.of = map[string]*gate{}
	}
	o := d.of[key]
	if o == nil {
		o = &gate{place: make(chan struct{}, 1)}
		d.of[key] = o
	}
	o.users++
	d.mu.Unlock()
	gone := func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if o.users--; o.users == 0 {
			delete(d.of, key)
		}
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case o.place <- struct{}{}:
		return func() { <-o.place; gone() }, true
	case <-t.C:
	case <-ctx.Done():
	}
	gone()
	return nil, false
}
