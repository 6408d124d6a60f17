package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/store/internal/query"
)

// Purged is how many rows went, by what they were.
type Purged struct {
	Incidents, Alerts, Timeline, Deliveries, Attempts, Silences, Runs, Audit, Partitions int
}

// Add adds up.
func (p *Purged) Add(o Purged) {
	p.Incidents += o.Incidents
	p.Alerts += o.Alerts
	p.Timeline += o.Timeline
	p.Deliveries += o.Deliveries
	p.Attempts += o.Attempts
	p.Silences += o.Silences
	p.Runs += o.Runs
	p.Audit += o.Audit
	p.Partitions += o.Partitions
}

// Each tells the numbers by their names, zeros too.
func (p Purged) Each(tell func(what string, rows int)) {
	tell("incidents", p.Incidents)
	tell("alerts", p.Alerts)
	tell("timeline", p.Timeline)
	tell("deliveries", p.Deliveries)
	tell("attempts", p.Attempts)
	tell("silences", p.Silences)
	tell("runs", p.Runs)
	tell("audit", p.Audit)
	tell("partitions", p.Partitions)
}

// PurgePlace is up to where the resolved incidents have been looked at. The zero value is the beginning.
type PurgePlace struct {
	at time.Time
	id uuid.UUID
}

// mostIncidents bounds how many incidents one transaction purges: each may have as many rows as the limit on top.
const mostIncidents = 100

// PurgeIncidents removes resolved incidents older than age with all that belongs to them, some of them behind a place, in
// one transaction that skips what another replica has. An incident with a delivery that is not settled, or dead and not
// decided on, stays whole. Of one with very many rows at most limit of a sort go at a time, itself last. next is where to
// go on; more is false when nothing is left behind it.
func (s *Store) PurgeIncidents(ctx context.Context, age time.Duration, limit int, place PurgePlace) (gone Purged, next PurgePlace, more bool, err error) {
	err = s.InTx(ctx, func(tx *Tx) error {
		gone, next, more = Purged{}, place, false
		rows, err := tx.q.OldIncidents(ctx, query.OldIncidentsParams{Age: age, After: place.at, AfterID: place.id, Most: mostIncidents})
		if err != nil || len(rows) == 0 {
			return err
		}
		ids := make([]uuid.UUID, len(rows))
		for i, r := range rows {
			ids[i] = r.ID
		}
		if ids, err = tx.q.StillOver(ctx, ids); err != nil {
			return err
		}
		more = true
		full, err := tx.purgeBelow(ctx, ids, nil, limit, &gone)
		if err != nil || full {
			return err // the rest of them in the next transaction
		}
		last := rows[len(rows)-1]
		next = PurgePlace{last.ResolvedAt, last.ID}
		if err := tx.q.PurgeContentsOf(ctx, ids); err != nil {
			return err
		}
		if err := count(&gone.Deliveries)(tx.q.PurgeDeliveriesOf(ctx, ids)); err != nil {
			return err
		}
		return count(&gone.Incidents)(tx.q.PurgeIncidents(ctx, ids))
	})
	if err != nil {
		return Purged{}, place, false, fmt.Errorf("purge incidents: %w", err)
	}
	return gone, next, more, nil
}

// purgeBelow removes what there may be very much of. full says that there may be more.
func (tx *Tx) purgeBelow(ctx context.Context, incidents, deliveries []uuid.UUID, limit int, gone *Purged) (full bool, err error) {
	most := int32(min(limit, 10_000)) //nolint:gosec // bounded on this line
	if incidents == nil {
		incidents = []uuid.UUID{}
	}
	if deliveries == nil {
		deliveries = []uuid.UUID{}
	}
	if err := count(&gone.Attempts)(tx.q.PurgeAttemptsOf(ctx, deliveries, incidents, most)); err != nil {
		return false, err
	}
	if err := count(&gone.Alerts)(tx.q.PurgeAlertsOf(ctx, incidents, most)); err != nil {
		return false, err
	}
	if err := count(&gone.Timeline)(tx.q.PurgeTimelineOf(ctx, incidents, most)); err != nil {
		return false, err
	}
	return max(gone.Attempts, gone.Alerts, gone.Timeline) >= int(most), nil
}

// count takes down how many rows a statement has removed.
func count(into *int) func(int64, error) error {
	return func(n int64, err error) error {
		*into += int(n)
		return err
	}
}

// PurgeDeliveries removes settled deliveries of no incident that are older than age, dead ones without a decision apart.
// more says that there may be others.
func (s *Store) PurgeDeliveries(ctx context.Context, age time.Duration, limit int) (gone Purged, more bool, err error) {
	most := int32(min(limit, 10_000)) //nolint:gosec // bounded on this line
	err = s.InTx(ctx, func(tx *Tx) error {
		gone, more = Purged{}, false
		rows, err := tx.q.OldDeliveries(ctx, age, most)
		if err != nil || len(rows) == 0 {
			return err
		}
		var ids, contents []uuid.UUID
		for _, r := range rows {
			ids = append(ids, r.ID)
			if r.ContentID != nil {
				contents = append(contents, *r.ContentID)
			}
		}
		full, err := tx.purgeBelow(ctx, nil, ids, limit, &gone)
		if err != nil || full {
			more = full
			return err
		}
		more = len(rows) == int(most)
		if _, err := tx.q.LockContents(ctx, contents); err != nil {
			return err
		}
		if err := count(&gone.Deliveries)(tx.q.PurgeDeliveries(ctx, ids)); err != nil {
			return err
		}
		return tx.q.PurgeUnshown(ctx, contents)
	})
	if err != nil {
		return Purged{}, false, fmt.Errorf("purge deliveries of no incident: %w", err)
	}
	return gone, more, nil
}

// PurgeRest removes at most limit rows each of what else is older than age: silences that are over and keep nothing back,
// decisions on many that are done, and the audit trail; and drops the attempts' partitions that nothing needs any more.
// more says that there may be others.
func (s *Store) PurgeRest(ctx context.Context, age time.Duration, limit int) (gone Purged, more bool, err error) {
	most := int32(min(limit, 10_000)) //nolint:gosec // bounded on this line
	items := 0
	for _, sort := range []struct {
		into  *int
		purge func(context.Context, time.Duration, int32) (int64, error)
	}{{&gone.Silences, s.q.PurgeSilences}, {&items, s.q.PurgeBulkItems}, {&gone.Runs, s.q.PurgeBulkRuns}, {&gone.Audit, s.q.PurgeAudit}} {
		if err := count(sort.into)(sort.purge(ctx, age, most)); err != nil {
			return gone, false, fmt.Errorf("purge what is older than %s: %w", age, err)
		}
		more = more || *sort.into >= int(most)
	}
	dropped, err := s.q.DropAttemptPartitions(ctx, age)
	if err != nil {
		return gone, false, fmt.Errorf("drop old partitions of attempts: %w", err)
	}
	gone.Partitions = len(dropped)
	return gone, more, nil
}
