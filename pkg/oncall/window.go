package oncall

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Window is a part of the week, by the clock on the wall of a zone: on the given days, from one time of day to another.
// One whose end is not after its start runs over midnight, and belongs to the day on which it starts.
//
// For a route what the wall shows decides, nothing else: an hour that the zone skips is in no window, and one that it
// repeats is in or out both times. A layer's window opens and closes by the rule for hand-offs, see [Schedule].
type Window struct {
	Days        [7]bool // by time.Weekday
	From, Until int     // minutes since midnight; Until up to 24:00
	Zone        *time.Location
}

// day is the minutes of a day on the wall.
const day = 24 * 60

// Active says whether t lies in the window.
func (w Window) Active(t time.Time) bool { return w.on(w.wall(t)) }

// on says whether the window is open when the wall shows wall.
func (w Window) on(wall time.Time) bool {
	minute := wall.Hour()*60 + wall.Minute()
	today := w.Days[wall.Weekday()]
	if w.From < w.Until {
		return today && w.From <= minute && minute < w.Until
	}
	yesterday := w.Days[(wall.Weekday()+6)%7]
	return today && w.From <= minute || yesterday && minute < w.Until
}

// farOpening is how far ahead the next opening is looked for. A week is enough, but for windows on one day of which the zone
// skips the hours, or the day.
const farOpening = 5 * 7 * 24 * time.Hour

// Next is the first instant after t at which the window is active and was not before. False: there is none in the next weeks,
// since it has no days or never ends.
//
// Between two changes of its clock a zone's wall moves as the time does, so the window opens there only where the wall shows
// From; and a change may put the wall into the window, or show From a second time.
func (w Window) Next(t time.Time) (time.Time, bool) {
	far := t.Add(farOpening)
	opens := func(at time.Time) bool { return w.Active(at) && !w.Active(at.Add(-time.Nanosecond)) }
	for from := t; from.Before(far); {
		_, until := from.In(w.zone()).ZoneBounds()
		if until.IsZero() || until.After(far) {
			until = far
		}
		wall := w.wall(from)
		opening := time.Date(wall.Year(), wall.Month(), wall.Day(), w.From/60, w.From%60, 0, 0, time.UTC)
		for ; ; opening = opening.AddDate(0, 0, 1) {
			at := from.Add(opening.Sub(wall))
			if !at.Before(until) {
				break
			}
			if at.After(t) && opens(at) {
				return at.In(w.zone()), true
			}
		}
		if until.After(t) && until.Before(far) && opens(until) {
			return until.In(w.zone()), true
		}
		from = until
	}
	return time.Time{}, false
}

// Wall says what the clock on the window's wall shows at t, as people write it: "Mon 21:30 in Europe/Berlin".
func (w Window) Wall(t time.Time) string {
	return w.wall(t).Format("Mon 15:04") + " in " + w.zone().String()
}

// String is the window as people write it: "mon tue 22:00-07:00 Europe/Berlin".
func (w Window) String() string {
	var days []string
	for i := range weekdays {
		if w.Days[(i+1)%7] {
			days = append(days, weekdays[i])
		}
	}
	text := fmt.Sprintf("%02d:%02d-%02d:%02d %s", w.From/60, w.From%60, w.Until/60, w.Until%60, w.zone())
	if len(days) < 7 {
		text = strings.Join(days, " ") + " " + text
	}
	return text
}

func (w Window) zone() *time.Location {
	if w.Zone == nil {
		return time.UTC
	}
	return w.Zone
}

func (w Window) wall(t time.Time) time.Time { return onWall(t, w.zone()) }

// weekdays begin with Monday, as a working week does.
var weekdays = []string{"mon", "tue", "wed", "thu", "fri", "sat", "sun"}

// ParseDay reads a day of the week, as in mon or Monday, or several in a row, as in mon-fri. The row may run over the
// end of the week.
func ParseDay(s string) ([]time.Weekday, error) {
	first, last, several := strings.Cut(strings.ToLower(s), "-")
	from, until := weekday(first), weekday(first)
	if several {
		until = weekday(last)
	}
	if from < 0 || until < 0 {
		return nil, fmt.Errorf("%q is no day of the week: write mon, tue, wed, thu, fri, sat, sun, or several in a row like mon-fri", s)
	}
	var days []time.Weekday
	for i := from; ; i = (i + 1) % 7 {
		if days = append(days, time.Weekday((i+1)%7)); i == until {
			return days, nil
		}
	}
}

// weekday is the place of a day in the week, or -1.
func weekday(s string) int {
	s = strings.TrimSpace(s)
	for i, name := range weekdays {
		if s == name || s == strings.ToLower(time.Weekday((i+1)%7).String()) {
			return i
		}
	}
	return -1
}

// ParseHours reads a span of the day, as in 09:00-17:30 or, over midnight, 22:00-07:00. The whole day is 00:00-24:00.
func ParseHours(s string) (from, until int, err error) {
	a, b, ok := strings.Cut(s, "-")
	from, okFrom := minutes(a)
	until, okUntil := minutes(b)
	switch {
	case !ok || !okFrom || !okUntil || from == day:
		return 0, 0, fmt.Errorf("%q is no span of the day: write it like 09:00-17:30, or 22:00-07:00 over midnight", s)
	case from == until:
		return 0, 0, fmt.Errorf("%q is empty: the whole day is 00:00-24:00", s)
	}
	return from, until, nil
}

// minutes reads HH:MM.
func minutes(s string) (int, bool) {
	s = strings.TrimSpace(s)
	if len(s) != 5 || s[2] != ':' || slices.ContainsFunc([]byte{s[0], s[1], s[3], s[4]}, func(c byte) bool { return c < '0' || c > '9' }) {
		return 0, false
	}
	hour, minute := int(s[0]-'0')*10+int(s[1]-'0'), int(s[3]-'0')*10+int(s[4]-'0')
	if minute > 59 || hour > 24 || hour == 24 && minute > 0 {
		return 0, false
	}
	return hour*60 + minute, true
}
