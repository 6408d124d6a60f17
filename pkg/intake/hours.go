package intake

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/card"
	"github.com/tocsin-oncall/tocsin/pkg/message"
	"github.com/tocsin-oncall/tocsin/pkg/plan"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// rest notes that an alert waits for the hours of a route, which begin then.
func (c *change) rest(mark string, opens time.Time) {
	if c.opens == nil {
		c.opens = map[string]time.Time{}
	}
	c.opens[mark] = opens
}

func restingText(v plan.Verdict) string {
	text := fmt.Sprintf("Told nobody: the route %s would take it, but %s", v.Match, v.Why)
	if !v.Opens.IsZero() {
		text += ". What still fires then is sent then"
	}
	return text
}

// Open sends what still fires of an incident's alerts for which the hours of a route have begun: the route's notifiers join, and its
// escalation starts unless somebody is on it. It looks again under the incident's lock: false means that there is nothing,
// or another replica was faster. What a silence hides by then is sent when the silence is over.
func (i *Intake) Open(ctx context.Context, incidentID uuid.UUID) (bool, error) {
	did := false
	var r Result
	err := i.store.InTx(ctx, func(tx *store.Tx) error {
		did, r = false, Result{}
		inc, err := tx.LockIncident(ctx, incidentID)
		if err != nil {
			return fmt.Errorf("lock the incident: %w", err)
		}
		c := &change{tx: tx, f: i.file(), redact: i.redact, inc: inc}
		if c.opened, err = tx.RestingAlerts(ctx, inc.ID); err != nil || len(c.opened) == 0 {
			return err
		}
		did = true
		var alerts []plan.Alert
		if inc.State != message.Resolved {
			if alerts, err = c.stillFiring(ctx, c.opened, nil); err != nil {
				return err
			}
		}
		if len(alerts) > 0 {
			if err := c.reach(ctx, Group{Source: inc.Source}, alerts, alerts, &r); err != nil {
				return err
			}
		}
		if len(c.joined)+len(c.due) > 0 {
			// The escalation's lines tell whom it pages; this one comes after them, and says why now.
			c.note("tocsin", card.EntryHours, "The hours of a route have begun, and it still fires: sent now")
		}
		if r.Deliveries, err = c.write(ctx); err != nil {
			return err
		}
		if len(r.Deliveries) > 0 || len(c.entries) > 0 {
			r.wake = tx.Now()
		}
		if r.Unrouted { // by a file that has changed
			self, err := i.SelfAlert(ctx, tx, unrouted(c.inc))
			r = r.with(self)
			return err
		}
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("send what waited for hours of incident %s: %w", incidentID, err)
	}
	i.Committed(r)
	return did, nil
}
