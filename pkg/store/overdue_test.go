package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// A page that is kept back beyond its bound is passed over once, stays pending, and is a page like any other when it is sent
// after all.
func TestOverduePageOfTheStore(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	inc := s.incident("k")
	step := store.EscalationStep{ID: store.NewID(), IncidentID: inc.ID, Name: "default"}
	s.tx(func(tx *store.Tx) error { return tx.AddSteps(t.Context(), step) })
	id := s.add(inc, delivery.Page, func(d *store.NewDelivery) { d.StepID, d.Target = step.ID, "user:ana" })
	keep := func(delay time.Duration) {
		t.Helper()
		c := s.take(alpha)
		s.settle(c.Queued(delivery.Facts{Now: c.Now, Policy: delivery.DefaultPolicy(delivery.Page)}, delay, room, "paused", ""))
		s.exec("update delivery set next_at = clock_timestamp()")
	}
	overdue := func() []store.OverduePage {
		t.Helper()
		got, err := s.OverduePages(t.Context(), 10)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	pages := func() (got store.StepPage) {
		t.Helper()
		s.tx(func(tx *store.Tx) error {
			all, err := tx.PagesOfStep(t.Context(), inc.ID, step.ID)
			if len(all) == 1 {
				got = all[0]
			}
			return err
		})
		return got
	}
	keep(4 * time.Second)
	if got := overdue(); len(got) != 0 || pages().Overdue {
		t.Errorf("within its bound: %s", pretty(got))
	}
	keep(time.Minute)
	if got := overdue(); len(got) != 1 || got[0] != (store.OverduePage{ID: id, IncidentID: inc.ID, StepID: step.ID, Target: "user:ana"}) {
		t.Errorf("%s", pretty(got))
	}
	if p := pages(); !p.Overdue || p.Begun || p.State != delivery.Pending {
		t.Errorf("%s", pretty(p))
	}
	// It was tried before and is leased at the moment: the note goes onto the row all the same, and its begin sees that it moved.
	c := s.take(alpha)
	if err := s.PassOver(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if got := overdue(); len(got) != 0 || !pages().Overdue || pages().Begun {
		t.Errorf("passed over, and still %s", pretty(got))
	}
	if got := s.try(alpha, intent(c)); len(got) != 0 {
		t.Error("begun on what the row said before")
	}
	s.settle(s.read(id).GiveBack(0, ""))
	keep(time.Minute) // kept back again: the escalation went on already
	if got := overdue(); len(got) != 0 || !pages().Overdue {
		t.Errorf("passed over twice: %s", pretty(got))
	}
	before := s.whole(id)
	if err := s.PassOver(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	s.unchanged(id, before, "passed over already")
	s.finish(alpha, s.begin(alpha, s.take(alpha)), sent)
	if p := pages(); p.Overdue || !p.Begun || p.State != delivery.Sent {
		t.Errorf("sent after all: %s", pretty(p))
	}
	if n := get[int](s, "select overdue::int from delivery where id = $1", id); n != 0 {
		t.Errorf("overdue is %d", n)
	}
}

// read is a delivery as it stands.
func (s *site) read(id uuid.UUID) store.Claimed {
	s.t.Helper()
	rows, err := s.Read(s.ctx(), id)
	if err != nil {
		s.t.Fatal(err)
	}
	return rows[id]
}

// A card that its destination or account keeps back for a while counts as one whose first attempt is over: pages go without
// its link. One that waits for its slot a moment does not.
func TestPageDoesNotWaitForACardThatIsKeptBack(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reason string
		delay  time.Duration
		over   bool
	}{
		{"paused", time.Minute, true}, {"rate_limited", time.Minute, true}, {"account:token_revoked", time.Minute, true},
		{"rate_limited", 700 * time.Millisecond, false}, {"refused", time.Minute, false},
	} {
		t.Run(fmt.Sprint(c.reason, " for ", c.delay), func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			inc := s.incident("k")
			s.add(inc, delivery.Card)
			page := s.add(inc, delivery.Page, waits(time.Hour), via("dm"))
			k := s.take(alpha)
			if s.unpark(inc); !s.waiting(page) {
				t.Error("the page does not wait for a card that is being made")
			}
			s.settle(k.Queued(delivery.Facts{Now: k.Now}, c.delay, room, c.reason, ""))
			around, err := s.Around(t.Context(), []store.Claimed{s.read(page)})
			if err != nil || len(around.Cards[inc.ID]) != 1 || around.Cards[inc.ID][0].Over != c.over {
				t.Errorf("%s, %v", pretty(around.Cards), err)
			}
			if s.unpark(inc); s.waiting(page) == c.over {
				t.Errorf("the page waits: %t", s.waiting(page))
			}
		})
	}
}
