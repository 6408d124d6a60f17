package config_test

import (
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/config"
)

func TestDurationsAreGosWithDaysAndWeeks(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for s, want := range map[string]time.Duration{
		"0": 0, "0s": 0, "0m": 0, "10s": 10 * time.Second, "1.5h": 90 * time.Minute, "500ms": 500 * time.Millisecond,
		"1d": day, "2w": 14 * day, "1w2d3h4m": 9*day + 3*time.Hour + 4*time.Minute, "90d": 90 * day,
	} {
		if got, err := config.ParseDuration(s); err != nil || got != want {
			t.Errorf("%q: %v, %v; want %v", s, got, err, want)
		}
	}
	for _, s := range []string{"", "10", "d", "-1s", "-1d", "1.5d", "1d-1h", "1h1d", "1 d", "99999999999d", "4294967295w", "106751d24h", "1dd", "1x"} {
		if got, err := config.ParseDuration(s); err == nil {
			t.Errorf("%q: %v, want an error", s, got)
		}
	}
}

func FuzzDurationIsNeverNegative(f *testing.F) {
	f.Add("1w2d")
	f.Fuzz(func(t *testing.T, s string) {
		if d, err := config.ParseDuration(s); err == nil && d < 0 {
			t.Fatalf("%q is %v", s, d)
		}
	})
}
