package intake_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/intake"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// reachStep makes the second step of an incident's escalation due, and fires it if it fires.
func (w *world) reachStep(id uuid.UUID) bool {
	w.t.Helper()
	for _, s := range w.steps(id) {
		if s.Round == 1 && s.Step == 1 && s.DueAt != nil {
			// All of them come as much earlier.
			w.exec("update escalation set due_at = due_at - ($2::timestamptz - clock_timestamp()) where incident_id = $1 and state = 'due'", id, *s.DueAt)
			fired, err := w.in.Escalate(w.t.Context(), id, s.ID)
			if err != nil {
				w.t.Fatal(err)
			}
			return fired
		}
	}
	return false
}

// untilNext is how long it is to the next two steps, in seconds.
func (w *world) untilNext(id uuid.UUID) (first, second float64) {
	w.t.Helper()
	const sql = "select extract(epoch from due_at - clock_timestamp())::float8 from escalation where incident_id = $1 and state = 'due' order by due_at offset $2 limit 1"
	return one[float64](w, sql, id, 0), one[float64](w, sql, id, 1)
}

// Whoever silences an incident that escalates is not told of it any more, and nobody else is called in: its escalation stands
// still, and goes on where it stood when the silence is over and it still fires.
func TestASilenceHoldsAnEscalation(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	r := w.accept(disk("critical"))
	pages := len(w.deliveries(r.IncidentID, delivery.Page))
	s := w.silence("alert.*.*.db")
	if w.reachStep(r.IncidentID) || len(w.deliveries(r.IncidentID, delivery.Page)) != pages {
		t.Fatal("the step fired although all alerts are silenced")
	}
	if notes := w.notes(r.IncidentID); !strings.Contains(notes, "The escalation stands still: silenced by Ana Torres until ") {
		t.Errorf("the timeline says %q", notes)
	}
	inc, err := w.st.ReadIncident(t.Context(), r.IncidentID)
	if err != nil || inc.Silenced == nil {
		t.Errorf("the incident does not say that it is silenced (%v)", err)
	}
	entries := len(w.timeline(r.IncidentID))
	w.tx(func(tx *store.Tx) error {
		if due, err := tx.DueSteps(t.Context(), 10); err != nil || len(due) != 0 {
			t.Errorf("%d steps are looked at again and again (%v)", len(due), err)
		}
		return nil
	})
	// It stood for two hours. The step that was due comes now, the ones after it as much later as they were after it.
	w.exec("update escalation set held_at = held_at - interval '2 hours', due_at = due_at - interval '2 hours' where incident_id = $1 and state = 'due'", r.IncidentID)
	w.over(s, "1 second")
	if !w.unsilence(r.IncidentID) {
		t.Fatal("it does not go on")
	}
	if got := w.timeline(r.IncidentID); len(got) != entries+1 || !strings.Contains(w.notes(r.IncidentID), "the escalation goes on") {
		t.Errorf("timeline: %v", got)
	}
	if first, second := w.untilNext(r.IncidentID); first > 1 || first < -300 || second-first < 9*60 {
		t.Errorf("the next steps come in %.0f and %.0f s", first, second)
	}
	if !w.reachStep(r.IncidentID) || len(w.deliveries(r.IncidentID, delivery.Page)) != pages+1 || len(w.deliveries(r.IncidentID, delivery.Card)) != 1 {
		t.Errorf("made %+v", w.deliveries(r.IncidentID))
	}
}

// A new alert that no silence hides lets it go on at once.
func TestAnEscalationThatStandsStillGoesOnForAnotherAlert(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	g := disk("critical", "host", "db-1")
	g.Key = "k"
	r := w.accept(g)
	w.silence("#", `host="db-1"`)
	w.reachStep(r.IncidentID)
	g = disk("critical", "host", "db-2")
	g.Key = "k"
	w.accept(g)
	if n := one[int](w, "select count(*) from escalation where held_at is not null"); n != 0 {
		t.Errorf("%d steps stand still", n)
	}
	if !w.reachStep(r.IncidentID) {
		t.Error("the step does not fire although an alert is not silenced")
	}
}

