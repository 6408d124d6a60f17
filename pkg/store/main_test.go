package store_test

import (
	"context"
	"flag"
	"os"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/store"
	"github.com/tocsin-oncall/tocsin/pkg/store/storetest"
)

func TestMain(m *testing.M) {
	// A check of the model is some hundred statements, so there are fewer than rapid's hundred; -rapid.checks asks for more.
	for name, value := range map[string]string{"rapid.checks": "25", "rapid.nofailfile": "true"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(storetest.Main(m))
}

// Two replicas, the lease that both ask for, and the notifier that the deliveries of most tests go through.
const (
	alpha = "replica-a"
	beta  = "replica-b"
	lease = time.Minute
	ops   = "ops"
)

// site is a database of the test's own, a store on it and a connection to look and meddle with.
type site struct {
	*store.Store
	t   testing.TB
	url string
	db  *pgx.Conn
}

func newSite(t testing.TB) *site { return siteAt(t, storetest.New(t)) }

func siteAt(t testing.TB, url string) *site {
	t.Helper()
	return &site{Store: open(t, url), t: t, url: url, db: connect(t, url)}
}

// open opens a store. On a machine that many tests share, a connection may once take longer than production allows it.
func open(t testing.TB, url string) *store.Store {
	t.Helper()
	for try := 1; ; try++ {
		s, err := store.Open(t.Context(), url, store.Options{MaxConnections: 8})
		if err == nil {
			t.Cleanup(s.Close)
			return s
		}
		if try == 3 {
			t.Fatal(err)
		}
	}
}

// connect opens a plain connection. Its lock_timeout turns a deadlock of the test into a failure.
func connect(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.WithoutCancel(t.Context())) })
	if _, err := conn.Exec(t.Context(), "set lock_timeout = '20s'"); err != nil {
		t.Fatal(err)
	}
	return conn
}

func (s *site) ctx() context.Context { return s.t.Context() }

func (s *site) exec(sql string, args ...any) {
	s.t.Helper()
	if _, err := s.db.Exec(s.ctx(), sql, args...); err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
}

