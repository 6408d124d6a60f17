package app

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/client"
	"github.com/tocsin-oncall/tocsin/pkg/provider/chattest"
	"github.com/tocsin-oncall/tocsin/pkg/provider/slack/slacktest"
	"github.com/tocsin-oncall/tocsin/pkg/store"
	"github.com/tocsin-oncall/tocsin/pkg/store/storetest"
)

// one asks the database for a single value.
func one[T any](t testing.TB, url, query string, args ...any) (v T) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if err := conn.QueryRow(t.Context(), query, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return v
}

// eventually asks again and again, at most for the test's patience.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	ctx := within(t)
	for !ok() {
		select {
		case <-ctx.Done():
			t.Fatalf("%s: it did not come to that", what)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// status is a GET's status and body; 0 while nobody answers.
func status(t testing.TB, url string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(within(t), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b)
}

// A dashboard and an alert on a rate need every series from the first scrape on.
func TestMetricsAreThereFromTheStart(t *testing.T) {
	t.Parallel()
	e, _ := startDev(t)
	text := fetch(t, "http://"+e.Replicas[0].MetricsAddr()+"/metrics", http.StatusOK)
	for _, series := range []string{
		`tocsin_attempts_total{kind="page",notifier="slack-dm",outcome="unknown"} 0`,
		`tocsin_deliveries_total{kind="card",state="rejected"} 0`,
		`tocsin_deliveries_waiting{kind="page",notifier="telegram-dm"} 0`,
		`tocsin_oldest_due_seconds{kind="card"} 0`,
		`tocsin_alerts_total{source="alertmanager"} 0`,
		`tocsin_decisions_total{action="send_again"} 0`,
		`tocsin_late_answers_total{outcome="sent"} 0`,
		`tocsin_attempt_seconds_count{kind="card",notifier="ops-slack"} 0`,
		`tocsin_page_seconds_count 0`, `tocsin_unrouted_total 0`, `tocsin_retries_total 0`, `tocsin_gave_up_total 0`, `tocsin_purged_total{what="incidents"} 0`, `tocsin_takeovers_total 0`,
		`tocsin_fenced_writes_total 0`, `tocsin_file_error 0`, `tocsin_oncall_gaps 0`, `tocsin_file_info{checksum="`,
	} {
		if !strings.Contains(text, "\n"+series) {
			t.Errorf("there is no %s", series)
		}
	}
	fetch(t, "http://"+e.Replicas[0].MetricsAddr()+"/v1/incidents", http.StatusOK) // metrics, whatever the path: never the API
	if code, _ := status(t, e.URL()+"/metrics"); code != http.StatusNotFound {
		t.Errorf("/metrics on the API's port: %d", code)
	}
}

// A call in flight when the signal comes is finished and recorded; until then the surface answers, and says that this
// replica is leaving.
func TestStopFinishesCallsInFlight(t *testing.T) {
	t.Parallel()
	url := storetest.New(t)
	e, err := StartDev(t.Context(), DevOptions{Dir: t.TempDir(), Database: url, AnyPorts: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Stop)
	hang := e.Slack.MustFault(chattest.Fault{Kind: chattest.Hang, Method: "chat.postMessage"})
	if err := e.SendSample(within(t)); err != nil {
		t.Fatal(err)
	}
	if err := e.Slack.WaitFor(within(t), func(s *slacktest.Server) bool {
		return len(s.Ledger(chattest.ByMethod("chat.postMessage"))) > 0
	}); err != nil {
		t.Fatal(err)
	}
	// The one that has nothing in flight may be gone before it is asked.
	busy := one[string](t, url, "select a.worker from attempt a join delivery d on d.id = a.delivery_id where a.finished_at is null and d.notifier = 'ops-slack' limit 1")
	surface := ""
	for _, a := range e.Replicas {
		if a.id == busy {
			surface = "http://" + a.Addr()
		}
	}
	stopped := make(chan struct{})
	go func() {
		e.Stop()
		close(stopped)
	}()
	eventually(t, "not ready while stopping", func() bool {
		code, body := status(t, surface+"/readyz")
		return code == http.StatusServiceUnavailable && strings.Contains(body, "stopping")
	})
	c, err := client.New(surface, e.Token)
	if err != nil {
		t.Fatal(err)
	}
	var p *api.Problem
	l, err := c.Deliveries(within(t), client.Query{Kind: "card"})
	if err != nil || len(l.Items) == 0 {
		t.Fatalf("the surface does not answer while stopping: %v", err)
	}
	if _, err := c.Decide(within(t), l.Items[0].ID, api.Decide{Action: api.ActionCancel, Reason: "r"}); !errors.As(err, &p) || p.Status != 503 || p.Detail != "alerts are not running" {
		t.Errorf("a decision while stopping: %v", err)
	}
	e.Slack.ClearFault(hang)
	select {
	case <-stopped:
	case <-within(t).Done():
		t.Fatal("it did not stop")
	}
	if n := one[int](t, url, "select count(*) from attempt where finished_at is null"); n != 0 {
		t.Errorf("%d attempts are left open", n)
	}
	if n := one[int](t, url, "select count(*) from delivery where lease_token is not null"); n != 0 {
		t.Errorf("%d leases are left", n)
	}
	if got := one[string](t, url, "select outcome from attempt_history where kind = 'card' and notifier = 'ops-slack'"); got != "sent" {
		t.Errorf("the call in flight was recorded as %s", got)
	}
	if n := one[int](t, url, "select count(*) from replica"); n != 0 {
		t.Errorf("%d replicas are still announced", n)
	}
}

// A9 for the whole instance: what came from ${NAME} is nowhere in the log nor in the database.
func TestSecretsAreWrittenNowhere(t *testing.T) {
	t.Parallel()
	url := storetest.New(t)
	e, err := StartDev(t.Context(), DevOptions{Dir: t.TempDir(), Database: url, AnyPorts: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Stop)
	token, telegram := e.Slack.Options().Token, e.Telegram.Options().Token
	e.Slack.MustFault(chattest.Fault{Kind: chattest.Answer, Method: "chat.postMessage", Status: 500, Body: "you sent " + token, Count: 1})
	e.Telegram.MustFault(chattest.Fault{Kind: chattest.Reset, Method: "sendMessage", Count: 2})
	if err := e.SendSample(within(t)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the failed calls are recorded", func() bool {
		return one[int](t, url, "select count(*) from attempt where outcome = 'unknown' and error <> ''") >= 3
	})
	e.Stop()
	log, err := os.ReadFile(filepath.Join(e.Dir, "tocsin.log"))
	if err != nil || !strings.Contains(string(log), `"outcome":"unknown"`) {
		t.Fatalf("the log does not tell of the attempts: %v", err)
	}
	dump := one[string](t, url, "select string_agg(a::text, ' ') from attempt a") + one[string](t, url, "select string_agg(d::text, ' ') from delivery d")
	if !strings.Contains(dump, "${SLACK_TOKEN}") {
		t.Error("the echoed token was not put back as ${SLACK_TOKEN}")
	}
	for name, secret := range map[string]string{"SLACK_TOKEN": token, "TELEGRAM_TOKEN": telegram, "TELEGRAM_SECRET": e.Telegram.Options().WebhookSecret, "API token": e.Token} {
		if strings.Contains(string(log), secret) {
			t.Errorf("the log holds %s", name)
		}
		if strings.Contains(dump, secret) {
			t.Errorf("the database holds %s", name)
		}
	}
}

// link is a way to the database that a test can cut.
type link struct {
	l      net.Listener
	target string
	mu     sync.Mutex
	cut    bool
	open   map[net.Conn]bool
}

func newLink(t *testing.T, target string) *link {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	k := &link{l: l, target: target, open: map[net.Conn]bool{}}
	t.Cleanup(func() {
		_ = l.Close()
		k.set(true)
	})
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			go k.carry(in)
		}
	}()
	return k
}

func (k *link) carry(in net.Conn) {
	defer in.Close()
	out, err := net.Dial("tcp", k.target)
	if err != nil {
		return
	}
	defer out.Close()
	k.mu.Lock()
	if k.cut {
		k.mu.Unlock()
		return
	}
	k.open[in], k.open[out] = true, true
	k.mu.Unlock()
	done := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
		go func() {
			_, _ = io.Copy(way[0], way[1])
			done <- struct{}{}
		}()
	}
	<-done
	k.mu.Lock()
	delete(k.open, in)
	delete(k.open, out)
	k.mu.Unlock()
}

