package intake

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/card"
	"github.com/tocsin-oncall/tocsin/pkg/message"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// How long an incident may be put off, and for how long a button does it.
const (
	minSnooze     = time.Minute
	maxSnooze     = 7 * 24 * time.Hour
	DefaultSnooze = time.Hour
)

// samePress is how close two presses of one button may lie to be taken for one: somebody pressed twice, or two people at once.
// What may be done again and again, such as escalating, would be done twice otherwise.
const samePress = 15 * time.Second

// Snooze puts an incident off: it is acknowledged for a while and rings again after it, from the beginning of its escalations,
// unless it was resolved or acknowledged meanwhile. When it is over is a row of the database, for any replica.
func (i *Intake) Snooze(ctx context.Context, id uuid.UUID, by Actor, d time.Duration, reason string) (Answer, error) {
	by, reason = by.plain(), line(reason, MaxTitle)
	if d < minSnooze || d > maxSnooze {
		return Answer{}, &InputError{"for", fmt.Sprintf("say how long, between %s and 7d: for example 1h", minSnooze)}
	}
	return i.answer(ctx, id, by, "snooze", reason, func(_ context.Context, c *change, a *Answer) error {
		until := c.at().Add(d)
		was := c.inc.SnoozedUntil
		switch {
		case c.inc.State == message.Resolved:
			a.Refused = true
			return nil
		case was != nil && until.Sub(*was).Abs() < samePress:
			return nil // who was first is told by the state
		}
		c.acknowledge(by.Name)
		c.inc.SnoozedUntil = &until
		c.note(by.ID, card.EntrySnoozed, card.SnoozedText(by.Name, until, reason))
		a.Changed = true
		a.said = fmt.Sprintf("You snoozed it until %s: then it rings again, unless it is resolved.", moment(until))
		return nil
	})
}

// Ring makes a snoozed incident ring again when its time has come. It looks again under the incident's lock: false means that
// somebody answered or another replica was faster.
func (i *Intake) Ring(ctx context.Context, id uuid.UUID) (bool, error) {
	rang := false
	var r Result
	err := i.store.InTx(ctx, func(tx *store.Tx) error {
		rang, r = false, Result{}
		inc, err := tx.LockIncident(ctx, id)
		if err != nil || inc.SnoozedUntil == nil || inc.SnoozedUntil.After(tx.Now()) {
			return err
		}
		if inc.State != message.Acknowledged { // an older replica resolved it and knows no snooze
			inc.SnoozedUntil = nil
			return tx.SaveIncident(ctx, inc)
		}
		c := &change{tx: tx, f: i.file(), redact: i.redact, inc: inc}
		if err := c.load(ctx); err != nil {
			return err
		}
		if err := c.loadSteps(ctx); err != nil {
			return err
		}
		c.note("tocsin", card.EntrySnoozeOver, card.SnoozeOverText(inc.AcknowledgedBy))
		if err := c.anew(ctx); err != nil {
			return err
		}
		if _, err := c.write(ctx); err != nil {
			return err
		}
		rang, r.wake = true, tx.Now()
		return tx.Audit(ctx, "tocsin", "snooze_over", "incident:"+id.String(), "")
	})
	if err != nil {
		return false, fmt.Errorf("ring again for incident %s: %w", id, err)
	}
	i.Committed(r)
	return rang, nil
}
