package oncall

import "time"

// A layer's window opens and closes at hand-offs, so it goes by the rule for wall clocks: while an hour is repeated nothing
// opens or closes. (A route's window is asked by [Window.Active], which only looks at the wall.)

// spell says whether the window is open at t, and for how long that holds. A stretch that no time is left for, since the
// zone skips it, is none.
func (w Window) spell(t time.Time) (bool, span) {
	zone := w.zone()
	wall := highest(t, zone)
	open := w.on(wall)
	var in span
	for edge, ok := w.next(wall); ok; edge, ok = w.next(edge) {
		in.until = instant(edge, zone)
		if edge, ok = w.next(edge); !ok || instant(edge, zone).After(in.until) {
			break
		}
	}
	for edge, ok := w.last(wall); ok; edge, ok = w.last(edge.Add(-1)) {
		in.from = instant(edge, zone)
		if edge, ok = w.last(edge.Add(-1)); !ok || instant(edge, zone).Before(in.from) {
			break
		}
	}
	return open, in
}

// opens says that the window is open at some time of the minutes on the wall that begin so many after wall.
func (w Window) opens(wall time.Time, after, length int) bool {
	const minute, all = 60, week * 60
	// Seconds of the week; 1970 began with a Thursday.
	from := int((wall.Unix()+int64(time.Thursday)*day*minute)%all) + after%week*minute
	long := (w.Until - w.From + day) % day
	if long == 0 {
		long = day
	}
	for d, on := range w.Days {
		open := (d*day + w.From) * minute
		if on && (modulo(from-open, all) < long*minute || modulo(open-from, all) < length*minute) {
			return true
		}
	}
	return false
}

func modulo(a, n int) int { return (a%n + n) % n }

// next is the first moment after wall at which the window opens or closes. False: it never does.
func (w Window) next(wall time.Time) (time.Time, bool) {
	open := w.on(wall)
	for d := range 9 {
		for _, edge := range w.edges(wall, d) {
			if edge.After(wall) && w.on(edge) != open {
				return edge, true
			}
		}
	}
	return time.Time{}, false
}

// last is the moment at which the window opened or closed, as it is at wall. False: it never did.
func (w Window) last(wall time.Time) (time.Time, bool) {
	open := w.on(wall)
	for d := range 9 {
		edges := w.edges(wall, -d)
		for i := range edges {
			edge := edges[len(edges)-1-i]
			if !edge.After(wall) && w.on(edge) == open && w.on(edge.Add(-1)) != open {
				return edge, true
			}
		}
	}
	return time.Time{}, false
}

// edges are the moments of a day, d days after wall's, at which the window may open or close, in order.
func (w Window) edges(wall time.Time, d int) [3]time.Time {
	midnight := wall.Truncate(24 * time.Hour).Add(time.Duration(d) * 24 * time.Hour) // on the wall each day has 24 hours
	at := func(minute int) time.Time { return midnight.Add(time.Duration(minute) * time.Minute) }
	return [3]time.Time{midnight, at(min(w.From, w.Until)), at(max(w.From, w.Until))}
}
