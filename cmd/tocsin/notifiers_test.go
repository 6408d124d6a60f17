package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/api"
)

// deliveries is a server on which a test of a notifier goes through states, one with each look.
func deliveries(t *testing.T, states ...api.Delivery) string {
	t.Helper()
	var looks atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			w.WriteHeader(http.StatusAccepted)
			_ = json.NewEncoder(w).Encode(api.Tried{DeliveryID: "d1"})
			return
		}
		n := min(int(looks.Add(1)), len(states)) - 1
		_ = json.NewEncoder(w).Encode(states[n])
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func TestNotifiersTestWaitsForTheOutcome(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 5, 9, 0, 0, 0, time.UTC)
	status := 200
	pending := api.Delivery{ID: "d1", Kind: "notice", Notifier: "ops", Target: "channel", State: "pending", CreatedAt: at}
	sent, rejected := pending, pending
	sent.State, sent.SettledAt = "sent", &at
	sent.Attempts = []api.Attempt{{Number: 1, Operation: "create", Address: "C0", Outcome: "sent", Evidence: "answered", Phase: "answer", Answer: `{"ok":true}`, StartedAt: at}}
	rejected.State, rejected.SettledAt, rejected.Reason, rejected.Sentence = "rejected", &at, "destination:is_archived", "unarchive it, then send again"
	rejected.Attempts = []api.Attempt{
		{Number: 1, Operation: "create", Address: "C0", Outcome: "failed", Evidence: "answered", Phase: "answer", Form: "plain", Reason: "destination:is_archived", ProviderCode: "is_archived",
			Error: "Slack answered is_archived", Answer: "{\"ok\":false,\n\"error\":\"is_archived\"}\x1b[2J", HTTPStatus: &status, StartedAt: at},
	}
	for name, c := range map[string]struct {
		states []api.Delivery
		args   []string
		code   int
		out    []string
		never  string
		err    string
	}{
		"sent in the end": {[]api.Delivery{pending, sent}, nil, exitDone, []string{"state     sent", "PHASE", "answered  answer"}, `"ok"`, ""},
		"rejected": {[]api.Delivery{rejected}, nil, exitFailed,
			[]string{"state     rejected", "unarchive it", "plain", "attempt  1", "error    Slack answered is_archived", "code     is_archived", "status   200", `answer   {"ok":false, "error":"is_archived"}`}, "\x1b", "it was not sent: rejected, destination:is_archived"},
		"still pending":        {[]api.Delivery{pending}, []string{"--wait", "1ms"}, exitFailed, []string{"state     pending"}, "", "it is not sent after 1ms; see `tocsin deliveries show d1`"},
		"not to be waited for": {[]api.Delivery{pending}, []string{"--wait", "0"}, exitDone, []string{"state     pending"}, "", ""},
		"as JSON":              {[]api.Delivery{sent}, []string{"--json"}, exitDone, []string{`"state": "sent"`, `"phase": "answer"`}, "PHASE", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out, errOut bytes.Buffer
			args := append([]string{"notifiers", "test", "ops", "--server", deliveries(t, c.states...), "--token", "t"}, c.args...)
			code := execute(t.Context(), args, strings.NewReader(""), &out, &errOut, func(string) (string, bool) { return "", false })
			if code != c.code || !strings.Contains(errOut.String(), c.err) || c.err == "" && errOut.Len() > 0 {
				t.Errorf("exit code %d, %s", code, errOut.String())
			}
			for _, text := range c.out {
				if !strings.Contains(out.String(), text) {
					t.Errorf("%q is not in\n%s", text, out.String())
				}
			}
			if c.never != "" && strings.Contains(out.String(), c.never) {
				t.Errorf("%q is in\n%s", c.never, out.String())
			}
		})
	}
}

func TestNotifiersTellWhatHoldsThemUp(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 5, 9, 0, 0, 0, time.Local)
	var out bytes.Buffer
	p := &program{out: &out, env: func(string) (string, bool) { return "", false }}
	p.printNotifiers([]api.Notifier{
		{Name: "ops", Type: "slack", Account: "slack:1", State: api.NotifierBroken, Waiting: 3, Breaker: &api.Breaker{Code: "token_revoked", Reason: "account:token_revoked", Sentence: "reinstall the app", Since: at, NextProbeAt: &at}},
		{Name: "dm", Type: "telegram", Direct: true, Account: "telegram:1", State: api.NotifierPaused, Pauses: []api.Pause{{Destination: "4711", Reason: "destination:blocked", Sentence: "press Start", Until: at}}},
	})
	const want = `NOTIFIER  TYPE      FOR            STATE   WAITING  ACCOUNT
ops       slack     its own place  broken  3        slack:1
dm        telegram  people         paused  0        telegram:1

ops            broken since 2026-01-05 09:00:00
reason         account:token_revoked
               reinstall the app
next question  2026-01-05 09:00:00

dm      4711 rests until 2026-01-05 09:00:00
reason  destination:blocked
        press Start
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}
