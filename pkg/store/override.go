package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/oncall"
	"github.com/tocsin-oncall/tocsin/pkg/store/internal/query"
)

// Override is one row of schedule_override.
type Override struct {
	ID         uuid.UUID
	Schedule   string
	User       string
	Instead    string // only this person is replaced; empty: everybody is
	Add        bool   // it covers gaps as well
	Start, End time.Time
	Reason     string
	Author     string
	SwapID     *uuid.UUID // the same on both halves of a swap
}

const (
	// aroundShift is how long before a moment overrides are read that say since when somebody is on call.
	aroundShift = 31 * 24 * time.Hour
	// ever is later than any override ends.
	ever = 200 * 365 * 24 * time.Hour
)

// OverridesFrom is what lies over the schedules of the file from an instant on: calendars, and all overrides that hold from then on
// or did not long before it. With them a schedule says who is on call from then on, since when and until when.
func (s *Store) OverridesFrom(ctx context.Context, since time.Time) (oncall.Overlay, error) {
	return overlay(ctx, s.q, s.copies, since.Add(-aroundShift), since.Add(ever), nil)
}

// OverridesFrom is [Store.OverridesFrom] within the transaction.
func (tx *Tx) OverridesFrom(ctx context.Context, since time.Time) (oncall.Overlay, error) {
	return overlay(ctx, tx.q, tx.copies, since.Add(-aroundShift), since.Add(ever), nil)
}

// OverridesWithin is what lies over the schedules from the transaction's beginning until so much later: enough to say who is on call at each
// instant of that.
func (tx *Tx) OverridesWithin(ctx context.Context, ahead time.Duration) (oncall.Overlay, error) {
	return overlay(ctx, tx.q, tx.copies, tx.Now(), tx.Now().Add(ahead), nil)
}

// OverridesKnown is what lies over the schedules in a span, with the overrides that had been made by its beginning, where that is past:
// what happened then is explained by what was known then. Of calendars only the last copy is kept.
func (s *Store) OverridesKnown(ctx context.Context, since, until time.Time) (oncall.Overlay, error) {
	now, err := s.Now(ctx)
	if err != nil {
		return oncall.Overlay{}, err
	}
	var made *time.Time
	if now.Sub(since) > time.Minute { // whoever asks about now has a clock of their own
		made = &since
	}
	return overlay(ctx, s.q, s.copies, since, until, made)
}

// overlay reads what lies over the schedules in a span; of overrides those that had been made by an instant, where one is given.
func overlay(ctx context.Context, q *query.Queries, c *copies, since, until time.Time, made *time.Time) (oncall.Overlay, error) {
	rows, err := q.Overlay(ctx, since, until)
	if err != nil {
		return oncall.Overlay{}, fmt.Errorf("read overrides: %w", err)
	}
	var o oncall.Overlay
	for i, r := range rows {
		if i == 0 {
			if o.Calendars, err = c.read(ctx, q, r.Versions); err != nil {
				return o, err
			}
		}
		if r.ID == nil || made != nil && r.CreatedAt.After(*made) {
			continue
		}
		if o.Overrides == nil {
			o.Overrides = map[string][]oncall.Override{}
		}
		o.Overrides[*r.Schedule] = append(o.Overrides[*r.Schedule], oncall.Override{
			ID: r.ID.String(), User: *r.UserID, Instead: *r.InsteadOf, Add: *r.Gaps, Start: *r.StartsAt, End: *r.EndsAt,
		})
	}
	return o, nil
}

// LockOverrides lets one transaction at a time make overrides: what they say depends on their order.
func (tx *Tx) LockOverrides(ctx context.Context) error { return tx.q.LockOverrides(ctx) }

// CountOverrides is how many of a schedule's overrides are not over.
func (tx *Tx) CountOverrides(ctx context.Context, schedule string) (int, error) {
	return tx.q.CountOverrides(ctx, schedule)
}

