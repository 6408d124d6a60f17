package api

import "time"

// Silence keeps alerts back for a time: what it hides is stored and shown, and not sent before it is over.
type Silence struct {
	ID        string    `json:"id"`
	Match     string    `json:"match,omitempty" doc:"Topic pattern; absent: every topic."`
	Matchers  []string  `json:"matchers" doc:"Conditions on labels; all of them."`
	From      time.Time `json:"from"`
	Until     time.Time `json:"until"`
	Reason    string    `json:"reason"`
	Author    string    `json:"author"`
	State     string    `json:"state" doc:"pending: it has not begun; active; ended."`
	Alerts    int       `json:"alerts" doc:"Alerts that it keeps back now."`
	CreatedAt time.Time `json:"created_at"`
	EndedBy   string    `json:"ended_by,omitempty" doc:"Who ended it before its time."`

	EditedAt *time.Time `json:"edited_at,omitempty" doc:"When its end or its reason was changed last."`
	EditedBy string     `json:"edited_by,omitempty" doc:"Who changed it last."`
}

// States of silences.
const (
	SilencePending = "pending"
	SilenceActive  = "active"
	SilenceEnded   = "ended"
)

// NewSilence is the body of POST /v1/silences. It has a match, matchers or both, and until or for.
type NewSilence struct {
	Match    string    `json:"match,omitempty" maxLength:"1000" doc:"Topic pattern, as in routes; # is every topic." example:"alert.*.*.db"`
	Matchers []string  `json:"matchers,omitempty" maxItems:"50" doc:"Conditions on labels, as in routes; all of them." example:"[\"env=\\\"dev\\\"\"]"`
	From     time.Time `json:"from,omitzero" doc:"Now, if not given."`
	Until    time.Time `json:"until,omitzero" doc:"When it ends. Needed, unless there is a for."`
	For      string    `json:"for,omitempty" maxLength:"30" doc:"How long it lasts, from its beginning, instead of until." example:"2h"`
	Reason   string    `json:"reason" minLength:"1" maxLength:"2000" doc:"Why; incidents show it."`
	By       string    `json:"by,omitempty" maxLength:"200" doc:"Whose word it is, if not the token's: a user's id."`
}

// EditSilence is the body of PATCH /v1/silences/{id}. What it hides stays: end it and make another one for that.
type EditSilence struct {
	Until  time.Time `json:"until,omitzero" doc:"When it ends now."`
	For    string    `json:"for,omitempty" maxLength:"30" doc:"How long it lasts from this moment on, or from its beginning where that is to come, instead of until." example:"2h"`
	Reason string    `json:"reason,omitempty" maxLength:"2000" doc:"Why now; the same, if not given."`
	By     string    `json:"by,omitempty" maxLength:"200" doc:"Whose word it is, if not the token's: a user's id."`
}

// Silenced says what keeps an incident or an alert back.
type Silenced struct {
	SilenceID string    `json:"silence_id"`
	By        string    `json:"by"`
	Until     time.Time `json:"until"`
	Reason    string    `json:"reason"`
}
