package store_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// A long transaction does not make what it writes old: times are those of the write.
func TestDueTimesAreThoseOfTheWrite(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	inc := s.incident("k")
	sentCard := s.started(inc, delivery.Card)
	s.finish(alpha, sentCard, sent)
	event, page, dead := store.NewID(), store.NewID(), store.NewID()
	step := store.EscalationStep{ID: store.NewID(), IncidentID: inc.ID, Name: "default", Due: 10 * time.Minute}
	began := get[time.Time](s, "select clock_timestamp()")
	s.tx(func(tx *store.Tx) error {
		if _, err := tx.LockIncident(t.Context(), inc.ID); err != nil {
			return err
		}
		s.move(time.Hour) // the transaction takes an hour
		if err := tx.AddDeliveries(t.Context(),
			store.NewDelivery{ID: event, IncidentID: inc.ID, ContentID: inc.ID, Kind: delivery.Event, Notifier: ops, Target: "url", Delay: time.Minute, Lifetime: 24 * time.Hour},
			store.NewDelivery{ID: page, IncidentID: inc.ID, ContentID: inc.ID, Kind: delivery.Page, Notifier: ops, Target: "user:ana", Wait: 5 * time.Second},
			store.NewDelivery{ID: dead, IncidentID: inc.ID, ContentID: inc.ID, Kind: delivery.Page, Notifier: ops, Target: "user:bo", Dead: &store.Dead{State: delivery.Unreachable, Reason: "no_linked_account"}},
		); err != nil {
			return err
		}
		if err := tx.AddSteps(t.Context(), step); err != nil {
			return err
		}
		d, err := tx.Delivery(t.Context(), sentCard.Delivery.ID)
		if err != nil {
			return err
		}
		raised, _ := d.Raise(2)
		return tx.Apply(t.Context(), raised)
	})
	wrote := began.Add(time.Hour)
	for what, at := range map[string]time.Time{
		"the event is due":          s.row(event).NextAt.Add(-time.Minute),
		"the event was created":     s.row(event).CreatedAt,
		"the event's lifetime ends": get[time.Time](s, "select expires_at from delivery where id = $1", event).Add(-24 * time.Hour),
		"the page is due":           s.row(page).NextAt.Add(-5 * time.Second),
		"the page waits":            s.row(page).WaitUntil.Add(-5 * time.Second),
		"the dead page died":        *s.row(dead).SettledAt,
		"the card's edit is due":    *s.row(sentCard.Delivery.ID).NextAt,
		"the step is due":           get[time.Time](s, "select due_at from escalation where id = $1", step.ID).Add(-10 * time.Minute),
	} {
		if !near(at, wrote) {
			t.Errorf("%s as of %s, not as of the write at %s", what, at, wrote)
		}
	}
	if n := get[int](s, "select num_nulls(next_at, wait_until, expires_at, lease_until) from delivery where id = $1", dead); n != 4 {
		t.Error("a delivery that is settled as it is made is due some time")
	}
}

// The worker's writes are as late as they can be too: the wait for a row's lock is not part of lease and backoff.
func TestLeaseAndBackoffAreThoseOfTheWrite(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.started(s.incident("k"), delivery.Event)
	id := b.Delivery.ID
	tx, err := connect(t, s.url).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "select 1 from delivery where id = $1 for update", id); err != nil {
		t.Fatal(err)
	}
	finish := async(t, func() (map[uuid.UUID]bool, error) {
		return s.Finish(t.Context(), alpha, []store.Finished{ended(b, failed)})
	})
	s.blocked(1)
	s.move(30 * time.Minute)
	now := get[time.Time](s, "select clock_timestamp()")
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	finish.wait()
	if r, a := s.row(id), s.attempt(id); r.NextAt.Before(now) || !near(*a.FinishedAt, now) {
		t.Errorf("written at %s: due at %s, ended at %s", now, r.NextAt, a.FinishedAt)
	}
}

