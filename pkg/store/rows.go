package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/card"
	"github.com/tocsin-oncall/tocsin/pkg/message"
	"github.com/tocsin-oncall/tocsin/pkg/store/internal/query"
)

// rows are written rows on their way to the database. Each accepted alert writes one or two to four tables, and a transaction may
// take the alerts of thirty incidents: what is gathered until somebody asks the database for something, or the commit, is a
// statement for each table. None of them depends on another one, nor on anything but an incident that is there.
type rows struct {
	alerts    query.PutAlertsParams
	incidents query.SaveIncidentsParams
	timeline  query.AddTimelineParams
	content   contents
	routing   query.KeepRoutingParams
	seen      map[any]bool // what they are about: no row may be written twice by one statement
}

type contents struct {
	ids       []uuid.UUID
	revisions []int
	bodies    []string
}

// alertKey tells alerts apart.
type alertKey struct {
	incident    uuid.UUID
	fingerprint string
}

// contentKey tells a content's row from an incident's of the same id.
type contentKey uuid.UUID

// gather makes room for a row: another one that is about the same goes to the database before it.
func (tx *Tx) gather(ctx context.Context, what any) error {
	if tx.rows.seen[what] {
		if err := tx.writeRows(ctx); err != nil {
			return err
		}
	}
	if tx.rows.seen == nil {
		tx.rows.seen = map[any]bool{}
	}
	tx.rows.seen[what] = true
	return nil
}

// writeRows hands what is gathered to the pipe.
func (tx *Tx) writeRows(ctx context.Context) error {
	if tx.holding {
		return nil
	}
	r := tx.rows
	tx.rows = rows{}
	if len(r.incidents.Ids) > 0 {
		if err := tx.q.SaveIncidents(ctx, r.incidents); err != nil {
			return err
		}
	}
	if len(r.alerts.Ids) > 0 {
		if err := tx.q.PutAlerts(ctx, r.alerts); err != nil {
			return err
		}
	}
	if len(r.timeline.IncidentIds) > 0 {
		if err := tx.q.AddTimeline(ctx, r.timeline); err != nil {
			return err
		}
	}
	if len(r.routing.IncidentIds) > 0 {
		if err := tx.q.KeepRouting(ctx, r.routing); err != nil {
			return err
		}
	}
	if c := r.content; len(c.ids) > 0 {
		return tx.q.PutContents(ctx, c.ids, c.revisions, c.bodies)
	}
	return nil
}

// SaveIncident writes all that may change of a locked incident.
func (tx *Tx) SaveIncident(ctx context.Context, i Incident) error {
	if err := tx.gather(ctx, i.ID); err != nil {
		return err
	}
	p := &tx.rows.incidents
	p.Ids = append(p.Ids, i.ID)
	p.Topics = append(p.Topics, i.Topic)
	p.Titles = append(p.Titles, i.Title)
	p.States = append(p.States, string(i.State))
	p.Criticalities = append(p.Criticalities, i.Criticality)
	p.Counts = append(p.Counts, i.Count)
	p.Firings = append(p.Firings, i.Firing)
	p.Resolveds = append(p.Resolveds, i.Resolved)
	p.Truncateds = append(p.Truncateds, i.Truncated)
	p.Revisions = append(p.Revisions, i.Revision)
	p.Sequences = append(p.Sequences, i.Sequence)
	p.AcknowledgedAts = append(p.AcknowledgedAts, instant(i.AcknowledgedAt))
	p.AcknowledgedBys = append(p.AcknowledgedBys, i.AcknowledgedBy)
	p.ResolvedAts = append(p.ResolvedAts, instant(i.ResolvedAt))
	p.ResolvedBys = append(p.ResolvedBys, i.ResolvedBy)
	p.SnoozedUntils = append(p.SnoozedUntils, instant(i.SnoozedUntil))
	return nil
}

// instant is a time as the database reads it, to its microsecond; empty: none.
func instant(t *time.Time) string {
	if t == nil {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000000Z")
}

// PutAlerts writes alerts of an incident by their fingerprints; first and last seen are the database's clock. told is what listeners
// are told of each of them, in the same order, or nothing: most of what tocsin takes in is re-sends, and a statement of its own would
// cost them a quarter.
func (tx *Tx) PutAlerts(ctx context.Context, incidentID uuid.UUID, alerts []Alert, told ...Event) error {
	delete(tx.ahead.asked, incidentID)
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
		tell := ""
		if i < len(told) {
			if tell, err = tx.body(told[i]); err != nil {
				return err
			}
			tx.telling = true
		}
		var ended time.Time
		if a.EndsAt != nil {
			ended = *a.EndsAt
		}
		if err := tx.gather(ctx, alertKey{incidentID, a.Fingerprint}); err != nil {
			return err
		}
		p := &tx.rows.alerts
		p.Ids = append(p.Ids, a.ID)
		p.IncidentIds = append(p.IncidentIds, incidentID)
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
		p.Tolds = append(p.Tolds, tell)
	}
	return nil
}

// AddTimeline appends entries. The caller counts their sequence from the locked incident's and saves the incident.
func (tx *Tx) AddTimeline(_ context.Context, incidentID uuid.UUID, entries ...card.Entry) error {
	p := &tx.rows.timeline
	for _, e := range entries {
		p.IncidentIds = append(p.IncidentIds, incidentID)
		p.Sequences = append(p.Sequences, e.Sequence)
		p.Actors = append(p.Actors, e.Actor)
		p.Types = append(p.Types, e.Type)
		p.Texts = append(p.Texts, e.Text)
	}
	return nil
}

// PutContent writes what deliveries show; an older revision never replaces a newer one.
func (tx *Tx) PutContent(ctx context.Context, c Content) error {
	if err := tx.gather(ctx, contentKey(c.ID)); err != nil {
		return err
	}
	p := &tx.rows.content
	p.ids, p.revisions, p.bodies = append(p.ids, c.ID), append(p.revisions, c.Revision), append(p.bodies, string(c.Body))
	return nil
}

// KeepRouting keeps an answer for a locked incident, unless it has the same already, or a hundred others.
func (tx *Tx) KeepRouting(_ context.Context, incidentID uuid.UUID, r Routing) error {
	if r.Labels == nil {
		r.Labels = map[string]string{}
	}
	labels, err := json.Marshal(r.Labels)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(append([]byte(r.Topic+"\n"), r.Body...))
	p := &tx.rows.routing
	p.IncidentIds = append(p.IncidentIds, incidentID)
	p.Hashes = append(p.Hashes, hex.EncodeToString(sum[:16]))
	p.Files = append(p.Files, r.File)
	p.Topics = append(p.Topics, r.Topic)
	p.Labels = append(p.Labels, string(labels))
	p.Bodies = append(p.Bodies, string(r.Body))
	return nil
}
