package app

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"go/build"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"testing"
	"time"
)

// The real Alertmanager, as a client: this version where it has to be built. Any that is found installed is as good:
// the webhook's version 4 is what all of them speak.
const (
	alertmanagerModule  = "github.com/prometheus/alertmanager/cmd/alertmanager"
	alertmanagerVersion = "v0.28.1"
	alertmanagerBuild   = 8 * time.Minute // cold, on a busy machine
)

// alertmanagerBinary finds Alertmanager, or builds it into the user's cache, where the next run finds it.
func alertmanagerBinary(t *testing.T) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	dir := filepath.Join(cache, "tocsin", "alertmanager-"+alertmanagerVersion)
	built := filepath.Join(dir, "alertmanager")
	for _, name := range []string{filepath.Join(build.Default.GOPATH, "bin", "alertmanager"), built, "alertmanager", "prometheus-alertmanager"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Logf("building Alertmanager %s into %s", alertmanagerVersion, dir)
	here := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), alertmanagerBuild)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "install", alertmanagerModule+"@"+alertmanagerVersion)
	cmd.Dir = here
	cmd.Env = append(os.Environ(), "GOBIN="+here, "GOFLAGS=", "CGO_ENABLED=0", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("this test's client is the real Alertmanager, which is neither installed (apt-get install prometheus-alertmanager) nor could be built by `go install %s@%s`: %v\n%s",
			alertmanagerModule, alertmanagerVersion, err, out)
	}
	fresh := filepath.Join(here, "alertmanager")
	if err := keep(fresh, built); err != nil {
		t.Logf("it can't be kept for the next run: %v", err)
	}
	return fresh
}

// keep copies a program to where later runs find it, whole or not at all.
func keep(program, to string) error {
	b, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	part := to + ".new"
	if err := os.WriteFile(part, b, 0o755); err != nil {
		return err
	}
	return os.Rename(part, to)
}

// alertmanager is a running Alertmanager.
type alertmanager struct {
	url string
	log *amLog
}

var amListens = regexp.MustCompile(`msg="Listening on" address=(\S+)`)

// amLog keeps what it says, and tells the address once it is there.
type amLog struct {
	mu    sync.Mutex
	text  bytes.Buffer
	found bool
	addr  chan string
}

func (l *amLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(b)
	if m := amListens.FindSubmatch(l.text.Bytes()); m != nil && !l.found {
		l.found = true
		l.addr <- string(m[1])
	}
	return len(b), nil
}

func (l *amLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// startAlertmanager runs one on a loopback port until the test ends.
func startAlertmanager(t *testing.T, config string) *alertmanager {
	t.Helper()
	binary := alertmanagerBinary(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "alertmanager.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	a := &alertmanager{log: &amLog{addr: make(chan string, 1)}}
	cmd := exec.Command(binary, "--config.file="+file, "--storage.path="+filepath.Join(dir, "data"), "--web.listen-address=127.0.0.1:0",
		"--cluster.listen-address=", "--web.external-url=http://alertmanager.localhost")
	cmd.Stdout, cmd.Stderr = a.log, a.log
	run, err := startChild(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		kill := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
		defer kill.Stop()
		<-run.done // how it ends is its own matter
		if t.Failed() {
			t.Logf("Alertmanager said:\n%s", a.log)
		}
	})
	select {
	case addr := <-a.log.addr:
		a.url = "http://" + addr
	case <-within(t).Done():
		t.Fatalf("Alertmanager does not listen:\n%s", a.log)
	}
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
