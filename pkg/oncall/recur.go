package oncall

import (
	"fmt"
	"slices"
	"strings"
	"time"

	ics "github.com/arran4/golang-ical"
	"github.com/teambition/rrule-go"
)

const (
	maxInterval = 10_000  // of a rule
	maxSteps    = 100_000 // of one rule up to the end of what is read: daily since long before there were calendars
)

// recurrences are the walls at which an event begins, from one wall to another: its own start, or what its rules make of it, what is added
// to that and what is taken away. What can't be understood is noted, and the rest counts.
func (r *reading) recurrences(e *ics.VEvent, start moment, from, until time.Time) []time.Time {
	var walls []time.Time
	rules := e.GetProperties(ics.ComponentPropertyRrule)
	if len(rules) == 0 {
		walls = append(walls, start.wall)
	}
	for _, p := range rules {
		more, err := occurrences(p.Value, start, from, until, maxSteps)
		if err != nil {
			r.problem(e, "%v", err)
		}
		walls = append(walls, more...)
	}
	for _, m := range r.list(e, ics.ComponentPropertyRdate) {
		if m.day != start.day {
			r.problem(e, "its RDATE is a day and the event begins at an hour, or the other way round")
			continue
		}
		if m.zone != start.zone {
			m.wall = onWall(m.instant(), start.zone)
		}
		walls = append(walls, m.wall)
	}
	for _, m := range r.list(e, ics.ComponentPropertyExdate) {
		walls = slices.DeleteFunc(walls, func(w time.Time) bool {
			if m.day { // of an event with hours, too: then it takes the day
				return w.Truncate(24 * time.Hour).Equal(m.wall)
			}
			return instant(w, start.zone).Equal(m.instant())
		})
	}
	if e.HasProperty(ics.ComponentPropertyExrule) {
		r.problem(e, "its EXRULE counts for nothing: calendars have not had it since 2009, write EXDATE")
	}
	slices.SortFunc(walls, time.Time.Compare)
	return slices.CompactFunc(walls, time.Time.Equal)
}

// list reads the moments of all properties of a name.
func (r *reading) list(e *ics.VEvent, name ics.ComponentProperty) []moment {
	var all []moment
	for _, p := range e.GetProperties(name) {
		for value := range strings.SplitSeq(p.Value, ",") {
			m, err := r.moment(p.BaseProperty, value)
			if err != nil {
				r.problem(e, "its %s can't be read: %v", name, err)
				continue
			}
			all = append(all, m)
		}
	}
	return all
}

// occurrences are the walls that a rule gives, from one wall up to another.
func occurrences(rule string, start moment, from, until time.Time, most int) ([]time.Time, error) {
	bad := func(why string) ([]time.Time, error) {
		return nil, fmt.Errorf("its rule %s can't be followed: %s", shorten(plain(rule)), why)
	}
	o, err := rrule.StrToROption(strings.TrimSuffix(strings.ToUpper(strings.TrimSpace(rule)), ";"))
	switch {
	case err != nil:
		return bad(plain(err.Error()))
	case o.Freq > rrule.DAILY: // and the library may look for the next one for ever
		return bad("it repeats within a day; write events that repeat daily")
	case o.Interval < 0 || o.Interval > maxInterval:
		return bad(fmt.Sprintf("INTERVAL must be from 1 to %d", maxInterval))
	case o.Count < 0:
		return bad("COUNT is negative")
	}
	if !o.Until.IsZero() {
		switch value := untilOf(rule); {
		case len(value) == len("20060102"): // the day counts
			o.Until = o.Until.Add(24*time.Hour - time.Second)
		case strings.HasSuffix(value, "Z"):
			o.Until = onWall(o.Until, start.zone)
		}
	}
	o.Dtstart = start.wall
	r, err := rrule.NewRRule(*o)
	if err != nil {
		return bad(plain(err.Error()))
	}
	var walls []time.Time
	next := r.Iterator()
	for range most {
		wall, ok := next()
		if !ok || !wall.Before(until) {
			return walls, nil
		}
		if !wall.Before(from) {
			walls = append(walls, wall)
		}
	}
	return bad("it has too many recurrences")
}

// untilOf is the value of UNTIL as it is written.
func untilOf(rule string) string {
	for part := range strings.SplitSeq(strings.ToUpper(rule), ";") {
		if value, ok := strings.CutPrefix(strings.TrimSpace(part), "UNTIL="); ok {
			return value
		}
	}
	return ""
}
