package intake_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/card"
	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/intake"
	"github.com/tocsin-oncall/tocsin/pkg/message"
	"github.com/tocsin-oncall/tocsin/pkg/store"
	"github.com/tocsin-oncall/tocsin/pkg/store/storetest"
)

func ringWorld(t *testing.T) *world {
	t.Helper()
	return newWorld(t, func(f *config.File) {
		e := f.Escalations["default"]
		e.AckTimeout = 30 * time.Minute
		f.Escalations["default"] = e
	})
}

// states is the steps that an incident's escalation has, in order.
func (w *world) states(id uuid.UUID) (out []string) {
	w.t.Helper()
	for _, s := range w.steps(id) {
		out = append(out, fmt.Sprintf("%d/%d %s", s.Round, s.Step, s.State))
	}
	return out
}

func TestAnAcknowledgementHoldsForItsTime(t *testing.T) {
	t.Parallel()
	w := ringWorld(t)
	_, two := w.replica()
	id := w.accept(disk("critical")).IncidentID
	w.acknowledge(id)
	if again := w.acknowledge(id); again.Changed {
		t.Error("the second acknowledgement changed something")
	}
	within(t, w.dueIn(id), []int{30})
	if n := w.stepOn(id); n != 0 {
		t.Error("it rang before its time")
	}
	storetest.MoveClock(t, w.url, 31*time.Minute)
	// Both replicas see the same row.
	steps := w.steps(id)
	at := slices.IndexFunc(steps, func(s store.EscalationStep) bool { return s.DueAt != nil })
	rang := 0
	for _, in := range []*intake.Intake{w.in, two} {
		did, err := in.Escalate(t.Context(), id, steps[at].ID)
		if err != nil {
			t.Fatal(err)
		}
		if did {
			rang++
		}
	}
	inc := w.incident(id)
	if rang != 1 || inc.State != message.Open || inc.AcknowledgedAt != nil {
		t.Fatalf("rang %d times, and the incident is %s", rang, inc.State)
	}
	if diff := cmp.Diff([]string{"1/0 fired", "1/1 withdrawn", "2/0 withdrawn", "2/1 withdrawn", "2/-1 withdrawn", "3/-2 fired", "4/0 fired", "4/1 due", "5/0 due", "5/1 due", "5/-1 due"}, w.states(id)); diff != "" {
		t.Error(diff)
	}
	if !slices.Contains(w.timeline(id), card.EntryRings) {
		t.Error("the timeline does not say why it rings")
	}
	if s := w.snapshot(id); s.State != message.Open {
		t.Errorf("cards show %s", s.State)
	}
	live := 0
	for _, d := range w.deliveries(id, delivery.Page) {
		if d.State == delivery.Pending {
			live++
		}
	}
	if live != 2 {
		t.Errorf("%d pages wait after it rang again", live)
	}
	// The second acknowledgement holds for as long, and a resolve ends it.
	w.acknowledge(id)
	within(t, w.dueIn(id), []int{30})
	w.resolve(id)
	if n := w.due(id); n != 0 {
		t.Errorf("%d steps are due of what is resolved", n)
	}
}

// Of several escalations the one that waits least counts.
func TestTheShortestTimeOfAnAcknowledgementCounts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(f *config.File) {
		for name, d := range map[string]time.Duration{"first": 30 * time.Minute, "second": 10 * time.Minute, "third": 20 * time.Minute, "fourth": 0} {
			f.Escalations[name] = config.Escalation{AckTimeout: d, Steps: []config.Step{{Page: []string{"user:cho"}}}}
		}
		for _, name := range []string{"first", "second", "third", "fourth"} {
			f.Routes = append(f.Routes, config.Route{Match: pattern(t, "alert.*.critical.#"), Escalate: name})
		}
	})
	id := w.accept(disk("critical")).IncidentID
	w.acknowledge(id)
	within(t, w.dueIn(id), []int{10})
}

// Whatever a person does after the acknowledgement takes the place of its time.
func TestOtherWordsEndTheTimeOfAnAcknowledgement(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		do   func(w *world, id uuid.UUID) error
		left int // steps of the escalation that are still due
	}{
		"snooze": {func(w *world, id uuid.UUID) error {
			_, err := w.in.Snooze(w.t.Context(), id, ana, 2*time.Hour, "")
			return err
		}, 0},
		"escalate": {func(w *world, id uuid.UUID) error { _, err := w.in.EscalateNow(w.t.Context(), id, ana, ""); return err }, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := ringWorld(t)
			id := w.accept(disk("critical")).IncidentID
			w.acknowledge(id)
			if err := c.do(w, id); err != nil {
				t.Fatal(err)
			}
			for _, s := range w.steps(id) {
				if s.Step == intake.StepRing && s.DueAt != nil {
					t.Error("the acknowledgement still waits for its time")
				}
			}
			if n := w.due(id); n != c.left {
				t.Errorf("%d steps are due: %v", n, w.states(id))
			}
		})
	}
}

// The time of an acknowledgement is over while silences hide all of it: it is open again, pages nobody, and rings when the silence is over.
// A silence that is over before changes nothing of the time.
func TestAnAcknowledgementsTimeUnderASilence(t *testing.T) {
	t.Parallel()
	w := ringWorld(t)
	id := w.accept(disk("critical")).IncidentID
	w.acknowledge(id)
	pages := len(w.deliveries(id, delivery.Page))
	s := w.silence("#")
	storetest.MoveClock(t, w.url, 31*time.Minute)
	if n := w.stepOn(id); n != 1 {
		t.Fatalf("%d steps fired when its time was over", n)
	}
	if inc := w.incident(id); inc.State != message.Open || inc.AcknowledgedAt != nil {
		t.Errorf("it is %s", inc.State)
	}
	w.stepOn(id)
	if n := len(w.deliveries(id, delivery.Page)) - pages; n != 0 {
		t.Errorf("%d pages for what is silenced", n)
	}
	if held := one[int](w, "select count(*) from escalation where held_at is not null"); held == 0 || held != w.due(id) {
		t.Errorf("%d of %d steps stand still", held, w.due(id))
	}
	if got := w.timeline(id); !slices.Contains(got, card.EntryRings) || got[len(got)-1] != card.EntrySilenced {
		t.Errorf("the timeline says %q", got)
	}
	storetest.MoveClock(t, w.url, 2*time.Hour) // however long it stands, nothing of it is over
	w.stepOn(id)
	if n := len(w.deliveries(id, delivery.Page)) - pages; n != 0 {
		t.Errorf("%d pages for what is silenced", n)
	}
	w.over(s, "1 second")
	w.unsilence(id)
	within(t, w.dueIn(id), []int{0, 10, 20, 30, 40})
	if n := w.stepOn(id); n != 1 || len(w.deliveries(id, delivery.Page)) != pages+2 {
		t.Errorf("%d steps fired after the silence, %d pages more", n, len(w.deliveries(id, delivery.Page))-pages)
	}
	// Somebody acknowledges again, and the time runs anew; a silence that is over by then changes nothing of it.
	w.acknowledge(id)
	within(t, w.dueIn(id), []int{30})
	w.over(w.silence("#"), "1 second")
	w.unsilence(id)
	within(t, w.dueIn(id), []int{30})
	storetest.MoveClock(t, w.url, 31*time.Minute)
	if n := w.stepOn(id); n != 1 || w.incident(id).State != message.Open || len(w.deliveries(id, delivery.Page)) != pages+4 {
		t.Errorf("%d steps fired, it is %s, %d pages more", n, w.incident(id).State, len(w.deliveries(id, delivery.Page))-pages)
	}
}
