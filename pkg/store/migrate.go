package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"

	_ "github.com/jackc/pgx/v5/stdlib" // goose speaks database/sql
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	migrations "github.com/tocsin-oncall/tocsin/sql"
)

// SchemaError says that the database's schema is not this binary's.
type SchemaError struct{ Have, Want int64 }

func (e *SchemaError) Error() string {
	if e.Have > e.Want {
		return fmt.Sprintf("the database's schema is version %d, newer than this binary knows (%d): start the newer binary", e.Have, e.Want)
	}
	return fmt.Sprintf("the database's schema is version %d and this binary needs %d: run `tocsin migrate --config FILE` first, or start with `serve --migrate`", e.Have, e.Want)
}

// Migrate brings the schema to this binary's version, under an advisory lock: of several that start at once one works
// and the others wait. A crash leaves whole migrations only, each is a transaction.
func Migrate(ctx context.Context, url string) error {
	p, db, err := provider(url)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("migrate: %w", plain(err))
	}
	return nil
}

// Migration is one step of the schema and whether the database has it.
type Migration struct {
	Version int64  `json:"version"`
	Name    string `json:"name"`
	Applied bool   `json:"applied"`
}

// Migrations lists the steps of the schema.
func Migrations(ctx context.Context, url string) ([]Migration, error) {
	p, db, err := provider(url)
	if err != nil {
		return nil, err
	}
	defer func() { _ = db.Close() }()
	status, err := p.Status(ctx)
	if err != nil {
		return nil, fmt.Errorf("migrate: %w", plain(err))
	}
	var out []Migration
	for _, m := range status {
		out = append(out, Migration{Version: m.Source.Version, Name: m.Source.Path, Applied: m.State == goose.StateApplied})
	}
	return out, nil
}

// CheckSchema returns a *SchemaError when the schema is older or newer than this binary needs.
func (s *Store) CheckSchema(ctx context.Context) error {
	want, err := newest()
	if err != nil {
		return err
	}
	var have int64
	var exists bool
	if err := s.pool.QueryRow(ctx, "select to_regclass('goose_db_version') is not null").Scan(&exists); err != nil {
		return fmt.Errorf("the database does not answer: %w", plain(err))
	}
	if exists {
		if err := s.pool.QueryRow(ctx, "select coalesce(max(version_id), 0) from goose_db_version where is_applied").Scan(&have); err != nil {
			return fmt.Errorf("the schema's version can't be read: %w", err)
		}
	}
	if have != want {
		return &SchemaError{Have: have, Want: want}
	}
	return nil
}

func provider(url string) (*goose.Provider, *sql.DB, error) {
	if _, err := poolConfig(url, 1, nil); err != nil {
		return nil, nil, err
	}
	db, err := sql.Open("pgx", url)
	if err != nil {
		return nil, nil, fmt.Errorf("database: %w", plain(err))
	}
	files, err := fs.Sub(migrations.Migrations, "migrations")
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	locker, err := lock.NewPostgresSessionLocker()
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	p, err := goose.NewProvider(goose.DialectPostgres, db, files, goose.WithSessionLocker(locker))
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return p, db, nil
}

// newest is the version that this binary brings.
func newest() (int64, error) {
	files, err := fs.Glob(migrations.Migrations, "migrations/*.sql")
	if err != nil || len(files) == 0 {
		return 0, errors.Join(err, errors.New("this binary holds no migrations"))
	}
	var v int64
	for _, f := range files {
		n, err := goose.NumericComponent(f)
		if err != nil {
			return 0, err
		}
		v = max(v, n)
	}
	return v, nil
}
