package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/store/internal/query"
)

// MaxRun bounds the set of one run: it is fixed in one statement.
const MaxRun = 100_000

// ErrTooMany is a run whose filter finds more than MaxRun.
var ErrTooMany = fmt.Errorf("the filter finds more than %d deliveries: narrow it, by before and after for example", MaxRun)

// DeadCount is how many dead deliveries a decision would look at alike.
type DeadCount struct {
	State            delivery.State
	Notifier, Reason string
	InDoubt          bool // an attempt of the current effect is in doubt
	Count            int
}

// A filter without bounds in time has these.
var (
	always = time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)
	never  = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
)

func deadParams(f api.DeadFilter) query.CountDeadParams {
	p := query.CountDeadParams{State: f.State, Notifier: f.Notifier, Kind: f.Kind, Reason: f.Reason, Since: always, Until: never}
	if p.State == stateDead {
		p.State = ""
	}
	if id, err := uuid.Parse(f.Incident); err == nil {
		p.OneIncident, p.IncidentID = true, id
	}
	if f.After != nil {
		p.Since = *f.After
	}
	if f.Before != nil {
		p.Until = *f.Before
	}
	return p
}

// CountDead counts what a filter finds, exactly.
func (s *Store) CountDead(ctx context.Context, f api.DeadFilter) ([]DeadCount, error) {
	rows, err := s.q.CountDead(ctx, deadParams(f))
	if err != nil {
		return nil, fmt.Errorf("count dead deliveries: %w", err)
	}
	out := make([]DeadCount, len(rows))
	for i, r := range rows {
		out[i] = DeadCount{State: delivery.State(r.State), Notifier: r.Notifier, Reason: r.Reason, InDoubt: r.InDoubt, Count: r.Found}
	}
	return out, nil
}

// NewRun is a decision on many deliveries to be made.
type NewRun struct {
	ID            uuid.UUID
	Actor, Reason string
	Action        delivery.Action
	Filter        api.DeadFilter
	PerSecond     int
}

// AddRun makes a run and fixes its set: what the filter finds now, each with its state and effect. [ErrTooMany] where that
// is more than MaxRun. One that finds nothing is done as it is made.
func (tx *Tx) AddRun(ctx context.Context, r NewRun) error {
	filter, err := json.Marshal(r.Filter)
	if err != nil {
		return err
	}
	if err := tx.q.AddBulkRun(ctx, query.AddBulkRunParams{ID: r.ID, Actor: r.Actor, Action: string(r.Action), Reason: r.Reason, Filter: filter, PerSecond: r.PerSecond}); err != nil {
		return fmt.Errorf("make the run: %w", err)
	}
	p := deadParams(r.Filter)
	n, err := tx.q.FixBulkItems(ctx, query.FixBulkItemsParams{
		RunID: r.ID, State: p.State, Notifier: p.Notifier, Kind: p.Kind, Reason: p.Reason, OneIncident: p.OneIncident, IncidentID: p.IncidentID,
		Since: p.Since, Until: p.Until, Most: MaxRun + 1,
	})
	if err != nil {
		return fmt.Errorf("fix the run's set: %w", err)
	}
	if n > MaxRun {
		return ErrTooMany
	}
	return tx.q.SizeBulkRun(ctx, int(n), r.ID)
}

// Run is a run of which something may be taken now.
type Run struct {
	ID            uuid.UUID
	Actor, Reason string
	Action        delivery.Action
	PerSecond     int
	MadeAt        time.Time
	Waiting       int // items not looked at
	Allowed       int // how many of them its pace allows now
}

// RunItem is a delivery of a run's set as it was when the run was made.
type RunItem struct {
	DeliveryID, IncidentID uuid.UUID
	Notifier               string
	State                  delivery.State
	Effect                 int
}

// LockRun locks a run of which something may be taken now, if there is one that no other replica is at. Incidents are locked after
// it, and nobody who holds an incident waits for a run.
func (tx *Tx) LockRun(ctx context.Context) (Run, bool, error) {
	return maybe(func(r query.LockBulkRunRow) Run {
		return Run{ID: r.ID, Actor: r.Actor, Reason: r.Reason, Action: delivery.Action(r.Action), PerSecond: r.PerSecond, MadeAt: r.MadeAt, Waiting: int(r.Waiting), Allowed: r.Allowed}
	})(tx.q.LockBulkRun(ctx))
}

// RunItems are waiting items of a locked run, all of one incident, by delivery.
func (tx *Tx) RunItems(ctx context.Context, run uuid.UUID, limit int) ([]RunItem, error) {
	rows, err := tx.q.NextBulkItems(ctx, run, int32(min(limit, 10_000))) //nolint:gosec // bounded on this line
	if err != nil {
		return nil, err
	}
	return convert(rows, func(r query.NextBulkItemsRow) (RunItem, error) {
		return RunItem{DeliveryID: r.DeliveryID, IncidentID: deref(r.IncidentID), Notifier: r.Notifier, State: delivery.State(r.State), Effect: r.Effect}, nil
	})
}

