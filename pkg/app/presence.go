package app

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/plan"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
	"github.com/tocsin-oncall/tocsin/pkg/store"
	"github.com/tocsin-oncall/tocsin/pkg/worker"
)

const (
	accountEvery = 5 * time.Second // how late another replica may learn of a linked account
	loopTimeout  = 5 * time.Second
	// callbackEvery is how often what another replica has stored and not applied is looked for.
	callbackEvery = time.Second
)

// announce writes the first heartbeat. A signal that came already does not cut it: the stop after it is orderly.
func (a *App) announce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), loopTimeout)
	defer cancel()
	if _, err := a.sched.Heartbeat(ctx); err != nil {
		return fmt.Errorf("announce this replica: %w", err)
	}
	return nil
}

// leave takes this replica out of the live ones.
func (a *App) leave(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, loopTimeout)
	defer cancel()
	return a.store.RemoveReplica(ctx, a.id)
}

// readAccounts learns which chat accounts are linked to whom.
func (a *App) readAccounts(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, loopTimeout)
	defer cancel()
	rows, err := a.store.Accounts(ctx)
	if err != nil {
		return fmt.Errorf("read the linked accounts: %w", err)
	}
	all := make([]plan.Account, len(rows))
	for i, r := range rows {
		all[i] = plan.Account{Provider: r.Provider, AccountID: r.AccountID, UserID: r.UserID}
	}
	a.accounts.Store(&all)
	return nil
}

func (a *App) accountLoop(ctx context.Context) {
	a.every(ctx, accountEvery, "the linked accounts were not read", a.readAccounts)
}

// findAgain is how long somebody whom a chat did not know is not asked for again: an escalation pages them again and again.
const findAgain = time.Minute

// findAccount looks for a user's account with a notifier: among those that were linked meanwhile, then by the user's e-mail address,
// whose answer is kept as a linked account.
func (a *App) findAccount(ctx context.Context, notifier, userID string) (bool, error) {
	known := func() bool {
		_, err := plan.Resolve(a.file(), a.accountsNow(), notifier, "user:"+userID, time.Time{})
		return err == nil
	}
	if err := a.readAccounts(ctx); err != nil || known() {
		return err == nil, err
	}
	force := a.force.Load()
	n := force.file.Notifiers[notifier]
	at := slices.IndexFunc(force.file.Users, func(u config.User) bool { return u.ID == userID })
	finder, can := force.providers[notifier].(provider.Finder)
	if at < 0 || !can || !plan.LooksUp(n, force.file.Users[at]) {
		return false, nil
	}
	email := force.file.Users[at].Email
	key := n.Account() + " " + email
	if last, ok := a.unfound.Load(key); ok && time.Since(last.(time.Time)) < findAgain { //nolint:forcetypeassert // only times are stored
		return false, nil
	}
	id, err := finder.Find(ctx, email)
	if err != nil {
		return false, err
	}
	if id == "" {
		a.unfound.Store(key, time.Now())
		return false, nil
	}
	if whose, linked, err := a.store.AccountUser(ctx, n.Type, id); err != nil || linked && whose != userID {
		return false, err // somebody linked it to another one, and knew better
	}
	err = a.store.InTx(ctx, func(tx *store.Tx) error {
		if err := tx.PutAccount(ctx, n.Type, id, userID, "e-mail"); err != nil {
			return err
		}
		return tx.Audit(ctx, "tocsin", "account_linked", userID, n.Type+" "+id+" by its e-mail address")
	})
	if err != nil {
		return false, err
	}
	a.log.Info("account found by its e-mail address", zap.String("provider", n.Type), zap.String("account", id), zap.String("user", userID))
	a.linked(ctx)
	return known(), nil
}

// linked is called when an account was linked through this replica.
func (a *App) linked(ctx context.Context) {
	if err := a.readAccounts(ctx); err != nil {
		a.log.Warn("the linked accounts were not read", zap.Error(err))
	}
	a.sched.Linked()
}

// jobFailed logs a scheduler's step that went wrong; it is tried again in its time.
func (a *App) jobFailed(job string, err error) {
	a.log.Warn("a scheduler's step failed", zap.String("job", job), zap.Error(err))
}

// died says that a delivery died: its self-alert is due. The scheduler would find it by itself, a little later.
func (a *App) died() {
	select {
	case a.dead <- struct{}{}:
	default:
	}
}

// ended is told of each delivery that someone else than a worker has ended: it is counted as the worker counts its own, and
// a death is told in the same words.
func (a *App) ended(m *worker.Metrics, e store.Ended) {
	m.Ended(e.Kind, e.State)
	if !e.State.Dead() {
		return
	}
	a.log.Warn("delivery died", zap.String("delivery", e.ID.String()), zap.String("incident", e.IncidentID.String()), zap.String("kind", string(e.Kind)),
		zap.String("notifier", e.Notifier), zap.String("target", e.Target), zap.String("state", string(e.State)), zap.String("reason", e.Reason), zap.String("sentence", e.Sentence))
	a.died()
}

// announceLoop raises self-alerts as soon as this replica's deliveries die, until ctx ends.
func (a *App) announceLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.dead:
		}
		if _, err := a.sched.Announce(ctx); err != nil && ctx.Err() == nil {
			a.jobFailed("announce", err)
		}
	}
}

// every runs work again and again until ctx ends, and logs what goes wrong once per outage.
func (a *App) every(ctx context.Context, pause time.Duration, wrong string, work func(context.Context) error) {
	t := time.NewTicker(pause)
	defer t.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		err := work(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			a.log.Warn(wrong, zap.Error(err))
		}
		failing = err != nil
	}
}
