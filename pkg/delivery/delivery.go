// Package delivery decides what becomes of a delivery: one promise to one target through one notifier.
//
// It is pure. It knows no clock, no SQL and no HTTP: the database's time comes in as data, and a decision goes out
// as a [Step], which only this package can make and which the store writes as it stands. The states and the arrows
// between them are drawn in states.txt beside this file; a test compares the drawing with the code.
package delivery

import (
	"strconv"
	"time"

	"github.com/google/uuid"
)

// State is where a delivery stands. Its values are the text stored in the database and shown everywhere.
type State string

// The states. Pending is the only one in which a worker acts. Sent, Assumed and Canceled are done; the other five
// are dead: they wait for a person's decision.
const (
	Pending     State = "pending"
	Sent        State = "sent"        // the provider accepted it and named what it made
	Assumed     State = "assumed"     // a person's word, not the provider's
	Canceled    State = "canceled"    // acknowledged, resolved or withdrawn before it went out
	Rejected    State = "rejected"    // the provider said no, for good
	Unreachable State = "unreachable" // nowhere to send: nobody on call, no address, notifier off
	Held        State = "held"        // in doubt, and the kind must not be repeated
	Exhausted   State = "exhausted"   // retries.count used up
	Expired     State = "expired"     // its lifetime is over
)

// States lists every state in the order in which people read them.
var States = []State{Pending, Sent, Assumed, Canceled, Rejected, Unreachable, Held, Exhausted, Expired}

// Dead says that the state waits for a person's decision.
func (s State) Dead() bool {
	switch s {
	case Rejected, Unreachable, Held, Exhausted, Expired:
		return true
	}
	return false
}

// Settled says that no worker acts on the delivery: it is done or dead.
func (s State) Settled() bool { return s != Pending }

// Kind is what a delivery is for. It chooses the policy.
type Kind string

// The kinds, by falling priority.
const (
	Page   Kind = "page"
	Call   Kind = "call"
	SMS    Kind = "sms"
	Card   Kind = "card"
	Thread Kind = "thread"
	Notice Kind = "notice"
	Event  Kind = "event"
	Bulk   Kind = "bulk"
)

// Kinds lists every kind by falling priority.
var Kinds = []Kind{Page, Call, SMS, Card, Thread, Notice, Event, Bulk}

// Priority orders the queue: smaller goes first. Page 0, card 1, thread 2, notice and event 3, bulk 4.
func (k Kind) Priority() int {
	switch k {
	case Page, Call, SMS:
		return 0
	case Card:
		return 1
	case Thread:
		return 2
	case Notice, Event:
		return 3
	}
	return 4
}

// Outcome is what is known of one attempt. An open attempt has none: the empty string.
type Outcome string

// The three outcomes. Failed is proof that nothing was made; Sent is the provider's word with the reference where it
// gives one; Unknown is all the rest.
const (
	OutcomeSent    Outcome = "sent"
	OutcomeFailed  Outcome = "failed"
	OutcomeUnknown Outcome = "unknown"
)

// Evidence is how far a call got.
type Evidence string

// The four kinds of evidence, from nothing to an answer.
const (
	NotCalled    Evidence = "not_called"
	NotSent      Evidence = "not_sent"      // called, and not one byte was written
	PossiblySent Evidence = "possibly_sent" // bytes left, no usable answer came
	Answered     Evidence = "answered"
)

// Phase is how far a call got on the wire. Evidence says what follows from it.
type Phase string

// The phases, in their order. The empty one: nothing was called, or there is no wire.
const (
	PhaseDNS     Phase = "dns"     // looking up the name
	PhaseConnect Phase = "connect" // opening the connection
	PhaseTLS     Phase = "tls"     // shaking hands
	PhaseRequest Phase = "request" // connected: writing, or waiting for the answer
	PhaseAnswer  Phase = "answer"  // the answer has begun
)

// Operation is what one call does at the provider.
type Operation string

// The operations. A create makes a new object, a reply makes one in the thread of another, an edit makes none.
const (
	OpCreate Operation = "create"
	OpEdit   Operation = "edit"
	OpReply  Operation = "reply"
)

// Fault says why an attempt did not end as sent, as far as it changes what comes next.
type Fault string

// The faults. Which provider answer is which stands in each provider's table.
const (
	FaultNone        Fault = ""            // sent; or unknown with nothing more to say
	FaultTransient   Fault = "transient"   // nothing happened, try again after the backoff
	FaultThrottled   Fault = "throttled"   // 429: nothing happened, wait as told, costs no try
	FaultPayload     Fault = "payload"     // the provider refuses this content for good
	FaultDestination Fault = "destination" // channel gone, bot blocked, URL wrong: a person must mend the destination
	FaultAccount     Fault = "account"     // token revoked, scope missing: a person must mend the credentials
	FaultGone        Fault = "gone"        // an edit's object, or a reply's parent, is not there any more
	FaultDenied      Fault = "denied"      // 401 and 403 of a webhook: rejected after three slow tries
	FaultMoved       Fault = "moved"       // the chat has another id now, and nothing was made: see MovedTo
)

