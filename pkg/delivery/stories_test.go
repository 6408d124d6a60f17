package delivery_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
)

// play begins a story on a fresh life; a rule that breaks on the way fails the test.
func play(t *testing.T, k delivery.Kind, r delivery.Retries) *life {
	t.Helper()
	l := newLife(k, delivery.DefaultPolicy(k).OnUnknown, r)
	t.Cleanup(func() {
		for _, w := range l.wrong {
			t.Error(w)
		}
	})
	return l
}

var ready = delivery.Facts{Now: t0, HasCard: true, CardReady: true, CardOver: true}

// attempt claims the row and begins a call; it fails the test when none is begun.
func (l *life) attempt(t *testing.T) delivery.Attempt {
	t.Helper()
	if !l.claim() {
		t.Fatalf("a %s delivery can't be claimed", l.d.State)
	}
	l.judge(ready)
	if l.d.OpenAttempt == uuid.Nil {
		t.Fatalf("no call was begun: %s %s", l.d.State, l.d.Reason)
	}
	return l.open
}

func (l *life) want(t *testing.T, s delivery.State, reason string) {
	t.Helper()
	if l.d.State != s || l.d.Reason != reason {
		t.Fatalf("it is %s (%s), want %s (%s)", l.d.State, l.d.Reason, s, reason)
	}
}

func (l *life) raise(t *testing.T) {
	t.Helper()
	s, ok := l.d.Raise(l.d.Desired + 1)
	if !ok {
		t.Fatal("nothing to raise")
	}
	l.apply("raise", s)
}

// A5: retries {count: 5, delay: 10s, max_delay: 10m} waits 10, 20, 40, 80, 160 s; six attempts, then exhausted.
func TestSixAttemptsThenExhausted(t *testing.T) {
	t.Parallel()
	for _, answer := range []string{"transient", "unknown"} {
		d := delivery.Delivery{ID: rowID, Kind: delivery.Event, State: delivery.Pending, Effect: 1, Desired: 1, Token: lease}
		env := delivery.Env{Policy: delivery.DefaultPolicy(delivery.Event), Retries: fileCaps}
		var waits []int
		for n := 1; ; n++ {
			d.Attempts, d.OpenAttempt = n, call
			c := d.Finish(env, delivery.Attempt{ID: call, Number: n, Operation: delivery.OpCreate, Effect: 1, Key: d.Key(), Revision: 1}, answers[answer]).Change()
			d.Tries, d.Doubt, d.State = c.Tries, c.Doubt, c.State
			if c.State != delivery.Pending {
				if n != 6 || c.State != delivery.Exhausted || c.Reason != "retries_used_up" {
					t.Errorf("%s: attempt %d ends as %s (%s)", answer, n, c.State, c.Reason)
				}
				break
			}
			if !c.Jitter {
				t.Errorf("%s: attempt %d is repeated without jitter", answer, n)
			}
			waits = append(waits, int(c.Delay/time.Second))
		}
		if got := fmt.Sprint(waits); got != "[10 20 40 80 160]" {
			t.Errorf("%s: it waits %v s", answer, waits)
		}
	}
}

// A 429 waits as told and costs no try, nor does a cut before the call or a token that a person must mend.
func TestWhatCostsNoTry(t *testing.T) {
	t.Parallel()
	l := play(t, delivery.Event, delivery.Retries{Capped: true, Count: 0, Delay: time.Second, MaxDelay: time.Minute})
	for range 5 {
		for _, a := range []string{"throttled", "not called", "account"} {
			l.attempt(t)
			l.finish(answers[a])
			if l.d.State != delivery.Pending || l.d.Tries != 0 {
				t.Fatalf("after %s: %s with %d tries", a, l.d.State, l.d.Tries)
			}
		}
	}
	l.attempt(t)
	l.finish(answers["transient"])
	l.want(t, delivery.Exhausted, "retries_used_up")
}

// The cap holds for tries that ended by takeover too: nobody saw their end, but they were tries.
func TestLastTryTakenOverIsTheLast(t *testing.T) {
	t.Parallel()
	l := play(t, delivery.Event, delivery.Retries{Capped: true, Count: 1, Delay: time.Second, MaxDelay: time.Minute})
	l.attempt(t)
	l.finish(answers["transient"])
	l.attempt(t)
	l.claim() // the lease ran out
	l.judge(ready)
	l.want(t, delivery.Exhausted, "retries_used_up")
	if _, err := l.d.Decide(delivery.AssumeDelivered); err != nil {
		t.Errorf("an attempt is in doubt: %v", err)
	}
}

