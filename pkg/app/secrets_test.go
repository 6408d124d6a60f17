package app

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tocsin-oncall/tocsin/pkg/redact"
	"github.com/tocsin-oncall/tocsin/pkg/store/storetest"
)

// wholeDatabase is the text of every row of every table.
func wholeDatabase(t *testing.T, url string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	rows, err := conn.Query(t.Context(), "select format('%I', relname) from pg_class where relkind = 'r' and relnamespace = 'public'::regnamespace")
	if err != nil {
		t.Fatal(err)
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(tables) < 10 {
		t.Fatalf("the tables: %v, %v", tables, err)
	}
	var all strings.Builder
	for _, table := range tables {
		all.WriteString(one[string](t, url, fmt.Sprintf("select coalesce(string_agg(x::text, E'\\n'), '') from %s x", table)))
	}
	return all.String()
}

// A9: URLs that are secrets, in an error, a redirect, an echoed body, URL-encoded and in base64, and as the address of
// an attempt in doubt: the database, the log and the API say ${NAME} only, and the repeat still goes to the real URL.
func TestSecretURLsAreWrittenNowhere(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	var secret atomic.Value // of the answering server's URL, once it listens
	var calls atomic.Int64
	far := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := secret.Load().(string)
		switch calls.Add(1) % 3 {
		case 0:
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				_ = conn.Close() // the error names the URL
			}
		case 1:
			w.WriteHeader(http.StatusInternalServerError)
			fmt.Fprintf(w, "you called %s, %s and %s", s, url.QueryEscape(s), base64.StdEncoding.EncodeToString([]byte(s)))
		default:
			http.Redirect(w, r, s+"?moved", http.StatusFound)
		}
	}))
	defer far.Close()
	slack, hook, gone := far.URL+"/services/T0001/B0002/slackverysecret", far.URL+"/hook/alsosecret", "http://127.0.0.1:1/nobody/listens/heresecret"
	secret.Store(slack)

	dir := t.TempDir()
	path := filepath.Join(dir, "tocsin.yaml")
	if err := os.WriteFile(path, []byte(`
server: {listen: "127.0.0.1:0", metrics_listen: "127.0.0.1:0", public_url: "http://127.0.0.1:1"}
database: {url: "${DB}"}
notifiers:
  slack: {type: slack, webhook_url: "${SLACK_URL}", retries: {delay: 10ms, max_delay: 10ms}}
  hook: {type: webhook, url: "${HOOK_URL}", secret: "${HOOK_SECRET}", retries: {delay: 10ms, max_delay: 10ms}}
  gone: {type: webhook, url: "${GONE_URL}", retries: {count: 3, delay: 10ms, max_delay: 10ms}}
  log: {type: log, path: "${LOG_PATH}"}
routes: [{match: "#", notify: [slack, hook, gone, log]}]
`), 0o600); err != nil {
		t.Fatal(err)
	}
	// The key is split so that no scanner takes it for a real one.
	values := map[string]string{"DB": db, "SLACK_URL": slack, "HOOK_URL": hook, "GONE_URL": gone, "LOG_PATH": filepath.Join(dir, "logpathsecret.jsonl"), "HOOK_SECRET": "whsec_" + base64.StdEncoding.EncodeToString([]byte("0123456789abcdef0123456789abcdef"))}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	set := &atomic.Pointer[redact.Set]{}
	a, err := New(t.Context(), Options{Path: path, Env: devSecrets{values}.lookup, Insecure: true, Log: NewLog(log, set), Secrets: set})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	base := "http://" + a.Addr()
	eventually(t, "the replica is ready", func() bool { n, _ := status(t, base+"/readyz"); return n == http.StatusOK })

	for i := range 3 {
		resp, err := http.Post(base+"/v1/alerts", "application/json", strings.NewReader(fmt.Sprintf(`{"kind": "k", "criticality": "high", "job": "j%d", "title": "t"}`, i)))
		if err != nil {
			t.Fatal(err)
		}
		if b, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusAccepted {
			t.Fatalf("%s: %s", resp.Status, b)
		}
		_ = resp.Body.Close()
	}
	eventually(t, "every way out has failed in several ways and come back after a doubt", func() bool {
		return one[bool](t, db, `select count(*) filter (where notifier = 'slack' and outcome = 'unknown' and attempt_no > 1) > 1
			and count(*) filter (where notifier = 'hook' and outcome = 'unknown') > 1 and count(*) filter (where notifier = 'gone' and outcome = 'failed') >= 12
			and count(*) filter (where notifier = 'log' and outcome = 'sent') >= 3 from attempt_history`)
	})
	var said strings.Builder
	for _, p := range []string{"/v1/deliveries?limit=100", "/v1/incidents", "/openapi.json"} {
		n, body := status(t, base+p)
		if n != http.StatusOK {
			t.Errorf("%s: %d", p, n)
		}
		said.WriteString(body)
	}
	for _, id := range strings.Fields(one[string](t, db, "select string_agg(id::text, ' ') from delivery")) {
		_, body := status(t, base+"/v1/deliveries/"+id)
		said.WriteString(body)
	}
	_, numbers := status(t, "http://"+a.MetricsAddr()+"/metrics")
	said.WriteString(numbers)
	stop()
	if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	lines, err := os.ReadFile(log.Name())
	if err != nil {
		t.Fatal(err)
	}
	places := map[string]string{"the database": wholeDatabase(t, db), "the log": string(lines), "the API": said.String()}
	for where, text := range places {
		for _, name := range []string{"SLACK_URL", "HOOK_URL"} {
			if where != "the API" && !strings.Contains(text, "${"+name+"}") {
				t.Errorf("%s does not name ${%s}", where, name)
			}
		}
		for _, part := range []string{"slackverysecret", "alsosecret", "heresecret", "logpathsecret", url.QueryEscape(slack), base64.StdEncoding.EncodeToString([]byte(slack)), values["HOOK_SECRET"], db} {
			if at := strings.Index(text, part); at >= 0 {
				t.Errorf("%s holds a secret: …%s…", where, text[max(0, at-80):min(len(text), at+len(part)+20)])
			}
		}
	}
}
