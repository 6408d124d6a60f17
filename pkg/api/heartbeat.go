package api

import "time"

// Heartbeat is a sender that must call every so often.
type Heartbeat struct {
	Name        string     `json:"name"`
	Every       string     `json:"every" doc:"How long it may be silent." example:"1h0m0s"`
	Criticality string     `json:"criticality" doc:"Of the alert that it was missed."`
	State       string     `json:"state" doc:"ok; missed: it did not call in time; new: it has not called yet, and may still be silent."`
	CalledAt    *time.Time `json:"called_at,omitempty" doc:"Its last call."`
	MissedAt    *time.Time `json:"missed_at,omitempty" doc:"When the alert was raised; absent while it is not missed."`
}

// States of heartbeats.
const (
	HeartbeatOK     = "ok"
	HeartbeatMissed = "missed"
	HeartbeatNew    = "new"
)
