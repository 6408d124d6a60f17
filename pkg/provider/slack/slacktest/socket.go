package slacktest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/gorilla/websocket"
)

// socketWait is how long an event waits for its acknowledgement before it is given again; Slack waits three seconds.
const socketWait = 3 * time.Second

// sockets are the Socket Mode connections of the app.
type sockets struct {
	tickets int
	open    []*connection
	next    int                      // whose turn it is: each event goes to one of them
	acked   map[string]chan struct{} // by envelope
	events  int
}

type connection struct {
	ticket string
	send   chan any
	gone   chan struct{}
}

// connectionsOpen gives the address of a connection. The lock is held.
func (s *Server) connectionsOpen(*call) obj {
	s.sockets.tickets++
	return obj{"ok": true, "url": "ws" + strings.TrimPrefix(s.BaseLocked(), "http") + fmt.Sprintf("/socket/simulated-ticket-%d", s.sockets.tickets)}
}

// serveSocket is one connection until it ends.
func (s *Server) serveSocket(w http.ResponseWriter, r *http.Request) {
	up := websocket.Upgrader{}
	c, err := up.Upgrade(w, r, nil)
	if err != nil {
		return // Upgrade has answered
	}
	defer func() { _ = c.Close() }()
	me := &connection{ticket: r.PathValue("ticket"), send: make(chan any, 256), gone: make(chan struct{})}
	me.send <- obj{"type": "hello", "num_connections": 1, "connection_info": obj{"app_id": s.opt.AppID}}
	s.Write(func() { s.sockets.open = append(s.sockets.open, me) })
	defer s.Write(func() {
		for i, o := range s.sockets.open {
			if o == me {
				s.sockets.open = append(s.sockets.open[:i:i], s.sockets.open[i+1:]...)
				break
			}
		}
	})
	go func() {
		defer close(me.gone)
		for {
			var ack struct {
				ID string `json:"envelope_id"`
			}
			if err := c.ReadJSON(&ack); err != nil {
				return
			}
			s.Write(func() {
				if done, ok := s.sockets.acked[ack.ID]; ok {
					close(done)
					delete(s.sockets.acked, ack.ID)
				}
			})
		}
	}()
	for {
		select {
		case <-me.gone:
			return
		case m := <-me.send:
			if m == nil || c.WriteJSON(m) != nil {
				return
			}
		}
	}
}

// Sockets is how many Socket Mode connections are open.
func (s *Server) Sockets() (n int) {
	s.Read(func() { n = len(s.sockets.open) })
	return n
}

// Disconnect tells the oldest connection to go, with a reason such as "warning", and closes it; an empty reason cuts it without a word.
func (s *Server) Disconnect(reason string) bool {
	ok := false
	s.Write(func() {
		if len(s.sockets.open) == 0 {
			return
		}
		ok = true
		c := s.sockets.open[0]
		if reason != "" {
			c.send <- obj{"type": "disconnect", "reason": reason}
		}
		c.send <- nil
	})
	return ok
}

// errNoSocket is what an event comes to when the app holds no connection.
var errNoSocket = errors.New("slacktest: the app is in Socket Mode and holds no connection")

// throughSocket gives an event to one of the connections and waits for its acknowledgement; without one it is given again, to whichever
// connection is next.
func (s *Server) throughSocket(ctx context.Context, kind string, payload any) (PressAnswer, error) {
	body, err := json.Marshal(payload)
	if err != nil {
		return PressAnswer{}, err
	}
	for attempt := range 3 {
		var done chan struct{}
		var to *connection
		s.Write(func() {
			if len(s.sockets.open) == 0 {
				return
			}
			s.sockets.events++
			s.sockets.next++
			to = s.sockets.open[s.sockets.next%len(s.sockets.open)]
			id := fmt.Sprintf("envelope-%d", s.sockets.events)
			done = make(chan struct{})
			s.sockets.acked[id] = done
			to.send <- obj{"type": kind, "envelope_id": id, "payload": json.RawMessage(body), "accepts_response_payload": false, "retry_attempt": attempt}
		})
		if to == nil {
			err = errNoSocket
			break
		}
		wait, cancel := context.WithTimeout(ctx, socketWait)
		select {
		case <-done:
			cancel()
			return PressAnswer{Status: http.StatusOK}, nil
		case <-to.gone:
		case <-wait.Done():
		}
		cancel()
		err = errors.New("slacktest: nobody acknowledged the event")
	}
	return PressAnswer{}, err
}
