package store_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

func TestBeginRecordsTheAttemptBeforeItsCall(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	inc := s.incident("k")
	id := s.add(inc, delivery.Card, func(d *store.NewDelivery) { d.Desired = 3 })
	c := s.take(alpha)
	b := s.begin(alpha, c)
	a, r := s.attempt(id), s.row(id)
	switch {
	case a.ID != b.Attempt.ID || a.Number != 1 || a.Effect != 1 || a.Key != id.String()+":1" || a.Revision != 3 || a.Operation != delivery.OpCreate || a.Address != "C0123":
		t.Errorf("the attempt says %s", pretty(a))
	case a.Worker != alpha || a.Token != c.Token || a.Outcome != nil || a.FinishedAt != nil || !near(a.StartedAt, c.Now):
		t.Errorf("the attempt says %s", pretty(a))
	case r.Open == nil || *r.Open != a.ID || r.Attempts != 1 || r.Version != c.Version+1 || r.Tries != 0 || r.State != delivery.Pending || *r.Token != c.Token:
		t.Errorf("the delivery says %s", pretty(r))
	case r.CalledAt == nil || !near(*r.CalledAt, a.StartedAt):
		t.Errorf("called at %v, begun at %s", r.CalledAt, a.StartedAt)
	case b.Attempt.Number != 1 || !near(b.Attempt.StartedAt, a.StartedAt) || b.Delivery.Version != r.Version || b.Delivery.OpenAttempt != a.ID || b.Delivery.Attempts != 1:
		t.Errorf("begin answered %s", pretty(b))
	}
	// The next attempt has the next number; when the first one was called stays.
	s.finish(alpha, b, failed)
	s.due(id, -time.Second)
	again := s.begin(beta, s.take(beta))
	if got := s.attempts(id); len(got) != 2 || got[1].Number != 2 || got[1].ID != again.Attempt.ID || got[1].Worker != beta {
		t.Errorf("after a failed attempt and a new one there are %s", pretty(got))
	}
	if r2 := s.row(id); r2.Attempts != 2 || !r2.CalledAt.Equal(*r.CalledAt) {
		t.Errorf("the delivery says %s", pretty(r2))
	}
}

// What begin does not return must not be called, and leaves no trace.
func TestBeginRefuses(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(s *site, inc store.Incident, c *store.Claimed){
		"another token":  func(_ *site, _ store.Incident, c *store.Claimed) { c.Token = uuid.New() },
		"no token":       func(_ *site, _ store.Incident, c *store.Claimed) { c.Token = uuid.Nil },
		"an older lease": func(s *site, _ store.Incident, _ *store.Claimed) { s.lapse(); s.take(beta) },
		"a lapsed lease": func(s *site, _ store.Incident, _ *store.Claimed) { s.lapse() },
		"a raised wish":  func(s *site, inc store.Incident, c *store.Claimed) { s.note(inc, c.ID, raise(2)) },
		"a canceled row": func(s *site, inc store.Incident, c *store.Claimed) { s.note(inc, c.ID, cancel("acknowledged")) },
		"a row given back": func(s *site, _ store.Incident, c *store.Claimed) {
			if done, err := s.Settle(s.ctx(), []delivery.Step{c.GiveBack(time.Hour, "paused")}); err != nil || len(done) != 1 {
				s.t.Fatal(done, err)
			}
		},
		"an attempt of the same lease that is open": func(s *site, _ store.Incident, c *store.Claimed) { s.begin(alpha, *c) },
		"a row that is gone":                        func(s *site, _ store.Incident, c *store.Claimed) { s.exec("delete from delivery where id = $1", c.ID) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			inc := s.incident("k")
			s.add(inc, delivery.Card)
			c := s.take(alpha)
			spoil(s, inc, &c)
			const all = "select coalesce(string_agg(to_jsonb(d)::text, ''), '') || (select count(*) from attempt) from delivery d"
			before := get[string](s, all)
			if got := s.try(alpha, intent(c)); len(got) != 0 {
				t.Errorf("it may be called: %s", pretty(got))
			}
			if after := get[string](s, all); after != before {
				t.Errorf("a refused begin changed the row\nfrom %s\nto   %s", before, after)
			}
		})
	}
}

