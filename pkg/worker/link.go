package worker

import (
	"context"
	"runtime/debug"
	"sync"

	"go.uber.org/zap"

	"github.com/tocsin-oncall/tocsin/pkg/card"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
)

// linkOf is a page whose card's link is still to be looked up.
type linkOf struct {
	notifier  string
	reference delivery.Reference
	snap      card.Snapshot
	name      string
	options   card.Options
}

// linkCache keeps the links of cards: each is looked up once per replica, however many pages carry it.
type linkCache struct {
	mu sync.Mutex
	m  map[delivery.Reference]string
}

// linksMost bounds the cache; beyond it, it starts anew.
const linksMost = 10_000

func newLinkCache() *linkCache { return &linkCache{m: map[delivery.Reference]string{}} }

func (c *linkCache) get(r delivery.Reference) (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l, ok := c.m[r]
	return l, ok
}

func (c *linkCache) put(r delivery.Reference, link string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.m) >= linksMost {
		clear(c.m)
	}
	c.m[r] = link
}

// lookUp puts the card's link into a page, or leaves the page without one: it never costs the page more than its bound.
func (w *Worker) lookUp(j *job) {
	defer func() {
		if p := recover(); p != nil { // a fault of ours: the page leaves all the same
			w.o.Log.Error("a look-up panicked", zap.String("notifier", j.link.notifier), zap.Any("panic", p), zap.ByteString("stack", debug.Stack()))
		}
	}()
	l := j.link
	link, ok := l.reference.Permalink, l.reference.Permalink != ""
	if !ok {
		link, ok = w.links.get(l.reference)
	}
	if !ok {
		p, known := w.o.Provider(l.notifier)
		linker, can := p.(provider.Linker)
		if !known || !can {
			return
		}
		ctx, cancel := context.WithTimeout(w.calls, linkTimeout)
		defer cancel()
		if link = linker.Link(ctx, l.reference); link == "" {
			return
		}
		w.links.put(l.reference, link)
	}
	j.call.Message = card.Page(l.snap, l.name, link, l.options)
}
