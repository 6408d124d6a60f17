package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"go.uber.org/zap/zapcore"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/message"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
)

// C17: the database refuses the result of a call for 30 s by its clock: the result is recorded after, there is no second
// message.
func TestDatabaseRefusesTheResultForAWhile(t *testing.T) {
	t.Parallel()
	s := newSite(t, direct("dm"))
	d := s.desk("dm").says(func(_ context.Context, n int, c provider.Call) delivery.Result {
		s.alter("alter table attempt rename to attempt_away")
		return took(n, c)
	})
	id := s.add(s.incident("a"), aPage("dm", "ana", 0))[0]
	w := s.start("first")
	s.until("three refusals", func() bool { return w.logs.FilterMessageSnippet("recording results failed").Len() >= 3 })
	s.move(30 * time.Second)
	other := s.start("second") // it finds nothing to do
	s.until("the other worker's look", func() bool { return other.line.executed("EarliestDue") > 0 })
	if r := s.row(id); !r.Open || r.State != "pending" || r.Worker != "first" {
		t.Errorf("%+v", r)
	}
	s.alter("alter table attempt_away rename to attempt")
	s.waitFor(id, delivery.Sent)
	if got := s.outcomes(id); got != "[create sent by worker]" || len(d.all()) != 1 {
		t.Errorf("%s, %d calls", got, len(d.all()))
	}
}

// C17, rule 7: a known answer is recorded past a shutdown that comes while the database refuses it.
func TestKnownAnswerOutlivesTheShutdown(t *testing.T) {
	t.Parallel()
	s := newSite(t, direct("dm"))
	d := s.desk("dm").says(func(_ context.Context, n int, c provider.Call) delivery.Result {
		s.alter("alter table attempt rename to attempt_away")
		return took(n, c)
	})
	id := s.add(s.incident("a"), aPage("dm", "ana", 0))[0]
	w := s.start("first")
	s.until("a refusal", func() bool { return w.logs.FilterMessageSnippet("recording results failed").Len() >= 1 })
	stopped := make(chan bool)
	go func() {
		w.stopWithin(time.Millisecond) // no grace is left
		close(stopped)
	}()
	s.until("two more refusals", func() bool { return w.logs.FilterMessageSnippet("recording results failed").Len() >= 3 })
	s.alter("alter table attempt_away rename to attempt")
	s.comes("the end of the worker", stopped)
	if r := s.row(id); r.State != "sent" || len(d.all()) != 1 {
		t.Errorf("%+v, %d calls", r, len(d.all()))
	}
}

// Every write of the worker, lost on the way and lost on the way back: "failed", and "failed but it happened". Both end
// with one call, one attempt, one result, and what follows a result.
func TestEachWriteLostBothWays(t *testing.T) {
	t.Parallel()
	for _, statement := range []string{"Claim", commit, "Contents", "Apply", "Begin", "Finish"} {
		for _, happened := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s happened=%v", statement, happened), func(t *testing.T) {
				t.Parallel()
				s := newSite(t, channel("ops"), direct("dm"))
				s.linker("ops")
				c := aCard("ops")
				ids := s.add(s.incident("a"), c, aThread(c), aPage("dm", "ana", 24*time.Hour))
				w := s.ready("first")
				w.line.lose(lineFault{statement: statement, answer: happened, times: 1})
				w.run()
				s.until("the fault", func() bool { return w.line.met(statement) == 1 })
				if statement == commit && happened {
					// A claim that took place without the worker's knowing leaves leases that run out without doubt. A
					// batch that it knows goes back as soon as the database answers.
					s.until("the end of all, or a lease", func() bool {
						return get[int](s, "select count(*)::int from delivery where next_at is not null and lease_token is null and next_at <= clock_timestamp()") == 0
					})
					s.lapse()
				}
				s.settled()
				for n, id := range ids {
					want := []string{"[create sent by worker]", "[reply sent by worker]", "[create sent by worker]"}[n]
					if got := s.outcomes(id); got != want {
						t.Errorf("%d: %s\n%s", n, got, s.dump())
					}
				}
				if cards, pages := len(s.provider("ops").(*linker).all()), s.desk("dm").all(); cards != 2 || len(pages) != 1 || link(pages[0]) == "" {
					t.Errorf("%d calls for card and thread, pages %+v", cards, pages)
				}
				w.quiet()
			})
		}
	}
}

