package scheduler_test

import (
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
	"github.com/tocsin-oncall/tocsin/pkg/scheduler"
	"github.com/tocsin-oncall/tocsin/pkg/store"
	"github.com/tocsin-oncall/tocsin/pkg/store/storetest"
)

func TestNobodyOnCallBringsTheNextStepAtOnce(t *testing.T) { // C1
	t.Parallel()
	w := newWorld(t, func(f *config.File) { f.Schedules[0].Layers = nil })
	id := w.fire("k")
	want := []string{"slack-dm schedule:primary unreachable nobody_on_call", "slack-dm user:cho pending waiting_for_card"}
	if diff := cmp.Diff(want, w.pages(id)); diff != "" {
		t.Error(diff)
	}
	for _, d := range w.deliveries(id) {
		if d.State == delivery.Unreachable && (d.Attempts != 0 || d.Doubt != nil) {
			t.Errorf("a call was made: %+v", d)
		}
	}
	w.step("announce")
	self := w.self("delivery_unreachable")
	if len(self) != 1 || self[0].Criticality != "critical" {
		t.Fatalf("self-alerts: %+v", self)
	}
	if diff := cmp.Diff([]string{"2/0 due", "2/1 due", "2/-1 due"}, w.due(id)); diff != "" {
		t.Error(diff)
	}
}

func TestADeadPageBringsTheNextWayAndThenTheNextStep(t *testing.T) { // C1
	t.Parallel()
	w := newWorld(t, nil)
	id := w.fire("k")
	before := w.dueAt(id, "telegram-dm")
	w.kill(id, through("slack-dm", delivery.Page), rejected)
	w.step("announce")
	after := w.dueAt(id, "telegram-dm")
	if before.Sub(after) < time.Minute {
		t.Errorf("the second way is due at %s, before it was %s", after, before)
	}
	if diff := cmp.Diff([]string{"1/1 due", "2/0 due", "2/1 due", "2/-1 due"}, w.due(id)); diff != "" {
		t.Error(diff)
	}
	w.step("announce") // again: nothing more is brought on
	w.step("escalate")
	if len(w.pages(id)) != 2 {
		t.Errorf("the next step fired while a way is open: %v", w.pages(id))
	}
	w.kill(id, through("telegram-dm", delivery.Page), rejected)
	w.step("announce")
	w.step("escalate")
	if got := w.pages(id); len(got) != 3 || !strings.HasPrefix(got[2], "slack-dm user:cho pending") {
		t.Errorf("the next step did not fire at once: %v", got)
	}
}

// three is an escalation of three steps: nobody is on call for the first when layers is false.
func three(layers bool) func(f *config.File) {
	return func(f *config.File) {
		f.Users = append(f.Users, config.User{ID: "dee", Name: "Dee", Contacts: []config.Contact{{Via: "slack-dm", Address: "U0DEE"}}})
		f.Escalations["default"] = config.Escalation{Steps: []config.Step{
			{Page: []string{"schedule:primary", "user:dee"}}, {After: 10 * time.Minute, Page: []string{"user:cho"}}, {After: 20 * time.Minute, Page: []string{"user:dee"}},
		}}
		if !layers {
			f.Schedules[0].Layers = nil
			f.Escalations["default"].Steps[0].Page = []string{"schedule:primary"}
		}
	}
}

// Nobody is on call, so the second step fires at once and reaches somebody: the third one's time has not come.
func TestADeadStepBringsOneStepAndNotTwo(t *testing.T) { // C1
	t.Parallel()
	w := newWorld(t, three(false))
	id := w.fire("k")
	w.step("announce")
	w.step("announce")
	w.step("escalate")
	want := []string{"slack-dm schedule:primary unreachable nobody_on_call", "slack-dm user:cho pending waiting_for_card"}
	if diff := cmp.Diff(want, w.pages(id)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"1/2 due", "1/-1 due"}, w.due(id)); diff != "" {
		t.Error(diff)
	}
	// The one whom the second step reached can't be after all: now it has.
	w.kill(id, through("slack-dm", delivery.Page), func(d delivery.Delivery) delivery.Step {
		if d.State.Dead() {
			s, _ := d.Raise(d.Desired + 1) // it is dead already
			return s
		}
		return rejected(d)
	})
	w.step("announce")
	w.step("escalate")
	if got := w.pages(id); len(got) != 3 || !strings.HasPrefix(got[2], "slack-dm user:dee pending") {
		t.Errorf("the third step did not fire: %v", got)
	}
}

