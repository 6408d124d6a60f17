package intake

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/card"
	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/message"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// EscalateNow does not wait for the next step's time. Where somebody had acknowledged, nobody is on it any more: the escalation
// goes on after the step that it had come to, until somebody answers. Two presses at once are one.
func (i *Intake) EscalateNow(ctx context.Context, id uuid.UUID, by Actor, reason string) (Answer, error) {
	by, reason = by.plain(), line(reason, MaxTitle)
	return i.answer(ctx, id, by, "escalate", reason, func(ctx context.Context, c *change, a *Answer) error {
		if c.inc.State == message.Resolved {
			a.Refused = true
			return nil
		}
		if said, err := c.justNow(ctx, card.EntryEscalated, "escalated"); err != nil || said != "" {
			a.said = said
			return err
		}
		if err := c.load(ctx); err != nil {
			return err
		}
		if err := c.loadSteps(ctx); err != nil {
			return err
		}
		c.asked = true
		c.note(by.ID, card.EntryEscalated, card.EscalatedText(by.Name, reason))
		moved, err := c.further(ctx)
		if err != nil {
			return err
		}
		if !moved {
			a.Refused, a.said = true, "There is nobody further up: its escalations have come to their end, or it has none. Reassign it to a person instead."
			return nil
		}
		a.Changed, a.said = true, "You escalated it: the next step was brought on."
		return nil
	})
}

// further fires the next step of each escalation. False: there is none.
func (c *change) further(ctx context.Context) (bool, error) {
	if c.inc.State == message.Open {
		return c.nextNow(ctx)
	}
	moved := false
	names, err := c.toRing(ctx)
	if err != nil {
		return false, err
	}
	for _, name := range names {
		from := 0
		for _, s := range c.steps {
			if s.Name == name && s.State == "fired" && s.Step >= 0 {
				from = s.Step + 1
			}
		}
		if err := c.begin(ctx, name, from, true); err != nil {
			return false, err
		}
		moved = true
	}
	if moved {
		c.reopen()
	}
	return moved, nil
}

// nextNow fires the due step that comes first in each escalation of an open incident. The end of one is no step to bring on:
// its people have their time to answer.
func (c *change) nextNow(ctx context.Context) (bool, error) {
	moved := false
	for _, name := range c.ran() {
		next := store.EscalationStep{}
		for _, s := range c.steps {
			if s.Name == name && s.DueAt != nil && s.Step >= 0 && (next.DueAt == nil || s.DueAt.Before(*next.DueAt)) {
				next = s
			}
		}
		if next.DueAt == nil {
			continue
		}
		moved = true
		if err := c.climb(ctx, next); err != nil {
			return false, err
		}
	}
	return moved, nil
}

// Reassign pages one person instead: what was to come of the escalations is withdrawn, pages that are not out are canceled, and
// that person is paged, again and again, until somebody answers.
func (i *Intake) Reassign(ctx context.Context, id uuid.UUID, by Actor, to, reason string) (Answer, error) {
	by, reason = by.plain(), line(reason, MaxTitle)
	to = strings.TrimPrefix(strings.TrimSpace(to), "user:")
	name := ""
	for _, u := range i.file().Users {
		if u.ID == to {
			if name = u.Name; name == "" {
				name = u.ID
			}
		}
	}
	if name == "" {
		return Answer{}, &InputError{"to", "the file has no user " + to + ": write a user's id"}
	}
	return i.answer(ctx, id, by, "reassign", strings.TrimSpace("to "+to+" "+reason), func(ctx context.Context, c *change, a *Answer) error {
		if c.inc.State == message.Resolved {
			a.Refused = true
			return nil
		}
		text := card.ReassignedText(by.Name, name, reason)
		if err := c.load(ctx); err != nil {
			return err
		}
		if err := c.loadSteps(ctx); err != nil {
			return err
		}
		if theirs := c.ran(); len(theirs) == 1 && theirs[0] == "user:"+to {
			if said, err := c.justNow(ctx, card.EntryReassigned, "reassigned"); err != nil || said != "" {
				a.said = said
				return err
			}
		}
		c.asked = true
		c.note(by.ID, card.EntryReassigned, text)
		c.ended = "reassigned"
		c.reopen()
		if err := c.begin(ctx, "user:"+to, 0, true); err != nil {
			return err
		}
		a.Changed, a.said = true, fmt.Sprintf("You reassigned it to %s, who is paged now.", name)
		return nil
	})
}

// justNow says who did the same a moment ago: that press and this one are one. Empty: nobody.
func (c *change) justNow(ctx context.Context, typ, done string) (string, error) {
	e, age, ok, err := c.tx.LastEntry(ctx, c.inc.ID, typ)
	if err != nil || !ok || age > samePress {
		return "", err
	}
	who := e.Actor
	if id, ok := strings.CutPrefix(e.Actor, "user:"); ok {
		if at := slices.IndexFunc(c.f.Users, func(u config.User) bool { return u.ID == id }); at >= 0 && c.f.Users[at].Name != "" {
			who = c.f.Users[at].Name
		}
	}
	return fmt.Sprintf("%s %s it already, %s ago.", who, done, card.Duration(max(age, time.Second))), nil
}

// escalatesToOne says that an escalation is that of a reassignment.
func escalatesToOne(name string) bool { return strings.HasPrefix(name, "user:") }
