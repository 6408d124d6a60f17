package store_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// Rule 5: an expired lease with an open attempt closes that attempt as unknown first and puts the delivery in doubt.
func TestTakeoverIsUnknown(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.started(s.incident("k"), delivery.Page)
	id := b.Delivery.ID
	s.lapse()
	c := s.take(beta)
	a, r := s.attempt(id), s.row(id)
	switch {
	case !says(a.Outcome, "unknown") || !says(a.Evidence, "possibly_sent") || !says(a.ClosedBy, "takeover") || a.Reason != "takeover" || a.Late != nil:
		t.Errorf("the attempt says %s", pretty(a))
	case a.FinishedAt == nil || a.FinishedAt.Sub(a.StartedAt) < lease:
		t.Errorf("the attempt began at %s and ended at %v", a.StartedAt, a.FinishedAt)
	case a.Worker != alpha || a.Number != 1:
		t.Errorf("the attempt is not the first owner's any more: %s", pretty(a))
	case r.Open != nil || r.Tries != 1 || r.Attempts != 1 || r.Reason != "takeover" || r.State != delivery.Pending:
		t.Errorf("the delivery says %s", pretty(r))
	case r.Doubt == nil || r.Doubt.Effect != 1 || r.Doubt.Key != b.Attempt.Key || r.Doubt.Address != "C0123" || r.Doubt.Revision != 1 || !near(r.Doubt.Since, b.Attempt.StartedAt):
		t.Errorf("the doubt is %s", pretty(r.Doubt))
	case *r.Token != c.Token || c.Token == b.Delivery.Token || r.Worker != beta || !near(*r.NextAt, c.Now.Add(lease)):
		t.Errorf("the new owner's lease is %s", pretty(r))
	case c.TakenOver == nil || c.TakenOver.Attempt.ID != a.ID || c.TakenOver.Worker != alpha || c.TakenOver.Attempt.Number != 1:
		t.Errorf("the claim says %s", pretty(c.TakenOver))
	case c.Version != r.Version || c.Doubt == nil || c.Doubt.Key != r.Doubt.Key || c.OpenAttempt != [16]byte{} || c.Tries != 1 || !c.Called:
		t.Errorf("the claim brought %s", pretty(c))
	}
	// What the claim brought is fit to begin on; the key stays, and the number goes on.
	next := s.begin(beta, c)
	if got := s.attempts(id); len(got) != 2 || got[1].Number != 2 || got[1].Key != a.Key || got[1].Address != a.Address || next.Attempt.Number != 2 {
		t.Errorf("the attempts are %s", pretty(got))
	}
}

// A second takeover does not make the doubt younger, nor its revision higher.
func TestTakeoverKeepsTheOldestDoubt(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	inc := s.incident("k")
	b := s.started(inc, delivery.Card, func(d *store.NewDelivery) { d.Desired = 2 })
	id := b.Delivery.ID
	s.lapse()
	s.begin(beta, s.take(beta))
	s.note(inc, id, raise(5))
	s.lapse()
	c := s.take(alpha)
	third := s.begin(alpha, c)
	if third.Attempt.Revision != 5 {
		t.Fatalf("the third attempt shows revision %d", third.Attempt.Revision)
	}
	s.lapse()
	s.take(beta)
	r := s.row(id)
	if r.Doubt.Revision != 2 || !near(r.Doubt.Since, b.Attempt.StartedAt) || r.Doubt.Key != b.Attempt.Key || r.Tries != 3 || r.Desired != 5 {
		t.Errorf("after three takeovers the delivery says %s; the first attempt began at %s", pretty(r), b.Attempt.StartedAt)
	}
	for i, a := range s.attempts(id) {
		if !says(a.ClosedBy, "takeover") || a.Number != i+1 {
			t.Errorf("attempt %d says %s", i, pretty(a))
		}
	}
}

// The range of a reply in doubt is frozen with its key.
func TestTakeoverOfAReplyFreezesItsRange(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	inc := s.incident("k")
	s.add(inc, delivery.Thread, func(d *store.NewDelivery) { d.Desired = 3 })
	c := s.take(alpha)
	b := s.begin(alpha, c)
	s.note(inc, c.ID, raise(9))
	s.lapse()
	got := s.take(beta)
	if r := s.row(c.ID); r.Doubt == nil || r.Doubt.Through != 3 || r.Doubt.Key != c.ID.String()+":1:1" || r.Desired != 9 {
		t.Errorf("the delivery says %s", pretty(r))
	}
	if got.Doubt == nil || got.Doubt.Through != 3 || got.Doubt.Key != b.Attempt.Key {
		t.Errorf("the claim brought %s", pretty(got.Doubt))
	}
}

