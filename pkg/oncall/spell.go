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

// opens says that the window is open at some time in [from, until) on the wall.
func (w Window) opens(from, until time.Time) bool {
	if w.on(from) {
		return true
	}
	edge, ok := w.next(from)
	return ok && edge.Before(until)
}

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
