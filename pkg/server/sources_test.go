package server_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/config"
)

// withSources gives the world's file the sources of a text.
func (w *world) withSources(text string) {
	w.t.Helper()
	f, _, err := config.Parse("f", []byte("server: {public_url: 'https://t.example.com'}\ndatabase: {url: 'postgres://x@y/z'}\n"+text), func(string) (string, bool) { return "", false })
	if err != nil {
		w.t.Fatal(err)
	}
	w.file.Sources, w.file.Heartbeats = f.Sources, f.Heartbeats
}

const someSources = `
sources:
  prom: {type: prometheus, token: prom-token}
  graf: {type: grafana, token: graf-token, max_body: 2KiB}
  old: {type: generic, token: old-token, query_token: true, fields: {title: body.name}}
  wild: {type: generic, token: wild-token, rate: 2/h, fields: {title: body.name}}
  storm: {type: alertmanager, token: storm-token, rate: 2/h}
  open: {type: native}
heartbeats:
  backup: {every: 1h, token: backup-token, query_token: true}
  report: {every: 1d, criticality: info}
`

// send is call with any token's text.
func (w *world) send(token, method, path, body string) (int, http.Header, []byte) {
	w.t.Helper()
	header := []string{}
	if token != "" {
		header = append(header, "Authorization", "Bearer "+token)
	}
	return w.call("", method, path, body, header...)
}

func incidents(t *testing.T, body []byte) []api.Accepted {
	t.Helper()
	var out api.AcceptedGroup
	if err := json.Unmarshal(body, &out); err != nil {
		t.Fatal(err)
	}
	return out.Incidents
}

func TestSourcesHandInAlerts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.withSources(someSources)
	ends := time.Now().Add(time.Hour).Format(time.RFC3339)
	push := `[{"labels": {"alertname": "A", "severity": "critical"}, "endsAt": "` + ends + `"}, {"labels": {"alertname": "B"}, "endsAt": "` + ends + `"}]`
	for _, c := range []struct {
		token, path, body string
		incidents         int
	}{
		{"prom-token", "/api/v2/alerts", push, 2},
		{"token-in", "/api/v2/alerts", push, 2},
		{"prom-token", "/v1/sources/prom", push, 2},
		{"token-in", "/v1/sources/prom", push, 2},
		{"prom-token", "/api/v2/alerts", `[]`, 0},
		{"graf-token", "/v1/grafana", `{"groupKey": "g", "alerts": [{"status": "firing", "labels": {"alertname": "G"}}]}`, 1},
		{"graf-token", "/v1/sources/graf", `{"groupKey": "g", "alerts": [{"status": "firing", "labels": {"alertname": "G"}}]}`, 1},
		{"old-token", "/v1/sources/old", `{"name": "Old"}`, 1},
		{"", "/v1/sources/old?token=old-token", `{"name": "Old"}`, 1},
		{"token-in", "/v1/sources/open", `{"kind": "a"}`, 1},
	} {
		status, _, body := w.send(c.token, http.MethodPost, c.path, c.body)
		if status != http.StatusAccepted {
			t.Errorf("%s with %s: %d %s", c.path, c.token, status, body)
		} else if got := len(incidents(t, body)); got != c.incidents {
			t.Errorf("%s with %s: %d incidents: %s", c.path, c.token, got, body)
		}
	}
}

func TestSourcesAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.withSources(someSources)
	for _, c := range []struct {
		name, token, path, body string
		status                  int
		location                string
	}{
		{"no token", "", "/v1/sources/prom", `[]`, 401, ""},
		{"unknown token", "nobody", "/v1/sources/prom", `[]`, 401, ""},
		{"another source's token", "graf-token", "/v1/sources/prom", `[]`, 403, ""},
		{"a token that may only read", "token-eye", "/v1/sources/prom", `[]`, 403, ""},
		{"a heartbeat's token", "backup-token", "/v1/sources/prom", `[]`, 403, ""},
		{"a source's token where another type is spoken", "prom-token", "/v1/alertmanager", `{"alerts": []}`, 403, ""},
		{"a source's token at the API", "old-token", "/v1/alerts", `{"kind": "a"}`, 403, ""},
		{"a heartbeat's token at the API", "backup-token", "/v1/alerts", `{"kind": "a"}`, 403, ""},
		{"a token in the URL where the file allows none", "", "/v1/sources/wild?token=wild-token", `{"name": "a"}`, 401, ""},
		{"another token in the URL", "", "/v1/sources/old?token=wild-token", `{"name": "a"}`, 403, ""},
		{"no such source", "token-in", "/v1/sources/none", `{}`, 404, ""},
		{"too large", "graf-token", "/v1/grafana", `{"alerts": [], "title": "` + strings.Repeat("x", 3000) + `"}`, 413, ""},
		{"too large by its own address", "graf-token", "/v1/sources/graf", `{"alerts": [], "title": "` + strings.Repeat("x", 3000) + `"}`, 413, ""},
		{"too large for all", "prom-token", "/api/v2/alerts", `["` + strings.Repeat("x", 9<<20) + `"]`, 413, ""},
		{"no JSON", "prom-token", "/api/v2/alerts", `[`, 422, "body"},
		{"a wrong field", "prom-token", "/api/v2/alerts", `[{"labels": {"alertname": "a"}}, {"labels": []}]`, 422, "body.alerts[1].labels"},
		{"something after it", "prom-token", "/api/v2/alerts", `[] []`, 422, "body"},
		{"a body that is too deep", "prom-token", "/api/v2/alerts", strings.Repeat("[", 100_000), 422, "body"},
		{"a number that is too large", "graf-token", "/v1/grafana", `{"alerts": [], "truncatedAlerts": 1e400}`, 422, "body.truncatedAlerts"},
		{"nothing where the title is", "old-token", "/v1/sources/old", `{}`, 422, "body.title"},
	} {
		status, header, body := w.send(c.token, http.MethodPost, c.path, c.body)
		var p api.Problem
		if err := json.Unmarshal(body, &p); err != nil || status != c.status || header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %d %s", c.name, status, body)
			continue
		}
		if c.location != "" && (len(p.Errors) != 1 || p.Errors[0].Location != c.location) {
			t.Errorf("%s: %+v", c.name, p)
		}
		if strings.Contains(string(body), "-token") {
			t.Errorf("%s: the answer names the token: %s", c.name, body)
		}
	}
	told := 0
	for _, e := range w.logged.All() {
		line := fmt.Sprint(e.Message, e.ContextMap())
		if strings.Contains(line, "-token") || strings.Contains(line, "token=") {
			t.Errorf("the log names a token: %s", line)
		}
		if strings.Contains(line, "alerts[1].labels") {
			told++
		}
	}
	if told != 1 {
		t.Errorf("what a sender must change is in the log %d times", told)
	}
	// What was right in a message with a mistake is taken.
	if status, _, body := w.send("token-eye", http.MethodGet, "/v1/incidents", ""); status != 200 || strings.Count(string(body), `"key"`) != 1 {
		t.Errorf("%d %s", status, body)
	}
}

func TestTheRateOfASource(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.withSources(someSources)
	for _, c := range []struct {
		token, path, body string
		status            int // of what is too much: one after which the sender comes again
	}{
		{"wild-token", "/v1/sources/wild", `{"name": "a"}`, 429},
		{"storm-token", "/v1/alertmanager", `{"alerts": []}`, 503},
	} {
		for n, want := range []int{202, 202, c.status, c.status} {
			status, header, body := w.send(c.token, http.MethodPost, c.path, c.body)
			if status != want || (want != 202) != (header.Get("Retry-After") != "") {
				t.Errorf("%s, request %d: %d, Retry-After %q: %s", c.path, n+1, status, header.Get("Retry-After"), body)
			}
		}
	}
	if status, _, body := w.send("old-token", http.MethodPost, "/v1/sources/old", `{"name": "a"}`); status != 202 {
		t.Errorf("another source: %d %s", status, body)
	}
}

// Alertmanager gives a message up after a 408; after a 503 it sends it again.
func TestASlowBodyIsSentAgain(t *testing.T) {
	t.Parallel()
	var p *api.Problem
	if err := huma.Error408RequestTimeout("too slow"); err.GetStatus() != http.StatusServiceUnavailable || !errors.As(err, &p) || p.Type != api.ProblemTimeout {
		t.Errorf("%d %v", err.GetStatus(), err)
	}
}

