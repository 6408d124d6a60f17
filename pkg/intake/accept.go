package intake

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/card"
	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/message"
	"github.com/tocsin-oncall/tocsin/pkg/plan"
	"github.com/tocsin-oncall/tocsin/pkg/route"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

const (
	firing   = "firing"
	resolved = "resolved"
)

// accept writes a checked group with a key. The change is nil where no live incident has to do with it. Where later is not nil, the
// moves of deliveries that were there are added to it instead of being applied.
func (i *Intake) accept(ctx context.Context, tx *store.Tx, f *config.File, g Group, later *[]delivery.Step) (Result, *change, error) {
	alerts, times := distinct(ended(g.Alerts, tx.Now()))
	fires := slices.IndexFunc(alerts, func(a plan.Alert) bool { return a.Firing })

	c := &change{tx: tx, f: f, redact: i.redact, later: later}
	var live bool
	var err error
	if c.inc, live, err = tx.LiveIncident(ctx, g.Key); err != nil {
		return Result{}, nil, fmt.Errorf("look for the incident: %w", err)
	}
	if g.Pair {
		left, last, err := fresh(ctx, tx, g, alerts, c.inc, live)
		if err != nil {
			return Result{}, nil, err
		}
		if len(left) == 0 {
			return Result{IncidentID: last.ID, State: last.State, Quiet: true}, nil, nil
		}
		alerts = left
		fires = slices.IndexFunc(alerts, func(a plan.Alert) bool { return a.Firing })
	}
	if !live {
		r, done, err := i.afterwards(ctx, tx, f, g, alerts, times)
		if err != nil || done || fires < 0 {
			return r, nil, err
		}
		first := alerts[fires]
		title := g.Title
		if title == "" {
			title = first.Title
		}
		c.inc, c.created, err = tx.OpenIncident(ctx, store.Incident{
			ID: store.NewID(), Key: g.Key, Source: g.Source, Topic: first.Topic(), Title: title, Criticality: route.Word(first.Criticality),
		})
		if err != nil {
			return Result{}, nil, fmt.Errorf("open an incident: %w", err)
		}
	}

	t, err := c.take(ctx, g, alerts, times)
	if err != nil {
		return Result{}, nil, err
	}
	r := Result{AlertID: t.ids[alerts[0].Fingerprint], IncidentID: c.inc.ID, Opened: c.created, alerts: t.ids}
	if len(t.fresh) == 0 && g.Source != SelfSource {
		if t.fresh, err = c.unheard(ctx, alerts); err != nil {
			return Result{}, nil, err
		}
	}
	if c.inc.State != message.Resolved && (len(t.fresh) > 0 || g.Source == SelfSource) {
		if err := c.reach(ctx, g, alerts, t.fresh, &r); err != nil {
			return Result{}, nil, err
		}
	}
	r.Deliveries, err = c.write(ctx)
	r.State = c.inc.State
	if c.moved {
		r.wake = tx.Now()
	}
	return r, c, err
}

// ended takes an alert whose end has passed for resolved, whatever else its source says.
func ended(all []plan.Alert, now time.Time) []plan.Alert {
	out := slices.Clone(all)
	for n, a := range out {
		if a.Firing && !a.EndsAt.IsZero() && !a.EndsAt.After(now) {
			out[n].Firing = false
		}
	}
	return out
}

// distinct keeps one alert per fingerprint, a firing one before a resolved one, and counts its firings.
func distinct(all []plan.Alert) ([]plan.Alert, map[string]int) {
	at, times := map[string]int{}, map[string]int{}
	var out []plan.Alert
	for _, a := range all {
		a.Fingerprint = a.Mark()
		if a.Firing {
			times[a.Fingerprint]++
		}
		n, had := at[a.Fingerprint]
		switch {
		case !had:
			at[a.Fingerprint] = len(out)
			out = append(out, a)
		case a.Firing || !out[n].Firing:
			out[n] = a
		}
	}
	return out, times
}

// besides are the notifiers but for those to avoid, where any are left: a word through a broken one is better than none.
func besides(names, avoid []string) []string {
	if left := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return slices.Contains(avoid, n) }); len(left) > 0 {
		return left
	}
	return names
}

