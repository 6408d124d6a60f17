package delivery_test

import (
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
)

// lookable begins a story in which the provider can be asked what it has.
func lookable(t *testing.T, k delivery.Kind, onUnknown delivery.OnUnknown) *life {
	t.Helper()
	l := play(t, k, delivery.DefaultRetries)
	l.env.Policy.OnUnknown, l.env.LookUp = onUnknown, 20*time.Second
	return l
}

// ask claims the row at a time and looks up; it says whether it came to a look-up.
func (l *life) ask(t *testing.T, now time.Time, look delivery.Look) bool {
	t.Helper()
	if !l.claim() {
		t.Fatalf("a %s delivery can't be claimed", l.d.State)
	}
	f := ready
	f.Now, f.Policy, f.LookUp = now, l.env.Policy, l.env.LookUp
	if !l.d.Judge(f).LookUp {
		return false
	}
	l.look = look
	l.judge(f)
	return true
}

// What a look-up finds is adopted, whatever the policy; one edit follows, since the card has changed meanwhile.
func TestWhatALookUpFindsIsAdopted(t *testing.T) {
	t.Parallel()
	for _, p := range []delivery.OnUnknown{delivery.Retry, delivery.Hold} {
		l := lookable(t, delivery.Card, p)
		first := l.attempt(t)
		l.finish(answers["unknown"])
		l.want(t, delivery.Pending, "timeout")
		l.raise(t)
		if !l.ask(t, first.StartedAt.Add(20*time.Second), delivery.Look{Found: made}) {
			t.Fatalf("%s: it is not looked up", p)
		}
		if l.d.Doubt != nil || l.d.Applied != 1 || l.d.Reference != made || l.d.Tries != 0 {
			t.Errorf("%s: %+v", p, l.d)
		}
		if a := l.attempt(t); a.Operation != delivery.OpEdit || a.Revision != 2 {
			t.Errorf("%s: then comes %+v", p, a)
		}
		l.finish(answers["sent"])
		l.want(t, delivery.Sent, "")
	}
}

// Before the first request can have died it is not looked for; after two complete look-ups half a minute apart it was not
// made: the next create is no repeat, also of a kind that is held while in doubt.
func TestNotFoundTwiceIsMadeAgain(t *testing.T) {
	t.Parallel()
	l := lookable(t, delivery.Card, delivery.Retry)
	first := l.attempt(t)
	l.finish(answers["unknown"])
	if l.ask(t, first.StartedAt.Add(19*time.Second), delivery.Look{Complete: true}) {
		t.Fatal("it is looked for while it may be on its way")
	}
	l.judge(delivery.Facts{Now: first.StartedAt.Add(19 * time.Second), LookUp: l.env.LookUp, CardReady: true})
	l.want(t, delivery.Pending, "doubt")
	at := first.StartedAt.Add(20 * time.Second)
	if !l.ask(t, at, delivery.Look{Complete: true}) {
		t.Fatal("no first look-up")
	}
	if l.ask(t, at.Add(29*time.Second), delivery.Look{Complete: true}) {
		t.Fatal("the second look-up comes too early")
	}
	l.apply("give back", l.d.GiveBack(0, "shutdown"))
	if !l.ask(t, at.Add(30*time.Second), delivery.Look{Complete: true}) {
		t.Fatal("no second look-up")
	}
	l.claim()
	f := ready
	f.Now, f.Policy, f.LookUp = at.Add(30*time.Second), l.env.Policy, l.env.LookUp
	v := l.d.Judge(f)
	if v.LookUp || v.Operation != delivery.OpCreate || v.Key != first.Key || v.Address != first.Address || v.Repeat {
		t.Errorf("after two look-ups comes %+v", v)
	}
	f.Policy.OnUnknown = delivery.Hold
	if v := l.d.Judge(f); v.Step != nil || v.LookUp || v.Operation != delivery.OpCreate {
		t.Errorf("with hold comes %+v", v)
	}
}