// What is no plain JSON is told so, whoever sends it and however.
func TestForeignBodies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.withSources(someSources)
	for _, c := range []struct {
		name, path, body string
		header           []string
		status           int
	}{
		{"packed", "/api/v2/alerts", "\x1f\x8b", []string{"Content-Encoding", "gzip"}, 415},
		{"packed into nothing", "/api/v2/alerts", `[]`, []string{"Content-Encoding", "identity"}, 202},
		{"a form", "/api/v2/alerts", `a=b`, []string{"Content-Type", "application/x-www-form-urlencoded"}, 415},
		{"another sort of JSON", "/api/v2/alerts", `[]`, []string{"Content-Type", "application/vnd.alerts+json; charset=utf-8"}, 202},
		{"no UTF-8, and NUL", "/api/v2/alerts", `[{"labels": {"alertname": "a\u0000` + "\xff" + `", "a\u0000b": "\u0000"}}]`, nil, 202},
		{"a field twice", "/api/v2/alerts", `[{"labels": {"alertname": "a"}, "labels": {"alertname": "b"}}]`, nil, 202},
	} {
		status, _, body := w.call("", http.MethodPost, c.path, c.body, append(c.header, "Authorization", "Bearer prom-token")...)
		if status != c.status {
			t.Errorf("%s: %d %s", c.name, status, body)
		}
	}
}

func TestHeartbeatsCall(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.withSources(someSources)
	list := func() map[string]api.Heartbeat {
		t.Helper()
		status, _, body := w.send("token-eye", http.MethodGet, "/v1/heartbeats", "")
		var l api.List[api.Heartbeat]
		if err := json.Unmarshal(body, &l); err != nil || status != 200 {
			t.Fatalf("%d %s", status, body)
		}
		out := map[string]api.Heartbeat{}
		for _, h := range l.Items {
			out[h.Name] = h
		}
		return out
	}
	if all := list(); len(all) != 2 || all["backup"].State != api.HeartbeatNew || all["report"].Every != "24h0m0s" || all["report"].Criticality != "info" {
		t.Errorf("%+v", all)
	}
	for _, c := range []struct {
		token, method, path string
		status              int
	}{
		{"backup-token", http.MethodPost, "/v1/heartbeats/backup", 200},
		{"backup-token", http.MethodGet, "/v1/heartbeats/backup", 200},
		{"", http.MethodGet, "/v1/heartbeats/backup?token=backup-token", 200},
		{"backup-token", http.MethodHead, "/v1/heartbeats/backup", 200},
		{"", http.MethodHead, "/v1/heartbeats/backup", 401},
		{"token-in", http.MethodGet, "/v1/heartbeats/report", 200},
		{"backup-token", http.MethodPost, "/v1/heartbeats/report", 403},
		{"prom-token", http.MethodPost, "/v1/heartbeats/report", 403},
		{"token-eye", http.MethodPost, "/v1/heartbeats/report", 403},
		{"", http.MethodGet, "/v1/heartbeats/backup", 401},
		{"", http.MethodGet, "/v1/heartbeats/report?token=token-in", 401},
		{"token-in", http.MethodPost, "/v1/heartbeats/none", 404},
		{"backup-token", http.MethodGet, "/v1/heartbeats", 403},
	} {
		if status, _, body := w.send(c.token, c.method, c.path, ""); status != c.status {
			t.Errorf("%s %s with %q: %d %s", c.method, c.path, c.token, status, body)
		}
	}
	// What else a caller says does not matter.
	if status, _, body := w.call("", http.MethodPost, "/v1/heartbeats/backup", "done=1", "Authorization", "Bearer backup-token", "Content-Type", "application/x-www-form-urlencoded"); status != 200 {
		t.Errorf("with a form: %d %s", status, body)
	}
	if all := list(); all["backup"].State != api.HeartbeatOK || all["backup"].CalledAt == nil || all["report"].State != api.HeartbeatOK {
		t.Errorf("%+v", all)
	}
}

// A native source's topic fills what its alert leaves out, at both of its addresses. Without it the kind is needed.
func TestANativeSourcesTopicFillsTheKind(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.withSources("sources: {backups: {type: native, token: backups-token, topic: {kind: backup_failed}}, plain: {type: native, token: plain-token}}")
	for _, path := range []string{"/v1/alerts", "/v1/sources/backups"} {
		code, _, b := w.send("backups-token", http.MethodPost, path, `{"criticality": "critical", "title": "No backup of `+path+`"}`)
		if code != http.StatusAccepted {
			t.Errorf("%s: %d %s", path, code, b)
		}
	}
	for _, path := range []string{"/v1/alerts", "/v1/sources/plain"} {
		code, _, b := w.send("plain-token", http.MethodPost, path, `{"criticality": "critical", "title": "T"}`)
		if code != http.StatusUnprocessableEntity || !strings.Contains(string(b), "kind") {
			t.Errorf("%s: %d %s", path, code, b)
		}
	}
	if n := len(want[api.List[api.Incident]](w, http.StatusOK, "eye", http.MethodGet, "/v1/incidents?limit=10", "").Items); n == 0 {
		t.Error("nothing came in")
	}
}
