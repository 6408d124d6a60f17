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
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// StepEnd is the step that follows the last round: nobody answered.
const StepEnd = -1

const (
	defaultEvery = 5 * time.Minute // between rounds, where the file's steps leave no time to answer
	maxSteps     = 1000            // rows of one escalation; the file may ask for more rounds than anybody waits for
)

// start runs an escalation, once per incident: steps without delay fire in this transaction, the others become due.
func (c *change) start(ctx context.Context, name string) error {
	if err := c.loadSteps(ctx); err != nil {
		return err
	}
	if slices.ContainsFunc(c.steps, func(s store.EscalationStep) bool { return s.Name == name }) {
		return nil
	}
	return c.begin(ctx, name, 0, false)
}

// begin runs an escalation from a step on: those before it are left out of the first round. At once, that step's own delay is left
// out too. Rounds go on counting where an earlier run of it has come to.
func (c *change) begin(ctx context.Context, name string, from int, atOnce bool) error {
	e := escalation(c.f, name)
	if from >= len(e.Steps) {
		from = 0
	}
	if len(e.Steps) == 0 {
		return nil
	}
	before := 0
	for _, s := range c.steps {
		if s.Name == name {
			before = max(before, s.Round)
		}
	}
	skipped := time.Duration(0)
	if atOnce {
		skipped = e.Steps[from].After
	}
	every := interval(e)
	rounds := min(e.Repeat+1, max(1, maxSteps/len(e.Steps)))
	missed := false                         // the step before fires now and reaches nobody: this one's time has come
	rested, rest := false, time.Duration(0) // a step rests until quiet hours are over: all after it is that much later
	for round := range rounds {
		for n, s := range e.Steps {
			if round == 0 && n < from {
				continue
			}
			row := store.EscalationStep{
				ID: store.NewID(), IncidentID: c.inc.ID, Name: name, Round: before + round + 1, Step: n, State: "due", Due: time.Duration(round)*every + s.After - skipped,
			}
			if round == 0 && !rested && !c.silent && (row.Due <= 0 || missed) {
				planned := row.Due
				did, err := c.fire(ctx, name, s, row.ID)
				if err != nil {
					return err
				}
				if did.rests.IsZero() {
					row.Due, missed = 0, !did.reached
					c.fired = append(c.fired, row.ID)
				} else {
					row.Due, row.Rests, missed, rested = did.rests.Sub(c.tx.Now()), true, false, true
					rest = row.Due - planned
				}
			} else {
				missed = false
				row.Due += rest
			}
			c.due = append(c.due, row)
			c.steps = append(c.steps, row)
		}
	}
	end := store.EscalationStep{ID: store.NewID(), IncidentID: c.inc.ID, Name: name, Round: before + rounds, Step: StepEnd, State: "due", Due: time.Duration(rounds)*every - skipped}
	if last := time.Duration(rounds-1)*every + e.Steps[len(e.Steps)-1].After - skipped; end.Due <= last {
		end.Due = last + defaultEvery
	}
	end.Due += rest
	c.due = append(c.due, end)
	c.steps = append(c.steps, end)
	return nil
}

// rest is a step that waits for the end of quiet hours, and by how much it is moved.
type rest struct {
	step store.EscalationStep
	by   time.Duration
}

// escalation is one of the file, or the one that pages a single person: "user:ID", which is what reassigning runs.
func escalation(f *config.File, name string) config.Escalation {
	if escalatesToOne(name) {
		return config.Escalation{Repeat: 2, Every: defaultEvery, Steps: []config.Step{{Page: []string{name}}}}
	}
	return f.Escalations[name]
}

// interval is the time between two rounds.
func interval(e config.Escalation) time.Duration {
	if e.Every > 0 {
		return e.Every
	}
	if last := e.Steps[len(e.Steps)-1].After; last > 0 {
		return last
	}
	return defaultEvery
}

// did is what became of a step whose time has come.
type did struct {
	reached bool      // somebody is paged, or the step pages nobody at all
	rests   time.Time // set: nothing was made, since all whom it could page have quiet hours until then
}

