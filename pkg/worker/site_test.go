package worker_test

import (
	"context"
	"encoding/json"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tocsin-oncall/tocsin/pkg/card"
	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/message"
	"github.com/tocsin-oncall/tocsin/pkg/plan"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
	"github.com/tocsin-oncall/tocsin/pkg/store"
	"github.com/tocsin-oncall/tocsin/pkg/store/storetest"
	"github.com/tocsin-oncall/tocsin/pkg/worker"
)

// lease is every test's lease: long enough that it ends only where a test moves the clock.
const lease = 5 * time.Minute

// site is one database, one file, and the workers that share them.
type site struct {
	t     testing.TB
	url   string
	db    *pgxpool.Pool // past the workers
	store *store.Store  // of everyone who is no worker
	file  atomic.Pointer[config.File]

	mu       sync.Mutex
	desks    map[string]provider.Provider
	accounts []plan.Account
	redact   func(string) string // nil: there are no secrets
	handOver func(ctx context.Context, incident, page uuid.UUID) error
	find     func(ctx context.Context, notifier, user string) (bool, error)
	gates    []*gate
}

// newSite makes a site. Notifiers named here are given a desk each unless the test gives them a provider of its own.
func newSite(t testing.TB, notifiers ...config.Notifier) *site {
	t.Helper()
	s := &site{t: t, url: storetest.New(t), desks: map[string]provider.Provider{}}
	c, err := pgxpool.ParseConfig(s.url)
	if err != nil {
		t.Fatal(err)
	}
	c.MaxConns = 4
	if s.db, err = pgxpool.NewWithConfig(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.db.Close)
	s.store = s.open(s.url)
	t.Cleanup(s.store.Close)
	f := &config.File{Notifiers: map[string]config.Notifier{}, Kinds: map[delivery.Kind]delivery.Policy{}}
	f.Server.PublicURL = "https://tocsin.example.com"
	f.Worker.Lease, f.Worker.Poll = lease, 20*time.Millisecond
	for _, k := range delivery.Kinds {
		f.Kinds[k] = delivery.DefaultPolicy(k)
	}
	f.Users = []config.User{{ID: "ana", Name: "Ana Torres"}, {ID: "bo", Name: "Bo Lind"}}
	for _, n := range notifiers {
		f.Notifiers[n.Name] = n
	}
	s.file.Store(f)
	s.accounts = []plan.Account{{Provider: "slack", AccountID: "U0ANA", UserID: "ana"}, {Provider: "slack", AccountID: "U0BO", UserID: "bo"}}
	return s
}

// open opens a store, however busy the machine is.
func (s *site) open(url string) *store.Store {
	s.t.Helper()
	for end := time.Now().Add(patience); ; {
		st, err := store.Open(s.t.Context(), url, store.Options{MaxConnections: 4})
		if err == nil {
			return st
		}
		if time.Now().After(end) {
			s.t.Fatal(err)
		}
	}
}

// channel is a notifier with a channel of its own, direct one that pages people, hook one for events.
func channel(name string) config.Notifier {
	return config.Notifier{Name: name, Type: "slack", Token: "xoxb", Channel: "C0OPS", Timeout: 10 * time.Second, Concurrency: 4, Retries: quick}
}

func direct(name string) config.Notifier {
	return config.Notifier{Name: name, Type: "slack", Token: "xoxb", Timeout: 10 * time.Second, Concurrency: 4, Retries: quick}
}

func hook(name string) config.Notifier {
	return config.Notifier{Name: name, Type: "webhook", URL: "http://receiver.example.com/", Timeout: 10 * time.Second, Concurrency: 4, Retries: quick}
}

// quick are retries that a test need not wait for.
var quick = delivery.Retries{Delay: time.Millisecond, MaxDelay: 5 * time.Millisecond}

// slow are retries that come only where a test moves the clock.
var slow = delivery.Retries{Delay: time.Hour, MaxDelay: time.Hour}

// change makes a new file from the one in force.
func (s *site) change(f func(*config.File)) {
	next := *s.file.Load()
	next.Notifiers, next.Kinds = maps.Clone(next.Notifiers), maps.Clone(next.Kinds)
	f(&next)
	s.file.Store(&next)
}

// desk is the provider of a notifier, made when it is first asked for.
func (s *site) desk(notifier string) *desk {
	s.mu.Lock()
	defer s.mu.Unlock()
	d, ok := s.desks[notifier].(*desk)
	if !ok {
		d = newDesk(s.t)
		s.desks[notifier] = d
	}
	return d
}

// provide gives a notifier a provider of the test's own.
func (s *site) provide(notifier string, p provider.Provider) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.desks[notifier] = p
}

