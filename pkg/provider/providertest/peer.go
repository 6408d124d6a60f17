package providertest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
)

// peer is a far side that reads one request a connection and then does what it is told with the bare connection, which
// no HTTP server would do.
type peer struct {
	url      string
	requests atomic.Int64 // requests that were read whole: what may have had an effect
	serve    atomic.Pointer[func(net.Conn, request)]
}

// request is what a peer read.
type request struct {
	raw  []byte // head and body as they came
	body []byte
	http *http.Request
}

// newPeer serves whole requests. serve may be nil where answers is called before the first request.
func newPeer(t *testing.T, serve func(net.Conn, request)) *peer {
	t.Helper()
	p := &peer{}
	p.answers(serve)
	p.url = newRawPeer(t, func(c net.Conn) {
		var raw bytes.Buffer
		r, err := http.ReadRequest(bufio.NewReader(io.TeeReader(c, &raw)))
		if err != nil {
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		p.requests.Add(1)
		(*p.serve.Load())(c, request{raw: raw.Bytes(), body: body, http: r})
	})
	return p
}

// answers changes what becomes of the requests to come.
func (p *peer) answers(serve func(net.Conn, request)) { p.serve.Store(&serve) }

// newRawPeer is a far side that is given each connection before anything was read from it, and says where it is.
func newRawPeer(t *testing.T, serve func(net.Conn)) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() { l.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				serve(c)
			})
		}
	})
	return "http://" + l.Addr().String()
}

// write sends an answer with the right length; its errors are the client's to notice.
func write(c net.Conn, status int, header, body string) {
	_, _ = fmt.Fprintf(c, "HTTP/1.1 %d X\r\n%sContent-Length: %d\r\n\r\n%s", status, header, len(body), body)
}

// flood repeats a text until so many bytes of it are out or the client has enough.
func flood(c net.Conn, text string, bytes int) {
	for range bytes / len(text) {
		if _, err := io.WriteString(c, text); err != nil {
			return
		}
	}
}

// hold keeps the connection open until the client gives up.
func hold(c net.Conn) { _, _ = io.Copy(io.Discard, c) }

func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // the deferred Close then sends a reset
	}
}

// closedURL is an address at which nobody listens.
func closedURL(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	return "http://" + l.Addr().String()
}
