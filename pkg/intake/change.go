package intake

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/card"
	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/message"
	"github.com/tocsin-oncall/tocsin/pkg/plan"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// change gathers what one transaction does to one locked incident, and writes it in the order of the locks. The
// incident's row stays locked until the commit, so nothing read here can be overtaken.
type change struct {
	tx      *store.Tx
	f       *config.File
	inc     store.Incident
	created bool
	redact  func(string) string
	visible bool // what cards show has changed: the revision is raised

	moved bool // written: there is something to do for the workers

	entries []card.Entry
	told    []plan.Change // changes that notices and events tell of
	ended   string        // why pages end: acknowledged, resolved; empty: they don't

	read     bool // ds are
	ds       []delivery.Delivery
	stepped  bool // steps are
	steps    []store.EscalationStep
	rows     []store.Alert    // alerts that this change writes
	later    *[]delivery.Step // where the moves of its deliveries are gathered, to be applied with others; nil: they are applied at once
	accounts []plan.Account
	onCall   *config.File // the file with the overrides; nil: not read yet

	joined   []string // notifiers that join the incident with this change
	again    []string // notifiers without a card that an escalation tells once more
	pages    []pagesOf
	due      []store.EscalationStep // to be added
	fired    []uuid.UUID
	resting  []rest
	reopened bool // nobody is on it any more: no acknowledgement's time is waited for
	asked    bool // a person asks for pages now: quiet hours don't count

	silenced []store.SilencedAlert // kept back with this change
	heard    []string              // fingerprints that are kept back no more

	hidden  []hiddenAlert        // what silences keep back with this change, and by which
	opens   map[string]time.Time // fingerprints that wait for the hours of a route
	opened  []string             // fingerprints that waited until now
	routing []store.Routing      // what the file says of the alerts
	release bool                 // an escalation that a silence holds goes on
	silent  bool                 // silences hide all that fires: no step fires with this change, and what is due will stand still
}

type pagesOf struct {
	step  uuid.UUID
	pages []plan.Delivery
}

// load locks the incident's deliveries. Incident first: it is locked already.
func (c *change) load(ctx context.Context) error {
	if c.read || c.created {
		return nil
	}
	var err error
	if c.ds, err = c.tx.Deliveries(ctx, c.inc.ID); err != nil {
		return fmt.Errorf("read the incident's deliveries: %w", err)
	}
	c.read = true
	return nil
}

// loadSteps locks the steps of the incident's escalations.
func (c *change) loadSteps(ctx context.Context) error {
	if c.stepped || c.created {
		return nil
	}
	var err error
	if c.steps, err = c.tx.Steps(ctx, c.inc.ID); err != nil {
		return fmt.Errorf("read the incident's escalation: %w", err)
	}
	c.stepped = true
	return nil
}

// note adds to the timeline.
func (c *change) note(actor, typ, text string) {
	c.inc.Sequence++
	c.entries = append(c.entries, card.Entry{Sequence: c.inc.Sequence, Actor: actor, Type: typ, Text: text})
}

// at is the database's clock, but never before what is already written: this transaction may have waited for the lock.
func (c *change) at() time.Time {
	t := c.tx.Now()
	for _, not := range []*time.Time{&c.inc.OpenedAt, c.inc.AcknowledgedAt} {
		if not != nil && t.Before(*not) {
			t = *not
		}
	}
	return t
}

// join lets notifiers take part that do not yet.
func (c *change) join(names []string) {
	for _, n := range names {
		if !slices.Contains(c.joined, n) && !c.takesPart(n) {
			c.joined = append(c.joined, n)
		}
	}
}

// takesPart says that a notifier shows or was told of the incident. Pages are to people and do not count.
func (c *change) takesPart(notifier string) bool {
	return slices.ContainsFunc(c.ds, func(d delivery.Delivery) bool { return d.Notifier == notifier && d.Kind != delivery.Page })
}

// acknowledge says that somebody is on it from now on, and gives the time.
func (c *change) acknowledge(by string) time.Time {
	at := c.at()
	if c.inc.State == message.Open {
		c.told = append(c.told, plan.Acknowledged)
	}
	c.inc.State, c.inc.AcknowledgedAt, c.inc.AcknowledgedBy, c.inc.SnoozedUntil = message.Acknowledged, &at, by, nil
	c.visible, c.ended = true, "acknowledged"
	return at
}

// reopen says that nobody is on it any more. It tells nothing where that was so already.
func (c *change) reopen() {
	c.visible, c.reopened = true, true
	if c.inc.State != message.Open {
		c.told = append(c.told, plan.Opened)
	}
	c.inc.State, c.inc.AcknowledgedAt, c.inc.AcknowledgedBy, c.inc.SnoozedUntil = message.Open, nil, "", nil
}

