package config

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/oncall"
)

// Calendar is a calendar that somebody else keeps, whose shifts are those of one layer or several.
type Calendar struct {
	URL  string
	Zone *time.Location // of days without an hour and times without a zone
}

// CalendarLayer is the layer of a schedule that its own ical_url makes: the last one, so it goes before the others.
const CalendarLayer = "calendar"

// calendar reads the address of a calendar and gives the name by which the file knows it from then on, which is no secret. Empty: it is
// none, which is noted.
func (l *loader) calendar(o *object, zone *time.Location) string {
	v := o.get("ical_url")
	s, ok := v.text()
	if !ok {
		return ""
	}
	if rest, ok := strings.CutPrefix(s, "webcal://"); ok { // as calendar programs write it
		s = "https://" + rest
	}
	if v.url(s) == nil || zone == nil {
		return ""
	}
	if raw, _ := v.raw(); !strings.Contains(raw, "${") {
		l.warn("%s stands in the file itself: whoever has such an address reads the calendar; put it into the environment and write ical_url: \"${NAME}\"", v.path)
	}
	sum := sha256.Sum256([]byte(s + "\x00" + zone.String()))
	id := hex.EncodeToString(sum[:16])
	l.file.Calendars[id] = Calendar{URL: s, Zone: zone}
	return id
}

// importedLayer reads a layer whose shifts come from a calendar.
func (l *loader) importedLayer(o *object, layer oncall.Layer, zone *time.Location) oncall.Layer {
	for _, key := range []string{"users", "every", "start", "end", "active", "skip_inactive"} {
		if o.get(key); o.has(key) {
			value{r: o.r, at: o.places[key], path: o.join(key)}.problem("remove it, or remove ical_url and say here whose turn it is", "a layer with ical_url has no %s: its calendar says who is on call when", key)
		}
	}
	layer.Calendar = l.calendar(o, zone)
	o.done(nil)
	return layer
}

// importedNames checks that no other layer is called as an imported one: people are told of calendars by schedule and layer.
func importedNames(o *object, s oncall.Schedule) {
	seen := map[string]int{}
	for _, layer := range s.Layers {
		seen[layer.Name]++
	}
	for _, layer := range s.Layers {
		if layer.Calendar != "" && seen[layer.Name] > 1 {
			o.problem("give each layer a name of its own", "the schedule %s has %d layers %q, and one is a calendar", s.ID, seen[layer.Name], layer.Name)
			seen[layer.Name] = 0
		}
	}
}

// imports keeps what was made of calendars, since the file is asked for it with each page.
type imports struct {
	mu sync.Mutex
	of map[string]imported // by calendar
}

type imported struct {
	from   *oncall.Calendar
	turns  []oncall.Turn
	strays []oncall.Stray
}

// Imported is what a copy of a calendar comes to with the people of this file.
func (f *File) Imported(id string, c *oncall.Calendar) ([]oncall.Turn, []oncall.Stray) {
	if f.imports == nil {
		return c.Imported(f.persons())
	}
	f.imports.mu.Lock()
	defer f.imports.mu.Unlock()
	known, ok := f.imports.of[id]
	if !ok || known.from != c {
		known = imported{from: c}
		known.turns, known.strays = c.Imported(f.persons())
		f.imports.of[id] = known
	}
	return known.turns, known.strays
}

func (f *File) persons() []oncall.Person {
	all := make([]oncall.Person, len(f.Users))
	for i, u := range f.Users {
		all[i] = oncall.Person{ID: u.ID, Name: u.Name, Email: u.Email}
	}
	return all
}

// warnCalendars warns where a calendar can name hardly anybody.
func (l *loader) warnCalendars() {
	if len(l.file.Calendars) == 0 || slices.ContainsFunc(l.file.Users, func(u User) bool { return u.Email != "" }) {
		return
	}
	l.warn("calendars name people by their e-mail addresses, and no user of the file has one: give them email, or put ids or names into the titles of the events")
}