// A further attempt in doubt is looked up anew: what was not there before may be there now.
func TestEachAttemptInDoubtIsLookedUp(t *testing.T) {
	t.Parallel()
	l := lookable(t, delivery.Notice, delivery.Retry)
	first := l.attempt(t)
	l.finish(answers["unknown"])
	at := first.StartedAt.Add(time.Minute)
	l.ask(t, at, delivery.Look{Complete: true})
	l.ask(t, at.Add(time.Minute), delivery.Look{Complete: true})
	second := l.attempt(t)
	l.finish(answers["unknown"])
	if l.d.Doubt.Scans != 0 || !l.d.Doubt.Since.Equal(first.StartedAt) || !l.d.Doubt.Last.Equal(second.StartedAt) {
		t.Errorf("%+v", l.d.Doubt)
	}
	if !l.ask(t, second.StartedAt.Add(time.Minute), delivery.Look{Found: made}) {
		t.Error("the second attempt is not looked up")
	}
	l.want(t, delivery.Sent, "reconciled")
}

// What can't be looked up is left to the policy: at once where a person must mend something, after a quarter of an hour
// where the look-ups only fail. Until then it is tried again, as late as the provider asks.
func TestWhatCannotBeLookedUpIsLeftToThePolicy(t *testing.T) {
	t.Parallel()
	l := lookable(t, delivery.Card, delivery.Retry)
	first := l.attempt(t)
	l.finish(answers["unknown"])
	at := first.StartedAt.Add(time.Minute)
	l.claim()
	if c := l.d.Looked(at, delivery.Look{}).Change(); c.Delay != 10*time.Second || c.Doubt.Scans != 0 || c.Doubt.Blind {
		t.Errorf("a failed look-up: %+v", c)
	}
	if c := l.d.Looked(at, delivery.Look{RetryAfter: time.Minute}).Change(); c.Delay != time.Minute {
		t.Errorf("a throttled look-up: %+v", c)
	}
	if c := l.d.Looked(at.Add(time.Hour), delivery.Look{}).Change(); !c.Doubt.Blind || c.Delay != 0 {
		t.Errorf("after an hour: %+v", c)
	}
	l.apply("look up", l.d.Looked(at, delivery.Look{Blind: true, Sentence: "Add the scope."}))
	if l.ask(t, at, delivery.Look{}) {
		t.Error("it is looked up although that is not possible")
	}
	f := ready
	f.Now, f.Policy, f.LookUp = at, l.env.Policy, l.env.LookUp
	if v := l.d.Judge(f); v.Operation != delivery.OpCreate || !v.Repeat {
		t.Errorf("then comes %+v", v)
	}
}

// A page does not wait for a look-up: a second ring is better than a late one.
func TestPagesAreNotLookedUp(t *testing.T) {
	t.Parallel()
	l := lookable(t, delivery.Page, delivery.Retry)
	l.attempt(t)
	l.finish(answers["unknown"])
	if l.ask(t, t0.Add(time.Hour), delivery.Look{}) {
		t.Error("a page is looked up")
	}
}

// A reply that is found in its thread has told its range of events, and the rest follows.
func TestReplyThatIsFoundGoesOn(t *testing.T) {
	t.Parallel()
	l := lookable(t, delivery.Thread, delivery.Retry)
	l.raise(t)
	first := l.attempt(t) // events 1 and 2
	l.finish(answers["unknown"])
	l.raise(t)
	if !l.ask(t, t0.Add(time.Hour), delivery.Look{Found: delivery.Reference{Channel: "C1", TS: "2.2"}}) {
		t.Fatal("it is not looked up")
	}
	if next := l.attempt(t); next.Key == first.Key || next.Revision != 3 || l.d.Applied != 2 || !l.d.Reference.IsZero() {
		t.Errorf("after %+v comes %+v of %+v", first, next, l.d)
	}
}

// An answer to an older attempt came late and says sent, while newer ones failed or are in doubt: there is nothing to make.
func TestLateSuccessOfAnOlderAttemptCounts(t *testing.T) {
	t.Parallel()
	for _, then := range []string{"transient", "unknown"} {
		l := play(t, delivery.Card, delivery.DefaultRetries)
		l.attempt(t)
		l.claim() // taken over
		l.apply("give back", l.d.GiveBack(0, ""))
		l.attempt(t)
		l.finish(answers[then])
		l.late(0, delivery.OutcomeSent)
		l.want(t, delivery.Sent, "late_answer")
	}
}

