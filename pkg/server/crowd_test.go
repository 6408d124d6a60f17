package server_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// While the database takes nothing, nobody waits for ever: who came is told to come again, and is taken then; and who has not waited
// for long is taken once the database goes on.
func TestWhileTheDatabaseTakesNothingSourcesAreToldToComeAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		waits bool // until all have given up
		want  int
	}{"for long": {true, http.StatusServiceUnavailable}, "for a moment": {false, http.StatusAccepted}} {
		t.Run(name, func(t *testing.T) {
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
			const senders = 30 // more than there are connections
			send := func(i int) (int, http.Header, []byte) {
				if i%2 == 0 { // both ways in stand in one line
					return w.call("in", http.MethodPost, "/v1/alertmanager", fmt.Sprintf(`{"version": "4", "groupKey": "g%d", "alerts": [{"status": "firing", "labels": {"alertname": "A"}, "startsAt": "2026-01-05T09:00:00Z"}]}`, i))
				}
				return w.call("in", http.MethodPost, "/v1/alerts", fmt.Sprintf(`{"kind": "k", "job": "j%d", "title": "t"}`, i))
			}
			var all sync.WaitGroup
			for i := range senders {
				all.Go(func() {
					code, head, b := send(i)
					if code != c.want || code == http.StatusServiceUnavailable && (head.Get("Retry-After") == "" || !strings.Contains(string(b), "send it again")) {
						t.Errorf("%d %v %s", code, head, b)
					}
				})
			}
			if c.waits {
				all.Wait()
			} else {
				for n := 0; n == 0; time.Sleep(5 * time.Millisecond) { // until somebody waits for the table
					if err := tx.QueryRow(t.Context(), "select count(*) from pg_locks where not granted and relation = 'incident'::regclass").Scan(&n); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			all.Wait()
			for i := range senders {
				if code, _, b := send(i); code != http.StatusAccepted {
					t.Errorf("sent again: %d %s", code, b)
				}
			}
			var n int
			if err := conn.QueryRow(t.Context(), "select count(*) from incident").Scan(&n); err != nil || n != senders {
				t.Errorf("%d incidents, want %d: %v", n, senders, err)
			}
		})
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
