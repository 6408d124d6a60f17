package store

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/store/internal/query"
)

// ErrCursor is a cursor that no list of ours gave out.
var ErrCursor = errors.New("the cursor is not one that a list gave out: leave it away to begin with the newest")

// Bounds of what one answer holds. Whoever needs more reads the views.
const (
	maxTimeline  = 500
	maxAttempts  = 200
	maxDecisions = 200
)

// IncidentFilter chooses incidents. State is one of the incident's states, "" for all of them.
type IncidentFilter struct {
	State  string
	Limit  int // 0: api.DefaultLimit; at most api.MaxLimit
	Cursor string
}

// DeliveryFilter chooses deliveries; zero fields choose all. State is one of the delivery's states, or "dead" for all
// that wait for a decision.
type DeliveryFilter struct {
	State    string
	Notifier string
	Kind     string
	Incident uuid.UUID
	Limit    int // 0: api.DefaultLimit; at most api.MaxLimit
	Cursor   string
}

// stateDead filters all dead ones.
const stateDead = "dead"

// ListIncidents is one page of incidents, newest first. [ErrCursor] where the cursor is none.
func (s *Store) ListIncidents(ctx context.Context, f IncidentFilter) (api.List[api.Incident], error) {
	before, err := openCursor(f.Cursor)
	if err != nil {
		return api.List[api.Incident]{}, err
	}
	limit := pageSize(f.Limit)
	var rows []query.Incident
	switch f.State {
	case "":
		rows, err = s.q.PageIncidents(ctx, before, limit+1)
	case "resolved":
		rows, err = s.q.PageResolvedIncidents(ctx, before, limit+1)
	default:
		rows, err = s.q.PageLiveIncidents(ctx, before, f.State, limit+1)
	}
	if err != nil {
		return api.List[api.Incident]{}, fmt.Errorf("list incidents: %w", err)
	}
	l := page(rows, int(limit), incidentWire, func(r query.Incident) uuid.UUID { return r.ID })
	all := make([]*api.Incident, len(l.Items))
	for i := range l.Items {
		all[i] = &l.Items[i]
	}
	return l, s.silenced(ctx, all...)
}

// ReadIncident is one incident with its timeline. [ErrNotFound] where there is none.
func (s *Store) ReadIncident(ctx context.Context, id uuid.UUID) (api.Incident, error) {
	row, err := s.q.ReadIncident(ctx, id)
	if err != nil {
		return api.Incident{}, readError("read incident", err)
	}
	lines, err := s.q.ReadTimeline(ctx, id, maxTimeline)
	if err != nil {
		return api.Incident{}, readError("read timeline", err)
	}
	inc := incidentWire(row)
	inc.Timeline = make([]api.Event, len(lines))
	for i, l := range lines {
		inc.Timeline[i] = api.Event{Sequence: l.Sequence, At: l.At.UTC(), Actor: l.Actor, Type: l.Type, Text: l.Text}
	}
	err = s.silenced(ctx, &inc)
	return inc, err
}

// ListDeliveries is one page of deliveries, newest first. [ErrCursor] where the cursor is none.
func (s *Store) ListDeliveries(ctx context.Context, f DeliveryFilter) (api.List[api.Delivery], error) {
	before, err := openCursor(f.Cursor)
	if err != nil {
		return api.List[api.Delivery]{}, err
	}
	limit := pageSize(f.Limit)
	dead, state := f.State == stateDead, f.State
	if dead {
		state = ""
	}
	var rows []query.Delivery
	switch {
	case f.Incident != uuid.Nil:
		rows, err = s.q.PageIncidentDeliveries(ctx, query.PageIncidentDeliveriesParams{
			IncidentID: &f.Incident, Before: before, State: state, Dead: dead, Notifier: f.Notifier, Kind: f.Kind, Most: limit + 1})
	case dead || delivery.State(state).Dead():
		rows, err = s.q.PageDeadDeliveries(ctx, query.PageDeadDeliveriesParams{
			Before: before, State: state, Notifier: f.Notifier, Kind: f.Kind, Most: limit + 1})
	case delivery.State(state) == delivery.Pending:
		rows, err = s.q.PagePendingDeliveries(ctx, query.PagePendingDeliveriesParams{
			Before: before, Notifier: f.Notifier, Kind: f.Kind, Most: limit + 1})
	default:
		return s.searchDeliveries(ctx, f, before, limit)
	}
	if err != nil {
		return api.List[api.Delivery]{}, fmt.Errorf("list deliveries: %w", err)
	}
	return page(rows, int(limit), deliveryWire, func(r query.Delivery) uuid.UUID { return r.ID }), nil
}

