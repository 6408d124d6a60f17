package deploy_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tocsin-oncall/tocsin/pkg/store/storetest"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

// The story that is in the database when the handbook's queries run: an incident whose card was sent twice, because its
// replica was frozen in the call and answered late; a page that went out, was acknowledged, and one that died in doubt;
// a webhook's event sent again by a person; and a card that shows something old.
var (
	incidentID = uuid.MustParse("01b00000-0000-7000-8000-000000000001")
	frozen     = "tocsin-1-1-frozen"
	healthy    = "tocsin-2-1-healthy"
)

func story(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	run := func(sql string, args ...any) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
			t.Fatalf("%v\n%s", err, sql)
		}
	}
	run(`insert into incident (id, key, source, topic, title, state, criticality, count, firing, revision, sequence, opened_at, acknowledged_at, acknowledged_by)
		values ($1, 'disk', 'alertmanager', 'alert.disk.critical.db', 'Disk of db-1 is full', 'acknowledged', 'critical', 3, 1, 3, 2, now() - interval '10 min', now() - interval '8 min', 'Ana Torres')`, incidentID)
	run(`insert into timeline (incident_id, sequence, at, actor, type, text) values ($1, 1, now() - interval '10 min', 'source:alertmanager', 'opened', 'Opened'),
		($1, 2, now() - interval '8 min', 'user:ana', 'acknowledged', 'Acknowledged by Ana Torres')`, incidentID)
	run(`insert into escalation (id, incident_id, name, round, step, due_at, state, reason, fired_at) values
		(gen_random_uuid(), $1, 'default', 1, 0, null, 'fired', '', now() - interval '10 min'), (gen_random_uuid(), $1, 'default', 1, -1, null, 'withdrawn', 'acknowledged', null)`, incidentID)
	run(`insert into oncall_shift values ('primary', 'weekly', 'ana', 'Ana Torres', now() - interval '1 day', now() + interval '1 day')`)
	run(`insert into replica values ($1, now() - interval '1 hour', now(), 'abc', '{ops-slack}', 'v1')`, healthy)
	run(`insert into audit (id, at, actor, action, object) values (gen_random_uuid(), now(), 'user:ana', 'acknowledge', 'incident:' || $1::text)`, incidentID)
	type made struct {
		kind, notifier, target, state, reason, doubt string
		effect, desired, applied                     int
	}
	ids := map[string]uuid.UUID{}
	for i, d := range []made{
		{"card", "ops-slack", "channel", "sent", "edit_failed", "", 1, 3, 2},
		{"page", "slack-dm", "schedule:primary", "sent", "", "", 1, 3, 3},
		{"page", "telegram-dm", "schedule:primary", "exhausted", "retries_used_up", `{"effect": 1}`, 1, 1, 0},
		{"event", "audit", "url", "sent", "", "", 2, 1, 1},
	} {
		id := uuid.MustParse(fmt.Sprintf("01b00000-0000-7000-8000-0000000000a%d", i))
		ids[d.notifier] = id
		run(`insert into delivery (id, incident_id, kind, priority, notifier, target, state, reason, effect, desired, applied, doubt, attempts, created_at, settled_at, announced_at)
			values ($1, $2, $3, 1, $4, $5, $6, $7, $8, $9, $10, nullif($11, '')::jsonb, 2, now() - interval '10 min', now() - interval '7 min', now())`,
			id, incidentID, d.kind, d.notifier, d.target, d.state, d.reason, d.effect, d.desired, d.applied, d.doubt)
	}
	run(`insert into decision (id, delivery_id, at, actor, action, reason, from_state, effect) values (gen_random_uuid(), $1, now(), 'token:ops', 'send_again', 'mended', 'rejected', 1)`, ids["audit"])
	for i, a := range []struct {
		notifier                                            string
		number, effect                                      int
		worker, outcome, evidence, closedBy, reason, errors string
		late                                                string
	}{
		{"ops-slack", 1, 1, frozen, "unknown", "possibly_sent", "takeover", "takeover", "the worker lost its lease", "sent"},
		{"ops-slack", 2, 1, healthy, "sent", "answered", "worker", "", "", ""},
		{"slack-dm", 1, 1, healthy, "sent", "answered", "worker", "", "", ""},
		{"telegram-dm", 1, 1, healthy, "failed", "not_sent", "worker", "refused", "connection refused", ""},
		{"telegram-dm", 2, 1, healthy, "unknown", "possibly_sent", "worker", "timeout", "send timed out after 30s", ""},
		{"audit", 1, 1, healthy, "failed", "answered", "worker", "destination:http_404", "404", ""},
		{"audit", 2, 2, healthy, "sent", "answered", "worker", "", "", ""},
	} {
		start := time.Duration(i)*10*time.Second - 590*time.Second
		run(`insert into attempt (id, delivery_id, number, effect, effect_key, revision, operation, address, worker, lease_token, started_at, finished_at,
				outcome, evidence, closed_by, reason, error, connect_ms, duration_ms, late_outcome, late_at)
			values (gen_random_uuid(), $1, $2, $3, $12, 1, 'create', 'C0', $4, gen_random_uuid(), now() + $5::interval, now() + $5::interval + interval '1 s',
				$6, $7, $8, $9, $10, 3.5, 1000, nullif($11::text, ''), case when $11::text <> '' then now() end)`,
			ids[a.notifier], a.number, a.effect, a.worker, start, a.outcome, a.evidence, a.closedBy, a.reason, a.errors, a.late, fmt.Sprintf("%s:%d", ids[a.notifier], a.effect))
	}
}

