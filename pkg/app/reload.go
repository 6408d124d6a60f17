package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/intake"
	"github.com/tocsin-oncall/tocsin/pkg/plan"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
	"github.com/tocsin-oncall/tocsin/pkg/redact"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// watchEvery is how often the file is looked at. Looking beats being told: a mounted ConfigMap changes by a link that leads
// elsewhere, an editor by a rename, and a network's file system tells nobody.
const watchEvery = 2 * time.Second

// inForce is all that follows from one state of the file. It is replaced as a whole: who loads it twice may see two files, who
// loads it once sees one.
type inForce struct {
	file      *config.File
	secrets   *redact.Set // those of the files before too: an answer to an earlier call can still hold one
	providers map[string]provider.Provider
	mark      string // fingerprint of what lay on the disk
}

// reloader takes a changed file into force, or keeps the old one.
type reloader struct {
	mu      sync.Mutex // one reload at a time
	refused string     // fingerprint of the state that was refused last, so that it is said once
	problem atomic.Pointer[string]
	wrong   prometheus.Gauge
	info    *prometheus.GaugeVec
}

// fileError is why this replica keeps an older file than the one on its disk; empty: it does not.
func (a *App) fileError() string {
	if p := a.reload.problem.Load(); p != nil {
		return *p
	}
	return ""
}

// redacted takes the secrets of all files so far out of a text.
func (a *App) redacted(s string) string { return a.force.Load().secrets.String(s) }

// watchLoop looks after the file until ctx ends: when told to, by hangup, and every so often.
func (a *App) watchLoop(ctx context.Context, hangup <-chan os.Signal) {
	t := time.NewTicker(watchEvery)
	defer t.Stop()
	for {
		asked := false
		select {
		case <-ctx.Done():
			return
		case _, open := <-hangup:
			if !open {
				hangup = nil
				continue
			}
			asked = true
		case <-t.C:
		}
		if err := a.Reload(ctx, asked); err != nil && ctx.Err() == nil {
			a.log.Warn("the file was not taken, trying again", zap.Error(err))
		}
	}
}

// Reload takes the file on the disk into force where it differs from the one in force, or was asked for by a person. A wrong
// one changes nothing and is told: in the log, the metric, the replica's row and a self-alert. The error is of what is around
// the file, such as the database: the next look tries again.
func (a *App) Reload(ctx context.Context, asked bool) error {
	a.reload.mu.Lock()
	defer a.reload.mu.Unlock()
	old := a.force.Load()
	mark := config.Fingerprint(a.path, old.file.SecretFiles)
	if !asked && (mark == old.mark || mark == a.reload.refused) {
		if mark == old.mark && a.reload.refused != "" {
			return a.accepted(ctx) // what was wrong was taken back
		}
		return nil
	}
	f, secrets, err := config.Load(a.path, a.env)
	if err == nil {
		err = checkFile(f, a.insecure)
	}
	var next *inForce
	if err == nil {
		// What was read may be newer than the mark by now; then the next look sees another change, and takes it again.
		next = &inForce{file: f, secrets: secrets.With(old.secrets), mark: config.Fingerprint(a.path, f.SecretFiles)}
		next.providers, err = makeProviders(f, next.secrets)
	}
	if err != nil {
		a.reload.refused = mark
		return a.refuse(ctx, secrets.With(old.secrets), err)
	}
	ctx, cancel := context.WithTimeout(ctx, loopTimeout)
	defer cancel()
	// The order is the promise: first the database knows that this replica knows both files' notifiers, then the new one is in
	// force, then the database forgets the old one's. A crash between leaves a heartbeat that names too many, and runs out.
	if err := a.sched.Foretell(ctx, f); err != nil {
		return fmt.Errorf("announce the new file: %w", err)
	}
	a.take(next)
	if _, err := a.sched.Heartbeat(ctx); err != nil {
		a.log.Warn("the new file is in force and not announced yet; the next heartbeat does it", zap.Error(err))
	}
	a.tellTaken(old.file, f)
	a.sched.Reloaded()
	a.worker.Nudge(time.Time{})
	return a.accepted(ctx)
}

