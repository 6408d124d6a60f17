package intake_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/intake"
	"github.com/tocsin-oncall/tocsin/pkg/message"
)

func TestOnePairOfPrometheusIsOneSender(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(f *config.File) { withSources(t, f) })
	now := w.now()
	first, second := now.Add(-2*time.Minute), now.Add(-110*time.Second) // each saw it begin at a time of its own
	a := func(ends time.Time) intake.Result { return w.send("prom", push(first, ends))[0] }
	b := func(ends time.Time) intake.Result { return w.send("prom", push(second, ends))[0] }
	r := b(now.Add(4 * time.Minute))
	a(now.Add(4 * time.Minute))
	b(now.Add(5 * time.Minute))
	inc := w.incident(r.IncidentID)
	if inc.Firing != 1 || inc.Count != 3 || inc.Revision != 1 {
		t.Errorf("%+v", inc)
	}
	if at := one[time.Time](w, "select starts_at from alert"); !at.Equal(first.Truncate(time.Microsecond)) {
		t.Errorf("it began at %s", at)
	}
	if got := a(now.Add(-time.Second)); got.State != message.Resolved {
		t.Fatalf("%+v", got)
	}
	// The other one is a little behind: it still means the time before.
	if got := b(now.Add(5 * time.Minute)); got.Opened || !got.Quiet || got.IncidentID != r.IncidentID {
		t.Errorf("the late word of the other one opened %+v", got)
	}
	if got := b(now.Add(-time.Second)); got.Opened {
		t.Errorf("%+v", got)
	}
	if got := w.send("prom", push(now.Add(time.Second), now.Add(5*time.Minute)))[0]; !got.Opened {
		t.Errorf("it began anew: %+v", got)
	}
}

func TestAPairDoesNotReopenWhatAPersonResolved(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(f *config.File) { withSources(t, f) })
	now := w.now()
	r := w.send("prom", push(now.Add(-2*time.Minute), now.Add(4*time.Minute)))[0]
	w.resolve(r.IncidentID)
	if got := w.send("prom", push(now.Add(-time.Minute), now.Add(4*time.Minute)))[0]; got.Opened || !got.Quiet {
		t.Errorf("the other one of the pair: %+v", got)
	}
}

// later lets time pass for all that is stored.
func (w *world) later(d time.Duration) {
	w.t.Helper()
	by := d.String()
	w.exec("update alert set last_seen_at = last_seen_at - $1::interval, first_seen_at = first_seen_at - $1::interval, starts_at = starts_at - $1::interval, ends_at = ends_at - $1::interval", by)
	w.exec("update incident set opened_at = opened_at - $1::interval, resolved_at = resolved_at - $1::interval", by)
}

// One of a pair sees an end, and repeats it every minute; the other one sees it fire on.
func TestAPairThatDisagreesDoesNotFlap(t *testing.T) {
	t.Parallel()
	for name, besides := range map[string]bool{"alone": false, "beside another alert": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(f *config.File) { withSources(t, f) })
			now := w.now()
			r := w.send("prom", push(now.Add(-2*time.Minute), now.Add(10*time.Minute)))[0]
			if besides {
				w.send("prom", push(now, now.Add(time.Hour), "host", "2"))
			}
			over := now.Add(-time.Second)
			w.send("prom", push(now.Add(-2*time.Minute), over))
			w.send("prom", push(now.Add(-2*time.Minute), over))
			if got := w.send("prom", push(now.Add(-time.Minute), now.Add(10*time.Minute)))[0]; got.Opened || got.IncidentID != r.IncidentID {
				t.Fatalf("the word of the other one is late: %+v", got)
			}
			w.later(time.Minute)
			w.send("prom", push(now.Add(-3*time.Minute), over.Add(-time.Minute))) // again
			w.later(90 * time.Second)
			const passed = 150 * time.Second
			got := w.send("prom", push(now.Add(-time.Minute-passed), now.Add(10*time.Minute)))[0]
			if got.State != message.Open || got.Opened == besides {
				t.Fatalf("the other one still means it: %+v", got)
			}
			firing := w.incident(got.IncidentID).Firing
			again := w.send("prom", push(now.Add(-2*time.Minute-passed), over.Add(-passed)))[0]
			if inc := w.incident(got.IncidentID); again.Opened || inc.State != message.Open || inc.Firing != firing {
				t.Errorf("the first one repeats what it has said: %+v, %+v", again, inc)
			}
			// Both mean it.
			w.later(time.Minute)
			w.send("prom", push(now.Add(-2*time.Minute-passed), w.now()))
			if inc := w.incident(got.IncidentID); inc.Firing != firing-1 {
				t.Errorf("the end that both see: %+v", inc)
			}
		})
	}
}