// A death whose commit was answered by nothing is told all the same.
func TestDeathIsToldAfterALostAnswer(t *testing.T) {
	t.Parallel()
	s := newSite(t, hook("audit"))
	s.desk("audit").says(always(delivery.Result{Outcome: delivery.OutcomeFailed, Evidence: delivery.Answered, Fault: delivery.FaultDestination, Reason: "destination:http_404"}))
	id := s.add(s.incident("a"), anEvent("audit"))[0]
	w := s.ready("first")
	w.line.lose(lineFault{statement: "Finish", answer: true, times: 1})
	w.run()
	s.waitFor(id, delivery.Rejected)
	s.until("the death is told", func() bool { return w.deaths.Load() > 0 })
}

// lock holds a delivery's row until the test unlocks it, as somebody's slow transaction does.
func (s *site) lock(id uuid.UUID) (unlock func()) {
	s.t.Helper()
	tx, err := s.db.Begin(s.ctx())
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := tx.Exec(s.ctx(), "select 1 from delivery where id = $1 for update", id); err != nil {
		s.t.Fatal(err)
	}
	return func() {
		if err := tx.Rollback(context.WithoutCancel(s.ctx())); err != nil && !errors.Is(err, pgx.ErrTxClosed) {
			s.t.Error(err)
		}
	}
}

// Results that come while the writer waits are written together. One of them has moved, and looking at it fails: the
// others stand and have left, and are not written, left or counted again.
func TestRestOfABatchFails(t *testing.T) {
	t.Parallel()
	s := newSite(t, hook("audit"))
	first, others := s.gate(), s.gate()
	ids := s.events(s.incident("a"), "audit", 3)
	d := s.desk("audit").says(func(_ context.Context, n int, c provider.Call) delivery.Result {
		if c.Key == ids[0].String()+":1" {
			first.pass()
		} else {
			others.pass()
		}
		return took(n, c)
	})
	w := s.start("first")
	d.called(3)
	unlock := s.lock(ids[0])
	defer unlock()
	first.open()
	s.until("the writer waits", func() bool { return w.line.executed("Finish") == 1 })
	s.exec("update delivery set version = version + 1 where id = $1", ids[2]) // something was noted on the last
	others.open()
	s.until("both are done", func() bool { now, _ := d.underway(); return now == 0 })
	w.line.lose(lineFault{statement: "LockDeliveriesByID", times: 1})
	unlock()
	s.settled()
	w.stop() // would never end, or panic, were a job left twice
	if w.line.met("LockDeliveriesByID") != 1 {
		t.Fatal("the look at the moved row did not fail: the test is void")
	}
	if n := counted(t, w.metrics.Attempts.WithLabelValues("audit", "event", "sent")); n != 3 {
		t.Errorf("%v attempts are counted", n)
	}
	for _, id := range ids {
		if got := s.outcomes(id); got != "[create sent by worker]" {
			t.Error(got)
		}
	}
}

// One result that the database refuses, or whose row somebody holds longer than a statement waits, holds up no other, and
// is recorded once the database takes it.
func TestRefusedResultHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	for name, code := range map[string]string{"a constraint": refusal, "a held row": "55P03"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, hook("audit"))
			ids := s.events(s.incident("a"), "audit", 8)
			refuse(s, ids[0], code)
			w := s.start("first")
			for _, id := range ids[1:] {
				s.waitFor(id, delivery.Sent)
			}
			if r := s.row(ids[0]); !r.Open {
				t.Errorf("%+v", r)
			}
			s.alter("drop trigger refuse on attempt")
			s.waitFor(ids[0], delivery.Sent)
			if calls := s.desk("audit").all(); len(calls) != 8 {
				t.Errorf("%d calls", len(calls))
			}
			w.quiet()
		})
	}
}

// refusal is the code of a check constraint that says no.
const refusal = "23514"

// refuse makes the schema refuse the results of one delivery's attempts, with a code.
func refuse(s *site, id uuid.UUID, code string) {
	s.exec(fmt.Sprintf(`create function refuse() returns trigger language plpgsql as $$ begin
		if new.delivery_id = '%s' and new.closed_by = 'worker' then raise exception 'never' using errcode = '%s'; end if; return new; end $$`, id, code))
	s.alter("create trigger refuse before update on attempt for each row execute function refuse()")
}

