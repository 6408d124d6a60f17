package store_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tocsin-oncall/tocsin/pkg/card"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// seen is what a transaction is told of an incident.
type seen struct {
	Live       store.Incident
	Is         bool
	Last       store.Incident
	Was        bool
	Alerts     map[string]store.Alert
	Shown      []store.Alert
	Deliveries []string
	Steps      []store.EscalationStep
	Silence    bool
	Told       bool
}

func (s *site) look(tx *store.Tx, key string, marks ...string) (v seen) {
	s.t.Helper()
	must := func(err error) {
		s.t.Helper()
		if err != nil {
			s.t.Fatalf("%s: %v", key, err)
		}
	}
	var err error
	v.Live, v.Is, err = tx.LiveIncident(s.ctx(), key)
	must(err)
	v.Last, v.Was, err = tx.LastResolved(s.ctx(), key)
	must(err)
	if !v.Is {
		return v
	}
	id := v.Live.ID
	v.Alerts, err = tx.AlertsByFingerprint(s.ctx(), id, marks)
	must(err)
	ds, err := tx.Deliveries(s.ctx(), id)
	must(err)
	for _, d := range ds {
		v.Deliveries = append(v.Deliveries, fmt.Sprint(d.ID, d.Kind, d.State))
	}
	v.Silence, err = tx.AnySilence(s.ctx(), id, false)
	must(err)
	v.Told, err = tx.HasDeliveries(s.ctx(), id)
	must(err)
	v.Steps, err = tx.Steps(s.ctx(), id)
	must(err)
	v.Shown, err = tx.ShownAlerts(s.ctx(), v.Live, 2)
	must(err)
	return v
}

