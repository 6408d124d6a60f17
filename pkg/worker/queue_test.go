package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/message"
	"github.com/tocsin-oncall/tocsin/pkg/oncall"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// events adds n events, each in a transaction of its own, so that one is older than the next.
func (s *site) events(i *incident, notifier string, n int) []uuid.UUID {
	s.t.Helper()
	var ids []uuid.UUID
	for range n {
		ids = append(ids, s.add(i, anEvent(notifier))...)
	}
	return ids
}

// keys are the effect keys of calls, in order.
func keys(calls []provider.Call) []string {
	var out []string
	for _, c := range calls {
		out = append(out, c.Key)
	}
	return out
}

// firstKeys are the effect keys of the first effects of deliveries.
func firstKeys(ids []uuid.UUID) []string {
	var out []string
	for _, id := range ids {
		out = append(out, id.String()+":1")
	}
	return out
}

// A3: killed right after the alert was committed, every delivery goes out by another worker, each once.
func TestKilledAfterTheCommit(t *testing.T) {
	t.Parallel()
	s := newSite(t, hook("audit"))
	dead := s.start("first")
	dead.kill()
	ids := s.events(s.incident("a"), "audit", 20)
	s.start("second")
	s.settled()
	calls := s.desk("audit").all()
	got := keys(calls)
	slices.Sort(got)
	if want := firstKeys(ids); !slices.Equal(got, want) {
		t.Errorf("called %v, want %v", got, want)
	}
	s.recorded(calls...)
}

// A4: restarted with three pending and two sent: exactly three sends, the oldest first.
func TestRestartSendsWhatIsLeftOldestFirst(t *testing.T) {
	t.Parallel()
	n := hook("audit")
	n.Concurrency = 1
	s := newSite(t, n)
	i := s.incident("a")
	sent := s.events(i, "audit", 2)
	first := s.start("first")
	s.settled()
	first.stop()
	left := s.events(i, "audit", 3)
	s.start("second")
	s.settled()
	if got, want := keys(s.desk("audit").all()), firstKeys(append(sent, left...)); !slices.Equal(got, want) {
		t.Errorf("called %v, want %v", got, want)
	}
}

// A7: a hundred queued on one notifier with concurrency 4: never more than four calls at a time, and never more than
// four rows taken from others.
func TestConcurrencyIsNeverExceeded(t *testing.T) {
	t.Parallel()
	s := newSite(t, hook("audit"))
	g := s.gate()
	d := s.desk("audit").says(g.held(took))
	s.events(s.incident("a"), "audit", 100)
	s.start("first")
	d.called(4)
	if n := get[int](s, "select count(*)::int from delivery where lease_token is not null"); n != 4 {
		t.Errorf("%d rows are leased", n)
	}
	g.open()
	s.settled()
	if _, most := d.underway(); most != 4 {
		t.Errorf("%d calls were made at a time", most)
	}
	if n := len(d.all()); n != 100 {
		t.Errorf("%d calls were made", n)
	}
}

// A8, rule 14: one notifier hangs with all its places and a queue behind them; another sends as if nothing were.
func TestHungNotifierHarmsOnlyItself(t *testing.T) {
	t.Parallel()
	s := newSite(t, hook("hung"), hook("fine"))
	g := s.gate()
	s.desk("hung").says(g.held(took))
	i := s.incident("a")
	s.events(i, "hung", 12)
	s.start("first")
	s.desk("hung").called(4)
	fine := s.events(i, "fine", 30)
	s.until("the healthy notifier's deliveries", func() bool {
		return get[int](s, "select count(*)::int from delivery where notifier = 'fine' and state = 'sent'") == len(fine)
	})
	if now, most := s.desk("hung").underway(); now != 4 || most != 4 {
		t.Errorf("the hung notifier has %d calls open, %d at most", now, most)
	}
	g.open()
	s.settled()
}

