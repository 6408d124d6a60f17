// Package app wires one instance of tocsin: the file, the database, the providers, the worker, the scheduler, the HTTP
// surface and the metrics. It starts them in the order in which they need each other and stops them in the order that
// loses nothing. The development environment, which is two instances with simulated chats, lives here too.
package app

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/ical"
	"github.com/tocsin-oncall/tocsin/pkg/intake"
	"github.com/tocsin-oncall/tocsin/pkg/oncall"
	"github.com/tocsin-oncall/tocsin/pkg/plan"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
	"github.com/tocsin-oncall/tocsin/pkg/redact"
	"github.com/tocsin-oncall/tocsin/pkg/scheduler"
	"github.com/tocsin-oncall/tocsin/pkg/server"
	"github.com/tocsin-oncall/tocsin/pkg/store"
	"github.com/tocsin-oncall/tocsin/pkg/worker"
)

// Options say what to start.
type Options struct {
	Path     string                      // the file
	Env      func(string) (string, bool) // where ${NAME} is looked up; nil: the process's environment
	Insecure bool                        // the API takes requests without tokens; only on a loopback address
	Migrate  bool                        // bring an older schema up to date first
	Log      *zap.Logger                 // nil: none
	Secrets  *atomic.Pointer[redact.Set] // set to the file's secrets once it is read, for the log; may be nil
	ID       string                      // the replica's name; empty: host, process and a random part
	Version  string
	API      net.Listener     // already open, instead of server.listen; may be nil
	Metrics  net.Listener     // already open, instead of server.metrics_listen; may be nil
	Hangup   <-chan os.Signal // asks to read the file again; it is looked at now and then in any case; may be nil
}

// App is one instance. It is made by [New], lives in [App.Run], and cannot be used again.
type App struct {
	id         string
	path       string
	env        func(string) (string, bool)
	insecure   bool
	hangup     <-chan os.Signal
	force      atomic.Pointer[inForce]
	reload     reloader
	log        *zap.Logger
	version    string
	store      *store.Store
	worker     *worker.Worker
	sched      *scheduler.Scheduler
	bell       *bell
	server     *server.Server
	api        net.Listener
	metrics    net.Listener
	registry   *prometheus.Registry
	counters   *worker.Metrics
	seen       *surface
	intake     *intake.Intake
	accounts   atomic.Pointer[[]plan.Account]
	unfound    sync.Map // account of a notifier and e-mail address -> when the chat last said that it knows nobody of it
	receivers  receivers
	overrides  atomic.Pointer[oncall.Overlay] // as the roster was last written
	overridden chan struct{}                  // an override was made or ended
	dead       chan struct{}                  // a delivery died
	stopping   atomic.Bool

	logSecrets *atomic.Pointer[redact.Set] // of the log; may be nil
}

