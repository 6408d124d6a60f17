package app

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// How long a process may take. The machine may be crowded; none of these is a wait.
const (
	chaosStartLimit = 30 * time.Second
	chaosStopLimit  = 45 * time.Second // above the shutdown's grace with the grace for recording
)

// chaosBinary is the program under test, built once.
func chaosBinary(t *testing.T) string {
	t.Helper()
	path, err := chaosBuild()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var chaosBuild = sync.OnceValues(func() (string, error) {
	path := filepath.Join(chaosDir, "tocsin")
	args := slices.Concat([]string{"build", "-buildvcs=false"}, chaosFlags, []string{"-o", path, "github.com/tocsin-oncall/tocsin/cmd/tocsin"})
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build tocsin: %w\n%s", err, out)
	}
	return path, nil
})

// chaosReplica is one place for a `tocsin serve` process: at most one lives in it at a time, one after another.
type chaosReplica struct {
	slot     int
	binary   string
	file     string
	database string
	blame    func(format string, args ...any) // t.Errorf

	mu      sync.Mutex
	life    *chaosLife
	lives   int
	writers map[string]string // how a process is called in the database's log of writes -> its replica's id
	events  map[string]int
	slowest time.Duration // of the starts
}

// chaosLife is one process.
type chaosLife struct {
	*child
	log *chaosLog
}

// address is where the place's process takes alerts; empty while there is none. A frozen one has an address.
func (r *chaosReplica) address() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.life == nil {
		return ""
	}
	return r.life.log.address()
}

// start brings a process to life and returns when it serves. One whose connection is cut while it starts ends, and says
// so; like any orchestrator, it starts another.
func (r *chaosReplica) start(ctx context.Context) error {
	for {
		err := r.startOnce(ctx)
		if err == nil || !strings.Contains(err.Error(), "57P01") {
			return err
		}
		r.mu.Lock()
		r.events["start cut"]++
		r.mu.Unlock()
	}
}

