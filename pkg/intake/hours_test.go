package intake_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/intake"
	"github.com/tocsin-oncall/tocsin/pkg/message"
	"github.com/tocsin-oncall/tocsin/pkg/oncall"
)

// closed is a window that is closed now and opens on another day, open one that is open.
func closed() *oncall.Window {
	w := &oncall.Window{Until: 24 * 60}
	w.Days[(time.Now().UTC().Weekday()+3)%7] = true
	return w
}

var open = &oncall.Window{Days: [7]bool{true, true, true, true, true, true, true}, Until: 24 * 60}

// warnings page by day only, and are shown by another route at any time if shown is set.
func resting(t *testing.T, shown bool) func(f *config.File) {
	return func(f *config.File) {
		f.Routes = []config.Route{{Match: pattern(t, "alert.*.warning.#"), Notify: []string{"ops-slack"}, Escalate: "default", Active: closed()}}
		if shown {
			f.Routes = append(f.Routes, config.Route{Match: pattern(t, "alert.*.warning.#"), Notify: []string{"audit"}})
		}
	}
}

// begin lets the hours of all routes have begun since some time, as after an outage of everything.
func (w *world) begin(since string) {
	w.t.Helper()
	for i := range w.file.Routes {
		w.file.Routes[i].Active = open
	}
	w.exec("update resting_alert set opens_at = clock_timestamp() - $1::interval", since)
}

func (w *world) opened(id uuid.UUID) bool {
	w.t.Helper()
	did, err := w.in.Open(w.t.Context(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	return did
}

func (w *world) resting() int { return one[int](w, "select count(*) from resting_alert") }

func TestWhenHoursBeginWhatStillFiresIsSentWithoutItsSource(t *testing.T) {
	t.Parallel()
	w := newWorld(t, resting(t, false))
	r := w.accept(disk("warning"))
	if r.Unrouted || len(r.Deliveries) > 0 || w.resting() != 1 {
		t.Fatalf("outside of the hours: %+v", r)
	}
	if notes := w.notes(r.IncidentID); !strings.Contains(notes, "again from ") || !strings.Contains(notes, "What still fires then is sent then") {
		t.Errorf("the timeline says %q", notes)
	}
	if in := one[float64](w, "select extract(epoch from opens_at - clock_timestamp())::float8 from resting_alert"); in < 24*3600 || in > 3*24*3600 {
		t.Errorf("it opens in %.0f s", in)
	}
	if w.opened(r.IncidentID) {
		t.Error("it was sent before the hours began")
	}
	for range 2 { // a re-send says nothing more
		w.accept(disk("warning"))
	}
	w.begin("3 days")
	if !w.opened(r.IncidentID) || w.opened(r.IncidentID) {
		t.Error("it is not sent once")
	}
	if len(w.deliveries(r.IncidentID, delivery.Card)) != 1 || len(w.deliveries(r.IncidentID, delivery.Page)) == 0 || w.due(r.IncidentID) == 0 || w.resting() != 0 {
		t.Errorf("made %+v", w.deliveries(r.IncidentID))
	}
	if got := strings.Join(w.timeline(r.IncidentID), " "); got != "opened quiet paged hours" {
		t.Errorf("timeline: %s", got)
	}
}

// A route that is active has told somebody already: the one whose hours begin tells its own.
func TestWhenHoursBeginOfOneRouteOfSeveral(t *testing.T) {
	t.Parallel()
	w := newWorld(t, resting(t, true))
	r := w.accept(disk("warning"))
	if len(r.Deliveries) != 1 || r.Deliveries[0].Notifier != "audit" || w.resting() != 1 {
		t.Fatalf("%+v", r)
	}
	w.begin("1 second")
	w.opened(r.IncidentID)
	if len(w.deliveries(r.IncidentID, delivery.Event)) != 1 || len(w.deliveries(r.IncidentID, delivery.Card)) != 1 || len(w.deliveries(r.IncidentID, delivery.Page)) == 0 {
		t.Errorf("made %+v", w.deliveries(r.IncidentID))
	}
}

func TestWhenHoursBeginNobodyHearsOfWhatIsOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t, resting(t, false))
	byItself, byPerson, acked := w.accept(disk("warning", "n", "1")), w.accept(disk("warning", "n", "2")), w.accept(disk("warning", "n", "3"))
	g := disk("warning", "n", "1")
	g.Alerts[0].Firing = false
	w.accept(g)
	w.resolve(byPerson.IncidentID)
	w.acknowledge(acked.IncidentID)
	w.begin("1 second")
	for _, r := range []intake.Result{byItself, byPerson} {
		if w.opened(r.IncidentID); len(w.deliveries(r.IncidentID)) > 0 {
			t.Errorf("told of what is over: %+v", w.deliveries(r.IncidentID))
		}
	}
	// Somebody is on it: the card shows it, and nobody is woken.
	w.opened(acked.IncidentID)
	if len(w.deliveries(acked.IncidentID, delivery.Card)) != 1 || len(w.deliveries(acked.IncidentID, delivery.Page)) > 0 {
		t.Errorf("acknowledged: %+v", w.deliveries(acked.IncidentID))
	}
	if w.resting() != 0 {
		t.Error("something still waits")
	}
}