// The claim is short and compares with the start of its transaction; a row that falls due in between waits for the next.
func TestClaimComparesWithItsStart(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	inc := s.incident("k")
	soon := s.add(inc, delivery.Event, later(time.Minute))
	g := s.holdClaims()
	g.shut()
	claim := async(t, func() ([]store.Claimed, error) {
		return s.Claim(t.Context(), alpha, lease, []store.Lane{{Notifier: ops, Free: 10}})
	})
	s.blocked(1)
	s.move(2 * time.Minute)
	now := get[time.Time](s, "select clock_timestamp()")
	due := s.add(inc, delivery.Event) // and one committed after the claim's snapshot
	g.open()
	if got := claim.wait(); len(got) != 0 {
		t.Fatalf("claimed %v, which were not due when the claim began", ids(got))
	}
	got := s.claim(alpha)
	if !same(got, soon, due) {
		t.Fatalf("the next claim took %v", ids(got))
	}
	for _, c := range got {
		if until := s.row(c.ID).Until; !near(*until, now.Add(lease)) {
			t.Errorf("the lease ends at %s, %s after the claim at %s", until, until.Sub(now), now)
		}
	}
}

// Rule 4: the database's clock decides, wherever it stands. Forward, leases end early and are taken over as unknown.
// Backward, they end late; nothing is lost, nothing is taken twice.
func TestDatabaseClockJumps(t *testing.T) {
	t.Parallel()
	t.Run("forward", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		b := s.started(s.incident("k"), delivery.Card)
		s.move(24 * time.Hour)
		if c := s.take(beta); c.TakenOver == nil || !near(c.Now, get[time.Time](s, "select clock_timestamp()")) {
			t.Errorf("the claim got %s", pretty(c))
		}
		before := s.whole(b.Delivery.ID)
		if done := s.end(alpha, ended(b, sent)); len(done) != 0 {
			t.Error("a result was written under a lease that was granted anew")
		}
		s.unchanged(b.Delivery.ID, before, "the former owner's finish")
	})
	t.Run("backward", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		inc := s.incident("k")
		b := s.started(inc, delivery.Card)
		waiting := s.add(inc, delivery.Event)
		s.move(-time.Hour)
		fresh := s.add(inc, delivery.Event)
		if got := s.claim(beta); !same(got, fresh) {
			t.Fatalf("claimed %v: what is made now is due now, and nothing else", ids(got))
		}
		s.finish(alpha, b, sent) // its owner is not in anybody's way
		s.inState(b.Delivery.ID, delivery.Sent, "")
		s.move(time.Hour)
		if got := s.claim(beta); !same(got, waiting) && !same(got, waiting, fresh) {
			t.Errorf("claimed %v when the clock had come back", ids(got))
		}
	})
}

// A lifetime is over by the database's clock; what is expired is found once, by one replica, and never under a lock.
func TestExpiredDeliveriesAreFoundOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	inc := s.incident("k")
	living := func(d time.Duration) func(*store.NewDelivery) {
		return func(n *store.NewDelivery) { n.Lifetime, n.Delay = d, 2*time.Hour }
	}
	short, long := s.add(inc, delivery.Notice, living(time.Hour)), s.add(inc, delivery.Notice, living(3*time.Hour))
	s.add(inc, delivery.Notice)
	expired := func(tx *store.Tx) []uuid.UUID {
		t.Helper()
		ds, err := tx.ExpiredDeliveries(t.Context(), 10)
		if err != nil {
			t.Fatal(err)
		}
		var out []uuid.UUID
		for _, d := range ds {
			out = append(out, d.ID)
		}
		return out
	}
	s.tx(func(tx *store.Tx) error {
		if got := expired(tx); len(got) != 0 {
			t.Errorf("%v are expired at once", got)
		}
		return nil
	})
	s.move(time.Hour + time.Second)
	s.tx(func(tx *store.Tx) error {
		ds, err := tx.ExpiredDeliveries(t.Context(), 10)
		if err != nil || len(ds) != 1 || ds[0].ID != short {
			t.Fatalf("%s are expired, not %s: %v", pretty(ds), short, err)
		}
		s.tx(func(other *store.Tx) error {
			if got := expired(other); len(got) != 0 {
				t.Errorf("another replica found %v as well", got)
			}
			return nil
		})
		step, ok := ds[0].Expire()
		if !ok {
			t.Errorf("it does not expire: %s", pretty(ds[0]))
		}
		return tx.Apply(t.Context(), step)
	})
	s.inState(short, delivery.Expired, "lifetime_over")
	s.inState(long, delivery.Pending, "")
	s.tx(func(tx *store.Tx) error {
		if got := expired(tx); len(got) != 0 {
			t.Errorf("%v are expired once more", got)
		}
		return nil
	})
}