// The pages of one step die one after the other, and the next step fires in between: the one after it keeps its time.
func TestDeathsOfOneStepBringOneStep(t *testing.T) {
	t.Parallel()
	w := newWorld(t, three(true))
	id := w.fire("k")
	var step uuid.UUID
	w.tx(func(tx *store.Tx) error {
		steps, err := tx.Steps(t.Context(), id)
		step = steps[0].ID
		return err
	})
	w.kill(id, func(d delivery.Delivery) bool { return d.Kind == delivery.Page }, rejected)
	for _, target := range []string{"schedule:primary", "schedule:primary", "user:dee"} {
		if err := w.in.Forward(t.Context(), id, step, target); err != nil {
			t.Fatal(err)
		}
		w.step("escalate")
	}
	if diff := cmp.Diff([]string{"1/2 due", "1/-1 due"}, w.due(id)); diff != "" {
		t.Error(diff)
	}
}

// A way that dies while another one is out hurries nobody: the person has the page, and the next way keeps its time.
func TestADeadWayBesideOneThatIsOutHurriesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(f *config.File) {
		f.Notifiers["spare-dm"] = config.Notifier{Name: "spare-dm", Type: "slack", Token: "other"}
		f.Users[0].Contacts = append(f.Users[0].Contacts, config.Contact{Via: "spare-dm", Address: "U1ANA", After: 5 * time.Minute})
	})
	id := w.fire("k")
	storetest.MoveClock(t, w.url, 6*time.Second) // beyond what a page may wait for a card
	w.call("slack-dm", out)
	before := w.dueAt(id, "spare-dm")
	w.kill(id, through("telegram-dm", delivery.Page), rejected)
	w.step("announce")
	w.step("escalate")
	if after := w.dueAt(id, "spare-dm"); !after.Equal(before) {
		t.Errorf("the third way is due at %s, before it was %s", after, before)
	}
	if diff := cmp.Diff([]string{"1/1 due", "2/0 due", "2/1 due", "2/-1 due"}, w.due(id)); diff != "" {
		t.Error(diff)
	}
}