// A result that is refused until its lease is over is given up loudly, and taken over as unknown: the place is free again.
func TestRefusedResultIsGivenUpWithItsLease(t *testing.T) {
	t.Parallel()
	n := hook("audit")
	n.Timeout, n.Concurrency = 10*time.Millisecond, 1
	s := newSite(t, n)
	s.change(func(f *config.File) { f.Worker.Lease = 1200 * time.Millisecond })
	i := s.incident("a")
	id := s.add(i, anEvent("audit"))[0]
	refuse(s, id, refusal)
	w := s.start("first")
	s.until("the takeover", func() bool { return counted(t, w.metrics.Takeovers) > 0 })
	s.alter("drop trigger refuse on attempt")
	s.settled()
	a := s.attempts(id)
	if a[0].Outcome != "unknown" || a[0].ClosedBy != "takeover" || a[len(a)-1].Outcome != "sent" {
		t.Errorf("%+v", a)
	}
	if w.logs.FilterLevelExact(zapcore.ErrorLevel).FilterMessageSnippet("refused by the database").Len() == 0 {
		t.Error("nobody was told")
	}
}

// An attempt's row that a fail-over lost is written again with its result: the call was made, and the history says so.
func TestLostAttemptRowIsWrittenAgain(t *testing.T) {
	t.Parallel()
	s := newSite(t, direct("dm"))
	g := s.gate()
	d := s.desk("dm").says(g.held(took))
	id := s.add(s.incident("a"), aPage("dm", "ana", 0))[0]
	s.start("first")
	d.called(1)
	s.exec("delete from attempt where delivery_id = $1", id)
	g.open()
	s.waitFor(id, delivery.Sent)
	s.until("the row", func() bool { return len(s.attempts(id)) == 1 })
	if a := s.attempts(id)[0]; a.Reason != "row_lost" || a.Outcome != "sent" || a.Worker != "first" {
		t.Errorf("%+v", a)
	}
}

// What a provider answers fits into a row, whatever it is.
func TestAnswersThatFitNoRow(t *testing.T) {
	t.Parallel()
	poison := "a\x00b\xff" + strings.Repeat("c", 10)
	odd := map[string]delivery.Result{
		"nothing":       {},
		"poisoned":      {Outcome: delivery.OutcomeUnknown, Evidence: delivery.PossiblySent, Reason: poison, Sentence: poison, Code: poison, Error: poison, Answer: poison},
		"made up":       {Outcome: "perhaps", Evidence: "hearsay", Fault: "bad luck"},
		"contradictory": {Outcome: delivery.OutcomeFailed, Evidence: delivery.PossiblySent, Fault: delivery.FaultPayload, Reason: "payload:x"},
	}
	s := newSite(t, hook("audit"))
	for name := range odd {
		s.change(func(f *config.File) { f.Notifiers[name] = hook(name) })
		s.desk(name).says(func(_ context.Context, n int, c provider.Call) delivery.Result {
			if n == 1 {
				return odd[name]
			}
			r := took(n, c)
			r.Reference = delivery.Reference{SID: poison, Permalink: poison, Channel: poison, TS: poison}
			return r
		})
	}
	i := s.incident("a")
	ids := map[string]uuid.UUID{}
	for name := range odd {
		ids[name] = s.add(i, anEvent(name))[0]
	}
	w := s.start("first")
	for name, id := range ids {
		s.waitFor(id, delivery.Sent)
		if got := s.outcomes(id); got != "[create unknown by worker create sent by worker]" {
			t.Errorf("%s: %s", name, got)
		}
	}
	w.quiet()
}

// A provider that panics has proven nothing: unknown, tried again, and the process lives.
func TestProviderPanics(t *testing.T) {
	t.Parallel()
	s := newSite(t, direct("dm"))
	s.desk("dm").says(func(_ context.Context, n int, c provider.Call) delivery.Result {
		if n == 1 {
			panic("nil map")
		}
		return took(n, c)
	})
	id := s.add(s.incident("a"), aPage("dm", "ana", 0))[0]
	s.start("first")
	s.waitFor(id, delivery.Sent)
	if a := s.attempts(id); len(a) != 2 || a[0].Outcome != "unknown" || a[0].Reason != "slack:panic" || !strings.Contains(a[0].Error, "nil map") {
		t.Errorf("%+v", a)
	}
}

// A fault of ours while a delivery is prepared ends that delivery, loudly, and no other.
func TestPreparationPanics(t *testing.T) {
	t.Parallel()
	s := newSite(t, direct("dm"), hook("bad"))
	i := s.incident("a")
	ids := s.add(i, anEvent("bad"), aPage("dm", "ana", 0))
	w := s.start("first", hooks{provider: func(n string) {
		if n == "bad" {
			panic("no such provider")
		}
	}})
	s.waitFor(ids[1], delivery.Sent)
	if r := s.waitFor(ids[0], delivery.Rejected); r.Reason != "payload:compose" || r.Sentence == "" {
		t.Errorf("%+v", r)
	}
	s.until("its death is told", func() bool { return w.deaths.Load() == 1 })
}

