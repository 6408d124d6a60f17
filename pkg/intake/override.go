package intake

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/oncall"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

const (
	// maxOverride is how long an override may last: what holds for longer belongs into the file.
	maxOverride = 366 * 24 * time.Hour
	// maxAhead is how far ahead one may begin: calendars and JSON end with the year 9999.
	maxAhead = 100 * maxOverride
	// maxOverrides is how many overrides of one schedule may be ahead or hold at once.
	maxOverrides = 500
)

// ErrNoSchedule is a question about a schedule that the file does not have.
var ErrNoSchedule = errors.New("the file has no such schedule")

// NewOverride is an override to be made. Start and End are instants of the database's clock; zero: now, and For from the start.
type NewOverride struct {
	User      string
	InsteadOf string
	Add       bool
	Start     time.Time
	End       time.Time
	For       time.Duration
	Reason    string
}

// AddOverride puts a person on call for a while. An *InputError says what is wrong with it. A zero id means that the callback it came by
// was applied before.
func (i *Intake) AddOverride(ctx context.Context, schedule string, n NewOverride, by Actor) (uuid.UUID, error) {
	f := i.file()
	if _, ok := f.Schedule(schedule); !ok {
		return uuid.Nil, ErrNoSchedule
	}
	if err := i.knownUser("user", n.User); err != nil {
		return uuid.Nil, err
	}
	if n.InsteadOf != "" {
		if err := i.knownUser("instead_of", n.InsteadOf); err != nil {
			return uuid.Nil, err
		}
	}
	switch {
	case n.InsteadOf == n.User:
		return uuid.Nil, &InputError{"instead_of", "somebody can't stand in for themselves"}
	case n.InsteadOf != "" && n.Add:
		return uuid.Nil, &InputError{"add", "an override of one person covers no gaps: leave out add or instead_of"}
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
		o := store.Override{ID: id, Schedule: schedule, User: n.User, Instead: n.InsteadOf, Add: n.Add, Start: n.Start, End: n.End, Reason: line(n.Reason, MaxTitle), Author: by.Name}
		if o.Start.IsZero() {
			o.Start = tx.Now()
		}
		switch {
		case n.For > 0 && !n.End.IsZero():
			return &InputError{"for", "give end or for, not both"}
		case n.For > 0:
			o.End = o.Start.Add(n.For)
		case n.End.IsZero():
			return &InputError{"end", "say when it ends: an override without an end would be forgotten"}
		}
		switch {
		case !o.End.After(o.Start):
			return &InputError{"end", fmt.Sprintf("it is not after the start, %s", o.Start.UTC().Format(time.RFC3339))}
		case o.End.Sub(o.Start) > maxOverride:
			return &InputError{"end", "an override lasts a year at most; what holds for longer belongs into the file's layers"}
		}
		return i.putOverrides(ctx, tx, by, "override_added", o)
	})
	if again {
		id = uuid.Nil
	}
	return id, err
}

// NewSwap is two shifts that are to change hands: that of User which covers At, and that of With which covers WithAt.
type NewSwap struct {
	User, With string
	At, WithAt time.Time
	Reason     string
}

