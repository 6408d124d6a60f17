package storetest_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tocsin-oncall/tocsin/pkg/store/storetest"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

func get[T any](t *testing.T, conn *pgx.Conn, query string, args ...any) T {
	t.Helper()
	var v T
	if err := conn.QueryRow(t.Context(), query, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return v
}

func run(t *testing.T, conn *pgx.Conn, query string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), query); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

func TestEachTestHasADatabaseOfItsOwn(t *testing.T) {
	t.Parallel()
	a, b := connect(t, storetest.New(t)), connect(t, storetest.New(t))
	run(t, a, "create table mine (x int)")
	if get[bool](t, b, "select to_regclass('mine') is not null") {
		t.Error("a table of one test's database is in another's")
	}
	for _, conn := range []*pgx.Conn{a, b, connect(t, storetest.NewPlain(t))} {
		if !get[bool](t, conn, "select to_regclass('delivery') is not null") {
			t.Error("the database is not migrated")
		}
	}
	if n := get[int](t, connect(t, storetest.NewEmpty(t)), "select count(*)::int from pg_tables where schemaname = 'public'"); n != 0 {
		t.Errorf("an empty database has %d tables", n)
	}
}

func TestDatabaseIsDroppedWithTheTest(t *testing.T) {
	t.Parallel()
	var url string
	t.Run("inner", func(t *testing.T) {
		url = storetest.New(t)
		connect(t, url) // an open session does not keep it
	})
	conn, err := pgx.Connect(t.Context(), url)
	if err == nil {
		conn.Close(t.Context())
		t.Fatal("the database is still there")
	}
	if !strings.Contains(err.Error(), "does not exist") {
		t.Error(err)
	}
}

func TestMovedClock(t *testing.T) {
	t.Parallel()
	url := storetest.New(t)
	conn := connect(t, url) // open before the move
	run(t, conn, "create table due (id int generated always as identity, at timestamptz not null default now())")
	run(t, conn, "create view seen as select now() as at")
	offset := func(clock string) time.Duration {
		t.Helper()
		secs := get[float64](t, conn, "select extract(epoch from "+clock+" - pg_catalog.clock_timestamp())::float8")
		return time.Duration(secs * float64(time.Second)).Round(time.Minute)
	}
	total := time.Duration(0)
	for _, d := range []time.Duration{0, 36 * time.Hour, -48 * time.Hour} {
		storetest.MoveClock(t, url, d)
		total += d
		for _, clock := range []string{"now()", "clock_timestamp()", "(select at from seen)"} {
			if got := offset(clock); got != total {
				t.Errorf("after moves of %s in all, %s is moved by %s", total, clock, got)
			}
		}
		id := get[int](t, conn, "insert into due default values returning id")
		secs := get[float64](t, conn, "select extract(epoch from at - pg_catalog.clock_timestamp())::float8 from due where id = $1", id)
		if got := time.Duration(secs * float64(time.Second)).Round(time.Minute); got != total {
			t.Errorf("after moves of %s in all, a column default is moved by %s", total, got)
		}
	}
}

// A claim compares with now() because an index can use that; the movable one must not take this away.
func TestMovedClockIsAnIndexCondition(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{"movable": storetest.New(t), "plain": storetest.NewPlain(t)} {
		conn := connect(t, url)
		run(t, conn, "create table due (at timestamptz primary key)")
		run(t, conn, "insert into due select now() + make_interval(secs => n) from generate_series(-20, 20000) n")
		run(t, conn, "analyze due")
		run(t, conn, "set enable_seqscan = off")
		rows, err := conn.Query(t.Context(), "explain select * from due where at <= now()")
		if err != nil {
			t.Fatal(err)
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		if plan := strings.Join(lines, "\n"); !strings.Contains(plan, "Index Cond: (at <=") {
			t.Errorf("%s: now() is no index condition:\n%s", name, plan)
		}
	}
}

func TestPrivateServerIsApart(t *testing.T) {
	t.Parallel()
	s := storetest.Private(t, map[string]string{"lock_timeout": "7s"})
	conn := connect(t, s.URL("postgres"))
	if got := get[string](t, conn, "show lock_timeout"); got != "7s" {
		t.Errorf("lock_timeout is %s", got)
	}
	if get[int](t, conn, "select count(*)::int from pg_database where datname like 'tocsin%'") != 0 {
		t.Error("a private server has databases of others")
	}
}
