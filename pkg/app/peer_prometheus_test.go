package app

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// machines are what a Prometheus measures: disks that are full or not.
type machines struct {
	mu   sync.Mutex
	full map[string]bool // by cluster and host
	http *httptest.Server
}

func newMachines(t *testing.T) *machines {
	m := &machines{full: map[string]bool{}}
	m.http = httptest.NewServer(m)
	t.Cleanup(m.http.Close)
	return m
}

func (m *machines) set(full bool, names ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range names {
		m.full[n] = full
	}
}

func (m *machines) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if strings.HasPrefix(r.URL.Path, "/api/v1/query") {
		m.query(w)
		return
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	for name, full := range m.full {
		cluster, host, _ := strings.Cut(name, "/")
		n := 0
		if full {
			n = 1
		}
		_, _ = fmt.Fprintf(w, "disk_full{cluster=%q,host=%q} %d\n", cluster, host, n)
	}
}

// query answers the one query that there is, as a Prometheus or VictoriaMetrics would.
func (m *machines) query(w http.ResponseWriter) {
	series := []string{}
	for name, full := range m.full {
		if cluster, host, _ := strings.Cut(name, "/"); full {
			series = append(series, fmt.Sprintf(`{"metric":{"__name__":"disk_full","cluster":%q,"host":%q,"job":"db"},"value":[%d,"1"]}`, cluster, host, time.Now().Unix()))
		}
	}
	slices.Sort(series)
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"status":"success","data":{"resultType":"vector","result":[%s]}}`, strings.Join(series, ","))
}

// Rules as kube-prometheus has them: one that means something, and one that always fires.
const peerRules = `
groups:
  - name: disks
    interval: 1s
    rules:
      - alert: DiskFull
        expr: disk_full > 0
        labels: {severity: critical}
        annotations:
          summary: 'DiskFull in {{ $labels.cluster }}'
          description: 'The disk of {{ $labels.host }} is full.'
          runbook_url: https://runbooks.example.com/DiskFull
`

const peerWatchdog = `
      - alert: Watchdog
        expr: vector(1)
        labels: {severity: none}
        annotations: {summary: An alert that should always be firing.}
`

const prometheusFile = `
global: {scrape_interval: 1s, evaluation_interval: 1s, external_labels: {replica: %[1]q}}
alerting:
  alert_relabel_configs: [{action: labeldrop, regex: replica}]
  alertmanagers:
    - {static_configs: [{targets: [%[2]q]}], path_prefix: /%[1]s, authorization: {credentials: prometheus-token}}
rule_files: [%[3]q]
scrape_configs:
  - {job_name: db, static_configs: [{targets: [%[4]q], labels: {instance: machines}}]}
