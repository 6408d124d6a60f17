package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/oncall"
)

const (
	// CalendarStale is how old the copy of a calendar may be before people are told that it does not become newer.
	CalendarStale = time.Hour
	// calendarSoon is how far ahead events are looked at that put nobody on call.
	calendarSoon = 7 * 24 * time.Hour
	// calendarNames is how many things of one sort are named of one calendar.
	calendarNames = 5
)

// CalendarState is how it stands with fetching a calendar.
type CalendarState struct {
	FetchedAt *time.Time // when its copy was last found to be what it says; nil: there is none
	FailedAt  *time.Time // the first failure since; nil: none
	Error     string     // the last one
}

// CalendarLayer is how it stands with an imported layer.
type CalendarLayer struct {
	Schedule, Layer string
	CalendarState
	Wrong []CalendarTrouble // what somebody has to mend
	Notes []string          // what is allowed, and perhaps not meant
}

// CalendarTrouble is one thing that is wrong with a calendar.
type CalendarTrouble struct {
	What     string // the same as long as it is the same trouble
	Sentence string
}

// Sentences are the troubles, for people.
func (c CalendarLayer) Sentences() []string {
	all := []string{}
	for _, t := range c.Wrong {
		all = append(all, t.Sentence)
	}
	return all
}

// What tells one set of troubles from another.
func (c CalendarLayer) What() string {
	var all []string
	for _, t := range c.Wrong {
		all = append(all, t.What)
	}
	slices.Sort(all) // whichever comes next
	return strings.Join(slices.Compact(all), "\n")
}

// Calendars is how it stands with all imported layers of the file, in order.
func Calendars(f *config.File, states map[string]CalendarState, over oncall.Overlay, now time.Time) []CalendarLayer {
	var all []CalendarLayer
	for _, s := range f.Schedules {
		for _, layer := range s.Layers {
			if layer.Calendar == "" {
				continue
			}
			c := CalendarLayer{Schedule: s.ID, Layer: layer.Name, CalendarState: states[layer.Calendar]}
			c.judge(f, layer.Calendar, over.Calendars[layer.Calendar], s.Zone, now)
			all = append(all, c)
		}
	}
	slices.SortStableFunc(all, func(a, b CalendarLayer) int {
		return cmp.Or(cmp.Compare(a.Schedule, b.Schedule), cmp.Compare(a.Layer, b.Layer))
	})
	return all
}

func (c *CalendarLayer) judge(f *config.File, id string, copied *oncall.Calendar, zone *time.Location, now time.Time) {
	if zone == nil {
		zone = time.UTC
	}
	clock := func(t time.Time) string { return t.In(zone).Format("Mon 2 Jan 15:04 MST") }
	c.age(clock, now)
	if copied == nil {
		return
	}
	turns, strays := f.Imported(id, copied)
	for i, p := range copied.Problems {
		if i == calendarNames {
			c.wrong("more problems", "%d more of its events can't be understood.", len(copied.Problems)-i)
			break
		}
		c.wrong(p, "Something in it can't be understood, and does not count: %s.", p)
	}
	soon := func(start, end time.Time) bool { return end.After(now) && start.Before(now.Add(calendarSoon)) }
	c.strangers(strays, soon, clock)
	for _, t := range turns {
		if t.Overlap && soon(t.Start, t.End) && len(c.Notes) < calendarNames {
			c.Notes = append(c.Notes, fmt.Sprintf("Events overlap: %s are on call together from %s to %s.", strings.Join(t.Users, " and "), clock(t.Start), clock(t.End)))
		}
	}
}

// strangers are the events that name somebody who is no user. Those of one title and the same people are one trouble, however often they
// recur: else it would be another one every day.
func (c *CalendarLayer) strangers(strays []oncall.Stray, soon func(start, end time.Time) bool, clock func(time.Time) string) {
	type sort struct {
		what  string
		first oncall.Stray
		more  int
	}
	var sorts []sort
	for _, s := range strays {
		if !soon(s.Event.Start, s.Event.End) {
			continue
		}
		what := s.Event.Summary + " " + strings.Join(s.Who, " ")
		if i := slices.IndexFunc(sorts, func(o sort) bool { return o.what == what }); i >= 0 {
			sorts[i].more++
		} else {
			sorts = append(sorts, sort{what, s, 0})
		}
	}
	for i, s := range sorts {
		if i == calendarNames {
			c.wrong("more strangers", "%d more events within seven days name somebody who is no user of the file.", len(sorts)-i)
			break
		}
		e := s.first.Event
		name := fmt.Sprintf("The event %q, %s to %s,", e.Summary, clock(e.Start), clock(e.End))
		if s.more > 0 {
			name = fmt.Sprintf("The event %q, %s to %s and %d times more within seven days,", e.Summary, clock(e.Start), clock(e.End), s.more)
		}
		switch who := strings.Join(s.first.Who, ", "); {
		case who == "":
			c.wrong(s.what, "%s puts nobody on call: neither its title nor whoever made it names a user of the file.", name)
		case s.first.Lost:
			c.wrong(s.what, "%s puts nobody on call: %s is no user's e-mail address in the file, and its title names none.", name, who)
		default:
			c.wrong(s.what, "%s also names %s, who is no user of the file.", name, who)
		}
	}
}

// age says whether the copy is what the calendar says now.
func (c *CalendarLayer) age(clock func(time.Time) string, now time.Time) {
	why := strings.TrimSuffix(c.Error, ".")
	switch {
	case c.FetchedAt == nil && c.FailedAt != nil:
		c.wrong("never", "It could not be fetched since %s, and there is no copy, so the layer has nobody: %s.", clock(*c.FailedAt), why)
	case c.FetchedAt == nil:
		c.Notes = append(c.Notes, "It was not fetched yet; the layer has nobody until it is.")
	case now.Sub(*c.FetchedAt) < CalendarStale && c.FailedAt != nil:
		c.Notes = append(c.Notes, fmt.Sprintf("It can't be fetched since %s: %s. The copy of %s is in force.", clock(*c.FailedAt), why, clock(*c.FetchedAt)))
	case now.Sub(*c.FetchedAt) < CalendarStale:
	case c.FailedAt != nil:
		c.wrong("stale", "It could not be fetched since %s: %s. The copy of %s stays in force, and what was changed since is not in it.", clock(*c.FailedAt), why, clock(*c.FetchedAt))
	default:
		c.wrong("stale", "No replica has fetched it since %s; that copy stays in force.", clock(*c.FetchedAt))
	}
}

func (c *CalendarLayer) wrong(what, format string, args ...any) {
	c.Wrong = append(c.Wrong, CalendarTrouble{What: what, Sentence: fmt.Sprintf(format, args...)})
}
