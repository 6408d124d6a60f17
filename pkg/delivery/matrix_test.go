package delivery_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
)

var (
	rowID    = uuid.MustParse("01890000-0000-7000-8000-000000000001")
	lease    = uuid.MustParse("01890000-0000-7000-8000-00000000000a")
	call     = uuid.MustParse("01890000-0000-7000-8000-00000000000c")
	t0       = time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)
	made     = delivery.Reference{Channel: "C1", TS: "1.1"}
	fileCaps = delivery.Retries{Capped: true, Count: 5, Delay: 10 * time.Second, MaxDelay: 10 * time.Minute}
)

func only(name string, values ...string) dim { return dim{name, values} }

// editable says which kinds have objects that are edited.
func editable(k delivery.Kind) bool { return k == delivery.Card || k == delivery.Page }

func operations(k delivery.Kind) []string {
	switch {
	case k == delivery.Thread:
		return []string{"reply"}
	case editable(k):
		return []string{"create", "edit"}
	}
	return []string{"create"}
}

func policy(onUnknown string) delivery.Policy {
	return delivery.Policy{OnUnknown: delivery.OnUnknown(onUnknown), Wait: 5 * time.Second}
}

// underway is a delivery with an open attempt: revision 2 is what the call shows.
func underway(k delivery.Kind, op string) (delivery.Delivery, delivery.Attempt) {
	d := delivery.Delivery{ID: rowID, Kind: k, State: delivery.Pending, Effect: 1, Desired: 2, Attempts: 3, Token: lease, Version: 7, OpenAttempt: call}
	if op == "edit" {
		d.Reference, d.Applied = made, 1
	}
	if op == "reply" {
		d.Applied = 1
	}
	a := delivery.Attempt{ID: call, Number: 3, Operation: delivery.Operation(op), Effect: 1, Key: d.Key(), Address: "A", Revision: 2, StartedAt: t0.Add(time.Minute)}
	return d, a
}

// inDoubt puts an earlier attempt of the same effect in doubt.
func inDoubt(d *delivery.Delivery, revision int) {
	d.Doubt = &delivery.Doubt{Effect: d.Effect, Key: d.Key(), Address: "first", Since: t0, Revision: revision, Through: 2}
}

func noted(d *delivery.Delivery, stop string) {
	if stop == "-" {
		return
	}
	to := map[string]delivery.State{"acknowledged": delivery.Canceled, "lifetime_over": delivery.Expired, "notifier_removed": delivery.Rejected, "retries_used_up": delivery.Exhausted}[stop]
	d.Stop = &delivery.Stop{State: to, Reason: stop}
}

const finishIntro = `
What a delivery becomes by the result of its attempt: Finish, for every combination of its inputs.
The call showed revision 2. before: an attempt of the effect is in doubt already, from revision 1 on. noted: an end
that was noted while the call was in flight. newer: revision 3 is wished meanwhile. tries: before this attempt, with
retries {count: 5, delay: 10s, max_delay: 10m}. form: the whole message, or all left out that can be, and denied twice
before. look_up: the provider can be asked what it has. "~": the delay is spread by jitter. in doubt: from the first attempt in
doubt on (takeover.txt shows how). says: with a sentence for people.
`

var anyDoubt = strings.NewReplacer("doubt(rev 2)", "in doubt", "doubt(rev 1 since the first)", "in doubt")

