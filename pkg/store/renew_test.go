package store_test

import (
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// What a person sends again has a lifetime before it, as long as the first one, however long it lay dead.
func TestSendAgainBeginsTheLifetimeAnew(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	inc := s.incident("k")
	id := s.add(inc, delivery.Notice, func(d *store.NewDelivery) { d.Lifetime = time.Hour })
	for range 2 {
		s.move(3 * time.Hour)
		s.note(inc, id, delivery.Delivery.Expire)
		s.inState(id, delivery.Expired, "lifetime_over")
		s.decide(inc, id, delivery.SendAgain)
		c := s.take(alpha)
		if left := c.ExpiresAt.Sub(c.Now); left < 59*time.Minute || left > time.Hour {
			t.Fatalf("sent again, it has %s to live, not the hour that it began with", left)
		}
		if v := c.Judge(delivery.Facts{Now: c.Now, Policy: delivery.DefaultPolicy(delivery.Notice)}); v.Step != nil {
			t.Fatalf("sent again, it is %s", v.Step.To())
		}
		s.settle(c.GiveBack(0, ""))
	}
}

// A delivery that lives as long as its incident gets no end by being sent again.
func TestSendAgainGivesNoLifetime(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	inc := s.incident("k")
	s.add(inc, delivery.Card)
	c := s.take(alpha)
	s.settle(c.Reject("destination:not_in_channel", ""))
	s.decide(inc, c.ID, delivery.SendAgain)
	if again := s.take(alpha); again.ID != c.ID || !again.ExpiresAt.IsZero() {
		t.Errorf("sent again, it ends at %s", again.ExpiresAt)
	}
}
