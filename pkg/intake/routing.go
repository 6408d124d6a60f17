package intake

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/message"
	"github.com/tocsin-oncall/tocsin/pkg/plan"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// mostRouting is how many different answers of the file one change keeps. A storm of alerts has a few.
const mostRouting = 20

// decided gathers what the file says of the alerts of this change, each different answer once: the file that is in force when
// somebody asks why may be another one. matches are those of the alerts in their order; what silences hide is asked here.
func (c *change) decided(ctx context.Context, alerts []plan.Alert, matches []plan.Match) error {
	seen := map[string]bool{}
	keep := func(a plan.Alert, m plan.Match, hidden *plan.Silence) error {
		if len(seen) >= mostRouting {
			return nil
		}
		key := a.Topic() + "\n" + strings.Join(a.Notify, " ")
		for _, v := range m.Routes {
			if v.Topic {
				key += "\n" + v.Why
			}
		}
		if hidden != nil {
			key += "\n" + hidden.ID
		}
		if seen[key] {
			return nil
		}
		seen[key] = true
		return c.keepRouting(ctx, a, m, hidden)
	}
	for n, a := range alerts {
		if err := keep(a, matches[n], nil); err != nil {
			return err
		}
	}
	for _, h := range c.hidden {
		if err := keep(h.alert, plan.Routes(c.f, h.alert.Topic(), h.alert.Labels, h.alert.Notify, c.tx.Now()), &h.by); err != nil {
			return err
		}
	}
	return nil
}

func (c *change) keepRouting(ctx context.Context, a plan.Alert, m plan.Match, hidden *plan.Silence) error {
	d := api.ExplainedDecision{Routes: []api.ExplainedRoute{}, Notifiers: m.Notifiers, Escalations: m.Escalations, Notify: a.Notify}
	for _, v := range m.Routes {
		w := explainedRoute(v)
		if !v.Topic {
			w.Why = "" // most routes: it is put together again when somebody asks
		}
		d.Routes = append(d.Routes, w)
	}
	if hidden != nil {
		w := ExplainedSilence(plan.SilenceVerdict{Silence: *hidden, Hides: true})
		d.Silence = &w
	}
	if len(m.Escalations) > 0 && hidden == nil && c.inc.State == message.Open {
		if err := c.link(ctx); err != nil {
			return err
		}
		f, err := c.manned(ctx)
		if err != nil {
			return err
		}
		a.Firing = true
		d.People = ExplainedPeople(plan.Explain(f, plan.Question{Alerts: []plan.Alert{a}, At: c.tx.Now(), Accounts: c.accounts}).People)
	}
	body, err := json.Marshal(d)
	if err != nil {
		return fmt.Errorf("write what the file says of an alert: %w", err)
	}
	c.routing = append(c.routing, store.Routing{File: c.f.Checksum, Topic: a.Topic(), Labels: a.Labels, Body: body})
	return nil
}

// writeRouting writes what the file says, and what waits for the hours of a route.
func (c *change) writeRouting(ctx context.Context) error {
	for _, r := range c.routing {
		r.Body = []byte(c.redact(string(r.Body))) // a label in the file may come from ${NAME}
		if err := c.tx.KeepRouting(ctx, c.inc.ID, r); err != nil {
			return fmt.Errorf("keep what the file says: %w", err)
		}
	}
	if err := c.tx.ForgetResting(ctx, c.inc.ID, c.opened); err != nil {
		return fmt.Errorf("let go of what waited for hours: %w", err)
	}
	if err := c.tx.RestAlerts(ctx, c.inc.ID, c.opens); err != nil {
		return fmt.Errorf("let an alert wait for hours: %w", err)
	}
	return nil
}

func explainedRoute(v plan.Verdict) api.ExplainedRoute {
	w := api.ExplainedRoute{Match: v.Match, Line: v.Line, Matched: v.Matched, Why: v.Why, Rests: v.Rests}
	if !v.Opens.IsZero() {
		at := v.Opens.UTC()
		w.Opens = &at
	}
	return w
}

// ExplainedRoutes are verdicts in the words of the API.
func ExplainedRoutes(vs []plan.Verdict) []api.ExplainedRoute {
	out := []api.ExplainedRoute{}
	for _, v := range vs {
		out = append(out, explainedRoute(v))
	}
	return out
}

// ExplainedSilence is what a silence does to an alert, in the words of the API.
func ExplainedSilence(v plan.SilenceVerdict) api.ExplainedSilence {
	return api.ExplainedSilence{ID: v.Silence.ID, Hides: v.Hides, Why: v.Why, From: v.Silence.From.UTC(), Until: v.Silence.Until.UTC(), By: v.Silence.Author, Reason: v.Silence.Reason}
}

// ExplainedPeople are those whom the steps of escalations page, in the words of the API.
func ExplainedPeople(all []plan.Paged) []api.ExplainedPerson {
	out := []api.ExplainedPerson{}
	for _, p := range all {
		w := api.ExplainedPerson{ID: p.User, Name: p.Name, Target: p.Target, Escalation: p.Escalation, Step: p.Step, After: p.After.String(), Ways: p.Ways}
		if w.Ways == nil {
			w.Ways = []string{}
		}
		out = append(out, w)
	}
	return out
}
