package store_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// stops are the ways in which someone who is no worker ends a delivery.
var stops = map[string]struct {
	decide func(delivery.Delivery) (delivery.Step, bool)
	state  delivery.State
	reason string
}{
	"acknowledged":     {cancel("acknowledged"), delivery.Canceled, "acknowledged"},
	"answered":         {func(d delivery.Delivery) (delivery.Step, bool) { return d.Answer("resolved", 2) }, delivery.Canceled, "resolved"},
	"lifetime over":    {delivery.Delivery.Expire, delivery.Expired, "lifetime_over"},
	"notifier removed": {delivery.Delivery.Remove, delivery.Rejected, "notifier_removed"},
	"count lowered":    {delivery.Delivery.Exhaust, delivery.Exhausted, "retries_used_up"},
}

// A claimed row with no open attempt is settled at once by clearing its token; its begin then changes no row.
func TestStopOfAClaimedRowClearsItsLease(t *testing.T) {
	t.Parallel()
	for name, stop := range stops {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			inc := s.incident("k")
			free, leased := s.add(inc, delivery.Page, later(time.Hour)), s.add(inc, delivery.Page)
			c := s.take(alpha)
			for _, id := range []uuid.UUID{free, leased} {
				s.note(inc, id, stop.decide)
				s.inState(id, stop.state, stop.reason)
				if r := s.row(id); r.Token != nil || r.Until != nil || r.NextAt != nil || r.SettledAt == nil || r.StopState != nil {
					t.Errorf("the delivery says %s", pretty(r))
				}
			}
			before := s.whole(leased)
			if got := s.try(alpha, intent(c)); len(got) != 0 {
				t.Error("it may be called")
			}
			s.unchanged(leased, before, "the begin of a stopped row")
			if n := get[int](s, "select count(*) from attempt"); n != 0 {
				t.Errorf("there are %d attempts", n)
			}
			if done, err := s.Settle(t.Context(), []delivery.Step{c.GiveBack(0, "")}); err != nil || len(done) != 0 {
				t.Errorf("its worker gave it back to the queue: %v, %v", done, err)
			}
			s.unchanged(leased, before, "the worker's last word")
		})
	}
}

// A stop while the attempt is open is noted, and the outcome decides: sent stays sent, anything else takes what was noted.
func TestStopOfAnOpenAttemptIsNoted(t *testing.T) {
	t.Parallel()
	quiet := delivery.Result{Outcome: delivery.OutcomeFailed, Evidence: delivery.NotCalled, Reason: "shutdown"}
	for name, stop := range stops {
		for outcome, r := range map[string]delivery.Result{"sent": sent, "failed": failed, "unknown": unknown, "not called": quiet} {
			t.Run(name+", then "+outcome, func(t *testing.T) {
				t.Parallel()
				s := newSite(t)
				inc := s.incident("k")
				b := s.started(inc, delivery.Page)
				id := b.Delivery.ID
				was := s.row(id)
				s.note(inc, id, stop.decide)
				now := s.row(id)
				switch {
				case now.State != delivery.Pending || *now.Token != *was.Token || !now.Until.Equal(*was.Until) || !now.NextAt.Equal(*was.NextAt) || *now.Open != *was.Open:
					t.Fatalf("the note moved the row from %s to %s", pretty(was), pretty(now))
				case !says(now.StopState, string(stop.state)) || !says(now.StopReason, stop.reason) || now.Version != was.Version+1 || now.Reason != was.Reason:
					t.Fatalf("the delivery says %s", pretty(now))
				}
				if done := s.end(alpha, ended(b, r)); len(done) != 0 {
					t.Fatal("the result was written over the note")
				}
				got, err := s.Read(t.Context(), id)
				if err != nil {
					t.Fatal(err)
				}
				b.Delivery = got[id].Delivery
				s.finish(alpha, b, r)
				now = s.row(id)
				if now.StopState != nil || now.StopReason != nil || (now.Doubt != nil) != (outcome == "unknown") {
					t.Errorf("the delivery says %s", pretty(now))
				}
				if a := s.attempt(id); !says(a.Outcome, string(r.Outcome)) {
					t.Errorf("the attempt says %s", pretty(a))
				}
				switch {
				case outcome != "sent":
					s.inState(id, stop.state, stop.reason)
				case name == "answered": // and gets its one edit, which shows by whom
					s.inState(id, delivery.Pending, "")
					edit := s.begin(alpha, s.take(alpha))
					if edit.Attempt.Operation != delivery.OpEdit || edit.Attempt.Revision != 2 {
						t.Errorf("then came %s", pretty(edit.Attempt))
					}
					s.finish(alpha, edit, sent)
					s.inState(id, delivery.Sent, "")
					if got := s.claim(alpha); len(got) != 0 {
						t.Errorf("and then %s", pretty(got))
					}
				default:
					s.inState(id, delivery.Sent, "")
				}
			})
		}
	}
}

