package store_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/store"
	"github.com/tocsin-oncall/tocsin/pkg/store/storetest"
)

// node is one step of a plan, as EXPLAIN (format json) tells it.
type node struct {
	Type     string  `json:"Node Type"`
	Relation string  `json:"Relation Name"`
	Index    string  `json:"Index Name"`
	Cond     string  `json:"Index Cond"`
	Filter   string  `json:"Filter"`
	Rows     float64 `json:"Actual Rows"`
	Loops    float64 `json:"Actual Loops"`
	Removed  float64 `json:"Rows Removed by Filter"`
	Hit      int     `json:"Shared Hit Blocks"`
	Read     int     `json:"Shared Read Blocks"`
	Plans    []node  `json:"Plans"`
}

func (n node) walk(visit func(node)) {
	visit(n)
	for _, p := range n.Plans {
		p.walk(visit)
	}
}

// prepared is a statement that the worker's connection holds, under the plan that it will be executed with.
type prepared struct {
	name  string
	types []string
}

var queryName = regexp.MustCompile(`^-- name: (\w+)`)

// workConn is the worker's one connection: the tests of plans use the store from one goroutine only.
func (s *site) workConn() *pgxpool.Conn {
	s.t.Helper()
	conn, err := s.WorkConn(s.ctx())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(conn.Release)
	return conn
}

// statements are those that a connection has prepared, by the name that sql/queries gives them.
func (s *site) statements(conn *pgxpool.Conn) map[string]prepared {
	s.t.Helper()
	rows, err := conn.Query(s.ctx(), "select name, statement, parameter_types::text[] from pg_prepared_statements")
	if err != nil {
		s.t.Fatal(err)
	}
	defer rows.Close()
	out := map[string]prepared{}
	for rows.Next() {
		var p prepared
		var text string
		if err := rows.Scan(&p.name, &text, &p.types); err != nil {
			s.t.Fatal(err)
		}
		if m := queryName.FindStringSubmatch(text); m != nil {
			out[m[1]] = p
		}
	}
	if rows.Err() != nil {
		s.t.Fatal(rows.Err())
	}
	return out
}

// explain returns the plan of a prepared statement. With how = "analyze, buffers" it is executed, and taken back.
func (s *site) explain(conn *pgxpool.Conn, p prepared, how string, args ...string) node {
	s.t.Helper()
	if args == nil {
		for _, t := range p.types {
			args = append(args, "null::"+t)
		}
	}
	tx, err := conn.Begin(s.ctx())
	if err != nil {
		s.t.Fatal(err)
	}
	var text []byte
	q := fmt.Sprintf("explain (%s, format json) execute %q", how, p.name)
	if len(args) > 0 {
		q += "(" + strings.Join(args, ", ") + ")"
	}
	if err := tx.QueryRow(s.ctx(), q).Scan(&text); err != nil {
		s.t.Fatalf("%s: %v", q, err)
	}
	if err := tx.Rollback(s.ctx()); err != nil {
		s.t.Fatal(err)
	}
	var plans []struct{ Plan node }
	if err := json.Unmarshal(text, &plans); err != nil {
		s.t.Fatal(err)
	}
	return plans[0].Plan
}

// large are the tables that grow without bound.
var large = regexp.MustCompile(`^(delivery|attempt.*|incident|alert|timeline|content|pace)$`)

// small are those with a row a thing in trouble.
var small = regexp.MustCompile(`^(pause|moved_chat)$`)

// sorting are the statements that sort: the few attempts of one delivery; what waits for one account, once in a while.
var sorting = regexp.MustCompile(`^(Reconciled|OldestWaiting)\b`)

// onIndexes fails where a plan reads a large table otherwise than by the condition of an index, or sorts or hashes.
func (s *site) onIndexes(name string, plan node) {
	s.t.Helper()
	plan.walk(func(n node) {
		switch {
		case strings.HasSuffix(n.Type, "Sort") && sorting.MatchString(name):
		case n.Type == "Sort" || n.Type == "Incremental Sort" || strings.HasPrefix(n.Type, "Hash") || strings.HasPrefix(n.Type, "Merge Join"):
			s.t.Errorf("%s: its plan has a %s", name, n.Type)
		case n.Type == "Seq Scan" && small.MatchString(n.Relation):
		case strings.HasSuffix(n.Type, "Seq Scan") || strings.HasPrefix(n.Type, "Bitmap"):
			s.t.Errorf("%s: a %s of %s", name, n.Type, n.Relation)
		case large.MatchString(n.Relation) && strings.HasPrefix(n.Type, "Index") && n.Cond == "":
			s.t.Errorf("%s: walks the whole of %s.%s", name, n.Relation, n.Index)
		}
	})
	if s.t.Failed() {
		text, _ := json.MarshalIndent(plan, "", " ")
		s.t.Logf("%s: %s", name, text)
	}
}