// Rule 15: what has priority goes first through a notifier with one place, however late it came.
func TestPagesGoFirst(t *testing.T) {
	t.Parallel()
	n := direct("dm")
	n.Concurrency = 1
	s := newSite(t, n)
	g := s.gate()
	d := s.desk("dm").says(func(_ context.Context, n int, c provider.Call) delivery.Result {
		if n == 1 {
			g.pass()
		}
		return took(n, c)
	})
	i := s.incident("a")
	notice := store.NewDelivery{Kind: delivery.Notice, Notifier: "dm", Target: "user:bo"}
	bulk := store.NewDelivery{Kind: delivery.Bulk, Notifier: "dm", Target: "user:bo"}
	s.add(i, bulk)
	s.start("first")
	d.called(1)
	late := s.add(i, bulk)
	late = append(late, s.add(i, notice)...)
	late = append(late, s.add(i, aPage("dm", "ana", 0))...)
	g.open()
	s.settled()
	slices.Reverse(late)
	if got, want := keys(d.all())[1:], firstKeys(late); !slices.Equal(got, want) {
		t.Errorf("called %v, want %v", got, want)
	}
}

// Rule 15, A4: of what one claim takes the page is prepared first, then the oldest, whatever the notifiers.
func TestAClaimIsPreparedInItsOrder(t *testing.T) {
	t.Parallel()
	names := []string{"d", "a", "f", "c", "b", "e"}
	notifiers := []config.Notifier{direct("dm")}
	for _, n := range names {
		notifiers = append(notifiers, hook(n))
	}
	s := newSite(t, notifiers...)
	i := s.incident("a")
	s.add(i, store.NewDelivery{Kind: delivery.Bulk, Notifier: names[0], Target: "url"})
	for _, n := range names[1:] {
		s.add(i, anEvent(n))
	}
	s.add(i, aPage("dm", "ana", 0))
	var mu sync.Mutex
	var got []string
	s.start("first", hooks{provider: func(n string) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, n)
	}})
	s.settled()
	mu.Lock()
	defer mu.Unlock()
	if want := slices.Concat([]string{"dm"}, names[1:], names[:1]); !slices.Equal(got, want) {
		t.Errorf("prepared %v, want %v", got, want)
	}
}

// A nudge wakes a worker that sleeps, and the time of the earliest row is kept without one.
func TestWokenByNudgeAndByTime(t *testing.T) {
	t.Parallel()
	s := newSite(t, hook("audit"))
	s.change(func(f *config.File) { f.Worker.Poll = time.Hour })
	i := s.incident("a")
	soon := s.add(i, store.NewDelivery{Kind: delivery.Event, Notifier: "audit", Target: "url", Delay: 300 * time.Millisecond})
	w := s.start("first")
	s.waitFor(soon[0], delivery.Sent)
	s.until("sleep", w.line.asleep)
	nudged := s.add(i, anEvent("audit"))
	w.Nudge(get[time.Time](s, "select clock_timestamp()"))
	s.waitFor(nudged[0], delivery.Sent)
}

// A notifier that the replica's file does not know is left alone: another replica may know it.
func TestUnknownNotifierIsLeftPending(t *testing.T) {
	t.Parallel()
	s := newSite(t, hook("audit"))
	i := s.incident("a")
	theirs := s.add(i, anEvent("theirs"))[0]
	s.start("first")
	s.waitFor(s.add(i, anEvent("audit"))[0], delivery.Sent)
	if r := s.row(theirs); r.State != "pending" || r.Version != 0 {
		t.Errorf("the worker touched it: %+v", r)
	}
	s.change(func(f *config.File) { f.Notifiers["theirs"] = hook("theirs") })
	s.waitFor(theirs, delivery.Sent)
}

