package worker_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/message"
	"github.com/tocsin-oncall/tocsin/pkg/pace"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
)

// A flood into one incident costs its card a call a slot, however many changes there are: what came in between two slots
// is shown together, and the last call shows the last state.
func TestAFloodCostsOneEditASlot(t *testing.T) {
	t.Parallel()
	n := channel("ops")
	n.Pace.Destination = pace.Rule{Count: 1, Per: time.Hour}
	s := newSite(t, n)
	i := s.incident("a")
	id := s.add(i, aCard("ops"))[0]
	first := s.start("first")
	s.start("second") // what one has no slot for, another one has none for either
	d := s.desk("ops")
	s.until("the card", func() bool { return s.row(id).Applied == 1 })
	const changes = 40
	for slot := range 4 {
		for k := range changes {
			state := message.Open
			if slot == 3 && k == changes-1 {
				state = message.Resolved
			}
			s.becomes(i, state)
			first.Nudge(time.Time{})
		}
		if got := len(d.all()); got != 1+slot {
			t.Fatalf("%d calls before slot %d, of which there was none", got, slot+1)
		}
		s.move(time.Hour)
		s.until("an edit that shows all of it", func() bool { return s.row(id).Applied == 1+changes*(slot+1) })
		if got := len(d.all()); got != 2+slot {
			t.Fatalf("%d calls with slot %d", got, slot+1)
		}
	}
	s.settled()
	calls := d.all()
	if last := calls[len(calls)-1]; len(calls) != 5 || last.Message.State != message.Resolved {
		t.Errorf("%d calls, the last shows %s", len(calls), last.Message.State)
	}
	if got := len(s.attempts(id)); got != 5 {
		t.Errorf("%d attempts for 5 calls", got)
	}
}

// Changes that come faster than a claim takes to its begin, and faster than a result is written, leave the card its calls: each shows
// what there was, the pace is kept, and the last one shows the last state. Nothing waits for the end of a lease.
func TestAFloodIsShownWhileItLasts(t *testing.T) {
	t.Parallel()
	n := channel("ops")
	n.Pace.Destination = pace.Rule{Count: 1, Per: time.Second}
	s := newSite(t, n)
	i := s.incident("a")
	id := s.add(i, aCard("ops"))[0]
	var on atomic.Bool
	on.Store(true)
	raise := func() {
		if on.Load() {
			s.becomes(i, message.Open)
		}
	}
	w := s.start("first", hooks{provider: func(string) { raise() }}) // between each claim and its begin
	d := s.desk("ops").says(func(_ context.Context, n int, c provider.Call) delivery.Result {
		raise() // between each call and its result
		return took(n, c)
	})
	for slot := range 4 {
		s.until("a call in the midst of it", func() bool { w.Nudge(time.Time{}); return len(d.all()) > slot })
		s.move(time.Second)
	}
	on.Store(false)
	s.becomes(i, message.Resolved)
	s.move(time.Second)
	w.Nudge(time.Time{})
	s.settled()
	calls := d.all()
	if last := calls[len(calls)-1]; last.Message.State != message.Resolved {
		t.Errorf("the last of %d calls shows %s", len(calls), last.Message.State)
	}
	for _, a := range s.attempts(id) {
		if a.Outcome != "sent" || a.ClosedBy != "worker" {
			t.Errorf("%+v", a)
		}
	}
}

// A slot that was taken is used, though the card was raised meanwhile: the next slot shows the rest.
func TestASlotIsUsedThoughTheCardWasRaised(t *testing.T) {
	t.Parallel()
	n := channel("ops")
	n.Pace.Destination = pace.Rule{Count: 1, Per: time.Hour}
	s := newSite(t, n)
	i := s.incident("a")
	id := s.add(i, aCard("ops"))[0]
	var once sync.Once
	w := s.start("first", hooks{provider: func(string) { once.Do(func() { s.becomes(i, message.Acknowledged) }) }})
	s.until("the card, and its edit that waits for a slot", func() bool {
		r := s.row(id)
		return r.Applied == 1 && !r.Leased && r.Reason == "rate_limited"
	})
	s.move(time.Hour)
	w.Nudge(time.Time{})
	s.until("its edit", func() bool { return s.row(id).Applied == 2 })
	if calls := s.desk("ops").all(); len(calls) != 2 || calls[1].Message.State != message.Acknowledged {
		t.Errorf("%+v", calls)
	}
}
