package intake_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/intake"
	"github.com/tocsin-oncall/tocsin/pkg/message"
	"github.com/tocsin-oncall/tocsin/pkg/store/storetest"
)

var bo = intake.Actor{ID: "user:bo", Name: "Bo Lind"}

func (w *world) snooze(id uuid.UUID, by intake.Actor, d time.Duration) intake.Answer {
	w.t.Helper()
	a, err := w.in.Snooze(w.t.Context(), id, by, d, "")
	if err != nil {
		w.t.Fatal(err)
	}
	return a
}

func (w *world) escalate(id uuid.UUID, by intake.Actor) intake.Answer {
	w.t.Helper()
	a, err := w.in.EscalateNow(w.t.Context(), id, by, "")
	if err != nil {
		w.t.Fatal(err)
	}
	return a
}

func (w *world) ring(id uuid.UUID) bool {
	w.t.Helper()
	did, err := w.in.Ring(w.t.Context(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	return did
}

// targets are whom the pages of an incident are for, each once, in the order in which they were made.
func (w *world) targets(id uuid.UUID) []string {
	w.t.Helper()
	var out []string
	for _, d := range w.deliveries(id, delivery.Page) {
		out = append(out, d.Target)
	}
	return slices.Compact(out)
}

func TestASnoozedIncidentRingsAgainOnceWhenItsTimeIsOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	_, other := w.replica()
	id := w.accept(disk("critical")).IncidentID
	a := w.snooze(id, ana, time.Hour)
	if inc := w.incident(id); !a.Changed || inc.State != message.Acknowledged || inc.SnoozedUntil == nil || inc.AcknowledgedBy != "Ana Torres" {
		t.Fatalf("%+v, %+v", a, inc)
	}
	if w.ring(id) {
		t.Error("it rang before its time")
	}
	pages := len(w.deliveries(id, delivery.Page))
	storetest.MoveClock(t, w.url, 3*time.Hour) // all replicas were down for two hours
	var all sync.WaitGroup
	var mu sync.Mutex
	rang := 0
	for k := range 6 {
		all.Go(func() {
			did, err := []*intake.Intake{w.in, other}[k%2].Ring(t.Context(), id)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			}
			if did {
				rang++
			}
		})
	}
	all.Wait()
	inc := w.incident(id)
	if rang != 1 || inc.State != message.Open || inc.SnoozedUntil != nil || inc.AcknowledgedBy != "" {
		t.Fatalf("rang %d times: %+v", rang, inc)
	}
	if n := len(w.deliveries(id, delivery.Page)) - pages; n != 2 { // two ways to one person
		t.Errorf("%d more pages", n)
	}
	if n := one[int](w, "select count(*) from escalation where state = 'due' and incident_id = $1", id); n != 4 {
		t.Errorf("%d steps are due: the second of the first round, both of the next, and the end", n)
	}
	if n := one[int](w, "select count(*) from audit where object = 'incident:' || $1 and action in ('snooze', 'snooze_over')", id.String()); n != 2 {
		t.Errorf("%d lines in the audit trail", n)
	}
	if notes := w.notes(id); !strings.Contains(notes, "Snoozed by Ana Torres until") || !strings.Contains(notes, "rings again") {
		t.Error(notes)
	}
}

func TestWhatIsResolvedOrTakenOverWhileSnoozedDoesNotRing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	resolved, taken := w.accept(disk("critical", "host", "a")).IncidentID, w.accept(disk("critical", "host", "b")).IncidentID
	w.snooze(resolved, ana, time.Hour)
	w.snooze(taken, ana, time.Hour)
	if a, err := w.in.Resolve(t.Context(), resolved, bo, ""); err != nil || !a.Changed {
		t.Fatal(a, err)
	}
	a, err := w.in.Acknowledge(t.Context(), taken, bo, "")
	if err != nil || !a.Changed || w.incident(taken).AcknowledgedBy != "Bo Lind" {
		t.Fatalf("%+v, %v", a, err)
	}
	storetest.MoveClock(t, w.url, 2*time.Hour)
	if w.ring(resolved) || w.ring(taken) {
		t.Error("it rang")
	}
	if a := w.snooze(resolved, ana, time.Hour); !a.Refused || !strings.Contains(a.Text(), "Bo Lind resolved it already") {
		t.Errorf("%+v: %s", a, a.Text())
	}
	for _, d := range []time.Duration{0, time.Second, 8 * 24 * time.Hour} {
		if _, err := w.in.Snooze(t.Context(), taken, ana, d, ""); err == nil || !strings.Contains(err.Error(), "for: ") {
			t.Errorf("%s: %v", d, err)
		}
	}
}

