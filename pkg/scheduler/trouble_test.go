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

	"github.com/tocsin-oncall/tocsin/pkg/card"
	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/intake"
	"github.com/tocsin-oncall/tocsin/pkg/scheduler"
	"github.com/tocsin-oncall/tocsin/pkg/store"
	"github.com/tocsin-oncall/tocsin/pkg/store/storetest"
)

// call claims what is due through a notifier and lets it end with a result, as a worker does.
func (w *world) call(notifier string, r delivery.Result) {
	w.t.Helper()
	ctx := w.t.Context()
	claimed, err := w.st.Claim(ctx, "worker", time.Minute, []store.Lane{{Notifier: notifier, Free: 10}})
	if err != nil || len(claimed) == 0 {
		w.t.Fatalf("%d claimed: %v", len(claimed), err)
	}
	for _, c := range claimed {
		a := delivery.Attempt{ID: store.NewID(), Operation: delivery.OpCreate, Effect: c.Effect, Key: c.Key(), Address: "A", Revision: c.Desired, Queue: "account/A"}
		begun, err := w.st.Begin(ctx, "worker", []store.Begun{{Delivery: c.Delivery, Attempt: a}})
		if err != nil || len(begun) != 1 {
			w.t.Fatalf("%d begun: %v", len(begun), err)
		}
		b := begun[c.ID]
		step := b.Delivery.Finish(delivery.Env{Policy: delivery.DefaultPolicy(c.Kind), Retries: delivery.DefaultRetries}, b.Attempt, r)
		if done, err := w.st.Finish(ctx, "worker", []store.Finished{{Step: step, Attempt: b.Attempt, Result: r, ClosedBy: "worker"}}); err != nil || len(done) != 1 {
			w.t.Fatalf("%d ended: %v", len(done), err)
		}
	}
}

var (
	out       = delivery.Result{Outcome: delivery.OutcomeSent, Evidence: delivery.Answered, Reference: delivery.Reference{Channel: "D1", TS: "1.1"}}
	throttled = delivery.Result{Outcome: delivery.OutcomeFailed, Evidence: delivery.Answered, Fault: delivery.FaultThrottled, Reason: "rate_limited", RetryAfter: 10 * time.Minute}
)

// keep keeps a page back for a time, without an attempt.
func (w *world) keep(id uuid.UUID, notifier string, delay time.Duration) {
	w.t.Helper()
	w.kill(id, through(notifier, delivery.Page), keptBack(delay))
}

func keptBack(delay time.Duration) func(delivery.Delivery) delivery.Step {
	return func(d delivery.Delivery) delivery.Step {
		return d.Queued(delivery.Facts{Now: d.CreatedAt, Policy: delivery.DefaultPolicy(delivery.Page)}, delay, "account/A", "paused", "")
	}
}

