package scheduler_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/ical"
	"github.com/tocsin-oncall/tocsin/pkg/intake"
	"github.com/tocsin-oncall/tocsin/pkg/message"
	"github.com/tocsin-oncall/tocsin/pkg/oncall"
	"github.com/tocsin-oncall/tocsin/pkg/plan"
	"github.com/tocsin-oncall/tocsin/pkg/route"
	"github.com/tocsin-oncall/tocsin/pkg/scheduler"
	"github.com/tocsin-oncall/tocsin/pkg/store"
	"github.com/tocsin-oncall/tocsin/pkg/store/storetest"
)

type world struct {
	t    *testing.T
	url  string
	st   *store.Store
	in   *intake.Intake
	s    *scheduler.Scheduler
	file *config.File
}

func newWorld(t *testing.T, change func(f *config.File)) *world {
	t.Helper()
	w := &world{t: t, url: storetest.New(t), file: testFile(t)}
	if change != nil {
		change(w.file)
	}
	w.st, w.in, w.s = w.replica("one")
	return w
}

func (w *world) replica(name string) (*store.Store, *intake.Intake, *scheduler.Scheduler) {
	w.t.Helper()
	st, err := store.Open(w.t.Context(), w.url, store.Options{MaxConnections: 6})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(st.Close)
	file := func() *config.File { return w.file }
	in := intake.New(intake.Options{Store: st, File: file})
	return st, in, scheduler.New(scheduler.Options{Store: st, Intake: in, File: file, Replica: name, Calendar: ical.New(func(s string) string { return strings.ReplaceAll(s, "s3cr3t", "${ROTA}") }).Fetch})
}