// An older replica that resolves writes no snooze: it is swept away when its time has come.
func TestASnoozeThatAnOlderReplicaLeftBehind(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	id := w.accept(disk("critical")).IncidentID
	w.exec("update incident set state = 'resolved', resolved_at = clock_timestamp(), snoozed_until = clock_timestamp() where id = $1", id)
	storetest.MoveClock(t, w.url, time.Hour)
	if w.ring(id) || w.incident(id).SnoozedUntil != nil || w.incident(id).State != message.Resolved {
		t.Errorf("%+v", w.incident(id))
	}
}

func TestEscalateBringsOnTheNextStepOncePerPress(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	id := w.accept(disk("critical")).IncidentID
	if a := w.escalate(id, bo); !a.Changed {
		t.Fatalf("%+v: %s", a, a.Text())
	}
	if got := w.targets(id); !slices.Equal(got, []string{"schedule:primary", "user:cho"}) {
		t.Errorf("paged %v", got)
	}
	// Somebody else presses at the same moment: nothing more happens, and they are told who was first.
	if a := w.escalate(id, ana); a.Changed || !strings.Contains(a.Text(), "user:bo escalated it already") {
		t.Errorf("%+v: %s", a, a.Text())
	}
	w.exec("update timeline set at = at - interval '1 minute'")
	if a := w.escalate(id, ana); !a.Changed { // the next round
		t.Errorf("%+v: %s", a, a.Text())
	}
	for range 2 {
		w.exec("update timeline set at = at - interval '1 minute'")
		w.in.EscalateNow(t.Context(), id, ana, "") //nolint:errcheck // the last one is looked at below
	}
	if a := w.escalate(id, bo); a.Changed || !a.Refused && !strings.Contains(a.Text(), "already") {
		t.Errorf("past the last step: %+v: %s", a, a.Text())
	}
	if n := one[int](w, "select count(*) from escalation where state = 'due'"); n != 1 {
		t.Errorf("%d are due: the end stays, its people have their time", n)
	}
}

// A press that the chat sends again, however much later, is the same press: nothing is brought on twice.
func TestAPressThatIsSentAgainIsAppliedOnce(t *testing.T) {
	t.Parallel()
	press := intake.Actor{ID: "user:bo", Name: "Bo", Callback: "slack:1"}
	for name, do := range map[string]func(w *world, id uuid.UUID) (intake.Answer, error){
		"escalate": func(w *world, id uuid.UUID) (intake.Answer, error) {
			return w.in.EscalateNow(w.t.Context(), id, press, "")
		},
		"snooze": func(w *world, id uuid.UUID) (intake.Answer, error) {
			return w.in.Snooze(w.t.Context(), id, press, time.Hour, "")
		},
		"reassign": func(w *world, id uuid.UUID) (intake.Answer, error) {
			return w.in.Reassign(w.t.Context(), id, press, "cho", "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			id := w.accept(disk("critical")).IncidentID
			var entries []string
			for _, want := range []bool{true, false} {
				a, err := do(w, id)
				if err != nil || a.Changed != want {
					t.Errorf("%+v, %v, want %t", a, err, want)
				}
				if want {
					entries = w.timeline(id)
				}
				w.exec("update timeline set at = at - interval '1 minute'")
				storetest.MoveClock(t, w.url, time.Minute)
			}
			if got := w.timeline(id); !slices.Equal(got, entries) {
				t.Errorf("timeline: %v, then %v", entries, got)
			}
		})
	}
}

func TestEscalatingAnAcknowledgedIncidentGoesOnWhereItWas(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	id := w.accept(disk("critical")).IncidentID
	w.acknowledge(id)
	a := w.escalate(id, ana)
	inc := w.incident(id)
	if !a.Changed || inc.State != message.Open || inc.AcknowledgedBy != "" {
		t.Fatalf("%+v: %+v", a, inc)
	}
	if got := w.targets(id); !slices.Equal(got, []string{"schedule:primary", "user:cho"}) {
		t.Errorf("paged %v", got)
	}
	warning := w.accept(disk("warning", "host", "c")).IncidentID
	if a := w.escalate(warning, ana); !a.Refused || a.Changed || !strings.Contains(a.Text(), "nobody further up") {
		t.Errorf("without an escalation: %+v: %s", a, a.Text())
	}
}

