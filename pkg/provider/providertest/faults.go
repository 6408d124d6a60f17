package providertest

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
)

// failed is every fault before a byte of the request is out.
func (s walk) failed(t *testing.T) {
	t.Parallel()
	plain := newPeer(t, func(net.Conn, request) {})
	secure := func(serve func(net.Conn)) string {
		return strings.Replace(newRawPeer(t, serve), "http://", "https://", 1)
	}
	for _, c := range []struct{ name, base, reason string }{
		{"refused", closedURL(t), "refused"},
		{"dns", "http://no-such-name.invalid", "dns"},
		{"tls", strings.Replace(plain.url, "http://", "https://", 1), "tls"},
		{"handshake that hangs", secure(hold), "timeout"},
		{"handshake that is closed", secure(func(net.Conn) {}), "tls"},
		{"handshake that is reset", secure(reset), "tls"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			res := s.do(t, c.base)
			if res.Outcome != delivery.OutcomeFailed || res.Evidence != delivery.NotSent || res.Fault != delivery.FaultTransient || res.Reason != c.reason {
				t.Errorf("%+v", res)
			}
			if c.reason == "timeout" && res.Error != "send timed out after "+Timeout.String() {
				t.Errorf("error %q", res.Error)
			}
		})
	}
	t.Run("canceled before", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		p := newPeer(t, func(net.Conn, request) {})
		res := s.New(t, p.url).Do(ctx, s.call(p.url))
		s.check(t, res)
		if res.Outcome != delivery.OutcomeFailed || p.requests.Load() != 0 {
			t.Errorf("%+v, %d requests", res, p.requests.Load())
		}
	})
}

// happened is every fault after the far side has the request, with the effect in place.
func (s walk) happened(t *testing.T) {
	t.Parallel()
	length := len(s.Accepted) + 10
	for _, c := range []struct {
		name, reason string
		serve        func(net.Conn, request)
	}{
		{"reset", "reset", func(c net.Conn, _ request) { reset(c) }},
		{"closed", "reset", func(net.Conn, request) {}},
		{"hang", "timeout", func(c net.Conn, _ request) { hold(c) }},
		{"cut body", "reset", func(c net.Conn, _ request) {
			_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", length, s.Accepted)
		}},
		{"hanging body", "timeout", func(c net.Conn, _ request) {
			_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", length, s.Accepted)
			hold(c)
		}},
		{"no HTTP", "", func(c net.Conn, _ request) { _, _ = fmt.Fprint(c, "220 mail.test ESMTP\r\n\r\n") }},
		{"closed after the head", "reset", func(c net.Conn, _ request) {
			_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", length)
		}},
		{"chunk that breaks off", "reset", func(c net.Conn, _ request) {
			_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s", length, s.Accepted)
		}},
		{"chunks without an end", "reset", func(c net.Conn, _ request) {
			_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n", len(s.Accepted), s.Accepted)
		}},
		{"chunks of nonsense", "", func(c net.Conn, _ request) {
			_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n%s\r\n0\r\n\r\n", s.Accepted)
		}},
		{"two lengths", "", func(c net.Conn, _ request) {
			_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nContent-Length: 1\r\n\r\n%s", len(s.Accepted), s.Accepted)
		}},
		{"no status", "", func(c net.Conn, _ request) {
			_, _ = fmt.Fprintf(c, "HTTP/1.1 OK\r\nContent-Length: %d\r\n\r\n%s", len(s.Accepted), s.Accepted)
		}},
		{"flood of 1xx", "", func(c net.Conn, _ request) {
			for {
				if _, err := io.WriteString(c, "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"); err != nil {
					return
				}
			}
		}},
		{"large header", "", func(c net.Conn, _ request) {
			write(c, 200, "X-Large: "+strings.Repeat("x", 1<<20)+"\r\n", s.Accepted)
		}},
		{"many headers", "", func(c net.Conn, _ request) {
			write(c, 200, strings.Repeat("X-Many: "+strings.Repeat("x", 100)+"\r\n", 10_000), s.Accepted)
		}},
		{"20 MB", "", func(c net.Conn, _ request) {
			_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", 20<<20, s.Accepted)
			blank := []byte(strings.Repeat(" ", 64<<10))
			for range 20 << 20 / len(blank) {
				if _, err := c.Write(blank); err != nil {
					return
				}
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := newPeer(t, c.serve)
			res := s.do(t, p.url)
			if p.requests.Load() != 1 {
				t.Fatalf("%d requests arrived", p.requests.Load())
			}
			if res.Outcome != delivery.OutcomeUnknown || res.Evidence != delivery.PossiblySent || c.reason != "" && res.Reason != c.reason {
				t.Errorf("%+v", res)
			}
			if c.reason == "timeout" && res.Error != "send timed out after "+Timeout.String() {
				t.Errorf("error %q", res.Error)
			}
		})
	}
}

// unread is every fault after a byte of the request is out, and before the far side has read all of it: nothing happened,
// which nobody here can know.
func (s walk) unread(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, reason string
		read         int
		end          func(c net.Conn, over <-chan struct{})
	}{
		{"reset after a byte", "reset", 1, func(c net.Conn, _ <-chan struct{}) { reset(c) }},
		{"reset in the middle", "reset", 600, func(c net.Conn, _ <-chan struct{}) { reset(c) }},
		{"closed after a byte", "reset", 1, func(net.Conn, <-chan struct{}) {}},
		{"closed in the middle", "reset", 600, func(net.Conn, <-chan struct{}) {}},
		{"hang without reading", "timeout", 0, func(_ net.Conn, over <-chan struct{}) { <-over }},
		{"hang in the middle", "timeout", 600, func(_ net.Conn, over <-chan struct{}) { <-over }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			over := make(chan struct{})
			base := newRawPeer(t, func(conn net.Conn) {
				if tcp, ok := conn.(*net.TCPConn); ok {
					_ = tcp.SetReadBuffer(4096)
				}
				if _, err := io.ReadFull(conn, make([]byte, c.read)); err != nil {
					t.Errorf("not even %d bytes came: %v", c.read, err)
				}
				c.end(conn, over)
			})
			res := s.make(t, base, s.large(base))
			close(over)
			if res.Outcome != delivery.OutcomeUnknown || res.Evidence != delivery.PossiblySent || res.Reason != c.reason {
				t.Errorf("%+v", res)
			}
			if c.reason == "timeout" && res.Error != "send timed out after "+Timeout.String() {
				t.Errorf("error %q", res.Error)
			}
		})
	}
	// An answer that comes before the request was read is an answer all the same, if it arrives.
	for _, c := range []struct {
		name    string
		status  int
		read    bool // the rest of the request
		outcome delivery.Outcome
	}{
		{"yes, and the rest is read", 200, true, delivery.OutcomeSent},
		{"yes, and the rest is not read", 200, false, delivery.OutcomeSent},
		{"rest, and the rest is read", 429, true, delivery.OutcomeFailed},
		{"rest, and the rest is not read", 429, false, delivery.OutcomeFailed},
	} {
		t.Run("early "+c.name, func(t *testing.T) {
			t.Parallel()
			base := newRawPeer(t, func(conn net.Conn) {
				if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
					t.Error(err)
				}
				write(conn, c.status, "", s.Accepted)
				if c.read {
					hold(conn)
				}
			})
			res := s.make(t, base, s.large(base))
			lost := !c.read && res.Outcome == delivery.OutcomeUnknown // a reset can overtake the answer
			if res.Outcome != c.outcome && !lost {
				t.Errorf("%+v", res)
			}
		})
	}
}

