package scheduler_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/scheduler"
	"github.com/tocsin-oncall/tocsin/pkg/store"
	"github.com/tocsin-oncall/tocsin/pkg/store/storetest"
)

func TestLifetimesEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(f *config.File) {
		f.Notifiers["audit"] = config.Notifier{Name: "audit", Type: "webhook", URL: "https://example.com"}
		f.Routes[0].Notify = []string{"audit"}
		f.Routes[0].Escalate = ""
	})
	id := w.fire("k")
	w.step("expire")
	if d := w.deliveries(id)[0]; d.State != delivery.Pending {
		t.Fatalf("%+v", d)
	}
	storetest.MoveClock(t, w.url, 25*time.Hour)
	w.step("expire")
	if d := w.deliveries(id)[0]; d.State != delivery.Expired || d.Reason != "lifetime_over" {
		t.Errorf("%s %s", d.State, d.Reason)
	}
}

// Whatever the kind and whatever it waits for, what is not settled when its lifetime is over comes to a final state.
func TestEveryKindExpires(t *testing.T) { // B7
	t.Parallel()
	w := newWorld(t, nil)
	waits := map[string]string{
		"its turn": "queue = 'slack:C1'", "a rest": "reason = 'paused', next_at = clock_timestamp() + interval '30 days'", "a retry": "tries = 3, attempts = 3, next_at = clock_timestamp() + interval '1 day'",
		"its card": "wait_until = clock_timestamp() + interval '1 day', reason = 'waiting_for_card'", "a replica that died": "lease_token = gen_random_uuid(), lease_until = clock_timestamp(), worker = 'gone'",
		"nothing": "version = version + 1",
	}
	ids := map[string]uuid.UUID{}
	w.tx(func(tx *store.Tx) error {
		inc, _, err := tx.OpenIncident(t.Context(), store.Incident{ID: store.NewID(), Key: "k", Source: "native", Topic: "alert.a.high.b", Title: "T", Criticality: "high"})
		if err != nil {
			return err
		}
		for _, k := range delivery.Kinds {
			for what := range waits {
				id := store.NewID()
				ids[string(k)+" that waits for "+what] = id
				if err := tx.AddDeliveries(t.Context(), store.NewDelivery{ID: id, IncidentID: inc.ID, Kind: k, Notifier: "ops-slack", Target: what, Lifetime: time.Hour}); err != nil {
					return err
				}
			}
		}
		return nil
	})
	for what, change := range waits {
		sql[int](w, "with x as (update delivery set "+change+" where target = $1 returning 1) select count(*) from x", what)
	}
	w.step("expire")
	if n := sql[int](w, "select count(*) from delivery where settled_at is not null or stop_state is not null"); n != 0 {
		t.Fatalf("%d ended before their time", n)
	}
	storetest.MoveClock(t, w.url, time.Hour+time.Minute)
	w.step("expire")
	for what, id := range ids {
		got := sql[string](w, "select state || ' ' || reason from delivery where id = $1", id)
		if got != "expired lifetime_over" {
			t.Errorf("%s: %s", what, got)
		}
	}
}

// What waits to be edited is not stopped by its lifetime, and stands in nobody's way.
func TestEditsKeepNothingFromExpiring(t *testing.T) { // B7
	t.Parallel()
	w := newWorld(t, nil)
	last := store.NewID()
	w.tx(func(tx *store.Tx) error {
		for n := range 2*scheduler.Batch + 1 {
			d := store.NewDelivery{ID: store.NewID(), Kind: delivery.Page, Notifier: "slack-dm", Target: "user:ana", Lifetime: time.Hour}
			if n == 2*scheduler.Batch {
				d.ID, d.Kind, d.Lifetime = last, delivery.Event, 2*time.Hour
			}
			if err := tx.AddDeliveries(t.Context(), d); err != nil {
				return err
			}
		}
		return nil
	})
	sql[int](w, `with x as (update delivery set reference = '{"channel": "D1", "ts": "1.1"}' where kind = 'page' returning 1) select count(*) from x`)
	storetest.MoveClock(t, w.url, 3*time.Hour)
	w.step("expire")
	if got := sql[string](w, "select state from delivery where id = $1", last); got != "expired" {
		t.Errorf("the event is %s", got)
	}
	if n := sql[int](w, "select count(*) from delivery where state = 'pending'"); n != 2*scheduler.Batch {
		t.Errorf("%d edits still wait", n)
	}
}
