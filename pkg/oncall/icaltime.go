package oncall

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	ics "github.com/arran4/golang-ical"
)

// moment is a date or a date and time of a calendar.
type moment struct {
	wall time.Time // what the clock on the wall of zone shows, as UTC
	zone *time.Location
	day  bool // a date without a time
}

func (m moment) instant() time.Time { return instant(m.wall, m.zone) }

// clocks are the zones of a calendar.
type clocks struct {
	zone  *time.Location // of what has none
	zones Zones
	own   []*ics.VTimezone
	made  map[string]made // of those that the calendar brings along
	budget
}

type made struct {
	zone *time.Location
	err  error
}

// oldest is the first year in which something may begin: before it there was another calendar.
const oldest = 1583

// moment reads one value of a property.
func (c *clocks) moment(p ics.BaseProperty, value string) (moment, error) {
	value = strings.TrimSpace(value)
	m := moment{zone: c.zone}
	var err error
	if m.wall, err = time.Parse("20060102", value); err == nil {
		m.day = true
	} else if m.wall, err = time.Parse("20060102T150405Z", value); err == nil {
		m.zone = time.UTC
	} else if m.wall, err = time.Parse("20060102T150405", value); err == nil {
		if names := p.ICalParameters["TZID"]; len(names) > 0 {
			if m.zone, err = c.named(names[0]); err != nil {
				return moment{}, err
			}
		}
	}
	if err != nil || m.wall.Year() < oldest {
		return moment{}, fmt.Errorf("%q is no date and time", shorten(plain(value)))
	}
	return m, nil
}

// named is a zone that the calendar calls by a name: the one that all the world calls so, else the one that it describes itself.
// Outlook has names of its own, such as W. Europe Standard Time, and describes them.
func (c *clocks) named(name string) (*time.Location, error) {
	if zone := c.zones(name); zone != nil {
		return zone, nil
	}
	known, ok := c.made[name]
	if !ok {
		known.err = fmt.Errorf("the zone %q is unknown, and the calendar does not describe it", shorten(plain(name)))
		for _, tz := range c.own {
			if p := tz.GetProperty(ics.ComponentPropertyTzid); p != nil && p.Value == name {
				if known.zone, known.err = c.describe(name, tz); known.err != nil {
					known.err = fmt.Errorf("the zone %q that the calendar describes: %w", shorten(plain(name)), known.err)
				}
				break
			}
		}
		c.made[name] = known
	}
	return known.zone, known.err
}

// change is when the clocks of a zone begin to be so many seconds away from UTC.
type change struct {
	at     int64
	offset int
	summer bool
}

// maxChanges bounds the changes of one description. One that begins in 1601 has two a year.
const maxChanges = 10_000

// describe makes a zone of a calendar's own description.
func (c *clocks) describe(name string, tz *ics.VTimezone) (*time.Location, error) {
	var all []change
	before, earliest := 0, int64(0)
	for _, part := range tz.Components {
		var base ics.ComponentBase
		summer := false
		switch p := part.(type) {
		case *ics.Standard:
			base = p.ComponentBase
		case *ics.Daylight:
			base, summer = p.ComponentBase, true
		default:
			continue
		}
		text := func(name ics.ComponentProperty) string {
			if p := base.GetProperty(name); p != nil {
				return strings.TrimSpace(p.Value)
			}
			return ""
		}
		from, err := offset(text("TZOFFSETFROM"))
		if err != nil {
			return nil, err
		}
		to, err := offset(text("TZOFFSETTO"))
		if err != nil {
			return nil, err
		}
		start, err := time.Parse("20060102T150405", text(ics.ComponentPropertyDtStart))
		if err != nil || start.Year() < oldest {
			return nil, errors.New("its DTSTART is no date and time")
		}
		walls := []time.Time{start}
		if rule := text(ics.ComponentPropertyRrule); rule != "" {
			fixed := moment{wall: start, zone: time.FixedZone("", from)}
			if walls, err = c.occurrences(rule, fixed, start, lastChange); err != nil {
				return nil, err
			}
		}
		for _, wall := range walls {
			at := wall.Unix() - int64(from)
			if len(all) == 0 || at < earliest {
				earliest, before = at, from
			}
			all = append(all, change{at, to, summer})
		}
		if len(all) > maxChanges {
			return nil, errors.New("its clocks change too often")
		}
	}
	if len(all) == 0 {
		return nil, errors.New("it never says how far it is from UTC")
	}
	slices.SortStableFunc(all, func(a, b change) int { return cmp.Compare(a.at, b.at) })
	return zoneOf(name, before, all)
}