// What a provider refuses is left out once, part by part, and costs no try; then the content is refused for good.
func TestRefusedContentIsMadePlainer(t *testing.T) {
	t.Parallel()
	l := play(t, delivery.Card, delivery.Retries{Capped: true})
	key := ""
	for _, step := range []struct {
		answer string
		before delivery.Form
	}{
		{"metadata", delivery.Form{}},
		{"buttons", delivery.Form{NoMetadata: true}},
		{"buttons", delivery.Form{NoMetadata: true, NoButtons: true}},
		{"payload", delivery.Form{NoMetadata: true, NoButtons: true, Plain: true}},
	} {
		a := l.attempt(t)
		if a.Form != step.before || key != "" && a.Key != key {
			t.Errorf("before %s: form %q, key %s", step.answer, a.Form, a.Key)
		}
		key = a.Key
		l.finish(answers[step.answer])
	}
	l.want(t, delivery.Rejected, providerReason)

	l = play(t, delivery.Event, delivery.DefaultRetries)
	l.env.Forms = false
	l.attempt(t)
	l.finish(answers["payload"])
	l.want(t, delivery.Rejected, providerReason) // a JSON body has no plainer form
}

// After the plain form was taken the next face is tried whole.
func TestNextRevisionIsTriedWhole(t *testing.T) {
	t.Parallel()
	l := play(t, delivery.Card, delivery.DefaultRetries)
	l.attempt(t)
	l.finish(answers["payload"])
	l.attempt(t)
	l.raise(t)
	l.finish(answers["sent"])
	if a := l.attempt(t); a.Operation != delivery.OpEdit || a.Form != (delivery.Form{}) {
		t.Errorf("%+v", a)
	}
}

// A group that became a supergroup: the same effect goes to the new address at once and costs no try. One that says so for
// ever is knocked on like any other that fails.
func TestMovedChatIsCalledAtItsNewAddress(t *testing.T) {
	t.Parallel()
	l := play(t, delivery.Card, delivery.Retries{Capped: true, Count: 1, Delay: time.Second, MaxDelay: time.Minute})
	first := l.attempt(t)
	s := l.d.Finish(l.env, l.open, answers["moved"])
	if c := s.Change(); c.Delay != 0 || c.Tries != 0 || c.State != delivery.Pending {
		t.Errorf("%+v", c)
	}
	l.finish(answers["moved"])
	if again := l.attempt(t); again.Key != first.Key {
		t.Errorf("after %+v comes %+v", first, again)
	}
	if c := l.d.Finish(l.env, l.open, answers["moved"]).Change(); c.Delay == 0 || c.Tries != 1 {
		t.Errorf("moved again: %+v", c)
	}
}

// A page that its destination keeps back longer than its bound is overdue, and stays pending; a second for a slot is not.
func TestPageThatIsKeptBackIsOverdue(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name          string
		kind          delivery.Kind
		age, delay    time.Duration
		overdue, made bool
	}{
		{"a slot", delivery.Page, 0, time.Second, false, false},
		{"a pause within the bound", delivery.Page, 0, 5 * time.Second, false, false},
		{"a pause beyond the bound", delivery.Page, 0, 6 * time.Second, true, false},
		{"the rest of a pause", delivery.Page, 3 * time.Second, 3 * time.Second, true, false},
		{"a slot of an old page", delivery.Page, time.Hour, time.Second, false, false},
		{"one of many slots", delivery.Page, 11 * time.Second, -time.Second, true, false},
		{"an edit", delivery.Page, 0, time.Minute, false, true},
		{"a card", delivery.Card, 0, time.Minute, false, false},
	} {
		d := delivery.Delivery{ID: rowID, Kind: c.kind, State: delivery.Pending, Effect: 1, Desired: 1, Token: lease, CreatedAt: t0}
		if c.made {
			d.Reference = made
		}
		if c.delay < 0 { // it has waited for one before
			c.delay, d.Queue = -c.delay, "queue"
		}
		f := delivery.Facts{Now: t0.Add(c.age), Policy: policy("retry")}
		got := d.Queued(f, c.delay, "queue", "paused", "").Change()
		if got.Overdue != c.overdue || got.State != delivery.Pending || got.Queue != "queue" || got.Delay != c.delay {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}

// Only refusals by 401 and 403 count for the three tries of a webhook: what failed before has nothing to do with them.
func TestOnlyDenialsCountForTheThreeTries(t *testing.T) {
	t.Parallel()
	l := play(t, delivery.Event, delivery.DefaultRetries)
	for _, answer := range []string{"transient", "transient", "transient", "denied", "denied"} {
		l.attempt(t)
		l.finish(answers[answer])
		l.want(t, delivery.Pending, answers[answer].Reason)
	}
	l.attempt(t)
	l.finish(answers["denied"])
	l.want(t, delivery.Rejected, providerReason)
}
