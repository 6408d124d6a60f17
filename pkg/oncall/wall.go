package oncall

import "time"

// farthest is more than any zone has ever been away from UTC.
const farthest = 26 * time.Hour

// onWall is what the clock on the wall shows at t, as a UTC time with the same fields.
func onWall(t time.Time, zone *time.Location) time.Time {
	t = t.In(zone)
	year, month, day := t.Date()
	hour, minute, sec := t.Clock()
	return time.Date(year, month, day, hour, minute, sec, t.Nanosecond(), time.UTC)
}

// instant is the first instant at which the clock on the wall shows wall or later. So an hour that the zone skips means
// the first instant after the gap, one that it repeats means the first pass, and a later wall clock never means an
// earlier instant. It looks only at the few stretches of constant offset around wall.
func instant(wall time.Time, zone *time.Location) time.Time {
	// At this instant, and at every earlier one, the wall shows less than wall.
	t := wall.Add(-farthest).In(zone)
	for {
		_, offset := t.Zone()
		_, end := t.ZoneBounds()
		reached := wall.Add(-time.Duration(offset) * time.Second).In(zone)
		if reached.Before(t) {
			reached = t // the offset jumped forward over wall
		}
		if end.IsZero() || reached.Before(end) {
			return reached
		}
		t = end
	}
}

// highest is the latest that the clock on the wall has shown up to t: what it shows now, or, while it repeats what it
// showed before, the last moment of the first pass. A wall clock is behind us at t exactly where it is not after this.
func highest(t time.Time, zone *time.Location) time.Time {
	top := onWall(t, zone)
	for at := t.In(zone); ; {
		begun, _ := at.ZoneBounds()
		if begun.IsZero() || t.Sub(begun) > 2*farthest {
			return top
		}
		at = begun.Add(-1)
		if was := onWall(at, zone); was.After(top) {
			top = was
		}
	}
}