// ask runs one query as tocsin_reader, or as the owner where the page says so, and gives its rows as text.
func ask(t *testing.T, conn *pgx.Conn, sql string) ([]string, error) {
	t.Helper()
	sql = strings.NewReplacer(":'incident'", "'"+incidentID.String()+"'", ":'worker'", "'"+frozen+"'").Replace(sql)
	var out []string
	err := pgx.BeginTxFunc(t.Context(), conn, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if !strings.HasPrefix(sql, "-- owner\n") {
			if _, err := tx.Exec(t.Context(), "set local role tocsin_reader"); err != nil {
				return err
			}
		}
		rows, err := tx.Query(t.Context(), sql)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			values, err := rows.Values()
			if err != nil {
				return err
			}
			out = append(out, fmt.Sprintln(values...))
		}
		return rows.Err()
	})
	return out, err
}

func storyDatabase(t *testing.T) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), storetest.NewPlain(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	story(t, conn)
	return conn
}

// Each query of the handbook and of the README can be run, with the rights that it is said to need, and finds what it is
// there to find.
func TestQueriesOfTheHandbookFindTheStory(t *testing.T) {
	t.Parallel()
	conn := storyDatabase(t)
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	tried := map[string]int{}
	for name, text := range map[string]string{"incident-review.md": page(t, "incident-review.md"), "README.md": string(readme)} {
		for _, b := range blocks(name, text) {
			if b.language != "sql" {
				continue
			}
			tried[name]++
			rows, err := ask(t, conn, b.text)
			switch {
			case err != nil:
				t.Errorf("%s:%d: %v\n%s", name, b.line, err, b.text)
			case len(rows) == 0:
				t.Errorf("%s:%d finds nothing of the story\n%s", name, b.line, b.text)
			}
		}
	}
	if tried["incident-review.md"] < 15 || tried["README.md"] < 3 {
		t.Errorf("only %v queries found", tried)
	}
	for _, name := range []string{"watching.md", "postgres.md", "alertmanager.md", "decisions.md"} {
		for _, c := range code(page(t, name)) {
			if !strings.HasPrefix(c, "select ") {
				continue
			}
			tried[name]++
			if _, err := ask(t, conn, c); err != nil {
				t.Errorf("%s: %v\n%s", name, err, c)
			}
		}
	}
	if tried["watching.md"] < 4 {
		t.Errorf("only %v queries found in prose", tried)
	}
}

