package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/api"
)

// Imported calendars are named where something is to be said of them; what comes from outside does not steer the terminal.
func TestOnCallNamesCalendarsThatAreNotWell(t *testing.T) {
	t.Parallel()
	said := func(items ...api.OnCall) string {
		var out bytes.Buffer
		p := &program{out: &out, env: func(string) (string, bool) { return "", false }}
		if err := p.printCalendars(items); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	at := time.Date(2026, 1, 5, 9, 0, 0, 0, time.UTC)
	well := api.OnCall{Schedule: "primary", Calendars: []api.ImportedCalendar{{Layer: "rota", FetchedAt: &at}}}
	if got := said(well, api.OnCall{Schedule: "other"}); got != "" {
		t.Errorf("all is well, and it says %q", got)
	}
	got := said(well, api.OnCall{Schedule: "second", Calendars: []api.ImportedCalendar{
		{Layer: "calendar", Problems: []string{"it never came"}}, {Layer: "rota", FetchedAt: &at, Notes: []string{"events\x1b[2J overlap"}},
	}})
	for _, want := range []string{"\nImported calendars:\nSCHEDULE ", "second    calendar  never ", "it never came\n", "second    rota ", "2026-01-05 09:00", " overlap\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
	if strings.Contains(got, "\x1b") || strings.Contains(got, "primary") {
		t.Errorf("%q", got)
	}
}
