package worker_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
)

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