// No way to anybody is open, for good or for now: each round calls everybody it can at once, the next round comes at its own time, and
// the end of the last one says, once, that nobody answered.
func TestNobodyAnswersWhereNoWayIsOpen(t *testing.T) { // C1
	t.Parallel()
	for name, ends := range map[string]struct {
		page func(w *world, id uuid.UUID, n string)
		job  string
	}{
		"dead": {func(w *world, id uuid.UUID, n string) {
			w.kill(id, func(d delivery.Delivery) bool { return through(n, delivery.Page)(d) && d.State == delivery.Pending }, rejected)
		}, "announce"},
		"kept back": {func(w *world, id uuid.UUID, n string) {
			w.kill(id, func(d delivery.Delivery) bool {
				return through(n, delivery.Page)(d) && d.State == delivery.Pending && d.Reason != "paused"
			}, keptBack(100*time.Hour))
		}, "pass over"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			id := w.fire("k")
			round := func() {
				t.Helper()
				w.step("escalate")
				for range 3 { // Ana's two ways, then Cho's; the page of a way that follows may only now be looked at
					storetest.MoveClock(t, w.url, 6*time.Second) // beyond what a page may wait for a card
					for _, n := range []string{"slack-dm", "telegram-dm"} {
						ends.page(w, id, n)
						w.step(ends.job)
						w.step("escalate")
					}
				}
			}
			round()
			if diff := cmp.Diff([]string{"1/0 fired", "1/1 fired", "2/0 due", "2/1 due", "2/-1 due"}, w.steps(id)); diff != "" {
				t.Fatalf("after the first round: %s", diff)
			}
			storetest.MoveClock(t, w.url, 20*time.Minute)
			round()
			if diff := cmp.Diff([]string{"1/0 fired", "1/1 fired", "2/0 fired", "2/1 fired", "2/-1 due"}, w.steps(id)); diff != "" {
				t.Fatalf("after the second round: %s", diff)
			}
			if n := len(w.pages(id)); n != 6 {
				t.Errorf("%d pages: %q", n, w.pages(id))
			}
			if n := len(w.self("nobody_answered")); n != 0 {
				t.Errorf("%d self-alerts before the last round is over", n)
			}
			_, _, two := w.replica("two")
			for range 2 {
				storetest.MoveClock(t, w.url, 20*time.Minute)
				w.step("escalate")
				if _, err := two.Escalate(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if self := w.self("nobody_answered"); len(self) != 1 || self[0].Count != 1 {
				t.Errorf("%d self-alerts: %+v", len(self), self)
			}
			if left := w.due(id); len(left) != 0 {
				t.Errorf("still due: %q", left)
			}
		})
	}
}

// dueAt is when the page through a notifier is due.
func (w *world) dueAt(id uuid.UUID, notifier string) time.Time {
	w.t.Helper()
	for _, d := range w.deliveries(id) {
		if d.Notifier != notifier || d.State != delivery.Pending {
			continue
		}
		wire, err := w.st.ReadDelivery(w.t.Context(), d.ID)
		if err != nil || wire.NextAt == nil {
			w.t.Fatalf("%+v: %v", wire, err)
		}
		return *wire.NextAt
	}
	w.t.Fatalf("no page waits for %s", notifier)
	return time.Time{}
}

func TestDeathsOfOneSortAreOneSelfAlertUntilAllAreDecided(t *testing.T) { // D4, rule 12
	t.Parallel()
	w := newWorld(t, nil)
	_, _, two := w.replica("two")
	var ids []uuid.UUID
	for n := range 12 {
		id := w.fire(fmt.Sprint(n))
		ids = append(ids, id)
		w.kill(id, through("ops-slack", delivery.Card), rejected)
	}
	var all sync.WaitGroup
	for _, s := range []*scheduler.Scheduler{w.s, two} {
		all.Go(func() {
			if _, err := s.Announce(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	w.step("announce")
	self := w.self("delivery_rejected")
	if len(self) != 1 || self[0].Topic != "alert.delivery_rejected.critical._tocsin" {
		t.Fatalf("%d self-alerts: %+v", len(self), self)
	}
	if cards := slices.DeleteFunc(w.deliveries(self[0].ID), func(d delivery.Delivery) bool { return d.Kind != delivery.Card }); len(cards) != 1 {
		t.Errorf("%d cards of it", len(cards))
	}
	// The self-alert's card dies the same way: that raises no further one.
	w.kill(self[0].ID, through("ops-slack", delivery.Card), rejected)
	w.step("announce")
	if again := w.self("delivery_rejected"); len(again) != 1 || again[0].Count != self[0].Count {
		t.Errorf("a dying self-alert raised another: %+v", again)
	}
	w.tx(func(tx *store.Tx) error {
		dead, err := tx.UnannouncedDead(t.Context(), 100)
		if len(dead) != 0 {
			t.Errorf("%d deaths are not announced", len(dead))
		}
		return err
	})
	decide := func(id uuid.UUID) {
		w.kill(id, through("ops-slack", delivery.Card), func(d delivery.Delivery) delivery.Step {
			s, err := d.Decide(delivery.CancelIt)
			if err != nil {
				t.Fatal(err)
			}
			return s
		})
	}
	for _, id := range ids {
		w.step("settle")
		if len(w.self("delivery_rejected")) != 1 {
			t.Fatal("resolved while a dead one waits for a decision")
		}
		decide(id)
	}
	decide(self[0].ID)
	w.step("settle")
	if len(w.self("delivery_rejected")) != 0 {
		t.Error("all are decided, and the self-alert stays")
	}
}
