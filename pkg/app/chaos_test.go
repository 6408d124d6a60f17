package app

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tocsin-oncall/tocsin/pkg/provider/chattest"
	"github.com/tocsin-oncall/tocsin/pkg/provider/slack/slacktest"
	"github.com/tocsin-oncall/tocsin/pkg/provider/telegram/telegramtest"
	"github.com/tocsin-oncall/tocsin/pkg/store"
	"github.com/tocsin-oncall/tocsin/pkg/store/storetest"
)

const (
	chaosLength = 40 * time.Second // of the phase in which things break; TOCSIN_CHAOS sets another
	chaosAmount = 500              // alerts in that time; a longer run has more
	chaosQuiet  = 3 * time.Minute  // how long what is left may take after it on a crowded machine; seconds, elsewhere
	chaosLease  = 4 * time.Second  // the least that calls of a second allow
)

// TestChaos runs two real replicas on one database and two simulated chats, sends alerts, and kills, freezes and
// restarts the replicas at random while the chats fail in all their ways and connections to the database break. Once
// that stops, everything that was accepted has arrived, and the ledgers of the chats, the history of attempts and the
// log of every write agree.
//
// TOCSIN_CHAOS=10m makes it longer, TOCSIN_CHAOS_SEED=N repeats what was drawn.
func TestChaos(t *testing.T) {
	t.Parallel()
	length, seed := chaosSettings(t)
	amount := max(chaosAmount, int(chaosAmount*length/chaosLength))
	t.Logf("seed %d (TOCSIN_CHAOS_SEED), %s of chaos, %d alerts", seed, length, amount)
	binary := chaosBinary(t)
	ctx, cancel := context.WithTimeout(t.Context(), length+chaosQuiet+chaosStartLimit)
	defer cancel()
	w := newChaosWorld(t, ctx, binary, seed)
	alerts := chaosAlerts(amount)

	phase, endPhase := context.WithTimeout(ctx, length)
	defer endPhase()
	var people, forces sync.WaitGroup
	people.Go(func() { w.source.firing(ctx, alerts, length*9/10) })
	people.Go(func() { w.source.answering(ctx, w.db, alerts) })
	forces.Go(func() { w.weather(phase) })
	forces.Go(func() { w.cuts(phase) })
	for i, r := range w.replicas {
		first := [][]string{{"kill", "freeze"}, {"freeze", "restart"}}[i]
		forces.Go(func() { r.torment(phase, w.rng(10+uint64(i)), chaosLease, first) })
	}
	forces.Wait()
	w.slack.ClearFaults()
	w.telegram.ClearFaults()
	calm := time.Now()
	people.Wait()
	answered := time.Since(calm)
	w.settle(ctx)
	t.Logf("after the last fault all was accepted and answered in %s, and at rest in %s; the slowest start took %s", answered.Round(time.Millisecond),
		time.Since(calm).Round(time.Millisecond), max(w.replicas[0].slowest, w.replicas[1].slowest).Round(time.Millisecond))
	// A graceful stop records all that is known; what comes after it is the last word.
	for _, r := range w.replicas {
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	}
	w.check(context.WithoutCancel(ctx), alerts)
}

func chaosSettings(t *testing.T) (time.Duration, uint64) {
	length, seed := chaosLength, rand.Uint64()>>1
	if v := os.Getenv("TOCSIN_CHAOS"); v != "" {
		d, err := time.ParseDuration(v)
		if err != nil || d < time.Second {
			t.Fatalf("TOCSIN_CHAOS is %q: give a duration such as 10m", v)
		}
		length = d
	}
	if v := os.Getenv("TOCSIN_CHAOS_SEED"); v != "" {
		n, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			t.Fatalf("TOCSIN_CHAOS_SEED is %q: give the number that a run has printed", v)
		}
		seed = n
	}
	return length, seed
}

// chaosWorld is all that takes part.
type chaosWorld struct {
	t        *testing.T
	seed     uint64
	db       *pgxpool.Pool
	slack    *slacktest.Server
	telegram *telegramtest.Server
	replicas []*chaosReplica
	source   *chaosSource
	outages  int // of a chat
	cut      int // connections to the database
}

func (w *chaosWorld) rng(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(w.seed, stream)) }

