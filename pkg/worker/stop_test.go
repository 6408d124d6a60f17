package worker_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
)

// Told to stop, a worker claims nothing more, finishes the calls in flight and records them; another one goes on.
func TestStopFinishesCallsInFlight(t *testing.T) {
	t.Parallel()
	s := newSite(t, hook("audit"))
	g := s.gate()
	d := s.desk("audit").says(g.held(took))
	i := s.incident("a")
	ids := s.events(i, "audit", 4)
	first := s.start("first")
	d.called(4)
	if !first.Running() {
		t.Error("a worker at work says that it is not running")
	}
	stopped := make(chan bool)
	go func() {
		first.stop()
		close(stopped)
	}()
	s.until("the stop", func() bool { return !first.Running() })
	later := s.events(i, "audit", 3)
	g.open()
	s.comes("the end of the worker", stopped)
	<-first.ran
	for _, id := range ids {
		if got := s.outcomes(id); got != "[create sent by worker]" {
			t.Error(got)
		}
	}
	for _, id := range later {
		if r := s.row(id); r.State != "pending" || r.Attempts != 0 || r.Leased {
			t.Errorf("claimed after the stop: %+v", r)
		}
	}
	first.stop() // twice is once
	s.start("second")
	s.settled()
	if n := len(d.all()); n != 7 {
		t.Errorf("%d calls", n)
	}
}

// What is claimed and prepared when the worker is told to stop goes back at once, without an attempt and without doubt.
func TestStopGivesBackWhatIsPrepared(t *testing.T) {
	t.Parallel()
	s := newSite(t, hook("audit"))
	i := s.incident("a")
	ids := s.events(i, "audit", 3)
	prepared, on := make(chan bool, 10), s.gate()
	first := s.start("first", hooks{provider: func(string) {
		prepared <- true
		on.pass()
	}})
	s.comes("the preparation", prepared)
	stopped := make(chan bool)
	go func() {
		first.stop()
		close(stopped)
	}()
	s.until("the stop", func() bool { return !first.Running() })
	on.open()
	s.comes("the end of the worker", stopped)
	for _, id := range ids {
		if r := s.row(id); r.State != "pending" || r.Leased || r.Attempts != 0 || r.Doubt || *r.DueIn > 0 {
			t.Errorf("%+v", r)
		}
	}
	if n := len(s.desk("audit").all()); n != 0 {
		t.Errorf("%d calls", n)
	}
	s.start("second")
	s.settled()
	for _, id := range ids {
		if got := s.outcomes(id); got != "[create sent by worker]" {
			t.Error(got)
		}
	}
}

// The grace is over between an attempt's commit and its call: it is closed as not called, costs no try and leaves no doubt.
func TestStopCutsAnAttemptBeforeItsCall(t *testing.T) {
	t.Parallel()
	s := newSite(t, hook("audit"))
	id := s.events(s.incident("a"), "audit", 1)[0]
	prepared, on := make(chan bool, 10), s.gate()
	first := s.start("first", hooks{provider: func(string) {
		prepared <- true
		on.pass()
	}})
	s.comes("the preparation", prepared)
	unlock := s.lock(id)
	defer unlock()
	on.open()
	s.until("the begin", func() bool { return first.line.executed("Begin") == 1 })
	stopped := make(chan bool)
	go func() {
		first.stopWithin(time.Millisecond)
		close(stopped)
	}()
	s.until("the end of the grace", first.cut)
	unlock()
	s.comes("the end of the worker", stopped)
	a := s.attempts(id)
	if len(a) != 1 || a[0].Outcome != "failed" || a[0].Evidence != "not_called" || a[0].ClosedBy != "shutdown" || a[0].Reason != "shutdown" {
		t.Errorf("%+v", a)
	}
	if r := s.row(id); r.State != "pending" || r.Reason != "shutdown" || r.Leased || r.Tries != 0 || r.Doubt || *r.DueIn > 0 {
		t.Errorf("%+v", r)
	}
	if n := len(s.desk("audit").all()); n != 0 {
		t.Errorf("%d calls", n)
	}
	if n := counted(t, first.metrics.Attempts.WithLabelValues("audit", "event", "failed")); n != 0 {
		t.Errorf("%v provider calls are counted", n)
	}
	s.start("second")
	s.settled()
	if got := s.outcomes(id); got != "[create failed by shutdown create sent by worker]" {
		t.Error(got)
	}
}

