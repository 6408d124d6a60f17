package app

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/client"
	"github.com/tocsin-oncall/tocsin/pkg/provider/slack/slacktest"
	"github.com/tocsin-oncall/tocsin/pkg/store"
	"github.com/tocsin-oncall/tocsin/pkg/store/storetest"
)

// peerTap stands between Alertmanager and tocsin. It passes everything on as it is, and keeps what was said.
type peerTap struct {
	mu       sync.Mutex
	messages []peerMessage
}

// peerMessage is one webhook call with tocsin's answer.
type peerMessage struct {
	GroupKey string
	Status   string // of the group, as Alertmanager sees it
	Alerts   []struct{ Status string }
	Code     int
	Answer   string
	auth     string
}

func (p *peerTap) handler(t *testing.T, tocsin string) http.Handler {
	to, err := url.Parse(tocsin)
	if err != nil {
		t.Fatal(err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		var m peerMessage
		if err := json.Unmarshal(body, &m); err != nil {
			t.Errorf("Alertmanager sent no JSON: %v: %s", err, body)
		}
		m.auth = r.Header.Get("Authorization")
		r.Body = io.NopCloser(bytes.NewReader(body))
		proxy := &httputil.ReverseProxy{
			Rewrite: func(pr *httputil.ProxyRequest) { pr.SetURL(to); pr.Out.Host = pr.In.Host },
			ModifyResponse: func(resp *http.Response) error {
				answer, err := io.ReadAll(resp.Body)
				resp.Body = io.NopCloser(bytes.NewReader(answer))
				m.Code, m.Answer = resp.StatusCode, string(answer)
				p.mu.Lock()
				defer p.mu.Unlock()
				p.messages = append(p.messages, m)
				return err
			},
		}
		proxy.ServeHTTP(w, r)
	})
}

// of lists the messages of one group, the one named by a label pair of its key.
func (p *peerTap) of(group string) []peerMessage {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []peerMessage
	for _, m := range p.messages {
		if strings.Contains(m.GroupKey, group) {
			out = append(out, m)
		}
	}
	return out
}

// peerWorld is one tocsin with a simulated Slack, and an Alertmanager that sends to it.
type peerWorld struct {
	database string
	slack    *slacktest.Server
	client   *client.Client
	tap      *peerTap
	am       *alertmanager
}

const peerFile = `
server: {listen: "127.0.0.1:0", metrics_listen: "127.0.0.1:0", public_url: "http://tocsin.localhost", tokens: [{name: am, hash: "sha256:%s", scopes: [admin]}]}
database: {url: %q}
users: [{id: ana, name: Ana Torres, contacts: [{via: slack-dm, address: U0ANA}]}]
escalations: {default: {steps: [{after: 0s, page: ["user:ana"]}]}}
notifiers:
  ops-slack: {type: slack, token: %q, channel: C0OPS, api_url: %q}
  slack-dm: {type: slack, token: %[3]q, api_url: %[4]q}
routes:
  - {match: "alert.*.critical.db", notify: [ops-slack], escalate: default}
  - {match: "alert.*.*._tocsin", notify: [ops-slack]}
`

// One group an incident. The intervals are short so that the test is; Alertmanager's own bounds allow it.
const peerAlertmanager = `
route:
  receiver: tocsin
  group_by: [alertname, cluster]
  group_wait: 100ms
  group_interval: 400ms
  repeat_interval: 4h
  routes:
    - {matchers: ['cluster="again"'], receiver: tocsin, repeat_interval: 500ms}
    - {matchers: ['cluster="cut"'], receiver: short}
receivers:
  - name: tocsin
    webhook_configs:
      - {url: %[1]q, send_resolved: true, http_config: {authorization: {type: Bearer, credentials: %[2]q}}}
  - name: short
    webhook_configs:
      - {url: %[1]q, send_resolved: true, max_alerts: 1, http_config: {authorization: {type: Bearer, credentials: %[2]q}}}
`

func newPeerWorld(t *testing.T) *peerWorld {
	t.Helper()
	w := &peerWorld{database: storetest.New(t), slack: slacktest.Start(t, slacktest.Options{}), tap: &peerTap{}}
	token, hash := store.MakeToken()
	file := filepath.Join(t.TempDir(), "tocsin.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, peerFile, hex.EncodeToString(hash), w.database, w.slack.Options().Token, w.slack.APIURL()), 0o600); err != nil {
		t.Fatal(err)
	}
	var listeners [2]net.Listener
	for i := range listeners {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listeners[i] = l
	}
	a, err := New(t.Context(), Options{Path: file, Env: func(string) (string, bool) { return "", false }, ID: "peer", API: listeners[0], Metrics: listeners[1]})
	if err != nil {
		t.Fatal(err)
	}
	life, end := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(life) }()
	t.Cleanup(func() {
		end()
		if err := <-ended; err != nil {
			t.Errorf("tocsin did not end well: %v", err)
		}
	})
	if err := awaitReady(t.Context(), a.Addr()); err != nil {
		t.Fatal(err)
	}
	tap := httptest.NewServer(w.tap.handler(t, "http://"+a.Addr()))
	t.Cleanup(tap.Close)
	if w.client, err = client.New("http://"+a.Addr(), token); err != nil {
		t.Fatal(err)
	}
	w.am = startAlertmanager(t, fmt.Sprintf(peerAlertmanager, tap.URL+"/v1/alertmanager", token))
	return w
}

