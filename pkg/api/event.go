package api

import "time"

// LiveEvent is one event of GET /v1/events: the data of its line. Which of the parts is there follows from the type.
type LiveEvent struct {
	ID       int64         `json:"id,omitempty"`
	Topic    string        `json:"topic"`
	Type     string        `json:"type,omitempty"`
	At       *time.Time    `json:"at,omitempty"`
	Alert    *LiveAlert    `json:"alert,omitempty"`
	Incident *Incident     `json:"incident,omitempty"`
	Delivery *LiveDelivery `json:"delivery,omitempty"`
	OnCall   *LiveOnCall   `json:"oncall,omitempty"`
	Reason   string        `json:"reason,omitempty"` // of dropped and missed, for programs
	Detail   string        `json:"detail,omitempty"` // the same for people
}

// The types of live events. EventDropped and EventMissed are about the stream itself.
const (
	EventAlert        = "alert"
	EventOpened       = "incident.opened"
	EventAcknowledged = "incident.acknowledged"
	EventResolved     = "incident.resolved"
	EventDead         = "delivery.dead"
	EventOnCall       = "oncall.changed"
	EventDropped      = "dropped"
	EventMissed       = "missed"
)

// LiveAlert is an accepted alert.
type LiveAlert struct {
	ID          string            `json:"id"`
	IncidentID  string            `json:"incident_id"`
	Source      string            `json:"source"`
	Status      string            `json:"status"`
	Title       string            `json:"title"`
	Criticality string            `json:"criticality"`
	Labels      map[string]string `json:"labels"`
	StartsAt    time.Time         `json:"starts_at"`
}

// LiveDelivery is a delivery that died.
type LiveDelivery struct {
	ID         string `json:"id"`
	IncidentID string `json:"incident_id,omitempty"`
	Kind       string `json:"kind"`
	Notifier   string `json:"notifier"`
	Target     string `json:"target"`
	State      string `json:"state"`
	Reason     string `json:"reason"`
	Sentence   string `json:"sentence"`
}

// LiveOnCall is who is on call in a schedule from now on.
type LiveOnCall struct {
	Schedule string     `json:"schedule"`
	Users    []Person   `json:"users"`
	Layer    string     `json:"layer,omitempty"`
	Until    *time.Time `json:"until,omitempty"`
	Before   []Person   `json:"before"`
}
