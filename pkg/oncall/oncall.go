// Package oncall answers who is on call at an instant. It is pure: the instant is an argument, and hand-offs are
// computed by the wall clock of the schedule's zone, never by adding durations.
package oncall

import "time"

// Schedule says who is on call when. A later layer overrides an earlier one where it covers the instant.
type Schedule struct {
	ID, Name string
	Zone     *time.Location
	Owner    string
	Layers   []Layer
}

// Layer is one rotation.
type Layer struct {
	Name  string
	Users [][]string // in turn; each turn has one person or more
	Every Every
	Start time.Time // wall clock in the schedule's zone: only its date and clock fields count
	End   time.Time // zero: never ends
}

// Every is a rotation's length in calendar units.
type Every struct {
	N    int
	Unit string // "hour", "day", "week", "month"
}

// Shift is a span in which the same people are on call by one layer.
type Shift struct {
	Users      []string
	Layer      string
	Start, End time.Time // End exclusive; zero End: never ends
}
