package store_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// due moves the time at which a delivery is due, from now.
func (s *site) due(id uuid.UUID, from time.Duration) {
	s.t.Helper()
	s.exec("update delivery set next_at = clock_timestamp() + make_interval(secs => $2) where id = $1", id, from.Seconds())
}

func ids(claimed []store.Claimed) []uuid.UUID {
	var out []uuid.UUID
	for _, c := range claimed {
		out = append(out, c.ID)
	}
	return out
}

// same says that a claim took these deliveries and no others, in whatever order.
func same(claimed []store.Claimed, want ...uuid.UUID) bool {
	left := map[uuid.UUID]bool{}
	for _, id := range want {
		left[id] = true
	}
	for _, c := range claimed {
		if !left[c.ID] {
			return false
		}
		delete(left, c.ID)
	}
	return len(left) == 0
}

func TestClaimLeasesEachRowForItself(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	inc := s.incident("k")
	a, b := s.add(inc, delivery.Event), s.add(inc, delivery.Event)
	created := s.row(a).NextAt
	got := s.claim(alpha)
	if !same(got, a, b) {
		t.Fatalf("claimed %v, not %s and %s", ids(got), a, b)
	}
	if got[0].Token == got[1].Token || got[0].Token == uuid.Nil {
		t.Errorf("tokens %s and %s are no grants of their own", got[0].Token, got[1].Token)
	}
	for _, c := range got {
		r := s.row(c.ID)
		switch {
		case r.Token == nil || *r.Token != c.Token || r.Worker != alpha || r.Version != c.Version || c.Version != 1:
			t.Errorf("the row says %s, the claim %s", pretty(r), pretty(c))
		case r.Until == nil || !near(*r.Until, c.Now.Add(lease)) || !near(*r.NextAt, *r.Until):
			t.Errorf("leased at %s for %s until %s, looked at again at %s", c.Now, lease, r.Until, r.NextAt)
		case c.State != delivery.Pending || c.Called || c.TakenOver != nil || c.Doubt != nil:
			t.Errorf("a first claim says %s", pretty(c))
		}
		if c.ID == a && !c.Due.Equal(*created) {
			t.Errorf("was due at %s, the claim says %s", created, c.Due)
		}
	}
	if again := s.claim(beta); len(again) != 0 {
		t.Errorf("leased rows were claimed again: %v", ids(again))
	}
}

func TestClaimTakesOnlyWhatIsDueThroughItsLanes(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	inc := s.incident("k")
	now := s.add(inc, delivery.Card)
	soon := s.add(inc, delivery.Card, later(time.Hour))
	other := s.add(inc, delivery.Card, via("other"))
	s.add(inc, delivery.Notice, func(d *store.NewDelivery) {
		d.Dead = &store.Dead{State: delivery.Unreachable, Reason: "nobody_on_call", Sentence: "Nobody is on call."}
	})
	if got := s.claim(alpha); !same(got, now) {
		t.Fatalf("claimed %v, not %s alone", ids(got), now)
	}
	if got := s.claim(alpha); len(got) != 0 {
		t.Fatalf("claimed %v before it was due", ids(got))
	}
	s.due(soon, -time.Millisecond)
	if got := s.claim(alpha); !same(got, soon) {
		t.Errorf("claimed %v once it was due, not %s", ids(got), soon)
	}
	if got := s.claim(alpha, store.Lane{Notifier: "other", Free: 1}, store.Lane{Notifier: "unknown", Free: 1}); !same(got, other) {
		t.Errorf("claimed %v through the other lane, not %s", ids(got), other)
	}
}

