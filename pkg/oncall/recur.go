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
	maxInterval = 10_000    // of a rule
	maxSteps    = 1_000_000 // recurrences of all rules of a calendar, from the beginning of each: daily since 1900 is 50,000
	maxBarren   = 5         // rules that never give a day: for each the library looks until the year 9999, which takes a second
)

// budget is what is left of a calendar's bounds.
type budget struct{ steps, barren int }

func (b *budget) spent() bool { return b.steps <= 0 || b.barren <= 0 }

// recurrences are the walls at which an event begins, from one wall to another: its own start, or what its rules make of it, what is added
// to that and what is taken away. What can't be understood is noted, and the rest counts.
func (r *reading) recurrences(e *ics.VEvent, start moment, from, until time.Time) []time.Time {
	var walls []time.Time
	rules := e.GetProperties(ics.ComponentPropertyRrule)
	if len(rules) == 0 {
		walls = append(walls, start.wall)
	}
	for _, p := range rules {
		more, err := r.occurrences(p.Value, start, from, until)
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
func (b *budget) occurrences(rule string, start moment, from, until time.Time) (walls []time.Time, err error) {
	bad := func(why string) ([]time.Time, error) {
		return nil, fmt.Errorf("its rule %s can't be followed: %s", shorten(plain(rule)), why)
	}
	if b.spent() {
		return bad("the rules before it took too long")
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
	case len(o.Byeaster) > 0:
		return bad("calendars have no BYEASTER")
	}
	if !o.Until.IsZero() {
		switch value := untilOf(rule); {
		case len(value) == len("20060102"): // the day counts
			o.Until = o.Until.Add(24*time.Hour - time.Second)
		case strings.HasSuffix(value, "Z"):
			o.Until = onWall(o.Until, start.zone)
		}
	}
	if o.Until.IsZero() || o.Until.After(until) {
		o.Until = until // the library's own end is 292 years after the start, and Outlook's zones begin in 1601
	}
	if o.Until.Before(start.wall) {
		return nil, nil // a series that was cut off before its first
	}
	o.Dtstart = start.wall
	defer func() { // the library does not look at all that it is given
		if recover() != nil {
			walls, err = bad("it makes no sense")
		}
	}()
	r, err := rrule.NewRRule(*o)
	if err != nil {
		return bad(plain(err.Error()))
	}
	some := false
	for next := r.Iterator(); ; some = true {
		wall, ok := next()
		if !ok || !wall.Before(until) {
			break
		}
		if b.steps--; b.steps <= 0 {
			return bad("it has too many recurrences")
		}
		if !wall.Before(from) {
			walls = append(walls, wall)
		}
	}
	if !some {
		b.barren--
		return bad("it gives no day at all")
	}
	return walls, nil
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
