package intake

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/card"
	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/message"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// StepRing is the step that is due when the time of an acknowledgement is over.
const StepRing = -2

// ringAfter makes the row by which an acknowledgement rings again, where one of the incident's escalations says so, and gives
// the time: the shortest. Acknowledging withdraws all other steps in the same transaction. Where no escalation of the file says so,
// nothing is read for it: most acknowledgements hold for good.
func (c *change) ringAfter(ctx context.Context) (time.Duration, error) {
	if !slices.ContainsFunc(slices.Collect(maps.Values(c.f.Escalations)), func(e config.Escalation) bool { return e.AckTimeout > 0 }) {
		return 0, nil
	}
	if err := c.load(ctx); err != nil { // the order of locks: deliveries before steps
		return 0, err
	}
	if err := c.loadSteps(ctx); err != nil {
		return 0, err
	}
	var out store.EscalationStep
	round := 0
	for _, s := range c.steps { // also where it was reassigned since: then it is that person who is paged again
		if d := c.f.Escalations[s.Name].AckTimeout; d > 0 && (out.Due == 0 || d < out.Due) {
			out = store.EscalationStep{ID: store.NewID(), IncidentID: c.inc.ID, Name: s.Name, Step: StepRing, State: "due", Due: d}
		}
	}
	if out.Due == 0 {
		return 0, nil
	}
	for _, s := range c.steps {
		if s.Name == out.Name {
			round = max(round, s.Round)
		}
	}
	out.Round = round + 1
	c.due = append(c.due, out)
	return out.Due, nil
}

// ring opens an incident anew that somebody acknowledged a while ago and nobody resolved: its escalations begin again. Where
// it was snoozed or escalated since, it has nothing to say.
func (c *change) ring(ctx context.Context, step store.EscalationStep) error {
	if c.inc.State != message.Acknowledged || c.inc.SnoozedUntil != nil {
		return c.tx.WithdrawStep(ctx, c.inc.ID, StepRing, string(c.inc.State))
	}
	since := c.tx.Now()
	if c.inc.AcknowledgedAt != nil {
		since = *c.inc.AcknowledgedAt
	}
	c.note("tocsin", card.EntryRings, card.RingsText(c.inc.AcknowledgedBy, c.tx.Now().Sub(since)))
	c.fired = append(c.fired, step.ID)
	if err := c.anew(ctx); err != nil {
		return err
	}
	c.reopened = false // the one row that there is fires
	_, err := c.write(ctx)
	return err
}
