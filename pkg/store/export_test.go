package store

import (
	"context"

	"github.com/google/uuid"
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

// Read returns deliveries as they stand, with the database's clock.
func (s *Store) Read(ctx context.Context, ids ...uuid.UUID) (map[uuid.UUID]Claimed, error) {
	rows, err := s.w.DeliveriesByID(ctx, ids)
	if err != nil {
		return nil, err
	}
	out := make(map[uuid.UUID]Claimed, len(rows))
	for _, r := range rows {
		d, err := toDelivery(query.ClaimRow(r))
		if err != nil {
			return nil, err
		}
		out[r.ID] = Claimed{Delivery: d, Now: r.ClaimedAt, Called: r.CalledAt != nil}
	}
	return out, nil
}
