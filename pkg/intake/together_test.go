package intake_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/intake"
	"github.com/tocsin-oncall/tocsin/pkg/message"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// keyed is an alert of an incident of its own choice.
func keyed(key, host string) intake.Group {
	g := disk("critical", "host", host)
	g.Key = key
	return g
}

func over(g intake.Group) intake.Group {
	g.Alerts[0].Firing = false
	return g
}

// What alerts come to does not depend on whether they were committed together or one after the other.
func TestTogetherIsAsOneAfterTheOther(t *testing.T) {
	t.Parallel()
	type step struct {
		groups []intake.Group
		change func(w *world)
	}
	unknown := disk("nobody_takes_this", "host", "a")
	unknown.Key = "unrouted"
	another := unknown
	another.Key = "unrouted too"
	steps := []step{
		{groups: []intake.Group{keyed("one", "a"), keyed("two", "a"), keyed("three", "a"), unknown, another, over(keyed("four", "a"))}},
		{groups: []intake.Group{keyed("two", "b"), keyed("one", "a"), over(keyed("three", "a")), keyed("four", "a"), keyed("five", "c")}},
		{groups: []intake.Group{keyed("three", "a"), keyed("one", "b"), over(keyed("two", "b")), keyed("five", "c")}, change: func(w *world) {
			w.exec("update incident set state = 'resolved', resolved_at = clock_timestamp(), resolved_by = 'source:native', firing = 0 where key = 'five'")
			w.exec("update delivery set state = 'sent', applied = desired, settled_at = now(), next_at = null, reference = '{\"chat\": \"C1\", \"id\": \"1.1\"}' where kind = 'card' and incident_id = (select id from incident where key = 'one')")
		}},
		{groups: []intake.Group{over(keyed("one", "a")), over(keyed("two", "a")), over(keyed("five", "c")), over(keyed("four", "z"))}},
	}
	play := func(together bool) (out []string) {
		w := newWorld(t, nil)
		for _, s := range steps {
			if s.change != nil {
				s.change(w)
			}
			if together {
				if _, errs := w.in.AcceptTogether(t.Context(), s.groups...); errors.Join(errs...) != nil {
					t.Fatal(errs)
				}
				continue
			}
			for _, g := range s.groups {
				w.accept(g)
			}
		}
		for _, q := range []string{
			"select concat_ws(' ', key, source, topic, title, state, criticality, count, firing, resolved, truncated, revision, sequence, resolved_by) from incident",
			"select concat_ws(' ', i.key, a.fingerprint, a.topic, a.status, a.title, a.text, a.labels, a.count, a.ends_at is null) from alert a join incident i on i.id = a.incident_id",
			"select concat_ws(' ', i.key, t.sequence, t.actor, t.type, regexp_replace(t.text, 'after .*', '')) from timeline t join incident i on i.id = t.incident_id",
			"select concat_ws(' ', i.key, d.kind, d.notifier, d.target, d.state, d.reason, d.desired, d.stop_state, d.next_at is null) from delivery d join incident i on i.id = d.incident_id",
			"select concat_ws(' ', i.key, c.revision, c.body ->> 'title', c.body ->> 'state', c.body ->> 'firing', c.body -> 'labels', jsonb_array_length(c.body -> 'alerts')) from content c join incident i on i.id = c.id",
			"select concat_ws(' ', i.key, e.name, e.round, e.step, e.state, e.reason) from escalation e join incident i on i.id = e.incident_id",
			"select concat_ws(' ', i.key, r.topic, r.labels, r.hash) from routing r join incident i on i.id = r.incident_id",
			"select concat_ws(' ', type, topic, body::jsonb -> 'alert' ->> 'status', body::jsonb -> 'incident' ->> 'firing') from event",
		} {
			out = append(out, one[string](w, "select string_agg(line, E'\\n' order by line collate \"C\") from ("+q+") as q (line)"))
		}
		return out
	}
	if diff := cmp.Diff(play(false), play(true)); diff != "" {
		t.Errorf("one by one - together +:\n%s", diff)
	}
}

// Different alerts of one incident that come at the same time are one change of it; each sender is told of its own alert, and the first
// that the incident is new.
func TestAFloodIntoOneIncidentIsOneChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	var groups []intake.Group
	for n := range 40 {
		groups = append(groups, keyed("one", fmt.Sprint("h", n)))
	}
	results, errs := w.in.AcceptTogether(t.Context(), groups...)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	ids := map[uuid.UUID]bool{}
	for n, r := range results {
		if r.IncidentID != results[0].IncidentID || r.Opened != (n == 0) || (len(r.Deliveries) > 0) != (n == 0) || r.State != message.Open || r.AlertID == uuid.Nil {
			t.Errorf("%d: %+v", n, r)
		}
		ids[r.AlertID] = true
	}
	if n := one[int](w, "select count(*) from alert"); n != 40 || len(ids) != 40 {
		t.Errorf("%d alerts in the database, %d told", n, len(ids))
	}
	if inc := w.incident(results[0].IncidentID); inc.Firing != 40 || inc.Count != 40 || inc.Revision != 1 {
		t.Errorf("%+v", inc)
	}
	// The same alert twice is counted twice, and what ends comes after what began.
	_, errs = w.in.AcceptTogether(t.Context(), keyed("one", "h1"), keyed("one", "h1"), over(keyed("one", "h1")), keyed("one", "h2"))
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if n := one[int](w, "select count(*) from event where type = 'alert'"); n != 44 {
		t.Errorf("listeners are told of %d alerts", n)
	}
	if inc := w.incident(results[0].IncidentID); inc.Firing != 39 || inc.Resolved != 1 || inc.Count != 43 {
		t.Errorf("%+v", inc)
	}
}

