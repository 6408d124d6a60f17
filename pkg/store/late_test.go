package store_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// overtaken is a delivery whose first attempt, begun on alpha, was taken over by beta.
func (s *site) overtaken(inc store.Incident, k delivery.Kind) (store.Begun, store.Claimed) {
	s.t.Helper()
	b := s.started(inc, k)
	s.lapse()
	return b, s.take(beta)
}

// settle writes a step of a claimed delivery that must be taken.
func (s *site) settle(step delivery.Step) {
	s.t.Helper()
	if done, err := s.Settle(s.ctx(), []delivery.Step{step}); err != nil || len(done) != 1 {
		s.t.Fatalf("%d rows took their step: %v", len(done), err)
	}
}

// give gives a claimed delivery back to the queue.
func (s *site) give(c store.Claimed) { s.t.Helper(); s.settle(c.GiveBack(time.Hour, "paused")) }

func TestLateAnswerIsKeptOnItsAttemptOnly(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b, c := s.overtaken(s.incident("k"), delivery.Card)
	s.begin(beta, c) // a newer attempt: the late answer explains, and no more
	before := s.whole(c.ID)
	r := sent
	r.Code = "ok"
	if recorded, settled := s.late(alpha, b, r); !recorded || settled {
		t.Errorf("recorded %t, settled %t", recorded, settled)
	}
	s.unchanged(c.ID, before, "late evidence behind a newer attempt")
	a := s.attempts(c.ID)[0]
	if !says(a.Late, "sent") || a.LateAt == nil || !says(a.Outcome, "unknown") || !says(a.ClosedBy, "takeover") || !says(a.Evidence, "possibly_sent") {
		t.Errorf("the attempt says %s", pretty(a))
	}
	if n := get[int](s, "select count(*) from attempt where late_reference->>'ts' = $1 and http_status = 200 and provider_code = 'ok' and bytes_written = 812 and answer <> '' and reference is null", made.TS); n != 1 {
		t.Error("the attempt does not keep what the answer said")
	}
	// Recorded once: what came first stays, as after a lost answer to the commit.
	kept := pretty(s.attempts(c.ID))
	if recorded, settled := s.late(alpha, b, failed); recorded || settled {
		t.Errorf("a second late answer was recorded: %t, %t", recorded, settled)
	}
	if got := pretty(s.attempts(c.ID)); got != kept {
		t.Errorf("the attempts became %s", got)
	}
}

// A late sent settles what is undecided on the same effect with no call in flight; nothing else.
func TestLateSentSettles(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind  delivery.Kind
		then  func(s *site, inc store.Incident, c store.Claimed)
		state delivery.State // afterwards
		moved bool
	}{
		"a row that its new owner has": {delivery.Card, func(*site, store.Incident, store.Claimed) {}, delivery.Sent, true},
		"a row that waits":             {delivery.Card, func(s *site, _ store.Incident, c store.Claimed) { s.give(c) }, delivery.Sent, true},
		"a row that is held": {delivery.Call, func(s *site, _ store.Incident, c store.Claimed) {
			s.settle(*c.Judge(delivery.Facts{Now: c.Now, Policy: delivery.DefaultPolicy(delivery.Call)}).Step)
			s.inState(c.ID, delivery.Held, "doubt")
		}, delivery.Sent, true},
		"an exhausted row": {delivery.Page, func(s *site, inc store.Incident, c store.Claimed) {
			s.note(inc, c.ID, delivery.Delivery.Exhaust)
			s.inState(c.ID, delivery.Exhausted, "retries_used_up")
		}, delivery.Sent, true},
		"an expired row": {delivery.Page, func(s *site, inc store.Incident, c store.Claimed) {
			s.note(inc, c.ID, delivery.Delivery.Expire)
			s.inState(c.ID, delivery.Expired, "lifetime_over")
		}, delivery.Sent, true},
		"a card with a newer wish gets its edit": {delivery.Card, func(s *site, inc store.Incident, c store.Claimed) { s.note(inc, c.ID, raise(3)) }, delivery.Pending, true},

		"a newer attempt is open":   {delivery.Card, func(s *site, _ store.Incident, c store.Claimed) { s.begin(beta, c) }, delivery.Pending, false},
		"a newer attempt is closed": {delivery.Card, func(s *site, _ store.Incident, c store.Claimed) { s.finish(beta, s.begin(beta, c), failed) }, delivery.Sent, true},
		"a newer attempt was sent":  {delivery.Page, func(s *site, _ store.Incident, c store.Claimed) { s.finish(beta, s.begin(beta, c), sent) }, delivery.Sent, false},
		"another effect": {delivery.Page, func(s *site, inc store.Incident, c store.Claimed) {
			s.note(inc, c.ID, delivery.Delivery.Expire)
			s.decide(inc, c.ID, delivery.SendAgain)
		}, delivery.Pending, false},
		"assumed": {delivery.Page, func(s *site, inc store.Incident, c store.Claimed) {
			s.note(inc, c.ID, delivery.Delivery.Expire)
			s.decide(inc, c.ID, delivery.AssumeDelivered)
		}, delivery.Assumed, false},
		"canceled":    {delivery.Page, func(s *site, inc store.Incident, c store.Claimed) { s.note(inc, c.ID, cancel("acknowledged")) }, delivery.Canceled, false},
		"rejected":    {delivery.Page, func(s *site, _ store.Incident, c store.Claimed) { s.settle(c.Reject("payload:compose", "")) }, delivery.Rejected, false},
		"unreachable": {delivery.Page, func(s *site, _ store.Incident, c store.Claimed) { s.settle(c.Unreachable("notifier_off", "")) }, delivery.Unreachable, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			inc := s.incident("k")
			b, claimed := s.overtaken(inc, c.kind)
			c.then(s, inc, claimed)
			before, attempts := s.whole(claimed.ID), len(s.attempts(claimed.ID))
			recorded, settled := s.late(alpha, b, sent)
			if !recorded || settled != c.moved {
				t.Errorf("recorded %t, settled %t", recorded, settled)
			}
			if got := s.attempts(claimed.ID); len(got) != attempts || !says(got[0].Late, "sent") || !says(got[0].Outcome, "unknown") {
				t.Errorf("the attempts are %s", pretty(got))
			}
			r := s.row(claimed.ID)
			if r.State != c.state {
				t.Errorf("the delivery is %s, not %s", r.State, c.state)
			}
			if !c.moved {
				s.unchanged(claimed.ID, before, "late evidence that settles nothing")
				return
			}
			if r.Doubt != nil || r.Reference == nil || *r.Reference != made || r.Applied != 1 || r.Token != nil || r.Tries != 0 {
				t.Errorf("the delivery says %s", pretty(r))
			}
			// The lease of a new owner has ended with it.
			if got := s.try(beta, intent(claimed)); len(got) != 0 {
				t.Error("the new owner may still call")
			}
		})
	}
}

