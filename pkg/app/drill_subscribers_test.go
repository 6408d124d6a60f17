package app

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/nettest"
)

const subscribersFile = `
notifiers:
  well: {type: webhook, url: "WELL", timeout: 5s}
  fails: {type: webhook, url: "FAILS", timeout: 1s, retries: {count: 2, delay: 100ms, max_delay: 500ms}}
  hangs: {type: webhook, url: "HANGS", timeout: 300ms, retries: {count: 2, delay: 100ms, max_delay: 500ms}}
  refuses: {type: webhook, url: "REFUSES", timeout: 1s, retries: {count: 2, delay: 100ms, max_delay: 500ms}}
  busy: {type: webhook, url: "BUSY", timeout: 5s, retries: {delay: 100ms, max_delay: 500ms}}
routes:
  - {match: "alert.*.*.db", notify: [well, fails, hangs, refuses, busy]}
  - {match: "alert.*.*.quiet", notify: [well]}
  - {match: "alert.*.*._tocsin", notify: [well]}
`

// subscriber notes when it has got which alert.
type subscriber struct {
	mu  sync.Mutex
	got map[string][]time.Time // by title
}

func (s *subscriber) note(body io.Reader) {
	var event struct {
		Data struct {
			Incident struct{ Title string } `json:"incident"`
		} `json:"data"`
	}
	b, _ := io.ReadAll(body)
	_ = json.Unmarshal(b, &event)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got[event.Data.Incident.Title] = append(s.got[event.Data.Incident.Title], time.Now())
}

func (s *subscriber) count() (distinct, all int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, times := range s.got {
		distinct, all = distinct+1, all+len(times)
	}
	return distinct, all
}

// intakeBound is how long an alert may take to be accepted while subscribers are dead. Half of them must keep it, or what
// the machine made of them without the dead: the tests beside this one take its time as they like.
const intakeBound = 50 * time.Millisecond

// Of five subscribers one fails, one hangs, one is not there, and one asks for rest now and then. The fifth gets everything
// at once, the intake does not notice, and the dead are not called for ever.
func TestDeadSubscribersHarmNobodyElse(t *testing.T) {
	t.Parallel()
	well, busy := &subscriber{got: map[string][]time.Time{}}, &subscriber{got: map[string][]time.Time{}}
	serve := func(h http.HandlerFunc) string {
		s := httptest.NewServer(h)
		t.Cleanup(s.Close)
		return s.URL
	}
	released := make(chan struct{})
	wellURL := serve(func(_ http.ResponseWriter, r *http.Request) { well.note(r.Body) })
	failsURL := serve(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	hangsURL := serve(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-released:
		}
	})
	t.Cleanup(func() { close(released) }) // before its server is closed, which waits for it
	var mu sync.Mutex
	calls := 0
	busyURL := serve(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		calls++
		rest := calls == 3 || calls == 9
		mu.Unlock()
		if rest {
			w.Header().Set("Retry-After", "2")
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		busy.note(r.Body)
	})
	refusesURL := "http://" + nettest.Refused(t)
	d := newDrill(t, drillSetup{replicas: 2, file: strings.NewReplacer("WELL", wellURL, "FAILS", failsURL, "HANGS", hangsURL, "REFUSES", refusesURL, "BUSY", busyURL).Replace(subscribersFile)})
	// What this machine can do at this moment, with other tests beside this one, while nobody is dead.
	const quiet = 20
	var usual, took []time.Duration
	for i := range quiet {
		at := time.Now()
		d.fire(i, "quiet", "warning", fmt.Sprint("quiet ", i))
		usual = append(usual, time.Since(at))
	}
	d.until("the quiet ones are out", 0, func() bool { n, _ := well.count(); return n == quiet })
	slices.Sort(usual)

	amount := drillAmount(40, 400)
	asked := map[string]time.Time{}
	for i := range amount {
		title := fmt.Sprintf("subscribers %04d", i)
		asked[title] = time.Now()
		d.fire(i, "db", "warning", title)
		took = append(took, time.Since(asked[title]))
	}
	d.until("the well one has all", 0, func() bool {
		well.mu.Lock()
		defer well.mu.Unlock()
		for title := range asked {
			if len(well.got[title]) == 0 {
				return false
			}
		}
		return true
	})
	slices.Sort(took)
	if p50 := took[len(took)/2]; p50 > max(slowed(intakeBound), 3*usual[quiet/2]) {
		t.Errorf("half of the alerts took longer than %s to be accepted, %s while nobody was dead", p50, usual[quiet/2])
	}
	var delays []time.Duration
	well.mu.Lock()
	for title, at := range asked {
		delays = append(delays, well.got[title][0].Sub(at))
		if n := len(well.got[title]); n != 1 {
			t.Errorf("the well one got %q %d times", title, n)
		}
	}
	well.mu.Unlock()
	slices.Sort(delays)
	if p50 := delays[len(delays)/2]; p50 > slowed(time.Second) {
		t.Errorf("half of the events reached the well one later than %s", p50)
	}

	d.until("the dead are given up", 0, func() bool {
		return ask[int](d, "select count(*) from delivery where notifier in ('fails', 'hangs', 'refuses') and kind = 'event' and state <> 'exhausted'") == 0
	})
	if most := ask[int](d, "select max(attempts) from delivery where notifier in ('fails', 'hangs', 'refuses')"); most != 3 {
		t.Errorf("a dead one was called %d times for one event", most)
	}
	d.until("the busy one has all", 0, func() bool {
		return ask[int](d, "select count(*) from delivery where notifier = 'busy' and state <> 'sent'") == 0
	})
	if distinct, all := busy.count(); distinct != amount || all != distinct {
		t.Errorf("the busy one got %d events %d times", distinct, all)
	}
	// From the answer on: the result is written a moment later.
	early := list[string](d, `select y.worker || ' ' || (y.started_at - x.finished_at) || ' after ' || x.worker || ' was told'
		from attempt_history x join attempt_history y on y.notifier = x.notifier and y.started_at > x.finished_at
		where x.notifier = 'busy' and x.http_status = 503 and y.started_at < x.started_at + x.duration_ms * interval '1 millisecond' + interval '2 seconds'`)
	for _, e := range early {
		t.Errorf("the busy one was called too early: %s", e)
	}
	if n := ask[int](d, "select count(*) from attempt_history where notifier = 'busy' and http_status = 503"); n != 2 {
		t.Errorf("the busy one asked for rest %d times", n)
	}
	t.Logf("accepted: p50 %s (%s while nobody was dead), slowest %s; at the well one: p50 %s, slowest %s", took[len(took)/2], usual[quiet/2], took[len(took)-1], delays[len(delays)/2], delays[len(delays)-1])
}