// A batch is not refused for the sake of one row.
func TestBeginLetsTheOthersOfABatchThrough(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	inc := s.incident("k")
	for range 5 {
		s.add(inc, delivery.Event)
	}
	got := s.claim(alpha)
	s.note(inc, got[1].ID, raise(9))
	s.note(inc, got[3].ID, cancel("canceled_by"))
	var batch []store.Begun
	for _, c := range got {
		batch = append(batch, intent(c))
	}
	begun := s.try(alpha, batch...)
	for i, c := range got {
		b, ok := begun[c.ID]
		if want := i != 1 && i != 3; ok != want {
			t.Errorf("delivery %d may be called: %t, not %t", i, ok, want)
		}
		if ok && (b.Attempt.ID != batch[i].Attempt.ID || s.attempt(c.ID).ID != batch[i].Attempt.ID || s.attempt(c.ID).Key != c.Key()) {
			t.Errorf("delivery %d got the attempt of another: %s", i, pretty(s.attempt(c.ID)))
		}
	}
	if n := get[int](s, "select count(*) from attempt"); n != 3 {
		t.Errorf("there are %d attempts of three begun", n)
	}
}

// The same begin again, since the answer to its commit was lost: it is done already, and says so.
func TestBeginTwiceIsOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.add(s.incident("k"), delivery.Card)
	in := intent(s.take(alpha))
	first := s.try(alpha, in)[id]
	before, attempt := s.whole(id), s.attempt(id)
	second, ok := s.try(alpha, in)[id]
	if !ok {
		t.Fatal("the second begin refused what the first had begun")
	}
	s.unchanged(id, before, "a begin sent twice")
	if got := s.attempt(id); pretty(got) != pretty(attempt) {
		t.Errorf("the attempt became %s", pretty(got))
	}
	if second.Attempt.Number != first.Attempt.Number || second.Delivery.Version != first.Delivery.Version || second.Delivery.OpenAttempt != first.Delivery.OpenAttempt {
		t.Errorf("the second begin answered %s, the first %s", pretty(second), pretty(first))
	}
	if !second.Attempt.StartedAt.Equal(attempt.StartedAt) && !near(second.Attempt.StartedAt, attempt.StartedAt) {
		t.Errorf("begun at %s, the answer says %s", attempt.StartedAt, second.Attempt.StartedAt)
	}
	s.finish(alpha, second, sent)
	s.inState(id, delivery.Sent, "")
}

// Between the two begins somebody noted something. The repeated begin must not make the worker believe that it decides
// on the row as it is now: its finish has to find out.
func TestBeginTwiceHidesNoNote(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	inc := s.incident("k")
	id := s.add(inc, delivery.Card)
	in := intent(s.take(alpha))
	s.try(alpha, in)
	s.note(inc, id, raise(5))
	s.note(inc, id, cancel("canceled_by"))
	b, ok := s.try(alpha, in)[id]
	if !ok {
		t.Fatal("a note on an open attempt ended its begin")
	}
	if done := s.end(alpha, ended(b, failed)); len(done) != 0 {
		t.Fatalf("the result was written over what was noted meanwhile: %s", pretty(s.row(id)))
	}
	r, err := s.Read(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	b.Delivery = r[id].Delivery
	s.finish(alpha, b, failed)
	s.inState(id, delivery.Canceled, "canceled_by")
	if got := s.row(id).Desired; got != 5 {
		t.Errorf("revision %d is wished, not the 5 that was noted", got)
	}
}

// After the lease has run out and been granted anew, the repeated begin of the first owner is over.
func TestBeginTwiceAcrossATakeoverIsRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.add(s.incident("k"), delivery.Card)
	in := intent(s.take(alpha))
	s.try(alpha, in)
	s.lapse()
	if got := s.try(alpha, in); len(got) != 0 {
		t.Error("an attempt may be called after its lease has run out")
	}
	s.take(beta)
	before := s.whole(id)
	if got := s.try(alpha, in); len(got) != 0 {
		t.Error("an attempt may be called under somebody else's lease")
	}
	s.unchanged(id, before, "the begin of a former owner")
	if n := len(s.attempts(id)); n != 1 {
		t.Errorf("there are %d attempts", n)
	}
}

