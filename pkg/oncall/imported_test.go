package oncall_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/oncall"
)

var people = []oncall.Person{
	{ID: "ana", Name: "Ana Torres", Email: "ana@example.com"}, {ID: "bo", Name: "Bo Lindqvist", Email: "Bo@Example.com"},
	{ID: "ana-b", Name: "Ana"}, {ID: "on", Name: "on"}, {ID: "cho", Name: "Åsa Chö"}, {ID: "dee", Name: "Sam"}, {ID: "eva", Name: "Sam"},
}

func TestWhomAnEventPutsOnCall(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		lines []string
		want  string // users; who is unknown
	}{
		{[]string{"SUMMARY:Primary", "ATTENDEE;CN=Ana:MAILTO:Ana@Example.COM", "ORGANIZER:mailto:boss@example.com"}, "ana;"},
		{[]string{"SUMMARY:bo", "ATTENDEE:mailto:ana@example.com"}, "ana;"}, // whoever is invited goes before the title
		{[]string{"SUMMARY:x", "ATTENDEE:mailto:ana@example.com", "ATTENDEE:mailto:bo@example.com"}, "ana,bo;"},
		{[]string{"SUMMARY:x", "ATTENDEE;PARTSTAT=DECLINED:mailto:ana@example.com", "ATTENDEE;PARTSTAT=TENTATIVE:mailto:bo@example.com"}, "bo;"},
		{[]string{"SUMMARY:x", "ATTENDEE;CUTYPE=ROOM:mailto:room@example.com", "ATTENDEE;CUTYPE=INDIVIDUAL:mailto:bo@example.com"}, "bo;"},
		{[]string{"SUMMARY:x", "ATTENDEE:mailto:ana@example.com", "ATTENDEE:mailto:zoe@example.com"}, "ana;zoe@example.com"},
		{[]string{"SUMMARY:Bo (standing in)", "ATTENDEE:mailto:zoe@example.com"}, "bo;zoe@example.com"},
		{[]string{"SUMMARY:x", "ATTENDEE:mailto:zoe@example.com"}, ";zoe@example.com"},
		{[]string{"SUMMARY:On call: ANA  torres"}, "on,ana;"},
		{[]string{"SUMMARY:Ana Torres"}, "ana;"}, // and not Ana, whose name is a part of hers
		{[]string{"SUMMARY:Ana\\, Bo Lindqvist"}, "ana,bo;"},
		{[]string{"SUMMARY:ana-b"}, "ana-b;"},
		{[]string{"SUMMARY:on-call of banana"}, ";"},
		{[]string{"SUMMARY:on-call: bo@example.com"}, "bo;"},
		{[]string{"SUMMARY:zoe@bo"}, ";"},
		{[]string{"SUMMARY:on-call: @bo."}, "bo;"},
		{[]string{"SUMMARY:ÅSA CHÖ"}, "cho;"},
		{[]string{"SUMMARY:Sam"}, "dee,eva;"}, // rather two than nobody
		{[]string{"SUMMARY:x", "ORGANIZER:mailto:ana@example.com"}, "ana;"},
		{[]string{"SUMMARY:bo", "ORGANIZER:mailto:ana@example.com"}, "bo;"},
		{[]string{"SUMMARY:x", "ORGANIZER:urn:uuid:1"}, ";"},
		{[]string{"SUMMARY:Busy"}, ";"},
	} {
		cal := read(t, calendarText(vevent(append(c.lines, "DTSTART:20260105T090000Z", "DTEND:20260105T170000Z")...)), "UTC", "2026-01-01 00:00", "2026-02-01 00:00")
		turns, strays := cal.Imported(people)
		var users, unknown []string
		for _, turn := range turns {
			users = append(users, turn.Users...)
		}
		for _, s := range strays {
			unknown = append(unknown, s.Who...)
		}
		if got := strings.Join(users, ",") + ";" + strings.Join(unknown, ","); got != c.want {
			t.Errorf("%q: %s, want %s", c.lines, got, c.want)
		}
		if lost := len(strays) > 0 && strays[0].Lost; lost != (len(users) == 0) || len(unknown) > 0 && len(strays) == 0 {
			t.Errorf("%q: strays %+v", c.lines, strays)
		}
	}
}

// events is a calendar of spans of one day, "09-17 ana bo".
func events(t *testing.T, spans ...string) *oncall.Calendar {
	t.Helper()
	c := &oncall.Calendar{}
	for _, s := range spans {
		var from, until int
		var who string
		if _, err := fmt.Sscanf(s, "%d-%d %s", &from, &until, &who); err != nil {
			t.Fatal(err)
		}
		day := wall("2026-01-05 00:00")
		c.Events = append(c.Events, oncall.Event{Start: day.Add(time.Duration(from) * time.Hour), End: day.Add(time.Duration(until) * time.Hour), Summary: strings.ReplaceAll(who, "+", " ")})
	}
	return c
}

func imported(t *testing.T, name string, spans ...string) oncall.Layer {
	t.Helper()
	turns, _ := events(t, spans...).Imported(people)
	return oncall.Layer{Name: name, Calendar: "c", Turns: turns}
}

