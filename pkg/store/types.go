package store

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/message"
)

// Incident is one row of incident.
type Incident struct {
	ID             uuid.UUID
	Key            string
	Source         string
	Topic          string
	Title          string
	State          message.State // open, acknowledged, resolved
	Criticality    string
	Count          int // firings received, re-sends included
	Firing         int // fingerprints
	Resolved       int // fingerprints
	Truncated      int // alerts that the source left out of its last message
	Revision       int // of what cards show; raised with every visible change
	Sequence       int // last one of the timeline
	OpenedAt       time.Time
	AcknowledgedAt *time.Time
	AcknowledgedBy string
	ResolvedAt     *time.Time
	ResolvedBy     string
	SnoozedUntil   *time.Time // acknowledged, and rings again then
}

// Alert is one fingerprint within an incident.
type Alert struct {
	ID          uuid.UUID
	IncidentID  uuid.UUID
	Fingerprint string
	Topic       string
	Criticality string
	Status      string // firing, resolved
	Title       string
	Text        string
	Labels      map[string]string
	Links       []message.Link
	StartsAt    time.Time
	EndsAt      *time.Time
	Count       int
	FirstSeenAt time.Time
	LastSeenAt  time.Time
}

// NewDelivery is a delivery to be added. Delay is the wait before a worker may take it, from the database's clock at
// the moment of the write. A Dead one is settled as it is made: nobody on call, nowhere to send.
type NewDelivery struct {
	ID         uuid.UUID // uuid v7
	IncidentID uuid.UUID
	ContentID  uuid.UUID // the incident's id for card, thread and page; an own content row for notice and event
	Kind       delivery.Kind
	Notifier   string
	Target     string
	Desired    int
	Delay      time.Duration
	Wait       time.Duration // page: longest wait for the card; Delay is then ignored and the row is due after Wait
	Lifetime   time.Duration // 0: none of its own
	FromDue    bool          // its lifetime counts from the end of Delay, not from its making
	CardID     uuid.UUID     // thread: whose thread it is
	StepID     uuid.UUID     // page: the escalation step that made it
	Reason     string        // why it is there, where that is not plain
	Dead       *Dead
}

// Dead says why a delivery is settled as it is made.
type Dead struct {
	State    delivery.State
	Reason   string
	Sentence string
}

// EscalationStep is one step of an escalation of an incident. Due is from the database's clock at the write.
type EscalationStep struct {
	ID         uuid.UUID
	IncidentID uuid.UUID
	Name       string
	Round      int
	Step       int
	Due        time.Duration // when adding
	DueAt      *time.Time    // when reading; nil: fired or withdrawn
	State      string        // due, fired, withdrawn
	Held       bool          // when reading: a silence holds its escalation
	FiredAt    *time.Time    // when reading
	Reason     string        // when reading: why it was withdrawn
	Rests      bool          // due: when quiet hours are over
}

// Content is what deliveries show.
type Content struct {
	ID       uuid.UUID
	Revision int
	Body     json.RawMessage
}
