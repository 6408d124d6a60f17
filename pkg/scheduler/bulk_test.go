package scheduler_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/scheduler"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// sql runs statements besides.
func (w *world) sql(text string, args ...any) {
	w.t.Helper()
	conn, err := pgx.Connect(w.t.Context(), w.url)
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close(w.t.Context())
	if _, err := conn.Exec(w.t.Context(), text, args...); err != nil {
		w.t.Fatalf("%s: %v", text, err)
	}
}

func value[T any](w *world, text string, args ...any) (v T) {
	w.t.Helper()
	conn, err := pgx.Connect(w.t.Context(), w.url)
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close(w.t.Context())
	if err := conn.QueryRow(w.t.Context(), text, args...).Scan(&v); err != nil {
		w.t.Fatalf("%s: %v", text, err)
	}
	return v
}

// dieAll lets every pending delivery of a kind die.
func (w *world) dieAll(kind, state, reason string) {
	w.t.Helper()
	w.sql(`update delivery set state = $2, reason = $3, next_at = null, wait_until = null, settled_at = now(), version = version + 1 where kind = $1 and state = 'pending'`, kind, state, reason)
}

func (w *world) run(action delivery.Action, f api.DeadFilter, perSecond int) uuid.UUID {
	w.t.Helper()
	id := store.NewID()
	w.tx(func(tx *store.Tx) error {
		return tx.AddRun(w.t.Context(), store.NewRun{ID: id, Actor: "token:ops", Reason: "mended", Action: action, Filter: f, PerSecond: perSecond})
	})
	return id
}

