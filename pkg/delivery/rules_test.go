package delivery_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
)

// truth is what a test knows and the code can only infer: which attempts of the current effect are in doubt, and whether
// the provider ever said that it made something.
type truth struct {
	effect  int
	doubts  map[int]bool // attempts that make something, by number
	named   bool         // a provider's word, of any effect
	refused bool         // the last answer was a proven no
}

// Whatever happens to a delivery, in whatever order, the rules of the design hold after each step. What a single step
// must never do is checked by the model itself.
func TestRulesHoldThroughWholeLives(t *testing.T) {
	t.Parallel()
	for range 30 { // rapid's own 100 lives are few for doubts that overlap
		rapid.Check(t, liveAtRandom)
	}
}

func liveAtRandom(t *rapid.T) {
	k := rapid.SampledFrom(delivery.Kinds).Draw(t, "kind")
	onUnknown := rapid.SampledFrom([]delivery.OnUnknown{delivery.Retry, delivery.Hold}).Draw(t, "on_unknown")
	retries := delivery.Retries{
		Capped: rapid.Bool().Draw(t, "capped"), Count: rapid.IntRange(0, 4).Draw(t, "count"),
		Delay: time.Second, MaxDelay: time.Minute,
	}
	l := newLife(k, onUnknown, retries)
	w := truth{effect: 1, doubts: map[int]bool{}}
	for range rapid.IntRange(1, 60).Draw(t, "moves") {
		step(t, l, &w)
		if len(l.wrong) > 0 {
			t.Fatalf("%s", l.wrong[0])
		}
		decisions(t, l.d)
		if l.d.Effect != w.effect {
			w.effect, w.doubts = l.d.Effect, map[int]bool{}
		}
		if l.d.State == delivery.Sent && !w.named {
			t.Fatalf("sent without a provider's word")
		}
		if l.d.State == delivery.Rejected && l.d.Reason == providerReason && !w.refused {
			t.Fatalf("rejected without a proven no")
		}
		if len(w.doubts) > 0 && l.d.Doubt == nil {
			t.Fatalf("attempts %v are in doubt and the row has forgotten it", slices.Collect(maps.Keys(w.doubts)))
		}
	}
	settles(t, l)
}

// step does one random thing and keeps the truth beside it.
func step(t *rapid.T, l *life, w *truth) {
	names := []string{"outside", "claim"}
	switch {
	case l.d.OpenAttempt != uuid.Nil:
		names = append(names, "finish", "finish")
	case l.d.Token != uuid.Nil:
		names = append(names, "judge", "judge", "judge")
	}
	if len(l.lost) > 0 {
		names = append(names, "late")
	}
	switch rapid.SampledFrom(names).Draw(t, "what") {
	case "claim":
		open, was := l.open, l.d.OpenAttempt != uuid.Nil
		if l.claim() && was {
			w.unknown(open)
		}
	case "judge":
		f := rapid.SampledFrom(surroundings(l.d.Kind)).Draw(t, "around")
		if rapid.IntRange(0, 9).Draw(t, "over") == 0 {
			l.d.ExpiresAt = t0
		}
		l.judge(f)
		l.d.ExpiresAt = time.Time{}
	case "finish":
		name := rapid.SampledFrom(slices.Sorted(maps.Keys(answers))).Draw(t, "answer")
		r, a := answers[name].Proven(), l.open
		l.finish(r)
		w.refused = r.Outcome == delivery.OutcomeFailed
		switch r.Outcome {
		case delivery.OutcomeSent:
			w.sent()
		case delivery.OutcomeUnknown:
			w.unknown(a)
		}
	case "late":
		i := rapid.IntRange(0, len(l.lost)-1).Draw(t, "which")
		a := l.lost[i]
		before := l.d
		o := rapid.SampledFrom([]delivery.Outcome{delivery.OutcomeSent, delivery.OutcomeFailed, delivery.OutcomeUnknown}).Draw(t, "late")
		l.late(i, o)
		switch o {
		case delivery.OutcomeFailed:
			delete(w.doubts, a.Number)
		case delivery.OutcomeSent:
			w.named = true
			if before.Doubt != nil && l.d.Doubt == nil {
				w.doubts = map[int]bool{} // settled by it
			}
		}
	case "outside":
		outside(t, l)
	}
}

func (w *truth) sent() { w.named, w.doubts = true, map[int]bool{} }

func (w *truth) unknown(a delivery.Attempt) {
	if a.Effect == w.effect && a.Operation != delivery.OpEdit {
		w.doubts[a.Number] = true
	}
}

func outside(t *rapid.T, l *life) {
	d := l.d
	newer := d.Desired + rapid.IntRange(0, 3).Draw(t, "newer")
	ways := map[string]func() (delivery.Step, bool){
		"raise":   func() (delivery.Step, bool) { return d.Raise(newer) },
		"answer":  func() (delivery.Step, bool) { return d.Answer("acknowledged", newer) },
		"cancel":  func() (delivery.Step, bool) { return d.Cancel("resolved") },
		"expire":  d.Expire,
		"remove":  d.Remove,
		"exhaust": d.Exhaust,
		"revive":  d.Revive,
	}
	for _, a := range []delivery.Action{delivery.AssumeDelivered, delivery.CancelIt, delivery.SendAgain} {
		ways[string(a)] = func() (delivery.Step, bool) {
			s, err := d.Decide(a)
			return s, err == nil
		}
	}
	cause := rapid.SampledFrom(slices.Sorted(maps.Keys(ways))).Draw(t, "outside")
	s, ok := ways[cause]()
	l.maybe(cause, s, ok)
}

