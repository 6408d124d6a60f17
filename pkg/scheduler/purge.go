package scheduler

import (
	"context"

	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// purgeRows bounds what one transaction of a sweep removes of a sort.
const purgeRows = 2000

// Purge sweeps away what only guards against repeats and is too old to, and what the file's retention keeps no longer. Every replica sweeps, in small transactions that pass over what another one has.
func (s *Scheduler) Purge(ctx context.Context) (bool, error) {
	if err := s.o.Store.PurgeNotices(ctx, 1000); err != nil {
		return false, err
	}
	if err := s.o.Store.PurgeCalendars(ctx, forgetCalendar); err != nil {
		return false, err
	}
	n, err := s.o.Store.Purge(ctx, 1000)
	if err != nil {
		return false, err
	}
	old, err := s.o.Store.PurgeEvents(ctx, 5000)
	if err != nil {
		return false, err
	}
	return n >= 1000 || old >= 5000, s.retire(ctx)
}

// retire removes what is over and older than the file's retention. It ends: what must stay is passed by once a sweep.
func (s *Scheduler) retire(ctx context.Context) error {
	age := s.o.File().Retention
	if age <= 0 {
		return nil
	}
	var all store.Purged
	defer func() {
		if all != (store.Purged{}) {
			s.o.Purged(all) // also what went before an error
		}
	}()
	var place store.PurgePlace
	for more := true; more && ctx.Err() == nil; {
		gone, next, again, err := s.o.Store.PurgeIncidents(ctx, age, purgeRows, place)
		if err != nil {
			return err
		}
		all.Add(gone)
		place, more = next, again
	}
	for more := true; more && ctx.Err() == nil; {
		gone, again, err := s.o.Store.PurgeDeliveries(ctx, age, purgeRows)
		if err != nil {
			return err
		}
		all.Add(gone)
		more = again
	}
	for more := true; more && ctx.Err() == nil; {
		gone, again, err := s.o.Store.PurgeRest(ctx, age, purgeRows)
		if err != nil {
			return err
		}
		all.Add(gone)
		more = again
	}
	return nil
}