func (w *world) readRun(id uuid.UUID) api.DecisionRun {
	w.t.Helper()
	r, err := w.st.ReadRun(w.t.Context(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// Three replicas work off one run at once, some of which break off in between: each delivery is decided once.
func TestRunIsWorkedOffOnceByManyReplicas(t *testing.T) {
	t.Parallel()
	const incidents = 40
	w := newWorld(t, nil)
	for i := range incidents {
		w.fire(fmt.Sprint("k", i))
	}
	w.dieAll("card", "rejected", "slack:channel_not_found")
	id := w.run(delivery.SendAgain, api.DeadFilter{State: "dead", Notifier: "ops-slack", Kind: "card"}, 1000)
	if r := w.readRun(id); r.Total != incidents || r.State != api.RunRunning || r.Counts[0].Count != incidents {
		t.Fatalf("the run is %+v", r)
	}
	var all sync.WaitGroup
	for n := range 3 {
		_, _, s := w.replica(fmt.Sprint("replica ", n))
		all.Go(func() {
			for value[string](w, "select state from bulk_run") == api.RunRunning {
				if _, err := s.Decide(t.Context()); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	if r := w.readRun(id); r.Applied != incidents || r.Skipped != 0 || r.State != api.RunDone || r.EndedAt == nil {
		t.Errorf("the run ended as %+v", r)
	}
	if n := value[int](w, "select count(*) from delivery where kind = 'card' and state = 'pending' and effect = 2"); n != incidents {
		t.Errorf("%d of %d cards are sent again once", n, incidents)
	}
	if n := value[int](w, "select count(*) from decision where action = 'send_again' and actor = 'token:ops' and reason = 'mended'"); n != incidents {
		t.Errorf("%d decisions for %d cards", n, incidents)
	}
	if n := value[int](w, "select count(*) from audit where action = 'decision:send_again' and detail like 'mended (run %'"); n != incidents {
		t.Errorf("%d audit rows for %d cards", n, incidents)
	}
}

// What has moved since the set was fixed, and what the single decision would refuse, is left alone with its reason.
func TestRunLeavesAloneWhatMoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	for i := range 4 {
		w.fire(fmt.Sprint("k", i))
	}
	w.dieAll("card", "exhausted", "retries_used_up")
	w.sql(`update delivery set notifier = 'gone' where id = (select max(id::text)::uuid from delivery where kind = 'card')`)
	id := w.run(delivery.SendAgain, api.DeadFilter{Kind: "card"}, 1000)
	// One is canceled meanwhile, one is sent again and dies again: the same state, and another effect.
	w.sql(`update delivery set state = 'canceled' where id = (select min(id::text)::uuid from delivery where kind = 'card')`)
	w.sql(`update delivery set effect = 2 where id = (select delivery_id from bulk_item order by delivery_id offset 1 limit 1)`)
	w.step("decide")
	r := w.readRun(id)
	if r.State != api.RunDone || r.Applied != 1 || r.Skipped != 3 {
		t.Errorf("the run ended as %+v", r)
	}
	skips := map[string]int{}
	for _, s := range r.Skips {
		skips[s.Why] = s.Count
	}
	if skips["moved:canceled"] != 1 || skips["moved:exhausted"] != 1 || skips["notifier_removed"] != 1 {
		t.Errorf("left alone: %+v", r.Skips)
	}
	// Another replica's file has the notifier: that one can send.
	w.sql(`insert into replica (id, started_at, seen_at, checksum, notifiers) values ('other', now(), now(), 'x', '{gone}')`)
	again := w.run(delivery.SendAgain, api.DeadFilter{Notifier: "gone"}, 1000)
	w.step("decide")
	if r := w.readRun(again); r.Applied != 1 {
		t.Errorf("known to another replica: %+v", r)
	}
	none := w.run(delivery.AssumeDelivered, api.DeadFilter{State: "rejected"}, 1)
	if r := w.readRun(none); r.Total != 0 || r.State != api.RunDone {
		t.Errorf("a run that finds nothing: %+v", r)
	}
}

// A run goes no faster than it says, all replicas together, and takes nothing more once it is canceled.
func TestRunKeepsItsPaceAndIsCanceled(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	for i := range 30 {
		w.fire(fmt.Sprint("k", i))
	}
	w.dieAll("card", "held", "doubt")
	id := w.run(delivery.CancelIt, api.DeadFilter{Kind: "card"}, 1)
	_, _, other := w.replica("two")
	for _, s := range []*scheduler.Scheduler{w.s, other, w.s, other} {
		if _, err := s.Decide(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if r := w.readRun(id); r.Applied < 1 || r.Applied > 20 || r.State != api.RunRunning {
		t.Errorf("after four steps at 1 a second: %+v", r)
	}
	w.tx(func(tx *store.Tx) error {
		ok, err := tx.CancelRun(t.Context(), id, "token:ops")
		if !ok {
			t.Error("it can't be canceled")
		}
		return err
	})
	before := w.readRun(id)
	w.sql(`update bulk_run set paced_at = now() - interval '1 hour'`)
	w.step("decide")
	if r := w.readRun(id); r.Applied != before.Applied || r.State != api.RunCanceled || r.CanceledBy != "token:ops" {
		t.Errorf("after it was canceled: %+v", r)
	}
}

// A delivery on which the database takes no decision is left alone, and holds up neither the rest of its run nor other runs.
func TestRunGoesOnPastWhatFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	for i := range 5 {
		w.fire(fmt.Sprint("k", i))
	}
	w.dieAll("card", "rejected", "slack:channel_not_found")
	w.dieAll("page", "held", "doubt")
	w.sql(`create function no() returns trigger language plpgsql as $$ begin raise exception 'no' using errcode = '23514'; end $$`)
	w.sql(`do $$ begin execute format('create trigger no before update on delivery for each row when (old.id = %L and new.effect > old.effect) execute function no()',
		(select d.id from delivery d where kind = 'card' order by incident_id offset 1 limit 1)); end $$`)
	cards := w.run(delivery.SendAgain, api.DeadFilter{Kind: "card"}, 1000)
	pages := w.run(delivery.CancelIt, api.DeadFilter{Kind: "page"}, 1000)
	failures := 0
	for value[int](w, "select count(*) from bulk_run where state = 'running'") > 0 {
		if _, err := w.s.Decide(t.Context()); err != nil {
			failures++
		}
		w.sql(`update bulk_run set paced_at = paced_at - interval '1 second'`) // its pace is not what is tested
	}
	if r := w.readRun(cards); r.State != api.RunDone || r.Applied != 4 || r.Skipped != 1 || len(r.Skips) != 1 || r.Skips[0].Why != "failed" {
		t.Errorf("the run of the cards ended as %+v", r)
	}
	if r := w.readRun(pages); r.State != api.RunDone || r.Applied != r.Total || r.Total == 0 {
		t.Errorf("the other run ended as %+v", r)
	}
	if failures != 1 {
		t.Errorf("%d steps failed, and one delivery did", failures)
	}
}

// An incident that somebody holds for long puts off what a run has there, and no other run.
func TestRunOfAHeldIncidentWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	for i := range 2 {
		w.fire(fmt.Sprint("k", i))
	}
	w.dieAll("card", "rejected", "slack:channel_not_found")
	first := value[string](w, "select min(incident_id::text) from delivery where kind = 'card'")
	held := w.run(delivery.CancelIt, api.DeadFilter{Kind: "card", Incident: first}, 1000)
	free := w.run(delivery.CancelIt, api.DeadFilter{Kind: "card"}, 1000)
	w.sql(`delete from bulk_item where run_id = $1 and incident_id = $2`, free, first)
	w.sql(`update bulk_run set total = 1, paced_at = paced_at + interval '100 milliseconds' where id = $1`, free) // the other one is looked at first
	conn, err := pgx.Connect(t.Context(), w.url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	hold, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := hold.Exec(t.Context(), "select 1 from incident where id = $1 for update", first); err != nil {
		t.Fatal(err)
	}
	if _, err := w.s.Decide(t.Context()); err == nil {
		t.Error("a held incident is no error")
	}
	w.step("decide")
	if r := w.readRun(free); r.State != api.RunDone || r.Applied != 1 {
		t.Errorf("the other run is %+v", r)
	}
	if err := hold.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.sql(`update bulk_run set paced_at = paced_at - interval '1 minute'`)
	w.step("decide")
	if r := w.readRun(held); r.State != api.RunDone || r.Applied != 1 || r.Skipped != 0 {
		t.Errorf("the run that waited is %+v", r)
	}
}
