package app

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/provider/slack/slacktest"
	"github.com/tocsin-oncall/tocsin/pkg/store"
	"github.com/tocsin-oncall/tocsin/pkg/store/storetest"
)

const (
	stepsIncidents = 50
	stepsTorment   = 9 * time.Second // how long replicas are killed; all steps fall due meanwhile
	stepsDark      = 1500 * time.Millisecond
	stepsBound     = 2 * time.Minute // for what is left after it, on a crowded machine
)

// stepsFile pages four people one after the other, and nothing else.
const stepsFile = `
server:
  listen: "127.0.0.1:0"
  metrics_listen: "127.0.0.1:0"
  public_url: "http://tocsin.localhost"
  tokens: [{name: chaos, hash: "sha256:%s", scopes: [admin]}]
database: {max_connections: 6}
worker: {lease: 4s}
users:
  - {id: ana, name: Ana Torres, contacts: [{via: slack-dm, address: U0ANA}]}
  - {id: bo, contacts: [{via: slack-dm, address: U0BO}]}
  - {id: cho, contacts: [{via: slack-dm, address: U0CHO}]}
  - {id: dee, contacts: [{via: slack-dm, address: U0DEE}]}
escalations:
  four: {steps: [{page: ["user:ana"]}, {after: 2s, page: ["user:bo"]}, {after: 4s, page: ["user:cho"]}, {after: 6s, page: ["user:dee"]}]}
notifiers:
  slack-dm: {type: slack, token: %[2]q, api_url: %[3]q, timeout: 1s, pace: off, concurrency: 4, retries: {delay: 200ms, max_delay: 1s}}
routes: [{match: "#", escalate: four}]
`