// What is read at once for many incidents is what each of them would have been told alone, and never what the transaction has changed
// since. An incident that somebody else holds is left to who waits for it.
func TestWhatIsReadAheadIsWhatIsThere(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	full, bare := s.incident("full"), s.incident("bare")
	s.incident("held")
	s.add(full, delivery.Card)
	s.add(full, delivery.Thread)
	s.add(bare, delivery.Notice)
	s.tx(func(tx *store.Tx) error {
		for n := range 4 {
			a := store.Alert{ID: store.NewID(), IncidentID: full.ID, Fingerprint: fmt.Sprint("f", n), Topic: "t", Criticality: "high", Status: "firing", Title: "t", StartsAt: tx.Now().Add(time.Duration(n) * time.Second), Count: 1}
			if err := tx.PutAlerts(t.Context(), full.ID, []store.Alert{a}); err != nil {
				return err
			}
		}
		full.Firing = 4
		if err := tx.SaveIncident(t.Context(), full); err != nil {
			return err
		}
		silence := store.Silence{ID: store.NewID(), Match: "#", StartsAt: tx.Now().Add(-2 * time.Hour), EndsAt: tx.Now().Add(-time.Hour), Reason: "r", Author: "a"}
		if err := tx.AddSilence(t.Context(), silence); err != nil {
			return err
		}
		return tx.SilenceAlert(t.Context(), bare.ID, store.SilencedAlert{Fingerprint: "f", SilenceID: silence.ID})
	})
	s.exec("insert into escalation (id, incident_id, name, round, step, due_at, state) values (gen_random_uuid(), $1, 'e', 0, 0, now(), 'due')", full.ID)
	s.exec("insert into incident (id, key, source, topic, title, state, criticality, opened_at, resolved_at) select gen_random_uuid(), 'old', 's', 't', n::text, 'resolved', 'high', now(), now() + make_interval(secs => n) from generate_series(1, 3) n")

	keys := []string{"full", "bare", "old", "new"}
	one, many := map[string]seen{}, map[string]seen{}
	s.tx(func(tx *store.Tx) error {
		for _, k := range keys {
			one[k] = s.look(tx, k, "f1", "f9")
		}
		return nil
	})
	other, err := s.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Exec(t.Context(), "select from incident where key = 'held' for update"); err != nil {
		t.Fatal(err)
	}
	var expected []store.Expected
	for _, k := range append(slices.Clone(keys), "held") {
		expected = append(expected, store.Expected{Key: k, Fingerprints: []string{"f1", "f9"}})
	}
	if err := s.InBatchTx(t.Context(), expected, func(tx *store.Tx, held []string) error {
		if !slices.Equal(held, []string{"held"}) || tx.Now().IsZero() {
			t.Errorf("held are %v at %s", held, tx.Now())
		}
		for _, k := range keys {
			many[k] = s.look(tx, k, "f1", "f9")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := other.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	for k, v := range many { // there may be more of them, for those that leave the first places
		if v.Shown = v.Shown[:min(2, len(v.Shown))]; len(one[k].Alerts) == 0 && len(v.Alerts) == 0 {
			v.Alerts = one[k].Alerts
		}
		if len(one[k].Shown) == 0 && len(v.Shown) == 0 {
			v.Shown = one[k].Shown
		}
		many[k] = v
	}
	if diff := cmp.Diff(one, many); diff != "" {
		t.Errorf("one - many +:\n%s", diff)
	}
	if v := one["old"]; v.Last.Title != "3" || v.Is || !v.Was {
		t.Errorf("the last of a key: %+v", v)
	}

	// What the transaction itself has changed is seen by whoever asks again.
	if err := s.InBatchTx(t.Context(), expected, func(tx *store.Tx, _ []string) error {
		s.look(tx, "bare", "f1") // now all others are read
		before := s.look(tx, "full", "f1")
		a := before.Alerts["f1"]
		a.Title = "changed"
		if err := tx.PutAlerts(t.Context(), full.ID, []store.Alert{a}); err != nil {
			return err
		}
		if err := tx.AddDeliveries(t.Context(), store.NewDelivery{ID: store.NewID(), IncidentID: full.ID, ContentID: full.ID, Kind: delivery.Notice, Notifier: ops, Target: "channel"}); err != nil {
			return err
		}
		after := s.look(tx, "full", "f1")
		if after.Alerts["f1"].Title != "changed" || len(after.Deliveries) != len(before.Deliveries)+1 || !slices.ContainsFunc(after.Shown, func(a store.Alert) bool { return a.Fingerprint == "f3" }) {
			t.Errorf("before %+v, after %+v", before, after)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// Of what is gathered about one row, the last word holds, and what is read behind it sees it.
func TestWhatIsGatheredIsWrittenInItsOrder(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	a, b := s.incident("a"), s.incident("b")
	now := time.Now().UTC().Truncate(time.Microsecond)
	s.tx(func(tx *store.Tx) error {
		for n := range 3 {
			for _, inc := range []*store.Incident{&a, &b} {
				inc.Title, inc.Sequence, inc.AcknowledgedAt, inc.AcknowledgedBy, inc.State = fmt.Sprint("title ", n), n+1, &now, "ana", "acknowledged"
				alert := store.Alert{ID: store.NewID(), IncidentID: inc.ID, Fingerprint: "f", Topic: "t", Criticality: "high", Status: "firing", Title: inc.Title, StartsAt: now, Count: n}
				for _, err := range []error{
					tx.SaveIncident(t.Context(), *inc), tx.PutAlerts(t.Context(), inc.ID, []store.Alert{alert}),
					tx.AddTimeline(t.Context(), inc.ID, card.Entry{Sequence: n + 1, Actor: "a", Type: "note", Text: inc.Title}),
					tx.PutContent(t.Context(), store.Content{ID: inc.ID, Revision: n + 1, Body: []byte(fmt.Sprintf(`{"n": %d}`, n))}),
				} {
					if err != nil {
						return err
					}
				}
			}
			if n == 1 {
				got, err := tx.LockIncident(t.Context(), a.ID)
				if err != nil || got.Title != "title 1" {
					t.Errorf("%+v, %v", got, err)
				}
			}
		}
		return nil
	})
	for _, inc := range []store.Incident{a, b} {
		s.tx(func(tx *store.Tx) error {
			got, err := tx.LockIncident(t.Context(), inc.ID)
			if diff := cmp.Diff(inc, got); diff != "" || err != nil {
				t.Errorf("%v %s", err, diff)
			}
			return nil
		})
		if n := get[string](s, "select a.title || ' ' || a.count || ' ' || c.body || ' ' || (select string_agg(text, ',' order by sequence) from timeline where incident_id = $1) from alert a join content c on c.id = a.incident_id where a.incident_id = $1", inc.ID); n != `title 2 2 {"n": 2} title 0,title 1,title 2` {
			t.Error(n)
		}
	}
}