func TestFinishMatrix(t *testing.T) {
	t.Parallel()
	golden(t, "finish.txt", byKind(finishIntro, func(k delivery.Kind) string {
		stops := []string{"-", "acknowledged", "notifier_removed"}
		var b strings.Builder
		for _, op := range operations(k) {
			stops := stops
			if op == "edit" {
				stops = stops[:1] // ends are noted on creates only
			}
			fmt.Fprintf(&b, "\n%s:\n", op)
			b.WriteString(table([]dim{
				only("outcome", "sent", "failed", "unknown"),
				only("evidence", "not_called", "not_sent", "possibly_sent", "answered"),
				only("fault", "none", "transient", "throttled", "payload", "destination", "account", "gone", "denied", "moved"),
				only("form", "whole", "least"),
				only("look_up", "no", "yes"),
				only("on_unknown", "retry", "hold"),
				only("noted", stops...),
				only("tries", "0", "2", "5"),
				only("incident", "open", "resolved"),
				only("newer", "no", "yes"),
				only("before", "no doubt", "doubt"),
			}, func(p point) string {
				d, a := underway(k, op)
				noted(&d, p["noted"])
				_, _ = fmt.Sscan(p["tries"], &d.Tries)
				if p["newer"] == "yes" {
					d.Desired = 3
				}
				if p["before"] == "doubt" {
					inDoubt(&d, 1)
				}
				r := delivery.Result{Outcome: delivery.Outcome(p["outcome"]), Evidence: delivery.Evidence(p["evidence"]), Fault: delivery.Fault(p["fault"]), Reason: "reason", Sentence: "Do this.", RetryAfter: 26 * time.Second}
				if r.Fault == "none" {
					r.Fault = ""
				}
				if p["fault"] == "moved" {
					r.MovedTo = "-100"
				}
				if p["form"] == "least" {
					a.Form = delivery.Form{NoMetadata: true, NoButtons: true, Plain: true, Root: true}
					d.Form, d.Denials = a.Form, 2
				}
				env := delivery.Env{Policy: policy(p["on_unknown"]), Retries: fileCaps, Resolved: p["incident"] == "resolved", Forms: true}
				if p["look_up"] == "yes" {
					env.LookUp = 20 * time.Second
				}
				if r.Outcome == delivery.OutcomeSent && op != "edit" {
					r.Reference, r.Sentence = made, ""
				}
				s := tell(d.Finish(env, a, r))
				return anyDoubt.Replace(s)
			}))
		}
		return b.String()
	}))
}

const judgeIntro = `
What a freshly claimed delivery needs: Judge, for every combination of its inputs. "call" is one provider call, the
rest ends or gives back the delivery without an attempt. over: its lifetime. used_up: more failed and unknown tries than
retries.count allows. bound: the end of a page's longest wait for the card.
`

func TestJudgeMatrix(t *testing.T) {
	t.Parallel()
	golden(t, "judge.txt", byKind(judgeIntro, func(k delivery.Kind) string {
		object, cards, bound, applied := []string{"none"}, []string{"none"}, []string{"none"}, []string{"older"}
		switch k {
		case delivery.Card:
			object = []string{"none", "made"}
		case delivery.Page:
			object, bound = []string{"none", "made"}, []string{"none", "ahead", "past"}
			cards = []string{"none", "under way", "with reference", "over without"}
		case delivery.Thread:
			cards = []string{"under way", "with reference", "dead", "row gone"}
		}
		if k == delivery.Card || k == delivery.Page || k == delivery.Thread {
			applied = []string{"older", "newest"}
		}
		return table([]dim{
			only("noted", "-", "acknowledged", "notifier_removed"),
			only("object", object...),
			only("lifetime", "none", "left", "over"),
			only("doubt", "no", "yes"),
			only("look_up", "no", "early", "due", "twice"),
			only("on_unknown", "retry", "hold"),
			only("tries", "left", "used_up"),
			only("incident", "open", "acknowledged", "resolved"),
			only("card", cards...),
			only("bound", bound...),
			only("applied", applied...),
		}, func(p point) string {
			op := operations(k)[0]
			if p["object"] == "made" {
				op = "edit"
			}
			d, _ := underway(k, op)
			d.OpenAttempt = uuid.Nil
			if d.Applied == 0 && p["applied"] == "newest" {
				d.Applied = 1
			}
			if p["applied"] == "newest" {
				d.Desired = d.Applied
			}
			noted(&d, p["noted"])
			if p["doubt"] == "yes" {
				inDoubt(&d, 1)
			}
			if p["tries"] == "used_up" {
				d.Tries = 6
			}
			switch p["lifetime"] {
			case "left":
				d.ExpiresAt = t0.Add(time.Nanosecond)
			case "over":
				d.ExpiresAt = t0
			}
			switch p["bound"] {
			case "ahead":
				d.WaitUntil = t0.Add(3 * time.Second)
			case "past":
				d.WaitUntil = t0
			}
			f := delivery.Facts{Now: t0, Policy: policy(p["on_unknown"]), Retries: fileCaps, Resolved: p["incident"] == "resolved", Answered: p["incident"] != "open", CardOver: true}
			switch p["look_up"] {
			case "early":
				f.LookUp = 20 * time.Second
			case "due", "twice":
				f.LookUp = time.Nanosecond
				if d.Doubt != nil {
					d.Doubt.Since = t0.Add(-time.Minute)
				}
				if p["look_up"] == "twice" && d.Doubt != nil {
					d.Doubt.Scans, d.Doubt.Scanned = 2, t0
				}
			}
			switch p["card"] {
			case "under way":
				f.HasCard, f.CardOver = true, false
			case "with reference":
				f.HasCard, f.CardReady = true, true
			case "over without":
				f.HasCard = true
			case "dead":
				f.HasCard, f.CardDead = true, true
			case "row gone":
				f.CardGone = true
			}
			return verdict(d, d.Judge(f))
		})
	}))
}