// incident is the newest incident of a group, with its timeline.
func (w *peerWorld) incident(t *testing.T, group string) api.Incident {
	t.Helper()
	all, err := w.client.Incidents(within(t), client.Query{})
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range all.Items {
		if strings.Contains(i.Key, group) {
			full, err := w.client.Incident(within(t), i.ID)
			if err != nil {
				t.Fatal(err)
			}
			return full
		}
	}
	return api.Incident{}
}

// cards are the cards of a group's incidents, oldest first.
func (w *peerWorld) cards(title string) []slacktest.Message {
	var out []slacktest.Message
	for _, m := range w.slack.Messages("C0OPS") {
		if m.ThreadTS == "" && holds(m, title) {
			out = append(out, m)
		}
	}
	return out
}

// shows waits until the newest of n cards has the colour of a state and its last reply the text.
func (w *peerWorld) shows(t *testing.T, title string, n int, state, reply string) slacktest.Message {
	t.Helper()
	var card slacktest.Message
	err := w.slack.WaitFor(within(t), func(s *slacktest.Server) bool {
		cards := w.cards(title)
		if len(cards) != n {
			return false
		}
		card = cards[n-1]
		replies := s.Replies("C0OPS", card.TS)
		return card.Colour() == chaosColours[state] && len(replies) > 0 && holds(replies[len(replies)-1], reply)
	})
	if err != nil {
		t.Fatalf("%s: %v; cards %+v, replies %+v; messages %+v", title, err, w.cards(title), w.slack.Replies("C0OPS", card.TS), w.tap.of(""))
	}
	return card
}

// TestAlertmanager has the real Alertmanager, unmodified, as the client.
func TestAlertmanager(t *testing.T) {
	t.Parallel()
	w := newPeerWorld(t)

	t.Run("groups", func(t *testing.T) {
		t.Parallel()
		w.groups(t)
	})
	t.Run("again after a refusal", func(t *testing.T) {
		t.Parallel()
		w.refused(t)
	})
	t.Run("re-sends", func(t *testing.T) {
		t.Parallel()
		w.resent(t)
	})
	t.Run("cut short", func(t *testing.T) {
		t.Parallel()
		w.cut(t)
	})
	t.Run("fires anew", func(t *testing.T) {
		t.Parallel()
		w.anew(t)
	})
}

// groups: a group is an incident with one card; it stays open while some of it fires, and closes with the last.
func (w *peerWorld) groups(t *testing.T) {
	one, two, other := fires("DiskFull", "north", "db-1"), fires("DiskFull", "north", "db-2"), fires("DiskFull", "south", "db-1")
	w.am.post(t, one, two, other)
	w.shows(t, "DiskFull in north", 1, "open", "Paging Ana Torres")
	w.shows(t, "DiskFull in south", 1, "open", "Paging Ana Torres")
	if i := w.incident(t, `cluster="north"`); i.Key != w.tap.of(`cluster="north"`)[0].GroupKey || i.State != "open" || i.Firing != 2 || i.Source != "alertmanager" || i.Topic != "alert.diskfull.critical.db" {
		t.Errorf("the group's incident is %+v", i)
	}
	for _, m := range w.tap.of("DiskFull") {
		if m.Code != http.StatusAccepted || !strings.HasPrefix(m.auth, "Bearer ") {
			t.Errorf("a message was answered with %d %s", m.Code, m.Answer)
		}
	}

	w.am.post(t, one.ended(), two)
	w.shows(t, "DiskFull in north", 1, "open", "Alert resolved: DiskFull in north (")
	if i := w.incident(t, `cluster="north"`); i.State != "open" || i.Firing != 1 || i.Resolved != 1 {
		t.Errorf("a partly resolved group's incident is %+v", i)
	}

	w.am.post(t, two.ended())
	card := w.shows(t, "DiskFull in north", 1, "resolved", "Resolved after")
	i := w.incident(t, `cluster="north"`)
	if i.State != "resolved" || i.Firing != 0 || i.Resolved != 2 || i.ResolvedBy != "source:alertmanager" {
		t.Errorf("a resolved group's incident is %+v", i)
	}
	if pages := w.slack.Messages("U0ANA"); len(pages) == 0 {
		t.Error("nobody was paged")
	}
	if replies := w.slack.Replies("C0OPS", card.TS); strings.Contains(replies[0].Text, "Resolved") {
		t.Errorf("the closing reply came first: %+v", replies)
	}
	if i := w.incident(t, `cluster="south"`); i.State != "open" || i.Firing != 1 {
		t.Errorf("the other group's incident is %+v", i)
	}
	w.shows(t, "DiskFull in south", 1, "open", "Paging Ana Torres")
}

