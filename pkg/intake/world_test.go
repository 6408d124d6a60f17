package intake_test

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tocsin-oncall/tocsin/pkg/card"
	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/intake"
	"github.com/tocsin-oncall/tocsin/pkg/oncall"
	"github.com/tocsin-oncall/tocsin/pkg/plan"
	"github.com/tocsin-oncall/tocsin/pkg/route"
	"github.com/tocsin-oncall/tocsin/pkg/store"
	"github.com/tocsin-oncall/tocsin/pkg/store/storetest"
)

// world is a database with one or more replicas' intakes.
type world struct {
	t    *testing.T
	url  string
	st   *store.Store
	in   *intake.Intake
	file *config.File

	mu   sync.Mutex
	woke []time.Time
}

func newWorld(t *testing.T, change func(f *config.File)) *world {
	t.Helper()
	w := &world{t: t, url: storetest.New(t), file: testFile(t)}
	if change != nil {
		change(w.file)
	}
	w.st, w.in = w.replica()
	return w
}

// replica is one more instance on the same database.
func (w *world) replica() (*store.Store, *intake.Intake) {
	w.t.Helper()
	st, err := store.Open(w.t.Context(), w.url, store.Options{MaxConnections: 8})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(st.Close)
	return st, intake.New(intake.Options{Store: st, File: func() *config.File { return w.file }, Wake: func(oldest time.Time) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.woke = append(w.woke, oldest)
	}})
}