// A calendar is a layer like others: where it has nobody, those below count, those above it go before it, and overrides before all.
func TestAnImportedLayerAmongOthers(t *testing.T) {
	t.Parallel()
	s := rotation(t, "UTC", "1 week", "2026-01-05 00:00", "dee")
	s.Layers = append(s.Layers, imported(t, "calendar", "09-12 ana", "12-13 ana", "15-18 bo"), oncall.Layer{Name: "top", Users: [][]string{{"eva"}}, Start: wall("2026-01-05 17:00"), End: wall("2026-01-05 20:00")})
	s.Overrides = []oncall.Override{{ID: "o", User: "cho", Instead: "bo", Start: wall("2026-01-05 14:00"), End: wall("2026-01-05 16:00")}}
	same(t, spans(s),
		"05 00:00 05 09:00 dee rotation", "05 09:00 05 13:00 ana calendar", "05 13:00 05 15:00 dee rotation", "05 15:00 05 16:00 cho override", "05 16:00 05 17:00 bo calendar",
		"05 17:00 05 20:00 eva top", "05 20:00 01 00:00 dee rotation")
	alone := oncall.Schedule{Zone: time.UTC, Layers: []oncall.Layer{imported(t, "calendar", "09-12 ana", "15-18 bo")}}
	same(t, spans(alone), "01 00:00 05 09:00 nobody", "05 09:00 05 12:00 ana calendar", "05 12:00 05 15:00 nobody", "05 15:00 05 18:00 bo calendar", "05 18:00 01 00:00 nobody")
	empty := oncall.Schedule{Zone: time.UTC, Layers: []oncall.Layer{{Name: "calendar", Calendar: "c"}}}
	if shift, ok := empty.At(wall("2026-01-05 09:00")); ok || !shift.Start.IsZero() || !shift.End.IsZero() {
		t.Errorf("a layer whose calendar was never fetched: %+v", shift)
	}
}

func TestEventsThatOverlap(t *testing.T) {
	t.Parallel()
	turns, strays := events(t, "09-13 ana", "12-15 bo", "12-14 cho", "20-22 ana", "21-23 ana", "20-22 zoe").Imported(people)
	var got []string
	for _, turn := range turns {
		got = append(got, fmt.Sprintf("%s-%s %s %t", turn.Start.Format("15"), turn.End.Format("15"), strings.Join(turn.Users, "+"), turn.Overlap))
	}
	same(t, got, "09-12 ana false", "12-13 ana+cho+bo true", "13-14 cho+bo true", "14-15 bo false", "20-23 ana false")
	if len(strays) != 1 || strays[0].Event.Summary != "zoe" || !strays[0].Lost {
		t.Errorf("strays: %+v", strays)
	}
}

// Against the plain slow answer: whoever is named by an event that covers the instant is on call.
func TestImportedLayersAgainstALookAtEveryEvent(t *testing.T) {
	t.Parallel()
	for range 300 {
		var list []string
		for range rand.IntN(12) {
			from := rand.IntN(40)
			list = append(list, fmt.Sprintf("%d-%d %s", from, from+1+rand.IntN(12), people[rand.IntN(2)].ID))
		}
		c := events(t, list...)
		s := oncall.Schedule{Zone: time.UTC, Layers: []oncall.Layer{imported(t, "calendar", list...)}}
		for hour := range 60 {
			at := wall("2026-01-05 00:30").Add(time.Duration(hour) * time.Hour)
			want := map[string]bool{}
			for _, e := range c.Events {
				if !e.Start.After(at) && e.End.After(at) {
					want[e.Summary] = true
				}
			}
			shift, ok := s.At(at)
			if ok != (len(want) > 0) || len(shift.Users) != len(want) || slices.ContainsFunc(shift.Users, func(u string) bool { return !want[u] }) {
				t.Fatalf("%q at %s: %v, want %v", list, at, shift.Users, want)
			}
			if !shift.Start.IsZero() && shift.Start.After(at) || !shift.End.IsZero() && !shift.End.After(at) {
				t.Fatalf("%q at %s: %+v", list, at, shift)
			}
		}
	}
}

func TestOneLayerAlone(t *testing.T) {
	t.Parallel()
	s := daily(t)
	s.Layers[0].Name = "backup"
	s.Layers = append(s.Layers, imported(t, "primary", "10-12 cho"))
	only := func(name string, overrides ...oncall.Override) []string {
		s := s
		s.Overrides = overrides
		layer, ok := s.Layer(name)
		if !ok {
			t.Fatalf("no layer %s", name)
		}
		return spans(layer)
	}
	same(t, only("backup"), "01 00:00 05 09:00 nobody", "05 09:00 05 17:00 ana backup", "05 17:00 06 09:00 nobody", "06 09:00 06 17:00 bo backup", "06 17:00 07 09:00 nobody")
	same(t, only("primary"), "01 00:00 05 10:00 nobody", "05 10:00 05 12:00 cho primary", "05 12:00 01 00:00 nobody")
	// An override replaces whoever is on call for the schedule: the layer below has its own.
	o := override("dee", "2026-01-05 11:00", "2026-01-05 14:00")
	same(t, only("backup", o)[1:5], "05 09:00 05 12:00 ana backup", "05 12:00 05 14:00 dee override", "05 14:00 05 17:00 ana backup", "05 17:00 06 09:00 nobody")
	same(t, only("primary", o)[1:], "05 10:00 05 11:00 cho primary", "05 11:00 05 12:00 dee override", "05 12:00 01 00:00 nobody")
	// One that replaces a person does so in every layer.
	o.Instead = "ana"
	same(t, only("backup", o)[1:4], "05 09:00 05 11:00 ana backup", "05 11:00 05 14:00 dee override", "05 14:00 05 17:00 ana backup")
	same(t, only("primary", o), only("primary")...)
	// What covers gaps of the schedule covers none of a layer.
	o.Instead, o.Add, o.Start, o.End = "", true, wall("2026-01-05 18:00"), wall("2026-01-05 20:00")
	same(t, only("backup", o), only("backup")...)
	for _, name := range []string{"", "none"} {
		if _, ok := s.Layer(name); ok {
			t.Errorf("there is a layer %q", name)
		}
	}
}
