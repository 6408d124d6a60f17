package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/pace"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// paced is a notifier with a pace, so fast that a test need not wait for it.
func paced(n config.Notifier) config.Notifier {
	n.Pace.Destination = pace.Rule{Count: 1, Per: 10 * time.Millisecond}
	return n
}

// aside is a notifier with credentials of its own.
func aside(n config.Notifier) config.Notifier {
	n.Token = "xoxb-of-another-account"
	return n
}

func to(channel string, n config.Notifier) config.Notifier {
	n.Channel = channel
	return n
}

// Answers about destinations and accounts.
func throttled(rest time.Duration) delivery.Result {
	return delivery.Result{Outcome: delivery.OutcomeFailed, Evidence: delivery.Answered, Fault: delivery.FaultThrottled, Reason: "rate_limited", Code: "ratelimited", HTTPStatus: 429, RetryAfter: rest}
}

var (
	archived = delivery.Result{Outcome: delivery.OutcomeFailed, Evidence: delivery.Answered, Fault: delivery.FaultDestination, Reason: "destination:is_archived", Code: "is_archived", Sentence: "Take the channel out of the archive."}
	revoked  = delivery.Result{Outcome: delivery.OutcomeFailed, Evidence: delivery.Answered, Fault: delivery.FaultAccount, Reason: "account:token_revoked", Code: "token_revoked", Sentence: "Make a new token."}
)

// waits waits until each of the deliveries lies in the queue for a reason, with no worker on it and some time to go.
func (s *site) waits(reason string, least time.Duration, ids ...uuid.UUID) {
	s.t.Helper()
	for _, id := range ids {
		s.until(fmt.Sprintf("%s waiting because of %q", id, reason), func() bool {
			r := s.row(id)
			return r.State == "pending" && r.Reason == reason && !r.Leased && *r.DueIn > least.Seconds()
		})
	}
}

// A 429 of one call: nothing more goes to that destination before the provider's time is over, through whichever notifier of
// the account and on whichever replica. Other destinations are not delayed, it costs no try, and then all go in their order.
func TestThrottledDestinationRests(t *testing.T) {
	t.Parallel()
	s := newSite(t, paced(channel("ops")), paced(channel("too")), paced(to("C0OTHER", channel("other"))), paced(aside(channel("another"))))
	d := newDesk(t).says(func(_ context.Context, n int, c provider.Call) delivery.Result {
		if n == 1 {
			return throttled(26 * time.Second)
		}
		return took(n, c)
	})
	s.provide("ops", d)
	s.provide("too", d)
	ids := s.add(s.incident("0"), aCard("ops"))
	s.start("first")
	s.start("second")
	s.waits("rate_limited", 20*time.Second, ids[0])
	for n := range 8 {
		ids = append(ids, s.add(s.incident(fmt.Sprint(n+1)), aCard([]string{"too", "ops"}[n%2]))...)
	}
	i := s.incident("free")
	for _, id := range s.add(i, aCard("other"), aCard("another")) {
		s.waitFor(id, delivery.Sent)
	}
	s.waits("rate_limited", 10*time.Second, ids...)
	if n := len(d.all()); n != 1 {
		t.Errorf("%d calls while it rests", n)
	}
	for _, id := range ids {
		if r := s.row(id); r.Tries != 0 || r.Attempts > 1 {
			t.Errorf("%+v", r)
		}
		if get[string](s, "select coalesce(queue, '') from delivery where id = $1", id) == "" {
			t.Errorf("%s has no place in the queue", id)
		}
	}
	s.move(26 * time.Second)
	s.settled()
	if got, want := keys(d.all())[1:], firstKeys(ids); !slices.Equal(got, want) {
		t.Errorf("after the rest came %v, not %v", got, want)
	}
}

// A server that is not well and says for how long is left alone, though nobody knows what came of the call.
func TestUnknownWithATimeToRest(t *testing.T) {
	t.Parallel()
	s := newSite(t, hook("audit"))
	d := s.desk("audit").says(func(_ context.Context, n int, c provider.Call) delivery.Result {
		if n == 1 {
			r := lostIt
			r.RetryAfter = 10 * time.Minute
			return r
		}
		return took(n, c)
	})
	i := s.incident("a")
	first := s.add(i, anEvent("audit"))
	s.start("first")
	s.start("second")
	s.until("its end", func() bool { r := s.row(first[0]); return r.Doubt && !r.Leased })
	next := s.add(i, anEvent("audit"))
	s.waits("rate_limited", 9*time.Minute, next...)
	if n := len(d.all()); n != 1 {
		t.Errorf("%d calls", n)
	}
	s.move(11 * time.Minute)
	s.settled()
}

// A destination that refuses for good: that delivery is dead, later ones wait a quarter of an hour. A person's word lets it be
// tried at once, on all replicas, whatever they have read before, and what waits for it follows, with a pace or without.
func TestRefusedDestinationRests(t *testing.T) {
	t.Parallel()
	for name, n := range map[string]config.Notifier{"paced": paced(channel("ops")), "not paced": channel("ops")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, n)
			d := s.desk("ops").says(func(_ context.Context, n int, c provider.Call) delivery.Result {
				if n == 1 {
					return archived
				}
				return took(n, c)
			})
			i := s.incident("a")
			dead := s.add(i, aCard("ops"))[0]
			s.start("first")
			s.start("second")
			s.waitFor(dead, delivery.Rejected)
			next := s.add(s.incident("b"), aCard("ops"))[0]
			s.waits("paused", 14*time.Minute, next)
			if r := s.row(next); r.Sentence != archived.Sentence {
				t.Errorf("%+v", r)
			}
			s.sendAgain(i, dead)
			s.waitFor(dead, delivery.Sent)
			s.move(6 * time.Second)
			s.waitFor(next, delivery.Sent)
			if n := len(d.all()); n != 3 {
				t.Errorf("%d calls", n)
			}
		})
	}
}

