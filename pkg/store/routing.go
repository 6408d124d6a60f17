package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/store/internal/query"
)

// RestAlerts makes alerts of a locked incident wait for the hours of a route. opens says of each fingerprint when they begin.
func (tx *Tx) RestAlerts(ctx context.Context, incidentID uuid.UUID, opens map[string]time.Time) error {
	if len(opens) == 0 {
		return nil
	}
	var marks []string
	var at []time.Time
	for mark, t := range opens {
		marks, at = append(marks, mark), append(at, t)
	}
	return tx.q.RestAlerts(ctx, incidentID, marks, at)
}

// OpenedHours are incidents with alerts for which the hours of a route have begun.
func (tx *Tx) OpenedHours(ctx context.Context, limit int) ([]uuid.UUID, error) {
	return tx.q.OpenedHours(ctx, int32(min(limit, 10_000))) //nolint:gosec // bounded on this line
}

// RestingAlerts are the fingerprints of an incident for which the hours of a route have begun.
func (tx *Tx) RestingAlerts(ctx context.Context, incidentID uuid.UUID) ([]string, error) {
	return tx.q.RestingAlerts(ctx, incidentID)
}

// ForgetResting lets alerts wait no more.
func (tx *Tx) ForgetResting(ctx context.Context, incidentID uuid.UUID, fingerprints []string) error {
	if len(fingerprints) == 0 {
		return nil
	}
	return tx.q.ForgetResting(ctx, incidentID, fingerprints)
}

// RestAnew lets all alerts that wait for the hours of a route be looked at again: another file may have other hours.
func (s *Store) RestAnew(ctx context.Context) error {
	if err := s.q.RestAnew(ctx); err != nil {
		return fmt.Errorf("look again at what waits for hours: %w", err)
	}
	return nil
}

// Routing is what a file said about an alert at some moment. Body is the answer.
type Routing struct {
	At     time.Time // when reading
	File   string    // its checksum
	Topic  string
	Labels map[string]string // of the first alert that got this answer
	Body   json.RawMessage
}

// Routing is what was kept for an incident, in order; nothing where it is older than this.
func (s *Store) Routing(ctx context.Context, incidentID uuid.UUID) ([]Routing, error) {
	rows, err := s.q.RoutingOf(ctx, incidentID)
	if err != nil {
		return nil, fmt.Errorf("read how an incident was routed: %w", err)
	}
	return convert(rows, func(r query.Routing) (Routing, error) {
		out := Routing{At: r.At.UTC(), File: r.File, Topic: r.Topic, Body: r.Body}
		return out, json.Unmarshal(r.Labels, &out.Labels)
	})
}
