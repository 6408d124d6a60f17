package worker_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
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

// prober is a desk that can be asked whether its account is well.
type prober struct {
	*desk
	mu    sync.Mutex
	codes []string
	probe func(ctx context.Context) delivery.Result
}

func (p *prober) Probe(ctx context.Context, code string) delivery.Result {
	p.mu.Lock()
	p.codes = append(p.codes, code)
	probe := p.probe
	p.mu.Unlock()
	return probe(ctx)
}

func (p *prober) says(probe func(ctx context.Context) delivery.Result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.probe = probe
}

func (p *prober) asked() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.codes)
}

// trouble is a site whose account refuses everything until it is mended. It has two notifiers with one token, and one aside.
func trouble(t *testing.T) (s *site, p *prober, mend func()) {
	t.Helper()
	s = newSite(t, channel("ops"), direct("dm"), aside(channel("another")))
	var mu sync.Mutex
	well := false
	p = &prober{desk: newDesk(t).says(func(_ context.Context, n int, c provider.Call) delivery.Result {
		mu.Lock()
		defer mu.Unlock()
		if !well {
			return revoked
		}
		return took(n, c)
	}), probe: func(context.Context) delivery.Result { return revoked }}
	s.provide("ops", p)
	s.provide("dm", p)
	return s, p, func() {
		mu.Lock()
		defer mu.Unlock()
		well = true
	}
}

// probeNow makes the account's probe due.
func (s *site) probeNow() { s.t.Helper(); s.exec("update pause set probe_at = clock_timestamp()") }

// An account that refuses everything is told of once; all that goes through it waits with the reason, through every notifier
// with these credentials, on all replicas. It is asked from time to time, and when it is well all leave by themselves.
func TestAccountInTrouble(t *testing.T) {
	t.Parallel()
	s, p, mend := trouble(t)
	first := s.add(s.incident("a"), aCard("ops"))
	one, two := s.start("first"), s.start("second")
	s.waits("account:token_revoked", 0, first...)
	var ids []uuid.UUID
	for n := range 6 {
		i := s.incident(fmt.Sprint(n))
		ids = append(ids, s.add(i, aCard("ops"), aPage("dm", "ana", 0))...)
		if n == 0 {
			s.waitFor(s.add(i, aCard("another"))[0], delivery.Sent)
		}
	}
	s.waits("account:token_revoked", 20*time.Second, ids...)
	for _, id := range ids {
		if r := s.row(id); r.Attempts != 0 || r.Tries != 0 || r.Sentence != revoked.Sentence {
			t.Errorf("%+v", r)
		}
	}
	if r := s.row(first[0]); r.Attempts != 1 || r.Tries != 0 || len(p.all()) != 1 {
		t.Errorf("%+v, %d calls", r, len(p.all()))
	}
	told := one.logs.FilterMessageSnippet("refuses all calls").Len() + two.logs.FilterMessageSnippet("refuses all calls").Len()
	if deaths := one.deaths.Load() + two.deaths.Load(); told != 1 || deaths != 1 {
		t.Errorf("told of %d times in the log, %d times to the scheduler", told, deaths)
	}
	s.until("the gauges", func() bool {
		return gauge(t, one, "ops") == 1 && gauge(t, two, "dm") == 1 && gauge(t, one, "another") == 0
	})

	s.probeNow()
	s.until("a probe", func() bool { return p.asked() == 1 })
	s.until("its end", func() bool { return get[int](s, "select probes from pause") == 1 })
	if n := get[int](s, "select count(*)::int from pause"); n != 1 || len(p.all()) != 1 {
		t.Errorf("%d breakers after a probe that failed, %d calls", n, len(p.all()))
	}
	mend()
	p.says(func(context.Context) delivery.Result {
		return delivery.Result{Outcome: delivery.OutcomeSent, Evidence: delivery.Answered}
	})
	s.probeNow()
	s.settled()
	if p.asked() != 2 || p.codes[1] != "token_revoked" || len(p.all()) != 14 {
		t.Errorf("asked for %v, %d calls", p.codes, len(p.all()))
	}
	s.until("the gauges", func() bool { return gauge(t, one, "ops") == 0 && gauge(t, two, "dm") == 0 })
}

func gauge(t testing.TB, a *hand, notifier string) float64 {
	t.Helper()
	return measured(t, a.metrics.BreakerOpen.WithLabelValues(notifier))
}