// What the database does not take of one alert, and what breaks over one, costs no other.
func TestOneThatFailsCostsNoOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.exec(`create function refuse() returns trigger language plpgsql as $$ begin
		if new.title = 'poison' then raise exception 'poisoned'; end if; return new; end $$;
		create trigger refuse before insert or update on alert for each row execute function refuse()`)
	in := intake.New(intake.Options{Store: w.st, File: func() *config.File { return w.file }, Redact: func(s string) string {
		if strings.Contains(s, `"notifiers":["ops-slack"]`) { // what a warning comes to
			panic("a bug")
		}
		return s
	}})
	poison, panics, same := keyed("b", "x"), disk("warning"), keyed("b", "y")
	poison.Alerts[0].Title = "poison"
	results, errs := in.AcceptTogether(t.Context(), keyed("a", "x"), poison, same, panics, keyed("d", "x"))
	for n, err := range errs {
		want := map[int]string{1: "poisoned", 3: "a bug"}[n]
		if (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%d: %v, want %q", n, err, want)
		}
		if (results[n].IncidentID == uuid.Nil) != (want != "") {
			t.Errorf("%d: %+v", n, results[n])
		}
	}
	if n := one[int](w, "select count(*) from alert"); n != 3 {
		t.Errorf("%d alerts", n)
	}
	if !in.Gone() {
		t.Error("something is left in the queue")
	}
}

// Who holds an incident holds up its alerts and no others.
func TestAHeldIncidentHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	held := w.accept(keyed("held", "a")).IncidentID
	locked, release := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		if err := w.st.InTx(t.Context(), func(tx *store.Tx) error {
			_, err := tx.LockIncident(t.Context(), held)
			close(locked)
			<-release
			return err
		}); err != nil {
			t.Error(err)
		}
	})
	<-locked
	done := make(chan error, 1)
	go func() {
		_, err := w.in.Accept(t.Context(), keyed("held", "b"))
		done <- err
	}()
	for n := range 20 {
		w.accept(keyed(fmt.Sprint("other ", n), "a"))
	}
	select {
	case err := <-done:
		t.Errorf("an alert of an incident that is held: %v", err)
	default:
	}
	close(release)
	if err := <-done; err != nil {
		t.Error(err)
	}
	all.Wait()
	if inc := w.incident(held); inc.Firing != 2 {
		t.Errorf("%+v", inc)
	}
}

// Three replicas that take the same incidents' alerts at once lose none, count each once, and none is in another's way for long.
func TestReplicasTakeTheSameIncidentsAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	const senders, rounds, keys = 12, 15, 7
	ins := []*intake.Intake{w.in}
	for range 2 {
		_, in := w.replica()
		ins = append(ins, in)
	}
	var all sync.WaitGroup
	for s := range senders {
		all.Go(func() {
			for n := range rounds {
				var busy *intake.BusyError
				for {
					_, err := ins[s%len(ins)].Accept(t.Context(), keyed(fmt.Sprint("k", (n*5+s*3)%keys), fmt.Sprint(s, "-", n)))
					if errors.As(err, &busy) {
						time.Sleep(10 * time.Millisecond) // a slow machine: as a source does
						continue
					}
					if err != nil {
						t.Errorf("%d %d: %v", s, n, err)
					}
					break
				}
			}
		})
	}
	all.Wait()
	for what, sql := range map[string]string{
		"alerts":                      "select count(*) from alert",
		"firings counted":             "select sum(count) from incident",
		"firing ones":                 "select sum(firing) from incident",
		"alerts of the shown numbers": "select sum((c.body ->> 'firing')::int) from content c join incident i on i.id = c.id and i.revision = c.revision",
	} {
		if n := one[int](w, sql); n != senders*rounds {
			t.Errorf("%d %s, want %d", n, what, senders*rounds)
		}
	}
	if n := one[int](w, "select count(*) from incident"); n != keys {
		t.Errorf("%d incidents", n)
	}
	if n := one[int](w, "select count(*) from (select incident_id from delivery where kind = 'card' group by incident_id having count(*) <> 1) x"); n != 0 {
		t.Errorf("%d incidents have not one card", n)
	}
	if n := one[int](w, "select count(*) from incident i where sequence <> (select count(*) from timeline t where t.incident_id = i.id)"); n != 0 {
		t.Errorf("%d incidents with holes in their timeline", n)
	}
}
