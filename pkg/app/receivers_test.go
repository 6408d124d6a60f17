package app

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/client"
	"github.com/tocsin-oncall/tocsin/pkg/provider/chattest"
	"github.com/tocsin-oncall/tocsin/pkg/provider/slack/slacktest"
	"github.com/tocsin-oncall/tocsin/pkg/provider/telegram/telegramtest"
)

const opsChat = -1001000000001

// fired is an incident whose cards are out in both chats.
func fired(t *testing.T, e *DevEnvironment, c *client.Client, title string) (incident, slackTS string, telegramID int) {
	t.Helper()
	a, err := c.SendAlert(within(t), api.Alert{Kind: "test", Criticality: "critical", Job: "web", Title: title, Labels: map[string]string{"title": title}}, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Slack.WaitFor(within(t), func(s *slacktest.Server) bool {
		for _, m := range s.Messages("C0OPS") {
			if strings.Contains(m.Text, title) && m.ThreadTS == "" {
				slackTS = m.TS
			}
		}
		return slackTS != ""
	}); err != nil {
		t.Fatal(err)
	}
	if err := e.Telegram.WaitFor(within(t), func(s *telegramtest.Server) bool {
		for _, m := range s.Messages(opsChat) {
			if strings.Contains(m.Text, title) && m.ReplyTo == 0 {
				telegramID = m.ID
			}
		}
		return telegramID != 0
	}); err != nil {
		t.Fatal(err)
	}
	return a.IncidentID, slackTS, telegramID
}

// becomes waits for an incident's state.
func becomes(t *testing.T, c *client.Client, id, state string) api.Incident {
	t.Helper()
	ctx := within(t)
	for {
		inc, err := c.Incident(ctx, id)
		if err != nil {
			t.Fatalf("it did not become %s: %v, %+v", state, err, inc)
		}
		if inc.State == state {
			return inc
		}
		select {
		case <-ctx.Done():
			t.Fatalf("it did not become %s: %+v", state, inc)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Two replicas, nothing published: each holds a Socket Mode connection, one of them polls. Presses and commands arrive once.
func TestPressesComeBySocketModeAndPolling(t *testing.T) {
	t.Parallel()
	e, c := startDevAs(t, DevOptions{Fetch: true})
	if err := e.Slack.WaitFor(within(t), func(s *slacktest.Server) bool { return s.Sockets() == 2 }); err != nil {
		t.Fatal(err)
	}
	one, ts, _ := fired(t, e, c, "The first")
	two, _, id := fired(t, e, c, "The second")
	if a, err := e.Slack.Press(within(t), ts, "ack", "U0ANA"); err != nil || a.Status != http.StatusOK {
		t.Fatalf("%+v, %v", a, err)
	}
	if inc := becomes(t, c, one, "acknowledged"); inc.AcknowledgedBy != "Ana Torres" {
		t.Errorf("%+v", inc)
	}
	if a, err := e.Telegram.Press(within(t), opsChat, id, "ack", 502); err != nil || !a.Queued {
		t.Fatalf("%+v, %v", a, err)
	}
	if inc := becomes(t, c, two, "acknowledged"); inc.AcknowledgedBy != "Bo Lind" {
		t.Errorf("%+v", inc)
	}
	if _, err := e.Slack.Command(within(t), "C0OPS", "U0BO", "/tocsin", "who"); err != nil {
		t.Fatal(err)
	}
	if err := e.Slack.WaitFor(within(t), func(s *slacktest.Server) bool {
		all := s.Ephemerals("U0BO")
		return len(all) > 0 && strings.Contains(all[len(all)-1].Text, "primary: ")
	}); err != nil {
		t.Fatal(err)
	}
	// Slack refreshes its links every few hours: one is opened again at once, and nobody is told of trouble.
	opened := len(e.Slack.Ledger(chattest.ByMethod("apps.connections.open")))
	e.Slack.Disconnect("refresh_requested")
	if err := e.Slack.WaitFor(within(t), func(s *slacktest.Server) bool {
		return s.Sockets() == 2 && len(s.Ledger(chattest.ByMethod("apps.connections.open"))) == opened+1
	}); err != nil {
		t.Fatal(err)
	}
	log, err := os.ReadFile(filepath.Join(e.Dir, "tocsin.log"))
	if err != nil || bytes.Contains(log, []byte("does not arrive here")) || !bytes.Contains(log, []byte("Socket Mode")) {
		t.Errorf("the log tells of trouble: %v\n%s", err, log)
	}
}

// The replica that polls is lost: another one begins when its turn is over, with what came meanwhile, and handles it once. The one that
// comes back stores nothing under its old turn.
func TestAnotherReplicaPollsWhenTheTurnIsLost(t *testing.T) {
	t.Parallel()
	e, c := startDevAs(t, DevOptions{Fetch: true})
	conn, err := pgx.Connect(within(t), e.Database)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	incident, _, id := fired(t, e, c, "While nobody polls")
	// A third replica takes the turn and dies.
	if err := e.Telegram.WaitFor(within(t), func(*telegramtest.Server) bool {
		tag, err := conn.Exec(t.Context(), "update poller set token = gen_random_uuid(), holder = 'lost', lease_until = clock_timestamp() + interval '4 seconds'")
		return err == nil && tag.RowsAffected() == 1
	}); err != nil {
		t.Fatal(err)
	}
	if a, err := e.Telegram.Press(within(t), opsChat, id, "resolve", 501); err != nil || !a.Queued {
		t.Fatalf("%+v, %v", a, err)
	}
	becomes(t, c, incident, "resolved")
	var holder string
	var resolved, callbacks int
	if err := conn.QueryRow(within(t), "select (select holder from poller), (select count(*) from audit where action = 'resolve'), (select count(*) from callback where key like 'telegram:%')").
		Scan(&holder, &resolved, &callbacks); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(holder, "dev-") || resolved != 1 || callbacks != 1 {
		t.Errorf("%s polls, %d resolved, %d callbacks", holder, resolved, callbacks)
	}
}

// Another program polls with the bot's token: how it stands says so and how to mend it, and what was pressed meanwhile is applied once it ends.
func TestPollingThatIsRefusedMendsItself(t *testing.T) {
	t.Parallel()
	e, c := startDevAs(t, DevOptions{Fetch: true})
	conn, err := pgx.Connect(within(t), e.Database)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	stands := func(state, detail string) {
		t.Helper()
		var last string
		if err := e.Telegram.WaitFor(within(t), func(*telegramtest.Server) bool {
			var n int
			return conn.QueryRow(t.Context(), `select count(*) filter (where state = $1 and detail like '%' || $2 || '%'), coalesce(string_agg(state || ': ' || detail, '; '), '')
				from receiver where kind = 'poll'`, state, detail).Scan(&n, &last) == nil && n == 1
		}); err != nil {
			t.Fatalf("%v: it stands at %s", err, last)
		}
	}
	incident, _, id := fired(t, e, c, "While another program polls")
	stands("connected", "it polls")
	e.Telegram.MustFault(chattest.Fault{Kind: chattest.Code, Method: "getUpdates", Status: http.StatusConflict, Code: "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running"})
	stands("failed", "another program asks for updates with this bot's token")
	if a, err := e.Telegram.Press(within(t), opsChat, id, "ack", 501); err != nil || !a.Queued {
		t.Fatalf("%+v, %v", a, err)
	}
	e.Telegram.ClearFaults()
	if inc := becomes(t, c, incident, "acknowledged"); inc.AcknowledgedBy != "Ana Torres" {
		t.Errorf("%+v", inc)
	}
	stands("connected", "it polls")
	// Who stops gives the turn back: another replica need not wait for its end.
	e.Stop()
	left := false
	if err := conn.QueryRow(within(t), "select lease_until <= clock_timestamp() from poller").Scan(&left); err != nil || !left {
		t.Errorf("the turn is still held after the end: %v", err)
	}
}
