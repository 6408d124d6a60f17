package worker_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/message"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
)

// scanner is a desk that can look for what it has made.
type scanner struct {
	*desk
	smu      sync.Mutex
	searches []provider.Search
	look     func(ctx context.Context, n int, s provider.Search) provider.Scan
}

func (d *scanner) Scan(ctx context.Context, s provider.Search) provider.Scan {
	d.smu.Lock()
	d.searches = append(d.searches, s)
	n, look := len(d.searches), d.look
	d.smu.Unlock()
	return look(ctx, n, s)
}

func (d *scanner) looked() int {
	d.smu.Lock()
	defer d.smu.Unlock()
	return len(d.searches)
}

// scanner gives a notifier a provider that can look; what it sees is the test's.
func (s *site) scanner(notifier string, look func(ctx context.Context, n int, s provider.Search) provider.Scan) *scanner {
	d := &scanner{desk: newDesk(s.t), look: look}
	s.provide(notifier, d)
	return d
}

// The time after which an attempt in doubt can be looked up: its timeout and the grace.
const lookAfter = 10*time.Second + delivery.LookGrace

var nothing = provider.Scan{Complete: true}

// losesFirst loses the answers to the first n calls.
func losesFirst(n int) func(context.Context, int, provider.Call) delivery.Result {
	return func(_ context.Context, at int, c provider.Call) delivery.Result {
		if at <= n {
			return lostIt
		}
		return took(at, c)
	}
}

// inDoubt waits until a delivery waits for its look-up.
func (s *site) inDoubt(ids ...uuid.UUID) {
	s.t.Helper()
	for _, id := range ids {
		s.until("a doubt", func() bool { r := s.row(id); return r.Doubt && !r.Leased && r.State == "pending" })
	}
}

// scans is how many complete look-ups a delivery's doubt has seen; -1: none can be made.
func (s *site) scans(id uuid.UUID) int {
	s.t.Helper()
	return get[int](s, "select case when (doubt->>'blind')::boolean then -1 else coalesce((doubt->>'scans')::int, 0) end from delivery where id = $1", id)
}

// What an attempt in doubt has made is found and taken for its own: no second message, one edit where it shows something old
// by now, and the history says who closed the attempt.
func TestFoundIsAdopted(t *testing.T) {
	t.Parallel()
	for _, raised := range []bool{false, true} {
		t.Run(fmt.Sprintf("raised=%v", raised), func(t *testing.T) {
			t.Parallel()
			s := newSite(t, channel("ops"))
			var id uuid.UUID
			found := delivery.Reference{Channel: "C0OPS", TS: "1700000000.000100"}
			d := s.scanner("ops", func(_ context.Context, _ int, q provider.Search) provider.Scan {
				if q.Operation != delivery.OpCreate || q.Address != "C0OPS" || time.Since(q.Oldest) < 0 {
					t.Errorf("it looks for %+v", q)
				}
				return provider.Scan{Found: map[string]delivery.Reference{"another:1": {Channel: "C0OPS", TS: "9.9"}, id.String() + ":1": found}}
			})
			d.says(losesFirst(1))
			i := s.incident("a")
			id = s.add(i, aCard("ops"))[0]
			s.start("first")
			s.inDoubt(id)
			if raised {
				s.becomes(i, message.Acknowledged)
			}
			if n := d.looked(); n != 0 {
				t.Errorf("%d look-ups while the attempt may still be under way", n)
			}
			s.move(lookAfter)
			s.waitFor(id, delivery.Sent)
			s.settled()
			want := "[create sent by reconcile]"
			if raised {
				want = "[create sent by reconcile edit sent by worker]"
			}
			if got := s.outcomes(id); got != want {
				t.Errorf("%s, not %s", got, want)
			}
			calls := d.all()
			if raised && (len(calls) != 2 || calls[1].Operation != delivery.OpEdit || calls[1].Reference != found || calls[1].Message.State != message.Acknowledged) {
				t.Errorf("%+v", calls)
			}
			if r := s.row(id); r.Applied != r.Desired || r.Doubt || !r.Reference || r.Tries != 0 {
				t.Errorf("%+v", r)
			}
		})
	}
}