// A page that is kept back beyond its bound, tried before or not, reaches nobody for now: the next way to that person is
// tried at once, and when that is kept back too, the next step of the escalation. Once, on however many replicas; the pages
// stay pending.
func TestEscalationPassesOverWhatIsKeptBack(t *testing.T) {
	t.Parallel()
	for name, keep := range map[string]func(w *world, id uuid.UUID, notifier string){
		"before its first try": func(w *world, id uuid.UUID, notifier string) { w.keep(id, notifier, 10*time.Minute) },
		"throttled":            func(w *world, _ uuid.UUID, notifier string) { w.call(notifier, throttled) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			_, _, two := w.replica("two")
			passOver := func() {
				t.Helper()
				var all sync.WaitGroup
				for _, s := range []*scheduler.Scheduler{w.s, two} {
					all.Go(func() {
						if _, err := s.PassOver(t.Context()); err != nil {
							t.Error(err)
						}
					})
				}
				all.Wait()
				w.step("escalate")
				if left, err := w.st.OverduePages(t.Context(), 10); err != nil || len(left) != 0 {
					t.Errorf("%d pages are to be passed over once more: %v", len(left), err)
				}
			}
			id := w.fire("k")
			storetest.MoveClock(t, w.url, 5*time.Second) // the bound for the card is over
			before := w.dueAt(id, "telegram-dm")
			passOver()
			if got := w.dueAt(id, "telegram-dm"); !got.Equal(before) {
				t.Errorf("nothing is kept back, and the second way is due at %s instead of %s", got, before)
			}
			keep(w, id, "slack-dm")
			passOver()
			if after := w.dueAt(id, "telegram-dm"); before.Sub(after) < time.Minute {
				t.Errorf("the second way is due at %s, before it was %s", after, before)
			}
			passOver()
			if diff := cmp.Diff([]string{"1/1 due", "2/0 due", "2/1 due", "2/-1 due"}, w.due(id)); diff != "" {
				t.Errorf("a way is open: %s", diff)
			}
			keep(w, id, "telegram-dm")
			passOver()
			got := w.pages(id)
			if len(got) != 3 || !strings.HasPrefix(got[2], "slack-dm user:cho pending") {
				t.Errorf("the next step did not fire: %v", got)
			}
			for _, p := range got[:2] {
				if !strings.Contains(p, "pending") {
					t.Errorf("%v", got)
				}
			}
			passOver()
			if diff := cmp.Diff([]string{"2/0 due", "2/1 due", "2/-1 due"}, w.due(id)); diff != "" {
				t.Error(diff)
			}
			// When they go out after all, only the timeline tells why somebody else was called.
			var told []string
			entries, err := w.st.Timeline(t.Context(), id, 0, 1<<30, 100)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				if e.Type == card.EntryKeptBack {
					told = append(told, e.Text)
				}
			}
			if len(told) != 2 || !strings.HasPrefix(told[0], "The page through slack-dm to schedule:primary is kept back (") || !strings.HasPrefix(told[1], "The page through telegram-dm") {
				t.Errorf("the timeline says %q", told)
			}
		})
	}
}

// A page that was passed over and is sent after all has reached somebody: what fails later brings no further step on.
func TestOverduePageThatIsSentCountsAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	id := w.fire("k")
	storetest.MoveClock(t, w.url, 5*time.Second)
	w.call("slack-dm", throttled)
	w.step("pass over")
	w.kill(id, through("telegram-dm", delivery.Page), func(d delivery.Delivery) delivery.Step {
		return d.GiveBack(time.Hour, "")
	})
	storetest.MoveClock(t, w.url, 9*time.Minute)
	w.kill(id, through("slack-dm", delivery.Page), func(d delivery.Delivery) delivery.Step { return d.GiveBack(0, "") })
	w.call("slack-dm", out)
	w.kill(id, through("telegram-dm", delivery.Page), rejected)
	w.step("announce")
	w.step("escalate")
	if diff := cmp.Diff([]string{"1/1 due", "2/0 due", "2/1 due", "2/-1 due"}, w.due(id)); diff != "" {
		t.Errorf("somebody was reached: %s", diff)
	}
}

// An incident that is answered brings nothing on, whatever is kept back.
func TestAnsweredIncidentPassesNothingOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	id := w.fire("k")
	w.keep(id, "slack-dm", 10*time.Minute)
	if _, err := w.in.Acknowledge(t.Context(), id, intake.Actor{ID: "user:ana", Name: "Ana"}, ""); err != nil {
		t.Fatal(err)
	}
	w.step("pass over")
	w.step("escalate")
	if got := w.pages(id); len(got) != 2 {
		t.Errorf("%v", got)
	}
}

// trip opens the breaker of a notifier's account, as a worker that has a file does.
func (w *world) trip(notifier, checksum string) string {
	w.t.Helper()
	account := w.file.Notifiers[notifier].Account()
	key := account + "@" + checksum
	if _, err := w.st.OpenBreaker(w.t.Context(), store.Pause{
		Key: key, Account: account, Notifier: notifier, Checksum: checksum, Reason: "account:token_revoked", Code: "token_revoked", Sentence: "Make a new token.",
	}, time.Minute); err != nil {
		w.t.Fatal(err)
	}
	return key
}

// through are the notifiers of an incident's cards.
func (w *world) cards(id uuid.UUID) []string {
	w.t.Helper()
	var out []string
	for _, d := range w.deliveries(id) {
		if d.Kind == delivery.Card {
			out = append(out, d.Notifier)
		}
	}
	slices.Sort(out)
	return out
}

// spare gives the file a second way out, with credentials of its own.
func spare(f *config.File) {
	f.Notifiers["spare"] = config.Notifier{Name: "spare", Type: "telegram", Token: "another", ChatID: "-100"}
	f.Routes[0].Notify = []string{"ops-slack", "spare"}
}

