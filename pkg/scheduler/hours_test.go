package scheduler_test

import (
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/oncall"
	"github.com/tocsin-oncall/tocsin/pkg/store/storetest"
)

// What waited for the hours of a route is sent by the scheduler's step when they begin, on whichever replica, and once: also
// when every replica was down at that moment.
func TestHoursBegin(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC()
	opens := now.Add(24 * time.Hour)
	w := newWorld(t, func(f *config.File) {
		tomorrow := &oncall.Window{Until: 24 * 60}
		tomorrow.Days[opens.Weekday()] = true
		f.Routes[0].Active = tomorrow
	})
	id := w.fire("k")
	w.step("hours")
	if ds := w.deliveries(id); len(ds) > 0 {
		t.Fatalf("sent outside of the hours: %+v", ds)
	}
	midnight := time.Date(opens.Year(), opens.Month(), opens.Day(), 0, 0, 0, 0, time.UTC)
	storetest.MoveClock(t, w.url, midnight.Sub(now)+5*time.Hour)
	_, _, other := w.replica("other")
	for range 2 {
		w.step("hours")
		if _, err := other.Open(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if ds := w.deliveries(id); len(ds) != 4 { // card, thread, two ways to one person
		t.Errorf("sent when the hours began: %+v", ds)
	}
}

// A new file with other hours holds for what waits already.
func TestHoursOfANewFileHoldAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(f *config.File) {
		never := &oncall.Window{Until: 24 * 60}
		never.Days[time.Now().UTC().Add(3*24*time.Hour).Weekday()] = true
		f.Routes[0].Active = never
		f.Checksum = "one"
	})
	id := w.fire("k")
	w.step("hours")
	w.file.Routes[0].Active = nil
	if w.step("hours"); len(w.deliveries(id)) > 0 {
		t.Fatal("looked at before the file is another")
	}
	w.file.Checksum = "two"
	if w.step("hours"); len(w.deliveries(id)) != 4 {
		t.Errorf("the new file does not hold: %+v", w.deliveries(id))
	}
}
