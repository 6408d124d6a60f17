package oncall_test

import (
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/oncall"
)

func TestWhenQuietHoursAreOver(t *testing.T) {
	t.Parallel()
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	every := [7]bool{true, true, true, true, true, true, true}
	night := oncall.Window{Days: every, From: 22 * 60, Until: 7 * 60, Zone: berlin}
	weekend := oncall.Window{Days: [7]bool{time.Saturday: true, time.Sunday: true}, Until: 24 * 60, Zone: berlin}
	early := oncall.Window{Days: every, From: 60, Until: 2*60 + 30, Zone: berlin} // ends in the hour that is skipped, or comes twice
	for _, c := range []struct {
		name   string
		w      oncall.Window
		at     string
		over   string
		lasted time.Duration // 0: not asked
	}{
		{"by day", night, "2026-01-05T12:00:00+01:00", "2026-01-05T12:00:00+01:00", 0},
		{"in the evening", night, "2026-01-05T23:30:17+01:00", "2026-01-06T07:00:00+01:00", 0},
		{"the night that lacks an hour", night, "2026-03-28T22:00:00+01:00", "2026-03-29T07:00:00+02:00", 8 * time.Hour},
		{"the night with one more", night, "2026-10-24T22:00:00+02:00", "2026-10-25T07:00:00+01:00", 10 * time.Hour},
		{"two days in a row", weekend, "2026-01-03T00:00:00+01:00", "2026-01-05T00:00:00+01:00", 48 * time.Hour},
		{"an end that is skipped", early, "2026-03-29T01:59:00+01:00", "2026-03-29T03:00:00+02:00", time.Minute},
		{"an end that comes twice, first pass", early, "2026-10-25T02:00:00+02:00", "2026-10-25T02:30:00+02:00", 30 * time.Minute},
		{"an end that comes twice, second pass", early, "2026-10-25T02:00:00+01:00", "2026-10-25T02:30:00+01:00", 30 * time.Minute},
	} {
		at, err := time.Parse(time.RFC3339, c.at)
		if err != nil {
			t.Fatal(err)
		}
		over := c.w.Over(at)
		if got := over.In(berlin).Format(time.RFC3339); got != c.over {
			t.Errorf("%s: over at %s, want %s", c.name, got, c.over)
		}
		if c.lasted > 0 && over.Sub(at) != c.lasted {
			t.Errorf("%s: lasted %s, want %s", c.name, over.Sub(at), c.lasted)
		}
	}
	always := oncall.Window{Days: every, Until: 24 * 60}
	if over := always.Over(time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)); !over.IsZero() {
		t.Errorf("a window without an end is over at %s", over)
	}
}
