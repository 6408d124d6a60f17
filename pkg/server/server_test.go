package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/intake"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
	"github.com/tocsin-oncall/tocsin/pkg/server"
	"github.com/tocsin-oncall/tocsin/pkg/store"
	"github.com/tocsin-oncall/tocsin/pkg/store/storetest"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

const file = `
server:
  public_url: https://tocsin.example.com
  tokens:
    - {name: in, hash: "sha256:HASH-in", scopes: [ingest]}
    - {name: eye, hash: "sha256:HASH-eye", scopes: [read]}
    - {name: hand, hash: "sha256:HASH-hand", scopes: [operate]}
    - {name: root, hash: "sha256:HASH-root", scopes: [admin]}
database: {url: "postgres://unused@localhost/unused"}
users:
  - {id: ana, name: Ana Torres, contacts: [{via: slack-dm, address: U0ANA}]}
  - {id: bo, name: Bo Lind, contacts: [{via: slack-dm, address: U0BO}]}
schedules:
  - {id: primary, time_zone: UTC, layers: [{name: only, users: [ana], every: 1 week, start: "2026-01-05 09:00"}]}
escalations: {default: {steps: [{after: 0m, page: ["schedule:primary"]}]}}
notifiers:
  ops-slack: {type: slack, token: xoxb-1, signing_secret: "${SIGNING}", channel: C0OPS}
  slack-dm: {type: slack, token: xoxb-1}
  ops-telegram: {type: telegram, token: "1:a", chat_id: "-100", webhook_secret: "${HOOK}"}
routes:
  - {match: "alert.#", notify: [ops-slack], escalate: default}
`

const (
	signing = "the-signing-secret"
	hook    = "the-webhook-secret"
)

// tokens of the file, by name.
var fileTokens = map[string]string{"in": "token-in", "eye": "token-eye", "hand": "token-hand", "root": "token-root"}

// world is a server on a database of its own. Nothing is sent: there is no worker.
type world struct {
	t        *testing.T
	http     *httptest.Server
	store    *store.Store
	intake   *intake.Intake
	file     *config.File
	server   *server.Server
	stopping atomic.Bool
	rung     atomic.Int32
	whisper  chan whispered
	url      string
	logged   *observer.ObservedLogs
}

type whispered struct{ to, text string }

type noMetrics struct{}

func (noMetrics) HTTPServed(string, string, int, time.Duration) {}
func (noMetrics) DecisionMade(string)                           {}
func (noMetrics) AlertsTaken(string, int, bool)                 {}

// ear is a provider that only whispers.
type ear struct {
	provider.Provider
	heard chan whispered
}

func (e ear) Whisper(_ context.Context, to, text string) error {
	e.heard <- whispered{to, text}
	return nil
}

func newWorld(t *testing.T) *world {
	t.Helper()
	text := file
	for name, token := range fileTokens {
		text = strings.ReplaceAll(text, "HASH-"+name, hexOf(store.HashToken(token)))
	}
	f, _, err := config.Parse("tocsin.yaml", []byte(text), func(n string) (string, bool) {
		v, ok := map[string]string{"SIGNING": signing, "HOOK": hook}[n]
		return v, ok
	})
	if err != nil {
		t.Fatal(err)
	}
	url := storetest.New(t)
	s, err := store.Open(t.Context(), url, store.Options{MaxConnections: 8})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	w := &world{t: t, store: s, file: f, whisper: make(chan whispered, 10), url: url}
	log := zaptest.NewLogger(t, zaptest.WrapOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core {
		var seen zapcore.Core
		seen, w.logged = observer.New(zapcore.DebugLevel)
		return zapcore.NewTee(c, seen)
	})))
	w.intake = intake.New(intake.Options{Store: s, File: func() *config.File { return f }})
	srv := server.New(server.Options{
		Store: s, Intake: w.intake, File: func() *config.File { return f },
		Providers: func(string) (provider.Provider, bool) { return ear{heard: w.whisper}, true },
		Unready:   func() string { return "" }, Stopping: w.stopping.Load, Ring: func() { w.rung.Add(1) }, Linked: func(context.Context) {},
		Redact: func(s string) string { return s }, Metrics: noMetrics{}, Log: log.Sugar(), Version: "test",
	})
	w.http, w.server = httptest.NewServer(srv), srv
	t.Cleanup(func() {
		w.http.Close()
		srv.Wait(context.Background())
	})
	return w
}

