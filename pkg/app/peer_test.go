package app

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/client"
	"github.com/tocsin-oncall/tocsin/pkg/provider/slack/slacktest"
	"github.com/tocsin-oncall/tocsin/pkg/store"
	"github.com/tocsin-oncall/tocsin/pkg/store/storetest"
)

// peerTap stands between the senders and tocsin. It passes everything on as it is, and keeps what was said. While there is
// no tocsin, connections break.
type peerTap struct {
	mu       sync.Mutex
	messages []peerMessage
	vain     map[string]int // what broke, by sender
}

// peerMessage is one call of a sender with tocsin's answer.
type peerMessage struct {
	GroupKey string
	Status   string // of the group, as Alertmanager sees it
	Alerts   []struct{ Status string }
	Sender   string
	Path     string
	Body     string
	Code     int
	Answer   string
	auth     string
}

// door is an address of tocsin's for one sender.
func (w *peerWorld) door(sender string) string { return w.doors.URL + "/" + sender }

func (w *peerWorld) pass(out http.ResponseWriter, r *http.Request) {
	sender, path, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	body, err := io.ReadAll(r.Body)
	m := peerMessage{Sender: sender, Path: "/" + path, Body: string(body), auth: r.Header.Get("Authorization")}
	var resp *http.Response
	if address := w.replica.address(); err == nil && address != "" {
		var req *http.Request
		if req, err = http.NewRequestWithContext(r.Context(), r.Method, "http://"+address+m.Path, bytes.NewReader(body)); err == nil {
			req.Header = r.Header.Clone()
			resp, err = http.DefaultClient.Do(req)
		}
	}
	if err != nil || resp == nil {
		w.tap.mu.Lock()
		w.tap.vain[sender]++
		w.tap.mu.Unlock()
		panic(http.ErrAbortHandler)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if strings.HasPrefix(m.Body, "{") {
		_ = json.Unmarshal(body, &m) // what is no group has no such fields
	}
	m.Code, m.Answer = resp.StatusCode, string(answer)
	w.tap.mu.Lock()
	w.tap.messages = append(w.tap.messages, m)
	w.tap.mu.Unlock()
	for name, values := range resp.Header {
		out.Header()[name] = values
	}
	out.WriteHeader(m.Code)
	_, _ = out.Write(answer)
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

// taken lists what tocsin has taken of one sender, with a text in it.
func (p *peerTap) taken(sender, text string) []peerMessage {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []peerMessage
	for _, m := range p.messages {
		if m.Sender == sender && m.Code == http.StatusAccepted && strings.Contains(m.Body, text) {
			out = append(out, m)
		}
	}
	return out
}

// lost says how often a sender has met nobody.
func (p *peerTap) lost(sender string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.vain[sender]
}

// peerWorld is a tocsin process with a simulated Slack, to which real programs send.
type peerWorld struct {
	database string
	token    string
	replica  *chaosReplica
	slack    *slacktest.Server
	client   *client.Client
	tap      *peerTap
	doors    *httptest.Server
	am       *alertmanager
}

// Calls and leases are short: what a killed tocsin was about to do is taken up when its lease is over.
const peerFile = `
worker: {lease: 7s}
server: {listen: "127.0.0.1:0", metrics_listen: "127.0.0.1:0", public_url: "http://tocsin.localhost", tokens: [{name: am, hash: "sha256:%s", scopes: [admin]}]}
database: {url: %q}
users: [{id: ana, name: Ana Torres, contacts: [{via: slack-dm, address: U0ANA}]}]
escalations: {default: {steps: [{after: 0s, page: ["user:ana"]}]}}
notifiers:
  ops-slack: {type: slack, token: %q, channel: C0OPS, api_url: %q, timeout: 3s}
  slack-dm: {type: slack, token: %[3]q, api_url: %[4]q, timeout: 3s}
  quiet: {type: log, path: %[5]q, timeout: 3s}
routes:
  - {match: "alert.*.critical.db", notify: [ops-slack], escalate: default}
  - {match: "alert.*.*._tocsin", notify: [ops-slack]}
  - {match: "#", notify: [quiet]}
sources:
  prom: {type: prometheus, token: prometheus-token, group_by: [alertname, cluster]}
heartbeats:
  watchdog: {every: 1h, token: heartbeat-token}
`

func newPeerWorld(t *testing.T) *peerWorld {
	t.Helper()
	w := &peerWorld{database: storetest.New(t), slack: slacktest.Start(t, slacktest.Options{}), tap: &peerTap{vain: map[string]int{}}}
	token, hash := store.MakeToken()
	w.token = token
	text := fmt.Sprintf(peerFile, hex.EncodeToString(hash), w.database, w.slack.Options().Token, w.slack.APIURL(), t.TempDir()+"/log")
	w.replica = &chaosReplica{
		binary: chaosBinary(t), file: written(t, "tocsin.yaml", text), database: w.database, blame: t.Errorf, writers: map[string]string{}, events: map[string]int{},
	}
	w.doors = httptest.NewServer(http.HandlerFunc(w.pass))
	t.Cleanup(w.doors.Close)
	t.Cleanup(func() {
		if err := w.replica.stop(); err != nil {
			t.Error(err)
		}
	})
	w.start(t)
	return w
}

// start brings tocsin up, at an address of its own.
func (w *peerWorld) start(t *testing.T) {
	t.Helper()
	if err := w.replica.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := awaitReady(t.Context(), w.replica.address()); err != nil {
		t.Fatal(err)
	}
	var err error
	if w.client, err = client.New("http://"+w.replica.address(), w.token); err != nil {
		t.Fatal(err)
	}
}

// settled waits until tocsin has nothing left to send: what is killed then leaves nothing in doubt, and repeats nothing.
func (w *peerWorld) settled(t *testing.T) {
	t.Helper()
	eventually(t, "all is sent", func() bool {
		return one[int](t, w.database, "select count(*)::int from delivery_board where state = 'pending' or in_flight") == 0
	})
}

// incidents are those of a group, newest first.
func (w *peerWorld) incidents(t *testing.T, group string) (out []api.Incident) {
	t.Helper()
	all, err := w.client.Incidents(within(t), client.Query{})
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range all.Items {
		if strings.Contains(i.Key, group) {
			out = append(out, i)
		}
	}
	return out
}

// incident is the newest incident of a group, with its timeline.
func (w *peerWorld) incident(t *testing.T, group string) api.Incident {
	t.Helper()
	all := w.incidents(t, group)
	if len(all) == 0 {
		return api.Incident{}
	}
	full, err := w.client.Incident(within(t), all[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	return full
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
