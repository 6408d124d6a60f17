package intake

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/message"
	"github.com/tocsin-oncall/tocsin/pkg/plan"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// TakeUp sends a page again that died because its person had no linked account, now that there is one, while its incident is
// open. It looks again under the incident's lock: false means that there is still nowhere to send, that somebody answered, or
// that another replica was faster.
func (i *Intake) TakeUp(ctx context.Context, incidentID, id uuid.UUID) (bool, error) {
	taken := false
	var r Result
	err := i.store.InTx(ctx, func(tx *store.Tx) error {
		taken, r = false, Result{}
		inc, err := tx.LockIncident(ctx, incidentID)
		if err != nil || inc.State != message.Open {
			return err
		}
		ds, err := tx.Deliveries(ctx, incidentID)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(ds, func(d delivery.Delivery) bool { return d.ID == id })
		if at < 0 || ds[at].State != delivery.Unreachable || ds[at].Reason != plan.NoLinkedAccount {
			return nil
		}
		if given, err := i.givenAway(ctx, tx, inc, id); err != nil || given {
			return err
		}
		linked, err := tx.Accounts(ctx)
		if err != nil {
			return err
		}
		accounts := make([]plan.Account, len(linked))
		for k, a := range linked {
			accounts[k] = plan.Account{Provider: a.Provider, AccountID: a.AccountID, UserID: a.UserID}
		}
		overrides, err := tx.OverridesWithin(ctx, 0)
		if err != nil {
			return err
		}
		if _, err := plan.Resolve(i.file().WithOverrides(overrides), accounts, ds[at].Notifier, ds[at].Target, tx.Now()); err != nil {
			return nil //nolint:nilerr // there is still nowhere to send: it stays as it is
		}
		step, err := ds[at].Decide(delivery.SendAgain)
		var refused *delivery.Refusal
		if errors.As(err, &refused) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := tx.Apply(ctx, step); err != nil {
			return err
		}
		taken, r.wake = true, tx.Now()
		return tx.Audit(ctx, "tocsin", "taken_up", id.String(), "an account was linked")
	})
	if err != nil {
		return false, fmt.Errorf("take up a page of incident %s: %w", incidentID, err)
	}
	i.Committed(r)
	return taken, nil
}

// givenAway says that the incident was given to one person since the page was made: it is theirs alone.
func (i *Intake) givenAway(ctx context.Context, tx *store.Tx, inc store.Incident, page uuid.UUID) (bool, error) {
	c := &change{tx: tx, f: i.file(), inc: inc}
	if err := c.loadSteps(ctx); err != nil {
		return false, err
	}
	names := c.ran()
	if len(names) != 1 || !escalatesToOne(names[0]) {
		return false, nil
	}
	step, err := tx.StepOf(ctx, page)
	if err != nil {
		return false, fmt.Errorf("read the page's step: %w", err)
	}
	return !slices.ContainsFunc(c.steps, func(s store.EscalationStep) bool { return s.ID == step && s.Name == names[0] }), nil
}