// Where the destination refuses what was sent again, it rests anew before what waits for it is tried: one call, and one is dead.
func TestDestinationRefusesAgain(t *testing.T) {
	t.Parallel()
	s := newSite(t, channel("ops"))
	d := s.desk("ops").says(func(context.Context, int, provider.Call) delivery.Result { return archived })
	i := s.incident("a")
	dead := s.add(i, aCard("ops"))[0]
	s.start("first")
	s.waitFor(dead, delivery.Rejected)
	next := s.add(s.incident("b"), aCard("ops"))[0]
	s.waits("paused", 14*time.Minute, next)
	s.sendAgain(i, dead)
	s.until("the second refusal", func() bool { return len(d.all()) == 2 })
	s.waitFor(dead, delivery.Rejected)
	s.move(6 * time.Second)
	s.waits("paused", 14*time.Minute, next)
	if n := len(d.all()); n != 2 {
		t.Errorf("%d calls", n)
	}
}

// sendAgain is a person's word on a dead delivery.
func (s *site) sendAgain(i *incident, id uuid.UUID) {
	s.t.Helper()
	s.tx(func(tx *store.Tx) error {
		if _, err := tx.LockIncident(s.ctx(), i.id); err != nil {
			return err
		}
		row, err := tx.Delivery(s.ctx(), id)
		if err != nil {
			return err
		}
		step, err := row.Decide(delivery.SendAgain)
		if err != nil {
			return err
		}
		if err := tx.LiftPause(s.ctx(), id, s.file.Load().Notifiers["ops"].Account(), time.Time{}); err != nil {
			return err
		}
		return tx.Apply(s.ctx(), step)
	})
}

// A card that a pause, a throttle or a breaker keeps back holds up no page: it leaves at once, without a link.
func TestPageLeavesWhileItsCardIsKeptBack(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]delivery.Result{"throttled": throttled(time.Hour), "paused": archived, "account": revoked} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, paced(channel("ops")), aside(direct("dm")))
			s.desk("ops").says(always(r))
			first := s.add(s.incident("a"), aCard("ops"))[0]
			s.start("first")
			s.start("second")
			s.until("the pause", func() bool { return !s.row(first).Leased && s.row(first).Attempts == 1 })
			ids := s.add(s.incident("b"), aCard("ops"), aPage("dm", "ana", time.Hour))
			s.waitFor(ids[1], delivery.Sent)
			if got := link(s.desk("dm").called(1)); got != "" {
				t.Errorf("it carries %q", got)
			}
			if r := s.row(ids[0]); r.State != "pending" || r.Attempts != 0 {
				t.Errorf("the card: %+v", r)
			}
		})
	}
}

// A page that is kept back longer than its bound is overdue; its escalation is told by that. It is sent after all, and then is
// not.
func TestPageThatIsKeptBackIsOverdue(t *testing.T) {
	t.Parallel()
	s := newSite(t, direct("dm"))
	s.desk("dm").says(func(_ context.Context, n int, c provider.Call) delivery.Result {
		if n == 1 {
			return throttled(26 * time.Second)
		}
		return took(n, c)
	})
	i := s.incident("a")
	tried := s.add(i, aPage("dm", "ana", 0))[0]
	s.start("first")
	s.waits("rate_limited", 10*time.Second, tried)
	kept := s.add(i, aPage("dm", "ana", 0))[0]
	free := s.add(i, aPage("dm", "bo", 0))[0]
	s.waits("rate_limited", 10*time.Second, kept)
	s.waitFor(free, delivery.Sent)
	overdue := func() string {
		return get[string](s, "select coalesce(string_agg(id::text, ' ' order by id), '') from delivery where overdue = 1")
	}
	if got := overdue(); got != tried.String()+" "+kept.String() {
		t.Errorf("overdue: %s", got)
	}
	s.move(26 * time.Second)
	s.settled()
	if got := overdue(); got != "" {
		t.Errorf("sent, and overdue: %s", got)
	}
}

// The chat gives no answer to whose account it is. That says nothing of the person: the page does not die of it, it is overdue, so that its
// escalation goes on without it, and it leaves as soon as the chat answers.
func TestPageWhoseAccountCannotBeAskedForIsKeptBack(t *testing.T) {
	t.Parallel()
	s := newSite(t, direct("dm"))
	s.change(func(f *config.File) { f.Users = append(f.Users, config.User{ID: "cho", Email: "cho@example.com"}) })
	var well atomic.Bool
	a := s.start("first", hooks{find: func(user string) (bool, error) {
		if user != "cho" || !well.Load() {
			return false, errors.New("slack: rate_limited")
		}
		s.change(func(f *config.File) {
			f.Users = []config.User{{ID: "cho", Email: "cho@example.com", Contacts: []config.Contact{{Via: "dm", Address: "U0CHO"}}}}
		})
		return true, nil
	}})
	page := s.add(s.incident("a"), aPage("dm", "cho", 0))[0]
	s.waits("no_linked_account", 0, page)
	s.move(30 * time.Second) // a minute later it is asked seldom, and overdue
	s.waits("no_linked_account", 5*time.Second, page)
	if n := get[int](s, "select count(*)::int from delivery where overdue = 1"); n != 1 || a.deaths.Load() != 0 {
		t.Errorf("%d overdue, %d deaths", n, a.deaths.Load())
	}
	well.Store(true)
	s.move(time.Minute)
	s.waitFor(page, delivery.Sent)
}