// resolve ends the incident.
func (c *change) resolve(by, actor, name, reason string) {
	at := c.at()
	c.inc.State, c.inc.ResolvedAt, c.inc.ResolvedBy, c.inc.SnoozedUntil = message.Resolved, &at, by, nil
	c.visible, c.ended = true, "resolved"
	c.told = append(c.told, plan.Resolved)
	c.note(actor, card.EntryResolved, card.ResolvedText(name, at.Sub(c.inc.OpenedAt), reason))
}

// write writes everything and says what was made.
func (c *change) write(ctx context.Context) ([]Made, error) {
	if c.visible || len(c.entries) > 0 {
		if err := c.load(ctx); err != nil {
			return nil, err
		}
	}
	if c.visible && !c.created {
		c.inc.Revision++
	}
	if err := c.tx.SaveIncident(ctx, c.inc); err != nil {
		return nil, fmt.Errorf("save the incident: %w", err)
	}
	c.tell()
	if err := c.tx.AddTimeline(ctx, c.inc.ID, c.entries...); err != nil {
		return nil, fmt.Errorf("add to the timeline: %w", err)
	}
	if err := c.writeSilenced(ctx); err != nil {
		return nil, err
	}
	if err := c.writeRouting(ctx); err != nil {
		return nil, err
	}
	if err := c.writeSteps(ctx); err != nil {
		return nil, err
	}
	shown, err := c.content(ctx)
	if err != nil {
		return nil, err
	}
	made, err := c.add(ctx, shown)
	if err != nil {
		return nil, err
	}
	moves := c.moves()
	c.moved = len(made)+len(moves)+len(c.due) > 0
	if c.later != nil {
		*c.later = append(*c.later, moves...)
		return made, nil
	}
	return made, apply(ctx, c.tx, moves)
}

func apply(ctx context.Context, tx *store.Tx, moves []delivery.Step) error {
	if err := tx.Apply(ctx, moves...); err != nil {
		return fmt.Errorf("raise the incident's deliveries: %w", err)
	}
	return nil
}

func (c *change) writeSteps(ctx context.Context) error {
	if c.ended != "" {
		if err := c.tx.WithdrawSteps(ctx, c.inc.ID, c.ended); err != nil {
			return fmt.Errorf("withdraw the escalation: %w", err)
		}
	}
	if c.release && c.ended == "" {
		if _, err := c.tx.ReleaseSteps(ctx, c.inc.ID); err != nil {
			return fmt.Errorf("let the escalation go on: %w", err)
		}
	}
	if c.reopened {
		if err := c.tx.WithdrawStep(ctx, c.inc.ID, StepRing, "reopened"); err != nil {
			return fmt.Errorf("withdraw the time of an acknowledgement: %w", err)
		}
	}
	if err := c.tx.AddSteps(ctx, c.due...); err != nil {
		return fmt.Errorf("add the escalation: %w", err)
	}
	for _, id := range c.fired {
		if err := c.tx.FireStep(ctx, id); err != nil {
			return fmt.Errorf("fire an escalation step: %w", err)
		}
	}
	for _, r := range c.resting {
		if err := c.tx.RestSteps(ctx, r.step, r.by); err != nil {
			return fmt.Errorf("let an escalation rest: %w", err)
		}
	}
	return nil
}

// content writes the incident's snapshot, which cards, threads and pages show at whatever revision is newest.
func (c *change) content(ctx context.Context) (card.Snapshot, error) {
	if !c.visible && !c.created && len(c.joined)+len(c.again)+len(c.pages) == 0 {
		return card.Snapshot{}, nil
	}
	var before []store.Alert
	if !c.created {
		var err error
		if before, err = c.tx.ShownAlerts(ctx, c.inc, commonOf); err != nil {
			return card.Snapshot{}, fmt.Errorf("read the incident's alerts: %w", err)
		}
	}
	s := snapshot(c.inc, shownFirst(before, c.rows))
	body, err := json.Marshal(s)
	if err != nil {
		return s, fmt.Errorf("write the incident's snapshot: %w", err)
	}
	return s, c.tx.PutContent(ctx, store.Content{ID: c.inc.ID, Revision: c.inc.Revision, Body: body})
}

// own writes the content of the notices or events of this change, which show it for good: a snapshot for a notice, the
// body that goes out for an event.
func (c *change) own(ctx context.Context, k delivery.Kind, s card.Snapshot) (uuid.UUID, error) {
	body, err := json.Marshal(s)
	if k == delivery.Event {
		typ, at := card.EventOf(s)
		body = card.Event(s, typ, at)
	}
	if err != nil {
		return uuid.Nil, fmt.Errorf("write the content of notices: %w", err)
	}
	id := store.NewID()
	if err := c.tx.PutContent(ctx, store.Content{ID: id, Revision: 1, Body: body}); err != nil {
		return uuid.Nil, fmt.Errorf("write the content of notices and events: %w", err)
	}
	return id, nil
}