// decide makes a person's decision.
func (s *site) decide(inc store.Incident, id uuid.UUID, action delivery.Action) {
	s.t.Helper()
	s.tx(func(tx *store.Tx) error {
		if _, err := tx.LockIncident(s.ctx(), inc.ID); err != nil {
			return err
		}
		d, err := tx.Delivery(s.ctx(), id)
		if err != nil {
			return err
		}
		step, err := d.Decide(action)
		if err != nil {
			return err
		}
		if err := tx.AddDecision(s.ctx(), d, "ana", action, "seen in the channel"); err != nil {
			return err
		}
		return tx.Apply(s.ctx(), step)
	})
}

func TestLateFailedLiftsTheDoubt(t *testing.T) {
	t.Parallel()
	t.Run("of a row that its new owner has", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		b, c := s.overtaken(s.incident("k"), delivery.Page)
		if recorded, settled := s.late(alpha, b, failed); !recorded || !settled {
			t.Errorf("recorded %t, settled %t", recorded, settled)
		}
		r := s.row(c.ID)
		if r.Doubt != nil || r.State != delivery.Pending || r.Token != nil || r.Reason != "late_answer" {
			t.Errorf("the delivery says %s", pretty(r))
		}
		if got := s.try(beta, intent(c)); len(got) != 0 {
			t.Error("the new owner may call on what it judged before")
		}
		// A new claim is free to resolve the person anew.
		if again := s.take(beta); again.Doubt != nil {
			t.Errorf("the claim brought %s", pretty(again))
		}
	})
	t.Run("of a row that waits", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		b, c := s.overtaken(s.incident("k"), delivery.Page)
		s.give(c)
		next := *s.row(c.ID).NextAt
		s.late(alpha, b, failed)
		if r := s.row(c.ID); r.Doubt != nil || r.State != delivery.Pending || !r.NextAt.Equal(next) || r.Reason != "paused" {
			t.Errorf("the delivery says %s", pretty(r))
		}
	})
	t.Run("of a held row, which may be tried again", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		b, c := s.overtaken(s.incident("k"), delivery.Call)
		s.settle(*c.Judge(delivery.Facts{Now: c.Now, Policy: delivery.DefaultPolicy(delivery.Call)}).Step)
		s.late(alpha, b, failed)
		if r := s.row(c.ID); r.Doubt != nil || r.State != delivery.Pending || r.SettledAt != nil || !near(*r.NextAt, c.Now) {
			t.Errorf("the delivery says %s", pretty(r))
		}
		if again := s.take(beta); again.Judge(delivery.Facts{Now: again.Now, Policy: delivery.DefaultPolicy(delivery.Call)}).Step != nil {
			t.Error("it is not tried again")
		}
	})
	t.Run("so that nobody may assume any more", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		inc := s.incident("k")
		b, c := s.overtaken(inc, delivery.Page)
		s.note(inc, c.ID, delivery.Delivery.Expire)
		if got, _ := s.Read(t.Context(), c.ID); got[c.ID].Doubt == nil {
			t.Fatal("an expired page in doubt is not in doubt")
		}
		s.late(alpha, b, failed)
		s.inState(c.ID, delivery.Expired, "lifetime_over")
		got, err := s.Read(t.Context(), c.ID)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := got[c.ID].Decide(delivery.AssumeDelivered); err == nil {
			t.Error("a page that surely failed could be assumed delivered")
		}
	})
	t.Run("not when a newer attempt is in doubt as well", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		b, c := s.overtaken(s.incident("k"), delivery.Page)
		s.finish(beta, s.begin(beta, c), unknown)
		before := s.whole(c.ID)
		if recorded, settled := s.late(alpha, b, failed); !recorded || settled {
			t.Errorf("recorded %t, settled %t", recorded, settled)
		}
		s.unchanged(c.ID, before, "a late failed behind a newer attempt in doubt")
	})
}

