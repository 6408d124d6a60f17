package scheduler_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/intake"
	"github.com/tocsin-oncall/tocsin/pkg/plan"
	"github.com/tocsin-oncall/tocsin/pkg/scheduler"
	"github.com/tocsin-oncall/tocsin/pkg/store"
	"github.com/tocsin-oncall/tocsin/pkg/store/storetest"
)

const month = 30 * 24 * time.Hour

func keeps(age time.Duration) func(*config.File) {
	return func(f *config.File) { f.Retention = age }
}

// sql asks the database behind everybody's back.
func sql[T any](w *world, query string, args ...any) T {
	w.t.Helper()
	conn, err := pgx.Connect(w.t.Context(), w.url)
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close(w.t.Context())
	var v T
	if err := conn.QueryRow(w.t.Context(), query, args...).Scan(&v); err != nil {
		w.t.Fatalf("%s: %v", query, err)
	}
	return v
}

// over resolves an incident and takes all of its deliveries for sent, each with an attempt.
func (w *world) over(id uuid.UUID) {
	w.t.Helper()
	if _, err := w.in.Resolve(w.t.Context(), id, intake.Actor{ID: "user:ana", Name: "Ana"}, ""); err != nil {
		w.t.Fatal(err)
	}
	w.send(id)
}

func (w *world) send(id uuid.UUID) {
	w.t.Helper()
	sql[int](w, `with d as (update delivery set state = 'sent', next_at = null, settled_at = clock_timestamp(), applied = desired, attempts = 1 where incident_id = $1 or id = $1 returning id),
		a as (insert into attempt (id, delivery_id, number, effect, effect_key, revision, operation, address, worker, lease_token, started_at)
			select uuid_at(clock_timestamp()) , d.id, 1, 1, d.id::text, 1, 'create', 'a', 'w', gen_random_uuid(), clock_timestamp() from d limit 1 returning id)
		select count(*) from a`, id)
}

// rowsOf counts what is there of an incident or a lone delivery.
func (w *world) rowsOf(id uuid.UUID) map[string]int {
	w.t.Helper()
	out := map[string]int{}
	for name, query := range map[string]string{
		"incident": "select count(*) from incident where id = $1", "alert": "select count(*) from alert where incident_id = $1",
		"timeline": "select count(*) from timeline where incident_id = $1", "escalation": "select count(*) from escalation where incident_id = $1",
		"delivery": "select count(*) from delivery where incident_id = $1 or id = $1", "content": "select count(*) from content where id = $1",
		"decision": "select count(*) from decision where delivery_id in (select id from delivery where incident_id = $1)",
	} {
		if n := sql[int](w, query, id); n > 0 {
			out[name] = n
		}
	}
	return out
}