// Reference holds the coordinates of the object that a provider made. Only the provider's own fields are set.
type Reference struct {
	Channel   string `json:"channel,omitempty"`    // Slack: resolved channel id (a user id comes back as a D id)
	TS        string `json:"ts,omitempty"`         // Slack: message ts
	ChatID    int64  `json:"chat_id,omitempty"`    // Telegram
	MessageID int    `json:"message_id,omitempty"` // Telegram
	SID       string `json:"sid,omitempty"`        // Twilio
	Permalink string `json:"permalink,omitempty"`  // a link for people, where the provider has one
}

// At is when the object was made, by the provider's clock, where the coordinates tell it: Slack's ts is seconds.
func (r Reference) At() (time.Time, bool) {
	seconds, err := strconv.ParseFloat(r.TS, 64)
	if err != nil || seconds < 1 || seconds > 1e11 {
		return time.Time{}, false
	}
	return time.UnixMicro(int64(seconds * 1e6)), true
}

// IsZero says that nothing is known to have been made.
func (r Reference) IsZero() bool { return r == Reference{} }

// Result is what one call came to: the outcome with all the evidence for it. Providers make it; [Delivery.Finish]
// decides on it; the store keeps it in the attempt's row. All text in it is redacted already.
type Result struct {
	Outcome    Outcome
	Evidence   Evidence
	Fault      Fault
	Reason     string        // from the closed list of reasons, e.g. "timeout", "slack:channel_not_found", "destination:not_in_channel"
	Sentence   string        // what a person should know or do, in one sentence; empty where the reason says it all
	Code       string        // the provider's own code
	Unlisted   bool          // no table knows Code: somebody should look what it means
	HTTPStatus int           // 0: no answer
	RetryAfter time.Duration // with FaultThrottled; with unknown: the provider asks for this much rest before the next call
	Refused    Part          // with FaultPayload: what of the content alone is refused; empty: the whole
	MovedTo    string        // with FaultMoved: the address that takes the old one's place from now on
	Reference  Reference     // with OutcomeSent
	Error      string        // for the log and the history
	Answer     string        // first 2 kB of the provider's answer
	Phase      Phase         // how far the call got
	Bytes      int64         // bytes of the request written on the connection, handshakes not counted
	DNS        time.Duration // each phase's time; 0 where the phase was not reached
	Connect    time.Duration
	TLS        time.Duration
	FirstByte  time.Duration
	Duration   time.Duration
}

// Proven is the result as far as it proves something. Failed is believed only with evidence that nothing was made; what
// is neither sent nor failed is unknown, and has no fault: what may have happened was not refused.
func (r Result) Proven() Result {
	switch r.Evidence {
	case NotCalled, NotSent, PossiblySent, Answered:
	default:
		r.Evidence = PossiblySent
	}
	if r.Outcome != OutcomeSent && (r.Outcome != OutcomeFailed || r.Evidence == PossiblySent) {
		r.Outcome = OutcomeUnknown
	}
	if r.Outcome != OutcomeFailed {
		r.Fault = FaultNone
	}
	return r
}

// Doubt is set while an attempt of the current effect may have had an effect that nobody saw. While it lasts, key
// and address stay what they were.
type Doubt struct {
	Effect   int
	Key      string
	Address  string
	Since    time.Time
	Revision int // the lowest revision in doubt
	Through  int // thread: the last sequence of the reply in doubt; its range is frozen

	Last    time.Time // when the latest attempt in doubt began
	Scans   int       // complete look-ups since then that did not find it
	Scanned time.Time // the latest of them
	Blind   bool      // it can't be looked up: the policy decides
}

// Stop is a settling that was noted on a delivery while its attempt was open: the outcome decides whether it counts.
type Stop struct {
	State  State
	Reason string
}

// Delivery is what the store knows of one delivery, as far as decisions need it.
type Delivery struct {
	ID         uuid.UUID
	IncidentID uuid.UUID // zero: belongs to no incident
	ContentID  uuid.UUID // whose snapshot it shows: the incident's, or a notification's own
	Kind       Kind
	Notifier   string
	Target     string
	State      State
	Reason     string
	Effect     int // counts from 1
	Desired    int // card, page: revision wished. Thread: newest sequence
	Applied    int // what the provider last accepted
	Reference  Reference
	Attempts   int // number of the last attempt
	Tries      int // failed and unknown attempts since the last one that was sent, of the current effect
	Denials    int // those of them that a webhook refused with 401 or 403
	Form       Form
	Doubt      *Doubt
	Stop       *Stop
	CardID     uuid.UUID // thread: whose thread it is; page: whose link it carries
	WaitUntil  time.Time // page: waits for the card at most until then
	ExpiresAt  time.Time // zero: no lifetime of its own
	CreatedAt  time.Time
	Queue      string // the destination whose turn it waits for; empty: it waits for none
	Overdue    bool   // page: kept back longer than its bound, so that the escalation goes on without it

	Token       uuid.UUID // lease token; zero: not leased
	Version     int64
	OpenAttempt uuid.UUID // zero: none
}

// Leased says that a worker owns the row.
func (d Delivery) Leased() bool { return d.Token != uuid.Nil }
