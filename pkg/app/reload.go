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

const (
	// watchEvery is how often the file is looked at. Looking beats being told: a mounted ConfigMap changes by a link that leads
	// elsewhere, an editor by a rename, and a network's file system tells nobody.
	watchEvery = 2 * time.Second
	// watchAgain is how long a change must stand before it is taken by itself: an editor may have written half of it, or have
	// taken the file away for a moment.
	watchAgain = 400 * time.Millisecond
)

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
	seen    string     // fingerprint that the last look found
	told    string     // what the alert about the file says; empty: there is none
	started *config.File
	problem atomic.Pointer[string]
	wrong   prometheus.Gauge
	restart prometheus.Gauge
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
	t := time.NewTimer(watchEvery)
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
		if !asked && a.changing() {
			t.Reset(watchAgain)
			continue
		}
		if err := a.Reload(ctx, asked); err != nil && ctx.Err() == nil {
			a.log.Warn("the file was not taken, trying again", zap.Error(err))
		}
		t.Reset(watchEvery)
	}
}

// changing says that the file is another one than at the last look.
func (a *App) changing() bool {
	a.reload.mu.Lock()
	defer a.reload.mu.Unlock()
	mark := config.Fingerprint(a.path, a.file().SecretFiles)
	changed := mark != a.reload.seen
	a.reload.seen = mark
	return changed
}

// load reads and checks the file, with a mark that is never newer than what was read: what changes meanwhile has another one, and
// is taken by the next look. named are the secrets' files that the file is thought to name.
func load(path string, env func(string) (string, bool), named []string) (f *config.File, secrets *redact.Set, mark string, err error) {
	for range 3 { // one that names other files each time is another file for the next look
		mark = config.Fingerprint(path, named)
		f, secrets, err = config.Load(path, env)
		if err != nil || slices.Equal(f.SecretFiles, named) {
			break
		}
		named = f.SecretFiles
	}
	return f, secrets, mark, err
}

// Reload takes the file on the disk into force where it differs from the one in force, or was asked for by a person. A wrong
// one changes nothing and is told: in the log, the metric, the replica's row and a self-alert. The error is of what is around
// the file, such as the database: the next look tries again.
func (a *App) Reload(ctx context.Context, asked bool) error {
	a.reload.mu.Lock()
	defer a.reload.mu.Unlock()
	old := a.force.Load()
	if !asked && config.Fingerprint(a.path, old.file.SecretFiles) == old.mark {
		return a.accepted(ctx) // what was wrong, if anything, was taken back
	}
	f, secrets, mark, err := load(a.path, a.env, old.file.SecretFiles)
	if err == nil {
		err = checkFile(f, a.insecure)
	}
	var next *inForce
	if err == nil {
		next = &inForce{file: f, secrets: secrets.With(old.secrets), mark: mark}
		next.providers, err = makeProviders(f, next.secrets)
	}
	if err != nil {
		return a.refuse(ctx, secrets.With(old.secrets), err, asked)
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
	// A new file is a new try for each account: what waits for one is due. Else it would look by itself within a minute.
	if err := a.store.TakeUpWaiting(ctx, slices.Sorted(maps.Keys(f.Notifiers))); err != nil {
		a.log.Warn("what waits for an account was not brought forward, it looks by itself", zap.Error(err))
	}
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
	before := a.file().Checksum
	a.force.Store(next)
	a.reload.info.WithLabelValues(next.file.Checksum).Set(1)
	if before != next.file.Checksum {
		a.reload.info.DeleteLabelValues(before)
	}
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
	later := afterRestart(a.reload.started, f)
	a.reload.restart.Set(float64(min(len(later), 1)))
	if len(later) > 0 {
		a.log.Warn("the new file is in force but for these settings, which take hold after a restart", zap.Strings("keys", later))
	}
}

// afterRestart names the settings in which a file differs from the one that this process was started with, and that only a start
// takes: what listens and what is connected stays as it is.
func afterRestart(started, f *config.File) []string {
	var keys []string
	for _, k := range []struct {
		name    string
		differs bool
	}{
		{"database.listen_url", started.Database.ListenURL != f.Database.ListenURL},
		{"database.max_connections", started.Database.MaxConnections != f.Database.MaxConnections},
		{"database.url", started.Database.URL != f.Database.URL},
		{"server.listen", started.Server.Listen != f.Server.Listen},
		{"server.metrics_listen", started.Server.MetricsListen != f.Server.MetricsListen},
	} {
		if k.differs {
			keys = append(keys, k.name)
		}
	}
	return keys
}

// refuse keeps the old file and says why: once, or as often as somebody asks.
func (a *App) refuse(ctx context.Context, secrets *redact.Set, why error, asked bool) error {
	text := secrets.String(why.Error())
	if asked || text != a.fileError() {
		a.log.Error("the file on the disk is wrong, the old one stays in force", zap.String("problems", text), zap.String("in_force", a.file().Checksum))
	}
	a.reload.problem.Store(&text)
	a.reload.wrong.Set(1)
	if !asked && text == a.reload.told {
		return nil // it is looked at again all the same: a file of secrets that it names may come later
	}
	ctx, cancel := context.WithTimeout(ctx, loopTimeout)
	defer cancel()
	if _, err := a.sched.Heartbeat(ctx); err != nil {
		return err
	}
	if err := a.alertRefused(ctx, why, text); err != nil {
		return err
	}
	a.reload.told = text
	return nil
}

// accepted says that the file on the disk is the one in force.
func (a *App) accepted(ctx context.Context) error {
	if a.fileError() == "" {
		return nil
	}
	a.reload.told = ""
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