func TestWhatIsOverAndOldIsPurged(t *testing.T) { // B7
	t.Parallel()
	w := newWorld(t, keeps(month))
	old, pending, dead, open := w.fire("old"), w.fire("pending"), w.fire("dead"), w.fire("open")
	for _, id := range []uuid.UUID{old, pending, dead} {
		w.over(id)
	}
	w.send(open) // all of it is sent, and it still burns
	one := func(id uuid.UUID) uuid.UUID { return w.deliveries(id)[0].ID }
	sql[int](w, "with x as (update delivery set state = 'pending', settled_at = null, next_at = clock_timestamp() where id = $1 returning 1) select count(*) from x", one(pending))
	sql[int](w, "with x as (update delivery set state = 'rejected', reason = 'destination:gone', announced_at = clock_timestamp() where id = $1 returning 1) select count(*) from x", one(dead))
	sql[int](w, `with x as (insert into decision (id, delivery_id, at, actor, action, from_state, effect) values (gen_random_uuid(), $1, clock_timestamp(), 'a', 'cancel', 'held', 1) returning 1) select count(*) from x`, one(old))
	// Two tests of a notifier show one content; one of them is not settled.
	var lone [2]uuid.UUID
	w.tx(func(tx *store.Tx) error {
		content := store.NewID()
		if err := tx.PutContent(t.Context(), store.Content{ID: content, Revision: 1, Body: []byte(`{}`)}); err != nil {
			return err
		}
		for n := range lone {
			lone[n] = store.NewID()
			if err := tx.AddDeliveries(t.Context(), store.NewDelivery{ID: lone[n], ContentID: content, Kind: delivery.Event, Notifier: "ops-slack", Target: "url"}); err != nil {
				return err
			}
		}
		return tx.Audit(t.Context(), "token:ops", "silence_added", "silence:x", "")
	})
	w.send(lone[0])
	ana := intake.Actor{ID: "user:ana", Name: "Ana"}
	if _, err := w.in.AddSilence(t.Context(), intake.NewSilence{Match: "alert.#.nothing", For: time.Hour, Reason: "r"}, ana); err != nil {
		t.Fatal(err)
	}
	for _, state := range []string{"done", "running"} {
		sql[int](w, `with r as (insert into bulk_run (id, made_at, actor, action, filter, per_second, state, total, paced_at, ended_at)
			values (gen_random_uuid(), clock_timestamp(), 'a', 'cancel', '{}', 1, $1, 3, clock_timestamp(), case when $1 = 'done' then clock_timestamp() end) returning id),
			i as (insert into bulk_item (run_id, delivery_id, notifier, state, effect) select r.id, gen_random_uuid(), 'n', 'held', 1 from r, generate_series(1, 3) returning 1) select count(*) from i`, state)
	}

	storetest.MoveClock(t, w.url, month+time.Hour)
	recent := w.fire("recent")
	w.over(recent)
	stays := map[string]map[string]int{}
	for name, id := range map[string]uuid.UUID{"pending": pending, "dead": dead, "open": open, "recent": recent, "a lone one": lone[1]} {
		stays[name] = w.rowsOf(id)
		if len(stays[name]) == 0 {
			t.Fatalf("there is nothing of %s", name)
		}
	}
	if n := w.rowsOf(old); n["decision"] != 1 || n["escalation"] == 0 || n["content"] != 1 || n["alert"] != 1 || n["timeline"] == 0 {
		t.Fatalf("the old one has %v", n)
	}
	w.step("purge")
	if n := w.rowsOf(old); len(n) != 0 {
		t.Errorf("of the old one is left %v", n)
	}
	for name, id := range map[string]uuid.UUID{"pending": pending, "dead": dead, "open": open, "recent": recent, "a lone one": lone[1]} {
		if diff := cmp.Diff(stays[name], w.rowsOf(id)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	for what, c := range map[string]struct {
		query string
		want  int
	}{
		"lone deliveries":             {"select count(*) from delivery where incident_id is null", 1},
		"their content":               {"select count(*) from content c where exists (select from delivery d where d.incident_id is null and d.content_id = c.id)", 1},
		"attempts without a delivery": {"select count(*) from attempt_history where kind is null", 0},
		"attempts":                    {"select count(*) from attempt", 4}, // pending, dead, open, recent
		"silences":                    {"select count(*) from silence", 0}, "runs": {"select count(*) from bulk_run", 1}, "items": {"select count(*) from bulk_item", 3},
		"words on the old ones": {"select count(*) from audit where at < clock_timestamp() - interval '30 days'", 0},
		"dead letters":          {"select count(*) from dead_letters", 1},
	} {
		if n := sql[int](w, c.query); n != c.want {
			t.Errorf("%d %s, want %d", n, what, c.want)
		}
	}

	// What was decided on and what has ended at last goes with the next sweep.
	sql[int](w, "with x as (update delivery set state = 'canceled' where state = 'rejected' returning 1) select count(*) from x")
	w.send(pending)
	w.send(lone[1])
	storetest.MoveClock(t, w.url, month/2)
	w.step("purge")
	for name, id := range map[string]uuid.UUID{"pending": pending, "dead": dead} {
		if n := w.rowsOf(id); len(n) != 0 {
			t.Errorf("of %s is left %v", name, n)
		}
	}
	if n := w.rowsOf(lone[1]); len(n) == 0 {
		t.Error("a lone delivery is purged by its making and not by its end")
	}
	storetest.MoveClock(t, w.url, month)
	w.step("purge")
	if n := sql[int](w, "select count(*) from content where id not in (select id from incident)"); n != 0 {
		t.Errorf("%d contents are left that nothing shows", n)
	}
}

// Three replicas sweep at once in batches that are far smaller than what there is: each row goes once, and no transaction
// takes more than its bound.
func TestSweepsAreBoundedAndShareTheWork(t *testing.T) { // B7
	t.Parallel()
	w := newWorld(t, keeps(month))
	const incidents, alerts, bound = 30, 25, 40
	for n := range incidents {
		g := intake.Group{Source: "native", Key: fmt.Sprint("incident ", n)}
		for a := range alerts {
			g.Alerts = append(g.Alerts, plan.Alert{Kind: "down", Criticality: "critical", Job: "web", Firing: true, Title: "Down", Labels: map[string]string{"host": fmt.Sprint(a)}})
		}
		r, err := w.in.Accept(t.Context(), g)
		if err != nil {
			t.Fatal(err)
		}
		w.over(r.IncidentID)
	}
	storetest.MoveClock(t, w.url, month+time.Hour)
	var mu sync.Mutex
	var all store.Purged
	var sweeps sync.WaitGroup
	for n := range 3 {
		st, _, _ := w.replica(fmt.Sprint("sweeper ", n))
		sweeps.Go(func() {
			var place store.PurgePlace
			for more := true; more; {
				gone, next, again, err := st.PurgeIncidents(t.Context(), month, bound, place)
				if err != nil {
					t.Error(err)
					return
				}
				if gone.Alerts > bound || gone.Timeline > bound || gone.Attempts > bound {
					t.Errorf("one transaction took %+v", gone)
				}
				mu.Lock()
				all.Add(gone)
				mu.Unlock()
				place, more = next, again
			}
		})
	}
	sweeps.Wait()
	if all.Incidents != incidents || all.Alerts != incidents*alerts || all.Attempts != incidents {
		t.Errorf("gone in all: %+v", all)
	}
	if n := sql[int](w, "select (select count(*) from incident) + (select count(*) from delivery) + (select count(*) from content) + (select count(*) from attempt)"); n != 0 {
		t.Errorf("%d rows are left", n)
	}
}

// What a sweep removes is told once, and nothing where the retention is not over.
func TestSweepTellsWhatWent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	var told []store.Purged
	s := scheduler.New(scheduler.Options{Store: w.st, Intake: w.in, File: func() *config.File { return w.file }, Replica: "one", Purged: func(p store.Purged) { told = append(told, p) }})
	w.over(w.fire("k"))
	storetest.MoveClock(t, w.url, month+time.Hour)
	for _, age := range []time.Duration{0, 2 * month, month, month} {
		w.file.Retention = age
		if _, err := s.Purge(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if len(told) != 1 || told[0].Incidents != 1 || told[0].Alerts != 1 || told[0].Deliveries == 0 || told[0].Timeline == 0 {
		t.Errorf("told %+v", told)
	}
}
