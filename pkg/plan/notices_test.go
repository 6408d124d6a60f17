package plan_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/oncall"
	"github.com/tocsin-oncall/tocsin/pkg/plan"
)

func clockIn(t *testing.T, zone string) (func(string) time.Time, *time.Location) {
	t.Helper()
	z, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	return func(s string) time.Time {
		at, err := time.ParseInLocation("2006-01-02 15:04", s, z)
		if err != nil {
			t.Fatal(err)
		}
		return at
	}, z
}

// A person's turn goes on while others come and go beside them and layers take over from one another.
func TestTurnsOfOnePerson(t *testing.T) {
	t.Parallel()
	at, zone := clockIn(t, "Europe/Berlin")
	s := oncall.Schedule{ID: "s", Zone: zone, Layers: []oncall.Layer{
		{Name: "days", Users: [][]string{{"ana", "bo"}, {"ana", "cho"}, {"cho"}}, Every: oncall.Every{N: 1, Unit: "day"}, Start: at("2026-03-27 09:00")},
		{Name: "instead", Users: [][]string{{"ana"}}, Start: at("2026-03-29 09:00"), End: at("2026-03-29 12:00")},
	}}
	var got []string
	for _, turn := range plan.Turns(s, at("2026-03-28 10:00"), at("2026-03-30 10:00")) {
		got = append(got, fmt.Sprintf("%s %s %s", turn.User, turn.Start.Format("02 15:04 MST"), turn.End.Format("02 15:04 MST")))
	}
	want := []string{
		"ana 27 09:00 CET 29 12:00 CEST", // two days and the layer that stands in
		"cho 28 09:00 CET 29 09:00 CEST",
		"cho 29 12:00 CEST 30 09:00 CEST",
		"ana 30 09:00 CEST 01 09:00 CEST",
		"bo 30 09:00 CEST 31 09:00 CEST",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestWhatPeopleAreToldOfTheirShifts(t *testing.T) { // D13: wall clocks; D15
	t.Parallel()
	at, zone := clockIn(t, "Europe/Berlin")
	f := file(t)
	f.Users[0].TimeZone, f.Users[1].TimeZone = "Europe/London", ""
	f.Schedules = []oncall.Schedule{{ID: "s", Name: "Primary", Zone: zone, Layers: []oncall.Layer{
		{Users: [][]string{{"ana"}, {"bo"}}, Every: oncall.Every{N: 1, Unit: "week"}, Start: at("2026-03-23 00:00")},
	}}}
	f.Notices = map[string]config.Notices{"s": {Start: true, End: true, Evening: true, EveningAt: 18 * 60}}
	var got []string
	for _, n := range plan.ShiftNotices(f, f.Schedules[0], at("2026-03-29 12:00"), at("2026-03-30 12:00"), time.Hour) {
		title, text := n.Told(f, f.Schedules[0])
		got = append(got, fmt.Sprintf("%s %s %s | %s | %s", n.User, n.What, n.Due.In(zone).Format("02 15:04"), title, text))
	}
	want := []string{
		"ana end 30 00:00 | Your shift has ended: Primary | You were on call for Primary until Sun 29 Mar 23:00 BST. On call now: Bo.",
		"bo start 30 00:00 | Your shift has started: Primary | You are on call for Primary until Mon 6 Apr 00:00 CEST.",
		"bo evening 29 18:00 | Your shift starts soon: Primary | You are on call for Primary from Mon 30 Mar 00:00 CEST until Mon 6 Apr 00:00 CEST.",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if via, ok := plan.QuietWay(f, linked, "bo", at("2026-03-30 12:00")); !ok || via != "telegram-dm" {
		t.Errorf("what is not urgent reaches Bo by %q", via) // the first of Bo's ways is for urgent incidents
	}
	if _, ok := plan.QuietWay(f, linked, "cho", at("2026-03-30 12:00")); ok {
		t.Error("who has no contacts is reached")
	}
}