// A refusal that the provider makes by itself, before any call, ends the delivery; it is not tried again without a pause.
func TestRefusedWithoutACall(t *testing.T) {
	t.Parallel()
	s := newSite(t, hook("audit"))
	s.desk("audit").says(always(delivery.Result{Outcome: delivery.OutcomeFailed, Evidence: delivery.NotCalled, Fault: delivery.FaultPayload, Reason: "payload:json", Sentence: "Report it."}))
	id := s.add(s.incident("a"), anEvent("audit"))[0]
	s.start("first")
	s.waitFor(id, delivery.Rejected)
	if n := len(s.desk("audit").all()); n != 1 {
		t.Errorf("%d tries", n)
	}
}

// A content that is not there, or is not what it should be, is no reason to try for ever.
func TestContentThatCannotBeShown(t *testing.T) {
	t.Parallel()
	s := newSite(t, channel("ops"))
	i := s.incident("a")
	s.exec(`update content set body = '[1]' where id = $1`, i.id)
	id := s.add(i, aCard("ops"))[0]
	s.start("first")
	if r := s.waitFor(id, delivery.Rejected); r.Reason != "payload:compose" || !strings.Contains(r.Sentence, "content") {
		t.Errorf("%+v", r)
	}
}

// D18: all connections are dropped again and again under load. The worker comes back by itself; nothing is lost, and
// nothing is sent twice without a doubt before it.
func TestConnectionsAreDroppedUnderLoad(t *testing.T) {
	t.Parallel()
	s := newSite(t, hook("audit"), direct("dm"))
	i := s.incident("a")
	ids := s.events(i, "audit", 60)
	for range 10 {
		ids = append(ids, s.add(i, aPage("dm", "ana", 0))...)
	}
	var workers []*hand
	for _, name := range []string{"first", "second"} {
		workers = append(workers, s.start(name))
	}
	drop := func() {
		s.exec("select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and application_name = 'tocsin' and pid <> pg_backend_pid()")
	}
	for n := 5; n < 50; n += 9 {
		s.desk("audit").called(n)
		drop()
	}
	// Claims whose answer was dropped left leases that nobody knows: they end.
	s.until("the end of all that is known", func() bool {
		return get[int](s, "select count(*)::int from delivery where next_at is not null and lease_token is null") == 0
	})
	for s.unsettled() {
		s.lapse()
		s.until("the leases' end", func() bool {
			return !s.unsettled() || get[int](s, "select count(*)::int from delivery where next_at is not null and (lease_token is null or lease_until <= clock_timestamp())") == 0
		})
	}
	for _, w := range workers {
		w.stop()
		w.quiet()
	}
	doubts(t, s, ids, slices.Concat(s.desk("audit").all(), s.desk("dm").all()))
	s.becomes(i, message.Resolved)
}

func (s *site) unsettled() bool {
	s.t.Helper()
	return get[int](s, "select count(*)::int from delivery where next_at is not null") > 0
}

// D16 in small: three replicas, a receiver that is down and then up, replicas killed meanwhile: nothing is lost, and
// duplicates only where an attempt was in doubt.
func TestReceiverDownAndReplicasKilled(t *testing.T) {
	t.Parallel()
	n := hook("audit")
	n.Concurrency = 3
	s := newSite(t, retries(n, delivery.Retries{Delay: time.Minute, MaxDelay: 5 * time.Minute}))
	const alerts = 40
	ids := s.events(s.incident("a"), "audit", alerts)
	frozen := s.gate()
	d := s.desk("audit").says(always(refused))
	workers := map[string]*hand{}
	for _, name := range []string{"first", "second", "third"} {
		workers[name] = s.start(name)
	}
	s.until("a first try of each", func() bool { return get[int](s, "select count(*)::int from delivery where tries > 0") == alerts })
	// It takes messages now, and is slow to say so.
	d.says(func(_ context.Context, n int, c provider.Call) delivery.Result {
		if n%4 == 0 {
			frozen.pass()
		}
		return took(n, c)
	})
	s.move(2 * time.Minute)
	s.until("calls in flight", func() bool { now, _ := d.underway(); return now >= 3 })
	workers["first"].kill()
	workers["second"].kill()
	d.says(nil)
	for s.unsettled() {
		s.lapse()
		s.until("one more round", func() bool {
			return !s.unsettled() || get[int](s, "select count(*)::int from delivery where next_at <= clock_timestamp()") == 0
		})
	}
	doubts(t, s, ids, d.all())
	workers["third"].quiet()
}
