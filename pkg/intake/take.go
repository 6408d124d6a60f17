package intake

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/card"
	"github.com/tocsin-oncall/tocsin/pkg/plan"
	"github.com/tocsin-oncall/tocsin/pkg/route"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// taken is what a group did to the alerts of its incident.
type taken struct {
	ids   map[string]uuid.UUID // rows of the alerts, by fingerprint
	fresh []plan.Alert         // began to fire, or is routed otherwise than before
}

// take writes the alerts and brings the incident's counts, criticality, title and state up to date.
func (c *change) take(ctx context.Context, g Group, alerts []plan.Alert, times map[string]int) (taken, error) {
	t := taken{ids: make(map[string]uuid.UUID, len(alerts))}
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
	r := ranks{fired: c.inc.Firing > 0}
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
		r.see(old, row, c.inc.Criticality)
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
		t.ids[a.Fingerprint] = row.ID
		rows = append(rows, row)
	}
	c.rows = rows
	if err := c.tx.PutAlerts(ctx, c.inc.ID, rows, toldAlerts(g.Source, rows)...); err != nil {
		return t, fmt.Errorf("write the alerts: %w", err)
	}
	if err := c.rank(ctx, r); err != nil {
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

// shownFirst are the alerts of an incident that its cards are made of: firing first, newest first. before are those that were there
// and may be written already, rows those that are written now.
func shownFirst(before, rows []store.Alert) []store.Alert {
	now := make(map[string]bool, len(rows))
	for _, r := range rows {
		now[r.Fingerprint] = true
	}
	out := slices.Clone(rows)
	for _, b := range before {
		if !now[b.Fingerprint] {
			out = append(out, b)
		}
	}
	slices.SortFunc(out, func(a, b store.Alert) int {
		if a.Status != b.Status {
			return strings.Compare(a.Status, b.Status) // firing, resolved
		}
		if n := b.StartsAt.Compare(a.StartsAt); n != 0 {
			return n
		}
		return bytes.Compare(b.ID[:], a.ID[:])
	})
	return out[:min(len(out), commonOf)]
}

func kind(fires bool) string {
	if fires {
		return card.EntryAlertFiring
	}
	return card.EntryAlertResolved
}

// ranks is what a group means for the criticality of its incident.
type ranks struct {
	fired bool     // something fired before
	fires []string // criticalities that fire in the group
	fell  bool     // an alert of the incident's criticality has it no more, or fires no more
}

func (r *ranks) see(old, row store.Alert, criticality string) {
	if row.Status == firing {
		r.fires = append(r.fires, row.Criticality)
	}
	if old.Status == firing && old.Criticality == criticality && (row.Status != firing || row.Criticality != criticality) {
		r.fell = true
	}
}

// rank sets the incident's criticality to the highest that fires. When none fires any more it stays what it was. The other
// alerts are asked only when the highest may be gone: of a flood into one incident, each would read all before it.
func (c *change) rank(ctx context.Context, r ranks) error {
	if !c.visible && !c.created {
		return nil
	}
	fires := r.fires
	switch {
	case r.fell:
		var err error
		if fires, err = c.tx.FiringCriticalities(ctx, c.inc.ID); err != nil {
			return fmt.Errorf("read what fires: %w", err)
		}
	case r.fired:
		fires = append(fires, c.inc.Criticality)
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
