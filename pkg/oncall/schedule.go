package oncall

import (
	"slices"
	"time"
)

// span is a stretch of time in which one answer holds. A zero from means since ever, a zero until for ever.
type span struct{ from, until time.Time }

// cut gives the part of s that lies in o.
func (s span) cut(o span) span {
	if s.from.IsZero() || o.from.After(s.from) {
		s.from = o.from
	}
	if s.until.IsZero() || !o.until.IsZero() && o.until.Before(s.until) {
		s.until = o.until
	}
	return s
}

// At is the shift that covers t: of all layers that do, the later one wins. Its Start and End are where the answer
// changes, be it by the layer's own hand-off or by another layer that begins or ends to override it; turns of the same
// people that follow one another are one shift. False means that nobody is on call; then only Start and End are set:
// the gap.
//
// Hand-offs are wall clocks of the schedule's zone. One that falls into an hour that does not exist happens at the
// first instant after the gap, one in an hour that occurs twice at its first pass; a rotation by months that begins on a
// day that a month lacks is handed off on that month's last day. Rotations by hours count wall-clock hours too: 12 hours
// from 09:00 means 09:00 and 21:00 all year, so the turn in which the clocks change is an hour shorter or longer, and a
// 1-hour turn in the skipped hour does not take place.
//
// The cost does not depend on how long ago the rotation began.
func (s Schedule) At(t time.Time) (Shift, bool) {
	zone := s.Zone
	if zone == nil {
		zone = time.UTC
	}
	var in span
	for _, layer := range slices.Backward(s.Layers) {
		users, holds := layer.at(t, zone)
		in = in.cut(holds)
		if len(users) > 0 {
			return Shift{Users: slices.Clone(users), Layer: layer.Name, Start: inZone(in.from, zone), End: inZone(in.until, zone)}, true
		}
	}
	return Shift{Start: inZone(in.from, zone), End: inZone(in.until, zone)}, false
}

// Shifts are the shifts that overlap [from, until), in order, with the bounds that [Schedule.At] gives: the first may
// begin before from and the last may end after until. Gaps are left out. There is one step per shift, so callers bound
// the window.
func (s Schedule) Shifts(from, until time.Time) []Shift {
	var all []Shift
	for t := from; t.Before(until); {
		shift, ok := s.At(t)
		if ok {
			all = append(all, shift)
		}
		if shift.End.IsZero() {
			break
		}
		t = shift.End
	}
	return all
}

// inZone is t in the zone; a zero t, which means never, stays zero.
func inZone(t time.Time, zone *time.Location) time.Time {
	if t.IsZero() {
		return t
	}
	return t.In(zone)
}

// at says whose turn it is at t by this layer alone, and for how long this answer holds. Nobody's turn: no users.
func (l Layer) at(t time.Time, zone *time.Location) ([]string, span) {
	var in span
	if !l.Start.IsZero() {
		in.from = instant(fields(l.Start), zone)
	}
	if !l.End.IsZero() {
		in.until = instant(fields(l.End), zone)
	}
	switch {
	case len(l.Users) == 0 || !in.until.IsZero() && !in.from.Before(in.until):
		return nil, span{} // covers nothing at any time
	case t.Before(in.from):
		return nil, span{until: in.from}
	case !in.until.IsZero() && !t.Before(in.until):
		return nil, span{from: in.until}
	}
	if l.Every.N < 1 || l.Start.IsZero() || alike(l.Users) {
		return l.Users[0], in
	}
	users, turn := l.turnAt(t, zone)
	return users, in.cut(turn)
}

// turnAt finds the turn that t falls into, joined with the turns of the same people around it.
func (l Layer) turnAt(t time.Time, zone *time.Location) ([]string, span) {
	start := fields(l.Start)
	begin := func(k int) time.Time { return instant(l.Every.handoff(start, k), zone) }
	users := func(k int) []string { return l.Users[k%len(l.Users)] }

	// The wall clock names the turn, except that in an hour that occurs twice hand-offs of its first pass are behind us
	// though the wall shows less: the turns of that hour are tried one by one.
	k := 0
	if wall := onWall(t, zone); !wall.Before(start) {
		k = l.Every.turn(start, wall)
	}
	for range 2 * int(farthest/time.Hour) {
		if begin(k + 1).After(t) {
			break
		}
		k++
	}
	who := users(k)
	// Turns that no time is left for (their whole hour was skipped) stand between no two others.
	first, from := k, begin(k)
	for first > 0 {
		before := begin(first - 1)
		if before.Before(from) && !slices.Equal(users(first-1), who) {
			break
		}
		first, from = first-1, before
	}
	next, until := k+1, begin(k+1)
	for {
		after := begin(next + 1)
		if until.Before(after) && !slices.Equal(users(next), who) {
			break
		}
		next, until = next+1, after
	}
	return who, span{from: from, until: until}
}

// fields is a wall clock given in whatever zone, as a UTC time with the same fields.
func fields(t time.Time) time.Time { return onWall(t, t.Location()) }

// alike says that every turn has the same people, so that there is nothing to hand off.
func alike(turns [][]string) bool {
	for _, users := range turns[1:] {
		if !slices.Equal(users, turns[0]) {
			return false
		}
	}
	return true
}
