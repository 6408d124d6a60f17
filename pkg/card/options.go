package card

import (
	"fmt"
	"time"
)

// Options is what the one who shows an incident knows beside it.
type Options struct {
	PublicURL string // what tocsin calls itself; the card's small print names it
	Target    string // page: whom it is for, "schedule:primary", "layer:primary/nights" or "user:ana"; says why this person is paged
	Repeat    bool   // an earlier attempt of the same effect may have arrived: the small print says so
}

// repeatNote is the small print of a second message that may be one too many.
const repeatNote = "repeat: an earlier attempt may have arrived"

// incident is the page of an incident.
func (o Options) incident(id string) string {
	if o.PublicURL == "" || id == "" {
		return ""
	}
	return o.PublicURL + "/incidents/" + id
}

// footer joins what is known into one line of small print.
func (o Options) footer(lines ...string) string {
	if o.Repeat {
		lines = append(lines, repeatNote)
	}
	out := ""
	for _, l := range lines {
		switch {
		case l == "":
		case out == "":
			out = l
		default:
			out += " · " + l
		}
	}
	return out
}

// Duration is a span as people say it: two units at most, "less than a second" for nothing to speak of.
func Duration(d time.Duration) string {
	switch {
	case d < time.Second:
		return "less than a second"
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return units(int(d/time.Minute), "min", int(d%time.Minute/time.Second), "s")
	case d < 24*time.Hour:
		return units(int(d/time.Hour), "h", int(d%time.Hour/time.Minute), "min")
	}
	return units(int(d/(24*time.Hour)), "d", int(d%(24*time.Hour)/time.Hour), "h")
}

// units leaves out a second unit that is zero.
func units(a int, unitA string, b int, unitB string) string {
	if b == 0 {
		return fmt.Sprintf("%d %s", a, unitA)
	}
	return fmt.Sprintf("%d %s %d %s", a, unitA, b, unitB)
}

// instant is a time in UTC: a card is read in several zones, and a page at night must not need arithmetic about which.
func instant(t time.Time) string { return t.UTC().Format("2 Jan 15:04:05") + " UTC" }

// clock is an instant of the same day as another one that stands beside it.
func clock(t, beside time.Time) string {
	if t.UTC().Truncate(24 * time.Hour).Equal(beside.UTC().Truncate(24 * time.Hour)) {
		return t.UTC().Format("15:04:05") + " UTC"
	}
	return instant(t)
}
