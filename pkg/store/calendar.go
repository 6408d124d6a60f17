package store

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/oncall"
	"github.com/tocsin-oncall/tocsin/pkg/plan"
	"github.com/tocsin-oncall/tocsin/pkg/store/internal/query"
)

// copies are the copies of calendars that this process has read. One with its version never changes, so whoever asks who is on call only reads
// the versions.
type copies struct {
	mu sync.Mutex
	of map[string]kept
}

type kept struct {
	version int
	cal     *oncall.Calendar
}

// read gives the copies of the given versions, {"id": version}; those that are not known yet are read from the database.
func (c *copies) read(ctx context.Context, q *query.Queries, versions json.RawMessage) (map[string]*oncall.Calendar, error) {
	var wanted map[string]int
	if err := json.Unmarshal(versions, &wanted); err != nil {
		return nil, fmt.Errorf("read the versions of calendars: %w", err)
	}
	if len(wanted) == 0 {
		return nil, nil
	}
	out, missing := map[string]*oncall.Calendar{}, []string{}
	c.mu.Lock()
	maps.DeleteFunc(c.of, func(id string, _ kept) bool { _, still := wanted[id]; return !still })
	for id, version := range wanted {
		if k, ok := c.of[id]; ok && k.version == version {
			out[id] = k.cal
		} else {
			missing = append(missing, id)
		}
	}
	c.mu.Unlock()
	if len(missing) == 0 {
		return out, nil
	}
	rows, err := q.CalendarCopies(ctx, missing)
	if err != nil {
		return nil, fmt.Errorf("read calendars: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range rows {
		if k, ok := c.of[r.ID]; ok && k.version == r.Version { // another has read it meanwhile
			out[r.ID] = k.cal
			continue
		}
		cal := &oncall.Calendar{Problems: r.Problems}
		if err := json.Unmarshal(r.Events, &cal.Events); err != nil {
			return nil, fmt.Errorf("read the calendar %s: %w", r.ID, err)
		}
		c.of[r.ID] = kept{r.Version, cal}
		out[r.ID] = cal
	}
	return out, nil
}

// CalendarState is how it stands with an imported calendar.
type CalendarState struct {
	ID        string
	FetchedAt *time.Time // when the copy in force was last found to be what the calendar says; nil: there is none
	Problems  []string   // what in the copy could not be understood
	Tries     int        // that failed since
	FailedAt  *time.Time // the first of these
	Error     string     // of the last
}

// CalendarStates is how it stands with all of them.
func (s *Store) CalendarStates(ctx context.Context) ([]CalendarState, error) {
	return calendarStates(ctx, s.q)
}

// CalendarStates is [Store.CalendarStates] within the transaction.
func (tx *Tx) CalendarStates(ctx context.Context) ([]CalendarState, error) {
	return calendarStates(ctx, tx.q)
}

func calendarStates(ctx context.Context, q *query.Queries) ([]CalendarState, error) {
	rows, err := q.CalendarStates(ctx)
	if err != nil {
		return nil, fmt.Errorf("read how it stands with calendars: %w", err)
	}
	return convert(rows, func(r query.CalendarStatesRow) (CalendarState, error) {
		return CalendarState{ID: r.ID, FetchedAt: r.FetchedAt, Problems: r.Problems, Tries: r.Tries, FailedAt: r.FailedAt, Error: r.Error}, nil
	})
}

// PlannedCalendars are states as plans judge them, by calendar.
func PlannedCalendars(all []CalendarState) map[string]plan.CalendarState {
	out := map[string]plan.CalendarState{}
	for _, c := range all {
		out[c.ID] = plan.CalendarState{FetchedAt: c.FetchedAt, FailedAt: c.FailedAt, Error: c.Error}
	}
	return out
}

// ListCalendars notes which calendars a file names.
func (tx *Tx) ListCalendars(ctx context.Context, ids []string) error {
	slices.Sort(ids) // one order on all replicas: these rows are locked
	return tx.q.ListCalendars(ctx, ids)
}

// PurgeCalendars forgets the calendars that no file has named for so long.
func (s *Store) PurgeCalendars(ctx context.Context, after time.Duration) error {
	return s.q.PurgeCalendars(ctx, after)
}

// Fetch is one fetch of a calendar that was taken on.
type Fetch struct {
	ID      string
	Attempt int // which the answer names
	Tries   int // that failed before
}

// ClaimCalendars takes on some of the calendars that are due, each for a time, in which nobody else fetches it.
func (tx *Tx) ClaimCalendars(ctx context.Context, ids []string, lease time.Duration, most int) ([]Fetch, error) {
	rows, err := tx.q.ClaimCalendars(ctx, lease, ids, int32(min(most, 10_000))) //nolint:gosec // bounded on this line
	if err != nil {
		return nil, err
	}
	return convert(rows, func(r query.ClaimCalendarsRow) (Fetch, error) {
		return Fetch{ID: r.ID, Attempt: r.Attempt, Tries: r.Tries}, nil
	})
}

// PutCalendar puts a copy in force, and says after how long the calendar is fetched again. False: it took so long that somebody else has
// fetched it since.
func (tx *Tx) PutCalendar(ctx context.Context, f Fetch, cal *oncall.Calendar, again time.Duration) (bool, error) {
	events, problems := []byte("[]"), cal.Problems
	if len(cal.Events) > 0 {
		var err error
		if events, err = json.Marshal(cal.Events); err != nil {
			return false, err
		}
	}
	if problems == nil {
		problems = []string{}
	}
	n, err := tx.q.PutCalendar(ctx, query.PutCalendarParams{Events: events, Problems: problems, Again: again, ID: f.ID, Attempt: f.Attempt})
	return n == 1, err
}

// CalendarFailed notes that a calendar could not be fetched or read. Its copy stays in force.
func (tx *Tx) CalendarFailed(ctx context.Context, f Fetch, why string, again time.Duration) (bool, error) {
	n, err := tx.q.CalendarFailed(ctx, query.CalendarFailedParams{Error: why, Again: again, ID: f.ID, Attempt: f.Attempt})
	return n == 1, err
}

// CalendarTold is a layer of which it was told that its calendar is not as it should be.
type CalendarTold struct{ Schedule, Layer, What string }

// CalendarsTold are all of them.
func (tx *Tx) CalendarsTold(ctx context.Context) ([]CalendarTold, error) {
	rows, err := tx.q.CalendarsTold(ctx)
	if err != nil {
		return nil, err
	}
	return convert(rows, func(r query.CalendarsToldRow) (CalendarTold, error) { return CalendarTold(r), nil })
}

// TellCalendar notes that it is told of a layer. False: the same was told before.
func (tx *Tx) TellCalendar(ctx context.Context, t CalendarTold) (bool, error) {
	n, err := tx.q.TellCalendar(ctx, t.Schedule, t.Layer, t.What)
	return n == 1, err
}

// ForgetCalendar notes that a layer's calendar is as it should be.
func (tx *Tx) ForgetCalendar(ctx context.Context, schedule, layer string) error {
	return tx.q.ForgetCalendar(ctx, schedule, layer)
}

// CalendarIsTold says whether a layer's calendar is not as it should be.
func (tx *Tx) CalendarIsTold(ctx context.Context, schedule, layer string) (bool, error) {
	return tx.q.CalendarTold(ctx, schedule, layer)
}
