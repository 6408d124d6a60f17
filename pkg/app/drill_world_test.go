package app

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/client"
	"github.com/tocsin-oncall/tocsin/pkg/provider/chattest"
	"github.com/tocsin-oncall/tocsin/pkg/provider/slack/slacktest"
	"github.com/tocsin-oncall/tocsin/pkg/provider/telegram/telegramtest"
	"github.com/tocsin-oncall/tocsin/pkg/redact"
	"github.com/tocsin-oncall/tocsin/pkg/store/storetest"
)

// drillPatience bounds the waits of drills: a storm on two crowded cores takes a while.
var drillPatience = time.Duration(drillAmount(120, 900)) * time.Second

// drillAmount is how much a drill sends: little in `make test`, much in `make drill`.
func drillAmount(test, drill int) int {
	if os.Getenv("TOCSIN_DRILL") != "" {
		return drill
	}
	return test
}

// drill is some replicas on one database, with simulated chats. The clocks of the database and of the chats can be moved
// together: minutes pass in seconds then. What replicas measure by themselves, timeouts above all, stays in real time.
type drill struct {
	t        *testing.T
	database string
	db       *pgxpool.Pool
	slack    *slacktest.Server
	telegram *telegramtest.Server
	replicas []*App
	clients  []*client.Client
	logPath  string
	moved    atomic.Int64
	stop     func() // all replicas, in order
}

type drillSetup struct {
	replicas int // 1
	slack    slacktest.Options
	telegram telegramtest.Options
	file     string            // what follows server, database and worker; SLACK_API and TELEGRAM_API stand for the chats' addresses
	values   map[string]string // further ${NAME}
}

// The lease is far longer than any drill: with a moved clock it would run out in the middle of a call.
const drillFile = `
server: {listen: "127.0.0.1:0", metrics_listen: "127.0.0.1:0", public_url: "http://tocsin.localhost"}
database: {url: "${DB}", max_connections: 8}
worker: {lease: 12h, poll: 100ms}
`

func newDrill(t *testing.T, s drillSetup) *drill {
	t.Helper()
	d := &drill{t: t, database: storetest.New(t), logPath: filepath.Join(t.TempDir(), "log")}
	now := func() time.Time { return time.Now().Add(time.Duration(d.moved.Load())) }
	s.slack.Now, s.telegram.Now = now, now
	d.slack, d.telegram = slacktest.Start(t, s.slack), telegramtest.Start(t, s.telegram)
	var err error
	if d.db, err = pgxpool.New(t.Context(), d.database); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.db.Close)

	path := filepath.Join(t.TempDir(), "tocsin.yaml")
	text := drillFile + strings.NewReplacer("SLACK_API", fmt.Sprintf("%q", d.slack.APIURL()), "TELEGRAM_API", fmt.Sprintf("%q", d.telegram.APIURL())).Replace(s.file)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(d.logPath)
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]string{"DB": d.database, "SLACK_TOKEN": d.slack.Options().Token, "TELEGRAM_TOKEN": d.telegram.Options().Token}
	for k, v := range s.values {
		values[k] = v
	}
	set := &atomic.Pointer[redact.Set]{}
	logger := NewLog(log, set)
	life, end := context.WithCancel(context.Background())
	var running sync.WaitGroup
	d.stop = sync.OnceFunc(func() {
		d.slack.ClearFaults()
		d.telegram.ClearFaults()
		end()
		running.Wait()
		_ = log.Close()
	})
	t.Cleanup(func() { d.stop() })
	for i := range max(s.replicas, 1) {
		a, err := New(t.Context(), Options{Path: path, Env: devSecrets{values}.lookup, Insecure: true, Log: logger, Secrets: set, ID: fmt.Sprintf("drill-%d", i+1)})
		if err != nil {
			t.Fatal(err)
		}
		d.replicas = append(d.replicas, a)
		running.Go(func() {
			if err := a.Run(life); err != nil {
				t.Errorf("%s did not end well: %v", a.ID(), err)
			}
		})
		if err := awaitReady(t.Context(), a.Addr()); err != nil {
			t.Fatal(err)
		}
		c, err := client.New("http://"+a.Addr(), "unused")
		if err != nil {
			t.Fatal(err)
		}
		d.clients = append(d.clients, c)
	}
	return d
}

// fire sends an alert of its own key to a replica, in turn.
func (d *drill) fire(n int, job, criticality, title string) api.Accepted {
	d.t.Helper()
	out, err := d.clients[n%len(d.clients)].SendAlert(within(d.t), api.Alert{Kind: "drill", Criticality: criticality, Job: job, Key: job + " " + title, Title: title}, "")
	if err != nil {
		d.t.Fatal(err)
	}
	return out
}

// pass lets time pass for the database and the chats. The chats go first, so that they never see a call as too early that
// the database has let go.
func (d *drill) pass(length time.Duration) {
	d.t.Helper()
	d.moved.Add(int64(length))
	storetest.MoveClock(d.t, d.database, length)
}

