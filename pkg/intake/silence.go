package intake

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/card"
	"github.com/tocsin-oncall/tocsin/pkg/message"
	"github.com/tocsin-oncall/tocsin/pkg/plan"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// maxSilence is how long a silence may last: what is to be quiet for longer belongs into the file.
const maxSilence = 366 * 24 * time.Hour

// NewSilence is a silence to be made. From and Until are instants of the database's clock; zero: now, and For from the beginning.
type NewSilence struct {
	Match    string
	Matchers []string
	From     time.Time
	Until    time.Time
	For      time.Duration
	Reason   string
}

// AddSilence makes a silence. An *InputError says what is wrong with it. A zero id means that the callback it came by was applied
// before.
func (i *Intake) AddSilence(ctx context.Context, n NewSilence, by Actor) (uuid.UUID, error) {
	for k := range n.Matchers {
		n.Matchers[k] = clean(n.Matchers[k])
	}
	n.Match, n.Reason = clean(n.Match), line(n.Reason, MaxTitle)
	if _, err := plan.NewSilence(n.Match, n.Matchers); err != nil {
		var wrong *plan.SilenceError
		if errors.As(err, &wrong) {
			return uuid.Nil, &InputError{wrong.Field, wrong.Message}
		}
		return uuid.Nil, err
	}
	if n.Reason == "" {
		return uuid.Nil, &InputError{"reason", "say why: incidents show it"}
	}
	id := store.NewID()
	again := false
	err := i.store.InTx(ctx, func(tx *store.Tx) error {
		if by.Callback != "" {
			first, err := tx.Callback(ctx, by.Callback)
			if again = !first; err != nil || again {
				return err
			}
		}
		s := store.Silence{ID: id, Match: n.Match, Matchers: n.Matchers, StartsAt: n.From, EndsAt: n.Until, Reason: n.Reason, Author: by.Name}
		if s.StartsAt.Before(tx.Now()) {
			s.StartsAt = tx.Now()
		}
		switch {
		case n.For > 0 && !n.Until.IsZero():
			return &InputError{"for", "give until or for, not both"}
		case n.For > 0:
			s.EndsAt = s.StartsAt.Add(n.For)
		case n.Until.IsZero():
			return &InputError{"until", "say when it ends: a silence without an end would be forgotten"}
		}
		if err := endOf(s.EndsAt, s.StartsAt, tx.Now()); err != nil {
			return err
		}
		if err := tx.AddSilence(ctx, s); err != nil {
			return fmt.Errorf("write the silence: %w", err)
		}
		what := strings.Join(append([]string{s.Match}, s.Matchers...), " ")
		return tx.Audit(ctx, by.ID, "silence_added", "silence:"+id.String(), fmt.Sprintf("%s until %s: %s", strings.TrimSpace(what), s.EndsAt.UTC().Format(time.RFC3339), s.Reason))
	})
	if again {
		id = uuid.Nil
	}
	return id, err
}

// SilenceEdit is what is to be another about a silence that is not over. What it hides stays as it is.
type SilenceEdit struct {
	Until  time.Time     // zero: see For
	For    time.Duration // from now on, or from its beginning where that is to come; zero, and no Until: it ends when it did
	Reason string        // empty: as before
}