func testFile(t *testing.T) *config.File {
	t.Helper()
	all, err := route.ParsePattern("alert.#")
	if err != nil {
		t.Fatal(err)
	}
	f := &config.File{
		Users: []config.User{
			{ID: "ana", Name: "Ana", Contacts: []config.Contact{{Via: "slack-dm", Address: "U0ANA"}, {Via: "telegram-dm", Address: "7", After: 2 * time.Minute}}},
			{ID: "cho", Name: "Cho", Contacts: []config.Contact{{Via: "slack-dm", Address: "U0CHO"}}},
		},
		Schedules: []oncall.Schedule{{ID: "primary", Zone: time.UTC, Layers: []oncall.Layer{
			{Name: "week", Users: [][]string{{"ana"}}, Every: oncall.Every{N: 1, Unit: "week"}, Start: time.Date(2026, 1, 5, 9, 0, 0, 0, time.UTC)},
		}}},
		Escalations: map[string]config.Escalation{"default": {Repeat: 1, Every: 20 * time.Minute, Steps: []config.Step{
			{Page: []string{"schedule:primary"}}, {After: 10 * time.Minute, Page: []string{"user:cho"}, Notify: []string{"ops-slack"}},
		}}},
		Notifiers: map[string]config.Notifier{
			"ops-slack": {Type: "slack", Token: "t", Channel: "C1"}, "slack-dm": {Type: "slack", Token: "t"}, "telegram-dm": {Type: "telegram", Token: "t"},
		},
		Routes: []config.Route{{Match: all, Notify: []string{"ops-slack"}, Escalate: "default"}},
		Kinds:  map[delivery.Kind]delivery.Policy{},
		Reload: config.Reload{Grace: 15 * time.Minute},
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

func (w *world) fire(key string) uuid.UUID {
	w.t.Helper()
	r, err := w.in.Accept(w.t.Context(), intake.Group{Source: "native", Key: key, Alerts: []plan.Alert{
		{Kind: "down", Criticality: "critical", Job: "web", Firing: true, Title: "Down"},
	}})
	if err != nil {
		w.t.Fatal(err)
	}
	return r.IncidentID
}

// step runs one of the scheduler's jobs until it has no more.
func (w *world) step(job string) {
	w.t.Helper()
	all := w.s.Jobs()
	at := slices.IndexFunc(all, func(j scheduler.Job) bool { return j.Name == job })
	for {
		more, err := all[at].Step(w.t.Context())
		if err != nil {
			w.t.Fatal(err)
		}
		if !more {
			return
		}
	}
}

func (w *world) tx(fn func(tx *store.Tx) error) {
	w.t.Helper()
	if err := w.st.InTx(w.t.Context(), fn); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) deliveries(id uuid.UUID) (all []delivery.Delivery) {
	w.t.Helper()
	w.tx(func(tx *store.Tx) error {
		var err error
		all, err = tx.Deliveries(w.t.Context(), id)
		return err
	})
	return all
}

// pages writes an incident's pages as text.
func (w *world) pages(id uuid.UUID) []string {
	w.t.Helper()
	var out []string
	for _, d := range w.deliveries(id) {
		if d.Kind == delivery.Page {
			out = append(out, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", d.Notifier, d.Target, d.State, d.Reason)))
		}
	}
	return out
}

// steps writes an incident's escalation as text.
func (w *world) steps(id uuid.UUID) []string {
	w.t.Helper()
	var out []string
	w.tx(func(tx *store.Tx) error {
		out = nil
		all, err := tx.Steps(w.t.Context(), id)
		for _, s := range all {
			out = append(out, fmt.Sprintf("%d/%d %s", s.Round, s.Step, s.State))
		}
		return err
	})
	return out
}

func (w *world) due(id uuid.UUID) []string {
	w.t.Helper()
	return slices.DeleteFunc(w.steps(id), func(s string) bool { return !strings.HasSuffix(s, " due") })
}

// self are the live self-alert incidents of a kind.
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

// kill makes the deliveries of a kind die in the given way.
func (w *world) kill(id uuid.UUID, match func(d delivery.Delivery) bool, how func(d delivery.Delivery) delivery.Step) {
	w.t.Helper()
	w.tx(func(tx *store.Tx) error {
		ds, err := tx.Deliveries(w.t.Context(), id)
		for _, d := range ds {
			if err == nil && match(d) {
				err = tx.Apply(w.t.Context(), how(d))
			}
		}
		return err
	})
}

func through(notifier string, k delivery.Kind) func(delivery.Delivery) bool {
	return func(d delivery.Delivery) bool { return d.Kind == k && d.Notifier == notifier }
}

func rejected(d delivery.Delivery) delivery.Step {
	return d.Reject("destination:not_in_channel", "Invite @tocsin to the channel, then send again.")
}

func TestStepsFireWhenTheyAreDueAndOnceOnThreeReplicas(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	_, _, two := w.replica("two")
	_, _, three := w.replica("three")
	id := w.fire("k")
	w.step("escalate")
	if diff := cmp.Diff([]string{"1/0 fired", "1/1 due", "2/0 due", "2/1 due", "2/-1 due"}, w.steps(id)); diff != "" {
		t.Fatal(diff)
	}
	// All replicas are down until long after the time: nothing is stranded.
	storetest.MoveClock(t, w.url, 21*time.Minute)
	var all sync.WaitGroup
	for _, s := range []*scheduler.Scheduler{w.s, two, three} {
		all.Go(func() {
			if _, err := s.Escalate(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	want := []string{
		"slack-dm schedule:primary pending waiting_for_card", "telegram-dm schedule:primary pending",
		"slack-dm user:cho pending waiting_for_card",
		"slack-dm schedule:primary pending waiting_for_card", "telegram-dm schedule:primary pending",
	}
	got := w.pages(id)
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"2/1 due", "2/-1 due"}, w.due(id)); diff != "" {
		t.Error(diff)
	}
}

func TestNobodyAnswers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	id := w.fire("k")
	for range 5 {
		storetest.MoveClock(t, w.url, 15*time.Minute)
		w.step("escalate")
	}
	if left := w.due(id); len(left) != 0 {
		t.Errorf("still due: %v", left)
	}
	self := w.self("nobody_answered")
	if len(self) != 1 {
		t.Fatalf("%d self-alerts", len(self))
	}
	w.step("settle")
	if len(w.self("nobody_answered")) != 1 {
		t.Error("resolved while nobody answered")
	}
	if _, err := w.in.Acknowledge(t.Context(), id, intake.Actor{ID: "user:ana", Name: "Ana"}, ""); err != nil {
		t.Fatal(err)
	}
	w.step("settle")
	if left := w.self("nobody_answered"); len(left) != 0 {
		t.Error("somebody answered, and the self-alert stays")
	}
	// The self-alert's own escalation ends without raising another.
	for range 5 {
		storetest.MoveClock(t, w.url, 15*time.Minute)
		w.step("escalate")
	}
	if left := w.self("nobody_answered"); len(left) != 0 {
		t.Errorf("%d self-alerts about self-alerts", len(left))
	}
}

func TestRemovedNotifier(t *testing.T) { // A11
	t.Parallel()
	w := newWorld(t, func(f *config.File) { f.Routes[0].Escalate = "" })
	id := w.fire("k")
	card := func() delivery.Delivery { return w.deliveries(id)[0] }
	w.step("heartbeat")
	delete(w.file.Notifiers, "ops-slack")
	// Another replica still has the old file: nothing dies while it lives.
	old := store.Replica{ID: "old", Notifiers: []string{"ops-slack"}}
	beat := func() {
		if err := w.st.Heartbeat(t.Context(), old); err != nil {
			t.Fatal(err)
		}
		w.step("heartbeat")
		w.step("remove")
	}
	for range 3 {
		storetest.MoveClock(t, w.url, 10*time.Minute)
		beat()
	}
	if d := card(); d.State != delivery.Pending {
		t.Fatalf("%s while a live replica knows the notifier", d.State)
	}
	old.Notifiers = []string{}
	beat()
	storetest.MoveClock(t, w.url, 14*time.Minute)
	beat()
	if d := card(); d.State != delivery.Pending {
		t.Fatalf("%s within the grace", d.State)
	}
	old.Notifiers = []string{"ops-slack"} // it comes back for a moment: the grace begins anew
	beat()
	old.Notifiers = []string{}
	beat()
	storetest.MoveClock(t, w.url, 14*time.Minute)
	beat()
	if d := card(); d.State != delivery.Pending {
		t.Fatalf("%s though the notifier was back meanwhile", d.State)
	}
	storetest.MoveClock(t, w.url, 2*time.Minute)
	beat()
	if d := card(); d.State != delivery.Rejected || d.Reason != "notifier_removed" {
		t.Errorf("%s %s after the grace", d.State, d.Reason)
	}
}

func TestSweeping(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.tx(func(tx *store.Tx) error {
		for _, key := range []string{"a", "b", "c"} {
			if first, err := tx.Callback(t.Context(), key); err != nil || !first {
				return errors.Join(err, fmt.Errorf("first: %t", first))
			}
		}
		return nil
	})
	w.step("purge")
	again := func() (first bool) {
		w.tx(func(tx *store.Tx) error {
			var err error
			first, err = tx.Callback(t.Context(), "a")
			return err
		})
		return first
	}
	if again() {
		t.Error("a callback of today is forgotten")
	}
	storetest.MoveClock(t, w.url, 8*24*time.Hour)
	for n := range 4 { // bounded batches: one at a time here
		gone, err := w.st.Purge(t.Context(), 1)
		if err != nil || gone != min(1, 3-min(n, 3)) {
			t.Errorf("batch %d took %d, %v", n, gone, err)
		}
	}
	if !again() {
		t.Error("a callback of last week is kept")
	}
	w.step("partitions")
}

func TestTwoHundredAlertsOnThreeReplicas(t *testing.T) { // D16, the part of intake and scheduler: none lost, none twice
	t.Parallel()
	w := newWorld(t, nil)
	ins := []*intake.Intake{w.in}
	ss := []*scheduler.Scheduler{w.s}
	for _, name := range []string{"two", "three"} {
		_, in, s := w.replica(name)
		ins, ss = append(ins, in), append(ss, s)
	}
	const alerts = 200
	var all sync.WaitGroup
	for r, in := range ins { // each replica gets each alert: an HA pair of sources, and a retry
		all.Go(func() {
			for n := range alerts {
				_, err := in.Accept(t.Context(), intake.Group{Source: "native", Key: fmt.Sprint((n * (r + 1)) % alerts), Alerts: []plan.Alert{
					{Kind: "down", Criticality: "critical", Job: "web", Firing: true, Title: "Down"},
				}})
				if err != nil {
					t.Error(err)
				}
				if n%10 == 0 {
					if _, err := ss[r].Escalate(t.Context()); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	all.Wait()
	for n := range alerts {
		var inc store.Incident
		w.tx(func(tx *store.Tx) error {
			var err error
			var ok bool
			if inc, ok, err = tx.LiveIncident(t.Context(), fmt.Sprint(n)); err == nil && !ok {
				return fmt.Errorf("alert %d is lost", n)
			}
			return err
		})
		if inc.State != message.Open || inc.Firing != 1 || inc.Count < 1 {
			t.Fatalf("%+v", inc)
		}
		counts := map[delivery.Kind]int{}
		for _, d := range w.deliveries(inc.ID) {
			counts[d.Kind]++
		}
		if diff := cmp.Diff(map[delivery.Kind]int{delivery.Card: 1, delivery.Thread: 1, delivery.Page: 2}, counts); diff != "" {
			t.Fatalf("alert %d: %s", n, diff)
		}
	}
}

func TestRunWorksByItselfAndEndsWithItsContext(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	id := w.fire("k")
	w.kill(id, func(d delivery.Delivery) bool { return d.Kind == delivery.Page }, rejected)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.s.Run(ctx)
	}()
	w.s.Nudge()
	for deadline := time.Now().Add(20 * time.Second); len(w.pages(id)) < 3 || len(w.self("delivery_rejected")) == 0; {
		if time.Now().After(deadline) {
			t.Fatalf("the step after the dead pages does not fire (%v), or the deaths are not announced", w.pages(id))
		}
	}
	cancel()
	<-ended
}

// Heartbeats that come late, as where the database's clock has jumped, take no notifier from a replica that has it in its file.
func TestALateHeartbeatRemovesNoNotifier(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(f *config.File) { f.Routes[0].Escalate = "" })
	id := w.fire("k")
	w.step("heartbeat")
	for range 3 {
		storetest.MoveClock(t, w.url, 20*time.Minute)
		w.step("remove")
	}
	if d := w.deliveries(id)[0]; d.State != delivery.Pending {
		t.Errorf("%s %s, and a replica that knows the notifier is alive", d.State, d.Reason)
	}
}
