package storetest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/tocsin-oncall/tocsin/pkg/store"
	"github.com/tocsin-oncall/tocsin/sql"
)

// source is what a test's database is copied from.
type source int

const (
	movable source = iota // migrated, with a clock that can be moved
	plain                 // migrated, as in production
	empty                 // nothing at all
)

// searchPath puts the movable clock before the real one. public stays first: what a test creates goes there.
const searchPath = "public, clock, pg_catalog"

// templates remembers by server and source what is known to be there, so that only the first test asks.
var templates struct {
	mu    sync.Mutex
	ready map[string]string
}

// template returns the name of the database to copy, made now where this server has none yet. Its name tells the
// schema, so that packages running at the same time share it and an edited migration makes another.
func (s source) template(ctx context.Context, admin string) (string, error) {
	if s == empty {
		return "template0", nil
	}
	templates.mu.Lock()
	defer templates.mu.Unlock()
	key := fmt.Sprint(admin, s)
	if name := templates.ready[key]; name != "" {
		return name, nil
	}
	hash, err := schemaHash()
	if err != nil {
		return "", fmt.Errorf("storetest: read the migrations: %w", err)
	}
	name := "tocsin_plain_" + hash
	if s == movable {
		name = "tocsin_movable_" + hash
	}
	ctx, cancel := context.WithTimeoutCause(ctx, templateLimit, fmt.Errorf("it took longer than %s", templateLimit))
	defer cancel()
	if err := with(ctx, admin, func(conn *pgx.Conn) error { return s.build(ctx, conn, admin, name) }); err != nil {
		return "", fmt.Errorf("storetest: make the template database %s: %w", name, err)
	}
	if templates.ready == nil {
		templates.ready = map[string]string{}
	}
	templates.ready[key] = name
	return name, nil
}

// build makes the template under another name and renames it when it is complete: a database of that name is whole.
// The advisory lock, taken in the maintenance database that all share, lets one process build while others wait.
func (s source) build(ctx context.Context, conn *pgx.Conn, admin, name string) error {
	if _, err := conn.Exec(ctx, "select pg_advisory_lock(hashtext('tocsin storetest template'))"); err != nil {
		return fmt.Errorf("wait for another process that is making it: %w", err)
	}
	var there bool
	if err := conn.QueryRow(ctx, "select exists (select from pg_database where datname = $1)", name).Scan(&there); err != nil || there {
		return err
	}
	part := name + "_part"
	for _, q := range []string{
		"drop database if exists " + part + " with (force)",
		"create database " + part + " template template0",
	} {
		if _, err := conn.Exec(ctx, q); err != nil {
			return err
		}
	}
	if s == movable {
		// Before the migrations, so that the column defaults and views which they make follow the movable clock too.
		if err := with(ctx, at(admin, part), func(c *pgx.Conn) error { return installClock(ctx, c) }); err != nil {
			return err
		}
		if err := s.prepare(ctx, conn, part); err != nil {
			return err
		}
	}
	if err := store.Migrate(ctx, at(admin, part)); err != nil {
		return err
	}
	for _, q := range []string{
		"alter database " + part + " rename to " + name,
		// Nobody may connect from now on: a copy needs a template without sessions.
		"alter database " + name + " with allow_connections false",
	} {
		if _, err := conn.Exec(ctx, q); err != nil {
			return err
		}
	}
	return nil
}

// prepare sets what a copy does not take over from its template: the settings of a database.
func (s source) prepare(ctx context.Context, conn *pgx.Conn, name string) error {
	if s != movable {
		return nil
	}
	_, err := conn.Exec(ctx, "alter database "+name+" set search_path = "+searchPath)
	return err
}

// schemaHash names the migrations and the clock by their text.
func schemaHash() (string, error) {
	h := sha256.New()
	err := fs.WalkDir(sql.Migrations, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := sql.Migrations.ReadFile(path)
		fmt.Fprintf(h, "%s %d\n%s", path, len(b), b)
		return err
	})
	fmt.Fprint(h, clockSQL)
	return hex.EncodeToString(h.Sum(nil))[:12], err
}