func TestClaimFillsEachLanesPlacesByPriorityThenAge(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	inc := s.incident("k")
	// Made in an order that is neither, so that only the claim can bring them into theirs.
	kinds := []delivery.Kind{delivery.Bulk, delivery.Thread, delivery.Page, delivery.Event, delivery.Card, delivery.Call}
	minutes := map[delivery.Kind]int{delivery.Bulk: 50, delivery.Event: 40, delivery.Thread: 30, delivery.Card: 20, delivery.Page: 5, delivery.Call: 10}
	by := map[delivery.Kind][2]uuid.UUID{} // the younger and the older one
	for _, k := range kinds {
		young, old := s.add(inc, k), s.add(inc, k)
		age := time.Duration(minutes[k]) * time.Minute
		s.due(young, -age)
		s.due(old, -age-30*time.Second)
		by[k] = [2]uuid.UUID{young, old}
	}
	for range 3 {
		s.add(inc, delivery.Page, via("other"))
	}
	lane := store.Lane{Notifier: ops, Free: 2}
	// A call is of a page's priority and older, so it goes first; within a kind the older one.
	for _, k := range []delivery.Kind{delivery.Call, delivery.Page, delivery.Card, delivery.Thread, delivery.Event, delivery.Bulk} {
		got := s.claim(alpha, store.Lane{Notifier: ops, Free: 1})
		if !same(got, by[k][1]) {
			t.Fatalf("the first place went to %v, not to the older %s", ids(got), k)
		}
		s.due(by[k][0], -time.Hour*24) // so old that only its priority can let it wait
		if got = s.claim(alpha, store.Lane{Notifier: ops, Free: 1}); !same(got, by[k][0]) {
			t.Fatalf("the second place went to %v, not to the younger %s", ids(got), k)
		}
	}
	if got := s.claim(alpha, lane, store.Lane{Notifier: "other", Free: 2}); len(got) != 2 {
		t.Errorf("%d rows for two free places", len(got))
	}
	if got := s.claim(alpha, lane, store.Lane{Notifier: "other", Free: 2}); len(got) != 1 {
		t.Errorf("%d rows were left, not one", len(got))
	}
}

func TestClaimWatermarkHidesAllButPages(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	inc := s.incident("k")
	old := map[delivery.Kind]uuid.UUID{}
	for _, k := range []delivery.Kind{delivery.Page, delivery.Call, delivery.SMS, delivery.Card, delivery.Thread, delivery.Notice, delivery.Event, delivery.Bulk} {
		old[k] = s.add(inc, k)
		s.due(old[k], -time.Hour)
	}
	now, err := s.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	mark := now.Add(-time.Minute)
	low := store.Lane{Notifier: ops, Free: 100, Low: [4]time.Time{mark, mark, mark, mark}}
	if got := s.claim(alpha, low); !same(got, old[delivery.Page], old[delivery.Call], old[delivery.SMS]) {
		t.Errorf("with a watermark the claim took %v, not the three of a page's priority", ids(got))
	}
	fresh := s.add(inc, delivery.Card)
	if got := s.claim(alpha, low); !same(got, fresh) {
		t.Errorf("behind the watermark the claim took %v, not %s", ids(got), fresh)
	}
	low.Low[0] = mark.Add(-time.Hour) // each priority has its own
	if got := s.claim(alpha, low); !same(got, old[delivery.Card]) {
		t.Errorf("with the cards' watermark lowered the claim took %v", ids(got))
	}
	if got := s.claim(alpha); len(got) != 4 {
		t.Errorf("without a watermark the claim took %d rows, not the four that were left", len(got))
	}
}

func TestClaimSkipsLockedRowsAndWaitsForNone(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	inc := s.incident("k")
	busy, idle := s.add(inc, delivery.Card), s.add(inc, delivery.Card)
	s.due(busy, -time.Hour) // it would come first
	tx, err := connect(t, s.url).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "select 1 from delivery where id = $1 for update", busy); err != nil {
		t.Fatal(err)
	}
	if got := s.claim(alpha, store.Lane{Notifier: ops, Free: 1}); !same(got, idle) {
		t.Errorf("claimed %v, not %s: the row of somebody else's transaction is not for it", ids(got), idle)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := s.claim(alpha); !same(got, busy) {
		t.Errorf("claimed %v after it was let go, not %s", ids(got), busy)
	}
}

func TestTwoClaimersNeverShareARow(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	inc := s.incident("k")
	for range 4 {
		s.add(inc, delivery.Event)
	}
	g := s.holdCommits()
	g.shut()
	lanes := func(n int) []store.Lane { return []store.Lane{{Notifier: ops, Free: n}} }
	first := async(t, func() ([]store.Claimed, error) { return s.Claim(t.Context(), alpha, lease, lanes(3)) })
	s.blocked(1) // at its commit, with three rows
	second := async(t, func() ([]store.Claimed, error) { return s.Claim(t.Context(), beta, lease, lanes(3)) })
	s.blocked(2)
	third, err := s.Claim(t.Context(), beta, lease, lanes(3))
	if err != nil || len(third) != 0 {
		t.Errorf("a third claimer got %v, %v while all rows were taken", ids(third), err)
	}
	g.open()
	a, b := first.wait(), second.wait()
	if len(a) != 3 || len(b) != 1 {
		t.Fatalf("the claimers took %d and %d of four rows", len(a), len(b))
	}
	for _, c := range a {
		if c.ID == b[0].ID {
			t.Errorf("both took %s", c.ID)
		}
		if r := s.row(c.ID); *r.Token != c.Token || r.Worker != alpha {
			t.Errorf("%s was taken away from its first claimer: %s", c.ID, pretty(r))
		}
	}
}

