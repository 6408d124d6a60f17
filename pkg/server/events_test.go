package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap/zaptest"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
	"github.com/tocsin-oncall/tocsin/pkg/server"
)

// another is a second server on the same database, with an ear of its own.
func (w *world) another() (*server.Server, string) {
	w.t.Helper()
	srv := server.New(server.Options{
		Store: w.store, Intake: w.intake, File: func() *config.File { return w.file },
		Providers: func(string) (provider.Provider, bool) { return nil, false },
		Unready:   func() string { return "" }, Stopping: w.stopping.Load, Ring: func() {}, Linked: func(context.Context) {},
		Redact: func(s string) string { return s }, Metrics: noMetrics{}, Log: zaptest.NewLogger(w.t).Sugar(), Version: "test",
	})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		srv.Hear(ctx)
		close(done)
	}()
	h := httptest.NewServer(srv)
	w.t.Cleanup(func() {
		srv.HangUp()
		h.Close()
		stop()
		<-done
	})
	return srv, h.URL
}

// listening is an open stream.
type listening struct {
	t      *testing.T
	lines  *bufio.Scanner
	cancel context.CancelFunc
}

func (w *world) listen(base, query, last string) *listening {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 30*time.Second)
	w.t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/v1/events"+query, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+fileTokens["eye"])
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = resp.Body.Close() })
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		w.t.Fatalf("%d %s", resp.StatusCode, resp.Header.Get("Content-Type"))
	}
	l := &listening{t: w.t, lines: bufio.NewScanner(resp.Body), cancel: cancel}
	l.lines.Buffer(nil, 1<<20)
	if !l.lines.Scan() || l.lines.Text() != ": listening" {
		w.t.Fatalf("the stream begins with %q", l.lines.Text())
	}
	return l
}

// next is the next event.
func (l *listening) next() api.LiveEvent {
	l.t.Helper()
	var e api.LiveEvent
	name, id := "", int64(0)
	for l.lines.Scan() {
		line := l.lines.Text()
		switch {
		case strings.HasPrefix(line, "event: "):
			name = line[len("event: "):]
		case strings.HasPrefix(line, "id: "):
			if _, err := fmt.Sscan(line[len("id: "):], &id); err != nil {
				l.t.Fatal(err)
			}
		case strings.HasPrefix(line, "data: "):
			if err := json.Unmarshal([]byte(line[len("data: "):]), &e); err != nil {
				l.t.Fatal(err)
			}
		case line == "" && name != "":
			if e.Type != name || e.ID != id {
				l.t.Fatalf("event %q with id %d holds %+v", name, id, e)
			}
			return e
		}
	}
	l.t.Fatalf("the stream ended: %v", l.lines.Err())
	return e
}

func alertOf(kind, key string) string {
	return fmt.Sprintf(`{"kind": %q, "criticality": "critical", "job": "load", "key": %q, "title": "T"}`, kind, key)
}

// A14: a listener hears the alert at once, also from another replica, and also where no route takes it.
func TestListenerHearsAlerts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	srv, base := w.another()
	l := w.listen(base, "?topic=alert.failed.%23&topic=alert.*.*.other", "")
	all := w.listen(base, "", "")
	want[api.Accepted](w, 202, "in", "POST", "/v1/alerts", alertOf("unheard", "a"))
	got := want[api.Accepted](w, 202, "in", "POST", "/v1/alerts", alertOf("failed", "b"))
	srv.Rung()
	e := l.next()
	if e.Type != api.EventAlert || e.Topic != "alert.failed.critical.load" || e.Alert == nil || e.Alert.ID != got.AlertID || e.Alert.IncidentID != got.IncidentID || e.At == nil {
		t.Errorf("heard %+v", e)
	}
	if e := l.next(); e.Type != api.EventOpened || e.Incident == nil || e.Incident.ID != got.IncidentID || e.Incident.State != "open" {
		t.Errorf("heard %+v", e)
	}
	want[api.Incident](w, 200, "hand", "POST", "/v1/incidents/"+got.IncidentID+"/acknowledge", "{}")
	want[api.Incident](w, 200, "hand", "POST", "/v1/incidents/"+got.IncidentID+"/resolve", "{}")
	srv.Rung()
	ack := l.next()
	if ack.Type != api.EventAcknowledged || ack.Incident.AcknowledgedBy == "" {
		t.Errorf("heard %+v", ack)
	}
	if e := l.next(); e.Type != api.EventResolved || e.ID <= ack.ID {
		t.Errorf("heard %+v", e)
	}
	if e := all.next(); e.Topic != "alert.unheard.critical.load" {
		t.Errorf("who listens to all heard %+v first", e)
	}
}