// A reply of a thread is looked for under its card, and the thread goes on after it.
func TestFoundReply(t *testing.T) {
	t.Parallel()
	s := newSite(t, channel("ops"))
	var key string
	d := s.scanner("ops", func(_ context.Context, _ int, q provider.Search) provider.Scan {
		if q.Operation != delivery.OpReply || q.Parent.TS == "" {
			t.Errorf("it looks for %+v", q)
		}
		return provider.Scan{Found: map[string]delivery.Reference{key: {Channel: "C0OPS", TS: "1700000001.000100"}}, Complete: true}
	})
	d.says(func(_ context.Context, n int, c provider.Call) delivery.Result {
		if n == 2 {
			return lostIt
		}
		return took(n, c)
	})
	i := s.incident("a")
	card := aCard("ops")
	ids := s.add(i, card, aThread(card))
	s.start("first")
	s.inDoubt(ids[1])
	key = d.called(2).Key
	s.becomes(i, message.Acknowledged)
	s.move(lookAfter)
	s.settled()
	if got := s.outcomes(ids[1]); got != "[reply sent by reconcile reply sent by worker]" {
		t.Error(got)
	}
}

// Two complete look-ups that did not find it, half a minute apart, are proof enough: it is made again, as if for the first time.
func TestNotFoundTwiceIsMadeAgain(t *testing.T) {
	t.Parallel()
	s := newSite(t, retries(channel("ops"), slow))
	d := s.scanner("ops", func(context.Context, int, provider.Search) provider.Scan { return nothing })
	d.says(losesFirst(1))
	id := s.add(s.incident("a"), aCard("ops"))[0]
	w := s.start("first")
	s.inDoubt(id)
	s.move(lookAfter)
	s.until("the first look-up", func() bool { r := s.row(id); return d.looked() == 1 && !r.Leased && s.scans(id) == 1 })
	if r := s.row(id); *r.DueIn < 10 || len(d.all()) != 1 {
		t.Errorf("%+v, %d calls", r, len(d.all()))
	}
	s.move(30 * time.Second)
	s.waitFor(id, delivery.Sent)
	calls := d.all()
	if d.looked() != 2 || len(calls) != 2 || calls[0].Key != calls[1].Key || strings.Contains(calls[1].Message.Footer, "repeat") {
		t.Errorf("%d look-ups, %+v", d.looked(), calls)
	}
	if n := counted(t, w.metrics.Reconciled.WithLabelValues("absent")); n != 2 {
		t.Errorf("%g look-ups are counted", n)
	}
	if got := s.outcomes(id); got != "[create unknown by worker create sent by worker]" {
		t.Error(got)
	}
}

// What can't be looked up is left to the policy: it is made again, and says that it may be a repeat. Nobody is asked again
// for a while.
func TestBlindLookUp(t *testing.T) {
	t.Parallel()
	s := newSite(t, channel("ops"))
	d := s.scanner("ops", func(context.Context, int, provider.Search) provider.Scan {
		return provider.Scan{Blind: true, Code: "missing_scope", Sentence: "Give it the scope channels:history."}
	})
	d.says(losesFirst(1))
	id := s.add(s.incident("a"), aCard("ops"))[0]
	w := s.start("first")
	s.inDoubt(id)
	s.move(lookAfter)
	s.waitFor(id, delivery.Sent)
	if calls := d.all(); len(calls) != 2 || !strings.Contains(calls[1].Message.Footer, "repeat") || d.looked() != 1 {
		t.Errorf("%d look-ups, %+v", d.looked(), calls)
	}
	if n := w.logs.FilterMessageSnippet("can't be looked up").Len(); n != 1 {
		t.Errorf("told of %d times", n)
	}
}

