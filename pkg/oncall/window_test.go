package oncall

import (
	"testing"
	"time"
	_ "time/tzdata" // the zones of these tests
)

func window(t *testing.T, days, hours, zone string) Window {
	t.Helper()
	loc, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	w := Window{Zone: loc}
	list, err := ParseDay(days)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range list {
		w.Days[d] = true
	}
	if w.From, w.Until, err = ParseHours(hours); err != nil {
		t.Fatal(err)
	}
	return w
}

func TestWindowGoesByTheWall(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		days, hours, zone string
		in, out           []string // instants in UTC
	}{
		{"mon-fri", "09:00-17:00", "Europe/Berlin",
			[]string{"2026-01-05T08:00:00Z", "2026-01-05T15:59:59Z", "2026-07-06T07:00:00Z", "2026-07-06T14:59:59Z"},
			[]string{"2026-01-05T07:59:59Z", "2026-01-05T16:00:00Z", "2026-07-06T06:59:59Z", "2026-07-06T15:00:00Z", "2026-01-04T10:00:00Z"}},
		// Over midnight: the morning belongs to the day before.
		{"fri", "22:00-07:00", "Europe/Berlin",
			[]string{"2026-01-09T21:00:00Z", "2026-01-09T23:30:00Z", "2026-01-10T05:59:00Z"},
			[]string{"2026-01-09T20:59:00Z", "2026-01-09T05:00:00Z", "2026-01-10T06:00:00Z", "2026-01-10T21:30:00Z"}},
		// The clocks go forward in the night of 29 March 2026 at 01:00 UTC: 02:00 to 03:00 is not there.
		{"sun", "02:00-03:00", "Europe/Berlin",
			[]string{"2026-03-22T01:30:00Z"},
			[]string{"2026-03-29T00:59:59Z", "2026-03-29T01:00:00Z", "2026-03-29T00:30:00Z"}},
		{"sat", "22:00-03:30", "Europe/Berlin",
			[]string{"2026-03-28T21:00:00Z", "2026-03-29T00:59:00Z", "2026-03-29T01:29:59Z"},
			[]string{"2026-03-29T01:30:00Z", "2026-03-28T20:59:00Z"}},
		// They go back on 25 October 2026 at 01:00 UTC: 02:00 to 03:00 is there twice, and both are in.
		{"sun", "02:00-02:30", "Europe/Berlin",
			[]string{"2026-10-25T00:00:00Z", "2026-10-25T00:29:59Z", "2026-10-25T01:00:00Z", "2026-10-25T01:29:59Z"},
			[]string{"2026-10-24T23:59:59Z", "2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"}},
		// Half-hour zones.
		{"mon-sun", "09:00-10:00", "Asia/Kolkata", []string{"2026-01-05T03:30:00Z", "2026-01-05T04:29:59Z"}, []string{"2026-01-05T03:29:59Z", "2026-01-05T04:30:00Z"}},
		{"mon-sun", "09:00-10:00", "Asia/Kathmandu", []string{"2026-01-05T03:15:00Z"}, []string{"2026-01-05T03:14:00Z", "2026-01-05T04:15:00Z"}},
		// Lord Howe's clocks move by half an hour: on 4 October 2026 from 02:00 to 02:30, on 5 April from 02:00 back to 01:30.
		{"sun", "02:00-03:00", "Australia/Lord_Howe", []string{"2026-10-03T15:30:00Z", "2026-10-03T15:59:59Z"}, []string{"2026-10-03T15:29:59Z", "2026-10-03T16:00:00Z"}},
		{"sun", "01:30-02:00", "Australia/Lord_Howe", []string{"2026-04-04T14:30:00Z", "2026-04-04T15:00:00Z", "2026-04-04T15:29:59Z"}, []string{"2026-04-04T14:29:59Z", "2026-04-04T15:30:00Z"}},
		{"mon-sun", "00:00-24:00", "UTC", []string{"2026-01-05T00:00:00Z", "2026-01-05T23:59:59Z"}, nil},
		{"sat-sun", "00:00-24:00", "UTC", []string{"2026-01-10T00:00:00Z", "2026-01-11T23:59:59Z"}, []string{"2026-01-09T23:59:59Z", "2026-01-12T00:00:00Z"}},
		{"sun", "12:00-00:00", "UTC", []string{"2026-01-11T12:00:00Z", "2026-01-11T23:59:59Z"}, []string{"2026-01-12T00:00:00Z", "2026-01-11T00:00:00Z"}},
	} {
		w := window(t, c.days, c.hours, c.zone)
		for want, list := range map[bool][]string{true: c.in, false: c.out} {
			for _, s := range list {
				at, err := time.Parse(time.RFC3339, s)
				if err != nil {
					t.Fatal(err)
				}
				if got := w.Active(at); got != want {
					t.Errorf("%s at %s (%s): active is %t", w, s, w.Wall(at), got)
				}
			}
		}
	}
}