// The first stop noted stays; a page that is out is raised instead, and an edit that fails never takes sent away.
func TestStopsThatDoNotCount(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	inc := s.incident("k")
	b := s.started(inc, delivery.Page)
	id := b.Delivery.ID
	s.note(inc, id, cancel("acknowledged"))
	before := s.whole(id)
	s.note(inc, id, delivery.Delivery.Expire)
	s.unchanged(id, before, "a second stop")

	got, err := s.Read(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	b.Delivery = got[id].Delivery
	s.finish(alpha, b, sent)
	s.note(inc, id, raise(2))
	edit := s.begin(alpha, s.take(alpha))
	before = s.whole(id)
	for _, stop := range []func(delivery.Delivery) (delivery.Step, bool){cancel("canceled_by"), delivery.Delivery.Expire, delivery.Delivery.Remove} {
		s.note(inc, id, stop)
	}
	s.unchanged(id, before, "a stop of what is out")
	s.finish(alpha, edit, refused)
	s.inState(id, delivery.Sent, "edit_failed")
}

// Who is no worker moves the due time of a free row only.
func TestNotesLeaveALeasedRowsTimeAlone(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	inc := s.incident("k")
	id := s.add(inc, delivery.Card)
	s.take(alpha)
	was := s.row(id)
	s.note(inc, id, raise(2))
	if now := s.row(id); now.Desired != 2 || !now.NextAt.Equal(*was.NextAt) || *now.Token != *was.Token || now.Version != was.Version+1 {
		t.Errorf("a wish moved a leased row from %s to %s", pretty(was), pretty(now))
	}
	// A backoff is not cut short by it either.
	got, err := s.Read(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	s.settle(got[id].GiveBack(time.Hour, "rate_limited"))
	was = s.row(id)
	s.note(inc, id, raise(3))
	if now := s.row(id); !now.NextAt.Equal(*was.NextAt) || now.Reason != "rate_limited" || now.Desired != 3 {
		t.Errorf("a wish moved a waiting row from %s to %s", pretty(was), pretty(now))
	}
	// What is sent comes back at once.
	s.due(id, -time.Second)
	s.finish(alpha, s.begin(alpha, s.take(alpha)), sent)
	s.note(inc, id, raise(4))
	if now := s.row(id); now.State != delivery.Pending || now.SettledAt != nil || now.Applied != 3 || now.Desired != 4 {
		t.Errorf("a wish for a sent card made %s", pretty(now))
	}
	if c := s.take(beta); c.ID != id {
		t.Errorf("claimed %s", c.ID)
	}
}

// Decisions on dead deliveries: a word of a person, a new effect with nothing of the old one, or an end.
func TestDecisions(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	inc := s.incident("k")
	b, c := s.overtaken(inc, delivery.Page)
	id := c.ID
	s.note(inc, id, delivery.Delivery.Expire)
	s.exec("update delivery set announced_at = clock_timestamp() where id = $1", id)
	s.decide(inc, id, delivery.SendAgain)
	r := s.row(id)
	switch {
	case r.State != delivery.Pending || r.Effect != 2 || r.Tries != 0 || r.Doubt != nil || r.Reference != nil || r.SettledAt != nil || !near(*r.NextAt, c.Now.Add(time.Minute)) && !near(*r.NextAt, c.Now):
		t.Errorf("sent again, the delivery says %s", pretty(r))
	case get[bool](s, "select announced_at is not null from delivery where id = $1", id):
		t.Error("a later death would not be announced")
	}
	again := s.begin(beta, s.take(beta))
	if again.Attempt.Key == b.Attempt.Key || again.Attempt.Number != 2 || s.attempts(id)[1].Effect != 2 {
		t.Errorf("the new effect's attempt is %s", pretty(s.attempts(id)))
	}
	s.finish(beta, again, refused)
	err := s.InTx(t.Context(), func(tx *store.Tx) error {
		d, err := tx.Delivery(t.Context(), id)
		if err != nil {
			return err
		}
		_, err = d.Decide(delivery.AssumeDelivered)
		return err
	})
	var no *delivery.Refusal
	if !errors.As(err, &no) || no.State != delivery.Rejected {
		t.Errorf("assume delivered on a rejected delivery: %v", err)
	}
	s.decide(inc, id, delivery.CancelIt)
	s.inState(id, delivery.Canceled, "canceled_by")
	if n := get[int](s, "select count(*) from decision where from_state in ('expired', 'rejected') and actor = 'ana' and effect in (1, 2)"); n != 2 {
		t.Errorf("%d of two decisions are kept", n)
	}
}
