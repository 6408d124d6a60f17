package oncall

import (
	"cmp"
	"slices"
	"time"
)

// Load is how long one person is on call in a span of time.
type Load struct {
	User   string
	Time   time.Duration // as a stopwatch measures it: a day in which the clocks change has 23 or 25 hours
	Shifts int           // that overlap the span
}

// Load says how long each person is on call in [from, until), by user. Whoever shares a shift has all of it.
func (s Schedule) Load(from, until time.Time) []Load {
	byUser := map[string]*Load{}
	for _, shift := range s.Shifts(from, until) {
		in := span{from, until}.cut(span{shift.Start, shift.End})
		for i, user := range shift.Users {
			if slices.Contains(shift.Users[:i], user) {
				continue
			}
			if byUser[user] == nil {
				byUser[user] = &Load{User: user}
			}
			byUser[user].Time += in.until.Sub(in.from)
			byUser[user].Shifts++
		}
	}
	var all []Load
	for _, l := range byUser {
		all = append(all, *l)
	}
	slices.SortFunc(all, func(a, b Load) int { return cmp.Compare(a.User, b.User) })
	return all
}