// The answers that matter at a review are the right ones, not only some.
func TestQueriesOfTheHandbookGiveTheRightAnswers(t *testing.T) {
	t.Parallel()
	conn := storyDatabase(t)
	text := page(t, "incident-review.md")
	under := func(heading string) string {
		t.Helper()
		_, rest, ok := strings.Cut(text, "\n## "+heading+"\n")
		if !ok {
			t.Fatalf("no heading %q", heading)
		}
		rest, _, _ = strings.Cut(rest, "\n## ")
		return regexp.MustCompile("(?s)```sql\n(.*?)```").FindStringSubmatch(rest)[1]
	}
	for _, c := range []struct {
		heading string
		rows    int
		first   string // words of the first row
		never   string
	}{
		{"Why are there two messages", 2, "arrived; the answer came " + frozen, "audit"},
		{"What is in doubt", 1, "telegram-dm", "ops-slack"}, // the card's doubt is over: it was sent, twice
		{"How long did each page take", 2, "telegram-dm exhausted", ""},
		{"What died, and why", 1, "exhausted", "rejected"},
		{"What did one replica do", 1, "takeover", healthy},
		{"Which cards show something old", 1, "edit_failed", ""},
	} {
		rows, err := ask(t, conn, under(c.heading))
		if err != nil {
			t.Errorf("%s: %v", c.heading, err)
			continue
		}
		all := strings.Join(rows, "\n")
		if len(rows) != c.rows || c.never != "" && strings.Contains(all, c.never) {
			t.Errorf("%s: %d rows, want %d\n%s", c.heading, len(rows), c.rows, all)
		}
		for _, word := range strings.Fields(c.first) {
			if !strings.Contains(rows[0], word) {
				t.Errorf("%s: the first row lacks %q\n%s", c.heading, word, all)
			}
		}
	}
}

