package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/message"
	"github.com/tocsin-oncall/tocsin/pkg/store/internal/query"
)

// AlertsByFingerprint finds those of the fingerprints that an incident has, by fingerprint.
func (tx *Tx) AlertsByFingerprint(ctx context.Context, incidentID uuid.UUID, fingerprints []string) (map[string]Alert, error) {
	rows, err := tx.q.AlertsByFingerprint(ctx, incidentID, fingerprints)
	if err != nil {
		return nil, err
	}
	out := make(map[string]Alert, len(rows))
	for _, r := range rows {
		a, err := toAlert(r)
		if err != nil {
			return nil, err
		}
		out[a.Fingerprint] = a
	}
	return out, nil
}

// PutAlerts writes alerts of one incident, each fingerprint once, as PutAlert does. told is what listeners are told of each of them, in
// the same order, or nothing: most of what tocsin takes in is re-sends, and a statement of its own would cost them a quarter.
func (tx *Tx) PutAlerts(ctx context.Context, incidentID uuid.UUID, alerts []Alert, told ...Event) error {
	if len(alerts) == 0 {
		return nil
	}
	p := query.PutAlertsParams{IncidentID: incidentID}
	for i, a := range alerts {
		if a.Labels == nil {
			a.Labels = map[string]string{}
		}
		if a.Links == nil {
			a.Links = []message.Link{}
		}
		labels, err := json.Marshal(a.Labels)
		if err != nil {
			return err
		}
		links, err := json.Marshal(a.Links)
		if err != nil {
			return err
		}
		var ended time.Time
		if a.EndsAt != nil {
			ended = *a.EndsAt
		}
		p.Ids = append(p.Ids, a.ID)
		p.Fingerprints = append(p.Fingerprints, a.Fingerprint)
		p.Topics = append(p.Topics, a.Topic)
		p.Criticalities = append(p.Criticalities, a.Criticality)
		p.Statuses = append(p.Statuses, a.Status)
		p.Titles = append(p.Titles, a.Title)
		p.Texts = append(p.Texts, a.Text)
		p.Labels = append(p.Labels, string(labels))
		p.Links = append(p.Links, string(links))
		p.StartsAts = append(p.StartsAts, a.StartsAt)
		p.Endeds = append(p.Endeds, a.EndsAt != nil)
		p.EndsAts = append(p.EndsAts, ended)
		p.Counts = append(p.Counts, a.Count)
		tell := ""
		if i < len(told) {
			if tell, err = tx.body(told[i]); err != nil {
				return err
			}
			tx.telling = true
		}
		p.Tolds = append(p.Tolds, tell)
	}
	return tx.q.PutAlerts(ctx, p)
}

// FiringCriticalities are the different criticalities of an incident's firing alerts.
func (tx *Tx) FiringCriticalities(ctx context.Context, incidentID uuid.UUID) ([]string, error) {
	return tx.q.FiringCriticalities(ctx, incidentID)
}

// Accounts are all linked accounts, read by the transaction's own connection.
func (tx *Tx) Accounts(ctx context.Context) ([]Account, error) {
	rows, err := tx.q.Accounts(ctx)
	if err != nil {
		return nil, err
	}
	return convert(rows, toAccount)
}

// LastAnnounced is when a resolved incident of a key was opened last that had any delivery.
func (tx *Tx) LastAnnounced(ctx context.Context, key string) (time.Time, bool, error) {
	at, err := tx.q.LastAnnounced(ctx, key)
	return at, err == nil && at.Unix() > 0, err
}

// AnyUnrouted says whether a live incident of a topic has no delivery at all.
func (tx *Tx) AnyUnrouted(ctx context.Context, topic string) (bool, error) {
	return tx.q.AnyUnrouted(ctx, topic)
}

// HasDeliveries says whether an incident has any delivery, of whatever state.
func (tx *Tx) HasDeliveries(ctx context.Context, incidentID uuid.UUID) (bool, error) {
	return tx.q.HasDeliveries(ctx, incidentID)
}
