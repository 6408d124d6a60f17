package app

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/client"
	"github.com/tocsin-oncall/tocsin/pkg/store"
	"github.com/tocsin-oncall/tocsin/pkg/store/storetest"
)

// trio is three real processes on one database, each with a file of its own, and a receiver of webhooks.
type trio struct {
	t        *testing.T
	db       string
	token    string
	hash     []byte
	all      [3]*chaosReplica
	receiver *receiver
}

const trioFile = `
server: {listen: "127.0.0.1:0", metrics_listen: "127.0.0.1:0", public_url: "http://tocsin.localhost", tokens: [{name: ops, hash: "sha256:%s", scopes: [admin]}]}
database: {max_connections: 6}
worker: {lease: 4s}
reload: {grace: 1s}
`

// newTrio starts three replicas with one file.
func newTrio(t *testing.T, rest string) *trio {
	t.Helper()
	w := &trio{t: t, db: storetest.NewPlain(t), receiver: newReceiver(t)}
	w.token, w.hash = store.MakeToken()
	binary, dir := chaosBinary(t), t.TempDir()
	blame := func(format string, args ...any) {
		// That a wrong file is one is what a test wants to hear.
		if line := fmt.Sprintf(format, args...); !strings.Contains(line, "the file on the disk is wrong") {
			t.Error(line)
		}
	}
	var starting sync.WaitGroup
	for i := range w.all {
		r := &chaosReplica{slot: i, binary: binary, file: filepath.Join(dir, fmt.Sprint(i), "tocsin.yaml"), database: w.db, blame: blame, writers: map[string]string{}, events: map[string]int{}}
		if err := os.Mkdir(filepath.Dir(r.file), 0o700); err != nil {
			t.Fatal(err)
		}
		w.all[i] = r
		w.write(i, rest)
		t.Cleanup(r.kill)
		starting.Go(func() {
			if err := r.start(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	if starting.Wait(); t.Failed() {
		t.FailNow()
	}
	return w
}

// write puts a file in place of a replica's, and returns its checksum. URLs of the receiver stand in it as @/path.
func (w *trio) write(slot int, rest string) string {
	w.t.Helper()
	text := fmt.Appendf(nil, trioFile, hex.EncodeToString(w.hash))
	text = append(text, strings.ReplaceAll(rest, "@", w.receiver.url)...)
	next := w.all[slot].file + ".next"
	if err := os.WriteFile(next, text, 0o600); err != nil {
		w.t.Fatal(err)
	}
	if err := os.Rename(next, w.all[slot].file); err != nil {
		w.t.Fatal(err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])[:12]
}

// hangup tells a replica to read its file.
func (w *trio) hangup(slot int) {
	w.t.Helper()
	if err := w.all[slot].current().cmd.Process.Signal(syscall.SIGHUP); err != nil {
		w.t.Fatal(err)
	}
}

// roll gives replicas a new file, one after another, each once the one before has it in force.
func (w *trio) roll(rest string, slots ...int) {
	w.t.Helper()
	for _, slot := range slots {
		sum := w.write(slot, rest)
		w.hangup(slot)
		eventually(w.t, "the file is in force", func() bool { return w.seen(slot).Checksum == sum })
	}
}

// seen is a replica as the API shows it.
func (w *trio) seen(slot int) api.Replica {
	w.t.Helper()
	l, err := w.client(slot).Replicas(within(w.t))
	if err != nil {
		w.t.Fatal(err)
	}
	for _, r := range l.Items {
		if r.ID == w.all[slot].current().log.replica() {
			return r
		}
	}
	return api.Replica{}
}

// client speaks to one replica.
func (w *trio) client(slot int) *client.Client {
	w.t.Helper()
	c, err := client.New("http://"+w.all[slot].address(), w.token)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// fire sends an alert to a replica, and wants it accepted.
func (w *trio) fire(slot int, kind, key string) api.Accepted {
	w.t.Helper()
	a, err := w.client(slot).SendAlert(within(w.t), api.Alert{Kind: kind, Criticality: "critical", Job: "load", Key: key, Title: key}, "")
	if err != nil {
		w.t.Fatal(err)
	}
	return a
}

// sendAgain is a decision through a replica: 200, or the status of its refusal with the words.
func (w *trio) sendAgain(slot int, id string) (int, string) {
	w.t.Helper()
	_, err := w.client(slot).Decide(within(w.t), id, api.Decide{Action: api.ActionSendAgain, Reason: "mended"})
	var refused *api.Problem
	switch {
	case err == nil:
		return http.StatusOK, ""
	case errors.As(err, &refused):
		return refused.Status, refused.Detail
	}
	return 0, err.Error()
}

// comes waits until a query says yes.
func (w *trio) comes(what, query string, args ...any) {
	w.t.Helper()
	comes(w.t, w.db, what, query, args...)
}

// comes is eventually for what a replica looks at every ten seconds only, or has much to do for.
func comes(t testing.TB, db, what, query string, args ...any) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !one[bool](t, db, query, args...); {
		if time.Now().After(end) {
			t.Fatalf("%s: it did not come to that", what)
		}
		chaosWait(t.Context(), 50*time.Millisecond)
	}
}

// current is the process that lives in a place.
func (r *chaosReplica) current() *chaosLife {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.life
}

// stream is an open stream of live events.
type stream struct {
	t      *testing.T
	lines  *bufio.Scanner
	cancel context.CancelFunc
}

// listen opens a stream at a replica; what happens from its return on is heard.
func (w *trio) listen(slot int, topic string, after int64) *stream {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	w.t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+w.all[slot].address()+"/v1/events?topic="+strings.ReplaceAll(topic, "#", "%23"), nil)
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+w.token)
	if after > 0 {
		req.Header.Set("Last-Event-ID", fmt.Sprint(after))
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = resp.Body.Close() })
	s := &stream{t: w.t, lines: bufio.NewScanner(resp.Body), cancel: cancel}
	if s.lines.Buffer(nil, 1<<20); !s.lines.Scan() || s.lines.Text() != ": listening" {
		w.t.Fatalf("the stream begins with %d %q", resp.StatusCode, s.lines.Text())
	}
	return s
}

// next is the next event of a type.
func (s *stream) next(typ string) api.LiveEvent {
	s.t.Helper()
	for s.lines.Scan() {
		data, ok := bytes.CutPrefix(s.lines.Bytes(), []byte("data: "))
		var e api.LiveEvent
		if !ok {
			continue
		}
		if err := json.Unmarshal(data, &e); err != nil {
			s.t.Fatal(err)
		}
		if e.Type == typ || e.Type == api.EventDropped || e.Type == api.EventMissed {
			return e
		}
	}
	s.t.Fatalf("the stream ended: %v", s.lines.Err())
	return api.LiveEvent{}
}

// receiver takes webhooks as a test tells it to.
type receiver struct {
	url string

	mu     sync.Mutex
	status map[string]int           // by path; not named: 200
	gates  map[string]chan struct{} // by path: calls wait until it is closed
	taken  map[string]int           // calls that were answered well, by path and effect key
	tries  map[string]int           // calls, by path
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{status: map[string]int{}, gates: map[string]chan struct{}{}, taken: map[string]int{}, tries: map[string]int{}}
	s := httptest.NewServer(r)
	t.Cleanup(s.Close)
	r.url = s.URL
	return r
}

func (r *receiver) ServeHTTP(out http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	r.tries[req.URL.Path]++
	gate := r.gates[req.URL.Path]
	r.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-req.Context().Done():
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	status := r.status[req.URL.Path]
	if status == 0 {
		status = http.StatusOK
		r.taken[req.URL.Path+" "+req.Header.Get("Webhook-Id")]++
	}
	out.WriteHeader(status)
}

func (r *receiver) answer(path string, status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status[path] = status
}

// hold lets calls to a path wait until the returned function is called.
func (r *receiver) hold(path string) (release func()) {
	gate := make(chan struct{})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gates[path] = gate
	return sync.OnceFunc(func() { close(gate) })
}

func (r *receiver) tried(path string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tries[path]
}

// times is how often an effect was taken.
func (r *receiver) times(path, key string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.taken[path+" "+key]
}