// A row that was settled, claimed or put off after the claim's snapshot is looked at again before it is taken.
func TestClaimLooksAgainAtRowsThatMoved(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	inc := s.incident("k")
	settled, leased, put, stays := s.add(inc, delivery.Event), s.add(inc, delivery.Event), s.add(inc, delivery.Event), s.add(inc, delivery.Event)
	token := uuid.New()
	g := s.holdClaims()
	g.shut()
	c := async(t, func() ([]store.Claimed, error) {
		return s.Claim(t.Context(), alpha, lease, []store.Lane{{Notifier: ops, Free: 100}})
	})
	s.blocked(1)
	s.note(inc, settled, cancel("canceled_by"))
	s.exec("update delivery set lease_token = $2, lease_until = clock_timestamp() + interval '1 min', next_at = clock_timestamp() + interval '1 min' where id = $1", leased, token)
	s.due(put, time.Hour)
	s.note(inc, stays, raise(7))
	g.open()
	got := c.wait()
	if !same(got, stays) {
		t.Fatalf("claimed %v, not %s alone", ids(got), stays)
	}
	if got[0].Desired != 7 || got[0].Version != s.row(stays).Version {
		t.Errorf("the claim brought revision %d and version %d of a row that says %s", got[0].Desired, got[0].Version, pretty(s.row(stays)))
	}
	if r := s.row(leased); *r.Token != token {
		t.Error("the claim took a row that another had leased meanwhile")
	}
	s.inState(settled, delivery.Canceled, "canceled_by")
}

// A lease that ran out without an open attempt was surely not called under: the row goes back as if nothing had been.
func TestClaimTakesLapsedLeasesWithoutDoubt(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.add(s.incident("k"), delivery.Page)
	first := s.take(alpha)
	s.move(lease - 10*time.Second)
	if got := s.claim(beta); len(got) != 0 {
		t.Fatal("a lease was taken over before it had run out")
	}
	s.move(11 * time.Second)
	second := s.take(beta)
	switch r := s.row(id); {
	case second.Token == first.Token:
		t.Error("a new grant has the old token")
	case second.TakenOver != nil || second.Doubt != nil || second.Called || r.Tries != 0 || r.Attempts != 0:
		t.Errorf("a lease without an attempt left something behind: %s", pretty(second))
	case !second.Due.Equal(first.Now.Add(lease)) && !near(second.Due, first.Now.Add(lease)):
		t.Errorf("the row was due at the end of its lease, the claim says %s", second.Due)
	}
	if len(s.attempts(id)) != 0 {
		t.Error("an attempt was made up")
	}
	// The first owner's token is spent.
	before := s.whole(id)
	if got := s.try(alpha, intent(first)); len(got) != 0 {
		t.Error("the first owner could begin")
	}
	if done, err := s.Settle(t.Context(), []delivery.Step{first.GiveBack(0, "")}); err != nil || len(done) != 0 {
		t.Errorf("the first owner could give the row back: %v, %v", done, err)
	}
	s.unchanged(id, before, "writes of a spent token")
}

func TestEarliestDueCountsLeasesAndNothingSettled(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	wait := func() time.Duration {
		t.Helper()
		d, err := s.EarliestDue(t.Context(), []string{ops, "other"})
		if err != nil {
			t.Fatal(err)
		}
		return d.Round(time.Minute)
	}
	inc := s.incident("k")
	if d := wait(); d != 24*time.Hour {
		t.Errorf("nothing is due for %s, not a day", d)
	}
	s.add(inc, delivery.Bulk, later(3*time.Hour), via("other"))
	s.add(inc, delivery.Page, later(time.Minute), via("not asked for"))
	id := s.add(inc, delivery.Card, later(2*time.Hour))
	if d := wait(); d != 2*time.Hour {
		t.Errorf("the card is due in two hours, not in %s", d)
	}
	s.due(id, -time.Hour)
	if d := wait(); d != -time.Hour {
		t.Errorf("what is overdue by an hour is due in %s", d)
	}
	s.take(alpha)
	if d := wait(); d != lease {
		t.Errorf("the lease's end is what comes next, not something in %s", d)
	}
	s.note(inc, id, cancel("canceled_by"))
	if d := wait(); d != 3*time.Hour {
		t.Errorf("after the card only the bulk of three hours is left, not something in %s", d)
	}
}
