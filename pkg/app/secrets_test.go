package app

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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
	var calls sync.Map      // by path
	far := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := secret.Load().(string)
		n, _ := calls.LoadOrStore(r.URL.Path, &atomic.Int64{})
		switch i := n.(*atomic.Int64).Add(1); {
		case i > 6: // what comes after it waits: a wrong URL rests
			http.Redirect(w, r, s+"?moved", http.StatusFound)
		case i%2 == 0:
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				_ = conn.Close() // the error names the URL
			}
		default:
			w.WriteHeader(http.StatusInternalServerError)
			fmt.Fprintf(w, "you called %s, %s and %s", s, url.QueryEscape(s), base64.StdEncoding.EncodeToString([]byte(s)))
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
  slack: {type: slack, webhook_url: "${SLACK_URL}", pace: off, retries: {delay: 10ms, max_delay: 10ms}}
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

// mirror plays every provider, and gives back what it is called with in every way that a provider could: in bodies, headers,
// redirects, codes, look-ups and probes. What it holds are the secrets in all their forms.
type mirror struct {
	mu    sync.Mutex
	calls map[string]int
	echo  string
}

// formsOf are the ways in which a server may write a secret down.
func formsOf(secret string) []string {
	quoted, _ := json.Marshal(secret)
	return []string{
		secret, url.QueryEscape(secret), url.PathEscape(secret), strings.Trim(string(quoted), `"`), strings.Trim(strconv.QuoteToASCII(secret), `"`),
		base64.StdEncoding.EncodeToString([]byte(secret)), base64.RawURLEncoding.EncodeToString([]byte(secret)),
		base64.StdEncoding.EncodeToString([]byte("Bearer " + secret)), base64.StdEncoding.EncodeToString([]byte("tocsin:" + secret)),
	}
}

func (m *mirror) count(what string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.calls[what]
}

