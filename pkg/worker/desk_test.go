package worker_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
)

// patience bounds everything that a test waits for.
const patience = time.Minute

// desk is a provider in memory. It keeps every call and answers as the test says; several workers may share one, as
// replicas share a chat.
type desk struct {
	t testing.TB

	mu     sync.Mutex
	calls  []provider.Call
	open   int // calls under way
	most   int // most calls under way at a time
	change chan struct{}
	answer func(ctx context.Context, n int, c provider.Call) delivery.Result // nil: takes everything
}

func newDesk(t testing.TB) *desk { return &desk{t: t, change: make(chan struct{})} }

// says sets how calls are answered from now on; n counts all calls from 1.
func (d *desk) says(answer func(ctx context.Context, n int, c provider.Call) delivery.Result) *desk {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.answer = answer
	return d
}

func (d *desk) Do(ctx context.Context, c provider.Call) delivery.Result {
	d.mu.Lock()
	d.calls = append(d.calls, c)
	n, answer := len(d.calls), d.answer
	d.open++
	d.most = max(d.most, d.open)
	d.changed()
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		d.open--
		d.changed()
		d.mu.Unlock()
	}()
	if answer == nil {
		return took(n, c)
	}
	return answer(ctx, n, c)
}

func (d *desk) changed() {
	close(d.change)
	d.change = make(chan struct{})
}

// until waits until ok holds for the calls made so far.
func (d *desk) until(what string, ok func(calls []provider.Call) bool) {
	d.t.Helper()
	end := time.NewTimer(patience)
	defer end.Stop()
	for {
		d.mu.Lock()
		change, calls := d.change, d.calls
		d.mu.Unlock()
		if ok(calls) {
			return
		}
		select {
		case <-change:
		case <-end.C:
			d.t.Fatalf("%s did not come; %d calls were made: %+v", what, len(calls), calls)
		}
	}
}

// called waits for the n-th call.
func (d *desk) called(n int) provider.Call {
	d.t.Helper()
	d.until(fmt.Sprintf("call %d", n), func(calls []provider.Call) bool { return len(calls) >= n })
	return d.all()[n-1]
}

func (d *desk) all() []provider.Call {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]provider.Call(nil), d.calls...)
}

// underway is how many calls are open now, and the most that ever were.
func (d *desk) underway() (now, most int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.open, d.most
}

// took is the answer of a provider that takes the message and names what it made.
func took(n int, c provider.Call) delivery.Result {
	r := delivery.Result{Outcome: delivery.OutcomeSent, Evidence: delivery.Answered, HTTPStatus: 200, Reference: c.Reference}
	if c.Operation != delivery.OpEdit {
		r.Reference = delivery.Reference{Channel: c.Address, TS: fmt.Sprintf("1700000000.%06d", n)}
	}
	return r
}

// Answers that tests give.
var (
	lostIt  = delivery.Result{Outcome: delivery.OutcomeUnknown, Evidence: delivery.PossiblySent, Reason: "timeout", Error: "send timed out", Bytes: 512}
	refused = delivery.Result{Outcome: delivery.OutcomeFailed, Evidence: delivery.NotSent, Fault: delivery.FaultTransient, Reason: "refused", Error: "connection refused"}
)

func always(r delivery.Result) func(context.Context, int, provider.Call) delivery.Result {
	return func(context.Context, int, provider.Call) delivery.Result { return r }
}

// gate lets calls wait for the test.
type gate struct {
	once sync.Once
	c    chan struct{}
}

// gate makes one that opens before the workers are stopped at the latest.
func (s *site) gate() *gate {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := &gate{c: make(chan struct{})}
	s.gates = append(s.gates, g)
	return g
}

func (s *site) openGates() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.gates {
		g.open()
	}
}

func (g *gate) open() { g.once.Do(func() { close(g.c) }) }

// pass waits for the gate, whatever else ends: a call that sits in the kernel does not see that it is canceled.
func (g *gate) pass() { <-g.c }

// held answers like next once the gate is open.
func (g *gate) held(next func(int, provider.Call) delivery.Result) func(context.Context, int, provider.Call) delivery.Result {
	return func(_ context.Context, n int, c provider.Call) delivery.Result {
		g.pass()
		return next(n, c)
	}
}