// A10: send again on a sent delivery is refused, and of two operators only the first makes a new effect.
func TestNobodyIsToldTwice(t *testing.T) {
	t.Parallel()
	l := play(t, delivery.Page, delivery.DefaultRetries)
	l.attempt(t)
	l.finish(answers["sent"])
	var refusal *delivery.Refusal
	if _, err := l.d.Decide(delivery.SendAgain); !errors.As(err, &refusal) || refusal.State != delivery.Sent {
		t.Errorf("send again on a sent page: %v", err)
	}
	dead := delivery.Delivery{ID: rowID, Kind: delivery.Page, State: delivery.Exhausted, Effect: 1, Desired: 1}
	first, err := dead.Decide(delivery.SendAgain)
	if err != nil {
		t.Fatal(err)
	}
	other := newLife(delivery.Page, delivery.Retry, delivery.DefaultRetries)
	other.d = dead
	other.apply("send_again", first)
	if _, err := other.d.Decide(delivery.SendAgain); !errors.As(err, &refusal) || refusal.State != delivery.Pending {
		t.Errorf("the second operator: %v", err)
	}
}

// C14: what was refused, or never left, can't be assumed delivered; what is held can, and is called otherwise than sent.
func TestNoNeverBecomesYes(t *testing.T) {
	t.Parallel()
	doubt := &delivery.Doubt{Effect: 1, Key: "k", Revision: 1}
	for _, s := range delivery.States {
		d := delivery.Delivery{ID: rowID, Kind: delivery.Call, State: s, Effect: 1, Desired: 1, Doubt: doubt}
		step, err := d.Decide(delivery.AssumeDelivered)
		allowed := s == delivery.Held || s == delivery.Exhausted || s == delivery.Expired
		if (err == nil) != allowed {
			t.Errorf("assume on %s: %v", s, err)
		}
		if err == nil && step.To() != delivery.Assumed {
			t.Errorf("assume on %s leads to %s", s, step.To())
		}
		d.Doubt = nil
		if _, err := d.Decide(delivery.AssumeDelivered); err == nil {
			t.Errorf("assume on %s without an attempt in doubt is allowed", s)
		}
		d.Doubt, d.Effect = doubt, 2
		if _, err := d.Decide(delivery.AssumeDelivered); err == nil {
			t.Errorf("assume on %s with a doubt of an older effect is allowed", s)
		}
	}
}

// C4: a kind that must not be repeated is held after a takeover and never goes out by itself.
func TestHeldNeverGoesByItself(t *testing.T) {
	t.Parallel()
	for _, k := range []delivery.Kind{delivery.Call, delivery.SMS} {
		l := play(t, k, delivery.DefaultRetries)
		l.attempt(t)
		l.claim()
		l.judge(ready)
		l.want(t, delivery.Held, "doubt")
		if l.claim() {
			t.Error("a held delivery can be claimed")
		}
		// Proof that nothing was made, however late, makes it an ordinary retry.
		l.late(0, delivery.OutcomeFailed)
		l.want(t, delivery.Pending, "late_answer")
		if l.attempt(t).Key != l.d.Key() {
			t.Error("the retry is another effect")
		}
	}
}

// A call or an SMS that waits goes no more once somebody has answered, whatever woke it.
func TestNothingRingsAfterAnAnswer(t *testing.T) {
	t.Parallel()
	for _, k := range []delivery.Kind{delivery.Page, delivery.Call, delivery.SMS} {
		l := play(t, k, delivery.DefaultRetries)
		l.claim()
		l.judge(delivery.Facts{Now: t0, Answered: true})
		l.want(t, delivery.Canceled, "acknowledged")
	}
}

