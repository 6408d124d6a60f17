package delivery_test

import (
	"testing"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
)

// An edit whose end nobody saw may overtake a newer one: the newest is sent once more, and only once.
func TestOvertakenEditIsRepeated(t *testing.T) {
	t.Parallel()
	l := play(t, delivery.Card, delivery.DefaultRetries)
	l.attempt(t)
	l.finish(answers["sent"])
	l.raise(t)
	l.attempt(t)
	l.finish(answers["unknown"]) // of revision 2
	l.raise(t)
	edits := 0
	for l.d.State == delivery.Pending {
		if a := l.attempt(t); a.Operation != delivery.OpEdit || a.Revision != 3 {
			t.Fatalf("%s of revision %d", a.Operation, a.Revision)
		}
		l.finish(answers["sent"])
		edits++
	}
	if edits != 2 || l.d.Applied != 3 {
		t.Errorf("revision 3 is sent %d times, applied is %d", edits, l.d.Applied)
	}
	// The same revision again is no overtaking: an edit repeated in doubt is enough.
	l.raise(t)
	l.attempt(t)
	l.finish(answers["unknown"])
	l.attempt(t)
	l.finish(answers["sent"])
	l.want(t, delivery.Sent, "")
}

// A frozen replica's edit arrives after its successor's: its late answer makes the newest be sent once more, also while
// another edit is in flight.
func TestLateEditMakesTheNewestGoAgain(t *testing.T) {
	t.Parallel()
	for _, inFlight := range []bool{false, true} {
		l := play(t, delivery.Card, delivery.DefaultRetries)
		l.attempt(t)
		l.finish(answers["sent"])
		l.raise(t)
		l.attempt(t)
		l.raise(t)
		for l.d.State == delivery.Pending { // taken over, sent, and once more because of the doubt
			l.attempt(t)
			l.finish(answers["sent"])
		}
		if inFlight {
			l.raise(t)
			l.attempt(t)
		}
		l.late(0, delivery.OutcomeSent)
		if inFlight {
			l.finish(answers["sent"])
		}
		if l.d.State != delivery.Pending {
			t.Fatalf("in flight %v: the card may show revision 2 and is left so: %+v", inFlight, l.d)
		}
		a := l.attempt(t)
		if a.Operation != delivery.OpEdit || a.Revision != l.d.Desired {
			t.Errorf("in flight %v: %s of revision %d of %d", inFlight, a.Operation, a.Revision, l.d.Desired)
		}
		l.finish(answers["sent"])
		l.want(t, delivery.Sent, "")
	}
}

// Two attempts are in doubt, and the newer one turns out to have failed: the older one may still have arrived.
func TestLateFailureLiftsOnlyItsOwnDoubt(t *testing.T) {
	t.Parallel()
	l := play(t, delivery.Page, delivery.DefaultRetries)
	l.attempt(t)
	l.finish(answers["unknown"])
	l.attempt(t)
	l.claim()
	l.apply("give back", l.d.GiveBack(0, ""))
	l.late(0, delivery.OutcomeFailed)
	if l.d.Doubt == nil {
		t.Fatal("the first attempt's doubt is forgotten")
	}
	if a := l.attempt(t); a.Address != "address 1" {
		t.Errorf("the repeat goes to %q", a.Address)
	}
}

// A thread's replies are an effect each; one in doubt keeps its range of events and its key, however many come after.
func TestReplyInDoubtIsFrozen(t *testing.T) {
	t.Parallel()
	l := play(t, delivery.Thread, delivery.DefaultRetries)
	l.raise(t)
	first := l.attempt(t) // events 1 and 2
	l.raise(t)
	l.finish(answers["unknown"])
	l.raise(t)
	second := l.attempt(t)
	if second.Key != first.Key || second.Revision != 2 {
		t.Errorf("after %+v comes %+v", first, second)
	}
	l.finish(answers["sent"])
	third := l.attempt(t)
	if third.Key == first.Key || third.Revision != 4 {
		t.Errorf("then comes %+v", third)
	}
	l.finish(answers["sent"])
	l.want(t, delivery.Sent, "")
	if s, err := l.d.Decide(delivery.SendAgain); err == nil {
		t.Errorf("a sent thread can be sent again: %+v", s.Change())
	}
}
