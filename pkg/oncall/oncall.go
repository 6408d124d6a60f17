// Package oncall answers who is on call at an instant. It is pure: the instant is an argument, and hand-offs are
// computed by the wall clock of a zone, never by adding durations.
//
// Everything that a schedule says is said in wall clocks, and one rule turns them into instants: a wall clock means the
// first instant at which the clock on the wall shows it or more. So what falls into an hour that the zone skips happens
// at the first instant after the gap, and what falls into an hour that occurs twice happens at its first pass. Seen from
// the other side: for a schedule the clock on the wall never goes back, but stands still while an hour is repeated.
package oncall

import "time"

// Schedule says who is on call when. A later layer overrides an earlier one where it covers the instant, and overrides
// change what the layers say.
type Schedule struct {
	ID, Name  string
	Zone      *time.Location
	Owner     string
	Partial   bool // gaps are meant: nobody is to be told of them
	Layers    []Layer
	Overrides []Override // in the order in which they were made
	only      string     // what is asked for is this layer alone, see [Schedule.Layer]; empty: all of it
}

// Layer is one rotation, perhaps restricted to a part of the week; or the shifts of an imported calendar.
type Layer struct {
	Name         string
	Users        [][]string // in turn; each turn has one person or more
	Every        Every
	Start        time.Time      // wall clock of the layer's zone: only its date and clock fields count
	End          time.Time      // the same; zero: never ends
	Zone         *time.Location // nil: the schedule's
	Active       *Window        // nil: at all times
	SkipInactive bool           // a turn in which the window never opens is nobody's: the next person has the next one
	Calendar     string         // the layer is imported: what its calendar is called in an [Overlay]. Only Name and Turns count then
	Turns        []Turn         // of an imported layer, in order, none overlapping another
}

// Every is a rotation's length in calendar units.
type Every struct {
	N    int
	Unit string // "hour", "day", "week", "month"
}

// Shift is a span in which the same people are on call for the same cause.
type Shift struct {
	Users      []string
	Layer      string    // [ByOverride] where an override says so
	Override   string    // the ID of the override that put the people there; empty: the layer did
	Start, End time.Time // End exclusive; a zero Start: since ever, a zero End: never ends
}
