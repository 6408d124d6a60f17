package oncall

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	ics "github.com/arran4/golang-ical"
)

// The bounds of one calendar, in the span that is read of it.
const (
	maxEvents   = 10_000
	maxRules    = 1_000 // events that recur: each costs what its rule costs
	maxInvited  = 50    // of one event
	maxSummary  = 200   // characters
	maxProblems = 50
)

// Zones finds a zone by its name; nil where there is none.
type Zones func(name string) *time.Location

// ReadCalendar reads what a calendar (RFC 5545) says of [from, until), recurrences written out. Days without an hour, and times without a
// zone, are those of zone; all else has its own. An error means that the text is no whole calendar: nothing of it is to be
// believed. What is wrong with single events becomes a problem of the calendar, and the others count.
//
// Recurrences go by the clock on the wall, as everything in a schedule does: a shift that begins and ends at 09:00 does so
// all year, whatever the clocks do in between.
func ReadCalendar(text string, zone *time.Location, zones Zones, from, until time.Time) (c *Calendar, err error) {
	defer func() { // what comes from outside is read by libraries
		if p := recover(); p != nil {
			c, err = nil, fmt.Errorf("the calendar can't be read: %s", shorten(plain(fmt.Sprint(p))))
		}
	}()
	text = strings.TrimPrefix(text, "\ufeff")
	if head := strings.TrimSpace(text); !strings.HasPrefix(strings.ToUpper(head[:min(len(head), 15)]), "BEGIN:VCALENDAR") {
		return nil, fmt.Errorf("what came is no calendar: it begins with %q", head[:min(len(head), 20)])
	}
	if !strings.HasSuffix(strings.ToUpper(strings.TrimRight(text, "\r\n\t ")), "END:VCALENDAR") {
		return nil, errors.New("the calendar is cut off: END:VCALENDAR is not its last line")
	}
	cal, err := ics.ParseCalendarWithOptions(strings.NewReader(text), ics.WithUnknownPropertyHandler(ics.AcceptUnknownPropertyHandler))
	if err != nil {
		return nil, fmt.Errorf("the calendar can't be read: %s", shorten(plain(err.Error())))
	}
	r := reading{from: from, until: until, clocks: clocks{zone: zone, zones: zones, own: cal.Timezones(), made: map[string]made{}, budget: budget{maxSteps, maxBarren}}}
	if err := r.events(cal.Events()); err != nil {
		return nil, err
	}
	if r.spent() {
		return nil, fmt.Errorf("the rules by which its events recur take too long to follow: %s", strings.Join(r.cal.Problems[:min(len(r.cal.Problems), 3)], "; "))
	}
	slices.SortStableFunc(r.cal.Events, func(a, b Event) int { return a.Start.Compare(b.Start) })
	return &r.cal, nil
}

// reading is a calendar that is being read.
type reading struct {
	clocks
	cal         Calendar
	from, until time.Time
	rules       int
}

// exception names one recurrence: that of the event with this UID which would begin at this instant.
type exception struct {
	uid string
	at  int64
}

func (r *reading) events(all []*ics.VEvent) error {
	instead := map[exception]bool{}
	for _, e := range all {
		p := e.GetProperty(ics.ComponentPropertyRecurrenceId)
		if p == nil {
			continue
		}
		at, err := r.moment(p.BaseProperty, p.Value)
		if err != nil {
			r.problem(e, "its RECURRENCE-ID can't be read: %v", err)
			continue
		}
		if len(p.ICalParameters["RANGE"]) > 0 {
			r.problem(e, "it changes all recurrences from one on (RANGE), of which only that one is changed here")
		}
		instead[exception{e.Id(), at.instant().Unix()}] = true
	}
	for _, e := range all {
		if err := r.event(e, instead); err != nil {
			return err
		}
	}
	return nil
}

// event adds what an event says of the span.
func (r *reading) event(e *ics.VEvent, instead map[exception]bool) error {
	if p := e.GetProperty(ics.ComponentPropertyStatus); p != nil && strings.EqualFold(p.Value, "CANCELLED") {
		return nil
	}
	start, length, err := r.times(e)
	if err != nil {
		r.problem(e, "%v", err)
		return nil
	}
	made := about(e)
	add := func(wall time.Time) error {
		made.Start, made.End = instant(wall, start.zone), instant(wall.Add(length), start.zone)
		if !made.Start.Before(made.End) || !made.End.After(r.from) || !made.Start.Before(r.until) {
			return nil
		}
		if len(r.cal.Events) == maxEvents {
			return fmt.Errorf("the calendar has more than %d events from %s to %s", maxEvents, r.from.UTC().Format(time.DateOnly), r.until.UTC().Format(time.DateOnly))
		}
		made.Start, made.End = made.Start.UTC(), made.End.UTC()
		r.cal.Events = append(r.cal.Events, made)
		return nil
	}
	if e.HasProperty(ics.ComponentPropertyRecurrenceId) {
		return add(start.wall)
	}
	if e.HasProperty(ics.ComponentPropertyRrule) {
		if r.rules++; r.rules > maxRules {
			return fmt.Errorf("the calendar has more than %d events that recur", maxRules)
		}
	}
	// The last that can matter begins before until on whatever wall; the first ends after from.
	for _, wall := range r.recurrences(e, start, r.from.Add(-length-farthest), r.until.Add(farthest)) {
		if instead[exception{e.Id(), instant(wall, start.zone).Unix()}] {
			continue
		}
		if err := add(wall); err != nil {
			return err
		}
	}
	return nil
}

