package delivery

import (
	"fmt"
	"time"

	"github.com/google/uuid"
)

// Raise wishes a newer revision: for a card and a page what it shows, for a thread the last event. Nothing is sent
// here; a worker does that. The second result is false when there is nothing to write.
func (d Delivery) Raise(revision int) (Step, bool) {
	if revision <= d.Desired {
		return Step{}, false
	}
	c := d.stay()
	c.Desired = revision
	if d.State == Sent && d.more(c) {
		return d.again(c, 0, false, "", ""), true
	}
	// Pending: the row is due by its own time already, and a pause or backoff is not cut short. Else only noted.
	return d.note(c), true
}

// ThreadAfter is how long a thread goes on trying to tell the rest after its incident has ended.
const ThreadAfter = 24 * time.Hour

// Close is Raise for the last time, as the incident ends: what the thread has not told within ThreadAfter is not told.
func (d Delivery) Close(sequence int) (Step, bool) {
	s, ok := d.Raise(sequence)
	s.change.Expires = ThreadAfter
	return s, ok
}

// Cancel withdraws a delivery that is not out yet. reason is acknowledged, resolved or canceled_by. A row whose attempt
// is open is only marked: the outcome decides. A page or card that exists is not withdrawn but raised.
func (d Delivery) Cancel(reason string) (Step, bool) { return d.stop(Canceled, reason) }

// Withdraw cancels a notice about a shift that is none any more.
func (d Delivery) Withdraw() (Step, bool) { return d.stop(Canceled, "shift_removed") }

// Answer tells a page that someone answered: its incident was acknowledged or resolved at the given revision. What is
// not out is withdrawn; what is out, or may be by the call in flight, shows by whom.
func (d Delivery) Answer(reason string, revision int) (Step, bool) {
	if d.State != Pending || d.edits() {
		return d.Raise(revision)
	}
	s, ok := d.Cancel(reason)
	switch {
	case !ok: // an end was noted before this one; should the call in flight have arrived all the same, it shows this
		return d.Raise(revision)
	case s.change.State == Pending: // only noted
		s.change.Desired = max(d.Desired, revision)
	}
	return s, true
}

// Expire ends a delivery whose lifetime is over, by the same rules.
func (d Delivery) Expire() (Step, bool) { return d.stop(Expired, "lifetime_over") }

// Remove ends a delivery whose notifier no live replica knows any more, by the same rules. An edit that waits for it is
// given up: what was made stays sent.
func (d Delivery) Remove() (Step, bool) { return d.give(Rejected, "notifier_removed") }

// Exhaust ends a delivery whose tries lie above a cap that was lowered meanwhile, by the same rules.
func (d Delivery) Exhaust() (Step, bool) { return d.give(Exhausted, "retries_used_up") }

// give is stop for ends after which nobody takes up an edit either.
func (d Delivery) give(to State, reason string) (Step, bool) {
	if d.State == Pending && d.edits() && d.OpenAttempt == uuid.Nil {
		return d.stale(d.stay(), stopSentences[reason]), true
	}
	return d.stop(to, reason)
}

func (d Delivery) stop(to State, reason string) (Step, bool) {
	if d.State != Pending || d.edits() {
		return Step{}, false
	}
	c := d.stay()
	if d.OpenAttempt != uuid.Nil {
		if d.Stop != nil {
			return Step{}, false // the first reason stays
		}
		c.Stop = &Stop{State: to, Reason: reason}
		return d.note(c), true
	}
	// A lease without an attempt is cleared at once: its begin then changes no row and calls nothing.
	return d.settle(c, to, reason, stopSentences[reason]), true
}

// stopSentences say what a person should know of an end that no provider explains.
var stopSentences = map[string]string{
	"card_dead":        "Its card could not be made; send the card again to revive the thread.",
	"lifetime_over":    "Its time was over before it could be sent.",
	"notifier_removed": "No replica's file has its notifier any more: put it back, then send again.",
	"retries_used_up":  "The notifier's retries.count is used up.",
}

// Action is a person's decision.
type Action string

// The decisions that a person can make.
const (
	AssumeDelivered Action = "assume_delivered"
	CancelIt        Action = "cancel"
	SendAgain       Action = "send_again"
)

// Refusal says why a decision can't be made on a delivery.
type Refusal struct {
	Action Action
	State  State
	Why    string
}

func (r *Refusal) Error() string {
	return fmt.Sprintf("%s is not possible on a delivery that is %s: %s", r.Action, r.State, r.Why)
}

// Decide applies a person's word. A no never becomes a yes: assume_delivered needs an attempt of the current effect in
// doubt. Send again is a new effect: a new key, the address resolved anew.
func (d Delivery) Decide(a Action) (Step, error) {
	refuse := func(why string) (Step, error) { return Step{}, &Refusal{Action: a, State: d.State, Why: why} }
	c := d.stay()
	switch a {
	case AssumeDelivered:
		switch {
		case d.State == Rejected || d.State == Unreachable:
			return refuse("nothing was delivered")
		case !d.State.Dead():
			return refuse("only a dead delivery with an attempt in doubt can be assumed delivered")
		case d.Doubt == nil || d.Doubt.Effect != d.Effect:
			return refuse("no attempt of its current effect is in doubt")
		}
		return d.settle(c, Assumed, "assumed", ""), nil
	case CancelIt:
		switch {
		case d.State.Dead():
			return d.settle(c, Canceled, "canceled_by", ""), nil
		case d.State == Pending:
			if s, ok := d.Cancel("canceled_by"); ok {
				return s, nil
			}
			if d.Stop != nil {
				return refuse("its end is noted already and waits for the answer to the call in flight")
			}
			return refuse("what it shows is out already")
		}
		return refuse("it is over")
	case SendAgain:
		if !d.State.Dead() {
			return refuse("only a dead delivery can be sent again")
		}
		c.Effect, c.Tries, c.Denials, c.Form, c.Doubt, c.Reference, c.Overdue, c.Renew = d.Effect+1, 0, 0, Form{}, nil, Reference{}, false, true
		if d.Kind != Thread { // a thread goes on where it was
			c.Applied = 0
		}
		return d.again(c, 0, false, "", ""), nil
	}
	return refuse("no such decision; use assume_delivered, cancel or send_again")
}

// Revive takes up a thread that was closed because its card was dead, now that the card is sent again.
func (d Delivery) Revive() (Step, bool) {
	if d.Kind != Thread || d.State != Canceled || d.Reason != "card_dead" {
		return Step{}, false
	}
	return d.again(d.stay(), 0, false, "", ""), true
}