// get reads one value.
func get[T any](s *site, sql string, args ...any) T {
	s.t.Helper()
	var v T
	if err := s.db.QueryRow(s.ctx(), sql, args...).Scan(&v); err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func (s *site) move(d time.Duration) { s.t.Helper(); storetest.MoveClock(s.t, s.url, d) }

// lapse lets every lease run out.
func (s *site) lapse() { s.t.Helper(); s.move(lease + time.Second) }

// tx runs fn as intake, scheduler or a person's decision does.
func (s *site) tx(fn func(tx *store.Tx) error) {
	s.t.Helper()
	if err := s.InTx(s.ctx(), fn); err != nil {
		s.t.Fatal(err)
	}
}

// incident makes an open incident with the snapshot that its cards show.
func (s *site) incident(key string) (inc store.Incident) {
	s.t.Helper()
	s.tx(func(tx *store.Tx) error {
		var err error
		if inc, _, err = tx.OpenIncident(s.ctx(), fresh(key)); err != nil {
			return err
		}
		return tx.PutContent(s.ctx(), store.Content{ID: inc.ID, Revision: inc.Revision, Body: []byte(`{}`)})
	})
	return inc
}

func fresh(key string) store.Incident {
	return store.Incident{ID: store.NewID(), Key: key, Source: "native", Topic: "alert.failed.critical.load", Title: "Load failed", Criticality: "critical"}
}

// add adds one delivery of an incident, due at once unless it is told otherwise.
func (s *site) add(inc store.Incident, k delivery.Kind, with ...func(*store.NewDelivery)) uuid.UUID {
	s.t.Helper()
	d := store.NewDelivery{ID: store.NewID(), IncidentID: inc.ID, ContentID: inc.ID, Kind: k, Notifier: ops, Target: "channel"}
	for _, f := range with {
		f(&d)
	}
	s.tx(func(tx *store.Tx) error { return tx.AddDeliveries(s.ctx(), d) })
	return d.ID
}

func via(notifier string) func(*store.NewDelivery) {
	return func(d *store.NewDelivery) { d.Notifier = notifier }
}

func later(delay time.Duration) func(*store.NewDelivery) {
	return func(d *store.NewDelivery) { d.Delay = delay }
}

func waits(wait time.Duration) func(*store.NewDelivery) {
	return func(d *store.NewDelivery) { d.Wait = wait }
}

func of(card uuid.UUID) func(*store.NewDelivery) {
	return func(d *store.NewDelivery) { d.CardID = card }
}

// claim takes all that is due through ops, or what lanes say.
func (s *site) claim(worker string, lanes ...store.Lane) []store.Claimed {
	s.t.Helper()
	if len(lanes) == 0 {
		lanes = []store.Lane{{Notifier: ops, Free: 100}}
	}
	got, err := s.Claim(s.ctx(), worker, lease, lanes)
	if err != nil {
		s.t.Fatal(err)
	}
	return got
}

// take claims one delivery and no other.
func (s *site) take(worker string) store.Claimed {
	s.t.Helper()
	got := s.claim(worker)
	if len(got) != 1 {
		s.t.Fatalf("%s claimed %d deliveries, not one", worker, len(got))
	}
	return got[0]
}

// intent is the attempt that a worker would make of a claimed delivery.
func intent(c store.Claimed) store.Begun {
	a := delivery.Attempt{ID: store.NewID(), Operation: delivery.OpCreate, Effect: c.Effect, Key: c.Key(), Address: "C0123", Revision: c.Desired}
	switch {
	case c.Kind == delivery.Thread:
		a.Operation = delivery.OpReply
	case !c.Reference.IsZero():
		a.Operation = delivery.OpEdit
	}
	if c.Doubt != nil {
		a.Key, a.Address = c.Doubt.Key, c.Doubt.Address
	}
	return store.Begun{Delivery: c.Delivery, Attempt: a}
}

// try begins attempts and returns those that may be called.
func (s *site) try(worker string, batch ...store.Begun) map[uuid.UUID]store.Begun {
	s.t.Helper()
	got, err := s.Begin(s.ctx(), worker, batch)
	if err != nil {
		s.t.Fatal(err)
	}
	return got
}

// begin begins an attempt that must be let through.
func (s *site) begin(worker string, c store.Claimed) store.Begun {
	s.t.Helper()
	in := intent(c)
	b, ok := s.try(worker, in)[c.ID]
	if !ok {
		s.t.Fatalf("begin refused delivery %s", c.ID)
	}
	return b
}

// started makes a delivery of a kind and begins its first attempt on alpha.
func (s *site) started(inc store.Incident, k delivery.Kind, with ...func(*store.NewDelivery)) store.Begun {
	s.t.Helper()
	s.add(inc, k, with...)
	return s.begin(alpha, s.take(alpha))
}

var (
	made    = delivery.Reference{Channel: "C0123", TS: "1700000000.000100"}
	sent    = delivery.Result{Outcome: delivery.OutcomeSent, Evidence: delivery.Answered, HTTPStatus: 200, Reference: made, Answer: `{"ok":true}`, Bytes: 812}
	failed  = delivery.Result{Outcome: delivery.OutcomeFailed, Evidence: delivery.NotSent, Fault: delivery.FaultTransient, Reason: "refused", Error: "connection refused"}
	unknown = delivery.Result{Outcome: delivery.OutcomeUnknown, Evidence: delivery.PossiblySent, Reason: "timeout", Error: "send timed out after 10s", Bytes: 812}
	refused = delivery.Result{Outcome: delivery.OutcomeFailed, Evidence: delivery.Answered, Fault: delivery.FaultDestination, Reason: "destination:channel_not_found", HTTPStatus: 200}
)

func env(k delivery.Kind) delivery.Env {
	return delivery.Env{Policy: delivery.DefaultPolicy(k), Retries: delivery.DefaultRetries}
}

// ended is an attempt that came back with a result, decided on the delivery as its begin left it.
func ended(b store.Begun, r delivery.Result) store.Finished {
	return store.Finished{Step: b.Delivery.Finish(env(b.Delivery.Kind), b.Attempt, r), Attempt: b.Attempt, Result: r, ClosedBy: "worker"}
}

// end writes results and returns the ids of the deliveries that took theirs.
func (s *site) end(worker string, batch ...store.Finished) map[uuid.UUID]bool {
	s.t.Helper()
	done, err := s.Finish(s.ctx(), worker, batch)
	if err != nil {
		s.t.Fatal(err)
	}
	return done
}

// finish writes a result that must be taken.
func (s *site) finish(worker string, b store.Begun, r delivery.Result) {
	s.t.Helper()
	if !s.end(worker, ended(b, r))[b.Delivery.ID] {
		s.t.Fatalf("delivery %s did not take its result", b.Delivery.ID)
	}
}

// late keeps an answer whose lease is gone, decided as the worker does.
func (s *site) late(worker string, b store.Begun, r delivery.Result) (recorded, settled bool) {
	s.t.Helper()
	got, err := s.answer(worker, b, r)
	if err != nil {
		s.t.Fatal(err)
	}
	return got.recorded, got.settled
}

type lateAnswer struct{ recorded, settled bool }

// answer is late for another goroutine.
func (s *site) answer(worker string, b store.Begun, r delivery.Result) (got lateAnswer, err error) {
	got.recorded, got.settled, err = s.Late(s.ctx(), worker, ended(b, r), func(d delivery.Delivery, a delivery.Attempt) (delivery.Step, bool) {
		return d.Late(env(d.Kind), a, r.Outcome, r.Reference)
	})
	return got, err
}

// note has someone who is no worker decide on a delivery of an incident, under the incident's lock.
func (s *site) note(inc store.Incident, id uuid.UUID, decide func(delivery.Delivery) (delivery.Step, bool)) {
	s.t.Helper()
	s.tx(func(tx *store.Tx) error { return noteIn(s.ctx(), tx, inc, id, decide) })
}

func noteIn(ctx context.Context, tx *store.Tx, inc store.Incident, id uuid.UUID, decide func(delivery.Delivery) (delivery.Step, bool)) error {
	if _, err := tx.LockIncident(ctx, inc.ID); err != nil {
		return err
	}
	d, err := tx.Delivery(ctx, id)
	if err != nil {
		return err
	}
	if s, ok := decide(d); ok {
		return tx.Apply(ctx, s)
	}
	return nil
}

func raise(revision int) func(delivery.Delivery) (delivery.Step, bool) {
	return func(d delivery.Delivery) (delivery.Step, bool) { return d.Raise(revision) }
}

func cancel(reason string) func(delivery.Delivery) (delivery.Step, bool) {
	return func(d delivery.Delivery) (delivery.Step, bool) { return d.Cancel(reason) }
}
