package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// clockSQL puts an own now() and clock_timestamp() into a schema that the search path names before pg_catalog. Both
// add the offset of a one-row table, so that moving it moves every session's time, from its next statement on.
// now() is stable like the real one, so an index can still use it; clock_timestamp() is volatile and sees a move at
// once. PL/pgSQL keeps the plan of the inner query, which makes a call cheap.
const clockSQL = `
create schema clock;
create table clock.moved (one boolean primary key default true check (one), by interval not null);
insert into clock.moved (by) values (interval '0');
create function clock.now() returns timestamptz language plpgsql stable as
  'begin return pg_catalog.now() + (select m.by from clock.moved m); end';
create function clock.clock_timestamp() returns timestamptz language plpgsql volatile as
  'begin return pg_catalog.clock_timestamp() + (select m.by from clock.moved m); end';
grant usage on schema clock to public;
grant select on clock.moved to public;
`

func installClock(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, clockSQL)
	return err
}

// MoveClock moves the time of a database made by [New] by d, forward or back, on top of earlier moves. Every session
// sees it from its next statement on, as do column defaults and views. CURRENT_TIMESTAMP and the like are SQL of their
// own and stay with the real clock; tocsin's SQL does not use them.
func MoveClock(t testing.TB, url string, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), cloneLimit)
	defer cancel()
	err := with(ctx, url, func(conn *pgx.Conn) error {
		tag, err := conn.Exec(ctx, "update clock.moved set by = by + make_interval(secs => $1)", d.Seconds())
		if err == nil && tag.RowsAffected() != 1 {
			err = fmt.Errorf("%d rows in clock.moved", tag.RowsAffected())
		}
		return err
	})
	if err != nil {
		t.Fatalf("storetest: move the clock by %s: %v", d, err)
	}
}