func hexOf(b []byte) string {
	const digits = "0123456789abcdef"
	var s strings.Builder
	for _, c := range b {
		s.WriteByte(digits[c>>4])
		s.WriteByte(digits[c&15])
	}
	return s.String()
}

// call makes a request with a token of the file ("" sends none) and gives status, header and body.
func (w *world) call(token, method, path, body string, header ...string) (int, http.Header, []byte) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), method, w.http.URL+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		text := fileTokens[token]
		if text == "" {
			text = token
		}
		req.Header.Set("Authorization", "Bearer "+text)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := w.http.Client().Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, b
}

// want makes a request and decodes the answer, which must have the status.
func want[T any](w *world, status int, token, method, path, body string, header ...string) T {
	w.t.Helper()
	got, _, b := w.call(token, method, path, body, header...)
	if got != status {
		w.t.Fatalf("%s %s: status %d, want %d: %s", method, path, got, status, b)
	}
	var v T
	if err := json.Unmarshal(b, &v); err != nil {
		w.t.Fatalf("%s %s: %v: %s", method, path, err, b)
	}
	return v
}

// refused is want for a problem of a type.
func (w *world) refused(status int, typ, token, method, path, body string, header ...string) api.Problem {
	w.t.Helper()
	got, h, b := w.call(token, method, path, body, header...)
	var p api.Problem
	if err := json.Unmarshal(b, &p); err != nil || got != status || p.Status != status || p.Type != typ || h.Get("Content-Type") != "application/problem+json" {
		w.t.Fatalf("%s %s: %d %s %s, want a problem %d %s", method, path, got, h.Get("Content-Type"), b, status, typ)
	}
	return p
}

const disk = `{"kind": "disk_full", "criticality": "critical", "job": "db", "title": "Disk of db-1 is full", "labels": {"host": "db-1"}}`

func TestScopes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := uuid.NewString()
	for _, c := range []struct{ method, path, body, need string }{
		{"POST", "/v1/alerts", disk, "in"},
		{"POST", "/v1/alertmanager", `{"alerts": []}`, "in"},
		{"GET", "/v1/incidents", "", "eye"},
		{"GET", "/v1/incidents/" + id, "", "eye"},
		{"POST", "/v1/incidents/" + id + "/acknowledge", "{}", "hand"},
		{"POST", "/v1/incidents/" + id + "/resolve", "{}", "hand"},
		{"GET", "/v1/deliveries", "", "eye"},
		{"GET", "/v1/deliveries/" + id, "", "eye"},
		{"POST", "/v1/deliveries/" + id + "/decision", `{"action": "cancel"}`, "hand"},
		{"GET", "/v1/oncall", "", "eye"},
		{"POST", "/v1/users/ana/link", `{"code": "x"}`, "hand"},
		{"GET", "/v1/tokens", "", "root"},
		{"POST", "/v1/tokens", `{"name": "made-by-` + "NAME" + `", "scopes": ["read"]}`, "root"},
		{"DELETE", "/v1/tokens/none", "", "root"},
	} {
		w.refused(401, api.ProblemUnauthorized, "", c.method, c.path, c.body)
		w.refused(401, api.ProblemUnauthorized, "not-a-token", c.method, c.path, c.body)
		for _, name := range []string{"in", "eye", "hand", "root"} {
			status, _, b := w.call(name, c.method, c.path, strings.ReplaceAll(c.body, "NAME", name))
			may := name == c.need || name == "root" || name == "hand" && c.need == "eye"
			if got := status != 401 && status != 403; got != may {
				t.Errorf("%s %s as %s: %d %s, may do it: %v", c.method, c.path, name, status, b, may)
			}
		}
	}
}