// TestStepsFireOnceWhileReplicasAreKilled runs three real replicas, and kills them at random, for a while all of them at
// once, during 50 escalations of four steps: each step fires once, not before its time and not lost, with one page; and what is
// acknowledged meanwhile ends in the transaction of the answer.
func TestStepsFireOnceWhileReplicasAreKilled(t *testing.T) { // C16, D9
	t.Parallel()
	_, seed := chaosSettings(t)
	t.Logf("seed %d (TOCSIN_CHAOS_SEED)", seed)
	ctx, cancel := context.WithTimeout(t.Context(), stepsTorment+stepsBound+chaosStartLimit)
	defer cancel()
	url := storetest.NewPlain(t)
	db, err := pgxpool.New(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	chat := slacktest.Start(t, slacktest.Options{Seed: seed})
	text, hash := store.MakeToken()
	file := filepath.Join(t.TempDir(), "tocsin.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, stepsFile, hex.EncodeToString(hash), chat.Options().Token, chat.APIURL()), 0o600); err != nil {
		t.Fatal(err)
	}
	binary := chaosBinary(t)
	rng := func(n uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, n)) }
	var replicas []*chaosReplica
	for slot := range 3 {
		r := &chaosReplica{slot: slot, binary: binary, file: file, database: url, blame: t.Errorf, writers: map[string]string{}, events: map[string]int{}}
		t.Cleanup(r.kill)
		replicas = append(replicas, r)
		if err := r.start(ctx); err != nil {
			t.Fatal(err)
		}
	}
	source := newChaosSource(replicas, text, rng(1), t.Errorf)

	var all sync.WaitGroup
	phase, endPhase := context.WithTimeout(ctx, stepsTorment)
	defer endPhase()
	for n := range stepsIncidents {
		stepsIncident(ctx, source, n, &all)
	}
	var dark sync.RWMutex // nobody comes to life while it is dark
	for i, r := range replicas {
		all.Go(func() {
			draw := rng(10 + uint64(i))
			for chaosWait(phase, between(draw, 300*time.Millisecond, 2500*time.Millisecond)) {
				r.events["kill"]++
				r.kill()
				dark.RLock()
				err := r.start(ctx)
				dark.RUnlock()
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Go(func() { // in the middle of it all of them are gone at once
		if !chaosWait(phase, stepsTorment/2) {
			return
		}
		dark.Lock()
		defer dark.Unlock()
		for _, r := range replicas {
			r.kill()
		}
		chaosWait(ctx, stepsDark)
	})
	all.Wait()
	for _, r := range replicas { // who was killed in the dark while its own turn was to wait
		if r.address() == "" {
			if err := r.start(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	stepsSettle(ctx, t, db)
	for _, r := range replicas {
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	}
	stepsCheck(context.WithoutCancel(ctx), t, db, chat)
	kills := 0
	for _, r := range replicas {
		kills += r.events["kill"]
	}
	if kills < 3 {
		t.Errorf("only %d kills: the run proves little", kills)
	}
	t.Logf("%d kills", kills)
}

// stepsIncident opens an incident a little later; every second one is acknowledged at some time while its escalation runs.
func stepsIncident(ctx context.Context, source *chaosSource, n int, all *sync.WaitGroup) {
	name := fmt.Sprintf("steps-%02d", n)
	after := func(least, most int, do func()) {
		all.Add(1)
		time.AfterFunc(time.Duration(least+source.draw(most-least))*time.Millisecond, func() { // nobody waits meanwhile
			defer all.Done()
			do()
		})
	}
	after(0, 2000, func() {
		answer, err := source.send(ctx, "/v1/alerts", name, api.Alert{Kind: "down", Criticality: "critical", Job: "steps", Key: name, Title: name})
		var took api.Accepted
		if err == nil {
			err = json.Unmarshal(answer, &took)
		}
		if err != nil {
			source.blame("alert %s: %v", name, err)
			return
		}
		if n%2 == 0 {
			return
		}
		after(0, 5500, func() {
			if answer, err := source.send(ctx, "/v1/incidents/"+took.IncidentID+"/acknowledge", "", api.IncidentAction{By: "ana"}); err != nil {
				source.blame("acknowledge %s: %v %s", name, err, answer)
			}
		})
	})
}

// stepsSettle waits until no step but the escalations' ends is due, and no page is on its way.
func stepsSettle(ctx context.Context, t *testing.T, db *pgxpool.Pool) {
	t.Helper()
	for {
		var left int
		err := db.QueryRow(ctx, `select (select count(*) from escalation where state = 'due' and step >= 0) + (select count(*) from delivery where next_at is not null)`).Scan(&left)
		if err == nil && left == 0 {
			return
		}
		if err != nil || !chaosWait(ctx, 100*time.Millisecond) {
			t.Fatalf("not all was done in time: %d steps and pages are left: %v %v", left, err, context.Cause(ctx))
		}
	}
}

func stepsCheck(ctx context.Context, t *testing.T, db *pgxpool.Pool, chat *slacktest.Server) {
	t.Helper()
	none := func(what, sql string) {
		t.Helper()
		var n int
		var example string
		if err := db.QueryRow(ctx, "select count(*), coalesce(min(x.what), '') from ("+sql+") x(what)").Scan(&n, &example); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if n > 0 {
			t.Errorf("%s: %d, for example %s", what, n, example)
		}
	}
	none("not every incident has its four steps once", `select i.key from incident i left join escalation e on e.incident_id = i.id and e.step >= 0
		group by i.id having count(e.id) <> 4 or count(distinct e.step) <> 4`)
	none("a step of an open incident did not fire", `select i.key || ' ' || e.step from incident i join escalation e on e.incident_id = i.id where i.state = 'open' and e.step >= 0 and e.state <> 'fired'`)
	none("a step fired before its time", `select i.key || ' ' || e.step from incident i join escalation e on e.incident_id = i.id
		where e.state = 'fired' and e.fired_at < i.opened_at + e.step * interval '2 seconds'`)
	none("a step that fired has not one page", `select i.key || ' ' || e.step from incident i join escalation e on e.incident_id = i.id left join delivery d on d.step_id = e.id
		where e.state = 'fired' and e.step >= 0 group by i.key, e.step having count(d.id) <> 1`)
	none("a step that did not fire has a page", `select i.key || ' ' || e.step from incident i join escalation e on e.incident_id = i.id join delivery d on d.step_id = e.id where e.state <> 'fired'`)
	none("a page of an open incident was not sent", `select i.key || ' ' || d.target || ' ' || d.state from incident i join delivery d on d.incident_id = i.id where i.state = 'open' and d.state <> 'sent'`)
	// The answer's transaction notes itself last: whatever came after that was not stopped by it.
	none("a step fired after the answer", `select a.object || ' ' || e.step from audit a join escalation e on 'incident:' || e.incident_id = a.object where a.action = 'acknowledge' and e.fired_at > a.at`)
	none("a step is due after the answer", `select i.key || ' ' || e.step from incident i join escalation e on e.incident_id = i.id where i.state <> 'open' and e.state = 'due'`)
	none("a page was begun after the answer", `select a.object || ' ' || d.target from audit a join delivery d on 'incident:' || d.incident_id = a.object
		join attempt t on t.delivery_id = d.id and t.operation = 'create' where a.action = 'acknowledge' and t.started_at > a.at`)
	none("a page rang twice without a doubt", `select d.id || ' ' || d.target from delivery d join attempt t on t.delivery_id = d.id and t.operation = 'create'
		group by d.id having count(*) filter (where t.outcome = 'sent') > 1 or count(*) > 1 and count(*) filter (where t.outcome = 'unknown' or t.evidence in ('not_called', 'not_sent')) < count(*) - 1`)

	// What people saw: each page that was sent once, but for those in doubt.
	seen := map[string]int{}
	for _, u := range []string{"U0ANA", "U0BO", "U0CHO", "U0DEE"} {
		for _, m := range chat.Messages(u) {
			seen[m.Key]++
		}
	}
	rows, err := db.Query(ctx, `select d.id::text || ':1', d.state, exists (select from attempt t where t.delivery_id = d.id and t.outcome = 'unknown') from delivery d where d.kind = 'page'`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	pages, doubts := 0, 0
	for rows.Next() {
		var key, state string
		var doubt bool
		if err := rows.Scan(&key, &state, &doubt); err != nil {
			t.Fatal(err)
		}
		pages++
		if n := seen[key]; n > 1 && !doubt || n == 0 && state == "sent" || n > 0 && state != "sent" && !doubt {
			t.Errorf("the page %s is %s and was seen %d times, in doubt: %t", key, state, n, doubt)
		}
		if doubt {
			doubts++
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	var late float64
	var acknowledged int
	if err := db.QueryRow(ctx, `select extract(epoch from max(e.fired_at - i.opened_at - e.step * interval '2 seconds'))::float8, count(distinct i.id) filter (where i.state <> 'open')
		from incident i join escalation e on e.incident_id = i.id where e.state = 'fired' and e.step >= 0`).Scan(&late, &acknowledged); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d pages, %d with an attempt in doubt, %d incidents acknowledged; the latest step came %.1f s after its time", pages, doubts, acknowledged, late)
	if acknowledged < stepsIncidents/3 {
		t.Errorf("only %d were acknowledged", acknowledged)
	}
	if late > 30 { // the outage lasted seconds; what is due is looked for as "earlier than now"
		t.Errorf("a step came %.1f s after its time", late)
	}
}