// until looks again and again until something has come true. Between two looks the time of database and chats goes on by
// step.
func (d *drill) until(what string, step time.Duration, ok func() bool) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), drillPatience)
	defer cancel()
	for !ok() {
		if step > 0 {
			d.pass(step)
		}
		select {
		case <-ctx.Done():
			d.t.Fatalf("%s: it did not come to that\n%s", what, d.board())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// settled says that no delivery of the kinds needs a worker; no kinds: of all.
func (d *drill) settled(kinds ...string) func() bool {
	return func() bool {
		return ask[int](d, "select count(*) from delivery where next_at is not null and (coalesce(cardinality($1::text[]), 0) = 0 or kind = any($1))", kinds) == 0
	}
}

// ask asks the database for a single value.
func ask[T any](d *drill, query string, args ...any) (v T) {
	d.t.Helper()
	if err := d.db.QueryRow(d.t.Context(), query, args...).Scan(&v); err != nil {
		d.t.Fatalf("%s: %v", query, err)
	}
	return v
}

// list asks the database for a column.
func list[T any](d *drill, query string, args ...any) []T {
	d.t.Helper()
	rows, err := d.db.Query(d.t.Context(), query, args...)
	if err == nil {
		var out []T
		if out, err = pgx.CollectRows(rows, pgx.RowTo[T]); err == nil {
			return out
		}
	}
	d.t.Fatalf("%s: %v", query, err)
	return nil
}

// board tells where things stand, for a drill that failed.
func (d *drill) board() string {
	lines := []string{"deliveries:"}
	lines = append(lines, list[string](d, "select count(*) || ' ' || kind || ' ' || notifier || ' ' || state || ' ' || reason || ', due in ' || coalesce((min(next_at) - clock_timestamp())::text, 'never') from delivery group by kind, notifier, state, reason order by 1 desc")...)
	lines = append(lines, "attempts:")
	lines = append(lines, list[string](d, "select count(*) || ' ' || kind || ' ' || notifier || ' ' || operation || ' ' || coalesce(outcome, 'open') || ' ' || coalesce(reason, '') || ' ' || form || ' ' || coalesce(closed_by, '') from attempt_history group by kind, notifier, operation, outcome, reason, form, closed_by order by 1 desc limit 40")...)
	lines = append(lines, "pauses:")
	lines = append(lines, list[string](d, "select scope || ' ' || key || ' ' || reason || ' until ' || coalesce(until::text, 'mended') || ' now ' || clock_timestamp() from pause")...)
	return strings.Join(lines, "\n  ")
}

// log is what the replicas have said so far.
func (d *drill) log() string {
	d.t.Helper()
	b, err := os.ReadFile(d.logPath)
	if err != nil {
		d.t.Fatal(err)
	}
	return string(b)
}

// metric sums a series over all replicas; labels are its text in braces, as it is shown, or a part of it.
func (d *drill) metric(name, labels string) (sum float64) {
	d.t.Helper()
	for _, a := range d.replicas {
		for line := range strings.SplitSeq(fetch(d.t, "http://"+a.MetricsAddr()+"/metrics", 200), "\n") {
			if series, value, ok := strings.Cut(line, " "); ok && (series == name || strings.HasPrefix(series, name+"{")) && strings.Contains(series, labels) {
				var v float64
				if _, err := fmt.Sscan(value, &v); err != nil {
					d.t.Fatalf("%s: %v", line, err)
				}
				sum += v
			}
		}
	}
	return sum
}

// roots are the messages of a Slack channel that stand by themselves.
func (d *drill) roots(channel string) []slacktest.Message {
	return slices.DeleteFunc(d.slack.Messages(channel), func(m slacktest.Message) bool { return m.ThreadTS != "" && m.ThreadTS != m.TS })
}

// cards are the messages of a Telegram chat that are no reply.
func (d *drill) cards(chat int64) []telegramtest.Message {
	return slices.DeleteFunc(d.telegram.Messages(chat), func(m telegramtest.Message) bool { return m.ReplyTo != 0 })
}

// outlast waits until all is settled. Of what an outage strikes again and again the last few would take long: it ends when
// most are through.
func (d *drill) outlast() {
	d.t.Helper()
	const step = 3 * time.Second
	d.until("most are out in spite of the outage", step, func() bool {
		return ask[bool](d, "select count(*) filter (where next_at is not null) <= count(*) / 4 from delivery")
	})
	d.slack.ClearFaults()
	d.telegram.ClearFaults()
	d.until("all are out", step, d.settled())
}

// outage is what a chat in trouble does with a method: of ten calls it stores three and drops the connection, fails three,
// and does not answer one.
func outage(chat *chattest.Core, method string) {
	for _, f := range []chattest.Fault{
		{Kind: chattest.Drop, Method: method, Probability: 0.3},
		{Kind: chattest.Error, Method: method, Status: 500, Probability: 0.15},
		{Kind: chattest.Error, Method: method, Status: 503, Probability: 0.15},
		{Kind: chattest.Hang, Method: method, Probability: 0.1},
	} {
		chat.MustFault(f)
	}
}
