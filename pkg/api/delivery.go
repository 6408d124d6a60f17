package api

import (
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
)

// Delivery is one promise to one target through one notifier.
type Delivery struct {
	ID              string              `json:"id"`
	IncidentID      string              `json:"incident_id,omitempty"`
	Kind            string              `json:"kind" doc:"page, card, thread, notice, event, bulk."`
	Notifier        string              `json:"notifier"`
	Target          string              `json:"target" doc:"Whom or what it is for: channel, schedule:ID, layer:ID/NAME, user:ID, url, log."`
	State           string              `json:"state" doc:"pending; done: sent, assumed, canceled; dead: rejected, unreachable, held, exhausted, expired."`
	Reason          string              `json:"reason" doc:"Why it stands there, for programs."`
	Sentence        string              `json:"sentence" doc:"The same for people."`
	Effect          int                 `json:"effect" doc:"Counts from 1; sending again makes a new one."`
	EffectKey       string              `json:"effect_key" doc:"Idempotency key of the current effect."`
	DesiredRevision int                 `json:"desired_revision" doc:"What should be shown."`
	AppliedRevision int                 `json:"applied_revision" doc:"What the provider last accepted."`
	Reference       *delivery.Reference `json:"reference,omitempty" doc:"Coordinates of the made object."`
	InFlight        bool                `json:"in_flight" doc:"An attempt is open at this moment."`
	InDoubt         bool                `json:"in_doubt" doc:"An attempt of the current effect may have arrived, and nobody knows."`
	Overdue         bool                `json:"overdue,omitempty" doc:"A page that was kept back for longer than its bound: the escalation did not wait for it."`
	NextAt          *time.Time          `json:"next_at,omitempty" doc:"When it next needs a worker; absent once settled."`
	ExpiresAt       *time.Time          `json:"expires_at,omitempty"`
	CreatedAt       time.Time           `json:"created_at"`
	SettledAt       *time.Time          `json:"settled_at,omitempty"`
	AttemptCount    int                 `json:"attempt_count"`
	Attempts        []Attempt           `json:"attempts,omitempty" doc:"Only when one delivery is asked for: the newest ones, in order."`
	Decisions       []Decision          `json:"decisions,omitempty" doc:"Only when one delivery is asked for."`
	Receipts        []Receipt           `json:"receipts,omitempty" doc:"What the provider told later about the made object."`
}

// Attempt is one provider call, recorded before it was made.
type Attempt struct {
	ID           string     `json:"id"`
	Number       int        `json:"number"`
	Effect       int        `json:"effect"`
	EffectKey    string     `json:"effect_key"`
	Revision     int        `json:"revision"`
	Operation    string     `json:"operation" doc:"create, edit, reply."`
	Address      string     `json:"address" doc:"What the target meant at that moment."`
	Outcome      string     `json:"outcome,omitempty" doc:"sent, failed, unknown; absent while it is open."`
	Evidence     string     `json:"evidence,omitempty" doc:"not_called, not_sent, possibly_sent, answered."`
	Reason       string     `json:"reason,omitempty"`
	Error        string     `json:"error,omitempty"`
	ProviderCode string     `json:"provider_code,omitempty"`
	HTTPStatus   *int       `json:"http_status,omitempty"`
	BytesWritten *int64     `json:"bytes_written,omitempty" doc:"Of the request, on the connection."`
	DNSMS        *float64   `json:"dns_ms,omitempty"`
	ConnectMS    *float64   `json:"connect_ms,omitempty"`
	TLSMS        *float64   `json:"tls_ms,omitempty"`
	FirstByteMS  *float64   `json:"first_byte_ms,omitempty"`
	DurationMS   *float64   `json:"duration_ms,omitempty"`
	Answer       string     `json:"answer,omitempty" doc:"The start of the provider's answer."`
	Phase        string     `json:"phase,omitempty" doc:"How far it got on the wire: dns, connect, tls, request, answer."`
	Form         string     `json:"form,omitempty" doc:"What was left out since the provider had refused it: no_metadata, no_buttons, plain, root."`
	Worker       string     `json:"worker" doc:"The replica that made it."`
	StartedAt    time.Time  `json:"started_at"`
	FinishedAt   *time.Time `json:"finished_at,omitempty"`
	ClosedBy     string     `json:"closed_by,omitempty" doc:"worker, takeover, shutdown, reconcile."`
	LateOutcome  string     `json:"late_outcome,omitempty" doc:"What an answer said that came after the lease was lost."`
	LateAt       *time.Time `json:"late_at,omitempty"`
}

// Decision is a person's word on a delivery.
type Decision struct {
	At        time.Time `json:"at"`
	Actor     string    `json:"actor"`
	Action    string    `json:"action"`
	Reason    string    `json:"reason"`
	FromState string    `json:"from_state"`
	Effect    int       `json:"effect" doc:"The effect that was current when it was made."`
}

// Receipt is what a provider tells later about an object it made.
type Receipt struct {
	At     time.Time `json:"at"`
	Status string    `json:"status"`
}

// Actions of decisions.
const (
	ActionAssumeDelivered = "assume_delivered"
	ActionCancel          = "cancel"
	ActionSendAgain       = "send_again"
)

// Decide is the body of POST /v1/deliveries/{id}/decision.
type Decide struct {
	Action string `json:"action" enum:"assume_delivered,cancel,send_again"`
	Reason string `json:"reason,omitempty" maxLength:"2000" doc:"Why; it is kept in the delivery's history."`
}