func TestLateUnknownOnlyExplains(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b, c := s.overtaken(s.incident("k"), delivery.Page)
	before := s.whole(c.ID)
	if recorded, settled := s.late(alpha, b, unknown); !recorded || settled {
		t.Errorf("recorded %t, settled %t", recorded, settled)
	}
	s.unchanged(c.ID, before, "a late unknown")
	if a := s.attempt(c.ID); !says(a.Late, "unknown") {
		t.Errorf("the attempt says %s", pretty(a))
	}
}

// The new owner begins while the late answer is on its way: whoever has the row first wins, the other finds out.
func TestLateAgainstABegin(t *testing.T) {
	t.Parallel()
	t.Run("begin first", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		b, c := s.overtaken(s.incident("k"), delivery.Card)
		g := s.holdCommits()
		g.shut()
		begin := async(t, func() (map[uuid.UUID]store.Begun, error) {
			return s.Begin(t.Context(), beta, []store.Begun{intent(c)})
		})
		s.blocked(1)
		late := async(t, func() (lateAnswer, error) { return s.answer(alpha, b, sent) })
		s.blocked(2)
		g.open()
		if got := begin.wait(); len(got) != 1 {
			t.Error("the begin was refused")
		}
		if got := late.wait(); got != (lateAnswer{recorded: true}) {
			t.Errorf("the late answer: %+v", got)
		}
		if r := s.row(c.ID); r.State != delivery.Pending || r.Doubt == nil || r.Open == nil {
			t.Errorf("the delivery says %s", pretty(r))
		}
	})
	t.Run("late first", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		b, c := s.overtaken(s.incident("k"), delivery.Card)
		g := s.holdCommits()
		g.shut()
		late := async(t, func() (lateAnswer, error) { return s.answer(alpha, b, sent) })
		s.blocked(1)
		begin := async(t, func() (map[uuid.UUID]store.Begun, error) {
			return s.Begin(t.Context(), beta, []store.Begun{intent(c)})
		})
		s.blocked(2)
		g.open()
		if got := late.wait(); got != (lateAnswer{recorded: true, settled: true}) {
			t.Errorf("the late answer: %+v", got)
		}
		if got := begin.wait(); len(got) != 0 {
			t.Error("a second message may be made although the first is known to have arrived")
		}
		s.inState(c.ID, delivery.Sent, "late_answer")
		if n := len(s.attempts(c.ID)); n != 1 {
			t.Errorf("there are %d attempts", n)
		}
	})
}

// Something is noted while the late answer comes: the answer waits for the note, and settles the row with it.
func TestLateAgainstANote(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	inc := s.incident("k")
	b, c := s.overtaken(inc, delivery.Card)
	var late *call[lateAnswer]
	s.tx(func(tx *store.Tx) error {
		if err := noteIn(t.Context(), tx, inc, c.ID, raise(4)); err != nil {
			return err
		}
		late = async(t, func() (lateAnswer, error) { return s.answer(alpha, b, sent) })
		s.blocked(1)
		return nil
	})
	if got := late.wait(); got != (lateAnswer{recorded: true, settled: true}) {
		t.Errorf("the late answer: %+v", got)
	}
	if r := s.row(c.ID); r.State != delivery.Pending || r.Applied != 1 || r.Desired != 4 || r.Reference == nil || r.Token != nil {
		t.Errorf("the delivery says %s", pretty(r))
	}
}

// Before each create of a row in doubt, its late evidence is read again.
func TestLateEvidenceIsReadAroundARowInDoubt(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	inc := s.incident("k")
	b, c := s.overtaken(inc, delivery.Card)
	second := s.begin(beta, c)
	s.late(alpha, b, sent)
	s.finish(beta, second, failed)
	s.due(c.ID, -time.Second)
	calm := s.add(inc, delivery.Event)
	claimed := s.claim(beta)
	around, err := s.Around(t.Context(), claimed)
	if err != nil {
		t.Fatal(err)
	}
	got := around.Lates[c.ID]
	if len(around.Lates) != 1 || len(got) != 1 || got[0].Attempt.ID != b.Attempt.ID || got[0].Attempt.Number != 1 || got[0].Reference != made || got[0].Attempt.Key != b.Attempt.Key {
		t.Errorf("read %s; %s is in no doubt", pretty(around.Lates), calm)
	}
}
