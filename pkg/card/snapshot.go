// Package card says what an incident looks like: the card, its thread's replies, the page, the notice and the event
// body, each as a neutral message made from a snapshot. It is pure.
package card

import (
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/message"
)

// Snapshot is what an incident looks like at one revision. It is stored as JSON beside the deliveries that show it and
// holds at most MaxAlerts alerts, whatever the incident's size.
type Snapshot struct {
	IncidentID     string            `json:"incident_id"`
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
	Truncated      int               `json:"truncated,omitempty"` // alerts that the source left out
	OpenedAt       time.Time         `json:"opened_at"`
	AcknowledgedAt *time.Time        `json:"acknowledged_at,omitempty"`
	AcknowledgedBy string            `json:"acknowledged_by,omitempty"`
	ResolvedAt     *time.Time        `json:"resolved_at,omitempty"`
	ResolvedBy     string            `json:"resolved_by,omitempty"`
	SnoozedUntil   *time.Time        `json:"snoozed_until,omitempty"`
	Labels         map[string]string `json:"labels,omitempty"` // common to all alerts
	Alerts         []Alert           `json:"alerts,omitempty"` // firing first, newest first
	Links          []message.Link    `json:"links,omitempty"`
}

// MaxAlerts bounds the alerts that a snapshot holds.
const MaxAlerts = 50

// Alert is one alert of the incident, as the card shows it.
type Alert struct {
	Fingerprint string            `json:"fingerprint"`
	Status      string            `json:"status"` // firing, resolved
	Title       string            `json:"title"`
	Text        string            `json:"text,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	StartsAt    time.Time         `json:"starts_at"`
	EndsAt      *time.Time        `json:"ends_at,omitempty"`
}

// Entry is one line of an incident's timeline.
type Entry struct {
	Sequence int       `json:"sequence"`
	At       time.Time `json:"at"`
	Actor    string    `json:"actor"` // "source:alertmanager", "user:ana", "token:ops", "tocsin"
	Type     string    `json:"type"`  // opened, alert_firing, alert_resolved, acknowledged, paged, resolved, ...
	Text     string    `json:"text"`
}
