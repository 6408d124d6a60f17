package intake_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/intake"
	"github.com/tocsin-oncall/tocsin/pkg/oncall"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

func (w *world) silence(match string, matchers ...string) uuid.UUID {
	w.t.Helper()
	id, err := w.in.AddSilence(w.t.Context(), intake.NewSilence{Match: match, Matchers: matchers, For: time.Hour, Reason: "new disks"}, ana)
	if err != nil {
		w.t.Fatal(err)
	}
	return id
}

// over lets a silence be over since some time, as after an outage of everything.
func (w *world) over(id uuid.UUID, since string) {
	w.t.Helper()
	conn, err := pgx.Connect(w.t.Context(), w.url)
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close(w.t.Context())
	if _, err := conn.Exec(w.t.Context(), "update silence set starts_at = starts_at - interval '30 days', ends_at = clock_timestamp() - $2::interval where id = $1", id, since); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) unsilence(id uuid.UUID) bool {
	w.t.Helper()
	did, err := w.in.Unsilence(w.t.Context(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	return did
}

// notes are the texts of an incident's timeline.
func (w *world) notes(id uuid.UUID) string {
	w.t.Helper()
	es, err := w.st.Timeline(w.t.Context(), id, 0, 1<<30, 1000)
	if err != nil {
		w.t.Fatal(err)
	}
	var out []string
	for _, e := range es {
		out = append(out, e.Text)
	}
	return strings.Join(out, "\n")
}

func TestASilencedAlertIsKeptAndShownAndSentWhenTheSilenceIsOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	s := w.silence("alert.*.*.db")
	r := w.accept(disk("critical"))
	if !r.Opened || r.Unrouted || len(r.Deliveries) > 0 || len(w.steps(r.IncidentID)) > 0 {
		t.Fatalf("while it is silenced: %+v", r)
	}
	if notes := w.notes(r.IncidentID); !strings.Contains(notes, "Silenced by Ana Torres until ") || !strings.Contains(notes, ": new disks") {
		t.Errorf("the timeline says %q", notes)
	}
	// Re-sends change nothing and say nothing more.
	for range 3 {
		if again := w.accept(disk("critical")); len(again.Deliveries) > 0 {
			t.Errorf("a re-send made %+v", again.Deliveries)
		}
	}
	if got := w.timeline(r.IncidentID); !slices.Equal(got, []string{"opened", "silenced"}) {
		t.Errorf("timeline: %v", got)
	}
	inc, err := w.st.ReadIncident(t.Context(), r.IncidentID)
	if err != nil || inc.Silenced == nil || inc.Silenced.By != "Ana Torres" || inc.Silenced.Reason != "new disks" {
		t.Errorf("the incident says %+v (%v)", inc.Silenced, err)
	}
	if w.unsilence(r.IncidentID) {
		t.Error("it was sent before the silence is over")
	}
	// Everything was down when the silence ended, three days ago.
	w.over(s, "3 days")
	if !w.unsilence(r.IncidentID) || w.unsilence(r.IncidentID) {
		t.Error("it is not sent once")
	}
	if got := w.timeline(r.IncidentID); !slices.Equal(got, []string{"opened", "silenced", "silence_over", "paged"}) {
		t.Errorf("timeline: %v", got)
	}
	if n := len(w.deliveries(r.IncidentID, delivery.Card)); n != 1 {
		t.Errorf("%d cards", n)
	}
	if len(w.deliveries(r.IncidentID, delivery.Page)) == 0 || w.due(r.IncidentID) == 0 {
		t.Error("nobody is paged")
	}
	if n := one[int](w, "select count(*) from silenced_alert"); n != 0 {
		t.Errorf("%d alerts are kept back", n)
	}
}

func TestWhatWasResolvedWhileSilencedIsNeverSent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	s := w.silence("#")
	r := w.accept(disk("critical"))
	g := disk("critical")
	g.Alerts[0].Firing = false
	w.accept(g)
	w.over(s, "1 second")
	w.unsilence(r.IncidentID)
	if ds := w.deliveries(r.IncidentID); len(ds) > 0 {
		t.Errorf("it told of something that is over: %+v", ds)
	}
	if n := one[int](w, "select count(*) from silenced_alert"); n != 0 {
		t.Errorf("%d alerts are kept back", n)
	}
}