// Who comes back with the last id hears what came meanwhile, in order, each once; also on another replica.
func TestListenerGoesOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one, base := w.another()
	_, other := w.another()
	l := w.listen(base, "?topic=alert.failed.%23", "")
	want[api.Accepted](w, 202, "in", "POST", "/v1/alerts", alertOf("failed", "0"))
	one.Rung()
	last := l.next()
	l.cancel()
	for i := range 20 {
		want[api.Accepted](w, 202, "in", "POST", "/v1/alerts", alertOf("failed", fmt.Sprint(i+1)))
	}
	again := w.listen(other, "?topic=alert.failed.%23", fmt.Sprint(last.ID))
	var heard []string
	if e := again.next(); e.Type != api.EventOpened {
		t.Errorf("what came with the last event is %+v", e)
	}
	for len(heard) < 20 {
		e := again.next()
		if e.ID <= last.ID {
			t.Errorf("event %d after %d", e.ID, last.ID)
		}
		if last = e; e.Type == api.EventOpened {
			heard = append(heard, e.Incident.Key)
		}
	}
	if heard[0] != "1" || heard[19] != "20" {
		t.Errorf("heard %q", heard)
	}
	w.refused(422, api.ProblemInvalid, "eye", "GET", "/v1/events", "", "Last-Event-ID", "x")
	w.refused(422, api.ProblemInvalid, "eye", "GET", "/v1/events?topic=a..b", "")
	w.refused(403, api.ProblemForbidden, "in", "GET", "/v1/events", "")
	gone := w.listen(other, "", "999999999")
	if e := gone.next(); e.Type != api.EventMissed || e.Reason != "too_old" {
		t.Errorf("an id that was never given out: %+v", e)
	}
}

// Who has heard more at another replica than this one's ear has handed out is told nothing twice.
func TestListenerThatHasHeardMoreElsewhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, base := w.another()
	other, another := w.another()
	// The ear of this replica stands still while somebody listens: it looks once a second, and is not rung.
	here := w.listen(base, "?topic=alert.failed.%23", "")
	there := w.listen(another, "?topic=alert.failed.%23", "")
	want[api.Accepted](w, 202, "in", "POST", "/v1/alerts", alertOf("failed", "0"))
	other.Rung()
	first, second := there.next(), there.next()
	again := w.listen(base, "?topic=alert.failed.%23", fmt.Sprint(second.ID))
	if e := here.next(); e.ID != first.ID {
		t.Errorf("heard %+v first", e)
	}
	want[api.Accepted](w, 202, "in", "POST", "/v1/alerts", alertOf("failed", "1"))
	if e := again.next(); e.ID <= second.ID {
		t.Errorf("heard %+v again", e)
	}
}

// A database that was put back to an earlier state gives out numbers anew: who listens is told and goes on.
func TestListenerAfterEventsWereLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	srv, base := w.another()
	l := w.listen(base, "?topic=alert.failed.%23", "")
	want[api.Accepted](w, 202, "in", "POST", "/v1/alerts", alertOf("failed", "0"))
	srv.Rung()
	l.next()
	last := l.next()
	db, err := pgx.Connect(t.Context(), w.url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(t.Context())
	if _, err := db.Exec(t.Context(), "with gone as (delete from event) select setval('event_number', 1, false)"); err != nil {
		t.Fatal(err)
	}
	srv.Rung()
	if e := l.next(); e.Type != api.EventDropped || e.Reason != "rewound" {
		t.Errorf("heard %+v", e)
	}
	again := w.listen(base, "?topic=alert.failed.%23", fmt.Sprint(last.ID))
	if e := again.next(); e.Type != api.EventMissed {
		t.Errorf("heard %+v", e)
	}
	want[api.Accepted](w, 202, "in", "POST", "/v1/alerts", alertOf("failed", "1"))
	srv.Rung()
	if e := again.next(); e.Type != api.EventAlert || e.ID >= last.ID {
		t.Errorf("heard %+v", e)
	}
}

// A14: who does not listen fast enough is dropped with a word, and delays nobody.
func TestSlowListenerIsDropped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	srv, base := w.another()
	// It asks and does not read: what the kernel keeps for it is little.
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.(*net.TCPConn).SetReadBuffer(64 << 10); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "GET /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", fileTokens["eye"])
	slow := bufio.NewReader(conn)
	for line := ""; !strings.HasPrefix(line, ": listening"); {
		if line, err = slow.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	quick := w.listen(base, "?topic=alert.last.%23", "")
	big := strings.Repeat("x", 4000)
	labels := fmt.Sprintf(`{"a": %q, "b": %q}`, big, big)
	db, err := pgx.Connect(t.Context(), w.url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(t.Context())
	if _, err := db.Exec(t.Context(), `insert into event (at, type, topic, body) select now(), 'alert', 'alert.many.critical.load', jsonb_build_object('alert', jsonb_build_object('labels', $1::jsonb)) from generate_series(1, 3000)`, labels); err != nil {
		t.Fatal(err)
	}
	want[api.Accepted](w, 202, "in", "POST", "/v1/alerts", alertOf("last", "z"))
	srv.Rung()
	if e := quick.next(); e.Topic != "alert.last.critical.load" {
		t.Errorf("the quick one heard %+v", e)
	}
	if err := conn.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	for line := ""; !strings.HasPrefix(line, "event: dropped"); {
		if line, err = slow.ReadString('\n'); err != nil {
			t.Fatalf("the slow one was told nothing: %v", err)
		}
	}
	if line, _ := slow.ReadString('\n'); !strings.Contains(line, `"too_slow"`) {
		t.Errorf("it was told %q", line)
	}
}

func TestHangUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	srv, base := w.another()
	l := w.listen(base, "", "")
	srv.HangUp()
	if e := l.next(); e.Type != api.EventDropped || e.Reason != "leaving" {
		t.Errorf("heard %+v", e)
	}
	for l.lines.Scan() {
		if l.lines.Text() != "" {
			t.Errorf("after it there is %q", l.lines.Text())
		}
	}
	w.stopping.Store(true)
	w.refused(503, api.ProblemStopping, "eye", "GET", "/v1/events", "")
}
