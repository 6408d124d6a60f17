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

// At is the shift that covers t: of all layers that do, the later one wins, and overrides go before layers. Its Start
// and End are where the answer changes, be it by the layer's own hand-off or window, or by what goes before it; turns of
// the same people that follow one another are one shift. False means that nobody is on call; then only Start and End are
// set: the gap.
//
// Hand-offs are wall clocks, see the package's rule; a rotation by months that begins on a day that a month lacks is
// handed off on that month's last day. Rotations by hours count wall-clock hours too: 12 hours from 09:00 means 09:00 and
// 21:00 all year, so the turn in which the clocks change is an hour shorter or longer, and a 1-hour turn in the skipped
// hour does not take place.
//
// The cost does not depend on how long ago the rotation began.
func (s Schedule) At(t time.Time) (Shift, bool) {
	shift := s.answer(t)
	if len(s.Overrides) > 0 { // their edges may lie where nothing changes
		for !shift.Start.IsZero() {
			before := s.answer(shift.Start.Add(-1))
			if !shift.continues(before) {
				break
			}
			shift.Start = before.Start
		}
		for !shift.End.IsZero() {
			after := s.answer(shift.End)
			if !shift.continues(after) {
				break
			}
			shift.End = after.End
		}
	}
	shift.Users = slices.Clone(shift.Users)
	shift.Start, shift.End = inZone(shift.Start, s.zone()), inZone(shift.End, s.zone())
	return shift, len(shift.Users) > 0
}

// Layer is the schedule as if one of its layers were all of it, whatever lies above: whoever it has is on call. An override
// of the schedule replaces whoever is on call for it, so it counts where the layer is the one in force; one that replaces a
// certain person does so in every layer. False: it has no such layer.
func (s Schedule) Layer(name string) (Schedule, bool) {
	s.only = name
	return s, name != "" && slices.ContainsFunc(s.Layers, func(l Layer) bool { return l.Name == name })
}

// Shifts are the shifts that overlap [from, until), in order, with the bounds that [Schedule.At] gives: the first may
// begin before from and the last may end after until. Gaps are left out. There is one step per shift, so callers bound
// the window.
func (s Schedule) Shifts(from, until time.Time) []Shift {
	var all []Shift
	s.walk(from, until, func(shift Shift, covered bool) {
		if covered {
			all = append(all, shift)
		}
	})
	return all
}

// Gaps are the spans in [from, until) in which nobody is on call, in order, with the bounds that [Schedule.At] gives.
func (s Schedule) Gaps(from, until time.Time) []Shift {
	var all []Shift
	s.walk(from, until, func(gap Shift, covered bool) {
		if !covered {
			all = append(all, gap)
		}
	})
	return all
}

// walk calls f with each shift and gap that overlaps [from, until), in order.
func (s Schedule) walk(from, until time.Time, f func(shift Shift, covered bool)) {
	for t := from; t.Before(until); {
		shift, covered := s.At(t)
		f(shift, covered)
		if shift.End.IsZero() {
			return
		}
		t = shift.End
	}
}

func (s Schedule) zone() *time.Location {
	if s.Zone == nil {
		return time.UTC
	}
	return s.Zone
}

// answer is who is on call at t, and a span in which that holds, which may end before it must. Nobody: no users.
func (s Schedule) answer(t time.Time) Shift {
	users, name, in := s.layered(t, s.only)
	shift := Shift{Users: users, Layer: name}
	for _, o := range s.Overrides {
		switch {
		case !o.Start.Before(o.End):
		case t.Before(o.Start):
			in = in.cut(span{until: o.Start})
		case !t.Before(o.End):
			in = in.cut(span{from: o.End})
		default:
			in = in.cut(span{o.Start, o.End})
			if s.only != "" && o.Instead == "" {
				// Other layers are looked at only here: else their hand-offs, which never end, would cut what they do not change.
				_, force, holds := s.layered(t, "")
				if in = in.cut(holds); force != s.only {
					continue
				}
			}
			if users, changed := o.apply(shift.Users); changed {
				shift.Users, shift.Layer, shift.Override = users, ByOverride, o.ID
			}
		}
	}
	shift.Start, shift.End = in.from, in.until
	return shift
}

// layered is who is on call at t by the layers, or by one of them alone, which of them says so, and for how long that holds.
func (s Schedule) layered(t time.Time, only string) (users []string, name string, in span) {
	for _, layer := range slices.Backward(s.Layers) {
		if only != "" && layer.Name != only {
			continue
		}
		users, holds := layer.at(t, s.zone())
		if in = in.cut(holds); len(users) > 0 {
			return users, layer.Name, in
		}
	}
	return nil, "", in
}

// continues says that the two spans, which touch, have one answer.
func (s Shift) continues(o Shift) bool {
	return s.Override == o.Override && s.Layer == o.Layer && slices.Equal(s.Users, o.Users)
}

// inZone is t in the zone; a zero t, which means never, stays zero.
func inZone(t time.Time, zone *time.Location) time.Time {
	if t.IsZero() {
		return t
	}
	return t.In(zone)
}
