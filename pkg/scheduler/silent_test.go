package scheduler_test

import (
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/intake"
	"github.com/tocsin-oncall/tocsin/pkg/message"
	"github.com/tocsin-oncall/tocsin/pkg/plan"
	"github.com/tocsin-oncall/tocsin/pkg/scheduler"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

func (w *world) heartbeats() map[string]store.Heartbeat {
	w.t.Helper()
	all, err := w.st.Heartbeats(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	out := map[string]store.Heartbeat{}
	for _, h := range all {
		out[h.Name] = h
	}
	return out
}

// missed are the live incidents about heartbeats.
func (w *world) missed() []store.Incident {
	w.t.Helper()
	return w.self("heartbeat_missed")
}

func (w *world) state(id uuid.UUID) (state message.State) {
	w.t.Helper()
	w.tx(func(tx *store.Tx) error {
		var err error
		state, err = tx.IncidentState(w.t.Context(), id)
		return err
	})
	return state
}

func step(t *testing.T, f func() (bool, error)) {
	t.Helper()
	if _, err := f(); err != nil {
		t.Fatal(err)
	}
}

func withHeartbeat(f *config.File) {
	f.Heartbeats = map[string]config.Heartbeat{"backup": {Name: "backup", Every: time.Hour, Criticality: "critical"}}
}

func TestAMissedHeartbeatIsAnAlertUntilItCallsAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withHeartbeat)
	w.s.Listened()
	missed := func() { t.Helper(); step(t, func() (bool, error) { return w.s.Missed(t.Context()) }) }
	missed()
	if h, ok := w.heartbeats()["backup"]; !ok || h.CalledAt != nil || len(w.missed()) != 0 {
		t.Fatalf("just taken, it may be silent: %+v", h)
	}
	w.sql("update heartbeat set since = since - interval '59 minutes'")
	if missed(); len(w.missed()) != 0 {
		t.Fatal("it still has a minute")
	}
	w.sql("update heartbeat set since = since - interval '2 minutes'")
	missed()
	missed()
	all := w.missed()
	if len(all) != 1 || all[0].Topic != "alert.heartbeat_missed.critical._tocsin" || all[0].Count != 1 || all[0].Key != plan.SelfKey+"heartbeat_missed:backup" || len(w.deliveries(all[0].ID)) == 0 {
		t.Fatalf("%+v", all)
	}
	if err := w.in.Called(t.Context(), "backup"); err != nil {
		t.Fatal(err)
	}
	if h := w.heartbeats()["backup"]; len(w.missed()) != 0 || h.MissedAt != nil || h.CalledAt == nil {
		t.Fatalf("it called: %+v", h)
	}
	// The next time it is silent is announced too, though it is the same day.
	w.sql("update heartbeat set called_at = called_at - interval '61 minutes', since = since - interval '1 day'")
	missed()
	if all := w.missed(); len(all) != 1 || len(w.deliveries(all[0].ID)) == 0 {
		t.Fatalf("%+v", all)
	}
}

// A person's word quiets it for a while. That it calls is what ends it.
func TestAMissedHeartbeatThatIsAnswered(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withHeartbeat)
	w.s.Listened()
	missed := func() { t.Helper(); step(t, func() (bool, error) { return w.s.Missed(t.Context()) }) }
	missed()
	w.sql("update heartbeat set since = since - interval '2 hours'")
	missed()
	ana := intake.Actor{Name: "Ana Torres"}
	if _, err := w.in.Acknowledge(t.Context(), w.missed()[0].ID, ana, ""); err != nil {
		t.Fatal(err)
	}
	if missed(); len(w.missed()) != 1 || w.missed()[0].State != message.Acknowledged || w.missed()[0].Count != 1 {
		t.Fatalf("acknowledged: %+v", w.missed())
	}
	since := w.heartbeats()["backup"].MissedAt
	if _, err := w.in.Resolve(t.Context(), w.missed()[0].ID, ana, ""); err != nil {
		t.Fatal(err)
	}
	if missed(); len(w.missed()) != 0 {
		t.Fatalf("resolved by a person a moment ago: %+v", w.missed())
	}
	w.sql("update incident set opened_at = opened_at - interval '5 hours', acknowledged_at = acknowledged_at - interval '5 hours', resolved_at = resolved_at - interval '5 hours'")
	missed()
	missed()
	if all := w.missed(); len(all) != 1 || all[0].State != message.Open || all[0].Count != 1 || len(w.deliveries(all[0].ID)) == 0 {
		t.Fatalf("it is still silent after hours: %+v", all)
	}
	if at := w.heartbeats()["backup"].MissedAt; !at.Equal(*since) {
		t.Errorf("missed since %s, and before since %s", at, since)
	}
	if err := w.in.Called(t.Context(), "backup"); err != nil || len(w.missed()) != 0 {
		t.Errorf("it called: %v, %+v", err, w.missed())
	}
}

func TestAHeartbeatIsMissedOnceOnAllReplicas(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withHeartbeat)
	step(t, func() (bool, error) { return w.s.Missed(t.Context()) })
	w.sql("update heartbeat set since = since - interval '2 hours'")
	var all sync.WaitGroup
	for range 3 {
		_, _, s := w.replica("other")
		s.Listened()
		all.Go(func() {
			for range 5 {
				if _, err := s.Missed(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if all := w.missed(); len(all) != 1 || all[0].Count != 1 {
		t.Errorf("%+v", all)
	}
}

// A replica that has just come up, or whose database was away, has not heard anybody: that is not the sources' silence.
func TestSilenceMeansNothingToWhoCouldNotHear(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withHeartbeat)
	r, err := w.in.Accept(t.Context(), intake.Group{Source: "prometheus", Pair: true, Alerts: []plan.Alert{
		{Kind: "disk", Criticality: "critical", Firing: true, Title: "Disk", EndsAt: time.Now().Add(time.Hour)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	both := func(s *scheduler.Scheduler) {
		t.Helper()
		step(t, func() (bool, error) { return s.Missed(t.Context()) })
		step(t, func() (bool, error) { return s.Lapse(t.Context()) })
	}
	both(w.s)
	w.sql("update heartbeat set since = since - interval '2 hours'")
	w.sql("update alert set ends_at = ends_at - interval '2 hours'")
	if both(w.s); len(w.missed()) != 0 || w.state(r.IncidentID) != message.Open {
		t.Fatal("it was taken for silence at once")
	}
	w.s.Listened()
	if both(w.s); len(w.missed()) != 1 || w.state(r.IncidentID) != message.Resolved {
		t.Fatal("it was not taken for silence in the end")
	}
}

func TestARemovedHeartbeatIsForgotten(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withHeartbeat)
	w.s.Listened()
	step(t, func() (bool, error) { return w.s.Missed(t.Context()) })
	w.sql("update heartbeat set since = since - interval '2 hours'")
	step(t, func() (bool, error) { return w.s.Missed(t.Context()) })
	if len(w.missed()) != 1 {
		t.Fatal("it is not missed")
	}
	w.file.Heartbeats = nil
	step(t, func() (bool, error) { return w.s.Missed(t.Context()) })
	if len(w.heartbeats()) != 1 {
		t.Fatal("another replica's file may still name it")
	}
	w.sql("update heartbeat set listed_at = listed_at - interval '16 minutes'")
	step(t, func() (bool, error) { return w.s.Missed(t.Context()) })
	step(t, func() (bool, error) { return w.s.Settle(t.Context()) })
	if len(w.heartbeats()) != 0 || len(w.missed()) != 0 {
		t.Errorf("%v, %+v", w.heartbeats(), w.missed())
	}
}
