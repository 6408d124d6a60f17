package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/store/internal/query"
)

// Silence is one row of silence. What it hides is for pkg/plan to say.
type Silence struct {
	ID       uuid.UUID
	Match    string // topic pattern; empty: every topic
	Matchers []string
	StartsAt time.Time
	EndsAt   time.Time
	Reason   string
	Author   string
}

// SilencedAlert is an alert that a silence keeps back.
type SilencedAlert struct {
	Fingerprint string
	SilenceID   uuid.UUID
	Notify      []string // what the alert named itself
	Author      string
	Reason      string
	EndsAt      time.Time
	Over        bool // the silence is
}

// MaxSilences bounds how many silences count at once.
const MaxSilences = 1000

// AddSilence writes a silence. StartsAt and EndsAt are by the database's clock, see [Tx.Now].
func (tx *Tx) AddSilence(ctx context.Context, s Silence) error {
	if s.Matchers == nil {
		s.Matchers = []string{}
	}
	_, err := tx.q.AddSilence(ctx, query.AddSilenceParams{ID: s.ID, Match: s.Match, Matchers: s.Matchers, StartsAt: s.StartsAt, EndsAt: s.EndsAt, Reason: s.Reason, Author: s.Author})
	return err
}

// EndSilence ends a silence before its time. False: it is over already, or there is none.
func (tx *Tx) EndSilence(ctx context.Context, id uuid.UUID, by string) (bool, error) {
	n, err := tx.q.EndSilence(ctx, by, id)
	return n == 1, err
}

// EditSilence moves the end of a silence, gives it another reason, or both; nil leaves it as it is. False: it is over, or there is
// none.
func (tx *Tx) EditSilence(ctx context.Context, id uuid.UUID, ends *time.Time, reason *string, by string) (bool, error) {
	n, err := tx.q.EditSilence(ctx, query.EditSilenceParams{ID: id, EndsAt: ends, Reason: reason, EditedBy: by})
	return n == 1, err
}

// LockSilence locks a silence. [ErrNotFound] where there is none.
func (tx *Tx) LockSilence(ctx context.Context, id uuid.UUID) (Silence, error) {
	r, err := tx.q.LockSilence(ctx, id)
	if err := notFound(err); err != nil {
		return Silence{}, err
	}
	return toSilence(r)
}

// ActiveSilences are those that hold at the transaction's start, the one that ends last first.
func (tx *Tx) ActiveSilences(ctx context.Context) ([]Silence, error) {
	rows, err := tx.q.ActiveSilences(ctx, MaxSilences)
	if err != nil {
		return nil, err
	}
	return convert(rows, toSilence)
}

// SilencedAlerts are the alerts of an incident that are kept back.
func (tx *Tx) SilencedAlerts(ctx context.Context, incidentID uuid.UUID) ([]SilencedAlert, error) {
	rows, err := tx.q.SilencedAlerts(ctx, incidentID)
	if err != nil {
		return nil, err
	}
	return convert(rows, func(r query.SilencedAlertsRow) (SilencedAlert, error) {
		return SilencedAlert{Fingerprint: r.Fingerprint, SilenceID: r.SilenceID, Notify: r.Notify, Author: r.Author, Reason: r.Reason, EndsAt: r.EndsAt, Over: r.Over}, nil
	})
}

// SilenceAlert keeps an alert of a locked incident back until the silence is over.
func (tx *Tx) SilenceAlert(ctx context.Context, incidentID uuid.UUID, a SilencedAlert) error {
	if a.Notify == nil {
		a.Notify = []string{}
	}
	return tx.q.SilenceAlert(ctx, query.SilenceAlertParams{IncidentID: incidentID, Fingerprint: a.Fingerprint, SilenceID: a.SilenceID, Notify: a.Notify})
}

// ForgetSilenced lets go of alerts that were kept back.
func (tx *Tx) ForgetSilenced(ctx context.Context, incidentID uuid.UUID, fingerprints ...string) error {
	if len(fingerprints) == 0 {
		return nil
	}
	return tx.q.ForgetSilenced(ctx, incidentID, fingerprints)
}