func TestPartlySilencedEscalates(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	g := disk("critical", "host", "db-1")
	g.Key = "k"
	g.Alerts = append(g.Alerts, disk("critical", "host", "db-2").Alerts...)
	r := w.accept(g)
	w.silence("#", `host="db-1"`)
	if !w.reachStep(r.IncidentID) {
		t.Error("the step does not fire although an alert is not silenced")
	}
}

// More alerts than are looked at first, and only the oldest is not silenced; then it is, too.
func TestOneOfVeryManyAlertsIsNotSilenced(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	g := disk("critical", "host", "old")
	g.Key = "k"
	r := w.accept(g)
	g = disk("critical", "host", "new-0")
	g.Key = "k"
	for i := range 210 {
		g.Alerts = append(g.Alerts, disk("critical", "host", fmt.Sprintf("new-%d", i)).Alerts...)
	}
	w.accept(g)
	w.silence("#", `host=~"new-.*"`)
	if !w.reachStep(r.IncidentID) {
		t.Error("the step does not fire although an alert is not silenced")
	}
	w.silence("#", `host="old"`)
	for _, s := range w.steps(r.IncidentID) {
		if s.DueAt != nil {
			w.exec("update escalation set due_at = clock_timestamp() where id = $1", s.ID)
			if fired, err := w.in.Escalate(t.Context(), r.IncidentID, s.ID); err != nil || fired {
				t.Errorf("a step fires although all are silenced (%v)", err)
			}
			break
		}
	}
	if n := one[int](w, "select count(*) from silenced_alert"); n != 211 {
		t.Errorf("%d alerts are kept back", n)
	}
}

func TestAnAnswerEndsAnEscalationThatStandsStill(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	r := w.accept(disk("critical"))
	s := w.silence("#")
	w.reachStep(r.IncidentID)
	w.acknowledge(r.IncidentID)
	w.over(s, "1 second")
	pages := len(w.deliveries(r.IncidentID, delivery.Page))
	w.unsilence(r.IncidentID)
	if w.due(r.IncidentID) != 0 || len(w.deliveries(r.IncidentID, delivery.Page)) != pages {
		t.Error("it pages although somebody is on it")
	}
}

// What a silence hides pages nobody when a snooze is over either: it is open again, and its escalation stands still.
func TestASilencedIncidentDoesNotRing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	r := w.accept(disk("critical"))
	if _, err := w.in.Snooze(t.Context(), r.IncidentID, ana, time.Hour, ""); err != nil {
		t.Fatal(err)
	}
	s := w.silence("#")
	pages := len(w.deliveries(r.IncidentID, delivery.Page))
	w.exec("update incident set snoozed_until = clock_timestamp() where id = $1", r.IncidentID)
	if rang, err := w.in.Ring(t.Context(), r.IncidentID); err != nil || !rang {
		t.Fatalf("rang %v (%v)", rang, err)
	}
	w.stepOn(r.IncidentID)
	if n := len(w.deliveries(r.IncidentID, delivery.Page)); n != pages {
		t.Errorf("%d pages for what is silenced", n-pages)
	}
	if n := one[int](w, "select count(*) from escalation where held_at is not null"); n == 0 || n != w.due(r.IncidentID) {
		t.Errorf("%d of %d steps stand still", n, w.due(r.IncidentID))
	}
	w.over(s, "1 second")
	w.unsilence(r.IncidentID)
	if w.stepOn(r.IncidentID); len(w.deliveries(r.IncidentID, delivery.Page)) <= pages {
		t.Error("nobody is paged when the silence is over")
	}
}

