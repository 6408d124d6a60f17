package intake

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/card"
	"github.com/tocsin-oncall/tocsin/pkg/message"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// Lapse resolves those alerts of an incident that their source said would hold until now, and did not send again: it is
// gone, or the word that they are over was lost. It looks again under the incident's lock. False: there are none any more.
func (i *Intake) Lapse(ctx context.Context, incidentID uuid.UUID) (bool, error) {
	lapsed := false
	var r Result
	err := i.store.InTx(ctx, func(tx *store.Tx) error {
		lapsed, r = false, Result{}
		inc, err := tx.LockIncident(ctx, incidentID)
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		alerts, err := tx.LapsedAlerts(ctx, incidentID)
		if err != nil || len(alerts) == 0 {
			return err
		}
		c := &change{tx: tx, f: i.file(), redact: i.redact, inc: inc, visible: true}
		actor := "source:" + inc.Source
		const most = 10
		for n := range alerts {
			c.inc.Firing--
			c.inc.Resolved++
			switch {
			case inc.State == message.Resolved: // a person's word ended it; its card stops saying that the alert still fires
			case n < most:
				c.note(actor, card.EntryAlertResolved, card.AlertText(false, shorten(alerts[n].Title, alertTitle), "not sent again before "+clock(alerts[n].EndsAt)))
			case n == most:
				c.note(actor, card.EntryAlertResolved, fmt.Sprintf("and %d more alerts were not sent again", len(alerts)-n))
			}
		}
		if err := tx.ResolveLapsed(ctx, alerts); err != nil {
			return fmt.Errorf("write the alerts: %w", err)
		}
		if err := c.rank(ctx, ranks{fell: true}); err != nil {
			return err
		}
		if inc.State != message.Resolved && c.inc.Firing == 0 && c.inc.Truncated == 0 {
			c.resolve(actor, actor, "", "its source did not send it again")
		}
		if _, err := c.write(ctx); err != nil {
			return err
		}
		lapsed, r.wake = true, tx.Now()
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("resolve what was not sent again of incident %s: %w", incidentID, err)
	}
	i.Committed(r)
	return lapsed, nil
}

// Called notes the call of a heartbeat, and ends the alert that it was missed.
func (i *Intake) Called(ctx context.Context, name string) error {
	missed := false
	if err := i.store.InTx(ctx, func(tx *store.Tx) (err error) {
		missed, err = tx.CallHeartbeat(ctx, name)
		return err
	}); err != nil {
		return fmt.Errorf("note the call of the heartbeat %s: %w", name, err)
	}
	if !missed {
		return nil
	}
	// A crash before this leaves the alert to the scheduler, which sees that its cause is gone.
	_, err := i.ResolveSelf(ctx, HeartbeatMissed(name, "").Key(), "it called again", func(tx *store.Tx) (bool, error) { return tx.HeartbeatMissed(ctx, name) })
	return err
}

// HeartbeatMissed is the alert about a heartbeat that did not call in time. It is announced each time: what watches is not
// what is wrong.
func HeartbeatMissed(name, criticality string) Self {
	return Self{Kind: SelfHeartbeat, Criticality: criticality, About: name, Labels: map[string]string{"heartbeat": name}}
}
