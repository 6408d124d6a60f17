package config_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/oncall"
)

const withCalendars = minimal + `
users:
  - {id: ana, name: Ana Torres, email: ana@example.com}
  - {id: bo}
schedules:
  - id: primary
    time_zone: Europe/Berlin
    ical_url: "webcal://calendar.example.com/${SECRET}/basic.ics"
    layers:
      - {users: [ana]}
      - {name: tokyo, time_zone: Asia/Tokyo, ical_url: "https://calendar.example.com/${SECRET}/basic.ics"}
  - {id: second, time_zone: Europe/Berlin, ical_url: "https://calendar.example.com/${SECRET}/basic.ics"}
`

func TestCalendarsAreLayers(t *testing.T) {
	t.Parallel()
	f := parse(t, withCalendars)
	primary, _ := f.Schedule("primary")
	second, _ := f.Schedule("second")
	if n := len(primary.Layers); n != 3 || primary.Layers[1].Name != "tokyo" || primary.Layers[2].Name != config.CalendarLayer || len(second.Layers) != 1 {
		t.Fatalf("layers: %+v, %+v", primary.Layers, second.Layers)
	}
	tokyo, berlin := f.Calendars[primary.Layers[1].Calendar], f.Calendars[primary.Layers[2].Calendar]
	if berlin.URL != "https://calendar.example.com/s3cr3t-value/basic.ics" || berlin.Zone.String() != "Europe/Berlin" || tokyo.URL != berlin.URL || tokyo.Zone.String() != "Asia/Tokyo" {
		t.Errorf("calendars: %+v, %+v", tokyo, berlin)
	}
	if len(f.Calendars) != 2 || second.Layers[0].Calendar != primary.Layers[2].Calendar {
		t.Errorf("one address in one zone is one calendar: %+v", f.Calendars)
	}
	for id := range f.Calendars {
		if strings.Contains(id, "example") || strings.Contains(id, "s3cr3t") {
			t.Errorf("the address is in its name: %s", id)
		}
	}
	if len(f.Warnings) != 1 || !strings.Contains(f.Warnings[0], "no route takes") {
		t.Errorf("warnings: %q", f.Warnings)
	}
}

func TestWarningsAboutCalendars(t *testing.T) {
	t.Parallel()
	f := parse(t, strings.Replace(strings.ReplaceAll(withCalendars, "${SECRET}", "private-0123456789"), ", email: ana@example.com", "", 1))
	for _, want := range []string{
		"schedules[0].ical_url stands in the file itself: whoever has such an address reads the calendar; put it into the environment and write ical_url: \"${NAME}\"",
		"schedules[0].layers[1].ical_url stands in the file itself", "schedules[1].ical_url stands in the file itself",
		"calendars name people by their e-mail addresses, and no user of the file has one",
	} {
		if !slices.ContainsFunc(f.Warnings, func(w string) bool { return strings.HasPrefix(w, want) }) {
			t.Errorf("no warning %q in %q", want, f.Warnings)
		}
	}
	if strings.Contains(strings.Join(f.Warnings, " "), "private-") {
		t.Errorf("an address is in %q", f.Warnings)
	}
}

// What the database lays over the file says who is on call in imported layers; the file itself stays as it is.
func TestTheFileWithCalendars(t *testing.T) {
	t.Parallel()
	f := parse(t, withCalendars)
	second, _ := f.Schedule("second")
	id := second.Layers[0].Calendar
	at := time.Date(2026, 1, 5, 9, 0, 0, 0, time.UTC)
	onCall := func(f *config.File) string {
		s, _ := f.Schedule("second")
		shift, _ := s.At(at)
		return strings.Join(shift.Users, "+")
	}
	copied := func(summary string) oncall.Overlay {
		return oncall.Overlay{Calendars: map[string]*oncall.Calendar{id: {Events: []oncall.Event{{Start: at, End: at.Add(time.Hour), Summary: summary}}}, "of another file": {}}}
	}
	ana, bo := copied("Ana Torres"), copied("bo")
	for range 2 { // the second time it is remembered
		if got := onCall(f.WithOverrides(ana)); got != "ana" {
			t.Errorf("ana's: %q", got)
		}
	}
	if got := onCall(f.WithOverrides(bo)); got != "bo" {
		t.Errorf("a new copy: %q", got)
	}
	if got := onCall(f); got != "" {
		t.Errorf("the file itself: %q", got)
	}
	if _, strays := f.Imported(id, copied("Zoe").Calendars[id]); len(strays) != 1 {
		t.Errorf("strays: %+v", strays)
	}
}

func TestStepsThatPageALayer(t *testing.T) {
	t.Parallel()
	f := parse(t, withCalendars+`
escalations: {default: {steps: [{page: ["layer:primary/tokyo", "layer:primary/layer 1", "layer:primary/tokyo"]}]}}
notifiers: {ops: {type: slack, token: t, channel: C1}}
routes: [{match: "#", notify: [ops], escalate: default}]
`)
	if got := f.Escalations["default"].Steps[0].Page; !slices.Equal(got, []string{"layer:primary/tokyo", "layer:primary/layer 1"}) {
		t.Errorf("pages %q", got)
	}
	if !slices.ContainsFunc(f.Warnings, func(w string) bool {
		return strings.HasPrefix(w, "the escalation default pages ana, who has no contacts")
	}) {
		t.Errorf("warnings: %q", f.Warnings)
	}
}
