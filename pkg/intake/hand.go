package intake

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/card"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/message"
	"github.com/tocsin-oncall/tocsin/pkg/plan"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// HandOver gives the one whom a page's target means by now a page of their own: the page itself is bound to somebody else
// by an attempt in doubt, and goes on. It is asked for before each further attempt of the bound page, so a crash in between asks
// again; each person gets one.
func (i *Intake) HandOver(ctx context.Context, incidentID, pageID uuid.UUID) error {
	made := false
	var r Result
	err := i.store.InTx(ctx, func(tx *store.Tx) error {
		made, r = false, Result{}
		inc, err := tx.LockIncident(ctx, incidentID)
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		if err != nil || inc.State != message.Open {
			return err
		}
		c := &change{tx: tx, f: i.file(), redact: i.redact, inc: inc}
		if err := c.load(ctx); err != nil {
			return err
		}
		made, err = c.handOver(ctx, pageID)
		if err != nil || !made {
			return err
		}
		r.wake = tx.Now()
		_, err = c.write(ctx)
		return err
	})
	if err != nil {
		return fmt.Errorf("hand over a page of incident %s: %w", incidentID, err)
	}
	if made {
		i.Committed(r)
	}
	return nil
}

func (c *change) handOver(ctx context.Context, pageID uuid.UUID) (bool, error) {
	at := slices.IndexFunc(c.ds, func(d delivery.Delivery) bool { return d.ID == pageID })
	if at < 0 || c.ds[at].Kind != delivery.Page || c.ds[at].State != delivery.Pending || c.ds[at].Doubt == nil {
		return false, nil
	}
	bound := c.ds[at]
	if err := c.link(ctx); err != nil {
		return false, err
	}
	f, err := c.manned(ctx)
	if err != nil {
		return false, err
	}
	person, err := plan.Resolve(f, c.accounts, bound.Notifier, bound.Target, c.tx.Now())
	if err != nil && !plan.LookedUp(err) {
		return false, nil // nobody else is meant: the bound page is all there is
	}
	step, err := c.tx.StepOf(ctx, pageID)
	if err != nil {
		return false, fmt.Errorf("read the page's step: %w", err)
	}
	siblings, err := c.tx.PagesOfStep(ctx, c.inc.ID, step)
	if err != nil {
		return false, fmt.Errorf("read the pages of the step: %w", err)
	}
	for _, d := range c.ds {
		ofStep := slices.ContainsFunc(siblings, func(p store.StepPage) bool { return p.ID == d.ID })
		if ofStep && d.ID != bound.ID && d.Notifier == bound.Notifier && d.Target == bound.Target && d.State == delivery.Pending && d.Doubt == nil && d.OpenAttempt == uuid.Nil {
			return false, nil // it is bound to nobody and goes to whoever is meant
		}
	}
	id := store.NewID()
	first, err := c.tx.HandOver(ctx, c.inc.ID, step, bound.Notifier, bound.Target, person.UserID, id)
	if err != nil || !first {
		return false, err
	}
	kind, name, _ := strings.Cut(bound.Target, ":")
	name, _, _ = strings.Cut(name, "/")
	c.note("tocsin", card.EntryHandedOver, card.HandedOverText(person.Name, plan.Why(kind, name), bound.Notifier))
	c.pages = append(c.pages, pagesOf{step: step, pages: []plan.Delivery{{
		ID: id, Kind: delivery.Page, Notifier: bound.Notifier, Target: bound.Target, Lifetime: c.f.Kinds[delivery.Page].Lifetime, Reason: "handed_over",
	}}})
	return true, nil
}
