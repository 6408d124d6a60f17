package delivery_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
)

// life is one delivery's row with its open attempt and those that were taken over, as the store would hold them. It is
// the model on which tests live through whole lives: exhaustively for the drawing, at random for the rules.
type life struct {
	d     delivery.Delivery
	open  delivery.Attempt
	lost  []delivery.Attempt // taken over, without late evidence yet
	env   delivery.Env
	wrong []string // rules that a step broke

	look         delivery.Look // what the next look-up comes to
	odd          bool          // every answer that there is can come
	mostAttempts int           // no call is begun beyond it; 0: no bound
}

func newLife(k delivery.Kind, onUnknown delivery.OnUnknown, r delivery.Retries) *life {
	return &life{
		d:   delivery.Delivery{ID: rowID, Kind: k, Notifier: "n", Target: "channel", State: delivery.Pending, Effect: 1, Desired: 1},
		env: delivery.Env{Policy: delivery.Policy{OnUnknown: onUnknown, Wait: 5 * time.Second}, Retries: r, Forms: true},
	}
}

func (l *life) clone() *life {
	c := *l
	c.lost = slices.Clone(l.lost)
	c.wrong = nil
	return &c
}

// key tells lives apart by what decisions can see.
type key struct {
	state                                       delivery.State
	revivable, object, leased, called, resolved bool
	moved, overdue                              bool
	effect, desired, applied, attempts, tries   int
	denials                                     int
	form                                        delivery.Form
	doubt                                       delivery.Doubt
	stop                                        delivery.Stop
	open                                        delivery.Attempt
	lost                                        [mostLost]delivery.Attempt
}

func (l *life) key() key {
	d := l.d
	k := key{
		state: d.State, revivable: d.Reason == "card_dead", object: !d.Reference.IsZero(), leased: d.Token != uuid.Nil, called: d.OpenAttempt != uuid.Nil,
		resolved: l.env.Resolved, effect: d.Effect, desired: d.Desired, applied: d.Applied, attempts: d.Attempts, tries: d.Tries,
		moved: d.Reason == movedReason, overdue: d.Overdue, denials: d.Denials, form: d.Form,
	}
	if d.Doubt != nil {
		k.doubt = *d.Doubt
	}
	if d.Stop != nil {
		k.stop = *d.Stop
	}
	if k.called {
		k.open = l.open
	}
	copy(k.lost[:], l.lost)
	return k
}

// mostLost bounds the attempts whose answers may still come late.
const mostLost = 2

func attemptID(number int) uuid.UUID { return uuid.UUID{15: byte(number), 0: 0xa} }

// claim is the store's claim with its takeover. It reports whether the row could be claimed.
func (l *life) claim() bool {
	if l.d.State != delivery.Pending {
		return false
	}
	l.d.Token = lease
	if l.d.OpenAttempt != uuid.Nil {
		taken := l.open
		l.apply("takeover", l.d.Takeover(taken))
		if l.lost = append(l.lost, taken); len(l.lost) > mostLost {
			l.lost = slices.Delete(l.lost, 0, 1) // its answer never comes
		}
	}
	return true
}

// judge is what a worker does next with a claimed row: a step, or an attempt.
func (l *life) judge(f delivery.Facts) {
	f.Policy, f.Retries = l.env.Policy, l.env.Retries
	f.Resolved = l.env.Resolved
	f.Answered = f.Answered || f.Resolved
	v := l.d.Judge(f)
	if v.Step != nil {
		l.apply("judge", *v.Step)
		return
	}
	if v.LookUp {
		l.rule(l.d.Doubt != nil && v.Key == l.d.Doubt.Key && v.Operation != delivery.OpEdit, "%s %s is looked up without doubt", v.Operation, v.Key)
		l.apply("look up", l.d.Looked(f.Now, l.look))
		return
	}
	if l.mostAttempts > 0 && l.d.Attempts >= l.mostAttempts {
		return
	}
	l.rule(l.d.Doubt == nil || l.env.Policy.OnUnknown != delivery.Hold || v.Operation == delivery.OpEdit, "a kind that must not be repeated is called again while in doubt")
	l.rule(l.d.Stop == nil || v.Operation == delivery.OpEdit, "something is made although an end was noted")
	if l.d.Doubt != nil && v.Operation != delivery.OpEdit {
		l.rule(v.Key == l.d.Doubt.Key, "the key changed from %s to %s while in doubt", l.d.Doubt.Key, v.Key)
		l.rule(v.Address == l.d.Doubt.Address, "the address %q is not bound while in doubt", v.Address)
		l.rule(v.Repeat == (l.d.Doubt.Scans < 2), "a repeat does not say that it may be one")
	}
	if l.d.Doubt == nil {
		l.rule(v.Address == "" && !v.Repeat, "an address is bound, or a repeat told, without doubt")
	}
	l.d.Attempts++
	address := v.Address
	if address == "" {
		address = fmt.Sprintf("address %d", l.d.Attempts)
	}
	l.open = delivery.Attempt{
		ID: attemptID(l.d.Attempts), Number: l.d.Attempts, Operation: v.Operation, Effect: l.d.Effect, Key: v.Key, Address: address, Revision: v.Revision,
		Form: l.d.Form, Queue: "queue", StartedAt: t0.Add(time.Duration(l.d.Attempts) * time.Minute),
	}
	l.d.OpenAttempt = l.open.ID
}