func (m *mirror) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	method := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	switch {
	case strings.HasPrefix(r.URL.Path, "/services/"):
		method = "slack webhook"
	case strings.HasPrefix(r.URL.Path, "/hook"):
		method = "webhook"
	case strings.Contains(r.Header.Get("Authorization")+string(body), "xoxb-broken"):
		method += " broken"
	}
	m.mu.Lock()
	n := m.calls[method]
	m.calls[method]++
	m.mu.Unlock()
	said := strings.Join([]string{m.echo, r.URL.String(), r.Header.Get("Authorization"), url.QueryEscape(r.URL.Path)}, " ")
	quoted, _ := json.Marshal(said + " " + string(body[:min(len(body), 200)]))
	for _, name := range []string{"X-Echo", "Www-Authenticate", "X-Oauth-Scopes", "X-Slack-Req-Id"} {
		w.Header().Set(name, said)
	}
	answer := func(status int, text string) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, strings.ReplaceAll(text, "ECHO", string(quoted)))
	}
	drop := func() {
		if conn, _, err := w.(http.Hijacker).Hijack(); err == nil {
			_ = conn.Close()
		}
	}
	redirect := func() {
		w.Header().Set("Location", r.URL.Path+"?to="+url.QueryEscape(said))
		answer(http.StatusFound, said)
	}
	// A token that is refused stays so until the probes have had all their answers: a call that was under way at the same time and
	// went well would end the pause before.
	revoked := func() {
		m.mu.Lock()
		if m.calls["getMe"] < 4 {
			m.calls[method] = n
		}
		m.mu.Unlock()
		answer(401, `{"ok":false,"error_code":401,"description":ECHO}`)
	}
	// Each is a list of answers, one after the other; the last one stays.
	answers := map[string][]func(){
		"chat.postMessage": {
			func() { answer(500, said) }, drop, func() { answer(200, `{"ok":false,"error":ECHO}`) }, redirect, func() { answer(200, said) },
			func() {
				answer(200, `{"ok":false,"error":"internal_error","detail":ECHO,"response_metadata":{"messages":[ECHO]}}`)
			},
			func() {
				answer(200, `{"ok":false,"error":"invalid_blocks","errors":[ECHO],"response_metadata":{"messages":[ECHO]}}`)
			},
			func() { answer(200, `{"ok":false,"error":"not_in_channel","needed":ECHO}`) },
			func() {
				answer(200, `{"ok":true,"channel":"C0OPS","ts":"1700000000.000100","warning":ECHO,"message":{"text":ECHO}}`)
			},
			func() { answer(200, `{"ok":true,"channel":"C0OPS","ts":"1700000000.000100"}`) },
		},
		"chat.postMessage broken": {func() { answer(200, `{"ok":false,"error":"missing_scope","needed":ECHO,"provided":ECHO}`) }},
		"auth.test": {func() {
			answer(200, `{"ok":true,"user_id":"U0BOT","bot_id":"B0BOT","team":ECHO,"url":ECHO,"user":ECHO}`)
		}},
		"auth.test broken": {func() { answer(200, `{"ok":false,"error":ECHO}`) }, func() { answer(500, said) }, redirect, drop},
		"conversations.history": {
			func() { answer(200, `{"ok":false,"error":ECHO}`) }, func() { answer(500, said) }, redirect,
			func() {
				answer(200, `{"ok":true,"has_more":false,"messages":[{"ts":"1700000000.000200","user":"U0BOT","text":ECHO,"metadata":{"event_type":ECHO,"event_payload":{"effect_key":ECHO}}}]}`)
			},
		},
		"slack webhook": {
			func() { answer(500, said) }, drop, redirect, func() { answer(400, said) }, func() { answer(403, "invalid_token "+said) }, func() { answer(429, said) }, func() { answer(200, said) },
			func() { answer(200, "ok") },
		},
		"sendMessage": {
			func() { answer(500, said) }, drop, func() { answer(500, `{"ok":false,"error_code":500,"description":ECHO}`) }, redirect, func() { answer(200, said) },
			func() { answer(400, `{"ok":false,"error_code":400,"description":ECHO}`) },
			func() { answer(403, `{"ok":false,"error_code":403,"description":ECHO}`) },
			func() {
				answer(429, `{"ok":false,"error_code":429,"description":ECHO,"parameters":{"retry_after":1}}`)
			},
			revoked,
			func() {
				answer(200, `{"ok":true,"result":{"message_id":7,"chat":{"id":-1001000000001,"type":"supergroup","title":ECHO},"text":ECHO}}`)
			},
			func() {
				answer(200, `{"ok":true,"result":{"message_id":8,"chat":{"id":-1001000000001,"type":"supergroup"}}}`)
			},
		},
		"getMe": {func() { answer(401, `{"ok":false,"error_code":401,"description":ECHO}`) }, func() { answer(500, said) }, redirect, drop, func() {
			answer(200, `{"ok":true,"result":{"id":1,"is_bot":true,"first_name":ECHO,"username":ECHO}}`)
		}},
		"webhook": {
			func() { answer(500, said) }, drop, redirect, func() { answer(401, said) }, func() { answer(503, said) }, func() { answer(404, said) }, func() { answer(200, said) }, func() { answer(200, "") },
		},
	}[method]
	if len(answers) == 0 {
		answer(404, said)
		return
	}
	answers[min(n, len(answers)-1)]()
}

const mirrorFile = `
notifiers:
  slack: {type: slack, token: "${SLACK_SECRET}", signing_secret: "${SIGNING_SECRET}", channel: C0OPS, api_url: "MIRROR/api/", timeout: 2s, pace: off, retries: {delay: 10ms, max_delay: 10ms}}
  broken: {type: slack, token: "${BROKEN_SECRET}", channel: C0OPS, api_url: "MIRROR/api/", timeout: 2s, pace: off}
  hooked: {type: slack, webhook_url: "${SLACK_URL}", timeout: 2s, pace: off, retries: {delay: 10ms, max_delay: 10ms}}
  telegram: {type: telegram, token: "${BOT_SECRET}", chat_id: "-1001000000001", api_url: "MIRROR", timeout: 2s, pace: off, retries: {delay: 10ms, max_delay: 10ms}}
  hook: {type: webhook, url: "${HOOK_URL}", secret: "${HOOK_SECRET}", headers: {Authorization: "Bearer ${HOOK_HEADER}", X-Key: "${HOOK_KEY}"}, timeout: 2s, retries: {delay: 10ms, max_delay: 10ms}}
routes: [{match: "alert.*.*.db", notify: [slack, broken, hooked, telegram, hook]}]
`

