package server_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
)

// While the database takes nothing, as many alerts as may use it wait for it; whoever comes beyond that is refused soon
// and told to come again, and what waited is taken once the database goes on.
func TestAlertsBeyondWhatTheDatabaseTakesAreRefusedSoon(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn, err := pgx.Connect(t.Context(), w.url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "lock table incident in access exclusive mode"); err != nil {
		t.Fatal(err)
	}
	places := w.file.Database.MaxConnections * 3 / 4
	const beyond = 6
	type answer struct {
		code int
		head http.Header
		body string
	}
	answers := make(chan answer, places+beyond)
	var all sync.WaitGroup
	for i := range places + beyond {
		all.Go(func() {
			path, body := "/v1/alerts", fmt.Sprintf(`{"kind": "k", "job": "j%d", "title": "t"}`, i)
			if i%2 == 0 { // both ways in share the places
				path, body = "/v1/alertmanager", fmt.Sprintf(`{"version": "4", "groupKey": "g%d", "alerts": [{"status": "firing", "labels": {"alertname": "A"}, "startsAt": "2026-01-05T09:00:00Z"}]}`, i)
			}
			code, head, b := w.call("in", http.MethodPost, path, body)
			answers <- answer{code, head, string(b)}
		})
	}
	for range beyond {
		a := <-answers
		if a.code != http.StatusServiceUnavailable || a.head.Get("Retry-After") == "" || !strings.Contains(a.body, "send it again") {
			t.Errorf("an alert beyond the places got %d %v %s", a.code, a.head, a.body)
		}
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	close(answers)
	for a := range answers {
		if a.code != http.StatusAccepted {
			t.Errorf("an alert that had its place got %d %s", a.code, a.body)
		}
	}
	var n int
	if err := conn.QueryRow(t.Context(), "select count(*) from incident").Scan(&n); err != nil || n != places {
		t.Errorf("%d incidents, want %d: %v", n, places, err)
	}
}

// Alerts of one incident wait for each other without keeping those of another one out: only one of them is on its way to
// the database, and whoever waits too long for it is told to come again.
func TestAFloodIntoOneIncidentKeepsNoOtherOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one := `{"kind": "k", "job": "j", "key": "one", "title": "t", "labels": {"n": "%d"}}`
	if code, _, b := w.call("in", http.MethodPost, "/v1/alerts", fmt.Sprintf(one, 0)); code != http.StatusAccepted {
		t.Fatalf("%d %s", code, b)
	}
	conn, err := pgx.Connect(t.Context(), w.url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "select from incident where key = 'one' for update"); err != nil {
		t.Fatal(err)
	}
	const flood = 40 // more than there are turns
	type answer struct {
		code int
		head http.Header
		body string
	}
	answers := make(chan answer, flood)
	for i := range flood {
		go func() {
			code, head, b := w.call("in", http.MethodPost, "/v1/alerts", fmt.Sprintf(one, i+1))
			answers <- answer{code, head, string(b)}
		}()
	}
	refused := func(a answer) bool {
		return a.code == http.StatusServiceUnavailable && a.head.Get("Retry-After") != "" && strings.Contains(a.body, "of this incident")
	}
	for n := range flood - 1 {
		if a := <-answers; !refused(a) {
			t.Fatalf("an alert behind the first of its incident got %d %v %s", a.code, a.head, a.body)
		}
		if n > 0 {
			continue
		}
		if code, _, b := w.call("in", http.MethodPost, "/v1/alerts", `{"kind": "k", "job": "j", "key": "other", "title": "t"}`); code != http.StatusAccepted {
			t.Fatalf("an alert of another incident got %d %s", code, b)
		}
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	// On a slow machine it may have waited longer for the row than a statement may.
	if a := <-answers; refused(a) {
		t.Errorf("the one that was in got %d %s", a.code, a.body)
	}
}