func TestTheLateWordOfAPairDoesNotReopenWhatAPersonResolved(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(f *config.File) { withSources(t, f) })
	now := w.now()
	r := w.send("prom", push(now.Add(-2*time.Minute), now.Add(4*time.Minute)))[0]
	w.resolve(r.IncidentID)
	w.later(time.Hour)
	begun := now.Add(-time.Hour)
	w.send("prom", push(begun.Add(-2*time.Minute), now.Add(-time.Second)))
	if inc := w.incident(r.IncidentID); inc.Firing != 0 {
		t.Fatalf("one says that it is over: %+v", inc)
	}
	if got := w.send("prom", push(begun.Add(-time.Minute), now.Add(4*time.Minute)))[0]; got.Opened || !got.Quiet {
		t.Errorf("the other one is a little behind: %+v", got)
	}
}

func TestALostResolveHeals(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(f *config.File) { withSources(t, f) })
	now := w.now()
	all := append(push(now, now.Add(time.Hour), "host", "1"), push(now, now.Add(time.Hour), "host", "2")...)
	r := w.send("prom", all)[0]
	if did, err := w.in.Lapse(t.Context(), r.IncidentID); err != nil || did {
		t.Errorf("both hold: %t, %v", did, err)
	}
	w.exec("update alert set ends_at = clock_timestamp() - interval '1 second' where labels->>'host' = '1'")
	if ids, err := w.st.LapsedIncidents(t.Context(), 10); err != nil || len(ids) != 1 || ids[0] != r.IncidentID {
		t.Fatalf("%v, %v", ids, err)
	}
	if did, err := w.in.Lapse(t.Context(), r.IncidentID); err != nil || !did {
		t.Errorf("%t, %v", did, err)
	}
	if inc := w.incident(r.IncidentID); inc.Firing != 1 || inc.Resolved != 1 || inc.State != message.Open || inc.Revision != 2 {
		t.Errorf("%+v", inc)
	}
	// Sent again in time, it holds on.
	w.send("prom", push(now, now.Add(2*time.Hour), "host", "2"))
	if ids, err := w.st.LapsedIncidents(t.Context(), 10); err != nil || len(ids) != 0 {
		t.Errorf("%v, %v", ids, err)
	}
	w.exec("update alert set ends_at = clock_timestamp() - interval '1 second' where status = 'firing'")
	if did, err := w.in.Lapse(t.Context(), r.IncidentID); err != nil || !did {
		t.Errorf("%t, %v", did, err)
	}
	inc := w.incident(r.IncidentID)
	if inc.State != message.Resolved || inc.ResolvedBy != "source:prom" {
		t.Errorf("%+v", inc)
	}
	want := []string{"opened", "paged", "alert_resolved", "alert_resolved", "resolved"}
	if diff := cmp.Diff(want, w.timeline(r.IncidentID)); diff != "" {
		t.Error(diff)
	}
	if did, err := w.in.Lapse(t.Context(), r.IncidentID); err != nil || did {
		t.Errorf("twice: %t, %v", did, err)
	}
	// The source is back, and it fires on: that was no end.
	w.exec("update alert set last_seen_at = last_seen_at - interval '5 minutes'")
	if got := w.send("prom", push(now, w.now().Add(time.Hour), "host", "2"))[0]; !got.Opened {
		t.Errorf("%+v", got)
	}
}

func TestALostResolveOfWhatAPersonResolvedHeals(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(f *config.File) { withSources(t, f) })
	now := w.now()
	r := w.send("prom", push(now, now.Add(time.Hour)))[0]
	w.resolve(r.IncidentID)
	w.exec("update alert set ends_at = clock_timestamp() - interval '1 second'")
	if did, err := w.in.Lapse(t.Context(), r.IncidentID); err != nil || !did {
		t.Errorf("%t, %v", did, err)
	}
	if inc := w.incident(r.IncidentID); inc.Firing != 0 || inc.Resolved != 1 || inc.ResolvedBy != "Ana Torres" {
		t.Errorf("its card still says that it fires at its source: %+v", inc)
	}
}
