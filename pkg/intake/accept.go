package intake

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/card"
	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/message"
	"github.com/tocsin-oncall/tocsin/pkg/plan"
	"github.com/tocsin-oncall/tocsin/pkg/route"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

const (
	firing   = "firing"
	resolved = "resolved"
)

// accept writes a checked group with a key. The change is nil where no live incident has to do with it.
func (i *Intake) accept(ctx context.Context, tx *store.Tx, f *config.File, g Group) (Result, *change, error) {
	alerts, times := distinct(ended(g.Alerts, tx.Now()))
	fires := slices.IndexFunc(alerts, func(a plan.Alert) bool { return a.Firing })

	c := &change{tx: tx, f: f}
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
	r := Result{AlertID: t.first, IncidentID: c.inc.ID, Opened: c.created}
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
	if c.visible || len(r.Deliveries) > 0 {
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

// fresh leaves out what one sender of a pair says late: the other one has just said that the alert is over, and this one
// still means the time before. Else each end of an alert would open a new incident. What ended since nobody sent it again
// was seen long before, and opens at once when its source is back. last is the incident that was looked at.
func fresh(ctx context.Context, tx *store.Tx, g Group, alerts []plan.Alert, inc store.Incident, live bool) (left []plan.Alert, last store.Incident, err error) {
	if !live {
		var ok bool
		if inc, ok, err = tx.LastResolved(ctx, g.Key); err != nil || !ok {
			return alerts, inc, err
		}
		if tx.Now().Sub(*inc.ResolvedAt) >= pairLag {
			return alerts, inc, nil
		}
	}
	marks := make([]string, len(alerts))
	for n, a := range alerts {
		marks[n] = a.Fingerprint
	}
	before, err := tx.AlertsByFingerprint(ctx, inc.ID, marks)
	if err != nil {
		return nil, inc, fmt.Errorf("read the incident's alerts: %w", err)
	}
	for _, a := range alerts {
		old, had := before[a.Fingerprint]
		late := had && a.Firing && old.Status == resolved && old.EndsAt != nil && !a.StartsAt.IsZero() &&
			!a.StartsAt.After(*old.EndsAt) && tx.Now().Sub(old.LastSeenAt) < pairLag
		if !late {
			left = append(left, a)
		}
	}
	return left, inc, nil
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

// taken is what a group did to the alerts of its incident.
type taken struct {
	first uuid.UUID    // row of the first alert
	fresh []plan.Alert // began to fire, or is routed otherwise than before
}

// take writes the alerts and brings the incident's counts, criticality, title and state up to date.
func (c *change) take(ctx context.Context, g Group, alerts []plan.Alert, times map[string]int) (taken, error) {
	var t taken
	marks := make([]string, len(alerts))
	for n, a := range alerts {
		marks[n] = a.Fingerprint
	}
	before := map[string]store.Alert{}
	if !c.created {
		var err error
		if before, err = c.tx.AlertsByFingerprint(ctx, c.inc.ID, marks); err != nil {
			return t, fmt.Errorf("read the incident's alerts: %w", err)
		}
	}
	actor := "source:" + g.Source
	now := c.tx.Now()
	var rows []store.Alert
	type line struct {
		firing        bool
		title, detail string
	}
	var lines []line
	counts := c.inc.Firing + c.inc.Resolved
	for _, a := range alerts {
		old, had := before[a.Fingerprint]
		row := merged(g.Pair, a, old, had, now)
		row.IncidentID = c.inc.ID
		row.Count += times[a.Fingerprint]
		c.inc.Count += times[a.Fingerprint]
		switch {
		case a.Firing && !had:
			c.inc.Firing++
		case a.Firing && old.Status == resolved:
			c.inc.Firing++
			c.inc.Resolved--
		case !a.Firing && !had:
			c.inc.Resolved++
		case !a.Firing && old.Status == firing:
			c.inc.Firing--
			c.inc.Resolved++
		}
		turned := !had || old.Status != row.Status
		if turned && (had || a.Firing) {
			lines = append(lines, line{a.Firing, row.Title, card.Detail(row.Labels, nil)})
		}
		if turned || differs(old, row) {
			c.visible = true
		}
		if a.Firing && (turned || old.Topic != row.Topic || !maps.Equal(old.Labels, row.Labels)) {
			t.fresh = append(t.fresh, a)
		}
		if t.first == uuid.Nil {
			t.first = row.ID
		}
		rows = append(rows, row)
	}
	if err := c.tx.PutAlerts(ctx, c.inc.ID, rows, toldAlerts(g.Source, rows)...); err != nil {
		return t, fmt.Errorf("write the alerts: %w", err)
	}
	if err := c.rank(ctx); err != nil {
		return t, err
	}
	c.retitle(g, rows, counts == 0)
	if c.created {
		c.visible = true
		c.note(actor, card.EntryOpened, card.OpenedText(shorten(c.inc.Title, alertTitle), c.inc.Criticality, c.inc.Firing))
	} else {
		// A storm in one message is one line: a thread is read by people.
		const most = 10
		for n, l := range lines {
			if n == most && len(lines) > most+1 {
				c.note(actor, kind(l.firing), fmt.Sprintf("and %d more alerts changed", len(lines)-n))
				break
			}
			c.note(actor, kind(l.firing), card.AlertText(l.firing, shorten(l.title, alertTitle), l.detail))
		}
	}
	if g.Truncated != c.inc.Truncated {
		if c.visible = true; g.Truncated > 0 && c.inc.Truncated == 0 {
			c.note(actor, card.EntryTruncated, card.TruncatedText(g.Truncated))
		}
		c.inc.Truncated = g.Truncated
	}
	if c.inc.Firing == 0 && c.inc.Truncated == 0 {
		c.resolve(actor, actor, "", "")
	}
	return t, nil
}

func kind(fires bool) string {
	if fires {
		return card.EntryAlertFiring
	}
	return card.EntryAlertResolved
}

// besides are the notifiers but for those to avoid, where any are left: a word through a broken one is better than none.
func besides(names, avoid []string) []string {
	if left := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return slices.Contains(avoid, n) }); len(left) > 0 {
		return left
	}
	return names
}

// rank sets the incident's criticality to the highest that fires. When none fires any more it stays what it was.
func (c *change) rank(ctx context.Context) error {
	if !c.visible && !c.created {
		return nil
	}
	fires, err := c.tx.FiringCriticalities(ctx, c.inc.ID)
	if err != nil {
		return fmt.Errorf("read what fires: %w", err)
	}
	if len(fires) == 0 {
		return nil
	}
	slices.Sort(fires) // two words of one rank: the same one every time
	before := c.inc.Criticality
	c.inc.Criticality = slices.MaxFunc(fires, func(a, b string) int { return plan.Rank(a) - plan.Rank(b) })
	if c.created || plan.HighUrgency(before) || !plan.HighUrgency(c.inc.Criticality) {
		return nil
	}
	woke, err := c.tx.WakeSteps(ctx, c.inc.ID)
	if err != nil {
		return fmt.Errorf("end the rest of the escalation: %w", err)
	}
	if woke {
		c.note("tocsin", card.EntryUrgent, card.UrgentText)
	}
	return nil
}

// retitle follows the source: its title for the group, or the title of the one alert that there is.
func (c *change) retitle(g Group, rows []store.Alert, fresh bool) {
	title := g.Title
	if title == "" && len(rows) == 1 && c.inc.Firing+c.inc.Resolved == 1 && !fresh {
		title = rows[0].Title
	}
	if title != "" && title != c.inc.Title {
		c.inc.Title, c.visible = title, true
	}
}

// merged is the row of an alert after its newest message.
func merged(pair bool, a plan.Alert, old store.Alert, had bool, now time.Time) store.Alert {
	row := store.Alert{
		ID: old.ID, Fingerprint: a.Fingerprint, Topic: a.Topic(), Criticality: route.Word(a.Criticality), Status: resolved,
		Title: a.Title, Text: a.Text, Labels: a.Labels, Links: a.Links, StartsAt: a.StartsAt, Count: old.Count,
	}
	if !had {
		row.ID = store.NewID()
	}
	if row.StartsAt.IsZero() {
		if row.StartsAt = now; had && (old.Status == firing || !a.Firing) {
			row.StartsAt = old.StartsAt
		}
	}
	if pair && had && old.Status == firing && old.StartsAt.Before(row.StartsAt) {
		row.StartsAt = old.StartsAt // the other one saw it first
	}
	if a.Firing {
		if row.Status = firing; !a.EndsAt.IsZero() {
			ends := a.EndsAt
			if pair && had && old.Status == firing && old.EndsAt != nil && old.EndsAt.After(ends) {
				ends = *old.EndsAt
			}
			row.EndsAt = &ends
		}
		return row
	}
	ends := a.EndsAt
	if ends.IsZero() || ends.Before(row.StartsAt) {
		if ends = now; had && old.Status == resolved && old.EndsAt != nil {
			ends = *old.EndsAt
		}
	}
	row.EndsAt = &ends
	return row
}

// differs says that a reader would see a difference between two messages of one alert. Links do not count: two
// Alertmanagers of one cluster name themselves in them.
func differs(a, b store.Alert) bool {
	return a.Title != b.Title || a.Text != b.Text || a.Topic != b.Topic || !maps.Equal(a.Labels, b.Labels)
}

// reach lets the fresh alerts' notifiers join and their escalations start.
func (c *change) reach(ctx context.Context, g Group, alerts, fresh []plan.Alert, r *Result) error {
	if err := c.load(ctx); err != nil {
		return err
	}
	if g.Source == SelfSource {
		if !g.Loud {
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
	took := len(fresh) < all // what is silenced is no mistake of the file
	var resting []plan.Verdict
	for _, a := range fresh {
		m := plan.Routes(c.f, a.Topic(), a.Labels, a.Notify, c.tx.Now())
		took = took || !m.Empty()
		resting = append(resting, m.Resting...)
		c.join(besides(m.Notifiers, g.Avoid))
		for _, e := range m.Escalations {
			if !slices.Contains(escalations, e) {
				escalations = append(escalations, e)
			}
		}
	}
	if !took && len(resting) > 0 && len(c.ds) == 0 {
		took = true // neither is what the file leaves for another time
		c.note("tocsin", card.EntryQuiet, fmt.Sprintf("Told nobody: the route %s would take it, but %s", resting[0].Match, resting[0].Why))
	}
	r.Unrouted = !took && len(c.ds) == 0 && g.Source != SelfSource
	if c.inc.State != message.Open {
		return nil // somebody is on it: the card shows the news, and nobody is woken
	}
	for _, e := range escalations {
		if err := c.start(ctx, e); err != nil {
			return err
		}
	}
	return nil
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
	c := &change{tx: tx, f: f, inc: last}
	marks := make([]string, len(alerts))
	for n, a := range alerts {
		marks[n] = a.Fingerprint
	}
	before, err := tx.AlertsByFingerprint(ctx, last.ID, marks)
	if err != nil {
		return Result{}, false, fmt.Errorf("read the last incident's alerts: %w", err)
	}
	var rows []store.Alert
	r := Result{IncidentID: last.ID, State: last.State, Quiet: true}
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
	if c.visible {
		r.wake = tx.Now()
	}
	return r, true, err
}