// large is the call with as much content as it may have.
func (s walk) large(base string) provider.Call {
	c := s.call(base)
	if c.Payload != nil {
		c.Payload = []byte(`{"text":"` + strings.Repeat("x", 4<<20) + `"}`)
	} else {
		c.Message.Text = strings.Repeat("a long story ", 10_000)
	}
	return c
}

// framing is a yes in all the ways in which HTTP lets a server send one, and in some in which it does not.
func (s walk) framing(t *testing.T) {
	t.Parallel()
	var packed strings.Builder
	z := gzip.NewWriter(&packed)
	if _, err := io.WriteString(z, s.Accepted); err != nil || z.Close() != nil {
		t.Fatal(err)
	}
	p := newPeer(t, nil)
	for _, c := range []struct {
		name, answer string
		yes          bool // without it, a yes only where every 2xx is one
	}{
		{"to the end", "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + s.Accepted, true},
		{"HTTP/1.0", "HTTP/1.0 200 OK\r\n\r\n" + s.Accepted, true},
		{"chunked", fmt.Sprintf("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n%s\r\n%x\r\n%s\r\n0\r\nX-Trailer: 1\r\n\r\n", s.Accepted[:1], len(s.Accepted)-1, s.Accepted[1:]), true},
		{"after some 1xx", fmt.Sprintf("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(s.Accepted), s.Accepted), true},
		{"more than announced", fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s and more", len(s.Accepted), s.Accepted), true},
		{"less announced than there is", fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(s.Accepted)-1, s.Accepted), false},
		{"nothing announced", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" + s.Accepted, false},
		{"packed, which nobody asked for", fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", packed.Len(), packed.String()), false},
	} {
		p.answers(func(conn net.Conn, _ request) { _, _ = io.WriteString(conn, c.answer) })
		want := delivery.OutcomeUnknown
		if c.yes || s.AnyBody {
			want = delivery.OutcomeSent
		}
		if res := s.do(t, p.url); res.Outcome != want {
			t.Errorf("%s: %+v", c.name, res)
		}
		if n := p.requests.Swap(0); n != 1 {
			t.Errorf("%s: %d requests", c.name, n)
		}
	}
}

// cut breaks a yes off at each of its bytes, head and body, in order and by a reset.
func (s walk) cut(t *testing.T) {
	t.Parallel()
	answer := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(s.Accepted), s.Accepted)
	p := newPeer(t, nil)
	for n := range len(answer) {
		p.answers(func(c net.Conn, _ request) {
			_, _ = io.WriteString(c, answer[:n])
			if n%2 == 1 {
				reset(c)
			}
		})
		if res := s.do(t, p.url); res.Outcome != delivery.OutcomeUnknown || res.Evidence != delivery.PossiblySent {
			t.Errorf("after %d bytes of %d: %+v", n, len(answer), res)
		}
	}
	if s.AnyBody {
		return // without a length nobody can see that such a body is cut
	}
	for n := range len(s.Accepted) {
		p.answers(func(c net.Conn, _ request) { _, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n"+s.Accepted[:n]) })
		if res := s.do(t, p.url); res.Outcome != delivery.OutcomeUnknown {
			t.Errorf("without a length, after %d bytes of %d: %+v", n, len(s.Accepted), res)
		}
	}
}