func TestReassignPagesThatPersonInstead(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	id := w.accept(disk("critical")).IncidentID
	a, err := w.in.Reassign(t.Context(), id, ana, "cho", "knows disks")
	if err != nil || !a.Changed {
		t.Fatal(a, err)
	}
	for _, d := range w.deliveries(id, delivery.Page) {
		if (d.Target == "user:cho") != (d.State == delivery.Pending) {
			t.Errorf("page to %s is %s %s", d.Target, d.State, d.Reason)
		}
	}
	if n := one[int](w, "select count(*) from escalation where state = 'due' and name <> 'user:cho'"); n != 0 {
		t.Errorf("%d steps of the escalation are still due", n)
	}
	if a, err := w.in.Reassign(t.Context(), id, bo, "user:cho", ""); err != nil || a.Changed || !strings.Contains(a.Text(), "reassigned it already") {
		t.Errorf("twice: %+v, %v", a, err)
	}
	// Nobody answers: Cho is paged again, and at the end it is said aloud.
	w.acknowledge(id)
	w.exec("update timeline set at = at - interval '1 minute'")
	if a := w.escalate(id, bo); !a.Changed {
		t.Errorf("%s", a.Text())
	}
	if got := w.targets(id); got[len(got)-1] != "user:cho" {
		t.Errorf("paged %v", got)
	}
	if _, err := w.in.Reassign(t.Context(), id, ana, "nobody", ""); err == nil || !strings.Contains(err.Error(), "no user nobody") {
		t.Error(err)
	}
}

// It was given to one person: when its snooze is over it rings for them alone, not for those whom it was taken from.
func TestAReassignedIncidentRingsForThatPersonAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	id := w.accept(disk("critical")).IncidentID
	if _, err := w.in.Reassign(t.Context(), id, ana, "cho", ""); err != nil {
		t.Fatal(err)
	}
	w.snooze(id, ana, time.Hour)
	before := len(w.deliveries(id, delivery.Page))
	storetest.MoveClock(t, w.url, 61*time.Minute)
	if !w.ring(id) {
		t.Fatal("it does not ring")
	}
	all := w.deliveries(id, delivery.Page)[before:]
	if len(all) != 1 || all[0].Target != "user:cho" {
		t.Errorf("it rings for %+v", all)
	}
	for _, s := range w.steps(id) {
		if s.DueAt != nil && s.Name != "user:cho" {
			t.Errorf("step %d of %s is due", s.Step, s.Name)
		}
	}
}

func TestSnoozeWithoutAnEscalationOnlyShows(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(f *config.File) { f.Routes[0].Escalate = "" })
	id := w.accept(disk("critical")).IncidentID
	w.snooze(id, ana, time.Hour)
	storetest.MoveClock(t, w.url, 2*time.Hour)
	if !w.ring(id) || w.incident(id).State != message.Open || len(w.targets(id)) != 0 {
		t.Errorf("%+v, %v", w.incident(id), w.targets(id))
	}
}

// A first step with a delay keeps it when the incident opens and when it rings again; by a person's word it fires at once.
func TestAFirstStepThatWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(f *config.File) {
		e := f.Escalations["default"]
		e.Steps[0].After, e.Steps[1].After = 5*time.Minute, 10*time.Minute
		f.Escalations["default"] = e
	})
	id := w.accept(disk("critical")).IncidentID
	due := func(want int) {
		t.Helper()
		if n := one[int](w, "select count(*) from escalation where state = 'due' and due_at > clock_timestamp() + interval '4 minutes'"); n != want || len(w.targets(id)) != 0 {
			t.Errorf("%d steps are due later, want %d; paged %v", n, want, w.targets(id))
		}
	}
	due(5) // two rounds and the end
	w.snooze(id, ana, time.Hour)
	w.exec("update incident set snoozed_until = clock_timestamp() - interval '1 second'")
	if !w.ring(id) {
		t.Fatal("it does not ring")
	}
	due(5)
	w.acknowledge(id)
	if a := w.escalate(id, ana); !a.Changed || !slices.Equal(w.targets(id), []string{"schedule:primary"}) {
		t.Errorf("%s: paged %v", a.Text(), w.targets(id))
	}
}

// Whoever was named by mistake has a name that begins with the right one: the second word is another one all the same.
func TestReassignedToSomebodyElseAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(f *config.File) {
		f.Users = append(f.Users, config.User{ID: "chow", Name: "Cho Wang", Contacts: []config.Contact{{Via: "slack-dm", Address: "U0CHOW"}}})
	})
	id := w.accept(disk("critical")).IncidentID
	for _, to := range []string{"chow", "cho"} {
		if a, err := w.in.Reassign(t.Context(), id, ana, to, ""); err != nil || !a.Changed {
			t.Errorf("to %s: %+v, %v", to, a, err)
		}
	}
	if got := w.targets(id); got[len(got)-1] != "user:cho" {
		t.Errorf("paged %v", got)
	}
}