// lastChange is when descriptions end: far behind whatever a calendar is asked about.
var lastChange = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)

// zoneOf makes a zone of its changes, in the form that the system's own zones have (RFC 8536).
func zoneOf(name string, before int, all []change) (*time.Location, error) {
	types := []change{{offset: before}}
	index := make([]byte, len(all))
	for i, c := range all {
		at := slices.IndexFunc(types, func(t change) bool { return t.offset == c.offset && t.summer == c.summer })
		if at < 0 {
			at = len(types)
			types = append(types, c)
		}
		if at > 255 {
			return nil, errors.New("it has too many offsets")
		}
		index[i] = byte(at)
	}
	head := func(changes, types, letters int) []byte {
		b := append([]byte("TZif2"), make([]byte, 15)...)
		for _, n := range []int{0, 0, 0, changes, types, letters} {
			b = binary.BigEndian.AppendUint32(b, uint32(n)) //nolint:gosec // bounded by maxChanges
		}
		return b
	}
	data := append(head(0, 1, 1), 0, 0, 0, 0, 0, 0, 0) // version 1, which nobody reads: one type, one letter
	data = append(data, head(len(all), len(types), 1)...)
	for _, c := range all {
		data = binary.BigEndian.AppendUint64(data, uint64(c.at)) //nolint:gosec // a signed number, as it is written
	}
	data = append(data, index...)
	for _, t := range types {
		data = binary.BigEndian.AppendUint32(data, uint32(int32(t.offset))) //nolint:gosec // within a day
		summer := byte(0)
		if t.summer {
			summer = 1
		}
		data = append(data, summer, 0)
	}
	data = append(data, 0, '\n', '\n')
	return time.LoadLocationFromTZData(name, data)
}

// offset reads +0100 or +010000 as seconds.
func offset(s string) (int, error) {
	for _, format := range []string{"-0700", "-070000"} {
		if t, err := time.Parse(format, s); err == nil {
			_, seconds := t.Zone()
			return seconds, nil
		}
	}
	return 0, fmt.Errorf("%q is no offset from UTC", shorten(plain(s)))
}

// duration reads a duration of RFC 5545: P1W, P1DT12H, PT30M.
func duration(s string) (time.Duration, error) {
	bad := fmt.Errorf("%q is no duration", shorten(plain(s)))
	rest, ok := strings.CutPrefix(strings.TrimPrefix(strings.TrimSpace(s), "+"), "P")
	if !ok || rest == "" {
		return 0, bad
	}
	units := map[byte]time.Duration{'W': 7 * 24 * time.Hour, 'D': 24 * time.Hour}
	var total time.Duration
	for rest != "" {
		if rest[0] == 'T' {
			rest, units = rest[1:], map[byte]time.Duration{'H': time.Hour, 'M': time.Minute, 'S': time.Second}
			continue
		}
		digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
		if digits == 0 || digits > 7 || digits == len(rest) || units[rest[digits]] == 0 {
			return 0, bad
		}
		n, err := strconv.Atoi(rest[:digits])
		if err != nil || n > int(longestEvent/units[rest[digits]]) {
			return 0, bad
		}
		total += time.Duration(n) * units[rest[digits]]
		rest = rest[digits+1:]
	}
	if total > longestEvent {
		return 0, bad
	}
	return total, nil
}

// longestEvent is how long an event may be.
const longestEvent = 10 * 366 * 24 * time.Hour
