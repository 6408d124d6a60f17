package api

import "time"

// Shift is one person's time on call. Several people who share a shift have one each.
type Shift struct {
	User       string     `json:"user"`
	Name       string     `json:"name"`
	Start      *time.Time `json:"start,omitempty" doc:"Absent: since ever."`
	End        *time.Time `json:"end,omitempty" doc:"Absent: no end in sight."`
	Layer      string     `json:"layer" doc:"The layer whose turn it is; override, where an override says so."`
	Override   bool       `json:"override"`
	OverrideID string     `json:"override_id,omitempty"`
}

// Gap is a span in which nobody is on call.
type Gap struct {
	Start *time.Time `json:"start,omitempty" doc:"Absent: since ever."`
	End   *time.Time `json:"end,omitempty" doc:"Absent: no end in sight."`
}

// Hours is how long a person is on call in a span.
type Hours struct {
	User   string  `json:"user"`
	Name   string  `json:"name"`
	Hours  float64 `json:"hours" doc:"As a stopwatch measures them: a day in which the clocks change has 23 or 25."`
	Shifts int     `json:"shifts"`
}

// Override puts a person on call for a while, whatever the layers of the schedule say.
type Override struct {
	ID        string    `json:"id"`
	Schedule  string    `json:"schedule"`
	User      string    `json:"user"`
	Name      string    `json:"name"`
	InsteadOf string    `json:"instead_of,omitempty" doc:"Only this person is replaced; absent: everybody is."`
	Add       bool      `json:"add" doc:"It covers gaps as well."`
	Start     time.Time `json:"start"`
	End       time.Time `json:"end"`
	Reason    string    `json:"reason,omitempty"`
	Author    string    `json:"author"`
	State     string    `json:"state" doc:"pending: it has not begun; active; ended."`
	SwapID    string    `json:"swap_id,omitempty" doc:"The same on both halves of a swap, which end together."`
	CreatedAt time.Time `json:"created_at"`
	EndedBy   string    `json:"ended_by,omitempty" doc:"Who ended it before its time."`
}

// States of overrides.
const (
	OverridePending = "pending"
	OverrideActive  = "active"
	OverrideEnded   = "ended"
)

// NewOverride is the body of POST /v1/schedules/{id}/overrides. It has an end or a for.
type NewOverride struct {
	User      string    `json:"user" minLength:"1" maxLength:"100" doc:"Who is on call: a user's id."`
	Start     time.Time `json:"start,omitzero" doc:"Now, if not given."`
	End       time.Time `json:"end,omitzero" doc:"Needed, unless there is a for."`
	For       string    `json:"for,omitempty" maxLength:"30" doc:"How long it lasts, from its start, instead of end." example:"2h"`
	Add       bool      `json:"add,omitempty" doc:"It covers gaps as well; else they stay gaps."`
	InsteadOf string    `json:"instead_of,omitempty" maxLength:"100" doc:"Replaces only this person, where several share a shift; else everybody."`
	Reason    string    `json:"reason,omitempty" maxLength:"2000"`
	By        string    `json:"by,omitempty" maxLength:"200" doc:"Whose word it is, if not the token's: a user's id."`
}

// NewSwap is the body of POST /v1/schedules/{id}/swaps: two shifts change hands.
type NewSwap struct {
	User   string    `json:"user" minLength:"1" maxLength:"100" doc:"Whose shift the other one takes: a user's id."`
	At     time.Time `json:"at" doc:"A moment of that shift."`
	With   string    `json:"with" minLength:"1" maxLength:"100" doc:"The other one."`
	WithAt time.Time `json:"with_at" doc:"A moment of the other one's shift."`
	Reason string    `json:"reason,omitempty" maxLength:"2000"`
	By     string    `json:"by,omitempty" maxLength:"200" doc:"Whose word it is, if not the token's: a user's id."`
}