func (l *life) finish(r delivery.Result) { l.apply("finish", l.d.Finish(l.env, l.open, r)) }

// late is an answer to the i-th taken-over attempt.
func (l *life) late(i int, outcome delivery.Outcome) {
	a := l.lost[i]
	l.lost = slices.Delete(l.lost, i, i+1)
	if s, ok := l.d.Late(l.env, a, outcome, made); ok {
		l.apply("late", s)
	}
}

// maybe applies what an outsider decided, if anything.
func (l *life) maybe(cause string, s delivery.Step, ok bool) {
	if ok {
		l.apply(cause, s)
	}
}

// apply writes a step as the store's SQL does, and checks what the schema's CHECKs and the design's rules demand of it.
func (l *life) apply(cause string, s delivery.Step) {
	d, c := l.d, s.Change()
	l.rule(c.ID == d.ID && c.ExpectToken == d.Token && c.ExpectVersion == d.Version, "%s is not fenced by the row that it was decided on", cause)
	before := d
	d.State, d.Effect, d.Desired, d.Applied, d.Reference, d.Tries, d.Doubt, d.Stop = c.State, c.Effect, c.Desired, c.Applied, c.Reference, c.Tries, c.Doubt, c.Stop
	d.Denials, d.Form, d.Queue, d.Overdue = c.Denials, c.Form, c.Queue, c.Overdue
	if !c.Notes() {
		d.Reason = c.Reason
	}
	if c.Release {
		d.Token = uuid.Nil
	}
	if c.Closes {
		d.OpenAttempt = uuid.Nil
	}
	d.Version++
	due := before.State == delivery.Pending
	switch c.Next {
	case delivery.NextIn:
		due = true
	case delivery.NextNone:
		due = false
	}
	l.rule(due == (c.State == delivery.Pending), "%s: %s must have a due time, and only pending does", cause, c.State)
	l.rule(d.Token == uuid.Nil || c.State == delivery.Pending, "%s leaves a lease on a %s row", cause, c.State)
	l.rule(d.OpenAttempt == uuid.Nil || d.Token != uuid.Nil, "%s leaves an open attempt without a lease", cause)
	l.rule(c.Applied <= c.Desired, "%s: applied %d is above desired %d", cause, c.Applied, c.Desired)
	l.rule(c.Applied >= 0 && c.Tries >= 0, "%s: applied %d, tries %d", cause, c.Applied, c.Tries)
	l.rule(c.Effect == before.Effect || c.Effect == before.Effect+1, "%s: effect %d after %d", cause, c.Effect, before.Effect)
	l.rule(c.Effect == before.Effect || c.Doubt == nil, "%s: a new effect begins in doubt", cause)
	l.rule(c.Stop == nil || !c.State.Settled(), "%s: an end stays noted on a %s row", cause, c.State)
	l.rule(c.Queue == "" || c.State == delivery.Pending && c.Next == delivery.NextIn || c.Notes(), "%s: it waits for a turn and is not due", cause)
	l.rule(!c.Overdue || before.Kind == delivery.Page, "%s: a %s is overdue", cause, before.Kind)
	l.rule(c.Effect == before.Effect || c.Form == delivery.Form{} && c.Denials == 0, "%s: a new effect begins with the losses of the old one", cause)
	l.rule(c.Desired >= before.Desired, "%s takes the wish back from %d to %d", cause, before.Desired, c.Desired)
	l.rule(!before.Reference.IsZero() || c.Reference.IsZero() || cause == "finish" || cause == "late" || cause == "look up", "%s knows a reference that no provider gave", cause)
	l.rule(before.Reference.IsZero() || c.State != delivery.Canceled && !c.State.Dead(), "%s: what is out there is called %s", cause, c.State)
	if before.Doubt != nil && c.Doubt != nil && c.Effect == before.Effect {
		l.rule(c.Doubt.Key == before.Doubt.Key, "%s: the doubt's key changes from %s to %s within an effect", cause, before.Doubt.Key, c.Doubt.Key)
		l.rule(c.Doubt.Revision <= before.Doubt.Revision && !c.Doubt.Since.After(before.Doubt.Since), "%s: the doubt forgets its first attempt", cause)
	}
	if before.Token != uuid.Nil && before.OpenAttempt != uuid.Nil && cause != "finish" && cause != "takeover" {
		l.rule(c.Notes(), "%s moves a row whose attempt is open", cause)
	}
	if c.State.Dead() && !before.State.Dead() {
		l.rule(c.Reason != "", "%s: %s has no reason", cause, c.State)
		l.rule(c.Sentence != "" || c.Reason != "lifetime_over" && c.Reason != "doubt" && c.Reason != "notifier_removed", "%s: %s says nothing to a person", cause, c.Reason)
	}
	l.d = d
	// All references decide alike, and all who look at this row know it by its newest attempt.
	if !l.d.Reference.IsZero() {
		l.d.Reference = made
	}
}