// A window and the one for the rest of the day share every instant of a year between them, in zones with every sort of
// change.
func TestWindowAndItsRestShareTheYear(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "America/St_Johns", "Pacific/Apia"} {
		day, night := window(t, "mon-sun", "07:15-22:45", zone), window(t, "mon-sun", "22:45-07:15", zone)
		for at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC); at.Year() == 2026; at = at.Add(15 * time.Minute) {
			if day.Active(at) == night.Active(at) {
				t.Fatalf("%s at %s: by day %t, by night %t", zone, at, day.Active(at), night.Active(at))
			}
		}
	}
}

func TestWindowText(t *testing.T) {
	t.Parallel()
	if got, want := window(t, "fri-mon", "22:00-07:05", "Europe/Berlin").String(), "mon fri sat sun 22:00-07:05 Europe/Berlin"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := window(t, "mon-sun", "00:00-24:00", "UTC").String(), "00:00-24:00 UTC"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, s := range []string{"", "m", "mon-", "mon,tue", "monday-x"} {
		if d, err := ParseDay(s); err == nil {
			t.Errorf("the day %q is %v", s, d)
		}
	}
	for _, s := range []string{"", "9-17", "09:00", "09:00-09:00", "24:00-07:00", "09:00-24:01", "09:60-10:00", "-1:00-02:00", "09:00-17:00-18:00"} {
		if a, b, err := ParseHours(s); err == nil {
			t.Errorf("the hours %q are %d to %d", s, a, b)
		}
	}
}

// The next opening against the plain slow answer: the first minute from t on at which the window is active and was not a
// moment before. In zones with every sort of change, around each change of two years and at other times.
func TestNextOpeningAgreesWithTheSlowAnswer(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "Asia/Kathmandu", "Africa/Casablanca", "America/Scoresbysund"} {
		for _, days := range []string{"mon-sun", "sun", "sat", "mon-fri"} {
			for _, hours := range []string{"00:00-24:00", "02:00-03:00", "01:45-02:15", "02:30-02:45", "22:00-07:00", "00:01-00:02", "23:59-00:00", "03:00-02:30"} {
				w := window(t, days, hours, zone)
				for _, start := range changes(w.Zone, 2026) {
					from := start.Add(-26*time.Hour - 30*time.Second)
					got, ok := w.Next(from)
					slow, found := slowly(w, from, 9*24*60)
					switch {
					case !found: // the hours of this week's only day are skipped: later, and rightly
						if ok && (!got.After(from.Add(9*24*time.Hour-time.Minute)) || !w.Active(got) || w.Active(got.Add(-time.Second))) {
							t.Errorf("%s after %s: %s, and no minute of nine days opens it", w, from, got)
						}
					case !ok || !got.Equal(slow):
						t.Errorf("%s after %s: got %s (%t), want %s", w, from, got, ok, slow)
					}
				}
			}
		}
	}
}

// changes are the instants at which a zone's clock changes in a year and the next, and one at which it does not.
func changes(zone *time.Location, year int) []time.Time {
	out := []time.Time{time.Date(year, 1, 15, 12, 0, 0, 0, time.UTC)}
	for at := out[0]; ; {
		_, end := at.In(zone).ZoneBounds()
		if end.IsZero() || end.Year() > year+1 {
			return out
		}
		out, at = append(out, end), end
	}
}

func slowly(w Window, t time.Time, minutes int) (time.Time, bool) {
	at := t.Truncate(time.Minute)
	for range minutes {
		if at = at.Add(time.Minute); w.Active(at) && !w.Active(at.Add(-time.Second)) {
			return at, true
		}
	}
	return time.Time{}, false
}

func TestNextOpeningWhereThereIsNone(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 5, 8, 0, 0, 0, time.UTC)
	if got, ok := window(t, "mon-sun", "00:00-24:00", "UTC").Next(at); ok {
		t.Errorf("a window that never ends opens at %s", got)
	}
	if got, ok := (Window{From: 0, Until: 60}).Next(at); ok {
		t.Errorf("a window without days opens at %s", got)
	}
	// Its hour on the last Sunday of March is skipped: the week after.
	w := window(t, "sun", "02:15-02:45", "Europe/Berlin")
	if got, ok := w.Next(time.Date(2026, 3, 28, 12, 0, 0, 0, time.UTC)); !ok || !got.Equal(time.Date(2026, 4, 5, 0, 15, 0, 0, time.UTC)) {
		t.Errorf("got %s", got)
	}
	// Samoa had no Friday, 30 December 2011.
	w = window(t, "fri", "09:00-17:00", "Pacific/Apia")
	if got, ok := w.Next(time.Date(2011, 12, 29, 12, 0, 0, 0, time.UTC)); !ok || w.Wall(got) != "Fri 09:00 in Pacific/Apia" || got.Sub(time.Date(2011, 12, 29, 12, 0, 0, 0, time.UTC)) < 7*24*time.Hour {
		t.Errorf("got %s", got)
	}
}
