package app

import (
	"bytes"
	"context"
	"go/build"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

// peer is a real program that sends alerts: this version where it has to be built. Any that is found installed is as good:
// all of them speak the same.
type peer struct {
	name    string
	module  string
	version string
	also    string // what distributions call it
}

var (
	peerAlertmanager = peer{"alertmanager", "github.com/prometheus/alertmanager/cmd/alertmanager", "v0.28.1", "prometheus-alertmanager"}
	peerPrometheus   = peer{"prometheus", "github.com/prometheus/prometheus/cmd/prometheus", "v0.316.0", "prometheus"}
	peerVmalert      = peer{"vmalert", "github.com/VictoriaMetrics/VictoriaMetrics/app/vmalert", "v1.151.0", "vmalert-prod"}
)

const peerBuild = 20 * time.Minute // cold, on a busy machine

// wantsPeers says that the real programs are to be had (make test-peers): what is not installed is built, and what can't be
// is a failure. Else a test whose program is not there is skipped.
func wantsPeers() bool { return os.Getenv("TOCSIN_PEERS") != "" }

// binary finds the program, or builds it into the user's cache, where the next run finds it.
func (p peer) binary(t *testing.T) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	built := filepath.Join(cache, "tocsin", p.name+"-"+p.version, p.name)
	for _, name := range []string{filepath.Join(build.Default.GOPATH, "bin", p.name), built, p.name, p.also} {
		if found, err := exec.LookPath(name); err == nil {
			t.Logf("the client is %s", found)
			return found
		}
	}
	if !wantsPeers() {
		t.Skipf("the client of this test is the real %s, which is not installed; `make test-peers` builds it", p.name)
	}
	t.Logf("building %s %s into %s", p.name, p.version, filepath.Dir(built))
	here := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), peerBuild)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "install", p.module+"@"+p.version)
	cmd.Dir = here
	cmd.Env = append(os.Environ(), "GOBIN="+here, "GOFLAGS=", "CGO_ENABLED=0", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("the real %s is neither installed nor could be built by `go install %s@%s`: %v\n%s", p.name, p.module, p.version, err, out)
	}
	fresh := filepath.Join(here, path.Base(p.module))
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

// said keeps what a program says.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *said) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *said) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// running is a program that runs until the test ends, or until it is killed.
type running struct {
	*child
	log *said
}

// run starts the program.
func (p peer) run(t *testing.T, args ...string) *running {
	t.Helper()
	r := &running{log: &said{}}
	cmd := exec.Command(p.binary(t), args...)
	cmd.Stdout, cmd.Stderr = r.log, r.log
	var err error
	if r.child, err = startChild(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = r.cmd.Process.Signal(syscall.SIGTERM)
		kill := time.AfterFunc(10*time.Second, func() { _ = r.cmd.Process.Kill() })
		defer kill.Stop()
		<-r.done // how it ends is its own matter
		if t.Failed() {
			t.Logf("%s said:\n%s", p.name, r.log)
		}
	})
	return r
}

// kill ends it without a word.
func (r *running) kill() {
	_ = r.cmd.Process.Kill()
	<-r.done
}

// written puts a file of a program's into a folder of the test's.
func written(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