func (l *life) rule(ok bool, format string, args ...any) {
	if !ok {
		l.wrong = append(l.wrong, fmt.Sprintf(format, args...))
	}
}

// answers are the results that a call can have, by name: every one that a decision tells apart.
var answers = map[string]delivery.Result{
	"sent":         {Outcome: delivery.OutcomeSent, Evidence: delivery.Answered, Reference: made},
	"unknown":      {Outcome: delivery.OutcomeUnknown, Evidence: delivery.PossiblySent, Reason: "timeout"},
	"transient":    {Outcome: delivery.OutcomeFailed, Evidence: delivery.NotSent, Fault: delivery.FaultTransient, Reason: "refused"},
	"throttled":    {Outcome: delivery.OutcomeFailed, Evidence: delivery.Answered, Fault: delivery.FaultThrottled, Reason: "rate_limited", RetryAfter: time.Minute},
	"payload":      {Outcome: delivery.OutcomeFailed, Evidence: delivery.Answered, Fault: delivery.FaultPayload, Reason: providerReason, Sentence: "Mend it."},
	"destination":  {Outcome: delivery.OutcomeFailed, Evidence: delivery.Answered, Fault: delivery.FaultDestination, Reason: providerReason, Sentence: "Mend it."},
	"account":      {Outcome: delivery.OutcomeFailed, Evidence: delivery.Answered, Fault: delivery.FaultAccount, Reason: "account:token_revoked", Sentence: "Mend it."},
	"gone":         {Outcome: delivery.OutcomeFailed, Evidence: delivery.Answered, Fault: delivery.FaultGone, Reason: providerReason, Sentence: "It is gone."},
	"denied":       {Outcome: delivery.OutcomeFailed, Evidence: delivery.Answered, Fault: delivery.FaultDenied, Reason: providerReason, Sentence: "Mend it."},
	"moved":        {Outcome: delivery.OutcomeFailed, Evidence: delivery.Answered, Fault: delivery.FaultMoved, Reason: movedReason, MovedTo: "-100"},
	"buttons":      {Outcome: delivery.OutcomeFailed, Evidence: delivery.Answered, Fault: delivery.FaultPayload, Reason: providerReason, Refused: delivery.PartButtons},
	"metadata":     {Outcome: delivery.OutcomeFailed, Evidence: delivery.Answered, Fault: delivery.FaultPayload, Reason: providerReason, Refused: delivery.PartMetadata},
	"not called":   {Outcome: delivery.OutcomeFailed, Evidence: delivery.NotCalled, Reason: "shutdown"},
	"not built":    {Outcome: delivery.OutcomeFailed, Evidence: delivery.NotCalled, Fault: delivery.FaultPayload, Reason: providerReason, Sentence: "Mend it."},
	"nothing":      {},
	"no reference": {Outcome: delivery.OutcomeSent, Evidence: delivery.Answered},
}

// providerReason stands for the reasons that come from a provider's table.
const providerReason = "(provider's)"

const movedReason = "telegram:migrated"

// looks are what a look-up can come to.
var looks = []delivery.Look{{Complete: true}, {Found: made, Complete: true}, {Blind: true, Sentence: "Mend it."}, {}}

// surroundings are what a claimed row of a kind can find around it.
func surroundings(k delivery.Kind) []delivery.Facts {
	all := []delivery.Facts{{Now: t0, CardOver: true}}
	switch k {
	case delivery.Page, delivery.Call, delivery.SMS:
		all = append(all, delivery.Facts{Now: t0, HasCard: true}, delivery.Facts{Now: t0, Answered: true, CardOver: true})
	case delivery.Thread:
		all = []delivery.Facts{{Now: t0, HasCard: true}, {Now: t0, HasCard: true, CardReady: true}, {Now: t0, HasCard: true, CardDead: true}, {Now: t0, CardGone: true}}
	}
	return all
}
