package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// row is a delivery as it lies in the table.
type row struct {
	State      delivery.State
	Reason     string
	NextAt     *time.Time
	Token      *uuid.UUID
	Until      *time.Time
	Worker     string
	Version    int64
	Effect     int
	Desired    int
	Applied    int
	Reference  *delivery.Reference
	Attempts   int
	Tries      int
	Open       *uuid.UUID
	Doubt      *doubt
	StopState  *string
	StopReason *string
	WaitUntil  *time.Time
	CreatedAt  time.Time
	CalledAt   *time.Time
	SettledAt  *time.Time
}

// doubt is what the row's column holds: written down once more, so that a renamed field is seen.
type doubt struct {
	Effect   int       `json:"effect"`
	Key      string    `json:"key"`
	Address  string    `json:"address"`
	Since    time.Time `json:"since"`
	Revision int       `json:"revision"`
	Through  int       `json:"through"`
}

func (s *site) row(id uuid.UUID) row {
	s.t.Helper()
	rows, err := s.db.Query(s.ctx(), `select state, reason, next_at, lease_token, lease_until, worker, version, effect, desired, applied, reference, attempts, tries,
		open_attempt, doubt, stop_state, stop_reason, wait_until, created_at, called_at, settled_at from delivery where id = $1`, id)
	if err != nil {
		s.t.Fatal(err)
	}
	r, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[row])
	if err != nil {
		s.t.Fatalf("delivery %s: %v", id, err)
	}
	return r
}

// whole is every column of a delivery: what must not have changed.
func (s *site) whole(id uuid.UUID) string {
	s.t.Helper()
	return get[string](s, "select to_jsonb(d)::text from delivery d where id = $1", id)
}

// attempt is one recorded call as it lies in the table.
type attempt struct {
	ID         uuid.UUID
	Number     int
	Effect     int
	Key        string
	Revision   int
	Operation  delivery.Operation
	Address    string
	Worker     string
	Token      uuid.UUID
	StartedAt  time.Time
	FinishedAt *time.Time
	Outcome    *string
	Evidence   *string
	ClosedBy   *string
	Reason     string
	Late       *string
	LateAt     *time.Time
}

// attempts are the recorded calls of a delivery, oldest first.
func (s *site) attempts(id uuid.UUID) []attempt {
	s.t.Helper()
	rows, err := s.db.Query(s.ctx(), `select id, number, effect, effect_key, revision, operation, address, worker, lease_token, started_at, finished_at,
		outcome, evidence, closed_by, reason, late_outcome, late_at from attempt where delivery_id = $1 order by number, id`, id)
	if err != nil {
		s.t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, pgx.RowToStructByPos[attempt])
	if err != nil {
		s.t.Fatal(err)
	}
	return got
}

// attempt is the only recorded call of a delivery.
func (s *site) attempt(id uuid.UUID) attempt {
	s.t.Helper()
	got := s.attempts(id)
	if len(got) != 1 {
		s.t.Fatalf("delivery %s has %d attempts, not one", id, len(got))
	}
	return got[0]
}

// says compares the text of a column that may be null.
func says(p *string, want string) bool { return p != nil && *p == want }

// unchanged fails when a delivery is not what it was.
func (s *site) unchanged(id uuid.UUID, before, why string) {
	s.t.Helper()
	if after := s.whole(id); after != before {
		s.t.Errorf("%s: the delivery changed\nfrom %s\nto   %s", why, before, after)
	}
}

// inState fails when a delivery is in another state or has another reason.
func (s *site) inState(id uuid.UUID, state delivery.State, reason string) {
	s.t.Helper()
	if r := s.row(id); r.State != state || r.Reason != reason {
		s.t.Errorf("the delivery is %s (%s), not %s (%s)", r.State, r.Reason, state, reason)
	}
}

// near says that two times of the database's clock differ by less than the tests themselves take.
func near(a, b time.Time) bool { return a.Sub(b).Abs() < 20*time.Second }