// A look-up that did not get through is made again, for a quarter of an hour; then the policy decides. The rest that a provider
// asks for between look-ups holds for all that look through the account, on both replicas, and for nothing that is sent.
func TestLookUpThatDoesNotGetThrough(t *testing.T) {
	t.Parallel()
	s := newSite(t, channel("ops"), to("C0TOO", channel("too")))
	d := s.scanner("ops", func(_ context.Context, n int, _ provider.Search) provider.Scan {
		if n == 1 {
			return provider.Scan{RetryAfter: 5 * time.Minute, Code: "ratelimited"}
		}
		return provider.Scan{Code: "timeout"}
	})
	s.provide("too", d)
	d.says(losesFirst(2))
	both := []*hand{s.start("first"), s.start("second")}
	known := func() { // by both replicas
		t.Helper()
		for _, w := range both {
			n := w.line.executed("Pauses")
			s.until("another look at the pauses", func() bool { return w.line.executed("Pauses") >= n+2 })
		}
	}
	ids := s.add(s.incident("a"), aCard("ops"))
	s.inDoubt(ids[0])
	s.move(lookAfter)
	s.until("the rest", func() bool { return get[int](s, "select count(*)::int from pause where scope = 'look_up'") == 1 })
	known()
	ids = append(ids, s.add(s.incident("b"), aCard("too"))...)
	s.inDoubt(ids[1])
	s.move(lookAfter)
	for _, id := range ids {
		s.until("its wait", func() bool { r := s.row(id); return !r.Leased && r.DueIn != nil && *r.DueIn > 60 })
		if s.scans(id) != 0 {
			t.Errorf("a look-up that did not get through counts: %d", s.scans(id))
		}
	}
	if n := d.looked(); n != 1 {
		t.Errorf("%d look-ups while it rests", n)
	}
	s.waitFor(s.add(s.incident("c"), aCard("too"))[0], delivery.Sent)
	s.exec("delete from pause")
	known()
	s.move(16 * time.Minute)
	for _, id := range ids {
		s.waitFor(id, delivery.Sent)
	}
	for _, c := range d.all()[3:] {
		if !strings.Contains(c.Message.Footer, "repeat") {
			t.Errorf("%+v", c)
		}
	}
}

// A look-up takes no place and no more than its own time: through a notifier with one place a card goes out while a look-up
// hangs. A stopping replica does not wait for it.
func TestHungLookUpTakesNoPlace(t *testing.T) {
	t.Parallel()
	n := channel("ops")
	n.Concurrency = 1
	s := newSite(t, n)
	ended := make(chan bool, 1)
	var w *hand
	d := s.scanner("ops", func(ctx context.Context, _ int, _ provider.Search) provider.Scan {
		<-ctx.Done()
		ended <- w.Cut()
		return provider.Scan{Error: "cut"}
	})
	d.says(losesFirst(1))
	id := s.add(s.incident("a"), aCard("ops"))[0]
	w = s.start("first")
	s.inDoubt(id)
	s.move(lookAfter)
	s.until("the look-up", func() bool { return d.looked() == 1 })
	for n := range 3 {
		s.waitFor(s.add(s.incident(fmt.Sprint("b", n)), aCard("ops"))[0], delivery.Sent)
	}
	if r := s.row(id); !r.Leased || r.Open {
		t.Errorf("%+v", r)
	}
	w.stop()
	if <-ended {
		t.Error("the stop's grace was spent on a look-up")
	}
	if r := s.row(id); r.Leased || r.State != "pending" || s.scans(id) != 0 {
		t.Errorf("%+v", r)
	}
}

// One look-up answers for all that were in doubt at a place when it began, not for those of another place.
func TestOneLookUpServesAll(t *testing.T) {
	t.Parallel()
	const many = 12
	s := newSite(t, channel("ops"), to("C0OTHER", channel("other")))
	g := s.gate()
	d := s.scanner("ops", func(context.Context, int, provider.Search) provider.Scan {
		g.pass()
		return nothing
	})
	d.says(losesFirst(many))
	other := s.scanner("other", func(context.Context, int, provider.Search) provider.Scan { return nothing })
	other.says(losesFirst(1))
	var ids []uuid.UUID
	for n := range many {
		ids = append(ids, s.add(s.incident(fmt.Sprint(n)), aCard("ops"))...)
	}
	ids = append(ids, s.add(s.incident("other"), aCard("other"))...)
	s.start("first")
	s.inDoubt(ids...)
	s.move(lookAfter)
	s.until("all at once", func() bool {
		return get[int](s, "select count(*)::int from delivery where notifier = 'ops' and lease_token is not null") == many
	})
	g.open()
	for _, id := range ids {
		s.until("an answer", func() bool { return s.scans(id) == 1 && !s.row(id).Leased })
	}
	if a, b := d.looked(), other.looked(); a != 1 || b != 1 {
		t.Errorf("%d and %d look-ups", a, b)
	}
	s.move(30 * time.Second)
	s.settled()
	if a, calls := d.looked(), len(d.all()); a > 4 || calls != 2*many {
		t.Errorf("%d look-ups for the second answers of %d, %d calls", a-1, many, calls)
	}
}

