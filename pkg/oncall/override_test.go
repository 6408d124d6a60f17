package oncall_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/oncall"
)

// daily is a schedule of two people by the day at working hours, with overrides. Clocks are those of UTC.
func daily(t *testing.T, overrides ...oncall.Override) oncall.Schedule {
	t.Helper()
	s := rotation(t, "UTC", "1 day", "2026-01-05 00:00", "ana", "bo")
	s.Layers[0].Active = &oncall.Window{Days: [7]bool{true, true, true, true, true, true, true}, From: 9 * 60, Until: 17 * 60, Zone: time.UTC}
	s.Overrides = overrides
	return s
}

func override(user, from, until string) oncall.Override {
	return oncall.Override{ID: user, User: user, Start: wall(from), End: wall(until)}
}

// spans lists shifts and gaps of two days.
func spans(s oncall.Schedule) []string {
	var all []string
	from, until := wall("2026-01-05 00:00"), wall("2026-01-07 00:00")
	for t := from; t.Before(until); {
		shift, ok := s.At(t)
		who := strings.Join(shift.Users, "+") + " " + shift.Layer
		if !ok {
			who = "nobody"
		}
		all = append(all, shift.Start.Format("02 15:04 ")+shift.End.Format("02 15:04 ")+who)
		if t = shift.End; t.IsZero() {
			break
		}
	}
	return all
}

func TestOverrideReplacesWhoeverIsOnCallAndKeepsGaps(t *testing.T) {
	t.Parallel()
	same(t, spans(daily(t, override("cho", "2026-01-05 12:00", "2026-01-06 10:00"))),
		"01 00:00 05 09:00 nobody", "05 09:00 05 12:00 ana rotation", "05 12:00 05 17:00 cho override", "05 17:00 06 09:00 nobody",
		"06 09:00 06 10:00 cho override", "06 10:00 06 17:00 bo rotation", "06 17:00 07 09:00 nobody")
}

func TestOverrideThatAddsCoversGaps(t *testing.T) {
	t.Parallel()
	o := override("cho", "2026-01-05 12:00", "2026-01-06 10:00")
	o.Add = true
	same(t, spans(daily(t, o)),
		"01 00:00 05 09:00 nobody", "05 09:00 05 12:00 ana rotation", "05 12:00 06 10:00 cho override", "06 10:00 06 17:00 bo rotation", "06 17:00 07 09:00 nobody")
}

func TestLaterOverrideGoesBeforeEarlierOne(t *testing.T) {
	t.Parallel()
	first, second := override("cho", "2026-01-05 10:00", "2026-01-05 14:00"), override("dee", "2026-01-05 12:00", "2026-01-05 16:00")
	same(t, spans(daily(t, first, second))[1:5], "05 09:00 05 10:00 ana rotation", "05 10:00 05 12:00 cho override", "05 12:00 05 16:00 dee override", "05 16:00 05 17:00 ana rotation")
	same(t, spans(daily(t, second, first))[1:5], "05 09:00 05 10:00 ana rotation", "05 10:00 05 14:00 cho override", "05 14:00 05 16:00 dee override", "05 16:00 05 17:00 ana rotation")
}

func TestOverrideOfOnePersonLeavesTheOthers(t *testing.T) {
	t.Parallel()
	s := oncall.Schedule{Zone: time.UTC, Layers: []oncall.Layer{{Name: "pair", Users: [][]string{{"ana", "bo"}, {"cho"}}, Every: every(t, "1 day"), Start: wall("2026-01-01 00:00")}}}
	for instead, want := range map[string]string{"ana": "dee+bo", "bo": "ana+dee", "cho": "ana+bo"} {
		o := override("dee", "2026-01-05 10:00", "2026-01-06 10:00")
		o.Instead = instead
		s.Overrides = []oncall.Override{o}
		if shift, _ := s.At(wall("2026-01-05 12:00")); strings.Join(shift.Users, "+") != want {
			t.Errorf("instead of %s: %v, want %s", instead, shift.Users, want)
		}
	}
	o := override("bo", "2026-01-05 10:00", "2026-01-06 10:00")
	o.Instead = "ana"
	s.Overrides = []oncall.Override{o}
	if shift, _ := s.At(wall("2026-01-05 12:00")); strings.Join(shift.Users, "+") != "bo" {
		t.Errorf("one of two who stands in for the other is there once: %v", shift.Users)
	}
}

func TestSwapLetsTwoShiftsChangeHands(t *testing.T) {
	t.Parallel()
	s := daily(t)
	a, _ := s.At(wall("2026-01-05 12:00"))
	b, _ := s.At(wall("2026-01-06 12:00"))
	both := oncall.Swap(a, "ana", b, "bo")
	same(t, spans(daily(t, both[:]...)), "01 00:00 05 09:00 nobody", "05 09:00 05 17:00 bo override", "05 17:00 06 09:00 nobody", "06 09:00 06 17:00 ana override", "06 17:00 07 09:00 nobody")
}

// An override whose edges change nothing splits neither a shift nor a gap.
func TestOverrideThatChangesNothingIsNotSeen(t *testing.T) {
	t.Parallel()
	gone := override("cho", "2026-01-05 18:00", "2026-01-05 20:00")
	other := override("cho", "2026-01-05 10:00", "2026-01-05 12:00")
	other.Instead = "dee"
	empty := override("dee", "2026-01-05 12:00", "2026-01-05 12:00")
	same(t, spans(daily(t, gone, other, empty)), spans(daily(t))...)
}

func TestLoadIsMeasuredWithinTheSpan(t *testing.T) {
	t.Parallel()
	o := override("cho", "2026-01-05 12:00", "2026-01-05 15:30")
	got := daily(t, o).Load(wall("2026-01-05 11:00"), wall("2026-01-06 10:00"))
	want := []oncall.Load{{User: "ana", Time: 2*time.Hour + 30*time.Minute, Shifts: 2}, {User: "bo", Time: time.Hour, Shifts: 1}, {User: "cho", Time: 3*time.Hour + 30*time.Minute, Shifts: 1}}
	if len(got) != 3 || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] {
		t.Errorf("got %v, want %v", got, want)
	}
}
