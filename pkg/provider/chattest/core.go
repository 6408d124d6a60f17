// Package chattest is what the simulated chats have in common: the ledger of requests, the faults, the listener that
// can refuse, and the frame of the pages.
//
// It owns no dialect. The packages slacktest and telegramtest own what a request means and what the answer looks
// like; this package owns when an answer is withheld, cut, delayed or replaced, and writes down what really happened.
// It listens on loopback only and keeps everything in memory.
package chattest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// Core is the shared state of one simulated chat: one lock, one ledger, one table of faults, one stream of changes.
// A chat embeds it and keeps its own messages under the same lock, so that a reader never sees a message whose
// request is not in the ledger, or the other way round.
type Core struct {
	mu      sync.Mutex
	now     func() time.Time
	seed    uint64
	chances map[string]*rand.Rand // by method and channel
	ledger  []*Request
	dropped int
	faults  []*Fault
	faultID int
	version uint64
	changed chan struct{}
	gate    *Gate
	base    string
}

// ledgerKept bounds the memory of a chat that runs for days in `tocsin dev`. No test comes near it.
const ledgerKept = 200_000

// NewCore makes an empty core. now gives the times of the ledger, nil means time.Now; seed makes the faults with a
// probability repeat themselves: the n-th request of a method to a channel is struck or spared, whatever else goes on.
func NewCore(now func() time.Time, seed uint64) *Core {
	if now == nil {
		now = time.Now
	}
	return &Core{
		now:     now,
		seed:    seed,
		chances: map[string]*rand.Rand{},
		changed: make(chan struct{}),
	}
}

// Now is the chat's clock.
func (c *Core) Now() time.Time { return c.now() }

// Read runs f under the lock. f must not call back into the core.
func (c *Core) Read(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// Write runs f under the lock and then wakes everybody who waits for a change. f must not call back into the core.
func (c *Core) Write(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
	c.wake()
}

func (c *Core) wake() {
	c.version++
	close(c.changed)
	c.changed = make(chan struct{})
}

// Changed gives a channel that is closed at the next change, and the number of the present state.
func (c *Core) Changed() (<-chan struct{}, uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed, c.version
}

// Until returns as soon as ok says true, asking again after each change; nothing polls. The error names what ended
// the wait when ctx is over first.
func (c *Core) Until(ctx context.Context, ok func() bool) error {
	for {
		// The channel is taken before ok is asked: a change in between closes it, so none is missed.
		changed, version := c.Changed()
		if ok() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("the simulated chat did not reach the awaited state (%d changes seen, %d requests): %w",
				version, c.Requests(), context.Cause(ctx))
		}
	}
}

// SetURL names the address under which this chat is reached, for links and response URLs. Start and Listen set it;
// call it only when the handler is mounted in another server.
func (c *Core) SetURL(base string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.base = base
}

// URL is scheme and host of the chat, without a slash at the end; empty before it listens.
func (c *Core) URL() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.base
}

// BaseLocked is URL for callers inside Read or Write.
func (c *Core) BaseLocked() string { return c.base }