// C7: a card is acknowledged while its create is unknown: the repeat has the same key and shows the newest revision.
func TestRepeatIsOneEffectWithTheNewestFace(t *testing.T) {
	t.Parallel()
	l := play(t, delivery.Card, delivery.DefaultRetries)
	first := l.attempt(t)
	l.raise(t)
	l.finish(answers["unknown"])
	second := l.attempt(t)
	if second.Operation != delivery.OpCreate || second.Key != first.Key || second.Address != first.Address || second.Revision != 2 {
		t.Errorf("after %+v comes %+v", first, second)
	}
	l.finish(answers["sent"])
	l.want(t, delivery.Sent, "")
}

// C7: acknowledged between the create and its answer: exactly one edit follows.
func TestOneEditFollowsACreateThatWasOvertaken(t *testing.T) {
	t.Parallel()
	for _, k := range []delivery.Kind{delivery.Card, delivery.Page} {
		l := play(t, k, delivery.DefaultRetries)
		l.attempt(t)
		var s delivery.Step
		var ok bool
		if k == delivery.Page {
			s, ok = l.d.Answer("acknowledged", 2)
		} else {
			s, ok = l.d.Raise(2)
		}
		l.maybe("answer", s, ok)
		l.finish(answers["sent"])
		l.want(t, delivery.Pending, "")
		if a := l.attempt(t); a.Operation != delivery.OpEdit || a.Revision != 2 {
			t.Errorf("%s: %s of revision %d follows", k, a.Operation, a.Revision)
		}
		l.finish(answers["sent"])
		l.want(t, delivery.Sent, "")
	}
}

// A page is acknowledged and then resolved while its call is in flight: the first reason is noted, and should it arrive
// after all, it shows the last.
func TestSecondAnswerIsShownToo(t *testing.T) {
	t.Parallel()
	for _, arrived := range []bool{true, false} {
		l := play(t, delivery.Page, delivery.DefaultRetries)
		l.attempt(t)
		for i, reason := range []string{"acknowledged", "resolved"} {
			s, ok := l.d.Answer(reason, 2+i)
			if !ok {
				t.Fatalf("%s changes nothing", reason)
			}
			l.apply("answer", s)
		}
		if !arrived {
			l.finish(answers["transient"])
			l.want(t, delivery.Canceled, "acknowledged")
			continue
		}
		l.finish(answers["sent"])
		if a := l.attempt(t); a.Revision != 3 {
			t.Errorf("the edit shows revision %d", a.Revision)
		}
	}
}

// An edit that fails never takes sent away, and the next revision is tried afresh.
func TestFailedEditLeavesSent(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"payload", "destination", "transient", "unknown", "denied"} {
		l := play(t, delivery.Card, delivery.Retries{Capped: true, Count: 3, Delay: time.Second, MaxDelay: time.Minute})
		l.attempt(t)
		l.finish(answers["sent"])
		for round := range 2 {
			l.raise(t)
			tries := 0
			for l.d.State == delivery.Pending {
				if a := l.attempt(t); a.Operation != delivery.OpEdit {
					t.Fatalf("%s: %s instead of an edit", bad, a.Operation)
				}
				l.finish(answers[bad])
				tries++
			}
			l.want(t, delivery.Sent, "edit_failed")
			want := map[string]int{"payload": 2, "destination": 1, "transient": 4, "unknown": 4, "denied": 3}[bad]
			if tries != want {
				t.Errorf("%s, round %d: %d edits, want %d", bad, round+1, tries, want)
			}
		}
	}
}

// The card was taken away in the chat. While its incident is open a new one is made, and the thread goes on under it;
// after that it is done.
func TestCardThatIsGone(t *testing.T) {
	t.Parallel()
	for _, resolved := range []bool{false, true} {
		l := play(t, delivery.Card, delivery.DefaultRetries)
		first := l.attempt(t)
		l.finish(answers["sent"])
		l.raise(t)
		l.attempt(t)
		l.env.Resolved = resolved
		l.finish(answers["gone"])
		if resolved {
			l.want(t, delivery.Sent, "edit_failed")
			continue
		}
		l.want(t, delivery.Pending, providerReason)
		again := l.attempt(t)
		if again.Operation != delivery.OpCreate || again.Effect != 2 || again.Key == first.Key || again.Revision != 2 {
			t.Errorf("after the first, %+v, comes %+v", first, again)
		}
		l.finish(answers["sent"])
		l.want(t, delivery.Sent, "")
	}
}

