package api

import "time"

// Incident is alerts with one grouping key, from the first firing to resolved.
type Incident struct {
	ID             string          `json:"id"`
	Key            string          `json:"key"`
	Source         string          `json:"source" doc:"Where its alerts come from: native, alertmanager, or a source's name."`
	Topic          string          `json:"topic" doc:"Of its first alert."`
	Title          string          `json:"title"`
	State          string          `json:"state" doc:"open, acknowledged, resolved."`
	Criticality    string          `json:"criticality" doc:"The highest firing one."`
	Count          int             `json:"count" doc:"Firings received, re-sends included."`
	Firing         int             `json:"firing" doc:"Alerts that fire now."`
	Resolved       int             `json:"resolved" doc:"Alerts that are resolved."`
	OpenedAt       time.Time       `json:"opened_at"`
	AcknowledgedAt *time.Time      `json:"acknowledged_at,omitempty"`
	AcknowledgedBy string          `json:"acknowledged_by,omitempty"`
	ResolvedAt     *time.Time      `json:"resolved_at,omitempty"`
	ResolvedBy     string          `json:"resolved_by,omitempty"`
	SnoozedUntil   *time.Time      `json:"snoozed_until,omitempty" doc:"Of an acknowledged one: it rings again then, unless it is resolved or acknowledged before."`
	Silenced       *Silenced       `json:"silenced,omitempty" doc:"Only while all of its firing alerts are silenced: the silence that ends first."`
	Alerts         []IncidentAlert `json:"alerts,omitempty" doc:"Only when one incident is asked for: those that fire first, newest first, 500 at most."`
	Timeline       []Event         `json:"timeline,omitempty" doc:"Only when one incident is asked for: its newest events, in order."`
}

// IncidentAlert is one alert of an incident: what fires or fired with one set of labels.
type IncidentAlert struct {
	Status      string            `json:"status" doc:"firing, resolved."`
	Title       string            `json:"title"`
	Criticality string            `json:"criticality"`
	Labels      map[string]string `json:"labels"`
	StartsAt    time.Time         `json:"starts_at"`
	EndsAt      *time.Time        `json:"ends_at,omitempty" doc:"Of a firing alert: until when it holds without being sent again."`
	Count       int               `json:"count" doc:"Firings received, re-sends included."`
	Silenced    *Silenced         `json:"silenced,omitempty" doc:"Only while it fires and a silence keeps it back."`
}

// Event is one line of an incident's timeline.
type Event struct {
	Sequence int       `json:"sequence"`
	At       time.Time `json:"at"`
	Actor    string    `json:"actor" doc:"source:NAME, user:ID, token:NAME, or tocsin."`
	Type     string    `json:"type" example:"acknowledged"`
	Text     string    `json:"text"`
}

// IncidentAction is the body of POST /v1/incidents/{id}/acknowledge, /resolve and /escalate. All of it is optional.
type IncidentAction struct {
	By     string `json:"by,omitempty" maxLength:"200" doc:"Whose word it is, if not the token's: a user's id."`
	Reason string `json:"reason,omitempty" maxLength:"2000"`
}

// SnoozeIncident is the body of POST /v1/incidents/{id}/snooze.
type SnoozeIncident struct {
	IncidentAction
	For string `json:"for" maxLength:"50" example:"1h" doc:"How long, from a minute to 7d."`
}

// ReassignIncident is the body of POST /v1/incidents/{id}/reassign.
type ReassignIncident struct {
	IncidentAction
	To string `json:"to" minLength:"1" maxLength:"200" example:"ana" doc:"The id of the user who is paged instead."`
}
