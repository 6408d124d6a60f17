package intake_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/intake"
	"github.com/tocsin-oncall/tocsin/pkg/message"
	"github.com/tocsin-oncall/tocsin/pkg/store"
	"github.com/tocsin-oncall/tocsin/pkg/store/storetest"
)

// renamed is the file with its escalation under another name.
func (w *world) renamed(name string) {
	f := *w.file
	f.Checksum = name
	f.Escalations = maps.Clone(f.Escalations)
	f.Escalations[name] = f.Escalations["default"]
	delete(f.Escalations, "default")
	f.Routes = slices.Clone(f.Routes)
	f.Routes[0].Escalate = name
	w.file = &f
}

// What became critical while somebody had put it off has started no escalation. When the snooze is over it does.
func TestWhatBecameCriticalWhileSnoozedPagesAfterIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	keyed := func(criticality string) intake.Group {
		g := disk(criticality)
		g.Alerts[0].Key = "disk-a"
		return g
	}
	id := w.accept(keyed("warning")).IncidentID
	w.snooze(id, ana, time.Hour)
	if r := w.accept(keyed("critical")); r.IncidentID != id || len(w.targets(id)) != 0 {
		t.Fatalf("%+v, paged %v", r, w.targets(id))
	}
	storetest.MoveClock(t, w.url, 2*time.Hour)
	if !w.ring(id) || len(w.targets(id)) == 0 {
		t.Errorf("nobody is paged: %s", w.notes(id))
	}
}

// The escalation has another name in a new file, while its incident is put off: what the file has by now for the incident begins.
func TestASnoozeOutlivesTheNameOfItsEscalation(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	id := w.accept(disk("critical")).IncidentID
	w.snooze(id, ana, time.Hour)
	before := len(w.deliveries(id, delivery.Page))
	w.renamed("other")
	storetest.MoveClock(t, w.url, 2*time.Hour)
	if !w.ring(id) || len(w.deliveries(id, delivery.Page)) == before {
		t.Errorf("nobody is paged: %s", w.notes(id))
	}
	if n := one[int](w, "select count(*) from escalation where state = 'due' and name = 'other'"); n != 4 {
		t.Errorf("%d steps are due", n)
	}
}

// The same while it runs: the replica that has the new file goes on with what that has, one that has the old file leaves it alone.
func TestAnEscalationOutlivesItsName(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(f *config.File) { f.Checksum = "old" })
	id := w.accept(disk("critical")).IncidentID
	old := w.file
	w.renamed("other")
	for _, r := range []string{"old", "other"} {
		if err := w.st.Heartbeat(t.Context(), store.Replica{ID: r, Checksum: r, Notifiers: []string{}}); err != nil {
			t.Fatal(err)
		}
	}
	w.exec("update replica set read_at = read_at - interval '1 minute' where id = 'old'")
	storetest.MoveClock(t, w.url, 11*time.Minute)
	w.exec("update replica set seen_at = clock_timestamp()")
	before := len(w.deliveries(id, delivery.Page))
	if n := w.stepOn(id); n != 1 || len(w.deliveries(id, delivery.Page)) == before {
		t.Errorf("%d steps fired: %s", n, w.notes(id))
	}
	if n := one[int](w, "select count(*) from escalation where state = 'due' and name = 'default'"); n != 0 {
		t.Errorf("%d steps of what the file does not have are due", n)
	}
	storetest.MoveClock(t, w.url, 11*time.Minute)
	w.exec("update replica set seen_at = clock_timestamp()")
	w.file = old
	if n := w.stepOn(id); n != 0 {
		t.Error("a replica with the old file fired a step of the new one")
	}
}

// The new file has nothing for it: its end comes at once and is told, since nobody would be paged until then.
func TestAnEscalationThatIsTakenOutOfTheFileEndsAloud(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	id := w.accept(disk("critical")).IncidentID
	w.renamed("other")
	w.file.Routes[0].Escalate = ""
	storetest.MoveClock(t, w.url, 11*time.Minute)
	w.stepOn(id)
	w.stepOn(id)
	if n := one[int](w, "select count(*) from incident where topic like 'alert.nobody_answered.%'"); n != 1 || w.due(id) != 0 {
		t.Errorf("%d alerts that nobody answered, %d steps due: %s", n, w.due(id), w.notes(id))
	}
}

// Whom it was reassigned to acknowledges it: that holds for the time of the escalation that brought it, and then the same person is paged.
func TestTheAcknowledgementOfAReassignedIncidentHoldsForItsTime(t *testing.T) {
	t.Parallel()
	w := ringWorld(t)
	id := w.accept(disk("critical")).IncidentID
	if a, err := w.in.Reassign(t.Context(), id, ana, "cho", ""); err != nil || !a.Changed {
		t.Fatal(a, err)
	}
	w.acknowledge(id)
	within(t, w.dueIn(id), []int{30})
	storetest.MoveClock(t, w.url, 31*time.Minute)
	before := len(w.deliveries(id, delivery.Page))
	if w.stepOn(id) != 1 || w.incident(id).State != message.Open {
		t.Fatalf("it does not ring: %s", w.notes(id))
	}
	all := w.deliveries(id, delivery.Page)
	if len(all) == before || all[len(all)-1].Target != "user:cho" {
		t.Errorf("paged %v", w.targets(id))
	}
	if !strings.Contains(w.notes(id), "rings again") {
		t.Error(w.notes(id))
	}
}

// An account is linked after its incident was given to somebody else: that is no page any more.
func TestWhatWasReassignedIsNotTakenUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(f *config.File) { f.Users[0].Contacts = []config.Contact{{Via: "telegram-dm"}} })
	given, kept := w.accept(disk("critical", "host", "a")).IncidentID, w.accept(disk("critical", "host", "b")).IncidentID
	if a, err := w.in.Reassign(t.Context(), given, bo, "cho", ""); err != nil || !a.Changed {
		t.Fatal(a, err)
	}
	w.tx(func(tx *store.Tx) error { return tx.PutAccount(t.Context(), "telegram", "501", "ana", "token:ops") })
	for id, want := range map[uuid.UUID]bool{given: false, kept: true} {
		if took, err := w.in.TakeUp(t.Context(), id, w.deliveries(id, delivery.Page)[0].ID); err != nil || took != want {
			t.Errorf("taken up: %t, %v", took, err)
		}
	}
}