// An account in trouble is one alert, whichever replica is first and with however many files it was found. It says what to do,
// goes through others than those that it is about, and resolves when the account is well.
func TestBrokenNotifierIsOneAlert(t *testing.T) {
	t.Parallel()
	w := newWorld(t, spare)
	_, _, two := w.replica("two")
	announce := func() {
		t.Helper()
		var all sync.WaitGroup
		for _, s := range []*scheduler.Scheduler{w.s, two} {
			all.Go(func() {
				if _, err := s.Trouble(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
	announce()
	if got := w.self(intake.SelfNotifierBroken); len(got) != 0 {
		t.Fatalf("%d self-alerts without a breaker", len(got))
	}
	key := w.trip("ops-slack", "sum")
	announce()
	announce()
	got := w.self(intake.SelfNotifierBroken)
	if len(got) != 1 || got[0].Topic != "alert.notifier_broken.critical._tocsin" || got[0].Count != 1 {
		t.Fatalf("%+v", got)
	}
	id := got[0].ID
	if diff := cmp.Diff([]string{"spare"}, w.cards(id)); diff != "" {
		t.Errorf("it goes through those that it is about: %s", diff)
	}
	w.tx(func(tx *store.Tx) error {
		alerts, err := tx.Alerts(t.Context(), id, 10)
		if err != nil || len(alerts) != 1 {
			t.Fatalf("%d alerts: %v", len(alerts), err)
		}
		a := alerts[0]
		if !strings.Contains(a.Title, "ops-slack, slack-dm") || !strings.Contains(a.Text, "Make a new token.") || a.Labels["notifier"] != "ops-slack" || a.Labels["reason"] != "account:token_revoked" {
			t.Errorf("%+v", a)
		}
		return nil
	})
	// Found once more with a newer file: the same alert, and two breakers to close.
	other := w.trip("slack-dm", "newer")
	announce()
	if got := w.self(intake.SelfNotifierBroken); len(got) != 1 || got[0].ID != id {
		t.Errorf("%+v", got)
	}
	for n, k := range []string{key, other} {
		w.step("settle")
		if left := w.self(intake.SelfNotifierBroken); len(left) != 1 {
			t.Fatalf("resolved with %d breakers open", 2-n)
		}
		if closed, _, err := w.st.CloseBreaker(t.Context(), k, nil); err != nil || !closed {
			t.Fatal(closed, err)
		}
	}
	w.step("settle")
	if left := w.self(intake.SelfNotifierBroken); len(left) != 0 {
		t.Errorf("its account is well, and the alert stays: %+v", left)
	}
}

// Where nothing else is routed, a word through the broken notifier is better than none: it leaves when that is well again.
func TestBrokenNotifierWithoutAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.trip("ops-slack", "sum")
	w.step("trouble")
	got := w.self(intake.SelfNotifierBroken)
	if len(got) != 1 {
		t.Fatalf("%d self-alerts", len(got))
	}
	if diff := cmp.Diff([]string{"ops-slack"}, w.cards(got[0].ID)); diff != "" {
		t.Error(diff)
	}
}

// Several accounts, found by notifiers that this replica's file knows or not: one alert each, on two replicas at once.
func TestBrokenNotifiersEach(t *testing.T) {
	t.Parallel()
	w := newWorld(t, spare)
	_, _, two := w.replica("two")
	w.trip("ops-slack", "sum")
	w.trip("telegram-dm", "sum")
	for n := range 6 {
		if _, err := w.st.OpenBreaker(t.Context(), store.Pause{Key: fmt.Sprint("gone", n, "@sum"), Account: fmt.Sprint("gone", n), Notifier: fmt.Sprint("gone", n), Checksum: "sum", Reason: "account:x"}, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	var all sync.WaitGroup
	for _, s := range []*scheduler.Scheduler{w.s, two} {
		all.Go(func() {
			if _, err := s.Trouble(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	got := w.self(intake.SelfNotifierBroken)
	for _, inc := range got {
		if inc.Count != 1 {
			t.Errorf("%s was raised %d times", inc.Key, inc.Count)
		}
	}
	if len(got) != 8 {
		t.Errorf("%d self-alerts about 8 accounts", len(got))
	}
}