func verdict(d delivery.Delivery, v delivery.Verdict) string {
	if v.Step != nil {
		return tell(*v.Step)
	}
	out := fmt.Sprintf("call %s rev=%d", v.Operation, v.Revision)
	if v.Operation == delivery.OpReply {
		out = fmt.Sprintf("call %s events %d-%d", v.Operation, v.Since+1, v.Revision)
	}
	if v.Address != "" {
		out += " to the first address"
	}
	if v.LookUp {
		out = strings.Replace(out, "call", "look for", 1)
	}
	if v.Repeat {
		out += " as a repeat"
	}
	if v.Key != d.Key() {
		out += " key of the doubt"
	}
	return out
}

const takeoverIntro = `
A lease that ran out over an open attempt: Takeover. The lease stays with the new owner, who judges the row next.
`

func TestTakeoverMatrix(t *testing.T) {
	t.Parallel()
	golden(t, "takeover.txt", byKind(takeoverIntro, func(k delivery.Kind) string {
		return table([]dim{
			only("operation", operations(k)...),
			only("noted", "-", "acknowledged"),
			only("before", "no doubt", "doubt"),
		}, func(p point) string {
			d, a := underway(k, p["operation"])
			noted(&d, p["noted"])
			if p["before"] == "doubt" {
				inDoubt(&d, 1)
			}
			s := d.Takeover(a)
			if c := s.Change(); c.State != delivery.Pending || c.Release || !c.Closes || c.Next != delivery.NextKeep {
				t.Errorf("%s %v: the takeover must only close the attempt: %+v", k, p, c)
			}
			return tell(s)
		})
	}))
}

// rows are the states of a row, with how far a worker has it.
var rows = []string{"pending", "pending, leased", "pending, open", "sent", "assumed", "canceled", "rejected", "unreachable", "held", "exhausted", "expired"}

func row(k delivery.Kind, op, state string) (delivery.Delivery, delivery.Attempt) {
	d, a := underway(k, op)
	name, _, _ := strings.Cut(state, ",")
	d.State = delivery.State(name)
	if state != "pending, open" {
		d.OpenAttempt = uuid.Nil
	}
	if state != "pending, open" && state != "pending, leased" {
		d.Token = uuid.Nil
	}
	return d, a
}

const lateIntro = `
An answer that came after its lease was lost: Late. "-" is: it only explains. attempt: newest, or a newer one was begun.
effect: the attempt's, or a newer one (sent again). The attempt showed revision 2. doubt: from this attempt alone, or
from an earlier one too. applied: what the provider accepted since.
`

func TestLateMatrix(t *testing.T) {
	t.Parallel()
	golden(t, "late.txt", byKind(lateIntro, func(k delivery.Kind) string {
		var b strings.Builder
		for _, op := range operations(k) {
			applied := []string{"older", "same", "newer"}
			if op != "edit" {
				applied = applied[:1]
			}
			fmt.Fprintf(&b, "\n%s:\n", op)
			b.WriteString(table([]dim{
				only("effect", "same", "newer"),
				only("late", "sent", "failed", "unknown"),
				only("row", rows...),
				only("attempt", "newest", "older"),
				only("doubt", "this", "earlier", "no"),
				only("applied", applied...),
				only("wished", "same", "newer"),
			}, func(p point) string {
				d, a := row(k, op, p["row"])
				if p["attempt"] == "older" {
					d.Attempts++
				}
				switch p["doubt"] {
				case "this":
					inDoubt(&d, 2)
					d.Doubt.Since = a.StartedAt
				case "earlier":
					inDoubt(&d, 1)
				}
				if p["wished"] == "newer" {
					d.Desired = 3
				}
				switch p["applied"] {
				case "same":
					d.Applied = 2
				case "newer":
					d.Applied, d.Desired = 3, d.Desired+1
				}
				if p["effect"] == "newer" {
					d.Effect = 2
				}
				s, ok := d.Late(delivery.Env{Policy: policy("retry"), Retries: fileCaps}, a, delivery.Outcome(p["late"]), made)
				return told(s, ok)
			}))
		}
		return b.String()
	}))
}

func told(s delivery.Step, ok bool) string {
	if !ok {
		return "-"
	}
	return tell(s)
}

