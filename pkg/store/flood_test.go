package store_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tocsin-oncall/tocsin/pkg/store"
	"github.com/tocsin-oncall/tocsin/pkg/store/storetest"
)

// What is read of an incident with each further alert does not grow with the alerts that it has: two hundred are shown, and
// its criticality takes as many steps as there are words for it.
func TestAFloodedIncidentIsReadInPart(t *testing.T) {
	t.Parallel()
	s := siteAt(t, storetest.NewPlain(t))
	inc := s.incident("flooded")
	s.exec("vacuum analyze")
	s.exec(`insert into alert (id, incident_id, fingerprint, topic, criticality, status, title, starts_at, first_seen_at, last_seen_at)
		select gen_random_uuid(), $1, 'f' || i, 't', case when i % 3 = 0 then 'high' else 'low' end, case when i % 2 = 0 then 'firing' else 'resolved' end, 't',
			now() + make_interval(secs => i), now(), now() from generate_series(1, 20000) i`, inc.ID)
	s.exec(`insert into alert (id, incident_id, fingerprint, topic, criticality, status, title, starts_at, first_seen_at, last_seen_at)
		select gen_random_uuid(), $1, 'f' || i, 't', 'critical', 'firing', 't', now(), now(), now() from generate_series(1, 20000) i`, s.incident("another").ID)
	s.tx(func(tx *store.Tx) error {
		inc.Firing = 20_000
		shown, err := tx.ShownAlerts(t.Context(), inc, 200)
		if err != nil || len(shown) != 200 || shown[0].Fingerprint != "f20000" || shown[199].Status != "firing" {
			t.Errorf("%d alerts, %v", len(shown), err)
		}
		fires, err := tx.FiringCriticalities(t.Context(), inc.ID)
		if err != nil || fmt.Sprint(fires) != "[high low]" {
			t.Errorf("there fires %v, %v", fires, err)
		}
		if same, err := tx.AlertsByFingerprint(t.Context(), inc.ID, []string{"f7"}); err != nil || len(same) != 1 {
			t.Errorf("%d of one fingerprint, %v", len(same), err)
		}
		none, err := tx.FiringCriticalities(t.Context(), store.NewID())
		if err != nil || len(none) != 0 {
			t.Errorf("of no incident fires %v, %v", none, err)
		}
		return nil
	})
	conn := s.poolConn()
	all := s.statements(conn)
	for _, analyse := range []string{"select 1", "analyze alert"} {
		s.exec(analyse)
		for name, c := range map[string]struct {
			args []string
			most int
		}{
			"AlertsOfFlood": {[]string{"'" + inc.ID.String() + "'", "200"}, 400}, "AlertsByFingerprints": {[]string{"'{" + inc.ID.String() + "}'", "'{f7}'"}, 2},
			"FiringCriticalities": {[]string{"'" + inc.ID.String() + "'"}, 3},
		} {
			p, ok := all[name]
			if !ok {
				t.Fatalf("%s is not prepared", name)
			}
			if read := s.reads(conn, p, "alert", c.args...); read == 0 || read > c.most {
				t.Errorf("%s after %q reads %d alerts, %d are enough", name, analyse, read, c.most)
			}
		}
	}
}

// reads is how many rows of a table the execution of a prepared statement fetches.
func (s *site) reads(conn *pgxpool.Conn, p prepared, table string, args ...string) (rows int) {
	s.t.Helper()
	tx, err := conn.Begin(s.ctx())
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(s.ctx()) }()
	fetched := func() (n int) { // by this connection since its statistics were handed on last
		if err := tx.QueryRow(s.ctx(), "select coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) from pg_stat_xact_user_tables where relname = $1", table).Scan(&n); err != nil {
			s.t.Fatal(err)
		}
		return n
	}
	before := fetched()
	if _, err := tx.Exec(s.ctx(), fmt.Sprintf("execute %q(%s)", p.name, strings.Join(args, ", "))); err != nil {
		s.t.Fatal(err)
	}
	return fetched() - before
}

func (s *site) poolConn() *pgxpool.Conn {
	s.t.Helper()
	conn, err := s.PoolConn(s.ctx())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(conn.Release)
	return conn
}
