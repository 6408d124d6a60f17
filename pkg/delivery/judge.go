package delivery

import (
	"strconv"
	"time"
)

// Facts are what is known around a claimed delivery when it is judged. Now is the database's clock.
type Facts struct {
	Now      time.Time
	Resolved bool // its incident is resolved
	Answered bool // its incident is acknowledged or resolved
	Policy   Policy
	Retries  Retries       // of its notifier, as the file says now
	LookUp   time.Duration // how long after its beginning an attempt in doubt can be looked up; 0: the provider can't be asked

	// Page: the incident's cards. Thread: its one card.
	HasCard   bool // there is a card to wait for
	CardReady bool // a card has a reference
	CardOver  bool // every card's first attempt is over, by outcome, takeover or death
	CardDead  bool // thread: the card is settled without a reference and nothing will make one
	CardGone  bool // thread: the card's row is not there
}

// Verdict is what a worker does with a claimed delivery: settle or park it by Step, or make one call.
type Verdict struct {
	Step      *Step
	Operation Operation
	Revision  int // card, page: what the call will show at least. Thread: the last event that it posts
	Since     int // thread: the last event posted before
	Key       string
	Address   string // not empty: bound by an earlier attempt in doubt
	Repeat    bool   // an earlier attempt of this effect may have arrived: say so in small print
	LookUp    bool   // look for the effect in doubt instead of making it: see Looked
}

// ThreadWait is how often a thread looks for its card by itself; the card's first attempt brings it forward.
const ThreadWait = 30 * time.Second

// Judge decides what a freshly claimed delivery without an open attempt needs: doubt and policy first.
func (d Delivery) Judge(f Facts) Verdict {
	done := func(s Step) Verdict { return Verdict{Step: &s} }
	settle := func(to State, reason string) Verdict {
		return done(d.settle(d.stay(), to, reason, stopSentences[reason]))
	}
	park := func(delay time.Duration, reason string) Verdict {
		return done(d.again(d.stay(), delay, false, reason, ""))
	}
	edits, looks := d.edits(), d.looks(f.LookUp)
	switch {
	case d.Stop != nil && !edits:
		// Noted while an attempt was open that is closed by now: nothing more may be made.
		return done(d.stopped(d.stay()))
	case d.Doubt != nil && f.Policy.OnUnknown == Hold && !edits && !looks && d.Doubt.Scans < looksNeeded:
		return done(d.hold(d.stay()))
	case !edits && !d.ExpiresAt.IsZero() && !f.Now.Before(d.ExpiresAt):
		return settle(Expired, "lifetime_over")
	case f.Retries.Capped && d.Tries > f.Retries.Count && !looks:
		// The last try was taken over, or the file's count was lowered meanwhile.
		if edits {
			return done(d.stale(d.stay(), stopSentences["retries_used_up"]))
		}
		return settle(Exhausted, "retries_used_up")
	}

	v := Verdict{Operation: OpCreate, Revision: d.Desired, Key: d.Key()}
	if d.Doubt != nil && !edits { // an edit in doubt binds nothing: the object has its place
		v.Key, v.Address, v.Repeat = d.Doubt.Key, d.Doubt.Address, d.Doubt.Scans < looksNeeded
	}
	switch d.Kind {
	case Page, Call, SMS:
		if edits {
			v.Operation = OpEdit
			break
		}
		if f.Answered {
			reason := "acknowledged"
			if f.Resolved {
				reason = "resolved"
			}
			return settle(Canceled, reason)
		}
		if left := d.WaitUntil.Sub(f.Now); !d.WaitUntil.IsZero() && left > 0 && f.HasCard && !f.CardReady && !f.CardOver {
			return park(left, "waiting_for_card")
		}
	case Card:
		if edits {
			v.Operation = OpEdit
		}
	case Thread:
		switch {
		case f.CardGone, f.CardDead:
			return settle(Canceled, "card_dead")
		case !f.CardReady:
			return park(ThreadWait, "waiting_for_card")
		}
		v.Operation, v.Since = OpReply, d.Applied
		if d.Doubt != nil {
			v.Revision = d.Doubt.Through // the range of a reply in doubt is frozen with its key
		}
	}
	if d.Applied >= d.Desired && (v.Operation == OpEdit || v.Operation == OpReply) {
		return settle(Sent, d.Reason)
	}
	if looks {
		if left := d.lookIn(f.Now, f.LookUp); left > 0 {
			return park(left, "doubt")
		}
		v.LookUp = true
	}
	return v
}

// edits says that the next call would change an object that exists, not make one.
func (d Delivery) edits() bool {
	return (d.Kind == Card || d.Kind == Page) && !d.Reference.IsZero()
}

// Key is the effect key of the next create or reply: the same on every repeat of one effect. A thread's replies are
// an effect each, told apart by the last event posted before.
func (d Delivery) Key() string {
	k := d.ID.String() + ":" + strconv.Itoa(d.Effect)
	if d.Kind == Thread {
		k += ":" + strconv.Itoa(d.Applied+1)
	}
	return k
}

// Unreachable ends a claimed delivery that has nowhere to go, without an attempt. What was made before stays sent.
func (d Delivery) Unreachable(reason, sentence string) Step {
	if d.edits() {
		return d.stale(d.stay(), sentence)
	}
	return d.settle(d.stay(), Unreachable, reason, sentence)
}

// Reject ends a claimed delivery that can't be sent as it is, without an attempt. What was made before stays sent.
func (d Delivery) Reject(reason, sentence string) Step {
	if d.edits() {
		return d.stale(d.stay(), sentence)
	}
	return d.settle(d.stay(), Rejected, reason, sentence)
}

// Queued returns a claimed delivery that its destination's pace, a pause or a breaker keeps back. queue is the destination
// whose turn it waits for, empty where all of the account rests.
func (d Delivery) Queued(f Facts, delay time.Duration, queue, reason, sentence string) Step {
	return d.queue(d.stay(), delay, queue, reason, sentence, f.Now.Sub(d.CreatedAt), f.Policy.Wait)
}

// GiveBack returns a claimed delivery without an attempt, due after delay: its place is taken, its slot lies later,
// or the replica stops.
func (d Delivery) GiveBack(delay time.Duration, reason string) Step {
	return d.again(d.stay(), delay, false, reason, "")
}