// A reply finds its parent gone, or closed to replies: it becomes a message of its own, at once. Should that be refused for
// the same reason, it waits for a new card while one may come.
func TestReplyUnderACardThatIsGone(t *testing.T) {
	t.Parallel()
	l := play(t, delivery.Thread, delivery.DefaultRetries)
	l.raise(t)
	first := l.attempt(t)
	l.finish(answers["gone"])
	l.want(t, delivery.Pending, providerReason)
	if again := l.attempt(t); !again.Form.Root || again.Key != first.Key || l.d.Tries != 0 {
		t.Errorf("after %+v comes %+v, %d tries", first, again, l.d.Tries)
	}
	l.finish(answers["gone"])
	l.want(t, delivery.Pending, providerReason)
	l.attempt(t)
	l.env.Resolved = true
	l.finish(answers["gone"])
	l.want(t, delivery.Canceled, "card_dead")
	s, ok := l.d.Revive()
	l.maybe("revive", s, ok)
	l.want(t, delivery.Pending, "")
	l.attempt(t)
	l.finish(answers["sent"])
	l.raise(t)
	if next := l.attempt(t); next.Form.Root {
		t.Error("the next reply is not tried under its card")
	}
}

// Send again on a dead thread raises its effect and not its sequence: what was told is not told again.
func TestThreadSentAgainGoesOn(t *testing.T) {
	t.Parallel()
	d := delivery.Delivery{ID: rowID, Kind: delivery.Thread, State: delivery.Rejected, Effect: 1, Desired: 5, Applied: 3}
	s, err := d.Decide(delivery.SendAgain)
	if err != nil {
		t.Fatal(err)
	}
	if c := s.Change(); c.Effect != 2 || c.Applied != 3 {
		t.Errorf("effect %d, applied %d", c.Effect, c.Applied)
	}
}

// An ack while the create is out: sent stays sent, anything else takes the noted end.
func TestNotedEndWaitsForTheOutcome(t *testing.T) {
	t.Parallel()
	for name, r := range answers {
		l := play(t, delivery.Page, delivery.DefaultRetries)
		l.attempt(t)
		s, ok := l.d.Cancel("resolved")
		l.maybe("cancel", s, ok)
		l.finish(r)
		if r.Outcome == delivery.OutcomeSent {
			l.want(t, delivery.Sent, r.Reason)
		} else {
			l.want(t, delivery.Canceled, "resolved")
		}
		if t.Failed() {
			t.Fatalf("after %s", name)
		}
	}
}

// The defaults, where the file says nothing.
func TestDefaultPolicies(t *testing.T) {
	t.Parallel()
	want := map[delivery.Kind]delivery.Policy{
		delivery.Page:   {OnUnknown: delivery.Retry, Wait: 5 * time.Second},
		delivery.Call:   {OnUnknown: delivery.Hold, Lifetime: time.Hour},
		delivery.SMS:    {OnUnknown: delivery.Hold, Lifetime: time.Hour},
		delivery.Card:   {OnUnknown: delivery.Retry},
		delivery.Thread: {OnUnknown: delivery.Retry},
		delivery.Notice: {OnUnknown: delivery.Retry, Lifetime: time.Hour},
		delivery.Event:  {OnUnknown: delivery.Retry, Lifetime: 24 * time.Hour},
		delivery.Bulk:   {OnUnknown: delivery.Retry},
	}
	priority := -1
	for _, k := range delivery.Kinds {
		if got := delivery.DefaultPolicy(k); got != want[k] {
			t.Errorf("%s: %+v, want %+v", k, got, want[k])
		}
		if k.Priority() < priority {
			t.Errorf("%s stands behind a kind of lower priority", k)
		}
		priority = k.Priority()
	}
	if len(delivery.Kinds) != len(want) {
		t.Errorf("%d kinds, %d are checked", len(delivery.Kinds), len(want))
	}
}

// The dead are exactly those that wait for a decision.
func TestDeadAndSettled(t *testing.T) {
	t.Parallel()
	for _, s := range delivery.States {
		dead := s == delivery.Rejected || s == delivery.Unreachable || s == delivery.Held || s == delivery.Exhausted || s == delivery.Expired
		if s.Dead() != dead || s.Settled() == (s == delivery.Pending) {
			t.Errorf("%s: dead %v, settled %v", s, s.Dead(), s.Settled())
		}
	}
}