// Swap lets two people take each other's shift: two overrides, which end together. Of a shift that has begun the rest changes hands.
func (i *Intake) Swap(ctx context.Context, schedule string, n NewSwap, by Actor) ([2]uuid.UUID, error) {
	var ids [2]uuid.UUID
	if _, ok := i.file().Schedule(schedule); !ok {
		return ids, ErrNoSchedule
	}
	if err := errors.Join(i.knownUser("user", n.User), i.knownUser("with", n.With)); err != nil {
		var wrong *InputError
		errors.As(err, &wrong)
		return ids, wrong
	}
	if n.User == n.With {
		return ids, &InputError{"with", "two people swap, not one"}
	}
	swap := store.NewID()
	err := i.store.InTx(ctx, func(tx *store.Tx) error {
		first := n.At
		if n.WithAt.Before(first) {
			first = n.WithAt
		}
		rows, err := tx.OverridesFrom(ctx, first)
		if err != nil {
			return err
		}
		s, _ := i.file().WithOverrides(rows).Schedule(schedule)
		a, err := shiftOf(s, "at", n.User, n.At, tx.Now())
		if err != nil {
			return err
		}
		b, err := shiftOf(s, "with_at", n.With, n.WithAt, tx.Now())
		if err != nil {
			return err
		}
		if a.Start.Before(b.End) && b.Start.Before(a.End) {
			return &InputError{"with_at", "the two share this shift"}
		}
		var both []store.Override
		for k, o := range oncall.Swap(a, n.User, b, n.With) {
			ids[k] = store.NewID()
			both = append(both, store.Override{ID: ids[k], Schedule: schedule, User: o.User, Instead: o.Instead, Start: o.Start, End: o.End, Reason: line(n.Reason, MaxTitle), Author: by.Name, SwapID: &swap})
		}
		return i.putOverrides(ctx, tx, by, "shifts_swapped", both...)
	})
	return ids, err
}

// shiftOf is the shift of a person that covers an instant, what is left of it.
func shiftOf(s oncall.Schedule, field, user string, at, now time.Time) (oncall.Shift, error) {
	shift, _ := s.At(at)
	switch {
	case !slices.Contains(shift.Users, user):
		return shift, &InputError{field, fmt.Sprintf("%s is not on call at %s", user, at.UTC().Format(time.RFC3339))}
	case shift.End.IsZero():
		return shift, &InputError{field, "the shift that covers it has no end: make an override instead"}
	case !shift.End.After(now):
		return shift, &InputError{field, "the shift that covers it is over"}
	}
	if shift.Start.Before(now) {
		shift.Start = now
	}
	return shift, nil
}

// EndOverride ends an override before its time, and the other half of a swap with it. False: it is over already, or there is none.
func (i *Intake) EndOverride(ctx context.Context, schedule string, id uuid.UUID, by Actor) (bool, error) {
	var ended []uuid.UUID
	err := i.store.InTx(ctx, func(tx *store.Tx) (err error) {
		if ended, err = tx.EndOverride(ctx, schedule, id, by.Name); err != nil {
			return fmt.Errorf("end the override: %w", err)
		}
		for _, id := range ended {
			if err := tx.Audit(ctx, by.ID, "override_ended", "override:"+id.String(), schedule); err != nil {
				return err
			}
		}
		return nil
	})
	return len(ended) > 0, err
}

// putOverrides writes overrides, in this order, and who made them.
func (i *Intake) putOverrides(ctx context.Context, tx *store.Tx, by Actor, action string, all ...store.Override) error {
	if err := tx.LockOverrides(ctx); err != nil {
		return fmt.Errorf("lock the overrides: %w", err)
	}
	for _, o := range all {
		if o.Start.Sub(tx.Now()) > maxAhead {
			return &InputError{"start", "an override begins within a hundred years"}
		}
		ahead, err := tx.CountOverrides(ctx, o.Schedule)
		if err != nil {
			return fmt.Errorf("count the overrides: %w", err)
		}
		if ahead >= maxOverrides {
			return &InputError{"user", fmt.Sprintf("the schedule has %d overrides ahead: end some, or put a layer into the file", ahead)}
		}
		if err := tx.AddOverride(ctx, o); err != nil {
			return fmt.Errorf("write the override: %w", err)
		}
		what := fmt.Sprintf("%s: %s", o.Schedule, o.User)
		if o.Instead != "" {
			what += " instead of " + o.Instead
		}
		if o.Add {
			what += ", gaps as well"
		}
		what += fmt.Sprintf(", %s to %s", o.Start.UTC().Format(time.RFC3339), o.End.UTC().Format(time.RFC3339))
		if o.Reason != "" {
			what += ": " + o.Reason
		}
		if err := tx.Audit(ctx, by.ID, action, "override:"+o.ID.String(), what); err != nil {
			return err
		}
	}
	return nil
}

func (i *Intake) knownUser(field, user string) error {
	if _, ok := i.file().User(user); !ok {
		return &InputError{field, "the file has no user " + user}
	}
	return nil
}
