package card

import (
	"encoding/json"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/message"
)

// The types of events, one per change of an incident.
const (
	EventOpened       = "incident.opened"
	EventAcknowledged = "incident.acknowledged"
	EventResolved     = "incident.resolved"
)

// EventOf is the type and the time of the change that brought the incident into the snapshot's state. An event's
// content is written once, with the change, so that every repeat of it has the same bytes.
func EventOf(s Snapshot) (typ string, at time.Time) {
	switch {
	case s.State == message.Resolved && s.ResolvedAt != nil:
		return EventResolved, *s.ResolvedAt
	case s.State == message.Acknowledged && s.AcknowledgedAt != nil:
		return EventAcknowledged, *s.AcknowledgedAt
	}
	return EventOpened, s.OpenedAt
}

// eventBody and eventIncident are the wire: names as in the HTTP interface.
type eventBody struct {
	Type      string    `json:"type"`
	Timestamp time.Time `json:"timestamp"`
	Data      eventData `json:"data"`
}

type eventData struct {
	Incident eventIncident `json:"incident"`
}

type eventIncident struct {
	ID             string            `json:"id"`
	Key            string            `json:"key"`
	Topic          string            `json:"topic"`
	Title          string            `json:"title"`
	Text           string            `json:"text,omitempty"`
	State          message.State     `json:"state"`
	Criticality    string            `json:"criticality"`
	Revision       int               `json:"revision"`
	Count          int               `json:"count"`
	Firing         int               `json:"firing"`
	Resolved       int               `json:"resolved"`
	Truncated      int               `json:"truncated,omitempty"`
	OpenedAt       time.Time         `json:"opened_at"`
	AcknowledgedAt *time.Time        `json:"acknowledged_at"`
	AcknowledgedBy string            `json:"acknowledged_by"`
	ResolvedAt     *time.Time        `json:"resolved_at"`
	ResolvedBy     string            `json:"resolved_by"`
	Labels         map[string]string `json:"labels"`
	Links          []message.Link    `json:"links"`
	Alerts         []Alert           `json:"alerts"`
}

// Event is the body of a webhook call and the line of a log: what happened, when, and the incident after it. The same
// arguments give the same bytes, so that a repeat under one key is the same event.
func Event(s Snapshot, typ string, at time.Time) []byte {
	in := eventIncident{
		ID: s.IncidentID, Key: s.Key, Topic: s.Topic, Title: s.Title, Text: s.Text, State: s.State, Criticality: s.Criticality,
		Revision: s.Revision, Count: s.Count, Firing: s.Firing, Resolved: s.Resolved, Truncated: s.Truncated,
		OpenedAt: s.OpenedAt.UTC(), AcknowledgedAt: utc(s.AcknowledgedAt), AcknowledgedBy: s.AcknowledgedBy,
		ResolvedAt: utc(s.ResolvedAt), ResolvedBy: s.ResolvedBy,
		Labels: s.Labels, Links: s.Links, Alerts: s.Alerts,
	}
	// Receivers iterate over these: an empty list is kinder than null.
	if in.Labels == nil {
		in.Labels = map[string]string{}
	}
	if in.Links == nil {
		in.Links = []message.Link{}
	}
	if in.Alerts == nil {
		in.Alerts = []Alert{}
	}
	body, err := json.Marshal(eventBody{Type: typ, Timestamp: at.UTC(), Data: eventData{Incident: in}})
	if err != nil {
		// Strings, integers and times only: a time beyond the year 9999 is the one thing that cannot be written.
		panic("card: an event cannot be written: " + err.Error())
	}
	return body
}

func utc(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	u := t.UTC()
	return &u
}