// What one page of a search without an index may look at: windows of so many rows each, all of it well below a second.
const (
	searchRows    = 20_000
	searchWindows = 5
)

// searchDeliveries looks for deliveries from the newest back, for filters that have no index. Where it has looked at as much as one
// answer may, the page ends early and its cursor goes on there.
func (s *Store) searchDeliveries(ctx context.Context, f DeliveryFilter, before uuid.UUID, limit int32) (api.List[api.Delivery], error) {
	id := func(r query.Delivery) uuid.UUID { return r.ID }
	var found []query.Delivery
	for range searchWindows {
		rows, err := s.q.PageDeliveries(ctx, query.PageDeliveriesParams{
			Before: before, LookedAt: s.searchRows, State: f.State, Notifier: f.Notifier, Kind: f.Kind, Most: limit + 1 - int32(len(found))}) //nolint:gosec // at most limit
		if err != nil {
			return api.List[api.Delivery]{}, fmt.Errorf("list deliveries: %w", err)
		}
		if found = append(found, rows...); len(found) > int(limit) {
			return page(found, int(limit), deliveryWire, id), nil
		}
		before, err = s.q.DeliveryBehind(ctx, before, s.searchRows-1)
		if errors.Is(err, pgx.ErrNoRows) { // it has seen the oldest
			return page(found, int(limit), deliveryWire, id), nil
		}
		if err != nil {
			return api.List[api.Delivery]{}, fmt.Errorf("list deliveries: %w", err)
		}
	}
	l := page(found, int(limit), deliveryWire, id)
	l.NextCursor = sealCursor(before)
	return l, nil
}

// ReadDelivery is one delivery with its attempts and decisions. [ErrNotFound] where there is none.
func (s *Store) ReadDelivery(ctx context.Context, id uuid.UUID) (api.Delivery, error) {
	row, err := s.q.ReadDelivery(ctx, id)
	if err != nil {
		return api.Delivery{}, readError("read delivery", err)
	}
	attempts, err := s.q.ReadAttempts(ctx, id, maxAttempts)
	if err != nil {
		return api.Delivery{}, readError("read attempts", err)
	}
	decisions, err := s.q.ReadDecisions(ctx, id, maxDecisions)
	if err != nil {
		return api.Delivery{}, readError("read decisions", err)
	}
	d := deliveryWire(row)
	for _, a := range attempts {
		d.Attempts = append(d.Attempts, attemptWire(a))
	}
	for _, c := range decisions {
		d.Decisions = append(d.Decisions, api.Decision{
			At: c.At.UTC(), Actor: c.Actor, Action: c.Action, Reason: c.Reason, FromState: c.FromState, Effect: c.Effect})
	}
	return d, nil
}

// Waiting is how many deliveries of one notifier and kind wait for a worker.
type Waiting struct {
	Notifier string
	Kind     delivery.Kind
	Count    int
	Oldest   time.Duration // how long the oldest due one is due; 0: none is
}

// maxCounted bounds the rows that one look at what waits may read: a flood must not make the gauges expensive.
const maxCounted = 100_000

// CountWaiting counts what waits, at most the first hundred thousand.
func (s *Store) CountWaiting(ctx context.Context) ([]Waiting, error) {
	rows, err := s.q.CountWaiting(ctx, maxCounted)
	if err != nil {
		return nil, fmt.Errorf("count waiting deliveries: %w", err)
	}
	all := make([]Waiting, len(rows))
	for i, r := range rows {
		all[i] = Waiting{Notifier: r.Notifier, Kind: delivery.Kind(r.Kind), Count: r.Waiting,
			Oldest: time.Duration(max(0, r.OldestSeconds) * float64(time.Second))}
	}
	return all, nil
}

func pageSize(limit int) int32 {
	if limit <= 0 {
		return api.DefaultLimit
	}
	return int32(min(limit, api.MaxLimit))
}