func newChaosWorld(t *testing.T, ctx context.Context, binary string, seed uint64) *chaosWorld {
	t.Helper()
	w := &chaosWorld{t: t, seed: seed}
	url := storetest.NewPlain(t)
	var err error
	if w.db, err = pgxpool.New(ctx, url); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.db.Close)
	if _, err := w.db.Exec(ctx, chaosTriggers); err != nil {
		t.Fatal(err)
	}
	w.slack = slacktest.Start(t, slacktest.Options{Seed: seed})
	w.telegram = telegramtest.Start(t, telegramtest.Options{Seed: seed + 1})
	w.faults()

	text, hash := store.MakeToken()
	file := filepath.Join(t.TempDir(), "tocsin.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, chaosFile, hex.EncodeToString(hash), w.slack.Options().Token, w.slack.APIURL(),
		w.telegram.Options().Token, w.telegram.APIURL(), chaosLease), 0o600); err != nil {
		t.Fatal(err)
	}
	for slot := range 2 {
		r := &chaosReplica{slot: slot, binary: binary, file: file, database: url, blame: t.Errorf, writers: map[string]string{}, events: map[string]int{}}
		t.Cleanup(r.kill)
		w.replicas = append(w.replicas, r)
		if err := r.start(ctx); err != nil {
			t.Fatal(err)
		}
	}
	w.source = newChaosSource(w.replicas, text, w.rng(1), t.Errorf)
	return w
}

// chaosFile has the least lease that the file allows. Nobody answers within the test's time, so an escalation has no
// further rounds.
const chaosFile = `
server:
  listen: "127.0.0.1:0"
  metrics_listen: "127.0.0.1:0"
  public_url: "http://tocsin.localhost"
  tokens: [{name: chaos, hash: "sha256:%s", scopes: [admin]}]
database: {max_connections: 8}
worker: {lease: %[6]s}
users:
  - {id: ana, name: Ana Torres, contacts: [{via: slack-dm, address: U0ANA}]}
  - {id: bo, name: Bo Lind, contacts: [{via: slack-dm, address: U0BO}, {via: telegram-dm, address: "502"}]}
escalations:
  slack: {every: 24h, steps: [{after: 0s, page: ["user:ana"]}]}
  both: {every: 24h, steps: [{after: 0s, page: ["user:bo"]}]}
notifiers:
  ops-slack: {type: slack, token: %[2]q, channel: C0OPS, api_url: %[3]q, timeout: 1s, pace: {destination: 100/s}, concurrency: 6, retries: {delay: 200ms, max_delay: 2s}}
  slack-dm: {type: slack, token: %[2]q, api_url: %[3]q, timeout: 1s, pace: {destination: 100/s}, concurrency: 6, retries: {delay: 200ms, max_delay: 2s}}
  ops-telegram: {type: telegram, token: %[4]q, chat_id: "-1001000000001", api_url: %[5]q, timeout: 1s, pace: {destination: 100/s, group: off, account: off}, concurrency: 4, retries: {delay: 200ms, max_delay: 2s}}
  telegram-dm: {type: telegram, token: %[4]q, api_url: %[5]q, timeout: 1s, pace: {destination: 100/s, group: off, account: off}, concurrency: 4, retries: {delay: 200ms, max_delay: 2s}}
routes:
  - {match: "alert.*.critical.chaos", notify: [ops-slack], escalate: slack}
  - {match: "alert.*.high.chaos", notify: [ops-slack, ops-telegram], escalate: both}
  - {match: "alert.*.*._tocsin", notify: [ops-slack]}
`

// faults lets the chats fail at low rates. The slow answers leave in about half a second: some in time, some not.
func (w *chaosWorld) faults() {
	for _, chat := range []*chattest.Core{w.slack.Core, w.telegram.Core} {
		for _, f := range []chattest.Fault{
			{Kind: chattest.Reset, Probability: 0.02},
			{Kind: chattest.Drop, Probability: 0.02},
			{Kind: chattest.Hang, Probability: 0.02},
			{Kind: chattest.Error, Status: 503, Probability: 0.02},
			{Kind: chattest.Limited, Probability: 0.02},
			{Kind: chattest.Slow, Probability: 0.03, Interval: chattest.Duration(500 * time.Microsecond)},
			{Kind: chattest.Cut, Probability: 0.01},
		} {
			chat.MustFault(f)
		}
	}
}