// blocked returns once n sessions of the database wait for a lock: the interleaving that a test wants has come about.
func (s *site) blocked(n int) {
	s.t.Helper()
	s.until(n, "wait_event_type = 'Lock'")
}

// quiet returns once no session of the database but the test's own is in a transaction: the server has noticed that a
// connection is gone.
func (s *site) quiet() {
	s.t.Helper()
	s.until(0, "xact_start is not null and pid <> pg_backend_pid()")
}

// until waits for n sessions, no fewer and no more, of which a condition is true.
func (s *site) until(n int, condition string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeoutCause(s.ctx(), 20*time.Second, errors.New("it took too long"))
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		var got int
		if err := s.db.QueryRow(ctx, "select count(*) from pg_stat_activity where datname = current_database() and backend_type = 'client backend' and "+condition).Scan(&got); err != nil {
			s.t.Fatalf("waiting for %d sessions with %s: %v, %v", n, condition, err, context.Cause(ctx))
		}
		if got == n {
			return
		}
		<-tick.C
	}
}

// The keys of the advisory locks that hold tocsin's sessions where a test wants them.
const (
	gateClock  = 71
	gateCommit = 72
)

// gate is an advisory lock that tocsin's sessions must pass. It is shut by the test.
type gate struct {
	s    *site
	key  int
	conn *pgx.Conn
}

func (s *site) gate(key int) *gate {
	s.t.Helper()
	return &gate{s, key, connect(s.t, s.url)}
}

func (g *gate) shut() {
	g.s.t.Helper()
	if _, err := g.conn.Exec(g.s.ctx(), "select pg_advisory_lock($1)", g.key); err != nil {
		g.s.t.Fatal(err)
	}
}

func (g *gate) open() {
	g.s.t.Helper()
	if _, err := g.conn.Exec(g.s.ctx(), "select pg_advisory_unlock($1)", g.key); err != nil {
		g.s.t.Fatal(err)
	}
}

// holdClaims makes a shut gate stop the claim between its snapshot and its first row: where it asks what time it is.
func (s *site) holdClaims() *gate {
	s.t.Helper()
	s.exec(`create or replace function clock.now() returns timestamptz language plpgsql stable as $$
	begin
		if current_setting('application_name') = 'tocsin' then
			perform pg_advisory_xact_lock_shared(71);
		end if;
		return pg_catalog.now() + (select m.by from clock.moved m);
	end $$`)
	s.claim("nobody", store.Lane{Notifier: "none", Free: 1}) // plans the statement: the planner asks for the time too
	return s.gate(gateClock)
}

// holdCommits makes a shut gate stop, at their commit, transactions of tocsin that wrote deliveries.
func (s *site) holdCommits() *gate {
	s.t.Helper()
	s.exec(`create function hold_commit() returns trigger language plpgsql as $$
	begin
		if current_setting('application_name') = 'tocsin' then
			perform pg_advisory_xact_lock_shared(72);
		end if;
		return null;
	end $$`)
	s.exec("create constraint trigger hold_commit after update on delivery deferrable initially deferred for each row execute function hold_commit()")
	return s.gate(gateCommit)
}

// errTakenBack ends a transaction of a test by a rollback.
var errTakenBack = errors.New("taken back")

// call is a call under way in another goroutine.
type call[T any] struct {
	t    testing.TB
	done chan struct{}
	v    T
	err  error
}

// async starts f. Its result is collected by wait.
func async[T any](t testing.TB, f func() (T, error)) *call[T] {
	c := &call[T]{t: t, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.v, c.err = f()
	}()
	t.Cleanup(func() { <-c.done })
	return c
}

func (c *call[T]) wait() T {
	c.t.Helper()
	<-c.done
	if c.err != nil {
		c.t.Fatal(c.err)
	}
	return c.v
}

// pretty shows a value in a failure.
func pretty(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}