// fire makes what a step asks for, with whoever is on call now.
func (c *change) fire(ctx context.Context, name string, s config.Step, id uuid.UUID) (did, error) {
	if err := c.link(ctx); err != nil {
		return did{}, err
	}
	f, err := c.manned(ctx)
	if err != nil {
		return did{}, err
	}
	if c.asked {
		f = plan.Awake(f)
	}
	if p := plan.Pages(f, c.accounts, s.Page, c.inc.Criticality, 0, c.tx.Now()); !p.Rests.IsZero() {
		text := card.RestText(name, p.Asleep)
		if e, _, said, err := c.tx.LastEntry(ctx, c.inc.ID, card.EntryQuietHours); err != nil {
			return did{}, err
		} else if !said || e.Text != text { // it may have looked again in between
			c.note("tocsin", card.EntryQuietHours, text)
		}
		return did{rests: p.Rests}, nil
	}
	var told []string
	for _, n := range s.Notify {
		switch {
		case !c.takesPart(n):
			c.join([]string{n})
		case c.f.Notifiers[n].Cards():
			told = append(told, n) // the thread's reply is shown in the channel too
		case c.f.Notifiers[n].WebhookURL != "":
			c.again = append(c.again, n)
		}
	}
	if len(told) > 0 {
		c.note("tocsin", card.EntryNotified, card.NotifiedText(told))
	}
	p := plan.Pages(f, c.accounts, s.Page, c.inc.Criticality, c.cardWait(), c.tx.Now())
	for _, line := range p.Lines {
		c.note("tocsin", card.EntryPaged, line)
	}
	for _, line := range p.Asleep {
		c.note("tocsin", card.EntryQuietHours, line)
	}
	for _, line := range p.Missing {
		c.note("tocsin", card.EntryUnreachable, card.UnreachableText(line))
	}
	if len(p.Pages) > 0 {
		c.pages = append(c.pages, pagesOf{step: id, pages: p.Pages})
	}
	return did{reached: p.Reached}, nil
}

// roundLasts is how far ahead it is said who will be on call: longer than a round of an escalation usually takes.
const roundLasts = 24 * time.Hour

// manned is the file with the overrides that hold now or within a round of an escalation: it says who is on call.
func (c *change) manned(ctx context.Context) (*config.File, error) {
	if c.onCall == nil && len(c.f.Schedules) > 0 {
		overrides, err := c.tx.OverridesWithin(ctx, roundLasts)
		if err != nil {
			return nil, err
		}
		c.onCall = c.f.WithOverrides(overrides)
	}
	if c.onCall == nil {
		return c.f, nil
	}
	return c.onCall, nil
}

// link reads the linked accounts, once.
func (c *change) link(ctx context.Context) error {
	if c.accounts != nil {
		return nil
	}
	linked, err := c.tx.Accounts(ctx)
	if err != nil {
		return fmt.Errorf("read the linked accounts: %w", err)
	}
	c.accounts = []plan.Account{}
	for _, a := range linked {
		c.accounts = append(c.accounts, plan.Account{Provider: a.Provider, AccountID: a.AccountID, UserID: a.UserID})
	}
	return nil
}

