package app

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tocsin-oncall/tocsin/pkg/api"
)

// The fates of alerts: what happens to their incidents once people were paged.
const (
	fateOpen         = "open"
	fateAcknowledged = "acknowledged"
	fateBoth         = "acknowledged, then resolved"
	fateResolved     = "resolved"
	fateAtOnce       = "resolved at once" // by its source, whether the page is out or not
)

var chaosFates = []string{fateOpen, fateOpen, fateOpen, fateAcknowledged, fateAcknowledged, fateBoth, fateResolved, fateAtOnce}

// chaosAlert is one alert of the source, which is one incident.
type chaosAlert struct {
	api.Alert
	fate string
}

func (a chaosAlert) both() bool { return a.Criticality == "high" } // in both chats

func (a chaosAlert) ends() string {
	switch a.fate {
	case fateOpen:
		return "open"
	case fateAcknowledged:
		return "acknowledged"
	}
	return "resolved"
}

func chaosAlerts(n int) []chaosAlert {
	out := make([]chaosAlert, n)
	for i := range out {
		name := fmt.Sprintf("%05d", i)
		out[i] = chaosAlert{fate: chaosFates[i%len(chaosFates)], Alert: api.Alert{
			Kind: "disk_full", Criticality: "critical", Job: "chaos", Key: "chaos-" + name, Title: "Disk of host " + name + " is full",
			Labels: map[string]string{"host": name},
		}}
		if (i/len(chaosFates))%4 == 0 { // each fate in both chats
			out[i].Criticality = "high"
		}
	}
	return out
}

// chaosSource sends as a patient source does: to whichever replica answers, the same again until one has taken it.
type chaosSource struct {
	replicas []*chaosReplica
	token    string
	client   *http.Client
	blame    func(format string, args ...any)

	mu       sync.Mutex
	rng      *rand.Rand
	accepted map[string]string // alert's key -> incident that the first 2xx named
	again    int               // requests that had to be sent again
}

func newChaosSource(replicas []*chaosReplica, token string, rng *rand.Rand, blame func(string, ...any)) *chaosSource {
	return &chaosSource{
		replicas: replicas, token: token, rng: rng, blame: blame, accepted: map[string]string{},
		// A frozen replica takes the connection and says nothing.
		client: &http.Client{Timeout: 3 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 8}},
	}
}

func (s *chaosSource) draw(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rng.IntN(n)
}

// send posts body until a replica has taken it. It fails only when ctx is over or tocsin refuses the request as wrong.
func (s *chaosSource) send(ctx context.Context, path, key string, body any) ([]byte, error) {
	b, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	said := "no replica has an address"
	for try := 0; ; try++ {
		if addr := s.replicas[(s.draw(len(s.replicas))+try)%len(s.replicas)].address(); addr != "" {
			answer, status, err := s.once(ctx, "http://"+addr+path, key, b)
			switch {
			case err != nil:
				said = err.Error()
			case status/100 == 2:
				return answer, nil
			case status/100 == 4 && bytes.Contains(answer, []byte(`"title"`)): // ours; a port may be a stranger's by now
				return nil, fmt.Errorf("%s was refused with %d: %s", path, status, answer)
			default:
				said = fmt.Sprintf("%d: %s", status, answer)
			}
		}
		s.mu.Lock()
		s.again++
		s.mu.Unlock()
		if !chaosWait(ctx, time.Duration(20+s.draw(100)+40*min(try, 10))*time.Millisecond) {
			return nil, fmt.Errorf("%s was not taken before the end: %s", path, said)
		}
	}
}

func (s *chaosSource) once(ctx context.Context, url, key string, body []byte) ([]byte, int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+s.token)
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, 0, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return answer, resp.StatusCode, err
}

// alert hands one alert in. Now and then the source does not see the answer, and sends the same once more.
func (s *chaosSource) alert(ctx context.Context, a chaosAlert, status string) {
	s.handIn(ctx, a, status)
	if s.draw(20) == 0 {
		s.handIn(ctx, a, status)
	}
}

func (s *chaosSource) handIn(ctx context.Context, a chaosAlert, status string) {
	a.Status = status
	answer, err := s.send(ctx, "/v1/alerts", a.Key+" "+status, a.Alert)
	if err != nil {
		s.blame("alert %s (%s): %v", a.Key, status, err)
		return
	}
	var took api.Accepted
	if err := json.Unmarshal(answer, &took); err != nil || took.IncidentID == "" {
		s.blame("alert %s (%s): the answer is %s", a.Key, status, answer)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if first, had := s.accepted[a.Key]; had && first != took.IncidentID {
		s.blame("alert %s: one answer named incident %s, another %s", a.Key, first, took.IncidentID)
	}
	s.accepted[a.Key] = took.IncidentID
}

// chaosBurst is how many alerts come at once: things break together.
const chaosBurst = 20

// firing sends all alerts in bursts that are spread over d, and those that resolve at once right after.
func (s *chaosSource) firing(ctx context.Context, alerts []chaosAlert, d time.Duration) {
	var all sync.WaitGroup
	defer all.Wait()
	tick := time.NewTicker(max(d*chaosBurst/time.Duration(len(alerts)), time.Microsecond))
	defer tick.Stop()
	for n, a := range alerts {
		all.Go(func() {
			s.alert(ctx, a, "firing")
			if a.fate == fateAtOnce {
				s.alert(ctx, a, "resolved")
			}
		})
		if (n+1)%chaosBurst != 0 {
			continue
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// answering gives each incident its fate once its pages are out: somebody acknowledges, the source resolves. It returns
// when all have theirs.
func (s *chaosSource) answering(ctx context.Context, db *pgxpool.Pool, alerts []chaosAlert) {
	left := map[string]chaosAlert{}
	for _, a := range alerts {
		if a.fate != fateOpen && a.fate != fateAtOnce {
			left[a.Key] = a
		}
	}
	var all sync.WaitGroup
	defer all.Wait()
	for len(left) > 0 {
		paged, err := chaosPaged(ctx, db)
		if err != nil && ctx.Err() == nil {
			s.blame("look for paged incidents: %v", err)
			return
		}
		for key, incident := range paged {
			a, waits := left[key]
			if !waits {
				continue
			}
			delete(left, key)
			all.Go(func() { s.answer(ctx, a, incident) })
		}
		if !chaosWait(ctx, 200*time.Millisecond) {
			s.blame("%d incidents were not paged before the end", len(left))
			return
		}
	}
}

func (s *chaosSource) answer(ctx context.Context, a chaosAlert, incident string) {
	if a.fate != fateResolved {
		answer, err := s.send(ctx, "/v1/incidents/"+incident+"/acknowledge", "", api.IncidentAction{By: "ana"})
		if err != nil || !strings.Contains(string(answer), "Ana Torres") {
			s.blame("acknowledge %s: %v %s", a.Key, err, answer)
			return
		}
	}
	if a.fate != fateAcknowledged {
		s.alert(ctx, a, "resolved")
	}
}

// chaosPaged lists the open incidents whose pages are all out, by key.
func chaosPaged(ctx context.Context, db *pgxpool.Pool) (map[string]string, error) {
	rows, err := db.Query(ctx, `select i.key, i.id::text from incident i where i.state = 'open' and not exists (
		select from delivery d where d.incident_id = i.id and d.kind = 'page' and d.state <> 'sent')`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	out := map[string]string{}
	for rows.Next() {
		var key, id string
		if err := rows.Scan(&key, &id); err != nil {
			return nil, err
		}
		out[key] = id
	}
	return out, rows.Err()
}