func TestPartlySilencedIsNotSilenced(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	s := w.silence("alert.#", `host="db-1"`)
	g := disk("critical", "host", "db-1")
	g.Key = "group"
	second := disk("warning", "host", "db-2").Alerts[0]
	g.Alerts = append(g.Alerts, second)
	r := w.accept(g)
	// The other alert's route has a card and no escalation; the silenced one's would page.
	if len(w.deliveries(r.IncidentID, delivery.Card)) != 1 || len(w.deliveries(r.IncidentID, delivery.Page)) > 0 {
		t.Errorf("made: %+v", r.Deliveries)
	}
	inc, err := w.st.ReadIncident(t.Context(), r.IncidentID)
	if err != nil || inc.Silenced != nil {
		t.Errorf("the incident is silenced: %+v (%v)", inc.Silenced, err)
	}
	if !strings.Contains(w.notes(r.IncidentID), "(1 of 2 alerts)") {
		t.Errorf("the timeline says %q", w.notes(r.IncidentID))
	}
	w.over(s, "1 second")
	w.unsilence(r.IncidentID)
	if len(w.deliveries(r.IncidentID, delivery.Card)) != 1 || len(w.deliveries(r.IncidentID, delivery.Page)) == 0 {
		t.Error("the escalation of the alert that was silenced did not start, or its card came twice")
	}
}

func TestASilenceFollowsAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	first := w.silence("alert.#")
	r := w.accept(disk("critical"))
	second := w.silence("alert.*.*.db")
	w.over(first, "1 second")
	if !w.unsilence(r.IncidentID) || len(w.deliveries(r.IncidentID)) > 0 {
		t.Error("it was sent although another silence hides it")
	}
	w.over(second, "1 second")
	if !w.unsilence(r.IncidentID) || len(w.deliveries(r.IncidentID, delivery.Card)) != 1 {
		t.Error("it was not sent after both")
	}
}

func TestASilenceThatIsEndedSendsAndKeepsWhatTheAlertNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	s := w.silence("#")
	g := disk("none")
	g.Alerts[0].Notify = []string{"audit"}
	r := w.accept(g)
	if r.Unrouted || len(r.Deliveries) > 0 {
		t.Fatalf("%+v", r)
	}
	for i, want := range []bool{true, false} {
		if ended, err := w.in.EndSilence(t.Context(), s, ana); err != nil || ended != want {
			t.Errorf("end %d: %t, %v", i, ended, err)
		}
	}
	w.unsilence(r.IncidentID)
	if ds := w.deliveries(r.IncidentID); len(ds) != 1 || ds[0].Notifier != "audit" {
		t.Errorf("made %+v", ds)
	}
	if got := one[string](w, "select string_agg(action, ' ' order by at) from audit where object = $1", "silence:"+s.String()); got != "silence_added silence_ended" {
		t.Errorf("audit: %s", got)
	}
}

func TestASilenceNeverHidesTocsinsOwnAlertsUnlessItNamesThem(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.silence("#")
	raise := func(about string) intake.Result {
		var r intake.Result
		w.tx(func(tx *store.Tx) (err error) {
			r, err = w.in.SelfAlert(t.Context(), tx, intake.Self{Kind: "notifier_broken", Criticality: "critical", About: about, Title: "broken"})
			return err
		})
		return r
	}
	if r := raise("one"); len(r.Deliveries) == 0 {
		t.Errorf("# hid it: %+v", r)
	}
	w.silence("alert.*.*._tocsin")
	if r := raise("two"); len(r.Deliveries) > 0 {
		t.Errorf("it is not hidden by its name: %+v", r)
	}
}

func TestOnThreeReplicasASilenceEndsOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	s := w.silence("#")
	r := w.accept(disk("critical"))
	w.over(s, "1 second")
	done := make(chan bool, 6)
	for range 6 {
		_, in := w.replica()
		go func() {
			did, err := in.Unsilence(t.Context(), r.IncidentID)
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

func TestWrongSilencesAreNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	soon := time.Now().Add(time.Hour)
	for field, n := range map[string]intake.NewSilence{
		"match":       {For: time.Hour, Reason: "x"},
		"matchers[0]": {Matchers: []string{"x"}, For: time.Hour, Reason: "x"},
		"reason":      {Match: "#", For: time.Hour, Reason: " "},
		"until":       {Match: "#", Reason: "x"},
		"for":         {Match: "#", For: time.Hour, Until: soon, Reason: "x"},
	} {
		_, err := w.in.AddSilence(t.Context(), n, ana)
		var wrong *intake.InputError
		if !errors.As(err, &wrong) || wrong.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	for name, until := range map[string]time.Time{"past": soon.Add(-48 * time.Hour), "far": soon.Add(24 * 400 * time.Hour)} {
		if _, err := w.in.AddSilence(t.Context(), intake.NewSilence{Match: "#", Until: until, Reason: "x"}, ana); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	// One that has not begun hides nothing.
	if _, err := w.in.AddSilence(t.Context(), intake.NewSilence{Match: "#", From: soon, For: time.Hour, Reason: "x"}, ana); err != nil {
		t.Fatal(err)
	}
	if r := w.accept(disk("critical")); len(r.Deliveries) == 0 {
		t.Error("a silence that has not begun hid it")
	}
}

func TestARouteThatRestsTellsNobodyAndIsNoMistake(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC()
	w := newWorld(t, func(f *config.File) {
		tomorrow := &oncall.Window{From: 0, Until: 24 * 60}
		tomorrow.Days[(now.Weekday()+3)%7] = true
		f.Routes = []config.Route{{Match: pattern(t, "alert.*.warning.#"), Notify: []string{"ops-slack"}, Active: tomorrow}}
	})
	r := w.accept(disk("warning"))
	if r.Unrouted || len(r.Deliveries) > 0 || !strings.Contains(w.notes(r.IncidentID), "Told nobody: the route alert.*.warning.# would take it") {
		t.Errorf("%+v, %q", r, w.notes(r.IncidentID))
	}
	// When the route is active, the source's next message is sent.
	w.file.Routes[0].Active = nil
	if r := w.accept(disk("warning")); len(r.Deliveries) == 0 {
		t.Error("nothing is sent although the route is active and it fires")
	}
}

func TestPayloadsAreReadWithoutTakingThemIn(t *testing.T) {
	t.Parallel()
	f := testFile(t)
	for _, c := range []struct {
		source, body string
		topics       []string
		field        string
	}{
		{"", `{"kind": "disk", "criticality": "critical", "job": "db"}`, []string{"alert.disk.critical.db"}, ""},
		{"", `{"groupKey": "k", "alerts": [{"status": "firing", "labels": {"alertname": "A"}}, {"status": "firing", "labels": {"alertname": "B"}}]}`, []string{"alert.a.none.none", "alert.b.none.none"}, ""},
		{"native", `{"kind": "disk", "sort": "x"}`, nil, "body"},
		{"alertmanager", `{"kind": "disk"}`, nil, "alerts"},
		{"pigeon", `{"kind": "disk"}`, nil, "source"},
		{"", `7`, nil, "body"},
	} {
		alerts, err := intake.Payload(f, c.source, []byte(c.body))
		var wrong *intake.InputError
		if errors.As(err, &wrong) != (c.field != "") || wrong != nil && wrong.Field != c.field {
			t.Errorf("%s: %v", c.body, err)
		}
		var topics []string
		for _, a := range alerts {
			topics = append(topics, a.Topic())
		}
		if !slices.Equal(topics, c.topics) {
			t.Errorf("%s: %v", c.body, topics)
		}
	}
}