// refused: while the database takes nothing, the answer is 503, and Alertmanager sends again by itself.
func (w *peerWorld) refused(t *testing.T) {
	conn, err := pgx.Connect(t.Context(), w.database)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	// What a full disk does, for this one group.
	if _, err := conn.Exec(t.Context(), `
		create function refuse() returns trigger language plpgsql as $$ begin raise exception 'no space left on device' using errcode = '53100'; end $$;
		create trigger refuse before insert on incident for each row when (new.key like '%cluster="refused"%') execute function refuse()`); err != nil {
		t.Fatal(err)
	}
	w.am.post(t, fires("NoSpace", "refused", "db-1"))
	eventually(t, "tocsin refuses", func() bool { return len(w.tap.of("refused")) >= 2 })
	for _, m := range w.tap.of("refused") {
		if m.Code != http.StatusServiceUnavailable || strings.Contains(m.Answer, "no space") {
			t.Errorf("the refusal was %d %s", m.Code, m.Answer)
		}
	}
	if len(w.cards("NoSpace")) != 0 {
		t.Error("a refused alert has a card")
	}
	if _, err := conn.Exec(t.Context(), "drop trigger refuse on incident"); err != nil {
		t.Fatal(err)
	}
	w.shows(t, "NoSpace in refused", 1, "open", "Paging Ana Torres")
	if i := w.incident(t, `cluster="refused"`); i.Count != 1 || i.Firing != 1 {
		t.Errorf("the incident after refusals is %+v", i)
	}
}

// resent: what Alertmanager repeats is counted, and nothing else moves.
func (w *peerWorld) resent(t *testing.T) {
	w.am.post(t, fires("Slow", "again", "db-1"))
	card := w.shows(t, "Slow in again", 1, "open", "Paging Ana Torres")
	eventually(t, "Alertmanager repeats", func() bool { return len(w.tap.of("again")) >= 4 })
	eventually(t, "the repeats are counted", func() bool { return w.incident(t, `cluster="again"`).Count >= 4 })
	i := w.incident(t, `cluster="again"`)
	if i.Firing != 1 || i.State != "open" || len(i.Timeline) != 2 {
		t.Errorf("after %d repeats the incident is %+v", len(w.tap.of("again")), i)
	}
	if n := one[int](t, w.database, "select max(desired_revision) from card_state where incident_id = $1::uuid", i.ID); n != 1 {
		t.Errorf("repeats raised the card's revision to %d", n)
	}
	if m, ok := w.slack.Message(card.TS); !ok || len(m.Edits) != 0 {
		t.Errorf("repeats edited the card: %+v", m)
	}
}

// cut: where Alertmanager leaves alerts out of its messages, nobody knows their state, and nothing closes silently.
func (w *peerWorld) cut(t *testing.T) {
	one, two := fires("Lag", "cut", "db-1"), fires("Lag", "cut", "db-2")
	w.am.post(t, one, two)
	w.shows(t, "Lag in cut", 1, "open", "The source left 1 alert out")
	w.am.post(t, one.ended(), two.ended())
	w.shows(t, "Lag in cut", 1, "open", "Alert resolved: Lag in cut")
	if i := w.incident(t, `cluster="cut"`); i.State != "open" || i.Firing != 0 || i.Resolved != 1 {
		t.Errorf("the incident of a message that was cut short is %+v", i)
	}
}

// anew: the same group firing again after its end is another incident with another card; the old one stays green.
func (w *peerWorld) anew(t *testing.T) {
	a := fires("Flaps", "east", "db-1")
	w.am.post(t, a)
	w.shows(t, "Flaps in east", 1, "open", "Paging Ana Torres")
	w.am.post(t, a.ended())
	first := w.shows(t, "Flaps in east", 1, "resolved", "Resolved after")
	before := w.incident(t, `cluster="east"`)
	a.StartsAt = time.Now()
	w.am.post(t, a)
	w.shows(t, "Flaps in east", 2, "open", "Paging Ana Torres")
	if i := w.incident(t, `cluster="east"`); i.ID == before.ID || i.State != "open" || i.Key != before.Key {
		t.Errorf("firing anew made %+v after %+v", i, before)
	}
	if m, ok := w.slack.Message(first.TS); !ok || m.Colour() != chaosColours["resolved"] {
		t.Errorf("the first card is %+v", m)
	}
}