// A notifier that is off: nothing is made, and what was made stays sent although it can't be edited.
func TestNotifierThatIsOff(t *testing.T) {
	t.Parallel()
	s := newSite(t, channel("ops"))
	i := s.incident("a")
	out := s.add(i, aCard("ops"))[0]
	w := s.start("first")
	s.waitFor(out, delivery.Sent)
	w.reload(s, func(f *config.File) {
		n := f.Notifiers["ops"]
		n.Off = true
		f.Notifiers["ops"] = n
	})
	never := s.add(s.incident("b"), aCard("ops"))[0]
	if r := s.waitFor(never, delivery.Unreachable); r.Reason != "notifier_off" || r.Sentence == "" || r.Attempts != 0 {
		t.Errorf("%+v", r)
	}
	s.becomes(i, message.Acknowledged)
	s.until("the edit's end", func() bool { return s.row(out).Reason == "edit_failed" })
	if r := s.row(out); r.State != "sent" || r.Attempts != 1 {
		t.Errorf("%+v", r)
	}
	s.until("one death", func() bool { return w.deaths.Load() == 1 })
}

// A person is resolved when the call is made; once an attempt is in doubt it stays with the first (C16).
func TestPersonIsResolvedAtTheCall(t *testing.T) {
	t.Parallel()
	for _, doubt := range []bool{false, true} {
		t.Run(fmt.Sprintf("doubt=%v", doubt), func(t *testing.T) {
			t.Parallel()
			s := newSite(t, direct("dm"))
			link := func(account string) func(*config.File) {
				return func(f *config.File) {
					f.Notifiers["dm"] = retries(f.Notifiers["dm"], slow)
					f.Users = []config.User{{ID: "ana", Name: "Ana", Contacts: []config.Contact{{Via: "dm", Address: account}}}}
				}
			}
			s.change(link("U-FIRST"))
			d := s.desk("dm").says(func(_ context.Context, n int, c provider.Call) delivery.Result {
				switch {
				case n > 1:
					return took(n, c)
				case doubt:
					return lostIt
				}
				return refused
			})
			id := s.add(s.incident("a"), aPage("dm", "ana", 0))[0]
			w := s.start("first")
			s.until("the wait", func() bool { return s.row(id).Tries == 1 })
			w.reload(s, link("U-SECOND"))
			s.move(2 * time.Hour)
			s.waitFor(id, delivery.Sent)
			want := "U-SECOND"
			if doubt {
				want = "U-FIRST"
			}
			if got := d.called(2).Address; got != want {
				t.Errorf("the second call goes to %s, want %s", got, want)
			}
			if a, b := d.called(1), d.called(2); a.Key != b.Key {
				t.Errorf("a retry is another effect: %s, %s", a.Key, b.Key)
			}
		})
	}
}

// Rule 16: an override that is made after the alert came in counts, and once it has ended the layer does.
func TestPersonOfAnOverrideIsResolvedAtTheCall(t *testing.T) {
	t.Parallel()
	s := newSite(t, direct("dm"))
	s.change(func(f *config.File) {
		f.Notifiers["dm"] = retries(f.Notifiers["dm"], slow)
		f.Users = []config.User{
			{ID: "ana", Name: "Ana", Contacts: []config.Contact{{Via: "dm", Address: "U0ANA"}}}, {ID: "bo", Name: "Bo", Contacts: []config.Contact{{Via: "dm", Address: "U0BO"}}},
		}
		f.Schedules = []oncall.Schedule{{ID: "primary", Zone: time.UTC, Layers: []oncall.Layer{{Users: [][]string{{"ana"}}}}}}
	})
	d := s.desk("dm").says(func(_ context.Context, n int, c provider.Call) delivery.Result {
		if n < 3 {
			return refused
		}
		return took(n, c)
	})
	page := aPage("dm", "", 0)
	page.Target = "schedule:primary"
	id := s.add(s.incident("a"), page)[0]
	s.start("first")
	s.until("the first wait", func() bool { return s.row(id).Tries == 1 })
	override := store.Override{ID: store.NewID(), Schedule: "primary", User: "bo", Author: "Bo"}
	s.tx(func(tx *store.Tx) error {
		override.Start, override.End = tx.Now(), tx.Now().Add(24*time.Hour)
		return tx.AddOverride(t.Context(), override)
	})
	s.move(2 * time.Hour)
	s.until("the second wait", func() bool { return s.row(id).Tries == 2 })
	s.tx(func(tx *store.Tx) error {
		_, err := tx.EndOverride(t.Context(), "primary", override.ID, "Bo")
		return err
	})
	s.move(2 * time.Hour)
	s.waitFor(id, delivery.Sent)
	for n, want := range []string{"U0ANA", "U0BO", "U0ANA"} {
		if got := d.called(n + 1).Address; got != want {
			t.Errorf("call %d goes to %s, want %s", n+1, got, want)
		}
	}
}

