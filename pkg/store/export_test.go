package store

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tocsin-oncall/tocsin/pkg/store/internal/query"
)

// WorkConn is a connection of the worker's pool, with its planner settings and the statements it has prepared.
func (s *Store) WorkConn(ctx context.Context) (*pgxpool.Conn, error) { return s.work.Acquire(ctx) }

// PoolConn is a connection of the general pool, with the statements it has prepared.
func (s *Store) PoolConn(ctx context.Context) (*pgxpool.Conn, error) { return s.pool.Acquire(ctx) }

// On is the store with its single statements run by db: in a transaction that a test holds open.
func (s *Store) On(db query.DBTX) *Store {
	return &Store{pool: s.pool, work: s.work, q: query.New(db), w: query.New(db), searchRows: s.searchRows}
}

// SearchWindows sets how many rows a search looks at in one window.
func (s *Store) SearchWindows(rows int32) { s.searchRows = rows }
