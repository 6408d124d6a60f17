package scheduler_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/intake"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// A page that died since nobody was linked leaves when somebody is, once on all replicas; what was answered meanwhile does not.
func TestLinkingTakesUpWhatDiedForIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(f *config.File) { f.Users[0].Contacts = []config.Contact{{Via: "telegram-dm"}} })
	open, answered := w.fire("open"), w.fire("answered")
	if _, err := w.in.Acknowledge(t.Context(), answered, intake.Actor{ID: "user:cho", Name: "Cho"}, ""); err != nil {
		t.Fatal(err)
	}
	page := func(id uuid.UUID) delivery.Delivery {
		t.Helper()
		for _, d := range w.deliveries(id) {
			if d.Kind == delivery.Page && d.Target == "schedule:primary" {
				return d
			}
		}
		t.Fatal("no page")
		return delivery.Delivery{}
	}
	w.step("take up")
	if d := page(open); d.State != delivery.Unreachable || d.Reason != "no_linked_account" {
		t.Fatalf("%s %s", d.State, d.Reason)
	}
	w.tx(func(tx *store.Tx) error { return tx.PutAccount(t.Context(), "telegram", "501", "ana", "token:ops") })
	_, _, other := w.replica("other")
	for range 2 {
		w.step("take up")
		if _, err := other.TakeUp(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if d := page(open); d.State != delivery.Pending || d.Effect != 2 {
		t.Errorf("%s, effect %d", d.State, d.Effect)
	}
	if d := page(answered); d.State != delivery.Unreachable {
		t.Errorf("a page of an incident that somebody is on is %s", d.State)
	}
	// It died again for another reason: that is not taken up.
	w.kill(open, through("telegram-dm", delivery.Page), rejected)
	w.step("take up")
	if d := page(open); d.State != delivery.Rejected {
		t.Errorf("%s", d.State)
	}
}

func TestSnoozesEndByThemselves(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	id := w.fire("one")
	if _, err := w.in.Snooze(t.Context(), id, intake.Actor{ID: "user:ana", Name: "Ana"}, time.Hour, ""); err != nil {
		t.Fatal(err)
	}
	w.step("snoozes")
	before := len(w.pages(id))
	w.tx(func(tx *store.Tx) error {
		inc, err := tx.LockIncident(t.Context(), id)
		if err != nil {
			return err
		}
		over := tx.Now().Add(-time.Minute)
		inc.SnoozedUntil = &over
		return tx.SaveIncident(t.Context(), inc)
	})
	for range 2 {
		w.step("snoozes")
	}
	if n := len(w.pages(id)) - before; n != 2 {
		t.Errorf("%d more pages, want two ways to one person", n)
	}
}