// Rule 9: the hand-off comes while a page's attempt is in doubt: the repeat goes to the first one and speaks to them, also
// where the file takes the address from a secret and the row has none of it.
func TestDoubtBindsThePersonAcrossAHandOff(t *testing.T) {
	t.Parallel()
	for _, secret := range []bool{false, true} {
		t.Run(fmt.Sprintf("secret=%v", secret), func(t *testing.T) {
			t.Parallel()
			s := newSite(t, direct("dm"))
			if secret {
				s.redact = strings.NewReplacer("U0FIRST", "${FIRST}", "U0SECOND", "${SECOND}").Replace
			}
			onCall := func(id string) func(*config.File) {
				return func(f *config.File) {
					f.Users = []config.User{
						{ID: "ana", Name: "Ana", Contacts: []config.Contact{{Via: "dm", Address: "U0FIRST"}}},
						{ID: "bo", Name: "Bo", Contacts: []config.Contact{{Via: "dm", Address: "U0SECOND"}}},
					}
					f.Schedules = []oncall.Schedule{{ID: "primary", Zone: time.UTC, Layers: []oncall.Layer{{Users: [][]string{{id}}}}}}
				}
			}
			s.change(onCall("ana"))
			d := s.desk("dm").says(func(_ context.Context, n int, c provider.Call) delivery.Result {
				if n > 1 {
					return took(n, c)
				}
				s.change(onCall("bo"))
				return lostIt
			})
			page := aPage("dm", "", 0)
			page.Target = "schedule:primary"
			i := s.incident("a")
			var over []string // how far the page was when somebody else was given one of their own
			s.handOver = func(_ context.Context, incident, page uuid.UUID) error {
				over = append(over, fmt.Sprintf("%t after %d calls", incident == i.id, len(d.all())))
				if len(over) == 1 {
					return errors.New("the database is away")
				}
				return nil
			}
			id := s.add(i, page)[0]
			w := s.start("first")
			s.until("the hand-over that fails", func() bool {
				return len(w.logs.FilterMessage("a page could not be handed over, giving it back").All()) == 1
			})
			s.move(time.Minute)
			s.waitFor(id, delivery.Sent)
			w.stop()
			if want := []string{"true after 1 calls", "true after 1 calls"}; !slices.Equal(over, want) {
				t.Errorf("handed over: %q", over)
			}
			for n, c := range d.all() {
				if c.Address != "U0FIRST" || !strings.HasPrefix(c.Message.Text, "Ana, ") {
					t.Errorf("call %d goes to %s and says %q", n+1, c.Address, c.Message.Text)
				}
			}
			for _, a := range s.attempts(id) {
				if want := map[bool]string{false: "U0FIRST", true: "${FIRST}"}[secret]; a.Address != want {
					t.Errorf("the row has %q", a.Address)
				}
			}
		})
	}
}

// Nobody to send to: no call, no attempt, dead at once.
func TestNobodyToSendTo(t *testing.T) {
	t.Parallel()
	s := newSite(t, direct("dm"))
	s.accounts = nil
	id := s.add(s.incident("a"), aPage("dm", "ana", 0))[0]
	w := s.start("first")
	if r := s.waitFor(id, delivery.Unreachable); r.Reason != "no_linked_account" || r.Attempts != 0 || r.Leased {
		t.Errorf("%+v", r)
	}
	s.until("its death is told", func() bool { return w.deaths.Load() == 1 })
	if n := len(s.desk("dm").all()); n != 0 {
		t.Errorf("%d calls were made", n)
	}
}
