package slack_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
	"github.com/tocsin-oncall/tocsin/pkg/provider/slack"
	"github.com/tocsin-oncall/tocsin/pkg/provider/slack/slacktest"
)

const appToken = "xapp-1-simulated"

// socketOf holds a connection in the background and gives what it hears, and its end.
func socketOf(t *testing.T, p *slack.Provider, take func(provider.Said) error) (up chan struct{}, heard chan provider.Said, end chan error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	up, heard, end = make(chan struct{}, 1), make(chan provider.Said, 10), make(chan error, 1)
	go func() {
		end <- p.Socket(ctx, func() { up <- struct{}{} }, func(_ context.Context, s provider.Said) error {
			if err := take(s); err != nil {
				return err
			}
			heard <- s
			return nil
		})
	}()
	return up, heard, end
}

func await[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(20 * time.Second):
		t.Fatal("waited in vain for " + what)
		panic("unreachable")
	}
}

func socketProvider(t *testing.T, s *slacktest.Server, token string) *slack.Provider {
	t.Helper()
	p, err := slack.New(config.Notifier{Name: "ops", Type: "slack", Token: s.Options().Token, AppToken: token, APIURL: s.APIURL(), Timeout: 10 * time.Second}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestSocketMode(t *testing.T) {
	t.Parallel()
	s := slacktest.Start(t, slacktest.Options{AppToken: appToken})
	refused := 0
	up, heard, end := socketOf(t, socketProvider(t, s, appToken), func(provider.Said) error {
		if refused++; refused == 1 {
			return errors.New("the database does not take it")
		}
		return nil
	})
	await(t, up, "the connection")
	ts := s.Put(slacktest.Message{Channel: "C0OPS", User: "U0TOCSIN", Text: "x", Blocks: []byte(`[{"type": "actions", "elements": [{"type": "button", "action_id": "ack", "value": "id-1", "text": {"type": "plain_text", "text": "Acknowledge"}}]}]`)})
	// What could not be stored is not acknowledged, and given again.
	if a, err := s.Press(t.Context(), ts, "ack", "U0ANA"); err != nil || a.Status != http.StatusOK || refused != 2 {
		t.Fatalf("%+v, %v, given %d times", a, err, refused)
	}
	if p := await(t, heard, "the press"); p.Action != "ack" || p.Value != "id-1" || p.Account != "U0ANA" || !strings.HasPrefix(p.To, s.URL()+"/response/") || !strings.HasPrefix(p.Key, "slack:C0OPS:"+ts+":ack:") {
		t.Errorf("%+v", p)
	}
	if _, err := s.Command(t.Context(), "C0OPS", "U0BO", "/tocsin", "who  primary"); err != nil {
		t.Fatal(err)
	}
	if c := await(t, heard, "the command"); c.Command != "who" || c.Text != "primary" || c.Account != "U0BO" || !c.Alone {
		t.Errorf("%+v", c)
	}
	s.Disconnect("warning")
	var e *slack.SocketError
	if err := await(t, end, "the end"); !errors.As(err, &e) || !e.Soon || e.Slow {
		t.Errorf("%v", err)
	}
	gone := func() {
		t.Helper()
		if err := s.WaitFor(t.Context(), func(s *slacktest.Server) bool { return s.Sockets() == 0 }); err != nil {
			t.Fatal(err)
		}
	}
	gone()
	for reason, want := range map[string]string{"link_disabled": "switched off", "too_many_websockets": "too many", "": "broke"} {
		up, _, end := socketOf(t, socketProvider(t, s, appToken), func(provider.Said) error { return nil })
		await(t, up, "another connection")
		s.Disconnect(reason)
		if err := await(t, end, "the end by "+reason); !errors.As(err, &e) || e.Soon || e.Slow != (reason != "") || !strings.Contains(e.Text, want) {
			t.Errorf("%q: %v", reason, err)
		}
		gone()
	}
}

func TestSocketModeWithAWrongToken(t *testing.T) {
	t.Parallel()
	s := slacktest.Start(t, slacktest.Options{AppToken: appToken})
	_, _, end := socketOf(t, socketProvider(t, s, "xapp-wrong"), nil)
	var e *slack.SocketError
	if err := await(t, end, "the refusal"); !errors.As(err, &e) || !e.Slow || !strings.Contains(e.Text, "connections:write") || strings.Contains(e.Text, "xapp-wrong") {
		t.Errorf("%v", err)
	}
}

// A peer that is gone without a word, behind a firewall that drops its packets, is noticed since it answers no ping.
func TestADeadSocketIsNoticed(t *testing.T) {
	t.Parallel()
	held := make(chan struct{})
	t.Cleanup(func() { close(held) })
	var web *httptest.Server
	web = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "apps.connections.open") {
			fmt.Fprintf(w, `{"ok": true, "url": "ws%s/socket"}`, strings.TrimPrefix(web.URL, "http"))
			return
		}
		up := websocket.Upgrader{}
		c, err := up.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer func() { _ = c.Close() }()
		_ = c.WriteJSON(map[string]string{"type": "hello"})
		<-held // it reads nothing, so it answers no ping
	}))
	t.Cleanup(web.CloseClientConnections)
	p, err := slack.New(config.Notifier{Name: "ops", Type: "slack", Token: "xoxb-1", AppToken: appToken, APIURL: web.URL + "/api/", Timeout: 10 * time.Second}, nil)
	if err != nil {
		t.Fatal(err)
	}
	p.Ping(50 * time.Millisecond)
	up, _, end := socketOf(t, p, nil)
	await(t, up, "the connection")
	var e *slack.SocketError
	if err := await(t, end, "the end of a dead connection"); !errors.As(err, &e) || e.Soon || !strings.Contains(e.Text, "broke") {
		t.Errorf("%v", err)
	}
}
