package intake

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/card"
	"github.com/tocsin-oncall/tocsin/pkg/plan"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// Alive is how old the heartbeat of a replica that counts as live may be.
const Alive = 30 * time.Second

// mostRouted is how many of the alerts that fire are asked for their escalations when an incident rings again.
const mostRouted = 1000

// anew opens an incident again that nobody is on any more, and begins its escalations again: where silences hide all of it, they
// begin and stand still.
func (c *change) anew(ctx context.Context) error {
	var err error
	if c.silent, err = c.hold(ctx); err != nil {
		return err
	}
	c.reopen()
	names, err := c.toRing(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := c.begin(ctx, name, 0, false); err != nil {
			return err
		}
	}
	return nil
}

// toRing are the escalations of an incident that nobody is on any more: those that ran and, unless it is one person's, those that
// the file has for what fires. An alert that came while somebody was on it has started none, and those that ran may have other names in a
// new file. What silences hide brings its own on when they are over.
func (c *change) toRing(ctx context.Context) ([]string, error) {
	names := c.ran()
	if c.silent || len(names) == 1 && escalatesToOne(names[0]) {
		return names, nil
	}
	routed, err := c.routed(ctx)
	for _, name := range routed {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, err
}

// ran are the escalations that ran and that the file has, in the order in which they began. Where the last one was a reassignment, it is
// that person's alone.
func (c *change) ran() []string {
	var names []string
	last := ""
	for _, s := range c.steps { // by id: in the order in which they were made
		if s.Step != StepRing {
			last = s.Name
		}
		if len(escalation(c.f, s.Name).Steps) > 0 && !slices.Contains(names, s.Name) {
			names = append(names, s.Name)
		}
	}
	if escalatesToOne(last) {
		return []string{last}
	}
	return slices.DeleteFunc(names, escalatesToOne)
}

// routed are the escalations that the file has now for what fires of the incident and is not silenced.
func (c *change) routed(ctx context.Context) ([]string, error) {
	if c.inc.Firing == 0 {
		return nil, nil
	}
	rows, err := c.tx.Alerts(ctx, c.inc.ID, min(c.inc.Firing, mostRouted))
	if err != nil {
		return nil, fmt.Errorf("read the incident's alerts: %w", err)
	}
	fires, err := c.unsilenced(ctx, Stored(slices.DeleteFunc(rows, func(a store.Alert) bool { return a.Status != firing })))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, a := range fires {
		for _, name := range plan.Routes(c.f, a.Topic(), a.Labels, nil, c.tx.Now()).Escalations {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names, nil
}

// foreign says that a due step is of another file than this replica's, whose steps and names are others: a replica that has the newest
// one looks at it, and nobody else.
func (c *change) foreign(ctx context.Context, step store.EscalationStep) (bool, error) {
	if step.Step < len(escalation(c.f, step.Name).Steps) {
		return false, nil
	}
	newest, err := c.tx.NewestFile(ctx, Alive)
	if err != nil {
		return false, fmt.Errorf("look for the newest file: %w", err)
	}
	return newest != "" && newest != c.f.Checksum, nil
}

// replaced takes an escalation to its end that the file does not have any more. What the file has by now for what fires takes its place;
// where that is nothing and no other escalation goes on, its end comes at once, and is told: nobody would be paged until then.
func (c *change) replaced(ctx context.Context, gone store.EscalationStep) error {
	before := slices.Clone(c.steps)
	goesOn := slices.ContainsFunc(before, func(s store.EscalationStep) bool { return s.Name != gone.Name && s.DueAt != nil && s.Step >= 0 })
	names, err := c.routed(ctx)
	if err != nil {
		return err
	}
	c.note("tocsin", card.EntryUnreachable, fmt.Sprintf("The escalation %s is not in the file any more", gone.Name))
	for _, name := range names {
		if slices.ContainsFunc(before, func(s store.EscalationStep) bool { return s.Name == name }) {
			continue
		}
		goesOn = true
		if err := c.begin(ctx, name, 0, false); err != nil {
			return err
		}
	}
	for _, s := range before {
		if s.Name != gone.Name || s.DueAt == nil {
			continue
		}
		if s.Step == StepEnd && !goesOn {
			if err := c.tx.BringForward(ctx, s.ID); err != nil {
				return fmt.Errorf("bring on the end of an escalation: %w", err)
			}
			continue
		}
		if err := c.tx.DropStep(ctx, s.ID, "not_in_the_file"); err != nil {
			return fmt.Errorf("withdraw a step that the file does not have: %w", err)
		}
	}
	return nil
}