// take puts a file into force, with all that follows from it.
func (a *App) take(next *inForce) {
	if a.logSecrets != nil {
		a.logSecrets.Store(next.secrets)
	}
	a.counters.Notifiers(slices.Sorted(maps.Keys(next.file.Notifiers)))
	a.seen.sources(next.file)
	a.force.Store(next)
	a.reload.info.Reset()
	a.reload.info.WithLabelValues(next.file.Checksum).Set(1)
}

// tellTaken says what came, what went and what needs a restart.
func (a *App) tellTaken(old, f *config.File) {
	var came, went []string
	for n := range f.Notifiers {
		if _, ok := old.Notifiers[n]; !ok {
			came = append(came, n)
		}
	}
	for n := range old.Notifiers {
		if _, ok := f.Notifiers[n]; !ok {
			went = append(went, n)
		}
	}
	slices.Sort(came)
	slices.Sort(went)
	a.log.Info("a new file is in force", zap.String("file", f.Checksum), zap.String("before", old.Checksum), zap.Strings("notifiers_added", came), zap.Strings("notifiers_removed", went))
	for _, w := range f.Warnings {
		a.log.Warn("the file: " + w)
	}
	var later []string
	for key, differs := range map[string]bool{
		"server.listen": old.Server.Listen != f.Server.Listen, "server.metrics_listen": old.Server.MetricsListen != f.Server.MetricsListen,
		"server.shutdown_grace": false, "database": old.Database != f.Database,
	} {
		if differs {
			later = append(later, key)
		}
	}
	if slices.Sort(later); len(later) > 0 {
		a.log.Warn("these settings of the new file take hold after a restart", zap.Strings("keys", later))
	}
}

// refuse keeps the old file and says why.
func (a *App) refuse(ctx context.Context, secrets *redact.Set, why error) error {
	text := secrets.String(why.Error())
	a.log.Error("the file on the disk is wrong, the old one stays in force", zap.String("problems", text), zap.String("in_force", a.file().Checksum))
	a.reload.problem.Store(&text)
	a.reload.wrong.Set(1)
	ctx, cancel := context.WithTimeout(ctx, loopTimeout)
	defer cancel()
	if _, err := a.sched.Heartbeat(ctx); err != nil {
		return err
	}
	return a.alertRefused(ctx, why, text)
}

// accepted says that the file on the disk is the one in force.
func (a *App) accepted(ctx context.Context) error {
	a.reload.refused = ""
	if a.fileError() == "" {
		return nil
	}
	a.reload.problem.Store(nil)
	a.reload.wrong.Set(0)
	a.log.Info("the file on the disk is in force", zap.String("file", a.file().Checksum))
	ctx, cancel := context.WithTimeout(ctx, loopTimeout)
	defer cancel()
	_, err := a.sched.Heartbeat(ctx)
	return err
}

// alertRefused raises the self-alert of a file that was refused: one for all replicas, which resolves when each has taken
// its file.
func (a *App) alertRefused(ctx context.Context, why error, text string) error {
	lines := strings.Split(text, "\n")
	var problems config.Errors
	if errors.As(why, &problems) {
		lines = lines[:min(len(lines), 10)]
	}
	self := intake.Self{
		Kind: intake.SelfReloadFailed, Criticality: "error", About: "file", Title: "The changed file is wrong: the old one stays in force",
		Text: strings.Join(lines, "\n") + "\n`tocsin check " + a.path + "` shows all of it; `tocsin replicas` shows who runs which file. " +
			"This alert resolves when every replica has taken its file.",
		Labels: map[string]string{"replica": a.id},
	}
	var r intake.Result
	err := a.store.InTx(ctx, func(tx *store.Tx) (err error) {
		r, err = a.intake.SelfAlert(ctx, tx, self)
		return err
	})
	if err != nil {
		return fmt.Errorf("raise the alert about the file: %w", err)
	}
	a.intake.Committed(r)
	return nil
}

// accountsNow are the linked accounts as this replica knows them.
func (a *App) accountsNow() []plan.Account { return *a.accounts.Load() }
