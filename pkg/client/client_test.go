package client

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/api"
)

func serve(t *testing.T, h http.HandlerFunc) *Client {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	c, err := New(s.URL+"/", "the-token")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestRequestsAreAsTheServerWantsThem(t *testing.T) {
	t.Parallel()
	var seen []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Method+" "+r.URL.String()+" "+r.Header.Get("Authorization")+" "+r.Header.Get("Idempotency-Key"))
		_, _ = w.Write([]byte(`{}`))
	})
	at := time.Date(2026, 1, 5, 9, 0, 0, 0, time.FixedZone("", 3600))
	for _, err := range []error{
		second(c.SendAlert(t.Context(), api.Alert{Kind: "k"}, "once")),
		second(c.Deliveries(t.Context(), Query{State: "dead", Incident: "i", Limit: 5})),
		second(c.Incident(t.Context(), "../tokens")),
		second(c.OnCall(t.Context(), "a b", at)),
		second(c.Notifiers(t.Context())),
		second(c.TestNotifier(t.Context(), "a/b", api.Trial{To: "user:ana"})),
		c.RevokeToken(t.Context(), "x/y"),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	want := []string{
		"POST /v1/alerts Bearer the-token once",
		"GET /v1/deliveries?incident=i&limit=5&state=dead Bearer the-token ",
		"GET /v1/incidents/..%2Ftokens Bearer the-token ",
		"GET /v1/oncall?at=2026-01-05T09%3A00%3A00%2B01%3A00&schedule=a+b Bearer the-token ",
		"GET /v1/notifiers Bearer the-token ",
		"POST /v1/notifiers/a%2Fb/test Bearer the-token ",
		"DELETE /v1/tokens/x%2Fy Bearer the-token ",
	}
	if got := strings.Join(seen, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}

func second[T any](_ T, err error) error { return err }

func TestErrorsAreProblems(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		status int
		text   string
	}{
		"ours": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(409)
			_ = json.NewEncoder(w).Encode(api.Problem{Type: api.ProblemConflict, Status: 409, Detail: "it is sent"})
		}, 409, "it is sent"},
		"a proxy's": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(502)
			_, _ = w.Write([]byte("<html>bad gateway</html>"))
		}, 502, "the server answered 502 Bad Gateway: <html>bad gateway</html>"},
		"a redirect": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "https://elsewhere.example.com")
			w.WriteHeader(302)
		}, 302, "the server answered 302 Found"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := serve(t, c.answer).Incident(t.Context(), "i")
			var p *api.Problem
			if !errors.As(err, &p) || p.Status != c.status || p.Error() != c.text {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestAddressIsChecked(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", "localhost:8080", "ftp://x", "http://", "://"} {
		if _, err := New(bad, ""); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}