// times reads when an event begins and how long it is on the wall.
func (r *reading) times(e *ics.VEvent) (moment, time.Duration, error) {
	p := e.GetProperty(ics.ComponentPropertyDtStart)
	if p == nil {
		return moment{}, 0, errors.New("it has no DTSTART")
	}
	start, err := r.moment(p.BaseProperty, p.Value)
	if err != nil {
		return moment{}, 0, fmt.Errorf("its DTSTART can't be read: %w", err)
	}
	length := time.Duration(0)
	if p := e.GetProperty(ics.ComponentPropertyDtEnd); p != nil {
		end, err := r.moment(p.BaseProperty, p.Value)
		if err != nil {
			return moment{}, 0, fmt.Errorf("its DTEND can't be read: %w", err)
		}
		if end.zone != start.zone {
			end.wall = onWall(end.instant(), start.zone)
		}
		length = end.wall.Sub(start.wall)
	} else if p := e.GetProperty(ics.ComponentPropertyDuration); p != nil {
		if length, err = duration(p.Value); err != nil {
			return moment{}, 0, fmt.Errorf("its DURATION can't be read: %w", err)
		}
	} else if start.day {
		length = 24 * time.Hour
	}
	if length <= 0 {
		return moment{}, 0, errors.New("it has no end, or one that is not after its start")
	}
	return start, length, nil
}

// about is an event without its times: whom it may put on call.
func about(e *ics.VEvent) Event {
	var out Event
	if p := e.GetProperty(ics.ComponentPropertySummary); p != nil {
		out.Summary = shorten(plain(p.Value))
	}
	if p := e.GetProperty(ics.ComponentPropertyOrganizer); p != nil {
		out.Organizer = address(p.Value)
	}
	for _, p := range e.GetProperties(ics.ComponentPropertyAttendee) {
		first := func(name string) string {
			if all := p.ICalParameters[name]; len(all) > 0 {
				return strings.ToUpper(all[0])
			}
			return ""
		}
		who := address(p.Value)
		if kind := first("CUTYPE"); who == "" || first("PARTSTAT") == "DECLINED" || kind != "" && kind != "INDIVIDUAL" && kind != "UNKNOWN" {
			continue // whoever has declined is not coming, and a room can't be called
		}
		if len(out.Invited) < maxInvited && !slices.Contains(out.Invited, who) {
			out.Invited = append(out.Invited, who)
		}
	}
	return out
}

// address is the e-mail address of a calendar user; empty where it is something else.
func address(s string) string {
	scheme, mail, ok := strings.Cut(strings.TrimSpace(s), ":")
	if !ok {
		scheme, mail = "mailto", scheme
	}
	if !strings.EqualFold(scheme, "mailto") || !strings.Contains(mail, "@") {
		return ""
	}
	return strings.ToLower(shorten(plain(mail)))
}

// plain is a text of a calendar on one line, as it may be stored and shown.
func plain(s string) string {
	return strings.Join(strings.FieldsFunc(strings.ToValidUTF8(s, "\ufffd"), func(r rune) bool { return r <= ' ' || r == 0x7f }), " ")
}

func shorten(s string) string {
	if all := []rune(s); len(all) > maxSummary {
		return string(all[:maxSummary-1]) + "…"
	}
	return s
}

// problem notes what is wrong with an event.
func (r *reading) problem(e *ics.VEvent, format string, args ...any) {
	if len(r.cal.Problems) >= maxProblems {
		return
	}
	name := "an event without a title"
	if p := e.GetProperty(ics.ComponentPropertySummary); p != nil && p.Value != "" {
		name = fmt.Sprintf("the event %q", shorten(plain(p.Value)))
	}
	if p := e.GetProperty(ics.ComponentPropertyDtStart); p != nil {
		name += " of " + shorten(plain(p.Value))
	}
	if text := name + ": " + plain(fmt.Sprintf(format, args...)); !slices.Contains(r.cal.Problems, text) {
		r.cal.Problems = append(r.cal.Problems, text)
	}
}