// set cuts the link, dropping every connection, or mends it.
func (k *link) set(cut bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.cut = cut
	if cut {
		for c := range k.open {
			_ = c.Close()
		}
	}
}

// D18: all connections to Postgres are dropped and none can be made for a while. Replicas say so and take nothing
// that they can't commit; when the database is back they go on by themselves, and nothing accepted is lost.
func TestDatabaseGoesAwayAndComesBack(t *testing.T) {
	t.Parallel()
	direct := storetest.New(t)
	cfg, err := pgx.ParseConfig(direct)
	if err != nil {
		t.Fatal(err)
	}
	host := net.JoinHostPort(cfg.Host, strconv.Itoa(int(cfg.Port)))
	k := newLink(t, host)
	e, err := StartDev(t.Context(), DevOptions{Dir: t.TempDir(), Database: strings.Replace(direct, host, k.l.Addr().String(), 1), AnyPorts: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Stop)
	c, err := client.New(e.URL(), e.Token)
	if err != nil {
		t.Fatal(err)
	}
	// Accepted, and on its way when the database goes: the call ends and its result waits for the database.
	hang := e.Slack.MustFault(chattest.Fault{Kind: chattest.Hang, Method: "chat.postMessage"})
	alert := api.Alert{Kind: "before", Criticality: "warning", Job: "x", Title: "before the outage"}
	if _, err := c.SendAlert(within(t), alert, ""); err != nil {
		t.Fatal(err)
	}
	if err := e.Slack.WaitFor(within(t), func(s *slacktest.Server) bool {
		return len(s.Ledger(chattest.ByMethod("chat.postMessage"))) == 1
	}); err != nil {
		t.Fatal(err)
	}
	k.set(true)
	e.Slack.ClearFault(hang)
	for _, a := range e.Replicas {
		eventually(t, a.ID()+" is not ready during the outage", func() bool {
			code, body := status(t, "http://"+a.Addr()+"/readyz")
			return code == http.StatusServiceUnavailable && strings.Contains(body, "database")
		})
		if code, _ := status(t, "http://"+a.Addr()+"/healthz"); code != http.StatusOK {
			t.Errorf("/healthz of %s during the outage: %d", a.ID(), code)
		}
	}
	var p *api.Problem
	if _, err := c.SendAlert(within(t), api.Alert{Kind: "during"}, ""); !errors.As(err, &p) || p.Status != http.StatusServiceUnavailable {
		t.Errorf("an alert during the outage: %v, want 503", err)
	}
	k.set(false)
	for _, a := range e.Replicas {
		eventually(t, a.ID()+" is ready again", func() bool {
			code, _ := status(t, "http://"+a.Addr()+"/readyz")
			return code == http.StatusOK
		})
	}
	alert.Kind, alert.Title = "after", "after the outage"
	if _, err := c.SendAlert(within(t), alert, ""); err != nil {
		t.Fatal(err)
	}
	if err := e.Slack.WaitFor(within(t), func(s *slacktest.Server) bool {
		before, after := 0, 0
		for _, m := range s.Messages("C0OPS") {
			if m.ThreadTS == "" && holds(m, "before the outage") {
				before++
			}
			if m.ThreadTS == "" && holds(m, "after the outage") {
				after++
			}
		}
		return before == 1 && after == 1
	}); err != nil {
		t.Errorf("%v: %+v", err, e.Slack.Messages("C0OPS"))
	}
	eventually(t, "the result of the call during the outage is recorded", func() bool {
		return one[int](t, direct, "select count(*) from attempt_history where kind = 'card' and outcome = 'sent' and attempt_no = 1 and notifier = 'ops-slack'") == 2
	})
}

func TestNewerSchemaIsRefused(t *testing.T) {
	t.Parallel()
	url := storetest.New(t)
	dir := t.TempDir()
	text, err := devFile{Listen: "127.0.0.1:0", Metrics: "127.0.0.1:0", Public: "http://127.0.0.1:1", SlackAPI: "http://127.0.0.1:1/api/", TelegramAPI: "http://127.0.0.1:1", LogPath: filepath.Join(dir, "log")}.text(store.HashToken("t"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "tocsin.yaml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	env := devSecrets{map[string]string{"TOCSIN_DEV_DATABASE": url, "SLACK_TOKEN": "a-secret", "SLACK_SIGNING_SECRET": "b-secret", "TELEGRAM_TOKEN": "1:c-secret", "TELEGRAM_SECRET": "d-secret"}}
	start := func() error {
		a, err := New(t.Context(), Options{Path: path, Env: env.lookup, Migrate: true})
		if err != nil {
			return err
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		return a.Run(ctx)
	}
	if err := start(); err != nil {
		t.Fatalf("with the right schema: %v", err)
	}
	one[int](t, url, "insert into goose_db_version (version_id, is_applied) values (9999, true) returning 1")
	var differs *store.SchemaError
	if err := start(); !errors.As(err, &differs) || !strings.Contains(err.Error(), "newer") {
		t.Errorf("with a schema that is too new: %v", err)
	}
}

func TestInsecureIsForLoopbackOnly(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]bool{"127.0.0.1:8080": true, "[::1]:8080": true, "localhost:8080": true, ":8080": false, "0.0.0.0:8080": false, "10.0.0.1:80": false, "[::]:80": false, "example.com:80": false, "8080": false} {
		if got := loopback(addr); got != want {
			t.Errorf("loopback(%q) = %v", addr, got)
		}
	}
}

func TestRingsCarryTheirOldestTime(t *testing.T) {
	t.Parallel()
	at := time.UnixMicro(1767603600123456)
	for _, oldest := range []time.Time{at, {}} {
		if id, got, ok := decodeRing(encodeRing("r-1", oldest)); !ok || id != "r-1" || !got.Equal(oldest) {
			t.Errorf("%v became %q %v %v", oldest, id, got, ok)
		}
	}
	for _, strange := range []string{"", "r-1", "r-1 soon"} {
		if _, _, ok := decodeRing(strange); ok {
			t.Errorf("%q was understood", strange)
		}
	}
}
