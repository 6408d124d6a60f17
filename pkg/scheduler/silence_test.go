package scheduler_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/intake"
)

// What a silence kept back is sent by the scheduler's step when it is over, on whichever replica, and once.
func TestSilencesEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	by := intake.Actor{ID: "user:ana", Name: "Ana"}
	s, err := w.in.AddSilence(t.Context(), intake.NewSilence{Match: "#", For: time.Hour, Reason: "quiet"}, by)
	if err != nil {
		t.Fatal(err)
	}
	ids := []uuid.UUID{w.fire("one"), w.fire("two")}
	w.step("silences")
	for _, id := range ids {
		if ds := w.deliveries(id); len(ds) > 0 {
			t.Errorf("sent while it is silenced: %+v", ds)
		}
	}
	if _, err := w.in.EndSilence(t.Context(), s, by); err != nil {
		t.Fatal(err)
	}
	_, _, other := w.replica("other")
	for range 2 {
		w.step("silences")
		if _, err := other.Unsilence(t.Context()); err != nil {
			t.Error(err)
		}
	}
	for _, id := range ids {
		if ds := w.deliveries(id); len(ds) != 4 { // card, thread, two ways to one person
			t.Errorf("sent when it was over: %+v", ds)
		}
	}
}
