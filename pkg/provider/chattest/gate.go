package chattest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// Gate is a loopback port that can stop listening and come back under the same number, so that a client sees a true
// "connection refused": no connection, not one byte written.
type Gate struct {
	addr    string
	handler http.Handler
	server  *http.Server

	mu       sync.Mutex
	refusing bool
	closed   bool
	listener net.Listener
	hold     func() // gives the reserved port back
}

// Listen opens a loopback port for a chat and serves h on it; "127.0.0.1:0" takes a free one. The port becomes the
// chat's URL unless one was set, and the fault "refuse" closes it. Close the gate when done.
func (c *Core) Listen(addr string, h http.Handler) (*Gate, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("simulated chat: address %q: %w", addr, err)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, fmt.Errorf("simulated chat: %q is not a loopback address; a simulated chat listens nowhere else, use 127.0.0.1", addr)
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("simulated chat: %w", err)
	}
	g := &Gate{addr: l.Addr().String(), handler: h, listener: l}
	g.server = &http.Server{Handler: h, ReadHeaderTimeout: 30 * time.Second}
	c.mu.Lock()
	c.gate = g
	if c.base == "" {
		c.base = "http://" + g.addr
	}
	c.mu.Unlock()
	go g.serve(l)
	return g, nil
}

// Addr is host and port.
func (g *Gate) Addr() string { return g.addr }

// Close stops listening and breaks the open connections.
func (g *Gate) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	if g.hold != nil {
		g.hold()
		g.hold = nil
	}
	return g.server.Close()
}

func (g *Gate) serve(l net.Listener) {
	// The only ends are our own: refuse closed this listener, or Close closed the server.
	_ = g.server.Serve(l)
}

// refuse stops listening. Requests already inside go on, idle connections are closed.
func (g *Gate) refuse() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.refusing || g.closed {
		return nil
	}
	g.refusing = true
	_ = g.listener.Close()
	g.server.SetKeepAlivesEnabled(false)
	var err error
	g.hold, err = reserve(g.addr)
	return err
}

// admit listens again under the same number.
func (g *Gate) admit() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.refusing || g.closed {
		return
	}
	// Another process may hold the port for a moment where reserve is not possible; nothing else can be done then
	// but to ask again.
	for deadline := time.Now().Add(5 * time.Second); ; {
		l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", g.addr)
		if err == nil {
			g.listener, g.refusing = l, false
			break
		}
		if time.Now().After(deadline) {
			panic(fmt.Errorf("simulated chat: the port %s was lost while it refused: %w", g.addr, err))
		}
		time.Sleep(5 * time.Millisecond)
	}
	if g.hold != nil {
		g.hold()
		g.hold = nil
	}
	g.server.SetKeepAlivesEnabled(true)
	go g.serve(g.listener)
}

// throughGate says whether a request came in by the port that refuse closes.
func (c *Core) throughGate(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	c.mu.Lock()
	defer c.mu.Unlock()
	return ok && c.gate != nil && local.String() == c.gate.addr
}

// TB is the part of testing.TB that Start needs; named here so that the binary does not link package testing.
type TB interface {
	Helper()
	Cleanup(func())
	Fatalf(format string, args ...any)
}

// Start listens on a free loopback port until the test ends.
func (c *Core) Start(t TB, h http.Handler) {
	t.Helper()
	g, err := c.Listen("127.0.0.1:0", h)
	if err != nil {
		t.Fatalf("%v", err)
		return
	}
	t.Cleanup(func() {
		c.ClearFaults() // lets requests that hang go, so that no handler outlives the test
		if err := g.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Fatalf("close the simulated chat: %v", err)
		}
	})
}