// Hours that begin while a silence hides the alert leave it to the silence's end.
func TestWhenHoursBeginDuringASilence(t *testing.T) {
	t.Parallel()
	w := newWorld(t, resting(t, false))
	r := w.accept(disk("warning"))
	s := w.silence("#")
	w.begin("1 second")
	if !w.opened(r.IncidentID) || len(w.deliveries(r.IncidentID)) > 0 {
		t.Fatal("it was sent although it is silenced")
	}
	w.over(s, "1 second")
	w.unsilence(r.IncidentID)
	if len(w.deliveries(r.IncidentID, delivery.Card)) != 1 {
		t.Error("it was not sent when the silence was over")
	}
	// The other way round: a silence that ends outside of the hours leaves it to them.
	w.file.Routes[0].Active = closed()
	s = w.silence("#")
	r = w.accept(disk("warning", "n", "2"))
	w.over(s, "1 second")
	if w.unsilence(r.IncidentID); len(w.deliveries(r.IncidentID)) > 0 || w.resting() != 1 || !strings.Contains(w.notes(r.IncidentID), "Told nobody") {
		t.Errorf("%d wait; %q", w.resting(), w.notes(r.IncidentID))
	}
	w.begin("1 second")
	if w.opened(r.IncidentID); len(w.deliveries(r.IncidentID, delivery.Card)) != 1 {
		t.Error("it was not sent when the hours began")
	}
}

// A file that has changed meanwhile: other hours, another route, or none.
func TestHoursOfAnotherFile(t *testing.T) {
	t.Parallel()
	w := newWorld(t, resting(t, false))
	r := w.accept(disk("warning"))
	w.exec("update resting_alert set opens_at = clock_timestamp()") // as a new file does
	if !w.opened(r.IncidentID) || w.resting() != 1 || len(w.timeline(r.IncidentID)) != 2 {
		t.Errorf("looked at again: %v", w.timeline(r.IncidentID))
	}
	w.exec("update resting_alert set opens_at = clock_timestamp()")
	w.file.Routes = nil
	w.opened(r.IncidentID)
	if w.resting() != 0 || len(w.self("unrouted")) != 1 {
		t.Error("no route is left, and nothing says so")
	}
}

func TestOnThreeReplicasHoursBeginOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, resting(t, false))
	r := w.accept(disk("warning"))
	w.begin("1 second")
	done := make(chan bool, 6)
	for range 6 {
		_, in := w.replica()
		go func() {
			did, err := in.Open(t.Context(), r.IncidentID)
			if err != nil {
				t.Error(err)
			}
			done <- did
		}()
	}
	times := 0
	for range 6 {
		if <-done {
			times++
		}
	}
	if times != 1 || len(w.deliveries(r.IncidentID, delivery.Card)) != 1 {
		t.Errorf("it was sent %d times", times)
	}
}

// What the file said is kept, each different answer once, with whom it would have paged.
func TestWhatTheFileSaidIsKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.file.Checksum = "abc"
	w.file.Routes[0].Labels = map[string]string{"env": "s3cret-value"}
	w.in = intake.New(intake.Options{Store: w.st, File: func() *config.File { return w.file }, Redact: func(s string) string { return strings.ReplaceAll(s, "s3cret-value", "${ENV}") }})
	g := disk("critical", "env", "s3cret-value", "host", "a")
	g.Key = "k"
	r := w.accept(g)
	for _, host := range []string{"b", "c"} { // the same answer
		g = disk("critical", "env", "s3cret-value", "host", host)
		g.Key = "k"
		w.accept(g)
	}
	g = disk("critical", "env", "other")
	g.Key = "k"
	w.accept(g)
	rows, err := w.st.Routing(t.Context(), r.IncidentID)
	if err != nil || len(rows) != 2 {
		t.Fatalf("%d answers (%v)", len(rows), err)
	}
	if first := rows[0]; first.File != "abc" || first.Topic != "alert.disk_full.critical.db" || first.Labels["host"] != "a" {
		t.Errorf("%+v", first)
	}
	var d struct {
		Notifiers []string
		People    []struct{ ID, After string }
		Routes    []struct {
			Matched bool
			Why     string
		}
	}
	if err := json.Unmarshal(rows[0].Body, &d); err != nil || len(d.Routes) != 4 || !d.Routes[0].Matched || len(d.Notifiers) != 2 || len(d.People) != 2 || d.People[1].ID != "cho" || d.People[1].After != "10m0s" {
		t.Errorf("%s (%v)", rows[0].Body, err)
	}
	if body := string(rows[1].Body); !strings.Contains(body, `not \"${ENV}\"`) || strings.Contains(body, "s3cret-value") {
		t.Errorf("the secret is not taken out: %s", body)
	}
	if inc := w.incident(r.IncidentID); inc.State != message.Open {
		t.Error(inc.State)
	}
}