// A message that has lost every mark can't be found: it is not looked for, and its repeat says so.
func TestUnmarkedMessageIsNotLookedFor(t *testing.T) {
	t.Parallel()
	s := newSite(t, channel("ops"))
	d := s.scanner("ops", func(context.Context, int, provider.Search) provider.Scan { return nothing })
	refuse := delivery.Result{Outcome: delivery.OutcomeFailed, Evidence: delivery.Answered, Fault: delivery.FaultPayload, Reason: "payload:invalid"}
	d.says(func(_ context.Context, n int, c provider.Call) delivery.Result {
		switch n {
		case 1:
			r := refuse
			r.Refused = delivery.PartMetadata
			return r
		case 2:
			return refuse
		case 3:
			return lostIt
		}
		return took(n, c)
	})
	id := s.add(s.incident("a"), aCard("ops"))[0]
	s.start("first")
	s.waitFor(id, delivery.Sent)
	if calls := d.all(); d.looked() != 0 || len(calls) != 4 || !strings.Contains(calls[3].Message.Footer, "repeat") {
		t.Errorf("%d look-ups, %+v", d.looked(), calls)
	}
}

// A panic in a look-up is a fault of ours and proves nothing: it is told of, nothing counts, and the next one is made.
func TestPanicInALookUp(t *testing.T) {
	t.Parallel()
	s := newSite(t, channel("ops"))
	var id uuid.UUID
	d := s.scanner("ops", func(_ context.Context, n int, _ provider.Search) provider.Scan {
		if n == 1 {
			panic("no such page")
		}
		return provider.Scan{Found: map[string]delivery.Reference{id.String() + ":1": {Channel: "C0OPS", TS: "1700000000.000100"}}}
	})
	d.says(losesFirst(1))
	id = s.add(s.incident("a"), aCard("ops"))[0]
	w := s.start("first")
	s.inDoubt(id)
	s.move(lookAfter)
	s.until("the panic", func() bool { return w.logs.FilterMessageSnippet("a look-up panicked").Len() == 1 && !s.row(id).Leased })
	if s.scans(id) != 0 {
		t.Error("it counts")
	}
	s.waitFor(s.add(s.incident("b"), aCard("ops"))[0], delivery.Sent)
	s.move(20 * time.Second)
	s.waitFor(id, delivery.Sent)
	if got := s.outcomes(id); got != "[create sent by reconcile]" {
		t.Error(got)
	}
}

// A page does not wait for a look-up: a second ring is better than a late one.
func TestPageIsNotLookedUp(t *testing.T) {
	t.Parallel()
	s := newSite(t, direct("dm"))
	d := s.scanner("dm", func(context.Context, int, provider.Search) provider.Scan { return nothing })
	d.says(losesFirst(1))
	id := s.add(s.incident("a"), aPage("dm", "ana", 0))[0]
	s.start("first")
	s.waitFor(id, delivery.Sent)
	if calls := d.all(); len(calls) != 2 || !strings.Contains(calls[1].Message.Footer, "repeat") || d.looked() != 0 {
		t.Errorf("%d look-ups, %+v", d.looked(), calls)
	}
}

// A call that was taken over is in doubt like one whose answer was lost, and is looked up before it is made again.
func TestTakenOverIsLookedUp(t *testing.T) {
	t.Parallel()
	s := newSite(t, channel("ops"))
	var id uuid.UUID
	d := s.scanner("ops", func(context.Context, int, provider.Search) provider.Scan {
		return provider.Scan{Found: map[string]delivery.Reference{id.String() + ":1": {Channel: "C0OPS", TS: "1700000000.000100"}}}
	})
	g := s.gate()
	d.says(g.held(took))
	id = s.add(s.incident("a"), aCard("ops"))[0]
	first := s.start("first")
	d.called(1)
	first.kill()
	s.lapse()
	s.start("second")
	s.waitFor(id, delivery.Sent)
	if n := len(d.all()); n != 1 || d.looked() != 1 {
		t.Errorf("%d calls, %d look-ups", n, d.looked())
	}
	if a := s.attempts(id); len(a) != 1 || a[0].ClosedBy != "reconcile" || a[0].Worker != "first" {
		t.Errorf("%+v", a)
	}
}
