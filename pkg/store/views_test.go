package store_test

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tocsin-oncall/tocsin/pkg/oncall"
	"github.com/tocsin-oncall/tocsin/pkg/store"
	"github.com/tocsin-oncall/tocsin/pkg/store/storetest"
)

// publicViews are the columns that other programs are written against.
var publicViews = map[string]string{
	"attempt_history": "delivery_id incident_id kind notifier target attempt_no effect effect_key revision operation address outcome evidence reason error provider_code http_status bytes_written dns_ms connect_ms tls_ms first_byte_ms duration_ms worker started_at finished_at closed_by late_outcome late_at phase form answer reference late_reference",
	"delivery_board":  "delivery_id incident_id title kind notifier target state reason sentence effect attempts created_at next_at settled_at in_flight",
	"dead_letters":    "delivery_id incident_id kind notifier target state reason sentence last_error attempts in_doubt died_at announced_at",
	"card_state":      "incident_id delivery_id notifier state desired_revision applied_revision reference",
	"oncall_now":      "schedule user_id user_name layer since until",
}

// viewRows is one incident with a sent card, an open page attempt and a dead thread in doubt.
const viewRows = `
insert into incident (id, key, source, topic, title, state, criticality, opened_at) values
  ('00000000-0000-7000-8000-000000000001', 'k', 'native', 'alert.a.b.c', 'The title', 'open', 'critical', now());
insert into delivery (id, incident_id, kind, priority, notifier, target, state, reason, sentence, next_at, lease_token, lease_until, open_attempt, desired, applied, reference, attempts, doubt, created_at, settled_at) values
  ('00000000-0000-7000-8000-0000000000c1', '00000000-0000-7000-8000-000000000001', 'card', 1, 'ops', 'channel', 'sent', '', '', null, null, null, null, 3, 2, '{"channel": "C1", "ts": "1.1"}', 1, null, now(), now()),
  ('00000000-0000-7000-8000-0000000000c2', '00000000-0000-7000-8000-000000000001', 'page', 0, 'dm', 'user:ana', 'pending', '', '', now(), gen_random_uuid(), now(), '00000000-0000-7000-8000-0000000000a3', 1, 0, null, 1, null, now(), null),
  ('00000000-0000-7000-8000-0000000000c3', '00000000-0000-7000-8000-000000000001', 'thread', 2, 'ops', 'channel', 'exhausted', 'retries_used_up', 'It is over.', null, null, null, null, 4, 1, null, 2, '{"effect": 1}', now(), now());
insert into attempt (id, delivery_id, number, effect, effect_key, revision, operation, address, worker, lease_token, started_at, finished_at, outcome, evidence, closed_by, reason, error, late_outcome, late_at) values
  ('00000000-0000-7000-8000-0000000000a1', '00000000-0000-7000-8000-0000000000c3', 1, 1, 'c3:1', 1, 'reply', 'C1', 'r1', gen_random_uuid(), now(), now(), 'failed', 'not_sent', 'worker', 'refused', 'first error', null, null),
  ('00000000-0000-7000-8000-0000000000a2', '00000000-0000-7000-8000-0000000000c3', 2, 1, 'c3:1', 1, 'reply', 'C1', 'r2', gen_random_uuid(), now(), now(), 'unknown', 'possibly_sent', 'takeover', 'takeover', 'second error', 'sent', now()),
  ('00000000-0000-7000-8000-0000000000a3', '00000000-0000-7000-8000-0000000000c2', 1, 1, 'c2:1', 1, 'create', 'U1', 'r1', gen_random_uuid(), now(), null, null, null, null, '', '', null, null);
`

func viewsConn(t *testing.T) (*pgx.Conn, string) {
	t.Helper()
	url := storetest.New(t)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	if _, err := conn.Exec(t.Context(), viewRows); err != nil {
		t.Fatal(err)
	}
	return conn, url
}

