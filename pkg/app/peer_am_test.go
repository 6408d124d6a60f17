package app

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"testing"
	"time"
)

// alertmanager is a running Alertmanager.
type alertmanager struct {
	*running
	url string
}

var amListens = regexp.MustCompile(`msg="Listening on" address=(\S+)`)

// One group an incident. The intervals are short so that the test is; Alertmanager's own bounds allow it.
const amFile = `
route:
  receiver: tocsin
  group_by: [alertname, cluster]
  group_wait: 100ms
  group_interval: 400ms
  repeat_interval: 4h
  routes:
    - {matchers: ['cluster="again"'], receiver: tocsin, repeat_interval: 500ms}
    - {matchers: ['cluster="cut"'], receiver: short}
    - {matchers: ['alertname="Watchdog"'], receiver: heartbeat, repeat_interval: 500ms}
receivers:
  - name: tocsin
    webhook_configs:
      - {url: %[1]s/v1/alertmanager, send_resolved: true, http_config: {authorization: {type: Bearer, credentials: %[2]q}}}
  - name: short
    webhook_configs:
      - {url: %[1]s/v1/alertmanager, send_resolved: true, max_alerts: 1, http_config: {authorization: {type: Bearer, credentials: %[2]q}}}
  - name: heartbeat
    webhook_configs:
      - {url: %[1]s/v1/heartbeats/watchdog, send_resolved: false, http_config: {authorization: {type: Bearer, credentials: heartbeat-token}}}
`

// startAlertmanager runs one on a loopback port until the test ends. It knows of no other: each sends for itself.
func startAlertmanager(t *testing.T, tocsin, token string) *alertmanager {
	t.Helper()
	a := &alertmanager{running: peerAlertmanager.run(t, "--config.file="+written(t, "alertmanager.yml", fmt.Sprintf(amFile, tocsin, token)), "--storage.path="+t.TempDir(),
		"--web.listen-address=127.0.0.1:0", "--cluster.listen-address=", "--web.external-url=http://alertmanager.localhost")}
	eventually(t, "Alertmanager listens", func() bool {
		m := amListens.FindStringSubmatch(a.log.String())
		if m != nil {
			a.url = "http://" + m[1]
		}
		return m != nil
	})
	eventually(t, "Alertmanager is ready", func() bool {
		code, _ := status(t, a.url+"/-/ready")
		return code == http.StatusOK
	})
	return a
}

// post hands alerts to Alertmanager, as a Prometheus does.
func (a *alertmanager) post(t *testing.T, alerts ...amAlert) {
	t.Helper()
	b, err := json.Marshal(alerts)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(within(t), http.MethodPost, a.url+"/api/v2/alerts", bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("Alertmanager refused the alerts: %s", resp.Status)
	}
}

// amAlert is an alert of its API.
type amAlert struct {
	Labels       map[string]string `json:"labels"`
	Annotations  map[string]string `json:"annotations"`
	StartsAt     time.Time         `json:"startsAt"`
	EndsAt       *time.Time        `json:"endsAt,omitempty"`
	GeneratorURL string            `json:"generatorURL"`
}

// fires makes an alert of a group, on one instance.
func fires(name, cluster, instance string) amAlert {
	return amAlert{
		Labels:       map[string]string{"alertname": name, "cluster": cluster, "instance": instance, "severity": "critical", "job": "db"},
		Annotations:  map[string]string{"summary": fmt.Sprintf("%s in %s", name, cluster), "description": "seen on " + instance, "runbook_url": "https://runbooks.example.com/" + name},
		StartsAt:     time.Now().Add(-time.Minute),
		GeneratorURL: "http://prometheus.example.com/graph",
	}
}

// ended is the same alert, over by now.
func (a amAlert) ended() amAlert {
	now := time.Now()
	a.EndsAt = &now
	return a
}
