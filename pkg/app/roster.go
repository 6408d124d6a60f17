package app

import (
	"cmp"
	"context"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/oncall"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

const (
	rosterEvery   = time.Minute
	rosterAhead   = 48 * time.Hour // an outage of all replicas that is shorter leaves oncall_now right
	rosterShifts  = 200            // at most, of one schedule: hourly turns
	rosterTimeout = 10 * time.Second
)

// rosterLoop keeps what the view oncall_now shows in step with the file and the overrides, until ctx ends. The shifts of the
// coming days are written, and the view picks what covers the database's present, so a hand-off needs no write at its moment.
func (a *App) rosterLoop(ctx context.Context) {
	tick := time.NewTicker(rosterEvery)
	defer tick.Stop()
	for {
		if err := a.writeRoster(ctx); err != nil && ctx.Err() == nil {
			a.log.Warn("the shifts that oncall_now shows were not written", zap.Error(err))
		}
		select {
		case <-ctx.Done():
			return
		case <-a.overridden:
		case <-tick.C:
		}
	}
}

// rosterChanged says that an override was made or ended: the view is to show it at once.
func (a *App) rosterChanged() {
	select {
	case a.overridden <- struct{}{}:
	default:
	}
}

func (a *App) writeRoster(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, rosterTimeout)
	defer cancel()
	return a.store.PutShifts(ctx, func(now time.Time, overrides oncall.Overlay) []store.Shift {
		a.overrides.Store(&overrides)
		return roster(a.file().WithOverrides(overrides), now)
	})
}

// gaps is in how many schedules nobody is on call now, those left out whose gaps are meant. What lies over the file is what
// the last look at the database found.
func (a *App) gaps() int {
	f, n := a.file(), 0
	if o := a.overrides.Load(); o != nil {
		f = f.WithOverrides(*o)
	}
	for _, s := range f.Schedules {
		if _, ok := s.At(time.Now()); !ok && !s.Partial {
			n++
		}
	}
	return n
}

// roster lists who is on call from now on for a while, in the order that the store wants. Its rows do not depend on
// the moment within a shift, so replicas that look at different moments agree.
func roster(f *config.File, now time.Time) []store.Shift {
	names := map[string]string{}
	for _, u := range f.Users {
		names[u.ID] = cmp.Or(u.Name, u.ID)
	}
	var all []store.Shift
	for _, s := range f.Schedules {
		for _, shift := range firstShifts(s, now) {
			row := store.Shift{Schedule: s.ID, Layer: shift.Layer, Since: shift.Start}
			if shift.Start.IsZero() {
				row.Since = time.Unix(0, 0)
			}
			if !shift.End.IsZero() {
				row.Until = &shift.End
			}
			for _, u := range shift.Users {
				row.UserID, row.UserName = u, cmp.Or(names[u], u)
				all = append(all, row)
			}
		}
	}
	slices.SortFunc(all, func(a, b store.Shift) int {
		return cmp.Or(cmp.Compare(a.Schedule, b.Schedule), cmp.Compare(a.Layer, b.Layer), cmp.Compare(a.UserID, b.UserID), a.Since.Compare(b.Since))
	})
	return slices.CompactFunc(all, func(a, b store.Shift) bool {
		return a.Schedule == b.Schedule && a.Layer == b.Layer && a.UserID == b.UserID && a.Since.Equal(b.Since)
	})
}

func firstShifts(s oncall.Schedule, now time.Time) []oncall.Shift {
	all := s.Shifts(now, now.Add(rosterAhead))
	return all[:min(len(all), rosterShifts)]
}
