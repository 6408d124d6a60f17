package deploy_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/oncall"
)

var update = flag.Bool("update", false, "rewrite what the handbook shows of the code's answers")

// awkward are schedules that go wrong where somebody adds durations. Each is shown in the handbook with the shifts that
// the code gives for it.
var awkward = []struct {
	what        string
	zone        string
	layers      []string
	overrides   []oncall.Override
	from, until string // wall clocks in the zone
}{
	{"Weekly hand-off, the clocks go forward: a week of 167 hours", "Europe/Berlin",
		[]string{`users: [ana, bo], every: 1 week, start: "2026-01-05 09:00"`}, nil, "2026-03-23 09:00", "2026-04-06 09:00"},
	{"Weekly hand-off, the clocks go back: a week of 169 hours", "Europe/Berlin",
		[]string{`users: [ana, bo], every: 1 week, start: "2026-01-05 09:00"`}, nil, "2026-10-19 09:00", "2026-11-02 09:00"},
	{"Hand-off at an hour that does not exist: the first instant after the gap", "Europe/Berlin",
		[]string{`users: [ana, bo], every: 1 day, start: "2026-03-01 02:30"`}, nil, "2026-03-28 02:30", "2026-03-30 12:00"},
	{"Hand-off at an hour that occurs twice: its first pass", "Europe/Berlin",
		[]string{`users: [ana, bo], every: 1 day, start: "2026-10-01 02:30"`}, nil, "2026-10-24 02:30", "2026-10-26 12:00"},
	{"Hourly turns, an hour is missing: its turn does not take place", "Europe/London",
		[]string{`users: [ana, bo, cho], every: 1 hour, start: "2026-03-29 00:00"`}, nil, "2026-03-29 00:00", "2026-03-29 04:00"},
	{"Hourly turns, an hour occurs twice: its turn has two", "Europe/London",
		[]string{`users: [ana, bo, cho], every: 1 hour, start: "2026-10-25 00:00"`}, nil, "2026-10-25 00:00", "2026-10-25 04:00"},
	{"Day and night by 12 hours, the clocks go forward in the night", "America/New_York",
		[]string{`users: [ana, bo], every: 12 hours, start: "2026-01-01 08:00"`}, nil, "2026-03-07 08:00", "2026-03-09 08:00"},
	{"Clocks that go forward by half an hour", "Australia/Lord_Howe",
		[]string{`users: [ana, bo], every: 1 day, start: "2026-10-01 02:15"`}, nil, "2026-10-03 02:15", "2026-10-05 12:00"},
	{"Clocks that go back by half an hour", "Australia/Lord_Howe",
		[]string{`users: [ana, bo], every: 1 day, start: "2026-04-01 01:45"`}, nil, "2026-04-04 01:45", "2026-04-06 12:00"},
	{"Clocks that change twice within five weeks", "Africa/Casablanca",
		[]string{`users: [ana, bo], every: 1 week, start: "2026-02-02 02:30"`}, nil, "2026-02-09 02:30", "2026-03-30 02:30"},
	{"A day that was left out whole: 30 December 2011", "Pacific/Apia",
		[]string{`users: [ana, bo], every: 1 day, start: "2011-12-01 09:00"`}, nil, "2011-12-28 09:00", "2012-01-01 09:00"},
	{"By months from the 31st, in a zone half an hour off: the last day where there is none", "Asia/Kolkata",
		[]string{`users: [ana, bo], every: 1 month, start: "2026-12-31 09:00"`}, nil, "2026-12-31 09:00", "2027-05-31 09:00"},
	{"By months from the 30th, in a leap year", "UTC",
		[]string{`users: [ana, bo], every: 1 month, start: "2027-12-30 09:00"`}, nil, "2027-12-30 09:00", "2028-04-30 09:00"},
	{"By years from a leap day", "UTC",
		[]string{`users: [ana, bo], every: 12 months, start: "2024-02-29 09:00"`}, nil, "2025-02-28 09:00", "2029-02-28 09:00"},
	{"08:30 to 17:30, written down in July, looked at in November", "Europe/London",
		[]string{`users: [ana, bo], every: 1 day, start: "2026-07-01 08:30", active: {hours: "08:30-17:30"}`}, nil, "2026-11-10 00:00", "2026-11-12 00:00"},
	{"Nights over midnight, the clocks go forward", "Europe/Berlin",
		[]string{`users: [ana, bo], every: 1 day, start: "2026-03-01 12:00", active: {hours: "22:00-07:00"}`}, nil, "2026-03-27 12:00", "2026-03-30 12:00"},
	{"Evenings of Saturday that end within the hour that occurs twice: at its first pass", "Europe/Berlin",
		[]string{`users: [ana], active: {days: [sat], hours: "18:00-02:30"}`}, nil, "2026-10-17 12:00", "2026-11-01 12:00"},
	{"An hour of Sunday that is missing once", "Europe/Berlin",
		[]string{`users: [ana], active: {days: [sun], hours: "02:00-03:00"}`}, nil, "2026-03-21 12:00", "2026-04-06 12:00"},
	{"Daily turns on working days; the turns of the weekend count", "Europe/Berlin",
		[]string{`users: [ana, bo, cho], every: 1 day, start: "2026-01-05 09:00", active: {days: [mon-fri], hours: "09:00-17:00"}`}, nil, "2026-01-08 00:00", "2026-01-14 00:00"},
	{"The same; the turns of the weekend are skipped", "Europe/Berlin",
		[]string{`users: [ana, bo, cho], every: 1 day, start: "2026-01-05 09:00", active: {days: [mon-fri], hours: "09:00-17:00"}, skip_inactive: true`}, nil, "2026-01-08 00:00", "2026-01-14 00:00"},
	{"Following the sun, on the day on which only some clocks change", "UTC",
		[]string{
			`name: asia, time_zone: Asia/Tokyo, users: [ana], active: {hours: "09:00-17:00"}`,
			`name: europe, time_zone: Europe/Berlin, users: [bo], active: {hours: "09:00-17:00"}`,
			`name: america, time_zone: America/New_York, users: [cho], active: {hours: "11:00-20:00"}`,
		}, nil, "2026-03-07 00:00", "2026-03-09 00:00"},
	{"Overrides over a gap: it stays one, unless the override is to cover it", "Europe/Berlin",
		[]string{`users: [ana, bo], every: 1 day, start: "2026-01-05 09:00", active: {hours: "09:00-17:00"}`},
		[]oncall.Override{{User: "cho", Start: at("2026-01-06T11:00:00Z"), End: at("2026-01-07T11:00:00Z")}, {User: "dee", Add: true, Start: at("2026-01-07T14:00:00Z"), End: at("2026-01-07T20:00:00Z")}},
		"2026-01-06 00:00", "2026-01-08 00:00"},
	{"An override of one of two who share a shift, and across a hand-off", "Europe/Berlin",
		[]string{`users: [[ana, bo], cho], every: 1 day, start: "2026-01-05 09:00"`},
		[]oncall.Override{{User: "dee", Instead: "bo", Start: at("2026-01-05T20:00:00Z"), End: at("2026-01-06T12:00:00Z")}},
		"2026-01-05 09:00", "2026-01-07 09:00"},
}