// A fail-over that lost the attempt's row but not the delivery's: the repeated begin records it again.
func TestBeginTwiceRecordsALostRowAgain(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.add(s.incident("k"), delivery.Card)
	in := intent(s.take(alpha))
	s.try(alpha, in)
	s.exec("delete from attempt")
	if _, ok := s.try(alpha, in)[id]; !ok {
		t.Fatal("the attempt may not be called")
	}
	if a := s.attempt(id); a.ID != in.Attempt.ID || a.Number != 1 {
		t.Errorf("recorded again as %s", pretty(a))
	}
}

// Someone holds the row when begin comes; begin waits, and goes by what the row says after that.
func TestBeginWaitsForTheRowAndLooksAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		decide func(delivery.Delivery) (delivery.Step, bool)
		commit bool
		begun  bool
		raised bool
	}{
		"raised":                           {raise(2), true, false, false},
		"canceled":                         {cancel("acknowledged"), true, false, false},
		"taken back":                       {cancel("acknowledged"), false, true, false},
		"nothing changed":                  {raise(1), true, true, false},
		"raised, and it may be":            {raise(2), true, true, true},
		"canceled, where it may be raised": {cancel("acknowledged"), true, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			inc := s.incident("k")
			id := s.add(inc, delivery.Card)
			claimed := s.take(alpha)
			var begin *call[map[uuid.UUID]store.Begun]
			err := s.InTx(t.Context(), func(tx *store.Tx) error {
				if err := noteIn(t.Context(), tx, inc, id, c.decide); err != nil {
					return err
				}
				begin = async(t, func() (map[uuid.UUID]store.Begun, error) {
					in := intent(claimed)
					in.Raised = c.raised
					return s.Begin(t.Context(), alpha, []store.Begun{in})
				})
				s.blocked(1)
				if !c.commit {
					return errTakenBack
				}
				return nil
			})
			if c.commit && err != nil {
				t.Fatal(err)
			}
			if _, ok := begin.wait()[id]; ok != c.begun {
				t.Errorf("it may be called: %t, not %t", ok, c.begun)
			}
			if n := get[int](s, "select count(*) from attempt"); n != map[bool]int{true: 1}[c.begun] {
				t.Errorf("there are %d attempts", n)
			}
		})
	}
}

// Two begins of one claim can't both be let through, whoever comes first: one attempt is open at a time.
func TestTwoBeginsOfOneClaimOpenOneAttempt(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.add(s.incident("k"), delivery.Card)
	c := s.take(alpha)
	g := s.holdCommits()
	g.shut()
	begin := func() (map[uuid.UUID]store.Begun, error) {
		return s.Begin(t.Context(), alpha, []store.Begun{intent(c)})
	}
	first := async(t, begin)
	s.blocked(1)
	second := async(t, begin) // waits for the row of the first
	s.blocked(2)
	g.open()
	if a, b := first.wait(), second.wait(); len(a) != 1 || len(b) != 0 {
		t.Errorf("the first begin let %d attempts through, the second %d", len(a), len(b))
	}
	if n := len(s.attempts(id)); n != 1 {
		t.Errorf("there are %d attempts", n)
	}
}

// A lease is measured when begin writes, not when its statement began: the wait for the row counts.
func TestBeginCountsTheWaitForTheRow(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.add(s.incident("k"), delivery.Card)
	c := s.take(alpha)
	tx, err := connect(t, s.url).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "select 1 from delivery where id = $1 for update", id); err != nil {
		t.Fatal(err)
	}
	begin := async(t, func() (map[uuid.UUID]store.Begun, error) {
		return s.Begin(t.Context(), alpha, []store.Begun{intent(c)})
	})
	s.blocked(1)
	s.lapse()
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := begin.wait(); len(got) != 0 {
		t.Error("an attempt may be called although its lease ran out while begin waited")
	}
}
