package worker_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
	"github.com/tocsin-oncall/tocsin/pkg/store/storetest"
)

// row is a delivery as the database holds it.
type row struct {
	State, Reason, Sentence, Worker                    string
	Effect, Desired, Applied, Attempts, Tries, Version int
	Leased, Open, Doubt, Reference                     bool
	DueIn                                              *float64 // seconds by the database's clock
}

func (s *site) row(id uuid.UUID) row {
	s.t.Helper()
	rows, err := s.db.Query(s.ctx(), `select state, reason, sentence, worker, effect, desired, applied, attempts, tries, version::int, lease_token is not null as leased,
		open_attempt is not null as open, doubt is not null as doubt, reference is not null as reference, extract(epoch from next_at - clock_timestamp())::float8 as due_in from delivery where id = $1`, id)
	if err != nil {
		s.t.Fatal(err)
	}
	r, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByNameLax[row])
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

// attempt is an attempt as the database holds it.
type attempt struct {
	Number, Effect, Revision                                int
	EffectKey, Operation, Address, Worker                   string
	Outcome, Evidence, Reason, Error, ClosedBy, LateOutcome string
	StartedAt                                               time.Time
	DurationMS                                              float64
	ID                                                      uuid.UUID
}

// attempts are those of a delivery, in order.
func (s *site) attempts(id uuid.UUID) []attempt {
	s.t.Helper()
	rows, err := s.db.Query(s.ctx(), `select id, number, effect, revision, effect_key, operation, address, worker, coalesce(outcome, '') as outcome, coalesce(evidence, '') as evidence,
		reason, error, coalesce(closed_by, '') as closed_by, coalesce(late_outcome, '') as late_outcome, started_at, coalesce(duration_ms, 0) as duration_ms
		from attempt where delivery_id = $1 order by number`, id)
	if err != nil {
		s.t.Fatal(err)
	}
	out, err := pgx.CollectRows(rows, pgx.RowToStructByNameLax[attempt])
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

// until waits until a condition in the database holds.
func (s *site) until(what string, ok func() bool) {
	s.t.Helper()
	end := time.Now().Add(patience)
	tick := time.NewTicker(3 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(end) {
			s.t.Fatalf("%s did not come about\n%s", what, s.dump())
		}
		<-tick.C
	}
}

// comes waits for a signal.
func (s *site) comes(what string, c <-chan bool) {
	s.t.Helper()
	end := time.NewTimer(patience)
	defer end.Stop()
	select {
	case <-c:
	case <-end.C:
		s.t.Fatalf("%s did not come\n%s", what, s.dump())
	}
}

// waitFor waits for a delivery's state.
func (s *site) waitFor(id uuid.UUID, state delivery.State) row {
	s.t.Helper()
	s.until(fmt.Sprintf("%s as %s", id, state), func() bool { return s.row(id).State == string(state) })
	return s.row(id)
}

// settled waits until no delivery waits for a worker any more.
func (s *site) settled() {
	s.t.Helper()
	s.until("the end of all deliveries", func() bool { return get[int](s, "select count(*)::int from delivery where next_at is not null") == 0 })
}

func get[T any](s *site, sql string, args ...any) T {
	s.t.Helper()
	var v T
	if err := s.db.QueryRow(s.ctx(), sql, args...).Scan(&v); err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func (s *site) exec(sql string, args ...any) {
	s.t.Helper()
	if _, err := s.db.Exec(s.ctx(), sql, args...); err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
}

// alter changes the schema under the workers' feet; it tries again where it meets their locks in the wrong order.
func (s *site) alter(sql string) {
	s.t.Helper()
	for end := time.Now().Add(patience); ; {
		_, err := s.db.Exec(s.ctx(), sql)
		var p *pgconn.PgError
		if err == nil {
			return
		}
		if !errors.As(err, &p) || p.Code != "40P01" || time.Now().After(end) {
			s.t.Fatalf("%s: %v", sql, err)
		}
	}
}

// dump is all that an explanation of a failure needs.
func (s *site) dump() string {
	return get[string](s, `select coalesce((select string_agg(format('%s %s %s(%s) effect %s %s/%s tries %s attempts %s %s due in %s', id, kind, state, reason, effect, applied, desired, tries, attempts, worker,
			extract(epoch from next_at - clock_timestamp())), E'\n' order by id) from delivery), '') || E'\n'
		|| coalesce((select string_agg(format('%s #%s %s rev %s by %s: %s %s %s closed by %s, late %s', delivery_id, number, operation, revision, worker, outcome, evidence, reason, closed_by, late_outcome), E'\n' order by delivery_id, number) from attempt), '')`)
}

func (s *site) move(d time.Duration) { s.t.Helper(); storetest.MoveClock(s.t, s.url, d) }

// lapse lets every lease run out.
func (s *site) lapse() { s.t.Helper(); s.move(lease + time.Second) }

// outcomes are those of a delivery's attempts, in order, with who closed them.
func (s *site) outcomes(id uuid.UUID) string {
	s.t.Helper()
	var out []string
	for _, a := range s.attempts(id) {
		out = append(out, a.Operation+" "+a.Outcome+" by "+a.ClosedBy)
	}
	return fmt.Sprint(out)
}

// recorded checks rule 2: every call that a desk got has an attempt of the same key and operation.
func (s *site) recorded(calls ...provider.Call) {
	s.t.Helper()
	made := map[string]int{}
	for _, c := range calls {
		made[c.Key+" "+string(c.Operation)]++
	}
	for _, k := range slices.Sorted(maps.Keys(made)) {
		if rows := get[int](s, "select count(*)::int from attempt where effect_key || ' ' || operation = $1", k); rows < made[k] {
			s.t.Errorf("%s was called %d times and has %d attempts", k, made[k], rows)
		}
	}
}