func TestAlertIsAcceptedWithItsDeliveries(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	got := want[api.Accepted](w, 202, "in", "POST", "/v1/alerts", disk)
	kinds := map[string]int{}
	for _, d := range got.Deliveries {
		kinds[d.Kind]++
		if one := want[api.Delivery](w, 200, "eye", "GET", "/v1/deliveries/"+d.ID, ""); one.Kind != d.Kind || one.IncidentID != got.IncidentID {
			t.Errorf("delivery %+v, accepted as %+v", one, d)
		}
	}
	if got.AlertID == "" || got.IncidentState != "open" || kinds["card"] != 1 || kinds["thread"] != 1 || kinds["page"] != 1 {
		t.Errorf("accepted: %+v", got)
	}
	again := want[api.Accepted](w, 202, "in", "POST", "/v1/alerts", disk)
	if again.IncidentID != got.IncidentID || len(again.Deliveries) != 0 {
		t.Errorf("a re-send: %+v", again)
	}
	inc := want[api.Incident](w, 200, "eye", "GET", "/v1/incidents/"+got.IncidentID, "")
	if inc.Count != 2 || inc.Firing != 1 || len(inc.Timeline) == 0 || inc.Topic != "alert.disk_full.critical.db" {
		t.Errorf("incident: %+v", inc)
	}
	gone := want[api.Accepted](w, 202, "in", "POST", "/v1/alerts", `{"kind": "never_fired", "status": "resolved"}`)
	if gone.IncidentID != "" || len(gone.Deliveries) != 0 {
		t.Errorf("resolved without an incident: %+v", gone)
	}
}

func TestWrongAlertsAreNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for body, location := range map[string]string{
		`{}`:                                                "body.kind",
		`{"kind": "x", "status": "maybe"}`:                  "body.status",
		`{"kind": "x", "unknown": 1}`:                       "body.unknown",
		`{"kind": "x", "labels": {"a": 1}}`:                 "body.labels.a",
		`{"kind": "x", "notify": ["nobody"]}`:               "body.notify[0]",
		`{"kind": "x", "job": "_tocsin"}`:                   "body.job",
		`{"kind": "x", "links": [{"url": "javascript:1"}]}`: "body.links[0]",
	} {
		p := w.refused(422, api.ProblemInvalid, "in", "POST", "/v1/alerts", body)
		if len(p.Errors) == 0 || p.Errors[0].Location != location {
			t.Errorf("%s: %+v, want a mistake at %s", body, p, location)
		}
	}
	w.refused(400, api.ProblemBadRequest, "in", "POST", "/v1/alerts", `{`)
	w.refused(415, api.ProblemMediaType, "in", "POST", "/v1/alerts", disk, "Content-Type", "application/x-www-form-urlencoded")
	w.refused(403, api.ProblemForbidden, "in", "POST", "/v1/alerts", disk, "Sec-Fetch-Site", "cross-site", "Origin", "https://evil.example.com")
	w.refused(413, api.ProblemTooLarge, "in", "POST", "/v1/alerts", `{"kind": "`+strings.Repeat("x", 1<<20)+`"}`)
	w.refused(404, api.ProblemNotFound, "in", "POST", "/v1/nothing", "{}")
	w.refused(405, api.ProblemMethod, "in", "DELETE", "/v1/alerts", "")
	if l := want[api.List[api.Incident]](w, 200, "eye", "GET", "/v1/incidents", ""); len(l.Items) != 0 {
		t.Errorf("a refused alert made %+v", l.Items)
	}
}