const outsideIntro = `
What others than the worker may do to a delivery: raise, cancel, answer, expire, remove, exhaust, revive, a person's
decision; and how a worker ends or gives back a claimed one without an attempt. "-": nothing to write; "409": refused.
object: made means that its reference is known. doubt: of the current effect, or only of an older one. Revision 2 is
wished, and 3 comes in with raise and answer.
`

func TestOutsideMatrix(t *testing.T) {
	t.Parallel()
	decide := func(a delivery.Action) func(delivery.Delivery) string {
		return func(d delivery.Delivery) string {
			s, err := d.Decide(a)
			var r *delivery.Refusal
			if errors.As(err, &r) {
				if r.State != d.State || r.Action != a {
					t.Errorf("the refusal names %s on %s: %s on %s was asked for", r.Action, r.State, a, d.State)
				}
				return "409 " + r.Why
			}
			return tell(s)
		}
	}
	claimed := func(f func(delivery.Delivery) delivery.Step) func(delivery.Delivery) string {
		return func(d delivery.Delivery) string {
			if d.State != delivery.Pending || d.Token == uuid.Nil || d.OpenAttempt != uuid.Nil {
				return "" // never asked
			}
			return tell(f(d))
		}
	}
	ops := []struct {
		name string
		do   func(delivery.Delivery) string
	}{
		{"raise to the same", func(d delivery.Delivery) string { return told(d.Raise(d.Desired)) }},
		{"raise", func(d delivery.Delivery) string { return told(d.Raise(3)) }},
		{"cancel", func(d delivery.Delivery) string { return told(d.Cancel("resolved")) }},
		{"answer", func(d delivery.Delivery) string { return told(d.Answer("resolved", 3)) }},
		{"expire", func(d delivery.Delivery) string { return told(d.Expire()) }},
		{"remove", func(d delivery.Delivery) string { return told(d.Remove()) }},
		{"exhaust", func(d delivery.Delivery) string { return told(d.Exhaust()) }},
		{"revive", func(d delivery.Delivery) string {
			d.Reason = "card_dead"
			return told(d.Revive())
		}},
		{"revive, other reason", func(d delivery.Delivery) string { return told(d.Revive()) }},
		{"decide assume_delivered", decide(delivery.AssumeDelivered)},
		{"decide cancel", decide(delivery.CancelIt)},
		{"decide send_again", decide(delivery.SendAgain)},
		{"decide shrug", decide("shrug")},
		{"unreachable", claimed(func(d delivery.Delivery) delivery.Step { return d.Unreachable("nobody_on_call", "Do this.") })},
		{"reject", claimed(func(d delivery.Delivery) delivery.Step { return d.Reject("payload:compose", "Do this.") })},
		{"give back", claimed(func(d delivery.Delivery) delivery.Step { return d.GiveBack(3*time.Second, "shutdown") })},
	}
	golden(t, "outside.txt", byKind(outsideIntro, func(k delivery.Kind) string {
		object := []string{"none"}
		if editable(k) {
			object = append(object, "made")
		}
		var b strings.Builder
		for _, op := range ops {
			fmt.Fprintf(&b, "\n%s:\n", op.name)
			b.WriteString(table([]dim{
				only("row", rows...),
				only("object", object...),
				only("noted", "-", "acknowledged"),
				only("doubt", "no", "current", "older"),
				only("applied", "older", "newest"),
			}, func(p point) string {
				attempt := operations(k)[0]
				if p["object"] == "made" {
					attempt = "edit"
				}
				d, _ := row(k, attempt, p["row"])
				if d.State == delivery.Pending {
					noted(&d, p["noted"])
				}
				if p["doubt"] != "no" {
					inDoubt(&d, 1)
				}
				if p["doubt"] == "older" {
					d.Effect = 2
				}
				if p["applied"] == "newest" {
					d.Applied = 2
				}
				return op.do(d)
			}))
		}
		return b.String()
	}))
}

// A file under testdata that no test writes would be read by people and mean nothing.
func TestGoldenFilesAreAllWritten(t *testing.T) {
	t.Parallel()
	names := goldenFiles(t)
	for _, want := range []string{"finish.txt", "judge.txt", "late.txt", "outside.txt", "takeover.txt"} {
		if !slices.Contains(names, want) {
			t.Errorf("testdata/%s is not there", want)
		}
	}
	if len(names) != 5 {
		t.Errorf("testdata holds %d files, 5 are written: %v", len(names), names)
	}
}