// page cuts what was read to the page's size; one row more than that says that there is a next page.
func page[R, W any](rows []R, limit int, wire func(R) W, id func(R) uuid.UUID) api.List[W] {
	l := api.List[W]{Items: make([]W, 0, min(len(rows), limit))}
	if len(rows) > limit {
		rows = rows[:limit]
		l.NextCursor = sealCursor(id(rows[limit-1]))
	}
	for _, r := range rows {
		l.Items = append(l.Items, wire(r))
	}
	return l
}

// A cursor is the id of the last row that was shown. It is encoded so that nobody takes it for a promise.
func sealCursor(id uuid.UUID) string { return base64.RawURLEncoding.EncodeToString(id[:]) }

func openCursor(cursor string) (uuid.UUID, error) {
	if cursor == "" {
		return uuid.Max, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		return uuid.Nil, ErrCursor
	}
	id, err := uuid.FromBytes(b)
	if err != nil {
		return uuid.Nil, ErrCursor
	}
	return id, nil
}

func readError(what string, err error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return ErrNotFound
	}
	return fmt.Errorf("%s: %w", what, err)
}

func incidentWire(r query.Incident) api.Incident {
	return api.Incident{
		ID: r.ID.String(), Key: r.Key, Source: r.Source, Topic: r.Topic, Title: r.Title, State: r.State, Criticality: r.Criticality,
		Count: r.Count, Firing: r.Firing, Resolved: r.Resolved, OpenedAt: r.OpenedAt.UTC(),
		AcknowledgedAt: utc(r.AcknowledgedAt), AcknowledgedBy: deref(r.AcknowledgedBy), ResolvedAt: utc(r.ResolvedAt), ResolvedBy: deref(r.ResolvedBy),
		SnoozedUntil: utc(r.SnoozedUntil),
	}
}

func deliveryWire(r query.Delivery) api.Delivery {
	d := api.Delivery{
		ID: r.ID.String(), Kind: r.Kind, Notifier: r.Notifier, Target: r.Target, State: r.State, Reason: r.Reason, Sentence: r.Sentence,
		Effect: r.Effect, EffectKey: delivery.Delivery{ID: r.ID, Kind: delivery.Kind(r.Kind), Effect: r.Effect, Applied: r.Applied}.Key(),
		DesiredRevision: r.Desired, AppliedRevision: r.Applied, InFlight: r.OpenAttempt != nil, InDoubt: r.Doubt != nil,
		NextAt: utc(r.NextAt), ExpiresAt: utc(r.ExpiresAt), CreatedAt: r.CreatedAt.UTC(), SettledAt: utc(r.SettledAt), AttemptCount: r.Attempts,
	}
	if r.IncidentID != nil {
		d.IncidentID = r.IncidentID.String()
	}
	var ref delivery.Reference
	if len(r.Reference) > 0 && json.Unmarshal(r.Reference, &ref) == nil && !ref.IsZero() {
		d.Reference = &ref
	}
	return d
}

func attemptWire(r query.Attempt) api.Attempt {
	a := api.Attempt{
		ID: r.ID.String(), Number: r.Number, Effect: r.Effect, EffectKey: r.EffectKey, Revision: r.Revision, Operation: r.Operation, Address: r.Address,
		Outcome: deref(r.Outcome), Evidence: deref(r.Evidence), Reason: r.Reason, Error: r.Error, ProviderCode: r.ProviderCode, HTTPStatus: r.HttpStatus,
		DNSMS: r.DnsMs, ConnectMS: r.ConnectMs, TLSMS: r.TlsMs, FirstByteMS: r.FirstByteMs, DurationMS: r.DurationMs,
		Answer: r.Answer, Phase: r.Phase, Form: r.Form, Worker: r.Worker, StartedAt: r.StartedAt.UTC(), FinishedAt: utc(r.FinishedAt), ClosedBy: deref(r.ClosedBy),
		LateOutcome: deref(r.LateOutcome), LateAt: utc(r.LateAt),
	}
	if r.BytesWritten != nil {
		n := int64(*r.BytesWritten)
		a.BytesWritten = &n
	}
	return a
}

// utc is t in UTC, which is how instants leave the API; nil stays nil.
func utc(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	u := t.UTC()
	return &u
}
