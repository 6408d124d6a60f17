// Package storetest gives each test a Postgres database of its own: migrated, empty, and with a clock that the test
// can move.
//
// The server is the one that TOCSIN_TEST_DATABASE_URL names (a superuser's address; `make test` starts one for all
// packages), otherwise one that the first test of the process starts and that ends with the process. A template is
// migrated once per server and schema; a test's database is a copy of its files, made in some 20 ms.
package storetest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tocsin-oncall/tocsin/pkg/store/pglocal"
)

// Variable names the environment variable that holds the address of a shared server.
const Variable = "TOCSIN_TEST_DATABASE_URL"

// How long the steps may take; a slow one fails the test by name.
const (
	templateLimit = 2 * time.Minute
	cloneLimit    = time.Minute
)

// New returns the address of a fresh, migrated database, which is dropped when the test ends. Its clock can be moved
// by [MoveClock]: now() and clock_timestamp() are wrappers, which cost some microseconds a call and hide the clock
// from the planner's estimates; where that matters, take [NewPlain].
func New(t testing.TB) string {
	t.Helper()
	return clone(t, movable)
}

// NewPlain is [New] without a movable clock: the very schema of production, for plans and measurements.
func NewPlain(t testing.TB) string {
	t.Helper()
	return clone(t, plain)
}

// NewEmpty returns the address of a fresh database without any schema: for tests of the migrations themselves.
func NewEmpty(t testing.TB) string {
	t.Helper()
	return clone(t, empty)
}

// Private starts a server for one test alone, fast and on an own port, which it may freeze, kill or misconfigure. It
// has no tocsin database yet; see [pglocal.Server.CreateDatabase]. Settings may be nil.
func Private(t testing.TB, settings map[string]string) *pglocal.Server {
	t.Helper()
	dir, err := pglocal.Scratch()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s, err := pglocal.Start(t.Context(), pglocal.Options{Dir: dir, Fast: true, Settings: settings})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

// Main runs a package's tests and then removes the server that they started, if any. Without it the server ends all
// the same, and its folder is removed by a later run. Use: func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }
func Main(m *testing.M) int {
	code := m.Run()
	own.mu.Lock()
	defer own.mu.Unlock()
	if own.server != nil {
		own.server.Stop()
		if err := os.RemoveAll(own.dir); err != nil {
			fmt.Fprintln(os.Stderr, "storetest:", err)
		}
	}
	return code
}

// own is the server of this process, started by the first test that needs one.
var own struct {
	mu     sync.Mutex
	server *pglocal.Server
	dir    string
	err    error
}

// adminURL is the address of the server's maintenance database.
func adminURL() (string, error) {
	if u := os.Getenv(Variable); u != "" {
		return u, nil
	}
	own.mu.Lock()
	defer own.mu.Unlock()
	if own.server == nil && own.err == nil {
		own.server, own.dir, own.err = startOwn()
	}
	if own.err != nil {
		return "", own.err
	}
	return own.server.URL("postgres"), nil
}

func startOwn() (*pglocal.Server, string, error) {
	dir, err := pglocal.Scratch()
	if err != nil {
		return nil, "", err
	}
	// Not the context of the test that happens to come first: the server outlives it.
	s, err := pglocal.Start(context.Background(), pglocal.Options{Dir: dir, Fast: true, Progress: os.Stderr})
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, "", err
	}
	return s, dir, nil
}

// clone makes a test's database from a template and has it dropped at the end.
func clone(t testing.TB, from source) string {
	t.Helper()
	admin, err := adminURL()
	if err != nil {
		t.Fatal(err)
	}
	template, err := from.template(t.Context(), admin)
	if err != nil {
		t.Fatal(err)
	}
	name := databaseName(t.Name())
	ctx, cancel := context.WithTimeoutCause(t.Context(), cloneLimit, fmt.Errorf("it took longer than %s", cloneLimit))
	defer cancel()
	err = with(ctx, admin, func(conn *pgx.Conn) error {
		create := "create database " + name + " template " + template
		if version(conn) >= 15 {
			create += " strategy file_copy" // 14 knows nothing else
		}
		if _, err := conn.Exec(ctx, create); err != nil {
			return err
		}
		return from.prepare(ctx, conn, name)
	})
	if err != nil {
		t.Fatalf("storetest: make database %s: %v", name, err)
	}
	t.Cleanup(func() { drop(t, admin, name) })
	return at(admin, name)
}

// drop removes a test's database, sessions and all. TOCSIN_TEST_KEEP=1 keeps that of a failed test, for a look.
func drop(t testing.TB, admin, name string) {
	if t.Failed() && os.Getenv("TOCSIN_TEST_KEEP") != "" {
		t.Logf("storetest: kept %s", at(admin, name))
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), cloneLimit)
	defer cancel()
	if err := with(ctx, admin, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "drop database if exists "+name+" with (force)")
		return err
	}); err != nil {
		t.Errorf("storetest: drop database %s: %v", name, err)
	}
}

// with runs f on a connection of its own.
func with(ctx context.Context, url string, f func(*pgx.Conn) error) error {
	conn, err := connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return f(conn)
}

// connect waits a little where the server has no place left: parallel packages share it.
func connect(ctx context.Context, url string) (*pgx.Conn, error) {
	for {
		conn, err := pgx.Connect(ctx, url)
		var pg *pgconn.PgError
		if err == nil || !errors.As(err, &pg) || pg.Code != "53300" { // too_many_connections
			return conn, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// version is the server's major version.
func version(conn *pgx.Conn) int {
	major := 0
	_, _ = fmt.Sscanf(conn.PgConn().ParameterStatus("server_version"), "%d", &major)
	return major
}

// at is the address of another database on the same server.
func at(admin, name string) string {
	u, err := url.Parse(admin)
	if err != nil {
		panic(fmt.Sprintf("storetest: %s is no URL: %v", Variable, err)) // connecting to it has worked already
	}
	u.Path = "/" + name
	return u.String()
}

var notName = regexp.MustCompile(`[^a-z0-9]+`)

// databaseName tells whose database it is, within Postgres' 63 bytes.
func databaseName(test string) string {
	b := make([]byte, 6)
	rand.Read(b)
	s := notName.ReplaceAllString(strings.ToLower(test), "_")
	return "t_" + s[:min(len(s), 40)] + "_" + hex.EncodeToString(b)
}