// The grace is over during a call: the call is cut, and what is known of it is recorded.
func TestStopCutsACall(t *testing.T) {
	t.Parallel()
	s := newSite(t, hook("audit"))
	d := s.desk("audit").says(func(ctx context.Context, n int, c provider.Call) delivery.Result {
		if n > 1 {
			return took(n, c)
		}
		<-ctx.Done()
		r := lostIt
		r.Reason = "shutdown"
		return r
	})
	id := s.events(s.incident("a"), "audit", 1)[0]
	first := s.start("first")
	d.called(1)
	first.stopWithin(time.Millisecond)
	if r := s.row(id); r.State != "pending" || r.Leased || !r.Doubt || r.Reason != "shutdown" {
		t.Errorf("%+v", r)
	}
	s.start("second")
	s.settled()
	if got := s.outcomes(id); got != "[create unknown by worker create sent by worker]" {
		t.Error(got)
	}
}

// Without trust in its lease a worker calls nothing: what it measures is its own clock from before the claim was asked
// for, and a call must fit into what is left.
func TestNothingIsCalledOnALeaseThatIsTooShort(t *testing.T) {
	t.Parallel()
	n := hook("audit")
	n.Timeout = 10 * time.Second
	s := newSite(t, n)
	s.change(func(f *config.File) { f.Worker.Lease = 11 * time.Second }) // timeout and grace, and nothing beside
	id := s.events(s.incident("a"), "audit", 1)[0]
	first := s.start("first")
	s.until("the refusal", func() bool { return first.logs.FilterMessageSnippet("lease too short").Len() > 0 })
	if r := s.row(id); r.Attempts != 0 || !r.Leased {
		t.Errorf("%+v", r)
	}
	if n := len(s.desk("audit").all()); n != 0 {
		t.Errorf("%d calls", n)
	}
	s.change(func(f *config.File) { f.Worker.Lease = lease })
	s.move(12 * time.Second)
	s.settled()
}

// Each attempt writes one line with stable keys, and moves the counters that were there at zero from the start.
func TestOneLineAndOneCountPerAttempt(t *testing.T) { // B8
	t.Parallel()
	s := newSite(t, retries(hook("audit"), delivery.Retries{Capped: true, Count: 1, Delay: time.Millisecond, MaxDelay: time.Millisecond}))
	s.desk("audit").says(always(refused))
	first := s.ready("first")
	first.metrics.Notifiers([]string{"audit"})
	for _, o := range []string{"sent", "failed", "unknown"} {
		if n := counted(t, first.metrics.Attempts.WithLabelValues("audit", "event", o)); n != 0 {
			t.Errorf("%s begins at %v", o, n)
		}
	}
	first.run()
	id := s.events(s.incident("a"), "audit", 1)[0]
	s.waitFor(id, delivery.Exhausted)
	first.stop()
	lines := first.logs.FilterMessage("attempt").All()
	if len(lines) != 2 {
		t.Fatalf("%d lines", len(lines))
	}
	for n, l := range lines {
		f := l.ContextMap()
		for _, k := range []string{"delivery", "incident", "attempt", "number", "kind", "notifier", "target", "address", "operation", "effect_key", "revision", "outcome", "evidence", "reason", "code", "status", "bytes", "duration", "error", "state", "state_reason"} {
			if _, ok := f[k]; !ok {
				t.Errorf("line %d has no %s", n, k)
			}
		}
		if _, ok := f["next_in"]; ok != (n == 0) {
			t.Errorf("line %d: next_in is there: %v", n, ok)
		}
		if f["delivery"] != id.String() || fmt.Sprint(f["number"]) != fmt.Sprint(n+1) {
			t.Errorf("line %d: %v", n, f)
		}
	}
	m := first.metrics
	for name, got := range map[string]float64{
		"attempts": counted(t, m.Attempts.WithLabelValues("audit", "event", "failed")) - 1, "retries": counted(t, m.Retries), "gave up": counted(t, m.GaveUp),
		"deliveries": counted(t, m.Deliveries.WithLabelValues("event", "exhausted")),
	} {
		if got != 1 {
			t.Errorf("%s: %v", name, got)
		}
	}
	died := first.logs.FilterMessage("delivery died").All()
	if len(died) != 1 {
		t.Fatalf("its death is told in %d lines", len(died))
	}
	for k, want := range map[string]string{"delivery": id.String(), "state": "exhausted", "reason": "retries_used_up", "attempts": "2"} {
		if got := fmt.Sprint(died[0].ContextMap()[k]); got != want {
			t.Errorf("the line of its death has %s %s, not %s", k, got, want)
		}
	}
}

// cut says that a stop's grace is over.
func (a *hand) cut() bool { return a.Cut() }
