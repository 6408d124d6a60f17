package api

import (
	"encoding/json"
	"time"
)

// Explain is the body of POST /v1/explain: an alert in words, a payload of a source, or a stored incident.
type Explain struct {
	Kind        string            `json:"kind,omitempty" maxLength:"200"`
	Criticality string            `json:"criticality,omitempty" maxLength:"200"`
	Job         string            `json:"job,omitempty" maxLength:"200"`
	Labels      map[string]string `json:"labels,omitempty"`
	Notify      []string          `json:"notify,omitempty" maxItems:"50"`
	At          time.Time         `json:"at,omitzero" doc:"The instant asked about, past or to come; now, if not given."`
	Source      string            `json:"source,omitempty" maxLength:"200" doc:"What sent the payload: a source of the file, or a type of source. Found out by its form, if not given."`
	Payload     json.RawMessage   `json:"payload,omitempty" doc:"A whole body as the source sends it, instead of kind, criticality, job, labels and notify."`
	Incident    string            `json:"incident,omitempty" maxLength:"36" doc:"A stored incident, instead of all of these."`
}

// Explanation says what would become of alerts, or became of an incident, and why.
type Explanation struct {
	At         time.Time           `json:"at"`
	Topic      string              `json:"topic" doc:"Of the first alert."`
	Routes     []ExplainedRoute    `json:"routes" doc:"Of the first alert, in the order of the file."`
	Silences   []ExplainedSilence  `json:"silences" doc:"Those that hold at the instant, as they concern the first alert."`
	People     []ExplainedPerson   `json:"people" doc:"Who is paged, in the order of the escalation's steps, unless somebody answers first."`
	Deliveries []ExplainedDelivery `json:"deliveries"`
	Silenced   bool                `json:"silenced" doc:"Silences keep back all that fire."`
	Unrouted   bool                `json:"unrouted" doc:"Nothing in the file takes them."`
	Silent     bool                `json:"silent" doc:"Nobody would be told."`
	Words      []string            `json:"words" doc:"The same for people, in sentences."`
	Alerts     []ExplainedAlert    `json:"alerts,omitempty" doc:"Each alert, where there are several."`
	Incident   *Incident           `json:"incident,omitempty" doc:"The stored one that was asked about; the rest is from what was kept of it."`
	Decisions  []ExplainedDecision `json:"decisions,omitempty" doc:"Of a stored incident: what the file of then said of its alerts, each different answer once, in order. Absent where it is older than the version that keeps them: then the rest is by the file in force now."`
	Steps      []ExplainedStep     `json:"steps,omitempty" doc:"Of a stored incident: what became of the steps of its escalations."`
	Story      []ExplainedLine     `json:"story,omitempty" doc:"What became of the stored incident: its timeline, its deliveries and each of their attempts, in order."`
	Now        *Explanation        `json:"now,omitempty" doc:"The stored incident as if it came in at this moment."`
}

// ExplainedAlert is one alert of several.
type ExplainedAlert struct {
	Topic    string             `json:"topic"`
	Labels   map[string]string  `json:"labels"`
	Status   string             `json:"status"`
	Routes   []ExplainedRoute   `json:"routes"`
	Silences []ExplainedSilence `json:"silences"`
}

// ExplainedRoute says whether a route takes an alert.
type ExplainedRoute struct {
	Match   string `json:"match"`
	Line    int    `json:"line" doc:"Where it stands in the file."`
	Matched bool   `json:"matched"`
	Why     string `json:"why"`

	Rests bool       `json:"rests,omitempty" doc:"It would take the alert, but for the hour."`
	Opens *time.Time `json:"opens,omitempty" doc:"Then: when its hours begin. What still fires then is sent then."`
}