func (s *site) provider(notifier string) provider.Provider {
	s.mu.Lock()
	p, ok := s.desks[notifier]
	s.mu.Unlock()
	if !ok {
		return s.desk(notifier)
	}
	return p
}

// hand is one running worker, as a replica has it.
type hand struct {
	*worker.Worker
	t       testing.TB
	line    *line
	logs    *observer.ObservedLogs
	metrics *worker.Metrics
	deaths  atomic.Int64
	ran     chan struct{} // closed when Run has returned
}

// hooks let a test in between two steps of a worker.
type hooks struct {
	provider func(notifier string) // asked while a delivery is prepared, before its attempt
	accounts func()                // asked before a batch is prepared, after its surroundings were read
	find     func(user string) (bool, error)
}

// start runs a worker of its own, with its own connections, until the test ends.
func (s *site) start(id string, h ...hooks) *hand {
	s.t.Helper()
	a := s.ready(id, h...)
	a.run()
	return a
}

// ready makes a worker that does not run yet.
func (s *site) ready(id string, h ...hooks) *hand {
	s.t.Helper()
	l, url := newLine(s.t, s.url)
	st := s.open(url)
	core, logs := observer.New(zapcore.InfoLevel)
	a := &hand{t: s.t, line: l, logs: logs, metrics: worker.NewMetrics(prometheus.NewRegistry()), ran: make(chan struct{})}
	o := worker.Options{
		ID: id, Store: st, File: s.file.Load, Redact: s.redact, HandOver: s.handOver, Find: s.find, Dead: func() { a.deaths.Add(1) }, Log: zap.New(core), Metrics: a.metrics,
		Provider: func(n string) (provider.Provider, bool) {
			for _, k := range h {
				if k.provider != nil {
					k.provider(n)
				}
			}
			return s.provider(n), true
		},
		Accounts: func() []plan.Account {
			for _, k := range h {
				if k.accounts != nil {
					k.accounts()
				}
			}
			return s.accounts
		},
	}
	for _, k := range h {
		if k.find != nil {
			o.Find = func(_ context.Context, _, user string) (bool, error) { return k.find(user) }
		}
	}
	a.Worker = worker.New(o)
	s.t.Cleanup(func() {
		s.openGates()
		l.heal()
		a.stop()
		st.Close()
		l.close()
	})
	return a
}

func (a *hand) run() {
	go func() {
		defer close(a.ran)
		a.Run()
	}()
}

// stop ends a worker as a replica does that is told to; it lets calls finish.
func (a *hand) stop() {
	a.t.Helper()
	a.stopWithin(patience)
}

func (a *hand) stopWithin(grace time.Duration) {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	if err := a.Stop(ctx); err != nil {
		a.t.Errorf("stop: %v", err)
	}
}

// kill cuts a worker off from the database, with no word of farewell. What it still does is unknown to anyone.
func (a *hand) kill() { a.line.cut() }

// quiet fails the test when the worker alarmed somebody.
func (a *hand) quiet() {
	a.t.Helper()
	for _, e := range a.logs.FilterLevelExact(zapcore.ErrorLevel).All() {
		a.t.Errorf("an error was logged: %s %v", e.Message, e.ContextMap())
	}
}

// reload changes the file and waits until the worker claims by it: a claim under way still has the old one.
func (a *hand) reload(s *site, f func(*config.File)) {
	a.t.Helper()
	s.change(f)
	claims := a.line.executed("Claim")
	s.until("two more claims", func() bool { return a.line.executed("Claim") >= claims+2 })
}

// incident is what a test knows of one.
type incident struct {
	id       uuid.UUID
	key      string
	revision int
	sequence int
}

func (s *site) ctx() context.Context { return s.t.Context() }

func (s *site) tx(fn func(tx *store.Tx) error) {
	s.t.Helper()
	if err := s.store.InTx(s.ctx(), fn); err != nil {
		s.t.Fatal(err)
	}
}

// incident opens one with its snapshot and the timeline's first entry.
func (s *site) incident(key string) *incident {
	s.t.Helper()
	i := &incident{key: key}
	s.tx(func(tx *store.Tx) error {
		inc, _, err := tx.OpenIncident(s.ctx(), store.Incident{ID: store.NewID(), Key: key, Source: "native", Topic: "alert.failed.critical.load", Title: "Load failed", Criticality: "critical"})
		if err != nil {
			return err
		}
		i.id, i.revision = inc.ID, inc.Revision
		return s.write(tx, i, inc, card.EntryOpened, "Opened")
	})
	return i
}