// Of two silences that overlap, the one that ends last lets it go on.
func TestAnEscalationStandsStillThroughOverlappingSilences(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	r := w.accept(disk("critical"))
	first := w.silence("#")
	w.reachStep(r.IncidentID)
	second := w.silence("alert.*.*.db")
	held := func() int { return one[int](w, "select count(*) from escalation where held_at is not null") }
	all := held()
	w.over(first, "1 second")
	if w.unsilence(r.IncidentID); all == 0 || held() != all {
		t.Errorf("%d of %d steps stand still, and a silence still hides it", held(), all)
	}
	w.over(second, "1 second")
	if w.unsilence(r.IncidentID); held() != 0 {
		t.Errorf("%d steps stand still", held())
	}
}

// Somebody answered while it was silenced: when the silence is over its card comes, and nobody is woken.
func TestWhatIsAcknowledgedWhileSilencedPagesNobodyLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	s := w.silence("#")
	r := w.accept(disk("critical"))
	w.acknowledge(r.IncidentID)
	w.over(s, "1 second")
	w.unsilence(r.IncidentID)
	if len(w.deliveries(r.IncidentID, delivery.Card)) != 1 || len(w.deliveries(r.IncidentID, delivery.Page)) > 0 || w.due(r.IncidentID) > 0 {
		t.Errorf("made %+v", w.deliveries(r.IncidentID))
	}
}

func TestASilenceIsEdited(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	s := w.silence("alert.*.*.db")
	r := w.accept(disk("critical"))
	edit := func(e intake.SilenceEdit) error { return w.in.EditSilence(t.Context(), s, e, ana) }
	if err := edit(intake.SilenceEdit{For: 3 * time.Hour, Reason: "it takes longer"}); err != nil {
		t.Fatal(err)
	}
	left := one[float64](w, "select extract(epoch from ends_at - clock_timestamp())::float8 from silence")
	if left < 2.9*3600 || left > 3*3600 {
		t.Errorf("it lasts %.0f s more", left)
	}
	got, err := w.st.ReadSilence(t.Context(), s)
	if err != nil || got.Reason != "it takes longer" || got.EditedBy != "Ana Torres" || got.EditedAt == nil || got.State != "active" || got.Alerts != 1 {
		t.Errorf("%+v (%v)", got, err)
	}
	for field, e := range map[string]intake.SilenceEdit{
		"until": {}, "for": {For: time.Hour, Until: time.Now().Add(time.Hour)},
	} {
		if err := edit(e); err == nil || !strings.HasPrefix(err.Error(), field+":") {
			t.Errorf("%s: %v", field, err)
		}
	}
	for _, until := range []time.Time{time.Now().Add(-time.Hour), time.Now().Add(400 * 24 * time.Hour)} {
		if err := edit(intake.SilenceEdit{Until: until}); err == nil {
			t.Errorf("until %s was taken", until)
		}
	}
	// Shorter: what it kept back is sent at the new end.
	w.exec("update silence set ends_at = clock_timestamp() - interval '1 second', starts_at = starts_at - interval '1 hour'")
	if w.unsilence(r.IncidentID); len(w.deliveries(r.IncidentID, delivery.Card)) != 1 {
		t.Error("it was not sent at its new end")
	}
	if err := edit(intake.SilenceEdit{For: time.Hour}); err == nil || !strings.HasPrefix(err.Error(), "id: it is over since") {
		t.Errorf("over: %v", err)
	}
	if n := one[int](w, "select count(*) from audit where action = 'silence_edited'"); n != 1 {
		t.Errorf("%d audit rows", n)
	}
}

// One silenced alert and one that no route takes: what is silenced is no excuse for the other.
func TestASilenceHidesNoMistakeOfTheFile(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.silence("#", `host="db-1"`)
	g := disk("none", "host", "db-1")
	g.Key = "k"
	g.Alerts = append(g.Alerts, disk("none", "host", "db-2").Alerts...)
	if r := w.accept(g); !r.Unrouted || len(w.self("unrouted")) != 1 {
		t.Errorf("%+v", r)
	}
}
