package store_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/store"
	"github.com/tocsin-oncall/tocsin/pkg/store/storetest"
)

// code is the SQLSTATE of an error, empty for none.
func code(err error) string {
	var p *pgconn.PgError
	if errors.As(err, &p) {
		return p.Code
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// refusal runs an update in a transaction that is taken back, and returns the SQLSTATE that it ended with.
func (s *site) refusal(sql string, args ...any) string {
	s.t.Helper()
	tx, err := s.db.Begin(s.ctx())
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() {
		if err := tx.Rollback(s.ctx()); err != nil && !errors.Is(err, pgx.ErrTxClosed) {
			s.t.Error(err)
		}
	}()
	tag, err := tx.Exec(s.ctx(), sql, args...)
	if err == nil && tag.RowsAffected() != 1 {
		s.t.Errorf("%s touched %d rows", sql, tag.RowsAffected())
	}
	return code(err)
}

// The CHECKs repeat the invariants that the code relies on: a row that can't be is refused, whoever writes it.
func TestImpossibleRowsAreRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	inc := s.incident("k")
	b := s.started(inc, delivery.Page)
	leased := b.Delivery.ID
	free := s.add(inc, delivery.Card, later(time.Hour))
	settled := s.add(inc, delivery.Notice, func(d *store.NewDelivery) {
		d.Dead = &store.Dead{State: delivery.Unreachable, Reason: "nobody_on_call"}
	})
	step := store.NewID()
	s.tx(func(tx *store.Tx) error {
		if err := tx.PutAlerts(t.Context(), inc.ID, []store.Alert{{ID: store.NewID(), IncidentID: inc.ID, Fingerprint: "f", Topic: "t", Criticality: "high", Status: "firing", Title: "t", StartsAt: tx.Now()}}); err != nil {
			return err
		}
		return tx.AddSteps(t.Context(), store.EscalationStep{ID: step, IncidentID: inc.ID, Name: "default"})
	})
	const refused = "23514"
	for _, c := range []struct {
		table string
		id    uuid.UUID
		set   string
		want  string
	}{
		{"delivery", free, "lease_token = gen_random_uuid()", refused},
		{"delivery", free, "lease_until = now()", refused},
		{"delivery", free, "lease_token = gen_random_uuid(), lease_until = now()", ""},
		{"delivery", leased, "lease_token = null", refused},
		{"delivery", leased, "lease_token = null, lease_until = null", refused}, // its attempt is open
		{"delivery", leased, "lease_token = null, lease_until = null, open_attempt = null", ""},
		{"delivery", free, "open_attempt = gen_random_uuid()", refused},
		{"delivery", free, "next_at = null", refused},
		{"delivery", free, "state = 'sent'", refused},
		{"delivery", free, "state = 'sent', settled_at = now()", refused},
		{"delivery", free, "state = 'sent', next_at = null", refused},
		{"delivery", free, "state = 'sent', next_at = null, settled_at = now()", ""},
		{"delivery", leased, "state = 'sent', next_at = null, settled_at = now()", refused},
		{"delivery", settled, "state = 'pending'", refused},
		{"delivery", settled, "settled_at = null", refused},
		{"delivery", settled, "next_at = now()", refused},
		{"delivery", settled, "state = 'pending', settled_at = null, next_at = now()", ""},
		{"delivery", settled, "lease_token = gen_random_uuid(), lease_until = now()", refused},
		{"delivery", free, "applied = desired + 1", refused},
		{"delivery", free, "applied = desired", ""},
		{"delivery", free, "stop_state = 'canceled'", refused},
		{"delivery", free, "stop_reason = 'acknowledged'", refused},
		{"delivery", free, "stop_state = 'canceled', stop_reason = 'acknowledged'", ""},
		{"delivery", free, "state = 'delivered'", refused},
		{"delivery", free, "kind = 'pigeon'", refused},
		{"attempt", b.Attempt.ID, "outcome = 'sent'", refused},
		{"attempt", b.Attempt.ID, "finished_at = now()", refused},
		{"attempt", b.Attempt.ID, "closed_by = 'worker'", refused},
		{"attempt", b.Attempt.ID, "outcome = 'sent', finished_at = now()", refused},
		{"attempt", b.Attempt.ID, "outcome = 'sent', finished_at = now(), closed_by = 'worker'", ""},
		{"attempt", b.Attempt.ID, "outcome = 'delivered', finished_at = now(), closed_by = 'worker'", refused},
		{"attempt", b.Attempt.ID, "outcome = 'sent', finished_at = now(), closed_by = 'chance'", refused},
		{"attempt", b.Attempt.ID, "evidence = 'hearsay'", refused},
		{"attempt", b.Attempt.ID, "late_outcome = 'maybe'", refused},
		{"attempt", b.Attempt.ID, "operation = 'delete'", refused},
		{"incident", inc.ID, "state = 'resolved'", refused},
		{"incident", inc.ID, "resolved_at = now()", refused},
		{"incident", inc.ID, "state = 'resolved', resolved_at = now()", ""},
		{"incident", inc.ID, "state = 'closed'", refused},
		{"incident", inc.ID, "firing = -1", refused},
		{"incident", inc.ID, "resolved = -1", refused},
		{"escalation", step, "state = 'fired'", refused},
		{"escalation", step, "due_at = null", refused},
		{"escalation", step, "state = 'withdrawn', due_at = null", ""},
		{"escalation", step, "state = 'late'", refused},
	} {
		if got := s.refusal("update "+c.table+" set "+c.set+" where id = $1", c.id); got != c.want {
			t.Errorf("%s: set %s ended with %q, not %q", c.table, c.set, got, c.want)
		}
	}
	if got := s.refusal("update alert set status = 'muted'"); got != refused {
		t.Errorf("an alert's status: %q", got)
	}
	for sql, want := range map[string]string{
		"insert into incident (id, key, source, topic, title, state, criticality, opened_at) select gen_random_uuid(), key, source, topic, title, 'acknowledged', criticality, now() from incident":      "23505", // one live incident of a key
		"insert into alert select gen_random_uuid(), incident_id, fingerprint, topic, criticality, status, title from alert":                                                                             "23502", // a start is required, and one row per fingerprint
		"insert into escalation select gen_random_uuid(), incident_id, name, round, step, due_at, state from escalation":                                                                                 "23505", // each step once
		"insert into delivery (id, incident_id, kind, priority, notifier, target, state, next_at, created_at) select gen_random_uuid(), gen_random_uuid(), 'card', 1, 'n', 't', 'pending', now(), now()": "23503",
	} {
		if got := s.refusal(sql); got != want {
			t.Errorf("%s\nended with %q, not %q", sql, got, want)
		}
	}
}

// Every state that a delivery can be in has its place in the table, and dead ones have theirs in the outbox's index.
func TestEveryStateAndKindHasItsPlace(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.add(s.incident("k"), delivery.Card)
	for _, state := range delivery.States {
		s.exec(`update delivery set state = $2, next_at = case when $2 = 'pending' then now() end, settled_at = case when $2 <> 'pending' then now() end where id = $1`, id, string(state))
		var dead []store.DeadDelivery
		s.tx(func(tx *store.Tx) (err error) {
			dead, err = tx.UnannouncedDead(t.Context(), 10)
			return err
		})
		if len(dead) == 1 != state.Dead() {
			t.Errorf("%s: dead is %t, and %d are in the outbox", state, state.Dead(), len(dead))
		}
	}
	for _, k := range delivery.Kinds {
		s.exec("update delivery set kind = $2, priority = $3 where id = $1", id, string(k), k.Priority())
	}
}

func TestMigrateTwiceAndAtOnce(t *testing.T) {
	t.Parallel()
	url := storetest.NewEmpty(t)
	s := open(t, url)
	var schema *store.SchemaError
	if err := s.CheckSchema(t.Context()); !errors.As(err, &schema) || schema.Have != 0 || !strings.Contains(err.Error(), "tocsin migrate") {
		t.Errorf("an empty database: %v", err)
	}
	var calls []*call[struct{}]
	for range 3 {
		calls = append(calls, async(t, func() (struct{}, error) { return struct{}{}, store.Migrate(t.Context(), url) }))
	}
	for _, c := range calls {
		c.wait()
	}
	if err := s.CheckSchema(t.Context()); err != nil {
		t.Errorf("after three migrations at once: %v", err)
	}
	conn := connect(t, url)
	count := func() (n int) {
		t.Helper()
		if err := conn.QueryRow(t.Context(), "select count(*) from goose_db_version").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := count()
	if err := store.Migrate(t.Context(), url); err != nil {
		t.Errorf("once more: %v", err)
	}
	if after := count(); after != before {
		t.Errorf("migrating once more wrote %d rows", after-before)
	}
	all, err := store.Migrations(t.Context(), url)
	if err != nil || len(all) < 2 {
		t.Fatal(all, err)
	}
	for i, m := range all {
		if !m.Applied || i > 0 && m.Version <= all[i-1].Version {
			t.Errorf("migration %d: %s", i, pretty(m))
		}
	}
}

func TestCheckSchemaNamesOlderAndNewer(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	all, err := store.Migrations(t.Context(), s.url)
	if err != nil {
		t.Fatal(err)
	}
	want := all[len(all)-1].Version
	check := func(have int64, says string) {
		t.Helper()
		var schema *store.SchemaError
		err := s.CheckSchema(t.Context())
		if !errors.As(err, &schema) || schema.Have != have || schema.Want != want || !strings.Contains(err.Error(), says) {
			t.Errorf("version %d against %d: %v", have, want, err)
		}
	}
	if err := s.CheckSchema(t.Context()); err != nil {
		t.Error(err)
	}
	s.exec("insert into goose_db_version (version_id, is_applied) values ($1, true)", want+1)
	check(want+1, "start the newer binary")
	s.exec("delete from goose_db_version where version_id >= $1", want)
	check(all[len(all)-2].Version, "run `tocsin migrate --config FILE` first, or start with `serve --migrate`")
	s.exec("drop table goose_db_version")
	check(0, "tocsin migrate")
}

// partitions are the tables in which attempts lie.
func (s *site) partitions() string {
	s.t.Helper()
	return get[string](s, "select string_agg(inhrelid::regclass::text, ' ' order by inhrelid::regclass::text) from pg_inherits where inhparent = 'attempt'::regclass")
}

func TestAttemptPartitions(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	month := func(n int) string {
		t.Helper()
		return get[string](s, "select 'attempt_' || to_char(date_trunc('month', clock_timestamp() at time zone 'UTC') + make_interval(months => $1), 'YYYY_MM')", n)
	}
	want := strings.Join([]string{month(0), month(1), month(2), "attempt_default"}, " ")
	if got := s.partitions(); got != want {
		t.Errorf("a new database has %s, not %s", got, want)
	}
	maintain := func() {
		t.Helper()
		var calls []*call[struct{}]
		for range 3 {
			calls = append(calls, async(t, func() (struct{}, error) { return struct{}{}, s.MaintainPartitions(t.Context()) }))
		}
		for _, c := range calls {
			c.wait()
		}
	}
	maintain()
	if got := s.partitions(); got != want {
		t.Errorf("again, three at once, made %s", got)
	}
	// Two months on. A worker whose clock runs ahead has left an attempt in the third month already: it stays in the
	// default partition, and so do the others of that month.
	ahead := get[uuid.UUID](s, "select uuid_at(date_trunc('month', clock_timestamp()) + interval '3 months 10 days')")
	s.exec(`insert into attempt (id, delivery_id, number, effect, effect_key, revision, operation, address, worker, lease_token, started_at)
		values ($1, $1, 1, 1, 'k', 1, 'create', 'a', 'w', $1, now())`, ahead)
	s.exec("update clock.moved set by = by + (date_trunc('month', clock_timestamp()) + interval '2 months' - clock_timestamp()) + interval '1 day'")
	maintain()
	got := s.partitions()
	for _, p := range []string{month(0), month(2), "attempt_default"} {
		if !strings.Contains(got, p) {
			t.Errorf("%s is not among %s", p, got)
		}
	}
	if strings.Contains(got, month(1)) {
		t.Errorf("the month that has rows in the default partition was made a partition of its own: %s", got)
	}
	if n := get[int](s, "select count(*) from attempt_default where id = $1", ahead); n != 1 {
		t.Error("the attempt is not where it was")
	}
	// Attempts of all times find their place, and are found.
	for _, at := range []string{"clock_timestamp()", "clock_timestamp() + interval '35 days'", "'2001-01-01'", "clock_timestamp() + interval '10 years'"} {
		s.exec(`insert into attempt (id, delivery_id, number, effect, effect_key, revision, operation, address, worker, lease_token, started_at)
			select uuid_at(` + at + `), gen_random_uuid(), 1, 1, 'k', 1, 'create', 'a', 'w', gen_random_uuid(), now()`)
	}
	if n := get[int](s, "select count(*) from attempt"); n != 5 {
		t.Errorf("%d of 5 attempts are found", n)
	}
}

// A reader that stays in its transaction holds up the making of partitions, and must not hold up the worker behind it.
func TestAttemptPartitionsDoNotQueueBeforeTheWorker(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.add(s.incident("k"), delivery.Card)
	tx, err := connect(t, s.url).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "select count(*) from attempt"); err != nil {
		t.Fatal(err)
	}
	s.move(32 * 24 * time.Hour)
	before := s.partitions()
	maintain := async(t, func() (struct{}, error) { return struct{}{}, s.MaintainPartitions(t.Context()) })
	s.blocked(1)
	began := time.Now()
	b := s.begin(alpha, s.take(alpha)) // waits until the partitions have given up
	if d := time.Since(began); d > 3*time.Second {
		t.Errorf("an attempt could not be begun for %s", d)
	}
	s.finish(alpha, b, sent)
	maintain.wait()
	if got := s.partitions(); got != before {
		t.Errorf("beside a reader of all attempts it made %s", got)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.MaintainPartitions(t.Context()); err != nil {
		t.Error(err)
	}
	if got := s.partitions(); got == before {
		t.Error("once the reader is gone it makes none")
	}
}

// uuid_at is not above any v7 id of its instant, and above all of earlier ones: the bounds of partitions.
func TestUUIDAtBoundsIDs(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	at := func(instant time.Time) uuid.UUID {
		t.Helper()
		return get[uuid.UUID](s, "select uuid_at($1)", instant)
	}
	less := func(a, b uuid.UUID) bool { return get[bool](s, "select $1::uuid < $2::uuid", a, b) }
	for range 20 {
		id := store.NewID()
		sec, nsec := id.Time().UnixTime()
		made := time.Unix(sec, nsec).Truncate(time.Millisecond)
		for _, sub := range []time.Duration{0, 300 * time.Microsecond, 500 * time.Microsecond, 999 * time.Microsecond} {
			if lower := at(made.Add(sub)); less(id, lower) {
				t.Errorf("%s was made at %s, and %s, the lower bound of %s, is above it", id, made, lower, made.Add(sub))
			}
		}
		if next := at(made.Add(time.Millisecond)); !less(id, next) {
			t.Errorf("%s was made at %s, and is not below %s of the next millisecond", id, made, next)
		}
	}
	for instant, want := range map[time.Time]string{
		time.Unix(0, 0): "00000000-0000-7000-8000-000000000000",
		time.Date(2026, 8, 1, 0, 0, 0, 0, time.UTC): "019fba9e-d800-7000-8000-000000000000", // 1785542400 s
	} {
		if got := at(instant).String(); got != want {
			t.Errorf("%s begins at %s, not %s", instant, got, want)
		}
	}
}
