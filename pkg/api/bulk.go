package api

import "time"

// DeadFilter chooses dead deliveries. Empty fields choose all.
type DeadFilter struct {
	State    string     `json:"state,omitempty" enum:"dead,rejected,unreachable,held,exhausted,expired" doc:"One of the dead states; dead, as if left out: all of them."`
	Notifier string     `json:"notifier,omitempty" maxLength:"200"`
	Kind     string     `json:"kind,omitempty" enum:"page,call,sms,card,thread,notice,event,bulk"`
	Reason   string     `json:"reason,omitempty" maxLength:"200" doc:"The delivery's own reason, e.g. slack:channel_not_found."`
	Incident string     `json:"incident,omitempty" format:"uuid"`
	After    *time.Time `json:"after,omitempty" doc:"Only those that died at or after this instant."`
	Before   *time.Time `json:"before,omitempty" doc:"Only those that died before this instant."`
}

// DecideMany is the body of POST /v1/decisions.
type DecideMany struct {
	Filter    DeadFilter `json:"filter"`
	Action    string     `json:"action" enum:"assume_delivered,cancel,send_again"`
	Reason    string     `json:"reason,omitempty" maxLength:"2000" doc:"Why; it is kept in each delivery's history."`
	DryRun    bool       `json:"dry_run,omitempty" doc:"Only count."`
	PerSecond int        `json:"per_second,omitempty" minimum:"1" maximum:"1000" default:"20" doc:"How many are decided in a second, all replicas together."`
}

// DecisionRun is one decision on many deliveries. Its set is fixed when it is made.
type DecisionRun struct {
	ID         string          `json:"id,omitempty" doc:"Absent for a dry run."`
	DryRun     bool            `json:"dry_run,omitempty"`
	State      string          `json:"state,omitempty" doc:"running, done, canceled."`
	Action     string          `json:"action"`
	Reason     string          `json:"reason"`
	Filter     DeadFilter      `json:"filter"`
	By         string          `json:"by,omitempty"`
	PerSecond  int             `json:"per_second,omitempty"`
	Total      int             `json:"total" doc:"Deliveries of its set."`
	Applied    int             `json:"applied"`
	Skipped    int             `json:"skipped" doc:"Left alone: they had moved, or the decision is not possible on them."`
	Refused    int             `json:"refused,omitempty" doc:"Dry run: those on which the decision is not possible as they stand."`
	MadeAt     *time.Time      `json:"made_at,omitempty"`
	EndedAt    *time.Time      `json:"ended_at,omitempty"`
	CanceledBy string          `json:"canceled_by,omitempty"`
	Counts     []DecisionCount `json:"counts,omitempty" doc:"Its set by notifier, reason and state. Only for a dry run, and when one run is asked for."`
	Skips      []SkipCount     `json:"skips,omitempty" doc:"Why some were left alone. Only when one run is asked for."`
}

// DecisionCount is how many deliveries of a run's set had a notifier, reason and state.
type DecisionCount struct {
	Notifier string `json:"notifier"`
	Reason   string `json:"reason"`
	State    string `json:"state"`
	Count    int    `json:"count"`
	Applied  int    `json:"applied,omitempty"`
	Skipped  int    `json:"skipped,omitempty"`
	Refused  int    `json:"refused,omitempty" doc:"Dry run: those on which the decision is not possible."`
	Why      string `json:"why,omitempty" doc:"Dry run: why not."`
}

// SkipCount is how many deliveries a run left alone for one reason: moved:STATE, gone, notifier_removed, or the sentence
// with which a single decision would be refused.
type SkipCount struct {
	Why   string `json:"why"`
	Count int    `json:"count"`
}

// States of runs.
const (
	RunRunning  = "running"
	RunDone     = "done"
	RunCanceled = "canceled"
)
