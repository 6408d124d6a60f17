package oncall

import (
	"slices"
	"time"
)

// week is the minutes of a week on the wall.
const week = 7 * day

// at says whose turn it is at t by this layer alone, and for how long this answer holds. Nobody's turn: no users.
func (l Layer) at(t time.Time, zone *time.Location) ([]string, span) {
	if l.Calendar != "" {
		return l.importedAt(t)
	}
	if l.Zone != nil {
		zone = l.Zone
	}
	var life span
	if !l.Start.IsZero() {
		life.from = instant(fields(l.Start), zone)
	}
	if !l.End.IsZero() {
		life.until = instant(fields(l.End), zone)
	}
	switch {
	case len(l.Users) == 0 || !life.until.IsZero() && !life.from.Before(life.until):
		return nil, span{} // covers nothing at any time
	case t.Before(life.from):
		begins := life.from
		if open, in := l.spell(life.from); !open {
			begins = in.until
		}
		if begins.IsZero() || !life.until.IsZero() && !begins.Before(life.until) {
			return nil, span{} // its window does not open before its end
		}
		return nil, span{until: begins}
	case !life.until.IsZero() && !t.Before(life.until):
		ends := life.until
		if open, in := l.spell(life.until.Add(-1)); !open {
			ends = in.from
		}
		if !ends.After(life.from) {
			return nil, span{}
		}
		return nil, span{from: ends}
	}
	open, in := l.spell(t)
	if !open {
		if !in.from.After(life.from) {
			in.from = time.Time{}
		}
		if !life.until.IsZero() && !in.until.Before(life.until) {
			in.until = time.Time{}
		}
		return nil, in
	}
	in = in.cut(life)
	if l.Every.N < 1 || l.Start.IsZero() || alike(l.Users) {
		return l.Users[0], in
	}
	return l.turnAt(t, zone, in)
}

// spell says whether the layer's window is open at t, and for how long that holds.
func (l Layer) spell(t time.Time) (bool, span) {
	if l.Active == nil {
		return true, span{}
	}
	return l.Active.spell(t)
}

// turnAt finds the turn that t falls into, joined with the turns of the same people around it, as far as they lie in in.
func (l Layer) turnAt(t time.Time, zone *time.Location, in span) ([]string, span) {
	start := fields(l.Start)
	begin := func(k int) time.Time { return instant(l.Every.handoff(start, k), zone) }
	order := l.order(start)
	users := func(k int) []string { return l.Users[order(k)%len(l.Users)] }

	k := l.Every.turn(start, highest(t, zone))
	who := users(k)
	// Turns that no time is left for (their whole hour was skipped) stand between no two others.
	first, from := k, begin(k)
	for first > 0 && from.After(in.from) {
		before := begin(first - 1)
		if before.Before(from) && !slices.Equal(users(first-1), who) {
			break
		}
		first, from = first-1, before
	}
	next, until := k+1, begin(k+1)
	for in.until.IsZero() || until.Before(in.until) {
		after := begin(next + 1)
		if until.Before(after) && !slices.Equal(users(next), who) {
			break
		}
		next, until = next+1, after
	}
	return who, in.cut(span{from: from, until: until})
}

// order gives the place of a turn among those that somebody has: its own number, unless turns are skipped. Whether one is
// says the wall alone, so that a change of the clocks never moves anybody's turn; and since the window repeats itself week
// by week, so do the skipped turns, and nothing has to be counted from the beginning.
func (l Layer) order(start time.Time) func(k int) int {
	length := map[string]int{"hour": 60, "day": day, "week": week}[l.Every.Unit] * l.Every.N
	if !l.SkipInactive || l.Active == nil || length == 0 || length >= week { // a turn of a week or more has every part of the week
		return func(k int) int { return k }
	}
	period := week / gcd(length, week)
	before := make([]int, period+1) // turns that somebody has, before each one of the period
	for k := range period {
		before[k+1] = before[k]
		if l.Active.opens(start, k*length, length) {
			before[k+1]++
		}
	}
	return func(k int) int { return k/period*before[period] + before[k%period] }
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
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
