package intake

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/card"
	"github.com/tocsin-oncall/tocsin/pkg/plan"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// hiddenAlert is an alert with the silence that hides it.
type hiddenAlert struct {
	alert plan.Alert
	by    plan.Silence
}

// hold lets the escalations of an incident stand still while silences hide all of its alerts that fire: who silences an alert is
// told of it no more, and pages nobody else. True: they do. All of them are noted as kept back, so that the silence's end is
// their way back, and the escalation's.
func (c *change) hold(ctx context.Context) (bool, error) {
	rows, err := c.tx.ActiveSilences(ctx)
	if err != nil || len(rows) == 0 || c.inc.Firing == 0 {
		return false, err
	}
	silences := Silences(rows)
	hidden, all, err := c.allHidden(ctx, silences, min(c.inc.Firing, commonOf))
	if err == nil && all && len(hidden) < c.inc.Firing {
		hidden, all, err = c.allHidden(ctx, silences, c.inc.Firing)
	}
	if err != nil || !all || len(hidden) < c.inc.Firing { // more than are read at once: rather one page too many
		return false, err
	}
	before, err := c.tx.SilencedAlerts(ctx, c.inc.ID)
	if err != nil {
		return false, fmt.Errorf("read the incident's silenced alerts: %w", err)
	}
	for _, h := range hidden {
		if !slices.ContainsFunc(before, func(k store.SilencedAlert) bool { return k.Fingerprint == h.alert.Fingerprint }) {
			c.silenced = append(c.silenced, store.SilencedAlert{Fingerprint: h.alert.Fingerprint, SilenceID: uuid.MustParse(h.by.ID)})
		}
	}
	if held, err := c.tx.HoldSteps(ctx, c.inc.ID); err != nil || !held {
		return true, err
	}
	s := hidden[0].by
	for _, h := range hidden {
		if h.by.Until.Before(s.Until) {
			s = h.by // the first one that ends lets it go on
		}
	}
	c.note("tocsin", card.EntrySilenced, "The escalation stands still: "+s.Text())
	return true, nil
}

// allHidden says whether silences hide all of so many firing alerts, and by which.
func (c *change) allHidden(ctx context.Context, silences []plan.Silence, most int) ([]hiddenAlert, bool, error) {
	rows, err := c.tx.Alerts(ctx, c.inc.ID, most)
	if err != nil {
		return nil, false, fmt.Errorf("read the incident's alerts: %w", err)
	}
	rows = slices.DeleteFunc(rows, func(a store.Alert) bool { return a.Status != firing })
	var out []hiddenAlert
	for _, a := range Stored(rows) {
		s, hidden := plan.SilencedBy(silences, a.Topic(), a.Labels)
		if !hidden {
			return nil, false, nil
		}
		out = append(out, hiddenAlert{a, s})
	}
	return out, true, nil
}

// held says that a silence holds an escalation of the incident.
func (c *change) held(ctx context.Context) (bool, error) {
	err := c.loadSteps(ctx)
	return slices.ContainsFunc(c.steps, func(s store.EscalationStep) bool { return s.Held }), err
}

// silencedText begins a sentence with what a silence says.
func silencedText(s plan.Silence) string {
	text := s.Text()
	return strings.ToUpper(text[:1]) + text[1:]
}