// SilencesOver are incidents with alerts that a silence kept back which is over.
func (tx *Tx) SilencesOver(ctx context.Context, limit int) ([]uuid.UUID, error) {
	return tx.q.SilencesOver(ctx, int32(min(limit, 10_000))) //nolint:gosec // bounded on this line
}

func toSilence(r query.Silence) (Silence, error) {
	return Silence{ID: r.ID, Match: r.Match, Matchers: r.Matchers, StartsAt: r.StartsAt, EndsAt: r.EndsAt, Reason: r.Reason, Author: r.Author}, nil
}

// SilencesBetween are the silences that hold at some instant of a span, also of the past: silences are kept.
func (s *Store) SilencesBetween(ctx context.Context, since, until time.Time) ([]Silence, error) {
	rows, err := s.q.SilencesBetween(ctx, since, until, MaxSilences)
	if err != nil {
		return nil, fmt.Errorf("read silences: %w", err)
	}
	return convert(rows, toSilence)
}

// ListSilences is one page of silences, newest first; those that are over only if ended is set. [ErrCursor] where the
// cursor is none.
func (s *Store) ListSilences(ctx context.Context, ended bool, limit int, cursor string) (api.List[api.Silence], error) {
	before, err := openCursor(cursor)
	if err != nil {
		return api.List[api.Silence]{}, err
	}
	most := pageSize(limit)
	rows, err := s.q.PageSilences(ctx, before, ended, most+1)
	if err != nil {
		return api.List[api.Silence]{}, fmt.Errorf("list silences: %w", err)
	}
	return page(rows, int(most), func(r query.PageSilencesRow) api.Silence { return silenceWire(r.Silence, r.Now, r.Alerts) },
		func(r query.PageSilencesRow) uuid.UUID { return r.Silence.ID }), nil
}

// ReadSilence is one silence. [ErrNotFound] where there is none.
func (s *Store) ReadSilence(ctx context.Context, id uuid.UUID) (api.Silence, error) {
	r, err := s.q.ReadSilence(ctx, id)
	if err != nil {
		return api.Silence{}, readError("read silence", err)
	}
	return silenceWire(r.Silence, r.Now, r.Alerts), nil
}

func silenceWire(r query.Silence, now time.Time, alerts int) api.Silence {
	w := api.Silence{
		ID: r.ID.String(), Match: r.Match, Matchers: r.Matchers, From: r.StartsAt.UTC(), Until: r.EndsAt.UTC(), Reason: r.Reason, Author: r.Author,
		CreatedAt: r.CreatedAt.UTC(), EndedBy: deref(r.EndedBy), EditedAt: utc(r.EditedAt), EditedBy: deref(r.EditedBy), State: api.SilenceActive, Alerts: alerts,
	}
	switch {
	case !r.EndsAt.After(now):
		w.State = api.SilenceEnded
	case r.StartsAt.After(now):
		w.State = api.SilencePending
	}
	return w
}

// silenced notes on incidents that all of their firing alerts are silenced, and by what.
func (s *Store) silenced(ctx context.Context, incidents ...*api.Incident) error {
	byID := map[uuid.UUID]*api.Incident{}
	var ids []uuid.UUID
	for _, inc := range incidents {
		if inc.State != "resolved" && inc.Firing > 0 {
			id := uuid.MustParse(inc.ID) // written by this package
			byID[id], ids = inc, append(ids, id)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	rows, err := s.q.SilencedIncidents(ctx, ids)
	if err != nil {
		return fmt.Errorf("read silenced alerts: %w", err)
	}
	for _, r := range rows {
		if inc := byID[r.IncidentID]; r.Alerts >= inc.Firing {
			inc.Silenced = &api.Silenced{SilenceID: r.ID.String(), By: r.Author, Until: r.EndsAt.UTC(), Reason: r.Reason}
		}
	}
	return nil
}