// Escalate fires a due step of an incident's escalation, and the next ones of its round while they reach nobody. It
// looks again under the incident's lock: false means that somebody answered or another replica was faster.
func (i *Intake) Escalate(ctx context.Context, incidentID, stepID uuid.UUID) (bool, error) {
	fired := false
	var r Result
	err := i.store.InTx(ctx, func(tx *store.Tx) error {
		fired, r = false, Result{}
		inc, err := tx.LockIncident(ctx, incidentID)
		if err != nil {
			return fmt.Errorf("lock the incident: %w", err)
		}
		c := &change{tx: tx, f: i.file(), redact: i.redact, inc: inc}
		if err := c.load(ctx); err != nil {
			return err
		}
		if err := c.loadSteps(ctx); err != nil {
			return err
		}
		at := slices.IndexFunc(c.steps, func(s store.EscalationStep) bool { return s.ID == stepID })
		if at < 0 || c.steps[at].Held || c.steps[at].DueAt == nil || c.steps[at].DueAt.After(tx.Now()) {
			return nil
		}
		step := c.steps[at]
		if step.Step == StepRing {
			fired, r.wake = inc.State == message.Acknowledged, tx.Now()
			return c.ring(ctx, step)
		}
		if inc.State != message.Open {
			return tx.WithdrawSteps(ctx, inc.ID, string(inc.State))
		}
		if held, err := c.hold(ctx); err != nil {
			return err
		} else if held {
			r.wake = tx.Now()
			_, err = c.write(ctx)
			return err
		}
		if step.Step == StepEnd {
			fired = true
			r, err = i.end(ctx, c, step)
			return err
		}
		if foreign, err := c.foreign(ctx, step); err != nil || foreign {
			return err
		}
		fired = true
		climb := c.climb
		if len(escalation(c.f, step.Name).Steps) == 0 {
			climb = c.replaced
		}
		if err := climb(ctx, step); err != nil {
			return err
		}
		r.wake = tx.Now()
		_, err = c.write(ctx)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("escalate incident %s: %w", incidentID, err)
	}
	i.Committed(r)
	return fired, nil
}

// climb fires a step and, while nobody is reached, the ones after it in the same round.
func (c *change) climb(ctx context.Context, step store.EscalationStep) error {
	for {
		steps := escalation(c.f, step.Name).Steps
		reached := false
		if step.Step < len(steps) {
			did, err := c.fire(ctx, step.Name, steps[step.Step], step.ID)
			if err != nil {
				return err
			}
			if !did.rests.IsZero() {
				c.resting = append(c.resting, rest{step, did.rests.Sub(*step.DueAt)})
				return nil
			}
			reached = did.reached
		} else {
			c.note("tocsin", card.EntryUnreachable, fmt.Sprintf("Step %d of the escalation %s is not in the file any more", step.Step+1, step.Name))
		}
		c.fired = append(c.fired, step.ID)
		next, ok := c.next(step)
		if reached || !ok {
			return nil
		}
		step = next
	}
}

// next is the step of the same round that is due after a given one.
func (c *change) next(step store.EscalationStep) (store.EscalationStep, bool) {
	var out store.EscalationStep
	found := false
	for _, s := range c.steps {
		if s.Name == step.Name && s.Round == step.Round && s.Step > step.Step && s.DueAt != nil && (!found || s.Step < out.Step) {
			out, found = s, true
		}
	}
	return out, found
}

// overtaken says that a later step has fired: it had its own people, and what follows them is theirs to bring on.
func (c *change) overtaken(step store.EscalationStep) bool {
	return slices.ContainsFunc(c.steps, func(s store.EscalationStep) bool {
		return s.Name == step.Name && s.State == "fired" && (s.Round > step.Round || s.Round == step.Round && s.Step > step.Step)
	})
}

// end says that an escalation ran to its end and nobody answered.
func (i *Intake) end(ctx context.Context, c *change, step store.EscalationStep) (Result, error) {
	c.fired = append(c.fired, step.ID)
	c.note("tocsin", card.EntryNobodyAnswered, card.NobodyAnsweredText(step.Name, step.Round))
	if _, err := c.write(ctx); err != nil {
		return Result{}, err
	}
	r := Result{wake: c.tx.Now()}
	if c.inc.Source == SelfSource {
		return r, nil
	}
	self, err := i.SelfAlert(ctx, c.tx, nobodyAnswered(c.inc, step.Name))
	return r.with(self), err
}

// Forward brings on what comes after a page that died, or is kept back beyond its bound: the next way to the same person, else, when nobody of its step is
// being reached and no later step has fired, the next step of the round. It may be called again: what has begun already is
// left alone.
func (i *Intake) Forward(ctx context.Context, incidentID, stepID uuid.UUID, target string) error {
	moved := false
	var now time.Time
	err := i.store.InTx(ctx, func(tx *store.Tx) error {
		moved, now = false, tx.Now()
		inc, err := tx.LockIncident(ctx, incidentID)
		if err != nil || inc.State != message.Open {
			return err
		}
		pages, err := tx.PagesOfStep(ctx, incidentID, stepID)
		if err != nil {
			return err
		}
		someone := false
		for _, p := range pages {
			if p.Overdue || p.State != delivery.Pending && p.State != delivery.Sent && p.State != delivery.Assumed {
				continue
			}
			if p.Target == target && !p.Begun && !begun(pages, target) {
				moved, err = tx.Hurry(ctx, p.ID)
				return err
			}
			someone = true
		}
		if someone {
			return nil
		}
		c := &change{tx: tx, inc: inc}
		if c.steps, err = tx.Steps(ctx, incidentID); err != nil {
			return err
		}
		at := slices.IndexFunc(c.steps, func(s store.EscalationStep) bool { return s.ID == stepID })
		if at < 0 {
			return nil
		}
		if c.overtaken(c.steps[at]) {
			return nil
		}
		if next, ok := c.next(c.steps[at]); ok && next.DueAt.After(now) {
			return tx.BringForward(ctx, next.ID)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("bring on what follows the dead page of incident %s: %w", incidentID, err)
	}
	if moved {
		i.wake(now)
	}
	return nil
}

// PassOver brings on what comes after a page that is kept back beyond its bound, and says so on the timeline: when it goes out after
// all, its row tells nothing of it any more. A crash between the two passes it over again, which changes nothing.
func (i *Intake) PassOver(ctx context.Context, p store.OverduePage) error {
	if p.IncidentID == uuid.Nil {
		return i.store.PassOver(ctx, p.ID)
	}
	if p.StepID != uuid.Nil {
		if err := i.Forward(ctx, p.IncidentID, p.StepID, p.Target); err != nil {
			return err
		}
	}
	var r Result
	err := i.store.InTx(ctx, func(tx *store.Tx) error {
		r = Result{}
		inc, err := tx.LockIncident(ctx, p.IncidentID)
		if err != nil {
			return err
		}
		why, ok, err := tx.PassOver(ctx, p.ID)
		if err != nil || !ok || inc.State != message.Open {
			return err
		}
		c := &change{tx: tx, f: i.file(), redact: i.redact, inc: inc}
		text := fmt.Sprintf("The page through %s to %s is kept back (%s): the escalation does not wait for it", why.Notifier, p.Target, why.Reason)
		if why.Sentence != "" {
			text += ". " + why.Sentence
		}
		c.note("tocsin", card.EntryKeptBack, text)
		r.wake = tx.Now()
		_, err = c.write(ctx)
		return err
	})
	if err != nil {
		return fmt.Errorf("pass over the page %s: %w", p.ID, err)
	}
	i.Committed(r)
	return nil
}

// begun says that some way to a target is out or on its way.
func begun(pages []store.StepPage, target string) bool {
	return slices.ContainsFunc(pages, func(p store.StepPage) bool { return p.Target == target && p.Begun })
}