func at(s string) time.Time {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		panic(err)
	}
	return t
}

// Cases D13 and D14: the page shows the shifts that the code gives.
func TestSchedulesPageShowsTheShifts(t *testing.T) {
	t.Parallel()
	const begins, ends = "<!-- the table below is written by a test -->\n", "<!-- the end of the table -->\n"
	text := page(t, "schedules.md")
	head, rest, found := strings.Cut(text, begins)
	shown, tail, ended := strings.Cut(rest, ends)
	if !found || !ended {
		t.Fatalf("the page has no place for the table: %q and %q", begins, ends)
	}
	var b strings.Builder
	b.WriteString("| | schedule | shifts |\n|---|---|---|\n")
	for i, a := range awkward {
		var layers []string
		for _, l := range a.layers {
			layers = append(layers, "{"+l+"}")
		}
		file := fmt.Sprintf("server: {public_url: \"https://tocsin.example.com\"}\nusers: [{id: ana}, {id: bo}, {id: cho}, {id: dee}]\nschedules: [{id: s, time_zone: %s, layers: [%s]}]\n",
			a.zone, strings.Join(layers, ", "))
		f, _, err := config.Parse("tocsin.yaml", []byte(file), func(string) (string, bool) { return "postgres://localhost/x", true })
		if err != nil {
			t.Fatalf("%s: %v", a.what, err)
		}
		s, _ := f.Schedule("s")
		s.Overrides = a.overrides
		fmt.Fprintf(&b, "| %d | %s.<br>`time_zone: %s`", i+1, a.what, a.zone)
		for _, l := range layers {
			fmt.Fprintf(&b, "<br>`%s`", l)
		}
		for _, o := range a.overrides {
			fmt.Fprintf(&b, "<br>override: %s", o.User)
			if o.Instead != "" {
				fmt.Fprintf(&b, " instead of %s", o.Instead)
			}
			if o.Add {
				b.WriteString(", gaps as well")
			}
			fmt.Fprintf(&b, ", %s to %s", o.Start.In(s.Zone).Format(clock), o.End.In(s.Zone).Format(clock))
		}
		b.WriteString(" | ")
		from, until := local(t, a.from, s.Zone), local(t, a.until, s.Zone)
		shifts := s.Shifts(from, until)
		for n, shift := range shifts {
			if n > 0 {
				b.WriteString("<br>")
				if gap := shift.Start.Sub(shifts[n-1].End); gap > 0 {
					fmt.Fprintf(&b, "*nobody for %s*<br>", hours(gap))
				}
			}
			fmt.Fprintf(&b, "%s → %s **%s**, %s", shift.Start.Format(clock), shift.End.Format(clock), strings.Join(shift.Users, " and "), hours(shift.End.Sub(shift.Start)))
			if shift.Layer == oncall.ByOverride || len(a.layers) > 1 {
				fmt.Fprintf(&b, " (%s)", shift.Layer)
			}
		}
		b.WriteString(" |\n")
	}
	want := b.String()
	if *update {
		if err := os.WriteFile("handbook/schedules.md", []byte(head+begins+want+ends+tail), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if shown != want {
		old, now := strings.Split(shown, "\n"), strings.Split(want, "\n")
		for i := range min(len(old), len(now)) {
			if old[i] != now[i] {
				t.Errorf("the page shows\n  %s\nand the code says\n  %s", old[i], now[i])
			}
		}
		t.Fatalf("handbook/schedules.md is not what the code says (%d lines, %d now): go test ./deploy -run SchedulesPage -update", len(old), len(now))
	}
}

// clock shows a moment with the wall's offset, so that both passes of an hour can be told apart.
const clock = "Mon 2006-01-02 15:04 -07:00"

func local(t *testing.T, wall string, zone *time.Location) time.Time {
	t.Helper()
	at, err := time.ParseInLocation("2006-01-02 15:04", wall, zone)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func hours(d time.Duration) string {
	if d%time.Hour == 0 {
		return fmt.Sprintf("%d h", d/time.Hour)
	}
	return fmt.Sprintf("%d h %d min", d/time.Hour, d%time.Hour/time.Minute)
}
