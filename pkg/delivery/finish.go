package delivery

import (
	"time"

	"github.com/google/uuid"
)

// Attempt is one recorded call, as far as decisions need it.
type Attempt struct {
	ID        uuid.UUID
	Number    int
	Operation Operation
	Effect    int
	Key       string
	Address   string
	Revision  int // what it showed; thread: the last event that it posted
	Form      Form
	Queue     string // the destination that it went to, as a key
	StartedAt time.Time
}

// Env is what the file says at the moment of the decision, and where the incident stands.
type Env struct {
	Policy   Policy
	Retries  Retries
	Resolved bool          // the incident is resolved
	Forms    bool          // the provider has plainer forms of a message; a JSON body has none
	LookUp   time.Duration // how long after its beginning an attempt in doubt can be looked up; 0: the provider can't be asked
}

// slowTry is the shortest wait between tries that a webhook refused with 401 or 403: a deploy gap lasts minutes.
// deniedTries is how many there are.
const (
	slowTry     = 30 * time.Second
	deniedTries = 3
	minThrottle = time.Second
	// accountWait is how often a delivery looks by itself whether its account is well again; the breaker's end brings it
	// forward.
	accountWait = time.Minute
)

// Finish decides what becomes of a delivery by the result of its attempt. It is called again on a fresh row when
// something was noted meanwhile: the facts of the row win, the result stays.
func (d Delivery) Finish(e Env, a Attempt, r Result) Step {
	c, r := d.stay(), r.Proven()
	if r.Outcome == OutcomeSent {
		return d.sent(c, a, r.Reference, r.Reason)
	}
	if r.Outcome == OutcomeFailed && r.Evidence == NotCalled && r.Fault == FaultNone { // cut before the call: costs nothing
		if d.Stop != nil && a.Operation != OpEdit {
			return d.stopped(c)
		}
		return d.again(c, 0, false, r.Reason, "")
	}
	free := d.spared(&c, e, a, r)
	if !free && r.Fault != FaultThrottled && r.Fault != FaultAccount {
		c.Tries++
	}
	if r.Fault == FaultDenied {
		c.Denials++
	}
	if r.Outcome == OutcomeUnknown {
		c.Doubt = d.doubt(a)
	}
	if d.Stop != nil && a.Operation != OpEdit {
		return d.stopped(c)
	}
	if free {
		return d.again(c, 0, false, r.Reason, r.Sentence)
	}
	if a.Operation == OpEdit {
		return d.editFailed(c, e, a, r)
	}
	if r.Outcome == OutcomeUnknown {
		in := d
		in.Doubt = c.Doubt
		switch {
		case in.looks(e.LookUp):
			// Until then it may still be on its way. This machine's clock measures the call only.
			return d.again(c, max(e.LookUp-r.Duration, 0), false, r.Reason, r.Sentence)
		case e.Policy.OnUnknown == Hold:
			return d.hold(c)
		}
	}
	switch r.Fault {
	case FaultPayload, FaultDestination:
		return d.settle(c, Rejected, r.Reason, r.Sentence)
	case FaultDenied:
		if c.Denials >= deniedTries {
			return d.settle(c, Rejected, r.Reason, r.Sentence)
		}
	case FaultGone:
		switch {
		case a.Operation != OpReply: // it stands under nothing that could be gone
			return d.settle(c, Rejected, r.Reason, r.Sentence)
		case e.Resolved: // nobody makes the card anew, under which the rest could be told
			return d.settle(c, Canceled, "card_dead", r.Sentence)
		}
	}
	return d.retry(c, e, a, r)
}

// spared says that the refusal shows a way to have the same effect at once, which costs no try: without what was refused, at
// the chat's new address, or outside of a thread that takes no replies. c takes the way. Each can be gone once, so there
// is an end.
func (d Delivery) spared(c *Change, e Env, a Attempt, r Result) bool {
	if r.Evidence != Answered {
		return false
	}
	switch r.Fault {
	case FaultPayload:
		form, ok := a.Form.less(r.Refused)
		if ok = ok && e.Forms; ok {
			c.Form = form
		}
		return ok
	case FaultGone:
		if a.Operation != OpReply || a.Form.Root {
			return false
		}
		c.Form = a.Form
		c.Form.Root = true
		return true
	case FaultMoved:
		return a.Operation != OpEdit && r.MovedTo != "" && d.Reason != r.Reason
	}
	return false
}

// stopped ends a delivery in the state that was noted while its attempt was open.
func (d Delivery) stopped(c Change) Step {
	return d.settle(c, d.Stop.State, d.Stop.Reason, stopSentences[d.Stop.Reason])
}

func (d Delivery) hold(c Change) Step {
	return d.settle(c, Held, "doubt", "An attempt may have arrived and this kind is not repeated by itself: find out, then decide.")
}