// A probe that proves nothing, or that nobody can make, lets one delivery try, on one of the replicas: its answer decides for
// all.
func TestOneTriesForAll(t *testing.T) {
	t.Parallel()
	for name, probe := range map[string]func(context.Context) delivery.Result{
		"proves nothing": func(context.Context) delivery.Result {
			return delivery.Result{Outcome: delivery.OutcomeUnknown, Evidence: delivery.Answered, HTTPStatus: 404}
		},
		"is not there": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p, _ := trouble(t)
			p.says(probe)
			if probe == nil { // the plain desk
				s.provide("ops", p.desk)
				s.provide("dm", p.desk)
			}
			g := s.gate()
			trial := make(chan bool, 10)
			p.desk.says(func(_ context.Context, n int, c provider.Call) delivery.Result {
				switch n {
				case 1, 2:
					return revoked // the first one, and the first trial
				case 3:
					trial <- true
					g.pass()
				}
				return took(n, c)
			})
			ids := s.add(s.incident("0"), aCard("ops"))
			s.start("first")
			s.start("second")
			s.waits("account:token_revoked", 0, ids...)
			for n := range 6 {
				i := s.incident(fmt.Sprint(n + 1))
				ids = append(ids, s.add(i, aCard("ops"), aPage("dm", "bo", 0))...)
			}
			s.waits("account:token_revoked", 20*time.Second, ids...)
			s.probeNow()
			p.called(2)
			s.waits("account:token_revoked", 0, ids...)
			s.until("the end of the trial", func() bool { return get[int](s, "select count(*)::int from pause where trial is null") == 1 })
			s.probeNow()
			s.comes("the second trial", trial)
			s.until("only one under way", func() bool {
				return get[int](s, "select count(*)::int from delivery where lease_token is not null") == 1
			})
			g.open()
			s.settled()
			if n := len(p.all()); n != len(ids)+2 {
				t.Errorf("%d calls of %d deliveries", n, len(ids))
			}
			if n := get[int](s, "select count(*)::int from pause"); n != 0 {
				t.Errorf("%d breakers", n)
			}
		})
	}
}

// A probe that says well while every call is refused is believed once: after that a delivery must prove it, and the breaker
// stays open until one does.
func TestProbesWordIsBelievedOnce(t *testing.T) {
	t.Parallel()
	s, p, mend := trouble(t)
	p.says(func(context.Context) delivery.Result {
		return delivery.Result{Outcome: delivery.OutcomeSent, Evidence: delivery.Answered}
	})
	id := s.add(s.incident("a"), aCard("ops"))[0]
	s.start("first")
	s.waits("account:token_revoked", 20*time.Second, id)
	opened := get[string](s, "select since::text from pause")
	s.probeNow()
	s.until("a breaker that opened anew", func() bool {
		return get[int](s, "select count(*)::int from pause where since::text <> $1", opened) == 1
	})
	s.waits("account:token_revoked", 20*time.Second, id)
	opened = get[string](s, "select since::text from pause")
	s.probeNow()
	p.called(3)
	s.waits("account:token_revoked", 20*time.Second, id)
	if again := get[string](s, "select since::text from pause"); again != opened || p.asked() != 2 {
		t.Errorf("the breaker of %s was opened again at %s, after %d probes", opened, again, p.asked())
	}
	mend()
	s.probeNow()
	s.waitFor(id, delivery.Sent)
	s.until("no breaker", func() bool { return get[int](s, "select count(*)::int from pause") == 0 })
}

// A probe that answers with a panic, with silence or with the server's own trouble says nothing of the account: its breaker
// stays open, and what goes elsewhere goes on. A stopping replica does not wait for a probe.
func TestProbeThatSaysNothing(t *testing.T) {
	t.Parallel()
	ended := make(chan error, 1)
	for name, probe := range map[string]func(context.Context) delivery.Result{
		"panic":    func(context.Context) delivery.Result { panic("no such probe") },
		"not sent": func(context.Context) delivery.Result { return refused },
		"503": func(context.Context) delivery.Result {
			return delivery.Result{Outcome: delivery.OutcomeUnknown, Evidence: delivery.Answered, HTTPStatus: 503}
		},
		"throttled": func(context.Context) delivery.Result { return throttled(time.Minute) },
		"hangs": func(ctx context.Context) delivery.Result {
			<-ctx.Done()
			ended <- ctx.Err()
			return lostIt
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p, _ := trouble(t)
			p.says(probe)
			id := s.add(s.incident("a"), aCard("ops"))[0]
			w := s.start("first")
			s.waits("account:token_revoked", 0, id)
			s.probeNow()
			s.until("the probe", func() bool { return p.asked() == 1 })
			s.waitFor(s.add(s.incident("b"), aCard("another"))[0], delivery.Sent)
			if name != "hangs" {
				s.until("its end", func() bool { return w.logs.FilterMessageSnippet("asked whether an account is well").Len() == 1 })
				n := w.line.executed("Pauses")
				s.until("what follows it", func() bool { return w.line.executed("Pauses") >= n+2 })
			}
			if n := get[int](s, "select count(*)::int from pause where trial is null and probes = 1"); n != 1 || len(p.all()) != 1 {
				t.Errorf("%d breakers without a trial, %d calls", n, len(p.all()))
			}
			if name == "hangs" {
				w.stop()
				if err := <-ended; err != context.Canceled { //nolint:errorlint // the context's own
					t.Errorf("the probe ended by %v", err)
				}
				return
			}
			p.says(func(context.Context) delivery.Result {
				return delivery.Result{Outcome: delivery.OutcomeSent, Evidence: delivery.Answered}
			})
			p.desk.says(nil)
			s.probeNow()
			s.waitFor(id, delivery.Sent)
		})
	}
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