// add makes the deliveries of this change.
func (c *change) add(ctx context.Context, shown card.Snapshot) ([]Made, error) {
	var out []store.NewDelivery
	own := map[delivery.Kind]uuid.UUID{} // one content row for all notices of this change, one for all events
	add := func(ds []plan.Delivery, step uuid.UUID) error {
		cardID := uuid.Nil
		for _, d := range ds {
			n := store.NewDelivery{
				ID: store.NewID(), IncidentID: c.inc.ID, ContentID: c.inc.ID, Kind: d.Kind, Notifier: d.Notifier, Target: d.Target,
				Desired: c.inc.Revision, Delay: d.Delay, Wait: d.Wait, Lifetime: d.Lifetime, StepID: step, Reason: d.Reason,
			}
			if d.ID != uuid.Nil {
				n.ID = d.ID
			}
			if d.Dead != nil {
				n.Dead = &store.Dead{State: d.Dead.State, Reason: d.Dead.Reason, Sentence: d.Dead.Sentence}
			}
			switch d.Kind {
			case delivery.Card:
				cardID = n.ID
			case delivery.Thread:
				n.CardID, n.Desired = cardID, c.inc.Sequence
			case delivery.Notice, delivery.Event:
				if own[d.Kind] == uuid.Nil {
					id, err := c.own(ctx, d.Kind, shown)
					if err != nil {
						return err
					}
					own[d.Kind] = id
				}
				n.ContentID, n.Desired = own[d.Kind], 1
			}
			out = append(out, n)
		}
		return nil
	}
	for _, n := range slices.Concat(c.joined, c.again) {
		if err := add(plan.ForNotifier(c.f, n, plan.Opened), uuid.Nil); err != nil {
			return nil, err
		}
	}
	for _, what := range c.told {
		for _, n := range c.listeners() {
			if err := add(plan.ForNotifier(c.f, n, what), uuid.Nil); err != nil {
				return nil, err
			}
		}
	}
	for _, p := range c.pages {
		if err := add(p.pages, p.step); err != nil {
			return nil, err
		}
	}
	if err := c.tx.AddDeliveries(ctx, out...); err != nil {
		return nil, err
	}
	var made []Made
	for _, d := range out {
		m := Made{ID: d.ID, Kind: d.Kind, Notifier: d.Notifier, Target: d.Target, State: delivery.Pending}
		if d.Dead != nil {
			m.State = d.Dead.State
		}
		made = append(made, m)
	}
	return made, nil
}

// listeners are the notifiers that were told of the incident by notice or event, in the order in which they joined.
func (c *change) listeners() []string {
	var out []string
	for _, d := range c.ds {
		if (d.Kind == delivery.Notice || d.Kind == delivery.Event) && !slices.Contains(out, d.Notifier) {
			out = append(out, d.Notifier)
		}
	}
	return out
}

// moves are the steps on deliveries that were there before: cards and threads show the newest, pages end with an
// answer, and a notice that is not out yet when the incident is over has nothing left to say.
func (c *change) moves() []delivery.Step {
	var out []delivery.Step
	for _, d := range c.ds {
		var s delivery.Step
		var ok bool
		switch d.Kind {
		case delivery.Card:
			if c.visible {
				s, ok = d.Raise(c.inc.Revision)
			}
		case delivery.Thread:
			switch {
			case len(c.entries) == 0:
			case c.ended == "resolved":
				s, ok = d.Close(c.inc.Sequence)
			default:
				s, ok = d.Raise(c.inc.Sequence)
			}
		case delivery.Page:
			if c.ended != "" {
				s, ok = d.Answer(c.ended, c.inc.Revision)
			}
		case delivery.Notice:
			if c.ended == "resolved" && d.Doubt == nil {
				s, ok = d.Cancel("resolved")
			}
		}
		if ok {
			out = append(out, s)
		}
	}
	return out
}

// cardWait is how long a page may wait for a card: its bound while a first attempt at one is still to come.
func (c *change) cardWait() time.Duration {
	waits := false
	for _, d := range c.ds {
		if d.Kind != delivery.Card {
			continue
		}
		if !d.Reference.IsZero() {
			return 0 // there is a link already
		}
		waits = waits || d.State == delivery.Pending && d.Tries == 0 && (d.Attempts == 0 || d.OpenAttempt != uuid.Nil)
	}
	for _, n := range c.joined {
		for _, d := range plan.ForNotifier(c.f, n, plan.Opened) {
			waits = waits || d.Kind == delivery.Card && d.Dead == nil
		}
	}
	if !waits {
		return 0
	}
	return c.f.Kinds[delivery.Page].Wait
}