func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := want[api.Accepted](w, 202, "in", "POST", "/v1/alerts", disk, "Idempotency-Key", "k1")
	second := want[api.Accepted](w, 202, "in", "POST", "/v1/alerts", disk, "Idempotency-Key", "k1")
	if first.AlertID != second.AlertID || len(second.Deliveries) != len(first.Deliveries) {
		t.Errorf("the second answer %+v is not the first %+v", second, first)
	}
	w.refused(422, api.ProblemKeyReused, "in", "POST", "/v1/alerts", strings.Replace(disk, "db-1", "db-2", 1), "Idempotency-Key", "k1")
	if inc := want[api.Incident](w, 200, "eye", "GET", "/v1/incidents/"+first.IncidentID, ""); inc.Count != 1 {
		t.Errorf("counted %d times", inc.Count)
	}
	other := want[api.Accepted](w, 202, "root", "POST", "/v1/alerts", disk, "Idempotency-Key", "k1")
	if inc := want[api.Incident](w, 200, "eye", "GET", "/v1/incidents/"+other.IncidentID, ""); inc.Count != 2 {
		t.Errorf("another sender's key was taken for the first one's: count %d", inc.Count)
	}
}

// The same request at the same moment on many connections has one effect and one answer.
func TestIdempotencyKeyAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const senders = 8
	answers := make(chan api.Accepted, senders)
	for range senders {
		go func() {
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, w.http.URL+"/v1/alerts", strings.NewReader(disk))
			req.Header.Set("Authorization", "Bearer token-in")
			req.Header.Set("Idempotency-Key", "same")
			var a api.Accepted
			if resp, err := w.http.Client().Do(req); err == nil {
				_ = json.NewDecoder(resp.Body).Decode(&a)
				resp.Body.Close()
			}
			answers <- a
		}()
	}
	ids := map[string]bool{}
	var incident string
	for range senders {
		a := <-answers
		ids[a.AlertID], incident = true, a.IncidentID
	}
	if len(ids) != 1 || ids[""] {
		t.Fatalf("different answers: %v", ids)
	}
	if inc := want[api.Incident](w, 200, "eye", "GET", "/v1/incidents/"+incident, ""); inc.Count != 1 {
		t.Errorf("counted %d times", inc.Count)
	}
}

func TestAlertmanager(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	body := `{"version": "4", "groupKey": "{}:{alertname=\"A\"}", "status": "firing", "receiver": "tocsin", "groupLabels": {"alertname": "A"},
		"commonLabels": {"alertname": "A"}, "commonAnnotations": {"summary": "S"}, "externalURL": "http://am", "notification_reason": "new", "truncatedAlerts": 0, "alerts": [
		{"status": "firing", "labels": {"alertname": "A", "severity": "critical", "job": "db", "instance": "1"}, "annotations": {"summary": "S"}, "startsAt": "2026-01-05T09:00:00Z", "endsAt": "0001-01-01T00:00:00Z", "generatorURL": "http://p", "fingerprint": "f1"},
		{"status": "firing", "labels": {"alertname": "A", "severity": "critical", "job": "db", "instance": "2"}, "annotations": {"summary": "S"}, "startsAt": "2026-01-05T09:00:00Z", "endsAt": "0001-01-01T00:00:00Z", "generatorURL": "http://p", "fingerprint": "f2"}]}`
	got := want[api.AcceptedGroup](w, 202, "in", "POST", "/v1/alertmanager", body)
	if len(got.Incidents) != 1 || got.Incidents[0].IncidentID == "" {
		t.Fatalf("%+v", got)
	}
	if inc := want[api.Incident](w, 200, "eye", "GET", "/v1/incidents/"+got.Incidents[0].IncidentID, ""); inc.Firing != 2 || inc.Source != "alertmanager" {
		t.Errorf("%+v", inc)
	}
	w.refused(422, api.ProblemInvalid, "in", "POST", "/v1/alertmanager", `{"hello": 1}`)
	// A group of thousands of alerts is more than a megabyte, and no reason to lose a page.
	large := strings.Replace(body, `"summary": "S"}, "startsAt"`, `"summary": "S", "description": "`+strings.Repeat("x", 600<<10)+`"}, "startsAt"`, 1)
	want[api.AcceptedGroup](w, 202, "in", "POST", "/v1/alertmanager", large)
}

func TestAnswersNameWhoWasFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := want[api.Accepted](w, 202, "in", "POST", "/v1/alerts", disk).IncidentID
	inc := want[api.Incident](w, 200, "hand", "POST", "/v1/incidents/"+id+"/acknowledge", `{"by": "bo", "reason": "on it"}`)
	if inc.State != "acknowledged" || inc.AcknowledgedBy != "Bo Lind" {
		t.Errorf("%+v", inc)
	}
	if inc = want[api.Incident](w, 200, "hand", "POST", "/v1/incidents/"+id+"/acknowledge", ""); inc.AcknowledgedBy != "Bo Lind" {
		t.Errorf("the second acknowledgement replaced the first: %+v", inc)
	}
	w.refused(422, api.ProblemInvalid, "hand", "POST", "/v1/incidents/"+id+"/resolve", `{"by": "nobody"}`)
	if inc = want[api.Incident](w, 200, "hand", "POST", "/v1/incidents/"+id+"/resolve", "{}"); inc.State != "resolved" || inc.ResolvedBy != "hand" {
		t.Errorf("%+v", inc)
	}
	w.refused(404, api.ProblemNotFound, "hand", "POST", "/v1/incidents/"+uuid.NewString()+"/acknowledge", "{}")
	w.refused(422, api.ProblemInvalid, "hand", "POST", "/v1/incidents/17/acknowledge", "{}")
}

func TestListsPage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var newest string
	for _, host := range []string{"a", "b", "c", "d", "e"} {
		newest = want[api.Accepted](w, 202, "in", "POST", "/v1/alerts", strings.ReplaceAll(disk, "db-1", host)).IncidentID
	}
	seen, cursor := []string{}, ""
	for range 4 {
		l := want[api.List[api.Incident]](w, 200, "eye", "GET", "/v1/incidents?limit=2&cursor="+cursor, "")
		for _, inc := range l.Items {
			seen = append(seen, inc.ID)
		}
		if cursor = l.NextCursor; cursor == "" {
			break
		}
	}
	if len(seen) != 5 || seen[0] != newest || cursor != "" {
		t.Errorf("pages held %v, cursor %q", seen, cursor)
	}
	w.refused(422, api.ProblemInvalid, "eye", "GET", "/v1/incidents?cursor=nonsense", "")
	w.refused(422, api.ProblemInvalid, "eye", "GET", "/v1/incidents?limit=1000", "")
	w.refused(422, api.ProblemInvalid, "eye", "GET", "/v1/deliveries?state=lost", "")
	for query, n := range map[string]int{"": 15, "kind=card": 5, "notifier=slack-dm": 5, "state=pending": 15, "state=sent": 0, "state=dead": 0, "kind=page&state=pending": 5, "incident=" + newest: 3, "incident=" + newest + "&kind=card": 1} {
		if l := want[api.List[api.Delivery]](w, 200, "eye", "GET", "/v1/deliveries?"+query, ""); len(l.Items) != n {
			t.Errorf("%q: %d deliveries, want %d", query, len(l.Items), n)
		}
	}
}

func TestReadinessAndStop(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, path := range []string{"/healthz", "/readyz", "/openapi.json", "/"} {
		if status, h, b := w.call("", "GET", path, ""); status != 200 || h.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %d %s", path, status, b)
		}
	}
	accepted := want[api.Accepted](w, 202, "in", "POST", "/v1/alerts", disk)
	w.stopping.Store(true)
	if status, _, b := w.call("", "GET", "/readyz", ""); status != 503 || !bytes.Contains(b, []byte("stopping")) {
		t.Errorf("/readyz while stopping: %d %s", status, b)
	}
	p := w.refused(503, api.ProblemStopping, "hand", "POST", "/v1/deliveries/"+accepted.Deliveries[0].ID+"/decision", `{"action": "cancel"}`)
	if p.Detail != "alerts are not running" {
		t.Errorf("detail %q", p.Detail)
	}
	if d := want[api.Delivery](w, 200, "eye", "GET", "/v1/deliveries/"+accepted.Deliveries[0].ID, ""); d.State != "pending" || len(d.Decisions) != 0 {
		t.Errorf("a refused decision changed %+v", d)
	}
}