// fill adds events, due from now by the given seconds and a millisecond more each.
func (s *site) fill(notifier string, n, from int) {
	s.t.Helper()
	s.exec(`insert into delivery (id, kind, priority, notifier, target, state, next_at, created_at)
		select gen_random_uuid(), 'event', 3, $1, 'url', 'pending', clock_timestamp() + make_interval(secs => $3 + i * 0.001), clock_timestamp()
		from generate_series(1, $2::int) i`, notifier, n, from)
}

// The claim's own arguments, as literals: one lane of 20 places, no watermark.
func claimArgs(notifier string) []string {
	zero := "'{0001-01-01 00:00:00+00}'"
	return []string{"'1 minute'", "'replica-a'", "'{" + notifier + "}'", "'{20}'", zero, zero, zero, zero}
}

// usesDueAndKey fails where a claim's plan reads deliveries by anything but the index made for it and the primary key.
func (s *site) usesDueAndKey(plan node) {
	s.t.Helper()
	s.onIndexes("Claim", plan)
	seen := map[string]int{}
	plan.walk(func(n node) {
		if n.Relation == "delivery" && n.Type != "ModifyTable" {
			seen[n.Index]++
		}
	})
	if want := map[string]int{"delivery_due": 5, "delivery_pkey": 1}; !maps.Equal(seen, want) {
		s.t.Errorf("the claim reads deliveries by %v, not by %v", seen, want)
	}
}

// reads sums up what a plan has touched: index entries and rows of delivery, and blocks.
func reads(plan node) (rows float64, blocks int) {
	plan.walk(func(n node) {
		if n.Relation == "delivery" && strings.HasPrefix(n.Type, "Index") {
			rows += (n.Rows + n.Removed) * n.Loops
		}
	})
	return rows, plan.Hit + plan.Read
}

// The tables are empty after a quiet night, statistics say so, and the worker's connection has planned its claim by
// them. Then a burst comes.
func TestClaimPlanOutlivesABurst(t *testing.T) {
	t.Parallel()
	s := siteAt(t, storetest.NewPlain(t)) // the very functions of production: the planner sees them
	s.exec("vacuum analyze")
	s.claim(alpha)
	conn := s.workConn()
	claim, ok := s.statements(conn)["Claim"]
	if !ok {
		t.Fatalf("the claim is not among the prepared statements of the worker's connection: %v", slices.Sorted(maps.Keys(s.statements(conn))))
	}
	s.usesDueAndKey(s.explain(conn, claim, "costs off"))

	s.fill(ops, 20_000, -3600)
	s.usesDueAndKey(s.explain(conn, claim, "costs off"))
	plan := s.explain(conn, claim, "analyze, buffers", claimArgs(ops)...)
	if rows, _ := reads(plan); plan.Rows != 20 || rows > 2*20 {
		t.Errorf("a claim of 20 rows out of 20,000 took %g and read %g", plan.Rows, rows)
	}
	s.exec("analyze delivery") // plans are made anew
	s.usesDueAndKey(s.explain(conn, claim, "costs off"))

	// Rows that are not due yet cost nothing, however many: they are not even looked at.
	s.fill("quiet", 10, -60) // fewer than there are places: the claim asks on
	plan = s.explain(conn, claim, "analyze, buffers", claimArgs("quiet")...)
	_, few := reads(plan)
	s.fill("quiet", 200_000, 3600)
	for _, analyse := range []string{"select 1", "analyze delivery"} {
		s.exec(analyse)
		plan = s.explain(conn, claim, "analyze, buffers", claimArgs("quiet")...)
		s.usesDueAndKey(plan)
		if rows, blocks := reads(plan); plan.Rows != 10 || rows > 2*10 || blocks > 2*few {
			t.Errorf("with 200,000 future rows a claim of %g rows read %g rows and %d blocks, %d without them", plan.Rows, rows, blocks, few)
		}
	}
}