// ExplainedDecision is what the file in force said of an alert of a stored incident, when it came in, a silence ended or hours began.
type ExplainedDecision struct {
	At          time.Time         `json:"at,omitzero"`
	File        string            `json:"file,omitempty" doc:"Checksum of the file that was in force."`
	Topic       string            `json:"topic,omitempty"`
	Labels      map[string]string `json:"labels,omitempty" doc:"Of the first alert that got this answer."`
	Routes      []ExplainedRoute  `json:"routes"`
	Notifiers   []string          `json:"notifiers,omitempty" doc:"Those that were told, if they were not already."`
	Escalations []string          `json:"escalations,omitempty"`
	Notify      []string          `json:"notify,omitempty" doc:"Those that the alert named itself."`
	People      []ExplainedPerson `json:"people,omitempty" doc:"Whom the escalations would page, as the schedules stood then, unless somebody answered first."`
	Silence     *ExplainedSilence `json:"silence,omitempty" doc:"What kept it back."`
}

// ExplainedSilence says whether a silence hides an alert.
type ExplainedSilence struct {
	ID     string    `json:"id"`
	Hides  bool      `json:"hides"`
	Why    string    `json:"why"`
	From   time.Time `json:"from"`
	Until  time.Time `json:"until"`
	By     string    `json:"by"`
	Reason string    `json:"reason"`
}

// ExplainedPerson is a person whom a step of an escalation pages.
type ExplainedPerson struct {
	ID         string   `json:"id"`
	Name       string   `json:"name"`
	Target     string   `json:"target" doc:"As the file names them: schedule:ID, layer:ID/NAME or user:ID."`
	Escalation string   `json:"escalation"`
	Step       int      `json:"step" doc:"From 1."`
	After      string   `json:"after" doc:"How long after the beginning: 0s is at once." example:"10m0s"`
	Ways       []string `json:"ways" doc:"Notifiers, in the order of their turns; empty: the person can't be reached."`
}

// ExplainedDelivery is a delivery that would be made.
type ExplainedDelivery struct {
	Notifier   string          `json:"notifier"`
	Kind       string          `json:"kind"`
	Target     string          `json:"target"`
	Person     string          `json:"person,omitempty" doc:"Whom a page is for: a user's id."`
	Escalation string          `json:"escalation,omitempty" doc:"Of what a step makes; absent: a route, or the alert itself, names the notifier."`
	Step       int             `json:"step,omitempty"`
	After      string          `json:"after" doc:"How long after the beginning: 0s is at once."`
	Policy     ExplainedPolicy `json:"policy"`
	Pace       []string        `json:"pace" doc:"How often the notifier may call, in words; empty: as often as it likes."`
	Dead       string          `json:"dead,omitempty" doc:"It would die as it is made: why, and how to mend it."`
	DeadReason string          `json:"dead_reason,omitempty"`
	HeldBack   []string        `json:"held_back,omitempty" doc:"What keeps its notifier back at this moment."`
	ID         string          `json:"id,omitempty" doc:"Of a stored incident: the delivery's id."`
	State      string          `json:"state,omitempty" doc:"Of a stored incident: the delivery's state."`
	Reason     string          `json:"reason,omitempty" doc:"Of a stored incident: why the delivery stands there."`
}

// ExplainedStep is a step of an escalation of a stored incident.
type ExplainedStep struct {
	Escalation string     `json:"escalation"`
	Round      int        `json:"round" doc:"From 1."`
	Step       int        `json:"step" doc:"From 1; 0: the end, at which nobody has answered."`
	State      string     `json:"state" doc:"due, held (a silence lets the escalation stand still), fired, withdrawn."`
	DueAt      *time.Time `json:"due_at,omitempty"`
	FiredAt    *time.Time `json:"fired_at,omitempty"`
	Reason     string     `json:"reason,omitempty" doc:"Why it was withdrawn: acknowledged, resolved."`
}

// ExplainedPolicy is how patient a delivery is.
type ExplainedPolicy struct {
	OnUnknown string `json:"on_unknown" doc:"retry, hold."`
	Lifetime  string `json:"lifetime,omitempty" doc:"Absent: as long as its incident."`
	Wait      string `json:"wait,omitempty" doc:"How long it waits for the incident's card at most."`
	Retries   string `json:"retries" doc:"In words."`
}

// ExplainedLine is one thing that happened.
type ExplainedLine struct {
	At   time.Time `json:"at"`
	Text string    `json:"text"`
}