`

// startPrometheus runs one that sends again every second, where others do every minute.
func (w *peerWorld) startPrometheus(t *testing.T, name string, m *machines) *running {
	t.Helper()
	bare := func(s *httptest.Server) string { return strings.TrimPrefix(s.URL, "http://") }
	file := written(t, "prometheus.yml", fmt.Sprintf(prometheusFile, name, bare(w.doors), written(t, "rules.yml", peerRules+peerWatchdog), bare(m.http)))
	return peerPrometheus.run(t, "--config.file="+file, "--storage.tsdb.path="+t.TempDir(), "--web.listen-address=127.0.0.1:0", "--rules.alert.resend-delay=1s")
}

// TestPeerPrometheus has two real Prometheus servers with the same rules as the clients, unmodified. Each measures for itself.
func TestPeerPrometheus(t *testing.T) {
	t.Parallel()
	peerPrometheus.binary(t)
	w := newPeerWorld(t)
	names := []string{"first", "second"}
	seen := []*machines{newMachines(t), newMachines(t)}
	set := func(full bool, names ...string) {
		for _, m := range seen {
			m.set(full, names...)
		}
	}
	set(false, "north/db-1", "north/db-2", "south/db-1")
	pair := []*running{w.startPrometheus(t, names[0], seen[0]), w.startPrometheus(t, names[1], seen[1])}
	// more waits until each of the two has told so many times more what holds the text.
	more := func(what, text string, times int) {
		t.Helper()
		for _, n := range names {
			had := len(w.tap.taken(n, text))
			eventually(t, what, func() bool { return len(w.tap.taken(n, text)) >= had+times })
		}
	}

	set(true, "north/db-1")
	w.shows(t, "DiskFull in north", 1, "open", "Paging Ana Torres")
	more("both tell it again and again", "north", 3)
	i := w.incident(t, "north")
	if i.State != "open" || i.Firing != 1 || i.Count < 6 || i.Topic != "alert.diskfull.critical.db" || i.Source != "prom" || len(i.Timeline) != 2 {
		t.Errorf("what two Prometheus servers tell is %+v", i)
	}
	if i := w.incident(t, "Watchdog"); i.Topic != "alert.watchdog.none.none" {
		t.Errorf("an alert without a job is %+v", i)
	}

	set(true, "north/db-2")
	w.shows(t, "DiskFull in north", 1, "open", "Alert firing")
	if i := w.incident(t, "north"); i.Firing != 2 {
		t.Errorf("a second machine is %+v", i)
	}

	w.settled(t)
	w.replica.kill()
	set(true, "south/db-1")
	for _, n := range names {
		had := w.tap.lost(n)
		eventually(t, "both have tried in vain", func() bool { return w.tap.lost(n) > had+2 })
	}
	w.start(t)
	w.shows(t, "DiskFull in south", 1, "open", "Paging Ana Torres")
	more("both tell it again", "south", 1)

	set(false, "north/db-1")
	w.shows(t, "DiskFull in north", 1, "open", "Alert resolved")
	seen[0].set(false, "north/db-2")
	w.shows(t, "DiskFull in north", 1, "resolved", "Resolved after")
	more("one repeats the end, and the other one still sees it fire", "north", 3)
	seen[1].set(false, "north/db-2")
	more("both repeat the end", "north", 3)
	if all := w.incidents(t, "north"); len(all) != 1 || all[0].State != "resolved" || all[0].Resolved != 2 {
		t.Errorf("the end that both tell left %+v", all)
	}
	if pages := w.slack.Messages("U0ANA"); len(pages) != 2 {
		t.Errorf("%d pages for two incidents: %+v", len(pages), pages)
	}

	if !wantsPeers() {
		t.Log("how a lost end heals takes minutes: make test-peers")
		return
	}
	for _, p := range pair {
		p.kill()
	}
	// endsAt is four seconds ahead; tocsin, which has just come up, takes silence for an end after two minutes.
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for w.incident(t, "south").State != "resolved" {
		if !chaosWait(ctx, 500*time.Millisecond) {
			t.Fatalf("an alert whose Prometheus is gone still fires: %+v", w.incident(t, "south"))
		}
	}
	if card := w.shows(t, "DiskFull in south", 1, "resolved", "did not send it again"); card.TS == "" {
		t.Error("there is no card")
	}
}

// TestPeerVmalert has the real vmalert as the client.
func TestPeerVmalert(t *testing.T) {
	t.Parallel()
	peerVmalert.binary(t)
	w, m := newPeerWorld(t), newMachines(t)
	peerVmalert.run(t, "-rule="+written(t, "rules.yml", peerRules), "-datasource.url="+m.http.URL, "-notifier.url="+w.door("vm"),
		"-notifier.bearerToken=prometheus-token", "-httpListenAddr=127.0.0.1:0", "-evaluationInterval=1s", "-external.url=http://vmalert.localhost")
	m.set(true, "north/db-1", "north/db-2")
	w.shows(t, "DiskFull in north", 1, "open", "Paging Ana Torres")
	eventually(t, "it tells it again and again", func() bool { return len(w.tap.taken("vm", "north")) > 3 })
	if i := w.incident(t, "north"); i.Topic != "alert.diskfull.critical.db" || i.Firing != 2 || i.Count < 4 || len(i.Timeline) > 3 {
		t.Errorf("what vmalert tells is %+v", i)
	}
	m.set(false, "north/db-1", "north/db-2")
	w.shows(t, "DiskFull in north", 1, "resolved", "Resolved after")
	had := len(w.tap.taken("vm", "north"))
	eventually(t, "it repeats the end", func() bool { return len(w.tap.taken("vm", "north")) > had+2 })
	if all := w.incidents(t, "north"); len(all) != 1 || all[0].State != "resolved" || all[0].Resolved != 2 {
		t.Errorf("the end left %+v", all)
	}
}