// New reads the file, reaches the database, listens, and starts nothing yet. Whatever makes a start impossible is one
// clear error: [config.Errors] for the file, everything else a sentence.
func New(ctx context.Context, o Options) (*App, error) {
	if o.Env == nil {
		o.Env = os.LookupEnv
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	if o.ID == "" {
		o.ID = replicaID()
	}
	f, secrets, mark, err := load(o.Path, o.Env, nil)
	if err != nil {
		return nil, err
	}
	if o.Secrets != nil {
		o.Secrets.Store(secrets)
	}
	if err := checkFile(f, o.Insecure); err != nil {
		return nil, err
	}
	a := &App{
		id: o.ID, path: o.Path, env: o.Env, insecure: o.Insecure, hangup: o.Hangup, logSecrets: o.Secrets,
		log: o.Log.With(zap.String("replica", o.ID)), version: o.Version, registry: prometheus.NewRegistry(),
	}
	providers, err := makeProviders(f, secrets)
	if err != nil {
		return nil, err
	}
	a.force.Store(&inForce{file: f, secrets: secrets, providers: providers, mark: mark})
	a.reload.started, a.reload.seen = f, mark
	if a.store, err = openStore(ctx, f, o); err != nil {
		return nil, err
	}
	if err := a.assemble(ctx, o); err != nil {
		a.close()
		return nil, err
	}
	return a, nil
}

// assemble makes the parts and opens the ports.
func (a *App) assemble(ctx context.Context, o Options) error {
	f := a.file()
	if !o.Insecure && len(f.Server.Tokens) == 0 && !slices.ContainsFunc(slices.Collect(maps.Values(f.Sources)), func(s config.Source) bool { return s.Token != "" }) {
		if live, err := a.store.LiveTokens(ctx); err != nil {
			return err
		} else if len(live) == 0 {
			return fmt.Errorf("no API token is configured, so nothing could send an alert: make one with `tocsin token create NAME --scopes ingest --config %s`, or start with --insecure on a loopback address", o.Path)
		}
	}
	if err := a.store.MaintainPartitions(ctx); err != nil {
		return fmt.Errorf("prepare the attempts' partitions: %w", err)
	}
	if err := a.readAccounts(ctx); err != nil {
		return err
	}
	byName := func(name string) (provider.Provider, bool) {
		p, ok := a.force.Load().providers[name]
		return p, ok
	}
	a.counters = worker.NewMetrics(a.registry)
	a.counters.Notifiers(slices.Sorted(maps.Keys(f.Notifiers)))
	a.store.OnEnded(func(e store.Ended) { a.ended(a.counters, e) })
	a.store.OnTold(func() { a.server.Rung(); a.bell.tellEvents() })
	a.intake = intake.New(intake.Options{
		Store: a.store, File: a.file, Redact: a.redacted, Wake: func(oldest time.Time) { a.bell.ring(oldest) },
		// Most of the connections: answers of people and the scheduler find one also when all that take alerts are held up.
		AtOnce: max(a.file().Database.MaxConnections*3/4, 1),
	})
	a.sched = scheduler.New(scheduler.Options{Store: a.store, File: a.file, Intake: a.intake, Replica: a.id, Version: a.version, FileError: a.fileError, Failed: a.jobFailed, Provider: byName, Find: a.findAccount, Calendar: ical.New(a.redacted).Fetch, Decided: func(action string, n int) { a.seen.DecisionsMade(action, n) }, Purged: a.purged})
	a.dead, a.overridden = make(chan struct{}, 1), make(chan struct{}, 1)
	a.receivers = receivers{app: a, now: map[string]store.Receiver{}}
	a.worker = worker.New(worker.Options{
		ID: a.id, Store: a.store, File: a.file, Provider: byName, Accounts: a.accountsNow, Find: a.findAccount,
		Dead: a.died, HandOver: a.intake.HandOver, Redact: a.redacted, Log: a.log, Metrics: a.counters,
	})
	a.bell = newBell(a.id, a.store, a.worker.Nudge, func() { a.server.Rung() }, a.log)
	a.seen = newSurface(a.registry, f)
	a.reload.info, a.reload.wrong, a.reload.restart = registerProcess(a.registry, a.file, a.gaps)
	a.registry.MustRegister(&queue{file: a.file, read: a.store.CountWaiting}, &letters{read: a.store.CountDeadLetters}, &a.receivers)
	a.server = server.New(server.Options{
		Store: a.store, Intake: a.intake, File: a.file, Providers: byName, Insecure: o.Insecure,
		Unready: a.unready, Stopping: a.stopping.Load, Ring: func() { a.bell.ring(time.Time{}) }, Linked: a.linked, Overridden: a.rosterChanged,
		Redact: a.redacted, Metrics: a.seen, Log: a.log.Sugar(), Version: a.version,
	})
	var err error
	if a.api, err = listen(o.API, "server.listen", f.Server.Listen); err != nil {
		return err
	}
	a.metrics, err = listen(o.Metrics, "server.metrics_listen", f.Server.MetricsListen)
	return err
}

func listen(open net.Listener, key, addr string) (net.Listener, error) {
	if open != nil {
		return open, nil
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%s %s can't be listened on: %w", key, addr, err)
	}
	return l, nil
}

// file is the file in force.
func (a *App) file() *config.File { return a.force.Load().file }

// ID is the replica's name, as attempts name it.
func (a *App) ID() string { return a.id }

// Addr is where the API listens.
func (a *App) Addr() string { return a.api.Addr().String() }

// MetricsAddr is where the metrics are.
func (a *App) MetricsAddr() string { return a.metrics.Addr().String() }

// Run serves until ctx ends or a part fails, and returns when everything is stopped: nil after an orderly stop. Until
// the worker is done the HTTP surface goes on answering: it takes alerts and says that it is not ready.
func (a *App) Run(ctx context.Context) error {
	defer a.close()
	// The heartbeat comes before the intake opens: no other replica may take this one's notifiers for unknown.
	if err := a.announce(ctx); err != nil {
		return err
	}
	background, endBackground := context.WithCancel(context.WithoutCancel(ctx))
	defer endBackground()
	receive, endReceive := context.WithCancel(background)
	defer endReceive()
	var loops sync.WaitGroup
	loops.Go(func() { a.bell.ringLoop(background) })
	loops.Go(func() { a.bell.listenLoop(background, a.file().Database.ListenURL) })
	loops.Go(func() { a.server.Hear(background) })
	loops.Go(func() { a.watchLoop(background, a.hangup) })
	loops.Go(func() { a.rosterLoop(background) })
	loops.Go(func() { a.receivers.loop(receive) })
	loops.Go(func() { a.accountLoop(background) })
	loops.Go(func() {
		a.every(background, callbackEvery, "what people did in chats was not looked for", a.server.ApplyDue)
	})
	due, endDue := context.WithCancel(background)
	defer endDue()
	var scheduled sync.WaitGroup
	scheduled.Go(func() { a.sched.Run(due) })
	scheduled.Go(func() { a.announceLoop(due) })
	var working sync.WaitGroup
	working.Go(a.worker.Run)

	failed := make(chan error, 2)
	surface := httpServer(a.server)
	numbers := httpServer(promhttp.HandlerFor(a.registry, promhttp.HandlerOpts{Registry: a.registry, MaxRequestsInFlight: 4, Timeout: 10 * time.Second}))
	serve := func(s *http.Server, l net.Listener) {
		if err := s.Serve(l); err != http.ErrServerClosed {
			failed <- fmt.Errorf("serve %s: %w", l.Addr(), err)
		}
	}
	go serve(surface, a.api)
	go serve(numbers, a.metrics)
	a.log.Info("tocsin runs", zap.String("listen", a.Addr()), zap.String("metrics", a.MetricsAddr()), zap.String("version", a.version), zap.String("file", a.file().Checksum), zap.Int("notifiers", len(a.file().Notifiers)))

	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
		a.log.Error("a part failed, stopping", zap.Error(err))
	}

	// Nothing new is claimed; what is in flight is finished and recorded; then the surface closes. A crash at any point
	// here is the crash that the rows are made for.
	a.stopping.Store(true)
	a.server.HangUp() // who listens goes to another replica now, and keeps nobody here
	a.log.Info("stopping", zap.Duration("grace", a.file().Server.ShutdownGrace))
	endReceive() // the other replicas hear people from now on
	endDue()
	scheduled.Wait()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.file().Server.ShutdownGrace)
	defer cancel()
	if stopErr := a.worker.Stop(grace); stopErr != nil {
		a.log.Error("not everything was recorded", zap.Error(stopErr))
		err = firstError(err, stopErr)
	} else {
		working.Wait()
	}
	last, cancelLast := context.WithTimeout(context.WithoutCancel(ctx), surfaceGrace)
	defer cancelLast()
	if downErr := surface.Shutdown(last); downErr != nil {
		_ = surface.Close()
	}
	a.server.Wait(last)
	_ = numbers.Close()
	endBackground()
	loops.Wait()
	if goneErr := a.leave(context.WithoutCancel(ctx)); goneErr != nil {
		a.log.Warn("this replica could not sign off; its heartbeat runs out by itself", zap.Error(goneErr))
	}
	a.log.Info("stopped")
	return err
}

// surfaceGrace is how long requests under way may take after the worker has stopped.
const surfaceGrace = 10 * time.Second

// httpServer bounds everything that a client could draw out.
func httpServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       15 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
	}
}

// unready says why this replica's own parts are not ready.
func (a *App) unready() string {
	if !a.worker.Running() {
		return "the worker does not run"
	}
	return ""
}

func (a *App) close() {
	for _, l := range []net.Listener{a.api, a.metrics} {
		if l != nil {
			_ = l.Close()
		}
	}
	if a.store != nil {
		a.store.Close()
	}
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// replicaID names this process among all that ever ran: attempts carry it.
func replicaID() string {
	host, err := os.Hostname()
	if err != nil {
		host = "host"
	}
	return fmt.Sprintf("%s-%d-%s", host, os.Getpid(), randomWord()[:6])
}

// randomWord is 64 random bits in hexadecimal digits.
func randomWord() string {
	b := make([]byte, 8)
	_, _ = rand.Read(b) // crypto/rand never fails: it ends the process instead
	return hex.EncodeToString(b)
}