// Every statement on the worker's connections keeps to the conditions of indexes, planned on empty tables or full ones.
func TestWorkerStatementsKeepToTheirIndexes(t *testing.T) {
	t.Parallel()
	s := siteAt(t, storetest.NewPlain(t))
	s.exec("vacuum analyze")
	s.everyStatement()
	conn := s.workConn()
	want := []string{"AddLostAttempt", "AheadInQueue", "Apply", "Begin", "BringForwardWaiting", "CallNext", "CardsOfIncidents", "Claim", "ClockTimestamp", "CloseBreaker",
		"CloseTakenOver", "Contents", "DeliveriesByID", "EarliestDue", "Finish", "IncidentStates", "JoinQueue", "LateEvidence", "LateSent", "LockDeliveriesByID", "LockPace", "MoveChat", "MovedChats",
		"OldestWaiting", "OpenBreaker", "Pauses", "Reconciled", "Rest", "SavePace", "SetTrial", "TakeProbes", "TimelineOf", "UnparkPages", "UnparkThreads"}
	all := s.statements(conn)
	if got := slices.Sorted(maps.Keys(all)); !slices.Equal(got, want) {
		t.Errorf("the worker's connection has prepared\n%v, not\n%v", got, want)
	}
	for name, p := range all {
		s.onIndexes(name+" on empty tables", s.explain(conn, p, "costs off"))
	}
	s.fill(ops, 20_000, -3600)
	s.exec(`insert into incident (id, key, source, topic, title, state, criticality, opened_at) select gen_random_uuid(), 'k' || i, 'native', 't', 't', 'open', 'high', now() from generate_series(1, 20000) i`)
	s.exec(`insert into content (id, revision, body) select id, 1, '{}' from incident on conflict do nothing`)
	s.exec(`insert into attempt (id, delivery_id, number, effect, effect_key, revision, operation, address, worker, lease_token, started_at)
		select gen_random_uuid(), id, 1, 1, 'k', 1, 'create', 'a', 'w', id, now() from delivery`)
	s.exec("analyze")
	for name, p := range all {
		s.onIndexes(name+" on full tables", s.explain(conn, p, "costs off"))
	}
}

// everyStatement goes through all that a worker asks of the store.
func (s *site) everyStatement() {
	s.t.Helper()
	ctx := s.ctx()
	must := func(err error) {
		s.t.Helper()
		if err != nil {
			s.t.Fatal(err)
		}
	}
	inc := s.incident("every")
	card := s.started(inc, delivery.Card)
	s.exec("update delivery set lease_until = clock_timestamp() - interval '1 s', next_at = clock_timestamp() - interval '1 s'")
	again := s.take(beta) // a takeover
	_, err := s.Around(ctx, []store.Claimed{again, {Delivery: delivery.Delivery{Kind: delivery.Page, IncidentID: inc.ID}}})
	must(err)
	s.late(alpha, card, failed)
	if r, err := s.Read(ctx, card.Delivery.ID); err != nil || r[card.Delivery.ID].Token != uuid.Nil {
		s.t.Fatalf("the late answer did not give the row back: %v, %v", r, err)
	}
	b := s.begin(beta, s.take(beta))
	s.exec("delete from attempt")
	s.finish(beta, b, sent)
	_, err = s.Timeline(ctx, inc.ID, 0, 10, 10)
	must(err)
	_, err = s.Unpark(ctx, []uuid.UUID{inc.ID}, []uuid.UUID{card.Delivery.ID})
	must(err)
	_, err = s.EarliestDue(ctx, []string{ops})
	must(err)

	sleeper := s.add(inc, delivery.Notice)
	s.queued(s.take(alpha), room, time.Minute)
	s.turns(ask(someone(delivery.Bulk, time.Now().Add(time.Hour)), room, onceASecond), ask(someone(delivery.Bulk, time.Now()), "free", onceASecond))
	s.exec("update delivery set reason = 'account:token_revoked', next_at = clock_timestamp() + interval '1 minute' where id = $1", sleeper)
	must(s.Rest(ctx, store.Pause{Key: room, Scope: store.ScopeDestination}, time.Minute))
	_, err = s.OpenBreaker(ctx, store.Pause{Key: "b"}, 0)
	must(err)
	_, err = s.TakeProbes(ctx, []string{"b"})
	must(err)
	_, err = s.Try(ctx, "b", []string{ops})
	must(err)
	_, _, err = s.CloseBreaker(ctx, "b", []string{ops})
	must(err)
	_, err = s.WorkPauses(ctx)
	must(err)
	must(s.MoveChat(ctx, store.MovedChat{Account: "a", Address: "-1", MovedTo: "-2"}))
	_, err = s.MovedChats(ctx)
	must(err)
	s.exec("delete from delivery where id = $1", sleeper)
	doubtful := s.started(inc, delivery.Card)
	s.finish(alpha, doubtful, unknown)
	s.exec("update delivery set next_at = clock_timestamp() where id = $1", doubtful.Delivery.ID)
	c := s.take(alpha)
	_, ok, err := s.Adopt(ctx, c.ID, c.Doubt.Key, made, found(c, made))
	if must(err); !ok {
		s.t.Fatal("not adopted")
	}
}