func pattern(t *testing.T, s string) route.Pattern {
	t.Helper()
	p, err := route.ParsePattern(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// testFile routes everything critical to a card, a webhook and an escalation.
func testFile(t *testing.T) *config.File {
	t.Helper()
	f := &config.File{
		Users: []config.User{
			{ID: "ana", Name: "Ana Torres", Contacts: []config.Contact{{Via: "slack-dm", Address: "U0ANA"}, {Via: "telegram-dm", Address: "7", After: 2 * time.Minute}}},
			{ID: "cho", Name: "Cho", Contacts: []config.Contact{{Via: "slack-dm", Address: "U0CHO"}}},
		},
		Schedules: []oncall.Schedule{{ID: "primary", Zone: time.UTC, Layers: []oncall.Layer{
			{Name: "week", Users: [][]string{{"ana"}}, Every: oncall.Every{N: 1, Unit: "week"}, Start: time.Date(2026, 1, 5, 9, 0, 0, 0, time.UTC)},
		}}},
		Escalations: map[string]config.Escalation{"default": {Repeat: 1, Every: 20 * time.Minute, Steps: []config.Step{
			{Page: []string{"schedule:primary"}}, {After: 10 * time.Minute, Page: []string{"user:cho"}, Notify: []string{"ops-slack", "hook-slack"}},
		}}},
		Notifiers: map[string]config.Notifier{
			"ops-slack":   {Type: "slack", Token: "t", Channel: "C1"},
			"slack-dm":    {Type: "slack", Token: "t"},
			"telegram-dm": {Type: "telegram", Token: "t"},
			"hook-slack":  {Type: "slack", WebhookURL: "https://hooks.example.com/x"},
			"audit":       {Type: "webhook", URL: "https://example.com/hook"},
		},
		Routes: []config.Route{
			{Match: pattern(t, "alert.*.critical.#"), Notify: []string{"ops-slack", "audit"}, Escalate: "default"},
			{Match: pattern(t, "alert.*.warning.#"), Notify: []string{"ops-slack"}},
			{Match: pattern(t, "alert.*.info.#"), Notify: []string{"hook-slack"}},
			{Match: pattern(t, "alert.*.*._tocsin"), Notify: []string{"ops-slack"}},
		},
		Kinds: map[delivery.Kind]delivery.Policy{},
	}
	for _, k := range delivery.Kinds {
		f.Kinds[k] = delivery.DefaultPolicy(k)
	}
	for name, n := range f.Notifiers {
		n.Name = name
		f.Notifiers[name] = n
	}
	return f
}

// disk is a native alert.
func disk(criticality string, labels ...string) intake.Group {
	a := plan.Alert{Kind: "disk_full", Criticality: criticality, Job: "db", Firing: true, Title: "Disk is full", Text: "95 %", Labels: map[string]string{}}
	for i := 0; i+1 < len(labels); i += 2 {
		a.Labels[labels[i]] = labels[i+1]
	}
	return intake.Group{Source: "native", Alerts: []plan.Alert{a}}
}

func (w *world) accept(g intake.Group) intake.Result {
	w.t.Helper()
	r, err := w.in.Accept(w.t.Context(), g)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

func (w *world) incident(id uuid.UUID) store.Incident {
	w.t.Helper()
	var inc store.Incident
	w.tx(func(tx *store.Tx) error {
		var err error
		inc, err = tx.LockIncident(w.t.Context(), id)
		return err
	})
	return inc
}

func (w *world) tx(fn func(tx *store.Tx) error) {
	w.t.Helper()
	if err := w.st.InTx(w.t.Context(), fn); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) deliveries(id uuid.UUID, kinds ...delivery.Kind) []delivery.Delivery {
	w.t.Helper()
	var out []delivery.Delivery
	w.tx(func(tx *store.Tx) error {
		ds, err := tx.Deliveries(w.t.Context(), id)
		out = nil
		for _, d := range ds {
			if len(kinds) == 0 || slices.Contains(kinds, d.Kind) {
				out = append(out, d)
			}
		}
		return err
	})
	return out
}

func (w *world) steps(id uuid.UUID) (all []store.EscalationStep) {
	w.t.Helper()
	w.tx(func(tx *store.Tx) error {
		var err error
		all, err = tx.Steps(w.t.Context(), id)
		return err
	})
	return all
}

// due is how many steps of an incident's escalation are still to come.
func (w *world) due(id uuid.UUID) int {
	w.t.Helper()
	return one[int](w, "select count(*) from escalation where incident_id = $1 and state = 'due'", id)
}

// timeline is the types of an incident's entries.
func (w *world) timeline(id uuid.UUID) []string {
	w.t.Helper()
	es, err := w.st.Timeline(w.t.Context(), id, 0, 1<<30, 1000)
	if err != nil {
		w.t.Fatal(err)
	}
	var out []string
	for i, e := range es {
		if e.Sequence != i+1 {
			w.t.Errorf("entry %d has the sequence %d", i+1, e.Sequence)
		}
		out = append(out, e.Type)
	}
	return out
}

// one asks the database for one value.
func one[T any](w *world, sql string, args ...any) T {
	w.t.Helper()
	var v T
	conn, err := pgx.Connect(w.t.Context(), w.url)
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close(w.t.Context())
	if err := conn.QueryRow(w.t.Context(), sql, args...).Scan(&v); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// snapshot is what the incident's cards show.
func (w *world) snapshot(id uuid.UUID) card.Snapshot {
	w.t.Helper()
	var s card.Snapshot
	if err := json.Unmarshal(one[[]byte](w, "select body from content where id = $1", id), &s); err != nil {
		w.t.Fatal(err)
	}
	return s
}

// self is the live self-alert incident of a kind.
func (w *world) self(kind string) []store.Incident {
	w.t.Helper()
	var out []store.Incident
	w.tx(func(tx *store.Tx) error {
		all, err := tx.LiveIncidentsOf(w.t.Context(), intake.SelfSource, 100)
		out = slices.DeleteFunc(all, func(i store.Incident) bool { return !strings.HasPrefix(i.Topic, "alert."+kind+".") })
		return err
	})
	return out
}

var ana = intake.Actor{ID: "user:ana", Name: "Ana Torres"}

func (w *world) acknowledge(id uuid.UUID) intake.Answer {
	w.t.Helper()
	a, err := w.in.Acknowledge(w.t.Context(), id, ana, "")
	if err != nil {
		w.t.Fatal(err)
	}
	return a
}

func (w *world) resolve(id uuid.UUID) intake.Answer {
	w.t.Helper()
	a, err := w.in.Resolve(w.t.Context(), id, ana, "")
	if err != nil {
		w.t.Fatal(err)
	}
	return a
}

// exec changes the database behind everybody's back.
func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	conn, err := pgx.Connect(w.t.Context(), w.url)
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close(w.t.Context())
	if _, err := conn.Exec(w.t.Context(), sql, args...); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
}
