package store_test

import (
	"testing"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// faulty is a site whose store reaches its database through a proxy; looks and preparations go past it.
type faulty struct {
	*site
	straight *site
	proxy    *proxy
}

func newFaulty(t testing.TB) *faulty {
	t.Helper()
	straight := newSite(t)
	p, url := newProxy(t, straight.url)
	f := &faulty{&site{Store: open(t, url), t: t, url: straight.url, db: straight.db}, straight, p}
	f.claim("nobody", store.Lane{Notifier: "none", Free: 1}) // the worker's pool has a connection from now on
	f.tx(func(*store.Tx) error { return nil })               // and so has the general one
	return f
}

// lost runs a write that must fail by the fault, and says what the database holds before and after.
func (f *faulty) lost(what []byte, how fault, write func() error) (before, after string) {
	f.t.Helper()
	const all = `select coalesce((select string_agg(to_jsonb(d)::text, ' ' order by id) from delivery d), '') || coalesce((select string_agg(to_jsonb(a)::text, ' ' order by id) from attempt a), '')
		|| coalesce((select string_agg(to_jsonb(i)::text, ' ' order by id) from incident i), '')`
	before = get[string](f.site, all)
	f.proxy.lose(what, how)
	if err := write(); err == nil {
		f.t.Fatal("a write whose answer never came reports success")
	}
	if f.proxy.met() != 1 {
		f.t.Fatal("the fault did not strike")
	}
	f.quiet()
	after = get[string](f.site, all)
	if how == lostRequest && after != before {
		f.t.Errorf("a request that was lost changed\n%s\nto\n%s", before, after)
	}
	if how == lostAnswer && after == before {
		f.t.Error("a request whose answer was lost changed nothing")
	}
	return before, after
}

// eachFault runs a test with both faults: the second is the one that an author forgets.
func eachFault(t *testing.T, test func(f *faulty, how fault)) {
	t.Parallel()
	for _, how := range []fault{lostRequest, lostAnswer} {
		t.Run(string(how), func(t *testing.T) {
			t.Parallel()
			test(newFaulty(t), how)
		})
	}
}

// A claim that nobody heard of is a lease that runs out by itself, without doubt.
func TestLostClaim(t *testing.T) {
	eachFault(t, func(f *faulty, how fault) {
		id := f.straight.add(f.straight.incident("k"), delivery.Page)
		f.lost(commit, how, func() error {
			_, err := f.Claim(f.ctx(), alpha, lease, []store.Lane{{Notifier: ops, Free: 1}})
			return err
		})
		again := f.claim(alpha)
		if (len(again) == 1) != (how == lostRequest) {
			f.t.Fatalf("the claim sent again got %v", ids(again))
		}
		f.lapse()
		c := f.take(beta)
		if c.ID != id || c.TakenOver != nil || c.Doubt != nil || c.Tries != 0 {
			f.t.Errorf("after the lease it is claimed as %s", pretty(c))
		}
	})
}

// A takeover that nobody heard of closed the attempt, or did not; the next claim never calls it unknown twice.
func TestLostTakeover(t *testing.T) {
	eachFault(t, func(f *faulty, how fault) {
		b := f.straight.started(f.straight.incident("k"), delivery.Page)
		f.lapse()
		f.lost(commit, how, func() error {
			_, err := f.Claim(f.ctx(), beta, lease, []store.Lane{{Notifier: ops, Free: 1}})
			return err
		})
		f.lapse()
		c := f.take(beta)
		if (c.TakenOver != nil) != (how == lostRequest) {
			f.t.Errorf("the next claim took over %s", pretty(c.TakenOver))
		}
		r, a := f.row(c.ID), f.attempt(c.ID)
		if c.Doubt == nil || r.Tries != 1 || r.Open != nil || r.Doubt.Key != b.Attempt.Key || !says(a.ClosedBy, "takeover") || !says(a.Outcome, "unknown") {
			f.t.Errorf("in the end the delivery says %s, the attempt %s", pretty(r), pretty(a))
		}
	})
}

func TestLostBegin(t *testing.T) {
	eachFault(t, func(f *faulty, how fault) {
		id := f.straight.add(f.straight.incident("k"), delivery.Page)
		in := intent(f.straight.take(alpha))
		begin := func() (map[uuid.UUID]store.Begun, error) { return f.Begin(f.ctx(), alpha, []store.Begun{in}) }
		_, after := f.lost(execute, how, func() error { _, err := begin(); return err })
		got, err := begin()
		if err != nil || got[id].Attempt.ID != in.Attempt.ID || got[id].Attempt.Number != 1 || got[id].Delivery.Version != f.row(id).Version {
			f.t.Fatalf("the begin sent again: %s, %v", pretty(got), err)
		}
		if a := f.attempt(id); a.ID != in.Attempt.ID || a.Number != 1 || f.row(id).Attempts != 1 {
			f.t.Errorf("begun as %s; after the first one there was %s", pretty(a), after)
		}
		f.finish(alpha, got[id], sent)
		f.inState(id, delivery.Sent, "")
	})
}

func TestLostFinish(t *testing.T) {
	eachFault(t, func(f *faulty, how fault) {
		b := f.straight.started(f.straight.incident("k"), delivery.Page)
		id := b.Delivery.ID
		finish := func() (map[uuid.UUID]bool, error) {
			return f.Finish(f.ctx(), alpha, []store.Finished{ended(b, sent)})
		}
		f.lost(execute, how, func() error { _, err := finish(); return err })
		done, err := finish()
		if err != nil || done[id] != (how == lostRequest) {
			f.t.Fatalf("the finish sent again was taken by %v: %v", done, err)
		}
		if !done[id] { // not ours any more, as the worker sees it: is the answer recorded?
			if recorded, settled := f.late(alpha, b, sent); recorded || settled {
				f.t.Errorf("what stands there already was recorded as late evidence: %t, %t", recorded, settled)
			}
		}
		f.inState(id, delivery.Sent, "")
		if a := f.attempt(id); !says(a.Outcome, "sent") || !says(a.ClosedBy, "worker") || a.Late != nil {
			f.t.Errorf("the attempt says %s", pretty(a))
		}
	})
}

// Meanwhile the next owner has claimed, begun and even sent: the former one's finish sent again is still only its own.
func TestLostFinishAfterWhichOthersWentOn(t *testing.T) {
	eachFault(t, func(f *faulty, how fault) {
		inc := f.straight.incident("k")
		b := f.straight.started(inc, delivery.Card)
		id := b.Delivery.ID
		f.lost(execute, how, func() error {
			_, err := f.Finish(f.ctx(), alpha, []store.Finished{ended(b, failed)})
			return err
		})
		f.lapse()
		next := f.straight.begin(beta, f.straight.take(beta))
		before := f.whole(id)
		if done := f.end(alpha, ended(b, failed)); len(done) != 0 {
			f.t.Error("the finish sent again wrote under somebody else's lease")
		}
		recorded, settled := f.late(alpha, b, failed)
		if recorded != (how == lostRequest) || settled {
			f.t.Errorf("recorded as late evidence: %t, settled: %t", recorded, settled)
		}
		f.unchanged(id, before, "a former owner's words")
		f.straight.finish(beta, next, sent)
		f.inState(id, delivery.Sent, "")
		if got := f.attempts(id); len(got) != 2 || !says(got[1].Outcome, "sent") || (got[0].Late != nil) != recorded {
			f.t.Errorf("the attempts are %s", pretty(got))
		}
	})
}

func TestLostLate(t *testing.T) {
	eachFault(t, func(f *faulty, how fault) {
		b, c := f.straight.overtaken(f.straight.incident("k"), delivery.Page)
		f.lost(commit, how, func() error { _, err := f.answer(alpha, b, sent); return err })
		got, err := f.answer(alpha, b, sent)
		if err != nil || got.recorded != (how == lostRequest) || got.settled != (how == lostRequest) {
			f.t.Errorf("the late answer sent again: %+v, %v", got, err)
		}
		f.inState(c.ID, delivery.Sent, "late_answer")
		if a := f.attempt(c.ID); !says(a.Late, "sent") || !says(a.Outcome, "unknown") {
			f.t.Errorf("the attempt says %s", pretty(a))
		}
	})
}

func TestLostSettle(t *testing.T) {
	eachFault(t, func(f *faulty, how fault) {
		id := f.straight.add(f.straight.incident("k"), delivery.Page)
		c := f.straight.take(alpha)
		settle := func() (map[uuid.UUID]bool, error) {
			return f.Settle(f.ctx(), []delivery.Step{c.Unreachable("nobody_on_call", "Nobody is on call.")})
		}
		f.lost(execute, how, func() error { _, err := settle(); return err })
		done, err := settle()
		if err != nil || done[id] != (how == lostRequest) {
			f.t.Errorf("the step sent again was taken by %v: %v", done, err)
		}
		f.inState(id, delivery.Unreachable, "nobody_on_call")
	})
}

// Rule 1: what was not heard of is not accepted, and is not tried again by itself: it may have taken place.
func TestLostIntake(t *testing.T) {
	eachFault(t, func(f *faulty, how fault) {
		runs := 0
		accept := func() error {
			return f.InTx(f.ctx(), func(tx *store.Tx) error {
				runs++
				inc, _, err := tx.OpenIncident(f.ctx(), fresh("k"))
				if err != nil {
					return err
				}
				inc.Count++
				return tx.SaveIncident(f.ctx(), inc)
			})
		}
		f.lost(commit, how, accept)
		if runs != 1 {
			f.t.Errorf("the transaction ran %d times after a lost answer", runs)
		}
		if err := accept(); err != nil { // the source sends again
			f.t.Fatal(err)
		}
		want := map[fault]int{lostRequest: 1, lostAnswer: 2}[how]
		if n := get[int](f.site, "select count from incident"); n != want || get[int](f.site, "select count(*) from incident") != 1 {
			f.t.Errorf("in one incident %d firings are counted, not %d", n, want)
		}
	})
}