// retry gives the delivery back with the backoff of its tries, or ends it where the file caps them.
func (d Delivery) retry(c Change, e Env, a Attempt, r Result) Step {
	if r.Fault != FaultThrottled && r.Fault != FaultAccount && e.Retries.Capped && c.Tries > e.Retries.Count {
		return d.settle(c, Exhausted, "retries_used_up", r.Sentence)
	}
	delay := max(e.Retries.Backoff(c.Tries), r.RetryAfter)
	age := a.StartedAt.Add(r.Duration).Sub(d.CreatedAt)
	switch r.Fault {
	case FaultThrottled:
		sentence := r.Sentence
		if sentence == "" {
			sentence = restSentence
		}
		return d.queue(c, max(r.RetryAfter, minThrottle), a.Queue, r.Reason, sentence, age, e.Policy.Wait)
	case FaultAccount: // nothing but a person's hand helps: the account's breaker is open, nothing is lost
		return d.queue(c, accountWait, "", r.Reason, r.Sentence, age, e.Policy.Wait)
	case FaultDenied:
		delay = max(delay, slowTry)
	}
	return d.again(c, delay, true, r.Reason, r.Sentence)
}

// restSentence is what a person should know of a delivery that its provider asked to wait.
const restSentence = "The provider has asked for rest."

// sent records what the provider accepted. What is wished may have moved on meanwhile: then one more call follows.
func (d Delivery) sent(c Change, a Attempt, ref Reference, reason string) Step {
	c.Applied = max(d.Applied, min(a.Revision, d.Desired))
	if a.Operation == OpCreate && a.Effect == d.Effect && !ref.IsZero() {
		c.Reference = ref
	}
	if a.Operation == OpEdit && d.Doubt != nil {
		// An older edit, whose end nobody saw, may overtake this one: show the newest once more.
		c.Applied = min(c.Applied, d.Doubt.Revision)
	}
	return d.done(c, reason)
}

// done ends an effect that is there: what stood in its way is forgotten, and one more call follows where there is more to
// show.
func (d Delivery) done(c Change, reason string) Step {
	if reason == "" && d.Reason == "handed_over" { // why it was made is worth more than nothing
		reason = "handed_over"
	}
	c.Tries, c.Denials, c.Form, c.Doubt, c.Stop, c.Overdue = 0, 0, Form{}, nil, nil, false
	if d.more(c) {
		return d.again(c, 0, false, "", "")
	}
	return d.settle(c, Sent, reason, "")
}

// more says that a sent delivery has something newer to show and can show it.
func (d Delivery) more(c Change) bool {
	switch d.Kind {
	case Thread:
		return c.Applied < c.Desired
	case Card, Page:
		return c.Applied < c.Desired && !c.Reference.IsZero()
	}
	return false
}

// editFailed never takes sent away: what was made is there, only its newest face is not.
func (d Delivery) editFailed(c Change, e Env, a Attempt, r Result) Step {
	switch r.Fault {
	case FaultGone, FaultMoved: // the messages of a chat that moved have other numbers now
		if d.Kind == Card && !e.Resolved {
			// The object was taken away while it is still needed: make a new one.
			c.Effect, c.Applied, c.Tries, c.Denials, c.Form, c.Reference, c.Doubt = d.Effect+1, 0, 0, 0, Form{}, Reference{}, nil
			return d.again(c, 0, false, r.Reason, r.Sentence)
		}
		return d.stale(c, r.Sentence)
	case FaultPayload, FaultDestination:
		return d.stale(c, r.Sentence)
	case FaultDenied:
		if c.Denials >= deniedTries {
			return d.stale(c, r.Sentence)
		}
	}
	s := d.retry(c, e, a, r)
	if s.change.State == Exhausted {
		return d.stale(c, r.Sentence)
	}
	return s
}

// stale leaves what was made as it is, although it does not show the newest. The next revision is tried afresh.
func (d Delivery) stale(c Change, sentence string) Step {
	c.Tries, c.Denials, c.Form = 0, 0, Form{}
	return d.settle(c, Sent, "edit_failed", sentence)
}

// doubt is the row's doubt after one more attempt of the same effect ended unknown. The oldest attempt keeps its date,
// the lowest revision counts: what is found later shows at least that.
func (d Delivery) doubt(a Attempt) *Doubt {
	n := Doubt{Effect: a.Effect, Key: a.Key, Address: a.Address, Since: a.StartedAt, Revision: a.Revision, Through: a.Revision, Last: a.StartedAt}
	if d.Doubt != nil && d.Doubt.Effect == a.Effect && d.Doubt.Key == a.Key {
		n.Since, n.Revision, n.Through = d.Doubt.Since, min(n.Revision, d.Doubt.Revision), d.Doubt.Through
	}
	return &n
}

// Takeover marks a row whose lease ran out over an open attempt: the attempt was closed as unknown by the caller in the
// same transaction. The lease stays with the new owner, who judges it next.
func (d Delivery) Takeover(a Attempt) Step {
	c := d.stay()
	c.Closes = true
	c.Tries++
	c.Reason, c.Doubt, c.Queue = "takeover", d.doubt(a), ""
	return d.step(c)
}
