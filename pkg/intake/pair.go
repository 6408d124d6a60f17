package intake

import (
	"context"
	"fmt"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/plan"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// pairLag is how long after one Prometheus of a pair has said that an alert is over the other one's word that it fires
// is taken for a late one. They evaluate apart, and each sends again after a minute at the latest.
const pairLag = 2 * time.Minute

// fresh leaves out what one sender of a pair says late, or again after the other one has said otherwise. Else each end of
// an alert would open a new incident, and two that see different things would open and close them in turn: Prometheus
// repeats the end of an alert for a quarter of an hour. What ended since nobody sent it again was seen long before, and opens
// at once when its source is back. last is the incident that was looked at.
func fresh(ctx context.Context, tx *store.Tx, g Group, alerts []plan.Alert, inc store.Incident, live bool) (left []plan.Alert, last store.Incident, err error) {
	if !live {
		var ok bool
		if inc, ok, err = tx.LastResolved(ctx, g.Key); err != nil || !ok {
			return alerts, inc, err
		}
	}
	marks := make([]string, len(alerts))
	for n, a := range alerts {
		marks[n] = a.Fingerprint
	}
	before, err := tx.AlertsByFingerprint(ctx, inc.ID, marks)
	if err != nil {
		return nil, inc, fmt.Errorf("read the incident's alerts: %w", err)
	}
	for _, a := range alerts {
		old, had := before[a.Fingerprint]
		switch {
		case !had:
		case a.Firing && old.Status == resolved && old.EndsAt != nil && !a.StartsAt.IsZero() && !a.StartsAt.After(*old.EndsAt) &&
			tx.Now().Sub(old.LastSeenAt) < pairLag:
			continue // the other one has just said that it is over, and this one still means the time before
		case live && !a.Firing && old.Status == resolved && (a.EndsAt.IsZero() || old.EndsAt != nil && !a.EndsAt.After(*old.EndsAt)):
			continue // its end is known: saying it again does not make the word of the other one late
		case live && !a.Firing && old.Status == firing && !a.EndsAt.IsZero() && a.EndsAt.Before(old.LastSeenAt.Add(-pairLag)):
			continue // the other one has said since, and more than once, that it fires
		}
		left = append(left, a)
	}
	return left, inc, nil
}
