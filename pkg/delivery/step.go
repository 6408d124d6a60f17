package delivery

import (
	"time"

	"github.com/google/uuid"
)

// Step is one decided move of one delivery. Only this package can make one, and the store accepts nothing else; it
// writes the [Change] as it stands, if the row is still the one that the decision was made on.
type Step struct {
	from   Delivery
	change Change
}

// Change is a Step laid open for the one who writes it.
type Change struct {
	ID            uuid.UUID
	ExpectToken   uuid.UUID // the lease token that the row must still have; zero: it must be free
	ExpectVersion int64     // the version that the row must still have

	State     State
	Reason    string
	Sentence  string
	Effect    int
	Desired   int
	Applied   int
	Reference Reference
	Tries     int
	Denials   int
	Form      Form
	Doubt     *Doubt
	Stop      *Stop
	Queue     string // the destination whose turn it waits for
	Overdue   bool

	// Next says what becomes of next_at. The store adds Delay to the database's clock at the moment of the write.
	Next    Next
	Delay   time.Duration
	Jitter  bool // spread the delay upward by up to a tenth, so that replicas don't knock in step
	Release bool // the lease ends with this write
	Closes  bool // the open attempt is no longer open
	Renew   bool // its lifetime, where it has one, begins anew

	Expires time.Duration // more than 0: it lives that long from the write on
}

// Next says what a write does to next_at.
type Next int

// The three ways: leave it to its owner, set it from now, clear it because the delivery is settled.
const (
	NextKeep Next = iota
	NextIn
	NextNone
)

// Change lays the step open. It is the only way to see into one.
func (s Step) Change() Change { return s.change }

// From is the delivery that the decision was made on.
func (s Step) From() Delivery { return s.from }

// To is the state that the step leads to.
func (s Step) To() State { return s.change.State }

// On is the step on a newer state of its row, where nothing but a greater wish was noted since: the decision is the same there.
// False where it is not, or where the row is somebody else's by now.
func (s Step) On(d Delivery) (Step, bool) {
	from, c := s.from, s.change
	if d.ID != from.ID || d.Token != from.Token || d.Token == uuid.Nil || d.OpenAttempt != from.OpenAttempt || d.Stop != nil || from.Stop != nil {
		return Step{}, false
	}
	c.ExpectVersion, c.Desired = d.Version, max(c.Desired, d.Desired)
	if c.State == Sent && d.more(c) {
		return Step{}, false
	}
	return Step{from: d, change: c}, true
}

// Moves says that the step changes the state, not only what is noted.
func (s Step) Moves() bool { return s.from.State != s.change.State }

// stay is the change that changes nothing: the base of every decision.
func (d Delivery) stay() Change {
	return Change{
		ID: d.ID, ExpectToken: d.Token, ExpectVersion: d.Version,
		State: d.State, Reason: d.Reason, Sentence: "", Effect: d.Effect, Desired: d.Desired, Applied: d.Applied,
		Reference: d.Reference, Tries: d.Tries, Denials: d.Denials, Form: d.Form, Doubt: d.Doubt, Stop: d.Stop, Queue: d.Queue, Overdue: d.Overdue,
	}
}

func (d Delivery) step(c Change) Step { return Step{from: d, change: c} }

// settle ends the delivery in a done or dead state. A lease ends with it.
func (d Delivery) settle(c Change, to State, reason, sentence string) Step {
	c.State, c.Reason, c.Sentence = to, reason, sentence
	c.Next, c.Release, c.Closes, c.Stop, c.Queue = NextNone, true, true, nil, ""
	return d.step(c)
}

// again gives the delivery back to the queue, due after delay.
func (d Delivery) again(c Change, delay time.Duration, jitter bool, reason, sentence string) Step {
	c.State, c.Reason, c.Sentence = Pending, reason, sentence
	c.Next, c.Delay, c.Jitter, c.Release, c.Closes, c.Queue = NextIn, delay, jitter, true, true, ""
	return d.step(c)
}

// queue gives the delivery back to wait for its destination's turn: its place among those that wait is kept, and a page
// that waits longer than its bound is overdue. age is how long ago it was made.
func (d Delivery) queue(c Change, delay time.Duration, queue, reason, sentence string, age, bound time.Duration) Step {
	// Many short waits are a long one.
	often := d.Queue != "" && age > 2*bound
	if d.Kind == Page && !d.edits() && (delay > max(bound-age, shortWait) || often) {
		c.Overdue = true
	}
	s := d.again(c, delay, false, reason, sentence)
	s.change.Queue = queue
	return s
}

// shortWait is a wait that nobody minds: the usual one for a slot.
const shortWait = time.Second

// note changes facts and leaves state, lease and due time to their owner.
func (d Delivery) note(c Change) Step {
	c.Sentence = ""
	return d.step(c)
}

// Notes says that the step leaves state, reason, lease and due time alone: its reason and sentence are not written.
func (c Change) Notes() bool { return c.Next == NextKeep && !c.Release && !c.Closes }