func (r *chaosReplica) startOnce(ctx context.Context) error {
	r.mu.Lock()
	r.lives++
	writer := fmt.Sprintf("%d.%d", r.slot, r.lives)
	r.mu.Unlock()
	u, err := url.Parse(r.database)
	if err != nil {
		return err
	}
	// A setting of the session that the log of writes reads: who wrote.
	q := u.Query()
	q.Set("chaos.writer", writer)
	u.RawQuery = q.Encode()

	began := time.Now()
	l := &chaosLife{log: &chaosLog{serving: make(chan struct{})}}
	cmd := exec.Command(r.binary, "serve", "--config", r.file)
	cmd.Env = append(os.Environ(), "TOCSIN_DATABASE_URL="+u.String(), "GOTRACEBACK=all")
	cmd.Stdout, cmd.Stderr = l.log, l.log
	if l.child, err = startChild(cmd); err != nil {
		return err
	}
	limit := time.NewTimer(chaosStartLimit)
	defer limit.Stop()
	select {
	case <-l.log.serving:
	case <-l.done:
		return fmt.Errorf("replica %s ended before it served: %w\n%s", writer, l.err, l.log.tail())
	case <-limit.C:
		_ = l.cmd.Process.Kill()
		return fmt.Errorf("replica %s did not serve within %s\n%s", writer, chaosStartLimit, l.log.tail())
	case <-ctx.Done():
		_ = l.cmd.Process.Kill()
		return context.Cause(ctx)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.life, r.slowest = l, max(r.slowest, time.Since(began))
	r.writers[writer] = l.log.replica()
	return nil
}

// take ends the place's process for everybody who asks for an address, and hands it to the caller.
func (r *chaosReplica) take() *chaosLife {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.life
	r.life = nil
	return l
}

// kill ends the process without a word, frozen or not.
func (r *chaosReplica) kill() {
	if l := r.take(); l != nil {
		_ = l.cmd.Process.Kill()
		<-l.done
		r.complain(l)
	}
}

// stop ends the process as an orchestrator would, and wants it to end well.
func (r *chaosReplica) stop() error {
	l := r.take()
	if l == nil {
		return nil
	}
	defer r.complain(l)
	_ = l.cmd.Process.Signal(syscall.SIGTERM)
	limit := time.NewTimer(chaosStopLimit)
	defer limit.Stop()
	select {
	case <-l.done:
	case <-limit.C:
		_ = l.cmd.Process.Signal(syscall.SIGQUIT) // its stacks say what it waits for
		<-l.done
		return fmt.Errorf("replica %d did not stop within %s of SIGTERM\n%s", r.slot, chaosStopLimit, l.log.tail())
	}
	if l.err != nil {
		return fmt.Errorf("replica %d did not end well after SIGTERM: %w\n%s", r.slot, l.err, l.log.tail())
	}
	return nil
}

// complain reports what a process logged as an error: nothing that this test does is one.
func (r *chaosReplica) complain(l *chaosLife) {
	for _, line := range l.log.errors() {
		r.blame("replica %d logged an error: %s", r.slot, line)
	}
}

// torment kills, freezes and restarts the place's process until ctx ends, and leaves a living one behind. The first
// events are given, so that each run has all of them; the others are drawn.
func (r *chaosReplica) torment(ctx context.Context, rng *rand.Rand, lease time.Duration, first []string) {
	all := []string{"kill", "freeze", "restart"}
	for n := 0; ; n++ {
		event := all[rng.IntN(len(all))]
		if n < len(first) {
			event = first[n]
		}
		if !chaosWait(ctx, between(rng, 500*time.Millisecond, 4*time.Second)) {
			return
		}
		r.mu.Lock()
		l := r.life
		r.events[event]++
		r.mu.Unlock()
		select {
		case <-l.done:
			r.blame("replica %d ended by itself: %v\n%s", r.slot, l.err, l.log.tail())
		default:
		}
		switch event {
		case "freeze":
			_ = l.cmd.Process.Signal(syscall.SIGSTOP)
			chaosWait(ctx, lease+between(rng, 200*time.Millisecond, 2*time.Second))
			_ = l.cmd.Process.Signal(syscall.SIGCONT)
			continue
		case "restart":
			if err := r.stop(); err != nil {
				r.blame("%v", err)
			}
		default:
			r.kill()
			chaosWait(ctx, between(rng, 0, 1500*time.Millisecond))
		}
		if err := r.start(context.WithoutCancel(ctx)); err != nil {
			r.blame("%v", err)
			return
		}
	}
}

func between(rng *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(rng.Int64N(int64(most-least)+1))
}

// chaosWait lets d pass. It says whether ctx still lasts.
func chaosWait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// chaosLog reads a process's output as it comes.
type chaosLog struct {
	serving chan struct{} // closed when the process says that it runs

	mu     sync.Mutex
	rest   []byte
	last   []string // the newest lines
	wrong  []string // error lines, and what is no line of the log at all: panics
	listen string
	id     string
}

func (l *chaosLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, b...)
	for {
		line, rest, found := bytes.Cut(l.rest, []byte("\n"))
		if !found {
			return len(b), nil
		}
		l.rest = rest
		l.line(string(line))
	}
}

func (l *chaosLog) line(text string) {
	const kept = 60
	if l.last = append(l.last, text); len(l.last) > kept {
		l.last = l.last[1:]
	}
	var said struct{ Level, Message, Listen, Replica string }
	if err := json.Unmarshal([]byte(text), &said); err != nil || said.Level == "error" {
		l.wrong = append(l.wrong, text)
		return
	}
	if said.Message == "tocsin runs" && l.id == "" {
		l.listen, l.id = said.Listen, said.Replica
		close(l.serving)
	}
}

func (l *chaosLog) address() string { l.mu.Lock(); defer l.mu.Unlock(); return l.listen }
func (l *chaosLog) replica() string { l.mu.Lock(); defer l.mu.Unlock(); return l.id }
func (l *chaosLog) tail() string    { l.mu.Lock(); defer l.mu.Unlock(); return strings.Join(l.last, "\n") }
func (l *chaosLog) errors() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.wrong) > 0 && !strings.HasPrefix(l.wrong[0], "{") {
		return []string{strings.Join(l.wrong, "\n")} // a panic is one error, however long
	}
	return l.wrong
}