// EditSilence moves a silence's end, or gives it another reason. What it keeps back is sent at the new end. An *InputError says
// what is wrong, also where the silence is over; store.ErrNotFound where there is none.
func (i *Intake) EditSilence(ctx context.Context, id uuid.UUID, e SilenceEdit, by Actor) error {
	e.Reason = line(e.Reason, MaxTitle)
	return i.store.InTx(ctx, func(tx *store.Tx) error {
		s, err := tx.LockSilence(ctx, id)
		if err != nil {
			return err
		}
		switch {
		case !s.EndsAt.After(tx.Now()):
			return &InputError{"id", "it is over since " + s.EndsAt.UTC().Format(time.RFC3339) + ": make a new one"}
		case e.For > 0 && !e.Until.IsZero():
			return &InputError{"for", "give until or for, not both"}
		case e.For > 0:
			e.Until = later(s.StartsAt, tx.Now()).Add(e.For)
		case e.Until.IsZero() && e.Reason == "":
			return &InputError{"until", "say what is to change: until, for, or reason"}
		}
		var ends *time.Time
		var reason *string
		if !e.Until.IsZero() {
			if err := endOf(e.Until, s.StartsAt, tx.Now()); err != nil {
				return err
			}
			ends = &e.Until
		}
		if e.Reason != "" {
			reason = &e.Reason
		}
		if _, err := tx.EditSilence(ctx, id, ends, reason, by.Name); err != nil {
			return fmt.Errorf("write the silence: %w", err)
		}
		var what []string
		if ends != nil {
			what = append(what, "until "+ends.UTC().Format(time.RFC3339))
		}
		if reason != nil {
			what = append(what, *reason)
		}
		return tx.Audit(ctx, by.ID, "silence_edited", "silence:"+id.String(), strings.Join(what, ": "))
	})
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// endOf says what is wrong with the end of a silence.
func endOf(ends, starts, now time.Time) error {
	switch {
	case !ends.After(now):
		return &InputError{"until", fmt.Sprintf("it is over: the database's clock shows %s", now.UTC().Format(time.RFC3339))}
	case !ends.After(starts):
		return &InputError{"until", "it is not after from"}
	case ends.Sub(later(starts, now)) > maxSilence:
		return &InputError{"until", "a silence lasts a year at most; what is to be quiet for longer belongs into the file's routes"}
	}
	return nil
}

// EndSilence ends a silence before its time. False: it is over already, or there is none. What it kept back and still fires
// is sent by the scheduler.
func (i *Intake) EndSilence(ctx context.Context, id uuid.UUID, by Actor) (bool, error) {
	ended := false
	err := i.store.InTx(ctx, func(tx *store.Tx) (err error) {
		if ended, err = tx.EndSilence(ctx, id, by.Name); err != nil || !ended {
			return err
		}
		return tx.Audit(ctx, by.ID, "silence_ended", "silence:"+id.String(), "")
	})
	return ended, err
}

// Silences are stored silences as the plan asks them. One that this version can't read hides nothing.
func Silences(rows []store.Silence) []plan.Silence {
	var all []plan.Silence
	for _, r := range rows {
		s, err := plan.NewSilence(r.Match, r.Matchers)
		if err != nil {
			continue
		}
		s.ID, s.From, s.Until, s.Reason, s.Author = r.ID.String(), r.StartsAt, r.EndsAt, r.Reason, r.Author
		all = append(all, s)
	}
	return all
}

// unsilenced keeps back those of the firing alerts that a silence hides, and gives the others. Each silence is said once on
// the timeline for what it keeps back anew.
func (c *change) unsilenced(ctx context.Context, alerts []plan.Alert) ([]plan.Alert, error) {
	if found, err := c.tx.AnySilence(ctx, c.inc.ID, c.created); err != nil || !found {
		return alerts, err
	}
	rows, err := c.tx.ActiveSilences(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the silences: %w", err)
	}
	before := map[string]uuid.UUID{}
	if !c.created {
		kept, err := c.tx.SilencedAlerts(ctx, c.inc.ID)
		if err != nil {
			return nil, fmt.Errorf("read the incident's silenced alerts: %w", err)
		}
		for _, k := range kept {
			before[k.Fingerprint] = k.SilenceID
		}
	}
	if len(rows) == 0 && len(before) == 0 {
		return alerts, nil
	}
	active := Silences(rows)
	var rest []plan.Alert
	var said []plan.Silence
	count := map[string]int{}
	over := 0
	for _, a := range alerts {
		if !a.Firing {
			continue
		}
		mark := a.Mark()
		was, had := before[mark]
		s, hidden := plan.SilencedBy(active, a.Topic(), a.Labels)
		if !hidden {
			if rest = append(rest, a); had {
				if !slices.Contains(c.heard, mark) {
					c.heard = append(c.heard, mark)
				}
				over++
			}
			continue
		}
		if had && was.String() == s.ID && !slices.Contains(c.heard, mark) {
			continue
		}
		c.silenced = append(c.silenced, store.SilencedAlert{Fingerprint: mark, SilenceID: uuid.MustParse(s.ID), Notify: a.Notify})
		c.hidden = append(c.hidden, hiddenAlert{a, s})
		if count[s.ID]++; count[s.ID] == 1 {
			said = append(said, s)
		}
	}
	for _, s := range said {
		text := silencedText(s)
		if n := count[s.ID]; n > 1 || len(rest) > 0 || c.inc.Firing > 1 {
			text += fmt.Sprintf(" (%d of %d alerts)", n, c.inc.Firing)
		}
		c.note("tocsin", card.EntrySilenced, text)
	}
	if over > 0 {
		text := "The silence is over, and it still fires: sent now"
		held, err := c.held(ctx)
		if err != nil {
			return nil, err
		}
		if held {
			text = "The silence is over, and it still fires: the escalation goes on"
		}
		c.note("tocsin", card.EntrySilenceOver, text)
	}
	return rest, nil
}

// writeSilenced writes what is kept back, after what is let go: an alert may pass from one silence to the next.
func (c *change) writeSilenced(ctx context.Context) error {
	if err := c.tx.ForgetSilenced(ctx, c.inc.ID, c.heard...); err != nil {
		return fmt.Errorf("let go of silenced alerts: %w", err)
	}
	for _, a := range c.silenced {
		if err := c.tx.SilenceAlert(ctx, c.inc.ID, a); err != nil {
			return fmt.Errorf("keep a silenced alert back: %w", err)
		}
	}
	return nil
}

// Unsilence sends what still fires of an incident's alerts whose silence is over, as if it came in now. It looks again
// under the incident's lock: false means that there is none, or another replica was faster.
func (i *Intake) Unsilence(ctx context.Context, incidentID uuid.UUID) (bool, error) {
	did := false
	var r Result
	err := i.store.InTx(ctx, func(tx *store.Tx) error {
		did, r = false, Result{}
		inc, err := tx.LockIncident(ctx, incidentID)
		if err != nil {
			return fmt.Errorf("lock the incident: %w", err)
		}
		c := &change{tx: tx, f: i.file(), redact: i.redact, inc: inc}
		kept, err := tx.SilencedAlerts(ctx, inc.ID)
		if err != nil {
			return err
		}
		notify := map[string][]string{}
		for _, k := range kept {
			if k.Over {
				c.heard = append(c.heard, k.Fingerprint)
				notify[k.Fingerprint] = k.Notify
			}
		}
		if len(c.heard) == 0 {
			return nil
		}
		did = true
		alerts, err := c.stillFiring(ctx, c.heard, notify)
		if err != nil {
			return err
		}
		if inc.State != message.Resolved && len(alerts) > 0 {
			if err := c.reach(ctx, Group{Source: inc.Source}, alerts, alerts, &r); err != nil {
				return err
			}
		}
		if r.Deliveries, err = c.write(ctx); err != nil {
			return err
		}
		if len(r.Deliveries) > 0 || len(c.entries) > 0 {
			r.wake = tx.Now()
		}
		if r.Unrouted {
			self, err := i.SelfAlert(ctx, tx, unrouted(c.inc))
			r = r.with(self)
			return err
		}
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("send what was silenced of incident %s: %w", incidentID, err)
	}
	i.Committed(r)
	return did, nil
}

// stillFiring are those of the named alerts that fire, as their source would send them again.
func (c *change) stillFiring(ctx context.Context, marks []string, notify map[string][]string) ([]plan.Alert, error) {
	rows, err := c.tx.AlertsByFingerprint(ctx, c.inc.ID, marks)
	if err != nil {
		return nil, fmt.Errorf("read the incident's alerts: %w", err)
	}
	var fires []store.Alert
	for _, mark := range marks {
		if row, ok := rows[mark]; ok && row.Status == firing {
			fires = append(fires, row)
		}
	}
	out := Stored(fires)
	for i := range out {
		out[i].Notify = notify[out[i].Fingerprint]
	}
	return out, nil
}
