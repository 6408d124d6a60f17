// Package store writes what pkg/delivery decides and reads it back. It owns every connection to Postgres and knows no
// policy: it accepts a decided step, and writes it only on the row that the step was decided on.
package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	pgxuuid "github.com/vgarvardt/pgx-google-uuid/v5"

	"github.com/tocsin-oncall/tocsin/pkg/store/internal/query"
)

// The bounds of everything that waits for the database.
const (
	connectTimeout       = 5 * time.Second
	statementTimeout     = 15 * time.Second
	lockTimeout          = 5 * time.Second
	idleInTransaction    = 30 * time.Second
	healthCheckPeriod    = 5 * time.Second
	defaultConnections   = 20
	workerConnections    = 4 // claim, begin, finish, and one to spare: each is one batch at a time
	txTries              = 4 // a deadlock or a serialization failure is tried again that often
	DefaultNotifyChannel = "tocsin"
)

// Options set up a Store.
type Options struct {
	MaxConnections int // of the general pool; 0: 20. The worker has a pool of its own beside it
}

// Store is one instance's way to the database. Safe for use by many goroutines.
type Store struct {
	pool *pgxpool.Pool // intake, API, scheduler, console
	work *pgxpool.Pool // the worker alone: a slow page of the console takes no connection from it
	q    *query.Queries
	w    *query.Queries

	searchRows int32 // that a search looks at in one window
	copies     *copies

	onEnded func(Ended) // nil: nobody asked
	onTold  func()      // nil: nobody asked
}

// Open connects both pools. It fails with one clear sentence when the database can't be reached.
func Open(ctx context.Context, url string, o Options) (*Store, error) {
	general, err := poolConfig(url, o.MaxConnections, nil)
	if err != nil {
		return nil, err
	}
	worker, err := poolConfig(url, workerConnections, workerSettings)
	if err != nil {
		return nil, err
	}
	s := &Store{searchRows: searchRows, copies: &copies{of: map[string]kept{}}}
	if s.pool, err = pgxpool.NewWithConfig(ctx, general); err != nil {
		return nil, fmt.Errorf("database: %w", plain(err))
	}
	if s.work, err = pgxpool.NewWithConfig(ctx, worker); err != nil {
		s.pool.Close()
		return nil, fmt.Errorf("database: %w", plain(err))
	}
	s.q, s.w = query.New(s.pool), query.New(s.work)
	if err := s.Ping(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// workerSettings keep the worker's few statements on their index, whatever the statistics say: tables that were empty
// when they were analysed make the planner choose scans and joins that take seconds once a burst comes.
var workerSettings = map[string]string{
	"enable_seqscan":    "off",
	"enable_bitmapscan": "off",
	"enable_hashjoin":   "off",
	"enable_mergejoin":  "off",
	"enable_sort":       "off",
	"plan_cache_mode":   "force_generic_plan",
}

func poolConfig(url string, most int, settings map[string]string) (*pgxpool.Config, error) {
	c, err := pgxpool.ParseConfig(url)
	if err != nil {
		// pgx's text may repeat the URL with its password.
		return nil, errors.New("database.url is not a Postgres URL such as postgres://user:password@host:5432/tocsin")
	}
	if most <= 0 {
		most = defaultConnections
	}
	c.MaxConns = int32(min(most, 1000)) //nolint:gosec // bounded on this line
	c.HealthCheckPeriod = healthCheckPeriod
	c.ConnConfig.ConnectTimeout = connectTimeout
	set := map[string]string{
		"application_name":                    "tocsin",
		"timezone":                            "UTC",
		"jit":                                 "off",
		"statement_timeout":                   ms(statementTimeout),
		"lock_timeout":                        ms(lockTimeout),
		"idle_in_transaction_session_timeout": ms(idleInTransaction),
	}
	for k, v := range settings {
		set[k] = v
	}
	// Set after connecting and not as start-up parameters, which a pooler between would refuse.
	c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		// Without the codec pgx goes by driver.Valuer and back, which was a third of the worker's own time.
		pgxuuid.Register(conn.TypeMap())
		b := &pgx.Batch{}
		for k, v := range set {
			b.Queue("select set_config($1, $2, false)", k, v)
		}
		return conn.SendBatch(ctx, b).Close()
	}
	return c, nil
}

func ms(d time.Duration) string { return fmt.Sprint(d.Milliseconds()) }

// Close ends all connections. Calls under way fail.
func (s *Store) Close() {
	s.work.Close()
	s.pool.Close()
}

// Ping says whether the database answers, in one sentence when it does not.
func (s *Store) Ping(ctx context.Context) error {
	if err := s.pool.Ping(ctx); err != nil {
		return fmt.Errorf("the database does not answer: %w", plain(err))
	}
	return nil
}

// Now is the database's clock.
func (s *Store) Now(ctx context.Context) (time.Time, error) { return s.q.ClockTimestamp(ctx) }

// plain takes what pgx says about a connection down to what went wrong, on one line: its text names user and database
// otherwise. pgx tries an address with TLS and without, and often has the same to say of both.
func plain(err error) error {
	var c *pgconn.ConnectError
	if !errors.As(err, &c) {
		return err
	}
	inner := errors.Unwrap(c)
	if inner == nil {
		return err
	}
	joined, ok := inner.(interface{ Unwrap() []error })
	if !ok {
		return inner
	}
	var all error
	said := map[string]bool{}
	for _, e := range joined.Unwrap() {
		switch {
		case said[e.Error()]:
		case all == nil:
			all = e
		default:
			all = fmt.Errorf("%w; %w", all, e)
		}
		said[e.Error()] = true
	}
	if all == nil {
		return inner
	}
	return all
}

// ErrNotFound is returned where a row that was asked for by id or key is not there.
var ErrNotFound = errors.New("not found")

// ErrFenced is returned where a row moved after the step was decided: read again, decide again.
var ErrFenced = errors.New("the row has moved meanwhile")

func notFound(err error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return ErrNotFound
	}
	return err
}

// Refused says that the database answered and will not take the statement as it is: a value or a constraint is in the
// way, and trying it again changes nothing.
func Refused(err error) bool {
	var p *pgconn.PgError
	return errors.Is(err, errRow) || errors.As(err, &p) && (strings.HasPrefix(p.Code, "22") || strings.HasPrefix(p.Code, "23"))
}

// Locked says that somebody else's transaction held a row longer than a statement waits. Nothing was written.
func Locked(err error) bool {
	var p *pgconn.PgError
	return errors.As(err, &p) && p.Code == "55P03"
}

// again says that a transaction may be run again as it is: nothing of it has taken place.
func again(err error) bool {
	var p *pgconn.PgError
	if !errors.As(err, &p) {
		return false
	}
	return p.Code == "40001" || p.Code == "40P01"
}