// Several rows at once: each takeover closes its own attempt, and rows that had none open are left as they are.
func TestTakeoverClosesExactlyTheOpenAttempts(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	inc := s.incident("k")
	for range 4 {
		s.add(inc, delivery.Event)
	}
	claimed := s.claim(alpha)
	open := map[string]bool{}
	for _, c := range claimed[:2] {
		open[s.begin(alpha, c).Attempt.ID.String()] = true
	}
	done := s.begin(alpha, claimed[2])
	s.finish(alpha, done, failed) // closed before; its delivery goes back to the queue
	other := s.started(inc, delivery.Card)
	s.exec("update delivery set lease_until = clock_timestamp() + interval '1 hour', next_at = clock_timestamp() + interval '1 hour' where id = $1", other.Delivery.ID)
	s.lapse()
	for _, c := range s.claim(beta) {
		if took := c.TakenOver != nil; took && !open[c.TakenOver.Attempt.ID.String()] || took != (c.Doubt != nil) {
			t.Errorf("claimed %s", pretty(c))
		}
	}
	for _, q := range []string{"attempt where outcome = 'unknown' and closed_by = 'takeover'", "delivery where doubt is not null"} {
		if n := get[int](s, "select count(*) from "+q); n != 2 {
			t.Errorf("%d rows of %s, not two", n, q)
		}
	}
	if a := s.attempt(done.Delivery.ID); !says(a.Outcome, "failed") || !says(a.ClosedBy, "worker") {
		t.Errorf("an attempt that was closed before says %s", pretty(a))
	}
	if a := s.attempt(other.Delivery.ID); a.Outcome != nil {
		t.Errorf("an attempt under a live lease says %s", pretty(a))
	}
}

// A lost attempt row does not make the call undone: the doubt is set all the same.
func TestTakeoverWithoutItsRowIsDoubtAllTheSame(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.started(s.incident("k"), delivery.Call)
	s.exec("delete from attempt")
	s.lapse()
	c := s.take(beta)
	if r := s.row(c.ID); r.Doubt == nil || r.Doubt.Key != b.Attempt.Key || r.Open != nil || r.Tries != 1 {
		t.Errorf("the delivery says %s", pretty(r))
	}
	if c.TakenOver == nil || c.Doubt == nil {
		t.Errorf("the claim brought %s", pretty(c))
	}
	// Policy decides next, and calls are not repeated by themselves.
	v := c.Judge(delivery.Facts{Now: c.Now, Policy: delivery.DefaultPolicy(delivery.Call)})
	if v.Step == nil || v.Step.To() != delivery.Held {
		t.Fatalf("a call in doubt is judged as %s", pretty(v))
	}
	if done, err := s.Settle(t.Context(), []delivery.Step{*v.Step}); err != nil || !done[c.ID] {
		t.Fatal(done, err)
	}
	s.inState(c.ID, delivery.Held, "doubt")
}

// An outcome that stands is never overwritten, not even where the delivery still calls the attempt open.
func TestTakeoverOverwritesNoOutcome(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.started(s.incident("k"), delivery.Card)
	s.exec("update attempt set outcome = 'sent', evidence = 'answered', closed_by = 'worker', finished_at = clock_timestamp()")
	s.lapse()
	c := s.take(beta)
	if a := s.attempt(b.Delivery.ID); !says(a.Outcome, "sent") || !says(a.ClosedBy, "worker") || a.Reason != "" {
		t.Errorf("the attempt says %s", pretty(a))
	}
	if c.OpenAttempt != [16]byte{} || c.Doubt == nil {
		t.Errorf("the claim brought %s", pretty(c))
	}
}

// Attempt, doubt and lease change in one commit: before it, others see all of the old; after it, all of the new.
func TestTakeoverIsOneCommit(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.started(s.incident("k"), delivery.Card)
	s.lapse()
	before, open := s.whole(b.Delivery.ID), pretty(s.attempt(b.Delivery.ID))
	g := s.holdCommits()
	g.shut()
	claim := async(t, func() ([]store.Claimed, error) {
		return s.Claim(t.Context(), beta, lease, []store.Lane{{Notifier: ops, Free: 1}})
	})
	s.blocked(1)
	s.unchanged(b.Delivery.ID, before, "a takeover that is not committed")
	if got := pretty(s.attempt(b.Delivery.ID)); got != open {
		t.Errorf("a takeover that is not committed changed the attempt to %s", got)
	}
	g.open()
	claim.wait()
	if a, r := s.attempt(b.Delivery.ID), s.row(b.Delivery.ID); !says(a.Outcome, "unknown") || r.Doubt == nil || r.Open != nil {
		t.Errorf("after the commit the attempt says %s, the delivery %s", pretty(a), pretty(r))
	}
}