// lines are the rows of a query of one text column.
func lines(t *testing.T, conn *pgx.Conn, query string, args ...any) []string {
	t.Helper()
	rows, err := conn.Query(t.Context(), query, args...)
	if err != nil {
		t.Fatal(err)
	}
	out, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestViewsHaveTheirPublicColumns(t *testing.T) {
	t.Parallel()
	conn, _ := viewsConn(t)
	for view, want := range publicViews {
		got := lines(t, conn, "select column_name::text from information_schema.columns where table_name = $1 order by ordinal_position", view)
		if strings.Join(got, " ") != want {
			t.Errorf("%s has the columns\n%s\nwant\n%s", view, strings.Join(got, " "), want)
		}
	}
}

func TestViewsTellWhatTheRowsSay(t *testing.T) {
	t.Parallel()
	conn, _ := viewsConn(t)
	for query, want := range map[string][]string{
		"select concat_ws('|', right(delivery_id::text, 2), kind, notifier, attempt_no, outcome, evidence, reason, worker, closed_by, late_outcome) from attempt_history order by delivery_id, attempt_no": {
			"c2|page|dm|1||r1", "c3|thread|ops|1|failed|not_sent|refused|r1|worker", "c3|thread|ops|2|unknown|possibly_sent|takeover|r2|takeover|sent",
		},
		"select concat_ws('|', right(delivery_id::text, 2), title, state, attempts, in_flight, next_at is not null) from delivery_board order by delivery_id": {
			"c1|The title|sent|1|f|f", "c2|The title|pending|1|t|t", "c3|The title|exhausted|2|f|f",
		},
		"select concat_ws('|', right(delivery_id::text, 2), state, reason, sentence, last_error, attempts, in_doubt, died_at is not null, announced_at is null) from dead_letters": {
			"c3|exhausted|retries_used_up|It is over.|second error|2|t|t|t",
		},
		"select concat_ws('|', right(delivery_id::text, 2), notifier, state, desired_revision, applied_revision, reference->>'ts') from card_state": {
			"c1|ops|sent|3|2|1.1",
		},
	} {
		if got := lines(t, conn, query); !slices.Equal(got, want) {
			t.Errorf("%s\n%q\nwant\n%q", query, got, want)
		}
	}
}

// Who is on call changes by the database's clock, without a write at that moment.
func TestOnCallNowFollowsTheClock(t *testing.T) {
	t.Parallel()
	conn, dbURL := viewsConn(t)
	s, err := store.Open(t.Context(), dbURL, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	now, err := s.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	handOff := now.Add(time.Hour)
	shifts := []store.Shift{
		{Schedule: "primary", Layer: "weekly", UserID: "ana", UserName: "Ana Torres", Since: now.Add(-time.Hour), Until: &handOff},
		{Schedule: "primary", Layer: "weekly", UserID: "bo", UserName: "Bo Lind", Since: handOff},
	}
	list := func(time.Time, oncall.Overlay) []store.Shift { return shifts }
	written := func() []string { return lines(t, conn, "select xmin::text from oncall_shift order by user_id") }
	onCall := func() []string {
		return lines(t, conn, "select concat_ws('|', schedule, user_id, user_name, layer) from oncall_now")
	}
	if err := s.PutShifts(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	first := written()
	if got := onCall(); !slices.Equal(got, []string{"primary|ana|Ana Torres|weekly"}) {
		t.Errorf("now: %q", got)
	}
	if err := s.PutShifts(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	if again := written(); !slices.Equal(first, again) {
		t.Errorf("the same shifts were written again: %v, %v", first, again)
	}
	storetest.MoveClock(t, dbURL, 2*time.Hour)
	if got := onCall(); !slices.Equal(got, []string{"primary|bo|Bo Lind|weekly"}) {
		t.Errorf("after the hand-off: %q", got)
	}
	shifts = nil
	if err := s.PutShifts(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	if got := onCall(); len(got) != 0 {
		t.Errorf("with an empty file: %q", got)
	}
}

func TestReaderSeesTheViewsOnly(t *testing.T) {
	t.Parallel()
	conn, _ := viewsConn(t)
	if _, err := conn.Exec(t.Context(), "set role tocsin_reader"); err != nil {
		t.Fatal(err)
	}
	for view := range publicViews {
		if _, err := conn.Exec(t.Context(), "select * from "+view); err != nil {
			t.Errorf("the reader can't read %s: %v", view, err)
		}
		if _, err := conn.Exec(t.Context(), "delete from "+view); err == nil {
			t.Errorf("the reader can delete from %s", view)
		}
	}
	for _, table := range []string{"delivery", "attempt", "token", "link_code", "incident", "audit", "oncall_shift"} {
		if _, err := conn.Exec(t.Context(), "select * from "+table); err == nil {
			t.Errorf("the reader can read %s", table)
		}
	}
}

// Several databases of one fresh server are migrated at the same moment, one of them by a role that may not make
// roles: all of them get the views.
func TestReaderRoleIsMadeWherePermitted(t *testing.T) {
	t.Parallel()
	server := storetest.Private(t, nil)
	conn, err := pgx.Connect(t.Context(), server.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), "create role plain login password 'plain'"); err != nil {
		t.Fatal(err)
	}
	for _, db := range []string{"d0", "d1", "d2", "d3"} {
		if err := server.CreateDatabase(t.Context(), db); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := conn.Exec(t.Context(), "alter database d0 owner to plain"); err != nil {
		t.Fatal(err)
	}
	limited, err := url.Parse(server.URL("d0"))
	if err != nil {
		t.Fatal(err)
	}
	limited.User = url.UserPassword("plain", "plain")
	if err := store.Migrate(t.Context(), limited.String()); err != nil {
		t.Errorf("by a role that may not make roles: %v", err)
	}
	failed := make(chan error, 3)
	for _, db := range []string{"d1", "d2", "d3"} {
		go func() { failed <- store.Migrate(t.Context(), server.URL(db)) }()
	}
	for range 3 {
		if err := <-failed; err != nil {
			t.Errorf("migrated at once: %v", err)
		}
	}
	if got := lines(t, conn, "select rolname::text from pg_roles where rolname = 'tocsin_reader' and not rolcanlogin"); len(got) != 1 {
		t.Errorf("the role is %q", got)
	}
}
