package oncall

import "time"

// longest bounds the search for a window's end: a window that is not over by then has none.
const longest = 8 * 24 * time.Hour

// Over is the first instant from t on at which the window is not active: t itself where it is not, the zero time where the
// window has no end. It asks the clock on the wall minute by minute, so an hour that the zone skips or repeats needs no rule
// of its own.
func (w Window) Over(t time.Time) time.Time {
	if !w.Active(t) {
		return t
	}
	for at, last := t.Truncate(time.Minute).Add(time.Minute), t.Add(longest); at.Before(last); at = at.Add(time.Minute) {
		if !w.Active(at) {
			return at.In(w.zone())
		}
	}
	return time.Time{}
}

// DayBefore is the time of day, in minutes since midnight, on the day before the one in which t lies, by the clock on the wall
// of a zone.
func DayBefore(t time.Time, minute int, zone *time.Location) time.Time {
	year, month, day := t.In(zone).Date()
	return instant(time.Date(year, month, day-1, 0, minute, 0, 0, time.UTC), zone).In(zone)
}