// reach lets the fresh alerts' notifiers join and their escalations start.
func (c *change) reach(ctx context.Context, g Group, alerts, fresh []plan.Alert, r *Result) error {
	if err := c.load(ctx); err != nil {
		return err
	}
	if g.Source == SelfSource {
		if g.Daily {
			if quiet, err := c.quiet(ctx); err != nil || quiet {
				return err
			}
		}
		fresh = alerts // what was quiet yesterday is announced today, though nothing of it changed
	}
	fresh = slices.DeleteFunc(slices.Clone(fresh), func(a plan.Alert) bool { return !a.Firing })
	all := len(fresh)
	fresh, err := c.unsilenced(ctx, fresh)
	if err != nil {
		return err
	}
	var escalations []string
	took := len(fresh) == 0 && all > 0 // what is silenced is no mistake of the file
	var resting []plan.Verdict
	var matches []plan.Match
	for _, a := range fresh {
		m := plan.Routes(c.f, a.Topic(), a.Labels, a.Notify, c.tx.Now())
		matches = append(matches, m)
		took = took || !m.Empty()
		resting = append(resting, m.Resting...)
		if opens, ok := m.Opens(); ok {
			c.rest(a.Mark(), opens)
		}
		c.join(besides(m.Notifiers, g.Avoid))
		for _, e := range m.Escalations {
			if !slices.Contains(escalations, e) {
				escalations = append(escalations, e)
			}
		}
	}
	if !took && len(resting) > 0 && len(c.ds) == 0 {
		took = true // neither is what the file leaves for another time
		if len(c.opened) == 0 {
			c.note("tocsin", card.EntryQuiet, restingText(resting[0]))
		}
	}
	r.Unrouted = !took && len(c.ds) == 0 && g.Source != SelfSource
	if len(fresh) > 0 { // a silence that held the escalation does so no more
		if c.release, err = c.held(ctx); err != nil {
			return err
		}
	}
	if c.inc.State != message.Open {
		return c.decided(ctx, fresh, matches) // somebody is on it: the card shows the news, and nobody is woken
	}
	for _, e := range escalations {
		if err := c.start(ctx, e); err != nil {
			return err
		}
	}
	return c.decided(ctx, fresh, matches)
}

// unheard are the firing alerts of a re-send of which nobody has heard yet: the incident has no delivery, since nothing in
// the file took it, and by now something does. Else none: a re-send that changes nothing moves nothing.
func (c *change) unheard(ctx context.Context, alerts []plan.Alert) ([]plan.Alert, error) {
	var all []plan.Alert
	for _, a := range alerts {
		if a.Firing && !plan.Routes(c.f, a.Topic(), a.Labels, a.Notify, c.tx.Now()).Empty() {
			all = append(all, a)
		}
	}
	if len(all) == 0 || c.created || c.inc.State == message.Resolved {
		return nil, nil
	}
	told, err := c.tx.HasDeliveries(ctx, c.inc.ID)
	if err != nil {
		return nil, fmt.Errorf("look for the incident's deliveries: %w", err)
	}
	if told {
		return nil, nil
	}
	return all, nil
}

// afterwards looks at messages for a key without a live incident. done says that nothing is to be opened: the source
// re-sends what a person resolved.
func (i *Intake) afterwards(ctx context.Context, tx *store.Tx, f *config.File, g Group, alerts []plan.Alert, times map[string]int) (Result, bool, error) {
	last, ok, err := tx.LastResolved(ctx, g.Key)
	if err != nil {
		return Result{}, false, fmt.Errorf("look for the last incident: %w", err)
	}
	if !ok || last.Firing == 0 || card.Person(last.ResolvedBy) == "" || tx.Now().Sub(*last.ResolvedAt) >= reopenAfter(f, g.Source) {
		return Result{}, false, nil
	}
	if last, err = tx.LockIncident(ctx, last.ID); err != nil {
		return Result{}, false, fmt.Errorf("lock the last incident: %w", err)
	}
	c := &change{tx: tx, f: f, redact: i.redact, inc: last}
	marks := make([]string, len(alerts))
	for n, a := range alerts {
		marks[n] = a.Fingerprint
	}
	before, err := tx.AlertsByFingerprint(ctx, last.ID, marks)
	if err != nil {
		return Result{}, false, fmt.Errorf("read the last incident's alerts: %w", err)
	}
	var rows []store.Alert
	r := Result{IncidentID: last.ID, State: last.State, Quiet: true, alerts: map[string]uuid.UUID{}}
	for _, a := range alerts {
		old, had := before[a.Fingerprint]
		same := had && old.Status == firing && !a.StartsAt.IsZero() &&
			(a.StartsAt.Equal(old.StartsAt) || g.Pair && !a.StartsAt.After(*last.ResolvedAt)) // the other one of a pair has a start of its own
		switch {
		case a.Firing && !same:
			return Result{}, false, nil // it began anew: that is an incident
		case !had || old.Status != firing:
			continue
		}
		row := merged(g.Pair, a, old, true, tx.Now())
		row.IncidentID = last.ID
		row.Count += times[a.Fingerprint]
		c.inc.Count += times[a.Fingerprint]
		if !a.Firing {
			// The card of the resolved incident stops saying that its alert still fires.
			c.inc.Firing--
			c.inc.Resolved++
			c.visible = true
		}
		r.alerts[a.Fingerprint] = row.ID
		if rows = append(rows, row); len(rows) == 1 {
			r.AlertID = row.ID
		}
	}
	if len(rows) == 0 {
		return Result{}, false, nil
	}
	if err := tx.PutAlerts(ctx, last.ID, rows, toldAlerts(g.Source, rows)...); err != nil {
		return Result{}, false, fmt.Errorf("write the alerts: %w", err)
	}
	_, err = c.write(ctx)
	if c.moved {
		r.wake = tx.Now()
	}
	return r, true, err
}