// decisions checks what a person may say to the row as it stands: a no never becomes a yes, nobody is told twice what was
// sent, and every refusal names the state.
func decisions(t *rapid.T, d delivery.Delivery) {
	for _, a := range []delivery.Action{delivery.AssumeDelivered, delivery.CancelIt, delivery.SendAgain} {
		s, err := d.Decide(a)
		var refusal *delivery.Refusal
		if err != nil && (!errors.As(err, &refusal) || refusal.State != d.State) {
			t.Fatalf("%s on %s: the error does not name the state: %v", a, d.State, err)
		}
		allowed := err == nil
		switch a {
		case delivery.AssumeDelivered:
			doubt := d.Doubt != nil && d.Doubt.Effect == d.Effect
			want := doubt && (d.State == delivery.Held || d.State == delivery.Exhausted || d.State == delivery.Expired)
			if allowed != want {
				t.Fatalf("assume_delivered on %s, in doubt %v: allowed %v", d.State, doubt, allowed)
			}
			if allowed && s.To() != delivery.Assumed {
				t.Fatalf("assume_delivered leads to %s", s.To())
			}
		case delivery.SendAgain:
			if allowed != d.State.Dead() {
				t.Fatalf("send_again on %s: allowed %v", d.State, allowed)
			}
			if c := s.Change(); allowed && (c.Effect != d.Effect+1 || c.Doubt != nil || c.Tries != 0) {
				t.Fatalf("send_again keeps effect %d, doubt %v, tries %d", c.Effect, c.Doubt, c.Tries)
			}
		case delivery.CancelIt:
			if allowed && !d.State.Dead() && d.State != delivery.Pending {
				t.Fatalf("cancel on %s is allowed", d.State)
			}
		}
	}
}

// settles lets a life go on with a provider that takes everything: it ends, and shows the newest.
func settles(t *rapid.T, l *life) {
	ready := delivery.Facts{Now: t0, HasCard: true, CardReady: true, CardOver: true}
	for range 12 {
		if l.d.State != delivery.Pending {
			break
		}
		if l.d.OpenAttempt == uuid.Nil {
			l.claim()
			l.judge(ready)
			continue
		}
		l.finish(answers["sent"])
	}
	switch {
	case len(l.wrong) > 0:
		t.Fatalf("%s", l.wrong[0])
	case l.d.State == delivery.Pending:
		t.Fatalf("it never ends although the provider takes everything: %+v", l.d)
	case l.d.State == delivery.Sent && l.d.Applied < l.d.Desired && (l.d.Kind == delivery.Thread || editable(l.d.Kind) && !l.d.Reference.IsZero()) && l.d.Reason != "edit_failed":
		t.Fatalf("it is sent and shows %d of %d", l.d.Applied, l.d.Desired)
	}
}

// The backoff doubles from the delay up to its bound, and never overflows.
func TestBackoffGrowsToItsBound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := delivery.Retries{
			Delay:    time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "delay")),
			MaxDelay: time.Duration(rapid.Int64Range(1, int64(24*time.Hour)).Draw(t, "max_delay")),
		}
		last := time.Duration(0)
		for n := range 100 {
			got := r.Backoff(n + 1)
			if got > r.MaxDelay || got < last || got <= 0 {
				t.Fatalf("after %d tries: %s, before that %s, at most %s", n+1, got, last, r.MaxDelay)
			}
			if want := r.Delay << n; n < 10 && got != min(want, r.MaxDelay) {
				t.Fatalf("after %d tries: %s instead of %s", n+1, got, min(want, r.MaxDelay))
			}
			last = got
		}
	})
}

// A result is believed only as far as it proves something.
func TestOnlyProofIsBelieved(t *testing.T) {
	t.Parallel()
	for _, o := range []delivery.Outcome{"", delivery.OutcomeSent, delivery.OutcomeFailed, delivery.OutcomeUnknown, "maybe"} {
		for _, e := range []delivery.Evidence{"", delivery.NotCalled, delivery.NotSent, delivery.PossiblySent, delivery.Answered, "hearsay"} {
			r := delivery.Result{Outcome: o, Evidence: e, Fault: delivery.FaultPayload, Reason: "r", Reference: made}.Proven()
			want := delivery.OutcomeUnknown
			if o == delivery.OutcomeSent {
				want = delivery.OutcomeSent
			}
			if o == delivery.OutcomeFailed && (e == delivery.NotCalled || e == delivery.NotSent || e == delivery.Answered) {
				want = delivery.OutcomeFailed
			}
			name := fmt.Sprintf("outcome %q with evidence %q", o, e)
			if r.Outcome != want {
				t.Errorf("%s is %s, want %s", name, r.Outcome, want)
			}
			if (r.Fault == delivery.FaultNone) == (want == delivery.OutcomeFailed) {
				t.Errorf("%s is %s with fault %q", name, r.Outcome, r.Fault)
			}
			if r != r.Proven() {
				t.Errorf("%s: looking twice changes it", name)
			}
			if r.Evidence == "" || r.Evidence == "hearsay" {
				t.Errorf("%s keeps evidence that the schema does not know", name)
			}
		}
	}
}