func TestDatabaseTokens(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	made := want[api.MadeToken](w, 201, "root", "POST", "/v1/tokens", `{"name": "pager", "scopes": ["ingest"]}`)
	want[api.Accepted](w, 202, made.Token, "POST", "/v1/alerts", disk)
	w.refused(409, api.ProblemConflict, "root", "POST", "/v1/tokens", `{"name": "pager", "scopes": ["read"]}`)
	w.refused(409, api.ProblemConflict, "root", "POST", "/v1/tokens", `{"name": "eye", "scopes": ["read"]}`)
	w.refused(422, api.ProblemInvalid, "root", "POST", "/v1/tokens", `{"name": "x", "scopes": ["god"]}`)
	if status, _, b := w.call("root", "DELETE", "/v1/tokens/pager", ""); status != 204 {
		t.Errorf("revoke: %d %s", status, b)
	}
	w.refused(401, api.ProblemUnauthorized, made.Token, "POST", "/v1/alerts", disk)
	l := want[api.List[api.Token]](w, 200, "root", "GET", "/v1/tokens", "")
	if len(l.Items) != 1 || l.Items[0].RevokedAt == nil {
		t.Errorf("%+v", l)
	}
}

func TestOnCall(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := want[api.List[api.OnCall]](w, 200, "eye", "GET", "/v1/oncall?at=2026-02-01T00:00:00Z", "")
	if len(l.Items) != 1 || l.Items[0].Schedule != "primary" || len(l.Items[0].Users) != 1 || l.Items[0].Users[0] != (api.Person{ID: "ana", Name: "Ana Torres"}) {
		t.Errorf("%+v", l)
	}
	if l = want[api.List[api.OnCall]](w, 200, "eye", "GET", "/v1/oncall?schedule=primary&at=2020-01-01T00:00:00Z", ""); len(l.Items) != 1 || len(l.Items[0].Users) != 0 || l.Items[0].Until == nil {
		t.Errorf("before the schedule began: %+v", l)
	}
	// What was found about people who are on call soon is shown of now, in the schedule that it concerns.
	if err := w.store.InTx(t.Context(), func(tx *store.Tx) error {
		for _, via := range []string{"slack-dm", "telegram-dm"} {
			if err := tx.ListReach(t.Context(), "ana", via); err != nil {
				return err
			}
		}
		if err := tx.PutReach(t.Context(), store.Reach{User: "ana", Via: "slack-dm", Closed: true, Reason: "destination:user_disabled", Sentence: "U0ANA is deactivated."}, time.Hour); err != nil {
			return err
		}
		_, err := tx.TellReach(t.Context(), store.ReachTold{Schedule: "primary", User: "ana", What: "x"})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	l = want[api.List[api.OnCall]](w, 200, "eye", "GET", "/v1/oncall", "")
	if len(l.Items) != 1 || len(l.Items[0].Problems) != 1 {
		t.Fatalf("%+v", l)
	}
	if p := l.Items[0].Problems[0]; p.User.ID != "ana" || p.User.Name != "Ana Torres" || p.Via != "slack-dm" || p.Reason != "destination:user_disabled" || p.Sentence == "" || p.Since.IsZero() {
		t.Errorf("%+v", p)
	}
	if l = want[api.List[api.OnCall]](w, 200, "eye", "GET", "/v1/oncall?at=2026-02-01T00:00:00Z", ""); len(l.Items[0].Problems) != 0 {
		t.Errorf("of another time: %+v", l)
	}
	w.refused(404, api.ProblemNotFound, "eye", "GET", "/v1/oncall?schedule=none", "")
}
