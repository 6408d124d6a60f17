package oncall_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/oncall"
)

func zone(t *testing.T, name string) *time.Location {
	t.Helper()
	z, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

func wall(s string) time.Time {
	at, err := time.Parse("2006-01-02 15:04", s)
	if err != nil {
		panic(err)
	}
	return at
}

func every(t *testing.T, s string) oncall.Every {
	t.Helper()
	e, err := oncall.ParseEvery(s)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func rotation(t *testing.T, zoneName, length, start string, users ...string) oncall.Schedule {
	t.Helper()
	l := oncall.Layer{Name: "rotation", Every: every(t, length), Start: wall(start)}
	for _, u := range users {
		l.Users = append(l.Users, []string{u})
	}
	return oncall.Schedule{ID: "primary", Zone: zone(t, zoneName), Layers: []oncall.Layer{l}}
}

// handoffs lists the local starts of the shifts in a window, with who begins.
func handoffs(s oncall.Schedule, from, until string) []string {
	var all []string
	for _, shift := range s.Shifts(inZone(from, s.Zone), inZone(until, s.Zone)) {
		all = append(all, shift.Start.Format("01-02 15:04 -0700 ")+strings.Join(shift.Users, "+"))
	}
	return all
}

func inZone(s string, z *time.Location) time.Time {
	w := wall(s)
	return time.Date(w.Year(), w.Month(), w.Day(), w.Hour(), w.Minute(), 0, 0, z)
}

func same(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// Case D13.
func TestDailyShiftMadeInJulyKeepsItsLocalHourInNovember(t *testing.T) {
	t.Parallel()
	s := rotation(t, "Europe/London", "1 day", "2026-07-01 08:30", "ana", "bo")
	same(t, handoffs(s, "2026-11-10 09:00", "2026-11-12 09:00"),
		"11-10 08:30 +0000 ana", "11-11 08:30 +0000 bo", "11-12 08:30 +0000 ana")
	same(t, handoffs(s, "2026-07-02 09:00", "2026-07-03 09:00"), "07-02 08:30 +0100 bo", "07-03 08:30 +0100 ana")
}

// Case D13.
func TestWeeklyHandoffAcrossBothClockChangesHasNoGapAndNoOverlap(t *testing.T) {
	t.Parallel()
	s := rotation(t, "Europe/Berlin", "1 week", "2026-01-05 09:00", "ana", "bo", "cho")
	shifts := s.Shifts(inZone("2026-01-05 09:00", s.Zone), inZone("2027-01-04 09:00", s.Zone))
	if len(shifts) != 52 {
		t.Fatalf("%d shifts in 52 weeks", len(shifts))
	}
	lengths := map[time.Duration]int{}
	for i, shift := range shifts {
		if got := shift.Start.Format("Mon 15:04"); got != "Mon 09:00" {
			t.Errorf("shift %d begins on %s", i, got)
		}
		if i > 0 && !shift.Start.Equal(shifts[i-1].End) {
			t.Errorf("shift %d begins at %s, the one before ends at %s", i, shift.Start, shifts[i-1].End)
		}
		if want := []string{"ana", "bo", "cho"}[i%3]; shift.Users[0] != want {
			t.Errorf("shift %d is %s's, want %s", i, shift.Users[0], want)
		}
		lengths[shift.End.Sub(shift.Start)]++
	}
	if lengths[168*time.Hour] != 50 || lengths[167*time.Hour] != 1 || lengths[169*time.Hour] != 1 {
		t.Errorf("lengths: %v", lengths)
	}
}

// Case D14.
func TestHandoffInTheMissingHourIsTheFirstInstantAfterTheGap(t *testing.T) {
	t.Parallel()
	s := rotation(t, "America/New_York", "1 day", "2026-03-06 02:30", "ana", "bo")
	same(t, handoffs(s, "2026-03-07 03:00", "2026-03-09 03:00"),
		"03-07 02:30 -0500 bo", "03-08 03:00 -0400 ana", "03-09 02:30 -0400 bo")
}

// Case D14.
func TestHandoffInTheDoubledHourIsItsFirstPass(t *testing.T) {
	t.Parallel()
	s := rotation(t, "America/New_York", "1 day", "2026-10-30 01:30", "ana", "bo")
	same(t, handoffs(s, "2026-10-31 02:00", "2026-11-02 02:00"),
		"10-31 01:30 -0400 bo", "11-01 01:30 -0400 ana", "11-02 01:30 -0500 bo")
	secondPass := time.Date(2026, 11, 1, 6, 10, 0, 0, time.UTC) // 01:10 for the second time
	if shift, ok := s.At(secondPass); !ok || shift.Users[0] != "ana" {
		t.Errorf("at the second 01:10 it is %v, want ana: the hand-off was in the first pass", shift.Users)
	}
}

// Case D14.
func TestLordHoweChangesByHalfAnHour(t *testing.T) {
	t.Parallel()
	s := rotation(t, "Australia/Lord_Howe", "1 day", "2026-10-02 02:15", "ana", "bo")
	same(t, handoffs(s, "2026-10-03 03:00", "2026-10-05 03:00"), // 02:00 becomes 02:30 on the 4th
		"10-03 02:15 +1030 bo", "10-04 02:30 +1100 ana", "10-05 02:15 +1100 bo")
	s = rotation(t, "Australia/Lord_Howe", "1 day", "2026-04-03 01:45", "ana", "bo")
	same(t, handoffs(s, "2026-04-04 03:00", "2026-04-06 03:00"), // 02:00 becomes 01:30 on the 5th
		"04-04 01:45 +1100 bo", "04-05 01:45 +1100 ana", "04-06 01:45 +1030 bo")
}

// Case D14.
func TestMonthlyOnTheLastDays(t *testing.T) {
	t.Parallel()
	s := rotation(t, "Asia/Kolkata", "1 month", "2027-12-31 09:00", "ana", "bo")
	same(t, handoffs(s, "2028-01-01 00:00", "2028-05-01 00:00"),
		"12-31 09:00 +0530 ana", "01-31 09:00 +0530 bo", "02-29 09:00 +0530 ana", "03-31 09:00 +0530 bo", "04-30 09:00 +0530 ana")
	s = rotation(t, "Asia/Kolkata", "12 months", "2024-02-29 09:00", "ana", "bo")
	same(t, handoffs(s, "2025-03-01 00:00", "2028-03-01 00:00"),
		"02-28 09:00 +0530 bo", "02-28 09:00 +0530 ana", "02-28 09:00 +0530 bo", "02-29 09:00 +0530 ana")
}

func TestHourlyRotationKeepsItsWallClockHours(t *testing.T) {
	t.Parallel()
	s := rotation(t, "Europe/London", "12 hours", "2026-01-01 09:00", "day", "night")
	same(t, handoffs(s, "2026-03-28 21:00", "2026-03-30 09:00"),
		"03-28 21:00 +0000 night", "03-29 09:00 +0100 day", "03-29 21:00 +0100 night")
	s = rotation(t, "Europe/London", "1 hour", "2026-03-29 00:00", "a", "b", "c")
	same(t, handoffs(s, "2026-03-29 00:00", "2026-03-29 04:00"), // 01:00 does not exist: b's hour does not take place
		"03-29 00:00 +0000 a", "03-29 02:00 +0100 c", "03-29 03:00 +0100 a")
	s = rotation(t, "Europe/London", "1 hour", "2026-10-25 00:00", "a", "b", "c")
	got := s.Shifts(inZone("2026-10-25 00:00", s.Zone), inZone("2026-10-25 03:00", s.Zone))
	if len(got) != 3 || got[1].End.Sub(got[1].Start) != 2*time.Hour {
		t.Errorf("01:00 occurs twice, so b's turn lasts two hours; got %v", got)
	}
}

func TestLaterLayerWinsWhereItCovers(t *testing.T) {
	t.Parallel()
	s := rotation(t, "Europe/Madrid", "1 week", "2026-01-05 09:00", "ana", "bo")
	s.Layers = append(s.Layers, oncall.Layer{Name: "cover", Users: [][]string{{"cho", "dee"}}, Start: wall("2026-01-14 12:00"), End: wall("2026-01-15 12:00")})
	same(t, handoffs(s, "2026-01-12 10:00", "2026-01-19 09:00"),
		"01-12 09:00 +0100 bo", "01-14 12:00 +0100 cho+dee", "01-15 12:00 +0100 bo")
	shift, ok := s.At(inZone("2026-01-13 00:00", s.Zone))
	if !ok || !shift.End.Equal(inZone("2026-01-14 12:00", s.Zone)) {
		t.Errorf("bo's shift ends where the cover begins; got %v", shift)
	}
	if shift, _ = s.At(inZone("2026-01-15 12:00", s.Zone)); shift.Layer != "rotation" {
		t.Errorf("a layer's end is exclusive; got %v", shift)
	}
}

func TestNobodyIsOnCallBeforeTheFirstStartAndAfterTheEnd(t *testing.T) {
	t.Parallel()
	s := rotation(t, "UTC", "1 day", "2026-01-05 09:00", "ana", "bo")
	s.Layers[0].End = wall("2026-01-07 12:00")
	for at, want := range map[string]bool{"2026-01-05 08:59": false, "2026-01-05 09:00": true, "2026-01-07 11:59": true, "2026-01-07 12:00": false} {
		if shift, ok := s.At(wall(at)); ok != want {
			t.Errorf("at %s: %v, %v", at, shift, ok)
		}
	}
	gap, _ := s.At(wall("2026-01-01 00:00"))
	if !gap.Start.IsZero() || !gap.End.Equal(wall("2026-01-05 09:00")) || gap.Users != nil {
		t.Errorf("the gap before the first shift is %v", gap)
	}
	if gap, _ = s.At(wall("2027-01-01 00:00")); !gap.End.IsZero() {
		t.Errorf("the gap at the end ends: %v", gap)
	}
	if _, ok := (oncall.Schedule{}).At(wall("2026-01-05 09:00")); ok {
		t.Error("somebody is on call in a schedule without layers")
	}
}

func TestOnePersonForEverIsOneShift(t *testing.T) {
	t.Parallel()
	s := oncall.Schedule{Zone: time.UTC, Layers: []oncall.Layer{{Name: "always", Users: [][]string{{"ana"}}}}}
	shifts := s.Shifts(wall("2026-01-01 00:00"), wall("2030-01-01 00:00"))
	if len(shifts) != 1 || !shifts[0].Start.IsZero() || !shifts[0].End.IsZero() || shifts[0].Users[0] != "ana" {
		t.Errorf("got %v", shifts)
	}
}

func TestTurnsOfOnePersonInARowAreOneShift(t *testing.T) {
	t.Parallel()
	s := rotation(t, "UTC", "1 day", "2026-01-05 09:00", "ana", "ana", "bo")
	same(t, handoffs(s, "2026-01-06 10:00", "2026-01-09 00:00"),
		"01-05 09:00 +0000 ana", "01-07 09:00 +0000 bo", "01-08 09:00 +0000 ana")
}

// Were it a walk over the elapsed turns, centuries of hourly turns would take minutes.
func TestTheDistantFutureCostsNoMoreThanTomorrow(t *testing.T) {
	t.Parallel()
	s := rotation(t, "Europe/Berlin", "1 hour", "2026-01-01 00:00", "ana", "bo")
	for range 1000 {
		shift, ok := s.At(inZone("9000-07-01 12:30", s.Zone))
		if !ok || shift.Start.Format("15:04") != "12:00" || shift.End.Format("15:04") != "13:00" {
			t.Fatalf("got %v", shift)
		}
	}
}

func BenchmarkAt(b *testing.B) {
	z, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		b.Fatal(err)
	}
	s := oncall.Schedule{Zone: z, Layers: []oncall.Layer{{
		Users: [][]string{{"ana"}, {"bo"}}, Every: oncall.Every{N: 1, Unit: "week"}, Start: wall("2026-01-05 09:00"),
	}}}
	for b.Loop() {
		s.At(wall("2046-08-01 12:00"))
	}
}

func TestRotationLengths(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]string{
		"12 hours": "12 hours", "1 hour": "1 hour", "1 day": "1 day", "2  weeks": "2 weeks", "1 months": "1 month", " 3 Days ": "3 days",
	} {
		if got := every(t, s); fmt.Sprint(got) != want {
			t.Errorf("ParseEvery(%q) = %v, want %s", s, got, want)
		}
	}
	for _, s := range []string{"", "week", "0 days", "-1 days", "1.5 days", "1 year", "168h", "1 week 2 days", "99999999999999999999 days", "10001 hours"} {
		if got, err := oncall.ParseEvery(s); err == nil || !strings.Contains(err.Error(), "write for example") {
			t.Errorf("ParseEvery(%q) = %v, %v; want an error that shows how to write it", s, got, err)
		}
	}
}