// weather makes one chat or the other refuse all connections for a while, now and then, until ctx ends.
func (w *chaosWorld) weather(ctx context.Context) {
	rng := w.rng(2)
	for chaosWait(ctx, between(rng, 3*time.Second, 10*time.Second)) {
		chat := []*chattest.Core{w.slack.Core, w.telegram.Core}[rng.IntN(2)]
		id := chat.MustFault(chattest.Fault{Kind: chattest.Refuse})
		w.outages++
		chaosWait(ctx, between(rng, 200*time.Millisecond, 1500*time.Millisecond))
		chat.ClearFault(id)
	}
}

// cuts ends some of the replicas' connections to the database, now and then, until ctx ends: in the middle of anything, a
// COMMIT included, whose answer is lost then.
func (w *chaosWorld) cuts(ctx context.Context) {
	rng := w.rng(3)
	for chaosWait(ctx, between(rng, 500*time.Millisecond, 4*time.Second)) {
		tag, err := w.db.Exec(context.WithoutCancel(ctx), `select pg_terminate_backend(pid) from pg_stat_activity
			where datname = current_database() and application_name = 'tocsin' order by state = 'idle', random() limit $1`, 1+rng.IntN(4))
		if err != nil {
			w.t.Errorf("cut connections: %v", err)
			return
		}
		w.cut += int(tag.RowsAffected())
	}
}

// settle waits until no delivery needs a worker.
func (w *chaosWorld) settle(ctx context.Context) {
	w.t.Helper()
	for {
		var left int
		var example string
		err := w.db.QueryRow(ctx, "select count(*), coalesce(min(id::text || ' ' || kind || ' ' || notifier || ' ' || reason || ' due ' || next_at), '') from delivery where next_at is not null").Scan(&left, &example)
		if err == nil && left == 0 {
			return
		}
		if err == nil && !chaosWait(ctx, 100*time.Millisecond) {
			err = context.Cause(ctx)
		}
		if err != nil {
			w.t.Errorf("not all was settled in time: %d deliveries are left, for example %s: %v", left, example, err)
			return
		}
	}
}

// check compares everything with everything.
func (w *chaosWorld) check(ctx context.Context, alerts []chaosAlert) {
	t := w.t
	t.Helper()
	const most = 8
	wrong := map[string]int{}
	about := func(what string) func(string, ...any) {
		return func(format string, args ...any) {
			if wrong[what]++; wrong[what] <= most {
				t.Errorf(what+": "+format, args...)
			}
		}
	}
	f := readChaosFacts(t, ctx, w.db)
	f.checkHistory(about("history"))
	f.checkEnds(alerts, w.source.accepted, about("ends"))
	calls := slackCalls(w.slack, about("ledger"))
	calls = append(calls, telegramCalls(w.telegram, f, about("ledger"))...)
	duplicates := checkCalls(f, calls, about("calls"))
	checkSent(f, calls, about("sent"))
	checkShown(f, alerts, w.slack, w.telegram, about("shown"))
	workers, events := map[string]string{}, map[string]int{}
	for _, r := range w.replicas {
		maps.Copy(workers, r.writers)
		for e, n := range r.events {
			events[e] += n
		}
	}
	writes := checkWrites(t, ctx, w.db, f, workers, about("writes"))
	for what, n := range wrong {
		if n > most {
			t.Errorf("%s: %d faults in all", what, n)
		}
	}

	outcomes, takeovers, late := map[string]int{}, 0, map[string]int{}
	for _, a := range f.attempts {
		outcomes[cmp.Or(a.Outcome, "open")]++
		if a.ClosedBy == "takeover" {
			takeovers++
			late[cmp.Or(a.LateSaid, "none")]++
		}
	}
	t.Logf("%d processes, events %v, %d outages of a chat, %d connections cut; %d requests of the source sent again", len(workers), events, w.outages, w.cut, w.source.again)
	t.Logf("%d deliveries, %d attempts %v, %d taken over (late evidence %v), %d requests in the ledgers, %d effects happened again, %d writes followed",
		len(f.deliveries), len(f.attempts), outcomes, takeovers, late, len(calls), duplicates, writes)
	for _, e := range []string{"kill", "freeze", "restart"} {
		if events[e] == 0 {
			t.Errorf("no %s happened: the run proves little", e)
		}
	}
	if takeovers == 0 || duplicates == 0 || outcomes["unknown"] == 0 || slices.Min([]int{outcomes["sent"], outcomes["failed"]}) == 0 {
		t.Errorf("no attempt was taken over, or none ended as unknown, failed or sent, or nothing happened again: the run proves little")
	}
}
