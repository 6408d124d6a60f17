package slack

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/gorilla/websocket"

	"github.com/tocsin-oncall/tocsin/pkg/provider"
)

// Bounds of a Socket Mode connection.
const (
	socketDial  = 10 * time.Second // until it is open
	socketPing  = 10 * time.Second // between our pings, besides Slack's own; after three without an answer it is taken for dead
	socketWrite = 5 * time.Second
	socketMost  = 1 << 20 // bytes of one message
)

// SocketError says why a Socket Mode connection did not come about or came to its end.
type SocketError struct {
	Text string
	Soon bool // Slack asked for it: another one is opened at once
	Slow bool // it will not be better soon: a person must mend something, or there are too many connections
}

func (e *SocketError) Error() string { return e.Text }

// Socket holds one Socket Mode connection until it ends or ctx does. What people do is given to take, which stores it; only then is it
// acknowledged, and Slack gives what is not acknowledged to another connection or again to this one. up is called when the connection
// stands. The error is always a *SocketError.
func (p *Provider) Socket(ctx context.Context, up func(), take func(context.Context, provider.Said) error) error {
	address, err := p.openSocket(ctx)
	if err != nil {
		return err
	}
	dialer := websocket.Dialer{HandshakeTimeout: socketDial}
	dial, cancel := context.WithTimeout(ctx, socketDial)
	defer cancel()
	c, resp, err := dialer.DialContext(dial, address, nil)
	if resp != nil && resp.Body != nil {
		defer resp.Body.Close()
	}
	if err != nil {
		// The address holds a ticket, and the error may quote it.
		status := ""
		if resp != nil {
			status = fmt.Sprintf(" with status %d", resp.StatusCode)
		}
		return &SocketError{Text: "slack: the Socket Mode connection was not opened" + status}
	}
	defer func() { _ = c.Close() }()
	s := &socket{p: p, conn: c, take: take, up: up}
	return s.hold(ctx)
}

// openSocket asks for the address of a connection.
func (p *Provider) openSocket(ctx context.Context) (string, error) {
	rec := p.askAs(ctx, p.notifier.AppToken, "apps.connections.open", url.Values{})
	res, a, ok := judge(rec, opAuth, "")
	if !ok {
		e := &SocketError{Text: "slack: no Socket Mode connection: " + orElse(res.Error, res.Reason), Slow: res.Code != "" && rec.Status == http.StatusOK}
		if e.Slow {
			e.Text = "slack: app_token is refused (" + p.clean.String(res.Code) + "): it must be an app-level token with the scope connections:write, of an app whose Socket Mode is on"
		}
		return "", e
	}
	address := text(a.top["url"])
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "wss" && (u.Scheme != "ws" || u.Hostname() != p.apiHost) {
		return "", &SocketError{Text: "slack: the address of the Socket Mode connection is neither wss nor on the host of api_url"}
	}
	return address, nil
}

// socket is one connection.
type socket struct {
	p    *Provider
	conn *websocket.Conn
	take func(context.Context, provider.Said) error
	up   func()
}

// envelope is what comes through a connection.
type envelope struct {
	Type    string          `json:"type"`
	ID      string          `json:"envelope_id"`
	Reason  string          `json:"reason"`
	Payload json.RawMessage `json:"payload"`
}

// hold reads until the connection ends. It is the only reader; pings are written beside it, which the library allows.
func (s *socket) hold(ctx context.Context) error {
	alive := func() { _ = s.conn.SetReadDeadline(time.Now().Add(3 * s.p.ping)) }
	s.conn.SetReadLimit(socketMost)
	s.conn.SetPongHandler(func(string) error { alive(); return nil })
	answerPing := s.conn.PingHandler()
	s.conn.SetPingHandler(func(data string) error { alive(); return answerPing(data) })
	alive()
	over := make(chan struct{})
	defer close(over)
	go s.keep(ctx, over)
	for {
		var e envelope
		_, raw, err := s.conn.ReadMessage()
		if err != nil {
			if ctx.Err() != nil {
				return &SocketError{Text: "slack: the Socket Mode connection was closed by tocsin", Soon: true}
			}
			return &SocketError{Text: "slack: the Socket Mode connection broke: " + s.p.clean.String(err.Error())}
		}
		alive()
		if err := json.Unmarshal(raw, &e); err != nil {
			continue // nothing that could be acknowledged
		}
		switch e.Type {
		case "hello":
			s.up()
			continue
		case "disconnect":
			return disconnected(e.Reason)
		}
		if e.ID == "" {
			continue
		}
		if err := s.hear(ctx, e); err != nil {
			continue // not stored, so not acknowledged: Slack gives it again
		}
		_ = s.conn.SetWriteDeadline(time.Now().Add(socketWrite))
		if err := s.conn.WriteJSON(map[string]string{"envelope_id": e.ID}); err != nil {
			return &SocketError{Text: "slack: the Socket Mode connection broke: " + s.p.clean.String(err.Error())}
		}
	}
}

// hear hands on what a person did. What is nothing of ours is acknowledged all the same.
func (s *socket) hear(ctx context.Context, e envelope) error {
	var said provider.Said
	var err error
	switch e.Type {
	case "interactive":
		var press Press
		if press, err = parsePayload(e.Payload); err == nil {
			said = press.Said()
		}
	case "slash_commands":
		var fields map[string]any
		if err = json.Unmarshal(e.Payload, &fields); err == nil {
			said, err = command(func(name string) string { t, _ := fields[name].(string); return t })
		}
	default:
		return nil
	}
	if err != nil {
		return nil //nolint:nilerr // no press and no command: asking for it again would bring the same
	}
	return s.take(ctx, said)
}

// keep pings, and cuts the connection when ctx ends.
func (s *socket) keep(ctx context.Context, over <-chan struct{}) {
	t := time.NewTicker(s.p.ping)
	defer t.Stop()
	for {
		select {
		case <-over:
			return
		case <-ctx.Done():
			_ = s.conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""), time.Now().Add(time.Second))
			_ = s.conn.Close()
			return
		case <-t.C:
			_ = s.conn.WriteControl(websocket.PingMessage, nil, time.Now().Add(socketWrite)) // a dead one is seen by the reader
		}
	}
}

// disconnected is what Slack says before it ends a connection.
func disconnected(reason string) error {
	switch reason {
	case "link_disabled":
		return &SocketError{Text: "slack: Socket Mode was switched off in the app: switch it on, or use signing_secret and publish /slack/interactions", Slow: true}
	case "too_many_websockets":
		return &SocketError{Text: "slack: the app has too many Socket Mode connections (10 at most)", Slow: true}
	}
	return &SocketError{Text: "slack: Slack asks for another Socket Mode connection", Soon: true} // warning, refresh_requested
}