// write adds an entry to the timeline and writes the snapshot of an incident as it is now.
func (s *site) write(tx *store.Tx, i *incident, inc store.Incident, typ, text string) error {
	inc.Sequence++
	i.sequence, i.revision = inc.Sequence, inc.Revision
	if err := tx.SaveIncident(s.ctx(), inc); err != nil {
		return err
	}
	if err := tx.AddTimeline(s.ctx(), inc.ID, card.Entry{Sequence: inc.Sequence, Actor: "tocsin", Type: typ, Text: text}); err != nil {
		return err
	}
	body, err := json.Marshal(card.Snapshot{
		IncidentID: inc.ID.String(), Key: inc.Key, Topic: inc.Topic, Title: inc.Title, State: inc.State, Criticality: inc.Criticality, Revision: inc.Revision,
		OpenedAt: inc.OpenedAt, AcknowledgedAt: inc.AcknowledgedAt, AcknowledgedBy: inc.AcknowledgedBy, ResolvedAt: inc.ResolvedAt, ResolvedBy: inc.ResolvedBy, Firing: 1,
	})
	if err != nil {
		return err
	}
	return tx.PutContent(s.ctx(), store.Content{ID: inc.ID, Revision: inc.Revision, Body: body})
}

// becomes changes an incident as intake does: the incident first, then what shows it, in one transaction.
func (s *site) becomes(i *incident, state message.State) {
	s.t.Helper()
	s.tx(func(tx *store.Tx) error {
		inc, err := tx.LockIncident(s.ctx(), i.id)
		if err != nil {
			return err
		}
		now := tx.Now()
		typ, text, reason := "note", "Something else fired", ""
		inc.State = state
		switch state {
		case message.Acknowledged:
			inc.AcknowledgedAt, inc.AcknowledgedBy = &now, "Ana Torres"
			typ, text, reason = card.EntryAcknowledged, "Acknowledged by Ana Torres", "acknowledged"
		case message.Resolved:
			inc.ResolvedAt, inc.ResolvedBy = &now, "Ana Torres"
			typ, text, reason = card.EntryResolved, "Resolved by Ana Torres", "resolved"
		}
		inc.Revision++
		if err := s.write(tx, i, inc, typ, text); err != nil {
			return err
		}
		ds, err := tx.Deliveries(s.ctx(), i.id)
		if err != nil {
			return err
		}
		var steps []delivery.Step
		for _, d := range ds {
			var step delivery.Step
			ok := false
			switch d.Kind {
			case delivery.Card:
				step, ok = d.Raise(i.revision)
			case delivery.Thread:
				step, ok = d.Raise(i.sequence)
			case delivery.Page, delivery.Call, delivery.SMS:
				if reason != "" {
					step, ok = d.Answer(reason, i.revision)
				}
			}
			if ok {
				steps = append(steps, step)
			}
		}
		return tx.Apply(s.ctx(), steps...)
	})
}

// add adds deliveries of an incident in one transaction, due at once unless told otherwise. Their ids rise.
func (s *site) add(i *incident, ds ...store.NewDelivery) []uuid.UUID {
	s.t.Helper()
	ids := make([]uuid.UUID, len(ds))
	for n := range ds {
		d := &ds[n]
		if d.ID == uuid.Nil {
			d.ID = store.NewID()
		}
		d.IncidentID, d.ContentID, ids[n] = i.id, i.id, d.ID
		switch d.Kind {
		case delivery.Thread:
			d.Desired = i.sequence
		case delivery.Event:
			d.Desired = 1
		default:
			d.Desired = i.revision
		}
	}
	s.tx(func(tx *store.Tx) error { return tx.AddDeliveries(s.ctx(), ds...) })
	return ids
}

func aCard(notifier string) store.NewDelivery {
	return store.NewDelivery{ID: store.NewID(), Kind: delivery.Card, Notifier: notifier, Target: plan.TargetChannel}
}

func aThread(of store.NewDelivery) store.NewDelivery {
	return store.NewDelivery{Kind: delivery.Thread, Notifier: of.Notifier, Target: plan.TargetChannel, CardID: of.ID}
}

func aPage(notifier, user string, wait time.Duration) store.NewDelivery {
	return store.NewDelivery{Kind: delivery.Page, Notifier: notifier, Target: "user:" + user, Wait: wait}
}

func anEvent(notifier string) store.NewDelivery {
	return store.NewDelivery{Kind: delivery.Event, Notifier: notifier, Target: plan.TargetURL}
}

func aCall(notifier, user string) store.NewDelivery {
	return store.NewDelivery{Kind: delivery.Call, Notifier: notifier, Target: "user:" + user, Lifetime: time.Hour}
}
