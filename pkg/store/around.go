package store

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/card"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/message"
	"github.com/tocsin-oncall/tocsin/pkg/oncall"
	"github.com/tocsin-oncall/tocsin/pkg/store/internal/query"
)

// Around is what lies around a batch of claimed deliveries: all that their judgement and their messages need.
type Around struct {
	Contents  map[uuid.UUID]Content
	Incidents map[uuid.UUID]message.State
	Cards     map[uuid.UUID][]Card // by incident
	Lates     map[uuid.UUID][]LateSent
	Overrides oncall.Overlay // what holds now; read where a delivery is for a schedule or a layer of one
}

// Card is what pages and threads need to know of a card.
type Card struct {
	ID        uuid.UUID
	Notifier  string
	State     delivery.State
	Reference delivery.Reference
	Over      bool // its first attempt is over, by outcome, takeover, death, pause or breaker
}

// Around reads in at most five statements, each only when the batch needs it.
func (s *Store) Around(ctx context.Context, batch []Claimed) (Around, error) {
	a := Around{Contents: map[uuid.UUID]Content{}, Incidents: map[uuid.UUID]message.State{}, Cards: map[uuid.UUID][]Card{}, Lates: map[uuid.UUID][]LateSent{}}
	var first, last time.Time // moments at which it matters who is on call
	contents, incidents, cards, doubts := map[uuid.UUID]bool{}, map[uuid.UUID]bool{}, map[uuid.UUID]bool{}, map[uuid.UUID]bool{}
	for _, d := range batch {
		if strings.HasPrefix(d.Target, "schedule:") || strings.HasPrefix(d.Target, "layer:") {
			if first.IsZero() || d.Now.Before(first) {
				first = d.Now
			}
			if d.Now.After(last) {
				last = d.Now
			}
		}
		if d.ContentID != uuid.Nil {
			contents[d.ContentID] = true
		}
		if d.IncidentID != uuid.Nil {
			incidents[d.IncidentID] = true
			if d.Kind == delivery.Page || d.Kind == delivery.Thread {
				cards[d.IncidentID] = true
			}
		}
		if d.Doubt != nil {
			doubts[d.ID] = true
		}
	}
	if !first.IsZero() {
		var err error
		if a.Overrides, err = overlay(ctx, s.w, s.copies, first, last, nil); err != nil {
			return a, err
		}
	}
	if len(contents) > 0 {
		rows, err := s.w.Contents(ctx, keys(contents))
		if err != nil {
			return a, err
		}
		for _, r := range rows {
			a.Contents[r.ID] = Content{ID: r.ID, Revision: r.Revision, Body: r.Body}
		}
	}
	if len(incidents) > 0 {
		rows, err := s.w.IncidentStates(ctx, keys(incidents))
		if err != nil {
			return a, err
		}
		for _, r := range rows {
			a.Incidents[r.ID] = message.State(r.State)
		}
	}
	if len(cards) > 0 {
		rows, err := s.w.CardsOfIncidents(ctx, keys(cards))
		if err != nil {
			return a, err
		}
		for _, r := range rows {
			c, err := toCard(r)
			if err != nil {
				return a, err
			}
			a.Cards[deref(r.IncidentID)] = append(a.Cards[deref(r.IncidentID)], c)
		}
		for _, cs := range a.Cards {
			slices.SortFunc(cs, func(x, y Card) int { return bytes.Compare(x.ID[:], y.ID[:]) })
		}
	}
	if len(doubts) > 0 {
		lates, err := s.LateSents(ctx, keys(doubts))
		if err != nil {
			return a, err
		}
		for _, l := range lates {
			a.Lates[l.DeliveryID] = append(a.Lates[l.DeliveryID], l)
		}
	}
	return a, nil
}

func toCard(r query.CardsOfIncidentsRow) (Card, error) {
	c := Card{ID: r.ID, Notifier: r.Notifier, State: delivery.State(r.State)}
	c.Over = r.Kept || r.NextAt == nil || r.Attempts > 1 || (r.Attempts == 1 && r.OpenAttempt == nil)
	if len(r.Reference) > 0 {
		if err := json.Unmarshal(r.Reference, &c.Reference); err != nil {
			return c, fmt.Errorf("delivery %s: reference: %w", r.ID, err)
		}
	}
	return c, nil
}

// Timeline reads the entries of an incident after one sequence up to another, at most limit.
func (s *Store) Timeline(ctx context.Context, incidentID uuid.UUID, after, through, limit int) ([]card.Entry, error) {
	rows, err := s.w.TimelineOf(ctx, query.TimelineOfParams{IncidentID: incidentID, AfterSequence: after, Through: through, Most: int32(min(limit, 10_000))}) //nolint:gosec // bounded on this line
	if err != nil {
		return nil, err
	}
	out := make([]card.Entry, len(rows))
	for i, r := range rows {
		out[i] = card.Entry{Sequence: r.Sequence, At: r.At, Actor: r.Actor, Type: r.Type, Text: r.Text}
	}
	return out, nil
}

// Unpark brings pages forward that wait for the first attempt of cards of these incidents, and threads that wait for
// these cards. It is called after the commit of what they wait for, and again after the commit of a park, since the former
// passes by a row that is still leased: one of the two sees the other's. A crash before it costs them their bound.
// It returns the notifiers that have something to do now.
func (s *Store) Unpark(ctx context.Context, incidents, cards []uuid.UUID) ([]string, error) {
	var woken []string
	if len(incidents) > 0 {
		pages, err := s.w.UnparkPages(ctx, incidents)
		if err != nil {
			return nil, err
		}
		woken = pages
	}
	if len(cards) > 0 {
		threads, err := s.w.UnparkThreads(ctx, cards)
		if err != nil {
			return woken, err
		}
		woken = append(woken, threads...)
	}
	return woken, nil
}

func keys(m map[uuid.UUID]bool) []uuid.UUID {
	out := make([]uuid.UUID, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	return out
}