// Every provider gives its credentials back, in bodies, headers, redirects, codes, look-ups and probes. No table, no line of a
// log, no answer of the API and no page holds a secret in any form.
func TestCredentialsThatAreGivenBackAreWrittenNowhere(t *testing.T) {
	t.Parallel()
	m := &mirror{calls: map[string]int{}}
	far := httptest.NewServer(m)
	t.Cleanup(far.Close)
	// Each has a middle that no escape touches, and around it characters that some escape or other does.
	middle := map[string]string{}
	secret := func(name, form string) string {
		middle[name] = strings.ToLower(strings.ReplaceAll(name, "_", "")) + randomWord()
		return fmt.Sprintf(form, middle[name])
	}
	values := map[string]string{
		"SLACK_SECRET": secret("SLACK_SECRET", "xoxb-1/2+3&%s=4"), "BROKEN_SECRET": secret("BROKEN_SECRET", "xoxb-broken-%s"), "SIGNING_SECRET": secret("SIGNING_SECRET", "%s"),
		"SLACK_URL": secret("SLACK_URL", far.URL+"/services/T0001/B0002/%s"), "BOT_SECRET": secret("BOT_SECRET", "110201543:AAH_%s-x"),
		"HOOK_URL": secret("HOOK_URL", far.URL+"/hook?key=%s&b=1"), "HOOK_HEADER": secret("HOOK_HEADER", `a"b<c>/%s+=`), "HOOK_KEY": secret("HOOK_KEY", `k&"%s`),
	}
	values["HOOK_SECRET"] = "whsec_" + base64.StdEncoding.EncodeToString([]byte(secret("HOOK_SECRET", "%s0123456789abcdef")))
	// What is logged of an answer is its beginning: one secret is always there.
	echo := formsOf(values["SLACK_SECRET"])
	for _, v := range values {
		echo = append(echo, formsOf(v)...)
	}
	m.echo = strings.Join(echo, " ")

	d := newDrill(t, drillSetup{replicas: 2, file: strings.ReplaceAll(mirrorFile, "MIRROR", far.URL), values: values})
	enough := map[string]int{
		"chat.postMessage": 10, "chat.postMessage broken": 1, "auth.test broken": 5, "conversations.history": 5, "slack webhook": 9, "sendMessage": 11, "getMe": 4, "webhook": 8,
	}
	sent := 0
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("calls: %v; asked for: %v", m.calls, enough)
		}
	})
	d.until("every way out has given its secrets back in every way", 20*time.Second, func() bool {
		if sent < 20 { // some are refused for good: others must come after them
			d.fire(sent, "db", "warning", fmt.Sprint("mirror ", sent))
			sent++
		}
		for what, n := range enough {
			if m.count(what) < n {
				return false
			}
		}
		return true
	})

	base := "http://" + d.replicas[0].Addr()
	var said, pages strings.Builder
	get := func(into *strings.Builder, path string) {
		n, body := status(t, base+path)
		if n != http.StatusOK {
			t.Errorf("%s: %d %s", path, n, body)
		}
		into.WriteString(body)
	}
	for _, path := range []string{"/v1/deliveries?limit=200", "/v1/incidents?limit=200", "/v1/notifiers", "/openapi.json"} {
		get(&said, path)
	}
	for _, id := range list[string](d, "select id::text from delivery order by id limit 100") {
		get(&said, "/v1/deliveries/"+id)
	}
	for _, id := range list[string](d, "select id::text from incident order by id limit 20") {
		get(&said, "/v1/incidents/"+id)
		get(&pages, "/incidents/"+id)
	}
	for _, a := range d.replicas {
		said.WriteString(fetch(t, "http://"+a.MetricsAddr()+"/metrics", http.StatusOK))
	}
	d.stop()
	places := map[string]string{"the database": wholeDatabase(t, d.database), "the log": d.log(), "the API": said.String(), "a page": pages.String()}
	for where, text := range places {
		if where != "a page" && !strings.Contains(text, "${SLACK_SECRET}") {
			t.Errorf("%s does not name ${SLACK_SECRET}: nothing was given back there", where)
		}
		for name, value := range values {
			for _, form := range append(formsOf(value), middle[name], d.database) {
				if at := strings.Index(text, form); at >= 0 {
					t.Errorf("%s holds %s: …%s…", where, name, text[max(0, at-120):min(len(text), at+len(form)+40)])
					break
				}
			}
		}
	}
}
