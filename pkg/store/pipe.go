package store

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tocsin-oncall/tocsin/pkg/store/internal/query"
)

// pipe is a transaction in which what nobody waits for travels with what somebody does. Statements without an answer
// (`:exec` in sql/queries) are kept until the next one that has an answer, or the commit, and go to the database together
// with it, in their order: an accepted alert writes to six tables, and a way there and back for each would be most of what
// it costs. An error of a kept statement is told by whatever took it along.
type pipe struct {
	conn    *pgxpool.Conn
	waiting *pgx.Batch
	last    func(ctx context.Context) error // writes what is gathered elsewhere, before anything is sent; may be nil
	// While several questions are asked together: noting them, then answering them.
	noting  bool
	answers pgx.BatchResults
}

// inPipe runs fn in a transaction of the general pool, as [pgx.BeginFunc] would. settings holds for it alone; empty: the pool's hold.
func (s *Store) inPipe(ctx context.Context, settings string, fn func(p *pipe) error) (err error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	// A connection whose transaction is not over is not given to anybody else, but closed.
	defer conn.Release()
	p := &pipe{conn: conn, waiting: &pgx.Batch{}}
	p.waiting.Queue("begin")
	if settings != "" {
		p.waiting.Queue(settings)
	}
	over := false
	defer func() {
		if !over && conn.Conn().PgConn().TxStatus() != 'I' {
			_, _ = conn.Exec(ctx, "rollback")
		}
	}()
	if err := fn(p); err != nil {
		return err
	}
	if err := p.gather(ctx); err != nil {
		return err
	}
	// It goes with what waits: where one of those fails, the database passes over all that follows.
	p.waiting.Queue("commit")
	b := p.waiting
	results := conn.SendBatch(ctx, b)
	for range b.Len() - 1 {
		if _, err := results.Exec(); err != nil {
			_ = results.Close() // says the same
			return err
		}
	}
	over = true // whatever the answer is
	tag, err := results.Exec()
	if closed := results.Close(); err == nil {
		err = closed
	}
	if err == nil && tag.String() == "ROLLBACK" {
		return pgx.ErrTxCommitRollback
	}
	return err
}

// Exec keeps a statement without an answer, and sends any other.
func (p *pipe) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if answerless(sql) {
		p.waiting.Queue(sql, args...)
		return pgconn.CommandTag{}, nil
	}
	results, err := p.send(ctx, sql, args)
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	tag, err := results.Exec()
	return tag, errors.Join(err, results.Close())
}

// answerless says that nobody looks at what a statement of sql/queries answers: its first line says so.
func answerless(sql string) bool {
	first, _, _ := strings.Cut(sql, "\n")
	return strings.HasPrefix(first, "-- name: ") && strings.HasSuffix(first, " :exec")
}

// together asks several questions with one way there and back. Each is a call of one statement with an answer, and is made twice: first
// to note what it asks, when it finds nothing, then to be answered. So what it asks may not depend on another's answer.
func (p *pipe) together(ctx context.Context, questions ...func() error) error {
	if err := p.gather(ctx); err != nil {
		return err
	}
	before := p.waiting.Len()
	p.noting = true
	for _, q := range questions {
		_ = q() // there is no answer yet
	}
	p.noting = false
	b := p.waiting
	p.waiting = &pgx.Batch{}
	results := p.conn.SendBatch(ctx, b)
	for range before {
		if _, err := results.Exec(); err != nil {
			_ = results.Close() // says the same
			return err
		}
	}
	p.answers = results
	defer func() { p.answers = nil }()
	for _, q := range questions {
		if err := q(); err != nil {
			_ = results.Close()
			return err
		}
	}
	return results.Close()
}

// nothing is the answer to a question that is being noted.
type nothing struct{ pgx.Rows }

func (nothing) Next() bool        { return false }
func (nothing) Scan(...any) error { return nil }
func (nothing) Err() error        { return nil }
func (nothing) Close()            {}

// Query sends a statement behind those that wait.
func (p *pipe) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	switch {
	case p.noting:
		p.waiting.Queue(sql, args...)
		return nothing{}, nil
	case p.answers != nil:
		return p.answers.Query()
	}
	results, err := p.send(ctx, sql, args)
	if err != nil {
		return nil, err
	}
	rows, err := results.Query()
	if err != nil {
		return nil, errors.Join(err, results.Close())
	}
	return &lastRows{Rows: rows, results: results}, nil
}

// QueryRow sends a statement behind those that wait.
func (p *pipe) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	switch {
	case p.noting:
		p.waiting.Queue(sql, args...)
		return nothing{}
	case p.answers != nil:
		return p.answers.QueryRow()
	}
	results, err := p.send(ctx, sql, args)
	return &lastRow{results, err}
}

// gather takes in what is kept elsewhere.
func (p *pipe) gather(ctx context.Context) error {
	if p.last == nil {
		return nil
	}
	return p.last(ctx)
}

// send sends what waits and a last statement, and reads up to its answer.
func (p *pipe) send(ctx context.Context, sql string, args []any) (pgx.BatchResults, error) {
	if err := p.gather(ctx); err != nil {
		return nil, err
	}
	b := p.waiting
	p.waiting = &pgx.Batch{}
	before := b.QueuedQueries
	b.Queue(sql, args...)
	results := p.conn.SendBatch(ctx, b)
	for _, q := range before {
		var err error
		if q.Fn != nil {
			err = q.Fn(results)
		} else {
			_, err = results.Exec()
		}
		if err != nil {
			_ = results.Close() // says the same
			return nil, err
		}
	}
	return results, nil
}

// lastRows are the rows of the last statement of a batch, which is over with them.
type lastRows struct {
	pgx.Rows
	results pgx.BatchResults
	closed  bool
	err     error
}

func (r *lastRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.Close()
	return false
}

func (r *lastRows) Close() {
	r.Rows.Close()
	if !r.closed {
		r.closed = true
		r.err = r.results.Close()
	}
}

func (r *lastRows) Err() error {
	if err := r.Rows.Err(); err != nil {
		return err
	}
	return r.err
}

type lastRow struct {
	results pgx.BatchResults
	err     error
}

func (r *lastRow) Scan(dest ...any) error {
	if r.err != nil {
		return r.err
	}
	err := r.results.QueryRow().Scan(dest...)
	if over := r.results.Close(); err == nil {
		err = over
	}
	return err
}

var _ query.DBTX = (*pipe)(nil)
