package store

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/store/internal/query"
)

// Heartbeat is what is known of a heartbeat of the file.
type Heartbeat struct {
	Name     string
	Since    time.Time  // when a file first named it
	CalledAt *time.Time // nil: never since
	MissedAt *time.Time // when its self-alert was raised; nil: it is not missed
}

// MissedHeartbeat is one that did not call in time.
type MissedHeartbeat struct {
	Name   string
	LastAt time.Time // of its last call, or of when the file took it
	Called bool      // it has called before
}

// LapsedIncidents are incidents with alerts that hold no longer and were not sent again, the longest gone first.
func (s *Store) LapsedIncidents(ctx context.Context, limit int) ([]uuid.UUID, error) {
	return s.q.LapsedIncidents(ctx, int32(min(limit, 10_000))) //nolint:gosec // bounded on this line
}

// LapsedAlerts are the alerts of a locked incident that hold no longer by the database's clock.
func (tx *Tx) LapsedAlerts(ctx context.Context, incidentID uuid.UUID) ([]Alert, error) {
	rows, err := tx.q.LapsedAlerts(ctx, incidentID)
	if err != nil {
		return nil, err
	}
	return convert(rows, toAlert)
}

// ResolveLapsed resolves alerts of a locked incident that hold no longer.
func (tx *Tx) ResolveLapsed(ctx context.Context, alerts []Alert) error {
	ids := make([]uuid.UUID, len(alerts))
	for n, a := range alerts {
		ids[n] = a.ID
	}
	return tx.q.ResolveLapsed(ctx, ids)
}

// ListHeartbeats notes the heartbeats of this replica's file, and forgets those that no file has named for so long.
func (tx *Tx) ListHeartbeats(ctx context.Context, names []string, forget time.Duration) error {
	if names == nil {
		names = []string{}
	}
	if err := tx.q.ListHeartbeats(ctx, names); err != nil {
		return err
	}
	return tx.q.DropHeartbeats(ctx, names, forget)
}

// WatchedHeartbeat is one of the file.
type WatchedHeartbeat struct {
	Name  string
	Key   string // of the incident about its silence
	Every time.Duration
}

// MissedHeartbeats locks heartbeats that were silent for longer than they may be and of which nobody was told, skipping
// those that another replica has. One whose incident was resolved by a person counts as told for a while. The caller tells,
// and calls HeartbeatAnnounced.
func (tx *Tx) MissedHeartbeats(ctx context.Context, watched []WatchedHeartbeat, again time.Duration, limit int) ([]MissedHeartbeat, error) {
	p := query.LockMissedHeartbeatsParams{Again: again, Most: int32(min(limit, 10_000))} //nolint:gosec // bounded on this line
	for _, w := range watched {
		p.Names, p.Keys, p.Seconds = append(p.Names, w.Name), append(p.Keys, w.Key), append(p.Seconds, w.Every.Seconds())
	}
	rows, err := tx.q.LockMissedHeartbeats(ctx, p)
	if err != nil {
		return nil, err
	}
	return convert(rows, func(r query.LockMissedHeartbeatsRow) (MissedHeartbeat, error) { return MissedHeartbeat(r), nil })
}

// HeartbeatAnnounced notes that the self-alert of a missed heartbeat is raised.
func (tx *Tx) HeartbeatAnnounced(ctx context.Context, name string) error {
	return tx.q.HeartbeatAnnounced(ctx, name)
}

// CallHeartbeat notes a call, and says whether the heartbeat was missed before it.
func (tx *Tx) CallHeartbeat(ctx context.Context, name string) (missed bool, err error) {
	before, err := tx.q.LockHeartbeat(ctx, name)
	if err != nil {
		return false, err
	}
	return len(before) > 0 && before[0] != nil, tx.q.CallHeartbeat(ctx, name)
}

// HeartbeatMissed says whether a heartbeat is missed at this moment.
func (tx *Tx) HeartbeatMissed(ctx context.Context, name string) (bool, error) {
	return tx.q.HeartbeatIsMissed(ctx, name)
}

// Heartbeats are all that some replica's file names, or did a short while ago.
func (s *Store) Heartbeats(ctx context.Context) ([]Heartbeat, error) {
	rows, err := s.q.Heartbeats(ctx)
	if err != nil {
		return nil, err
	}
	return convert(rows, func(r query.Heartbeat) (Heartbeat, error) {
		return Heartbeat{Name: r.Name, Since: r.Since, CalledAt: r.CalledAt, MissedAt: r.MissedAt}, nil
	})
}