// Each way in which a second message can come about is told by the one query, attempt by attempt.
func TestEverySecondMessageIsExplained(t *testing.T) {
	t.Parallel()
	conn := storyDatabase(t)
	run := func(sql string, args ...any) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
			t.Fatalf("%v\n%s", err, sql)
		}
	}
	run("delete from attempt")
	run("delete from decision")
	run("delete from delivery")
	type attempt struct {
		effect                            int
		key, operation, outcome, closedBy string
		reason, phase, reference, late    string
		why                               string // what the query must say; "!": it must not list it
	}
	stories := map[string]struct {
		kind     string
		attempts []attempt
	}{
		"a time-out, then again": {"card", []attempt{
			{1, "1", "create", "unknown", "worker", "timeout", "request", "", "", "may have arrived: timeout in the phase request; it was not found, or could not be looked up, and was sent once more"},
			{1, "1", "create", "sent", "worker", "", "answer", "2.1", "", "arrived"},
		}},
		"a page does not look first": {"page", []attempt{
			{1, "1", "create", "unknown", "worker", "reset", "request", "", "", "may have arrived: reset in the phase request; a page is repeated without looking: a second ring is better than none"},
			{1, "1", "create", "sent", "worker", "", "answer", "2.1", "", "arrived"},
		}},
		"a lost replica": {"card", []attempt{
			{1, "1", "create", "unknown", "takeover", "takeover", "", "", "", "may have arrived: " + frozen + " was lost in the call; it was not found, or could not be looked up, and was sent once more"},
			{1, "1", "create", "sent", "worker", "", "answer", "2.1", "", "arrived"},
		}},
		"a late answer": {"card", []attempt{
			{1, "1", "create", "unknown", "takeover", "takeover", "", "", "sent", "arrived; the answer came at "},
			{1, "1", "create", "sent", "worker", "", "answer", "2.1", "", "arrived"},
		}},
		"found after it was repeated": {"card", []attempt{
			{1, "1", "create", "sent", "reconcile", "reconciled", "request", "2.1", "", "arrived: it was in doubt, and a look-up found it"},
			{1, "1", "create", "unknown", "worker", "timeout", "request", "", "", "may have arrived: timeout in the phase request"},
		}},
		"sent again by a person": {"event", []attempt{
			{1, "1", "create", "sent", "worker", "", "answer", "", "", "arrived"},
			{2, "2", "create", "sent", "worker", "", "answer", "", "", "arrived; a new effect: a person sent it again, or the card before it had been deleted"},
		}},
		"found at once: no second one": {"card", []attempt{{1, "1", "create", "sent", "reconcile", "reconciled", "request", "2.1", "", "!"}}},
		"refused, then in plain form": {"card", []attempt{
			{1, "1", "create", "failed", "worker", "payload:invalid_blocks", "answer", "", "", "!"}, {1, "1", "create", "sent", "worker", "", "answer", "2.1", "", "!"},
		}},
		"a late no": {"card", []attempt{
			{1, "1", "create", "unknown", "takeover", "takeover", "", "", "failed", "!"}, {1, "1", "create", "sent", "worker", "", "answer", "2.1", "", "!"},
		}},
		"two replies of a thread": {"thread", []attempt{{1, "r1", "reply", "sent", "worker", "", "answer", "2.1", "", "!"}, {1, "r2", "reply", "sent", "worker", "", "answer", "2.2", "", "!"}}},
		"one reply twice": {"thread", []attempt{
			{1, "r1", "reply", "unknown", "worker", "reset", "answer", "", "", "may have arrived: reset in the phase answer; it was not found, or could not be looked up, and was sent once more"},
			{1, "r1", "reply", "sent", "worker", "", "answer", "2.2", "", "arrived"},
			{1, "r2", "reply", "sent", "worker", "", "answer", "2.3", "", "!"},
		}},
		"edits": {"card", []attempt{{1, "1", "create", "sent", "worker", "", "answer", "2.1", "", "!"}, {1, "1", "edit", "unknown", "worker", "timeout", "request", "", "", "!"}, {1, "1", "edit", "sent", "worker", "", "answer", "", "", "!"}}},
	}
	for name, s := range stories {
		id := uuid.Must(uuid.NewV7())
		run(`insert into delivery (id, incident_id, kind, priority, notifier, target, state, created_at, settled_at) values ($1, $2, $3, 1, $4, 'channel', 'sent', now(), now())`, id, incidentID, s.kind, name)
		for i, a := range s.attempts {
			run(`insert into attempt (id, delivery_id, number, effect, effect_key, revision, operation, address, worker, lease_token, started_at, finished_at, outcome, evidence, closed_by, reason, phase, reference, late_outcome, late_at)
				values (gen_random_uuid(), $1, $2, $3, $4, 1, $5, 'C0', $6, gen_random_uuid(), now() + $7 * interval '1 s', now() + $7 * interval '1 s', $8, 'answered', $9, $10, $11,
					case when $12::text <> '' then jsonb_build_object('ts', $12::text) end, nullif($13::text, ''), case when $13::text <> '' then now() end)`,
				id, i+1, a.effect, id.String()+a.key, a.operation, frozen, i, a.outcome, a.closedBy, a.reason, a.phase, a.reference, a.late)
		}
	}
	_, rest, _ := strings.Cut(page(t, "incident-review.md"), "\n## Why are there two messages\n")
	query := regexp.MustCompile("(?s)```sql\n(.*?)```").FindStringSubmatch(rest)[1]
	rows, err := conn.Query(t.Context(), "select notifier, attempt_no, why from ("+strings.TrimSuffix(strings.TrimSpace(strings.ReplaceAll(query, ":'incident'", "'"+incidentID.String()+"'")), ";")+") q")
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]map[int]string{}
	var story, why string
	var number int
	if _, err := pgx.ForEachRow(rows, []any{&story, &number, &why}, func() error {
		if said[story] == nil {
			said[story] = map[int]string{}
		}
		said[story][number] = why
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for name, s := range stories {
		for i, a := range s.attempts {
			got, listed := said[name][i+1]
			switch {
			case a.why == "!" && listed:
				t.Errorf("%s: attempt %d is listed: %s", name, i+1, got)
			case a.why != "!" && got != a.why && !(a.late == "sent" && strings.HasPrefix(got, a.why)):
				t.Errorf("%s: of attempt %d it says %q, want %q", name, i+1, got, a.why)
			}
		}
	}
}