// AddOverride writes an override.
func (tx *Tx) AddOverride(ctx context.Context, o Override) error {
	return tx.q.AddOverride(ctx, query.AddOverrideParams{
		ID: o.ID, Schedule: o.Schedule, UserID: o.User, InsteadOf: o.Instead, Gaps: o.Add, StartsAt: o.Start, EndsAt: o.End, Reason: o.Reason, Author: o.Author, SwapID: o.SwapID,
	})
}

// EndOverride ends an override before its time, and with it the other half of a swap. None: it is over already, or there is none.
func (tx *Tx) EndOverride(ctx context.Context, schedule string, id uuid.UUID, by string) ([]uuid.UUID, error) {
	return tx.q.EndOverride(ctx, by, schedule, id)
}

// ListOverrides is one page of a schedule's overrides, newest first; those that are over only if ended is set. [ErrCursor] where the
// cursor is none.
func (s *Store) ListOverrides(ctx context.Context, schedule string, ended bool, limit int, cursor string) (api.List[api.Override], error) {
	before, err := openCursor(cursor)
	if err != nil {
		return api.List[api.Override]{}, err
	}
	most := pageSize(limit)
	rows, err := s.q.PageOverrides(ctx, query.PageOverridesParams{Schedule: schedule, Before: before, Ended: ended, Most: most + 1})
	if err != nil {
		return api.List[api.Override]{}, fmt.Errorf("list overrides: %w", err)
	}
	return page(rows, int(most), func(r query.PageOverridesRow) api.Override { return overrideWire(r.ScheduleOverride, r.Now) },
		func(r query.PageOverridesRow) uuid.UUID { return r.ScheduleOverride.ID }), nil
}

// ReadOverride is one override. [ErrNotFound] where there is none.
func (s *Store) ReadOverride(ctx context.Context, schedule string, id uuid.UUID) (api.Override, error) {
	r, err := s.q.ReadOverride(ctx, schedule, id)
	if err != nil {
		return api.Override{}, readError("read override", err)
	}
	return overrideWire(r.ScheduleOverride, r.Now), nil
}

func overrideWire(r query.ScheduleOverride, now time.Time) api.Override {
	w := api.Override{
		ID: r.ID.String(), Schedule: r.Schedule, User: r.UserID, InsteadOf: r.InsteadOf, Add: r.Gaps, Start: r.StartsAt.UTC(), End: r.EndsAt.UTC(), Reason: r.Reason,
		Author: r.Author, CreatedAt: r.CreatedAt.UTC(), EndedBy: deref(r.EndedBy), State: api.OverrideActive,
	}
	if r.SwapID != nil {
		w.SwapID = r.SwapID.String()
	}
	switch {
	case !r.EndsAt.After(now):
		w.State = api.OverrideEnded
	case r.StartsAt.After(now):
		w.State = api.OverridePending
	}
	return w
}

// GapsTold are the gaps that were told of, by schedule, with when each begins.
func (tx *Tx) GapsTold(ctx context.Context) (map[string]time.Time, error) {
	rows, err := tx.q.GapsTold(ctx)
	if err != nil {
		return nil, err
	}
	out := map[string]time.Time{}
	for _, r := range rows {
		out[r.Schedule] = r.BeginsAt
	}
	return out, nil
}

// TellGap notes that a schedule's next gap is told of. False: another replica was faster.
func (tx *Tx) TellGap(ctx context.Context, schedule string, begins time.Time) (bool, error) {
	n, err := tx.q.TellGap(ctx, schedule, begins)
	return n == 1, err
}

// ForgetGap notes that a schedule has no gap ahead.
func (tx *Tx) ForgetGap(ctx context.Context, schedule string) error {
	return tx.q.ForgetGap(ctx, schedule)
}

// GapTold says whether a schedule has a gap ahead that was told of.
func (tx *Tx) GapTold(ctx context.Context, schedule string) (bool, error) {
	return tx.q.GapTold(ctx, schedule)
}