// RunDid notes what became of items of a locked run; an empty why: the decision was applied. over says that no item is left.
func (tx *Tx) RunDid(ctx context.Context, run Run, whys map[uuid.UUID]string, over bool) error {
	m := query.MarkBulkItemsParams{RunID: run.ID}
	a := query.AdvanceBulkRunParams{ID: run.ID, State: api.RunRunning, Seconds: float64(len(whys)) / float64(run.PerSecond)}
	for id, why := range whys {
		result := "applied"
		if why != "" {
			result = "skipped"
			a.Passed++
		} else {
			a.Did++
		}
		m.DeliveryIds, m.Results, m.Whys = append(m.DeliveryIds, id), append(m.Results, result), append(m.Whys, why)
	}
	if over {
		a.State = api.RunDone
	}
	if err := tx.q.MarkBulkItems(ctx, m); err != nil {
		return err
	}
	return tx.q.AdvanceBulkRun(ctx, a)
}

// DeferRun lets other runs have their turn before a locked one goes on.
func (tx *Tx) DeferRun(ctx context.Context, run Run) error {
	return tx.q.AdvanceBulkRun(ctx, query.AdvanceBulkRunParams{ID: run.ID, State: api.RunRunning, Seconds: (2 * time.Second).Seconds()})
}

// CancelRun ends a running run. False: it is over already. It waits for what is being taken of it; nothing is after it.
func (tx *Tx) CancelRun(ctx context.Context, id uuid.UUID, by string) (bool, error) {
	_, err := tx.q.CancelBulkRun(ctx, by, id)
	if errors.Is(notFound(err), ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// NotifierKnown says whether a live replica's file has a notifier.
func (tx *Tx) NotifierKnown(ctx context.Context, alive time.Duration, notifier string) (bool, error) {
	return tx.q.NotifierKnown(ctx, alive, notifier)
}

// NotifierKnown is the same for who only wants to know.
func (s *Store) NotifierKnown(ctx context.Context, alive time.Duration, notifier string) (bool, error) {
	return s.q.NotifierKnown(ctx, alive, notifier)
}

// ReadRun is one run with its counts. [ErrNotFound] where there is none.
func (s *Store) ReadRun(ctx context.Context, id uuid.UUID) (api.DecisionRun, error) {
	row, err := s.q.ReadBulkRun(ctx, id)
	if err != nil {
		return api.DecisionRun{}, readError("read the run", err)
	}
	counts, err := s.q.BulkCounts(ctx, id)
	if err != nil {
		return api.DecisionRun{}, readError("count the run", err)
	}
	out := runWire(row)
	skips := map[string]int{}
	for _, c := range counts {
		if n := len(out.Counts); n == 0 || out.Counts[n-1].Notifier != c.Notifier || out.Counts[n-1].Reason != c.Reason || out.Counts[n-1].State != c.State {
			out.Counts = append(out.Counts, api.DecisionCount{Notifier: c.Notifier, Reason: c.Reason, State: c.State})
		}
		last := &out.Counts[len(out.Counts)-1]
		last.Count += c.Number
		switch c.Result {
		case "applied":
			last.Applied += c.Number
		case "skipped":
			last.Skipped += c.Number
			if skips[c.Why] == 0 {
				out.Skips = append(out.Skips, api.SkipCount{Why: c.Why})
			}
			skips[c.Why] += c.Number
		}
	}
	for i := range out.Skips {
		out.Skips[i].Count = skips[out.Skips[i].Why]
	}
	return out, nil
}

// ListRuns is one page of runs, newest first. [ErrCursor] where the cursor is none.
func (s *Store) ListRuns(ctx context.Context, limit int, cursor string) (api.List[api.DecisionRun], error) {
	before, err := openCursor(cursor)
	if err != nil {
		return api.List[api.DecisionRun]{}, err
	}
	most := pageSize(limit)
	rows, err := s.q.PageBulkRuns(ctx, before, most+1)
	if err != nil {
		return api.List[api.DecisionRun]{}, fmt.Errorf("list runs: %w", err)
	}
	return page(rows, int(most), runWire, func(r query.BulkRun) uuid.UUID { return r.ID }), nil
}

func runWire(r query.BulkRun) api.DecisionRun {
	out := api.DecisionRun{
		ID: r.ID.String(), State: r.State, Action: r.Action, Reason: r.Reason, By: r.Actor, PerSecond: r.PerSecond, Total: r.Total, Applied: r.Applied,
		Skipped: r.Skipped, MadeAt: utc(&r.MadeAt), EndedAt: utc(r.EndedAt), CanceledBy: deref(r.CanceledBy),
	}
	_ = json.Unmarshal(r.Filter, &out.Filter) // written by AddRun; what can't be read any more is left out
	return out
}

// DeadLetter is how many dead deliveries have a state and reason.
type DeadLetter struct {
	State, Reason string
	Count         int
}

// CountDeadLetters counts dead deliveries, at most the first hundred thousand.
func (s *Store) CountDeadLetters(ctx context.Context) ([]DeadLetter, error) {
	rows, err := s.q.DeadLetters(ctx, maxCounted)
	if err != nil {
		return nil, fmt.Errorf("count dead letters: %w", err)
	}
	out := make([]DeadLetter, len(rows))
	for i, r := range rows {
		out[i] = DeadLetter{State: r.State, Reason: r.Reason, Count: r.Number}
	}
	return out, nil
}