// A begin was written in time, but its commit came only after the lease had run out and the claim had taken its
// snapshot. The claim's snapshot does not show the attempt; it must be closed as unknown all the same.
func TestTakeoverSeesABeginCommittedAfterItsSnapshot(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.add(s.incident("k"), delivery.Page)
	in := intent(s.take(alpha))
	g := s.holdClaims()

	// Not on a connection of the worker's pool: the one that has planned its claim is the claim's.
	tx, err := connect(t, s.url).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	begun, err := s.On(tx).Begin(t.Context(), alpha, []store.Begun{in})
	if err != nil || len(begun) != 1 {
		t.Fatal(begun, err)
	}
	s.lapse()
	g.shut()
	claim := async(t, func() ([]store.Claimed, error) {
		return s.Claim(t.Context(), beta, lease, []store.Lane{{Notifier: ops, Free: 1}})
	})
	s.blocked(1)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	g.open()
	got := claim.wait()
	if len(got) != 1 || got[0].TakenOver == nil || got[0].TakenOver.Attempt.ID != in.Attempt.ID || got[0].Doubt == nil {
		t.Fatalf("the claim got %s", pretty(got))
	}
	if a := s.attempt(id); !says(a.Outcome, "unknown") || !says(a.ClosedBy, "takeover") || a.Key != in.Attempt.Key {
		t.Errorf("the attempt says %s", pretty(a))
	}
	if r := s.row(id); r.Open != nil || r.Doubt == nil || r.Doubt.Address != "C0123" || r.Version != got[0].Version {
		t.Errorf("the delivery says %s", pretty(r))
	}
}

// While a begin's commit is under way the row is not taken over, and after a rollback nothing was begun.
func TestTakeoverPassesByABeginUnderWay(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.add(s.incident("k"), delivery.Page)
	in := intent(s.take(alpha))
	tx, err := connect(t, s.url).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if begun, err := s.On(tx).Begin(t.Context(), alpha, []store.Begun{in}); err != nil || len(begun) != 1 {
		t.Fatal(begun, err)
	}
	s.lapse()
	if got := s.claim(beta); len(got) != 0 {
		t.Fatalf("claimed %v under the feet of its begin", ids(got))
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c := s.take(beta); c.TakenOver != nil || c.Doubt != nil || c.ID != id {
		t.Errorf("the claim got %s", pretty(c))
	}
	if n := len(s.attempts(id)); n != 0 {
		t.Errorf("%d attempts of a begin that was rolled back", n)
	}
}

// A stop was noted on the open attempt: the takeover keeps it, and nothing more is made.
func TestTakeoverKeepsANotedStop(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	inc := s.incident("k")
	b := s.started(inc, delivery.Page)
	s.note(inc, b.Delivery.ID, func(d delivery.Delivery) (delivery.Step, bool) { return d.Answer("acknowledged", 2) })
	s.lapse()
	c := s.take(beta)
	if c.Stop == nil || c.Stop.Reason != "acknowledged" || c.Doubt == nil || c.Desired != 2 {
		t.Fatalf("the claim brought %s", pretty(c))
	}
	v := c.Judge(delivery.Facts{Now: c.Now, Answered: true, Policy: delivery.DefaultPolicy(delivery.Page)})
	if v.Step == nil {
		t.Fatalf("a stopped page in doubt is judged as %s", pretty(v))
	}
	if done, err := s.Settle(t.Context(), []delivery.Step{*v.Step}); err != nil || !done[c.ID] {
		t.Fatal(done, err)
	}
	s.inState(c.ID, delivery.Canceled, "acknowledged")
}

// The takeover locks deliveries before attempts, like everyone; a reader of attempts does not hold it up.
func TestTakeoverWaitsForNoReader(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.started(s.incident("k"), delivery.Card)
	tx, err := connect(t, s.url).BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "select count(*) from attempt_history"); err != nil {
		t.Fatal(err)
	}
	s.move(lease + time.Second)
	if c := s.take(beta); c.TakenOver == nil || c.ID != b.Delivery.ID {
		t.Errorf("the claim got %s", pretty(c))
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
}
