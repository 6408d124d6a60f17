package intake_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/card"
	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/oncall"
	"github.com/tocsin-oncall/tocsin/pkg/store"
	"github.com/tocsin-oncall/tocsin/pkg/store/storetest"
)

// asleep gives somebody quiet hours that have begun an hour ago and last three more.
func asleep(w *world, user int) {
	now := one[time.Time](w, "select clock_timestamp()")
	minute := func(t time.Time) int { t = t.UTC(); return t.Hour()*60 + t.Minute() }
	w.file.Users[user].Quiet = &oncall.Window{
		Days: [7]bool{true, true, true, true, true, true, true}, From: minute(now.Add(-time.Hour)), Until: minute(now.Add(3 * time.Hour)), Zone: time.UTC,
	}
}

func quietWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, func(f *config.File) {
		f.Routes = append(f.Routes, config.Route{Match: pattern(t, "alert.*.error.#"), Escalate: "default"})
	})
	asleep(w, 0)
	return w
}

func (w *world) stepOn(id uuid.UUID) (fired int) {
	w.t.Helper()
	for _, s := range w.steps(id) {
		if s.DueAt == nil {
			continue
		}
		did, err := w.in.Escalate(w.t.Context(), id, s.ID)
		if err != nil {
			w.t.Fatal(err)
		}
		if did {
			fired++
		}
	}
	return fired
}

// dueIn is when the steps that are still due come, in whole minutes from now.
func (w *world) dueIn(id uuid.UUID) (minutes []int) {
	w.t.Helper()
	now := one[time.Time](w, "select clock_timestamp()")
	for _, s := range w.steps(id) {
		if s.DueAt != nil {
			minutes = append(minutes, int(s.DueAt.Sub(now).Round(time.Minute)/time.Minute))
		}
	}
	slices.Sort(minutes)
	return minutes
}

func within(t *testing.T, got, want []int) {
	t.Helper()
	near := len(got) == len(want)
	for i := 0; near && i < len(got); i++ {
		near = got[i]-want[i] <= 1 && want[i]-got[i] <= 1
	}
	if !near {
		t.Errorf("due in %v minutes, want about %v", got, want)
	}
}

func TestWhatIsNotUrgentWaitsForTheEndOfQuietHours(t *testing.T) {
	t.Parallel()
	w := quietWorld(t)
	r := w.accept(disk("error"))
	if n := len(w.deliveries(r.IncidentID, delivery.Page)); n != 0 {
		t.Fatalf("%d pages in quiet hours", n)
	}
	if !slices.Contains(w.timeline(r.IncidentID), card.EntryQuietHours) {
		t.Error("the timeline does not say why nobody is paged")
	}
	within(t, w.dueIn(r.IncidentID), []int{180, 190, 200, 210, 220})
	if w.stepOn(r.IncidentID) != 0 {
		t.Error("a step fired before its time")
	}
	storetest.MoveClock(t, w.url, 181*time.Minute)
	if fired := w.stepOn(r.IncidentID); fired != 1 {
		t.Errorf("%d steps fired at the end of the quiet hours", fired)
	}
	if n := len(w.deliveries(r.IncidentID, delivery.Page)); n != 2 {
		t.Errorf("%d pages after quiet hours", n)
	}
}

// A later step may find its people asleep too: the escalation's clock stands still.
func TestALaterStepRestsAsWell(t *testing.T) {
	t.Parallel()
	w := quietWorld(t)
	w.file.Users[0].Quiet = nil
	asleep(w, 1)
	r := w.accept(disk("error"))
	if n := len(w.deliveries(r.IncidentID, delivery.Page)); n != 2 {
		t.Fatalf("%d pages for who is awake", n)
	}
	storetest.MoveClock(t, w.url, 11*time.Minute)
	w.stepOn(r.IncidentID)
	if n := len(w.deliveries(r.IncidentID, delivery.Page)); n != 2 {
		t.Errorf("%d pages: somebody was woken", n)
	}
	within(t, w.dueIn(r.IncidentID), []int{169, 179, 189, 199})
}

func TestQuietHoursEndWhenTheIncidentBecomesUrgent(t *testing.T) {
	t.Parallel()
	w := quietWorld(t)
	w.file.Routes[0].Escalate = "" // the same escalation goes on
	g := disk("error", "host", "a")
	g.Key = "k"
	r := w.accept(g)
	worse := disk("critical", "host", "b")
	worse.Key = "k"
	w.accept(worse)
	within(t, w.dueIn(r.IncidentID), []int{0, 10, 20, 30, 40})
	if !slices.Contains(w.timeline(r.IncidentID), card.EntryUrgent) {
		t.Error("the timeline does not say that the rest is over")
	}
	if fired := w.stepOn(r.IncidentID); fired != 1 {
		t.Errorf("%d steps fired", fired)
	}
	if n := len(w.deliveries(r.IncidentID, delivery.Page)); n != 2 {
		t.Errorf("%d pages", n)
	}
}

// What stands still for a silence rests no more either, and goes on at once when the silence is over.
func TestWhatASilenceHoldsBecomesUrgent(t *testing.T) {
	t.Parallel()
	w := quietWorld(t)
	r := w.accept(disk("error"))
	w.exec("update escalation set held_at = clock_timestamp() - interval '1 hour' where incident_id = $1 and state = 'due'", r.IncidentID)
	w.tx(func(tx *store.Tx) error {
		if _, err := tx.WakeSteps(t.Context(), r.IncidentID); err != nil {
			return err
		}
		_, err := tx.ReleaseSteps(t.Context(), r.IncidentID)
		return err
	})
	within(t, w.dueIn(r.IncidentID), []int{0, 10, 20, 30, 40})
}

// What a person asks for by hand doesn't ask for quiet hours.
func TestWhoIsAskedForByHandIsWoken(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(w *world, id uuid.UUID) error{
		"escalate": func(w *world, id uuid.UUID) error { _, err := w.in.EscalateNow(w.t.Context(), id, bo, ""); return err },
		"reassign": func(w *world, id uuid.UUID) error {
			_, err := w.in.Reassign(w.t.Context(), id, bo, "ana", "")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := quietWorld(t)
			r := w.accept(disk("error"))
			if n := len(w.deliveries(r.IncidentID, delivery.Page)); n != 0 {
				t.Fatalf("%d pages in quiet hours", n)
			}
			if err := do(w, r.IncidentID); err != nil {
				t.Fatal(err)
			}
			if n := len(w.deliveries(r.IncidentID, delivery.Page)); n != 2 {
				t.Errorf("%d pages, want two ways to Ana", n)
			}
		})
	}
}
