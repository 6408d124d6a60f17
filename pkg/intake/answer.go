package intake

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/card"
	"github.com/tocsin-oncall/tocsin/pkg/message"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// Actor is who answers.
type Actor struct {
	ID       string // for the records: "user:ana", "token:ops"
	Name     string // for people: "Ana Torres"
	Callback string // the provider's id of the press: a redelivery of it is told the same and changes nothing; may be empty
}

// plain is the actor with a name of one line.
func (a Actor) plain() Actor {
	if a.Name = line(a.Name, MaxWord); a.Name == "" {
		a.Name = a.ID
	}
	return a
}

// Answer is what an answer came to.
type Answer struct {
	Incident store.Incident // after it
	Changed  bool           // this answer did it; else somebody was faster
	Refused  bool           // the incident's state forbids it: Text says why
	said     string         // what to tell, where the state alone does not say it
}

// Text is what to tell the one who answered, in one sentence.
func (a Answer) Text() string {
	inc := a.Incident
	switch {
	case a.said != "":
		return a.said
	case inc.State == message.Resolved && a.Changed:
		return "You resolved it."
	case inc.State == message.Resolved && card.Person(inc.ResolvedBy) != "":
		return fmt.Sprintf("%s resolved it already, at %s.", inc.ResolvedBy, clock(inc.ResolvedAt))
	case inc.State == message.Resolved:
		return fmt.Sprintf("It is resolved already, since %s.", clock(inc.ResolvedAt))
	case a.Changed:
		return "You acknowledged it."
	}
	if inc.SnoozedUntil != nil {
		return fmt.Sprintf("%s snoozed it already, until %s.", inc.AcknowledgedBy, moment(*inc.SnoozedUntil))
	}
	return fmt.Sprintf("%s acknowledged it already, at %s.", inc.AcknowledgedBy, clock(inc.AcknowledgedAt))
}

func clock(t *time.Time) string {
	if t == nil {
		return "an unknown time"
	}
	return t.UTC().Format("15:04:05") + " UTC"
}

func moment(t time.Time) string { return t.UTC().Format("2 Jan 15:04:05") + " UTC" }

// Acknowledge notes that somebody is on it: in one transaction the escalation is withdrawn, pages that are not out are
// canceled, and cards are to show by whom. The second one to do so changes nothing and is told who was first. Whoever
// acknowledges a snoozed incident takes it over: it does not ring again.
func (i *Intake) Acknowledge(ctx context.Context, id uuid.UUID, by Actor, reason string) (Answer, error) {
	by, reason = by.plain(), line(reason, MaxTitle)
	return i.answer(ctx, id, by, "acknowledge", reason, func(ctx context.Context, c *change, a *Answer) error {
		if a.Changed = c.inc.State == message.Open || c.inc.SnoozedUntil != nil; !a.Changed {
			return nil
		}
		d, err := c.ringAfter(ctx)
		if err != nil {
			return err
		}
		at := c.acknowledge(by.Name)
		text := card.AcknowledgedText(by.Name, at.Sub(c.inc.OpenedAt), reason)
		if d > 0 {
			text += card.RingsAgainText(d)
		}
		c.note(by.ID, card.EntryAcknowledged, text)
		return nil
	})
}

// Resolve ends an incident by a person's word. Its alerts may fire on at their source: that opens nothing until
// reopen_after is over.
func (i *Intake) Resolve(ctx context.Context, id uuid.UUID, by Actor, reason string) (Answer, error) {
	by, reason = by.plain(), line(reason, MaxTitle)
	return i.answer(ctx, id, by, "resolve", reason, func(_ context.Context, c *change, a *Answer) error {
		if a.Changed = c.inc.State != message.Resolved; a.Changed {
			c.resolve(by.Name, by.ID, by.Name, reason)
		}
		return nil
	})
}

// answer applies a person's word to a locked incident, once however often the press comes that brought it. apply says in the
// answer whether it changed anything.
func (i *Intake) answer(ctx context.Context, id uuid.UUID, by Actor, action, reason string, apply func(context.Context, *change, *Answer) error) (Answer, error) {
	if card.Person(by.Name) == "" {
		return Answer{}, &InputError{"by", "say who answers: a user's id or a token's name"}
	}
	var a Answer
	var r Result
	err := i.store.InTx(ctx, func(tx *store.Tx) error {
		a, r = Answer{}, Result{}
		inc, err := tx.LockIncident(ctx, id)
		if err != nil {
			return err
		}
		a.Incident = inc
		if by.Callback != "" {
			if first, err := tx.Callback(ctx, by.Callback); err != nil || !first {
				return err
			}
		}
		c := &change{tx: tx, f: i.file(), redact: i.redact, inc: inc}
		if err := apply(ctx, c, &a); err != nil || !a.Changed {
			return err
		}
		if _, err := c.write(ctx); err != nil {
			return err
		}
		a.Incident = c.inc
		r.wake = tx.Now()
		return tx.Audit(ctx, by.ID, action, "incident:"+id.String(), reason)
	})
	if errors.Is(err, store.ErrNotFound) {
		return Answer{}, ErrNotFound
	}
	var wrong *InputError
	if errors.As(err, &wrong) {
		return Answer{}, wrong
	}
	if err != nil {
		return Answer{}, fmt.Errorf("%s incident %s: %w", action, id, err)
	}
	i.Committed(r)
	return a, nil
}
