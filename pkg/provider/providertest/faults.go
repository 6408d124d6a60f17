package providertest

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
)

// fault is a far side that fails in one way.
type fault struct {
	name   string
	base   string
	reason string // empty: any
	peer   *peer  // nil: none that reads requests
	call   provider.Call
}

// faults are all of them at once, since the calls that hang take their whole time: each before anything can have happened,
// after it happened, and where nobody knows.
func (s walk) faults(t *testing.T) {
	t.Parallel()
	var wg sync.WaitGroup
	for _, group := range []func(*testing.T){s.failed, s.happened, s.unread} {
		wg.Go(func() { group(t) })
	}
	wg.Wait()
}

// together makes the provider's call to each far side at once, since many of them only end by the timeout, and hands over
// what came of it.
func (s walk) together(t *testing.T, faults []fault, judge func(reporter, fault, delivery.Result)) {
	t.Helper()
	var wg sync.WaitGroup
	for _, f := range faults {
		if f.call.Operation == "" {
			f.call = s.call(f.base)
		}
		p := s.New(t, f.base)
		wg.Go(func() {
			n := named{t, f.name}
			res := s.make(n, p, f.call)
			if f.reason != "" && res.Reason != f.reason {
				n.Errorf("reason %q, want %q", res.Reason, f.reason)
			}
			if f.reason == "timeout" && res.Error != "send timed out after "+Timeout.String() {
				n.Errorf("error %q", res.Error)
			}
			judge(n, f, res)
		})
	}
	wg.Wait()
}

// failed is every fault before a byte of the request is out.
func (s walk) failed(t *testing.T) {
	t.Helper()
	plain := newPeer(t, func(net.Conn, request) {})
	secure := func(serve func(net.Conn)) string {
		return strings.Replace(newRawPeer(t, serve), "http://", "https://", 1)
	}
	s.together(t, []fault{
		{name: "refused", base: closedURL(t), reason: "refused"},
		{name: "dns", base: "http://no-such-name.invalid", reason: "dns"},
		{name: "tls", base: strings.Replace(plain.url, "http://", "https://", 1), reason: "tls"},
		{name: "handshake that hangs", base: secure(hold), reason: "timeout"},
		{name: "handshake that is closed", base: secure(func(c net.Conn) { _, _ = c.Read(make([]byte, 1)) }), reason: "tls"},
		{name: "handshake that is reset", base: secure(func(c net.Conn) { _, _ = c.Read(make([]byte, 1)); reset(c) }), reason: "tls"},
	}, func(t reporter, _ fault, res delivery.Result) {
		if res.Outcome != delivery.OutcomeFailed || res.Evidence != delivery.NotSent || res.Fault != delivery.FaultTransient {
			t.Errorf("%+v", res)
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	res := s.New(t, plain.url).Do(ctx, s.call(plain.url))
	s.check(named{t, "canceled before"}, res)
	if res.Outcome != delivery.OutcomeFailed || plain.requests.Load() != 0 {
		t.Errorf("canceled before: %+v, %d requests", res, plain.requests.Load())
	}
}

// happened is every fault after the far side has the request, with the effect in place.
func (s walk) happened(t *testing.T) {
	t.Helper()
	length := len(s.Accepted) + 10
	say := func(format string, args ...any) func(net.Conn, request) {
		return func(c net.Conn, _ request) { _, _ = fmt.Fprintf(c, format, args...) }
	}
	then := func(first func(net.Conn, request), next func(net.Conn)) func(net.Conn, request) {
		return func(c net.Conn, r request) { first(c, r); next(c) }
	}
	part := say("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", length, s.Accepted)
	var faults []fault
	for _, c := range []struct {
		name, reason string
		serve        func(net.Conn, request)
	}{
		{"reset", "reset", func(c net.Conn, _ request) { reset(c) }},
		{"closed", "reset", func(net.Conn, request) {}},
		{"hang", "timeout", func(c net.Conn, _ request) { hold(c) }},
		{"hang in the head", "timeout", then(say("HTTP/1.1 200 OK\r\nContent-"), hold)},
		{"hang after the head", "timeout", then(say("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", length), hold)},
		{"hang after a 1xx", "timeout", then(say("HTTP/1.1 103 Early Hints\r\n\r\n"), hold)},
		{"cut body", "reset", part},
		{"hanging body", "timeout", then(part, hold)},
		{"closed after the head", "reset", say("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", length)},
		{"chunk that breaks off", "reset", say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s", length, s.Accepted)},
		{"chunks without an end", "reset", say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n", len(s.Accepted), s.Accepted)},
		{"chunks of nonsense", "", say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n%s\r\n0\r\n\r\n", s.Accepted)},
		{"two lengths", "", say("HTTP/1.1 200 OK\r\nContent-Length: %d\r\nContent-Length: 1\r\n\r\n%s", len(s.Accepted), s.Accepted)},
		{"no status", "", say("HTTP/1.1 OK\r\nContent-Length: %d\r\n\r\n%s", len(s.Accepted), s.Accepted)},
		{"no HTTP", "", say("220 mail.test ESMTP\r\n\r\n")},
		{"flood of 1xx", "", func(c net.Conn, _ request) { flood(c, "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", 1<<20) }},
		{"large header", "", func(c net.Conn, _ request) {
			write(c, 200, "X-Large: "+strings.Repeat("x", 1<<20)+"\r\n", s.Accepted)
		}},
		{"many headers", "", func(c net.Conn, _ request) {
			write(c, 200, strings.Repeat("X-Many: "+strings.Repeat("x", 100)+"\r\n", 10_000), s.Accepted)
		}},
		{"20 MB", "", then(say("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", 20<<20, s.Accepted), func(c net.Conn) {
			flood(c, strings.Repeat(" ", 64<<10), 20<<20)
		})},
	} {
		p := newPeer(t, c.serve)
		faults = append(faults, fault{name: c.name, base: p.url, reason: c.reason, peer: p})
	}
	s.together(t, faults, func(t reporter, f fault, res delivery.Result) {
		if n := f.peer.requests.Load(); n != 1 {
			t.Errorf("%d requests arrived", n)
		}
		if res.Outcome != delivery.OutcomeUnknown || res.Evidence != delivery.PossiblySent {
			t.Errorf("%+v", res)
		}
	})
}

// unread is every fault after a byte of the request is out, and before the far side has read all of it: nothing happened,
// which nobody here can know.
func (s walk) unread(t *testing.T) {
	t.Helper()
	over := make(chan struct{})
	var faults []fault
	for _, c := range []struct {
		name, reason string
		read         int
		end          func(net.Conn)
	}{
		{"reset after a byte", "reset", 1, reset},
		{"reset in the middle", "reset", 600, reset},
		{"closed after a byte", "reset", 1, func(net.Conn) {}},
		{"closed in the middle", "reset", 600, func(net.Conn) {}},
		{"hang without reading", "timeout", 0, func(net.Conn) { <-over }},
		{"hang in the middle", "timeout", 600, func(net.Conn) { <-over }},
	} {
		base := newRawPeer(t, func(conn net.Conn) {
			if tcp, ok := conn.(*net.TCPConn); ok {
				_ = tcp.SetReadBuffer(4096)
			}
			if _, err := io.ReadFull(conn, make([]byte, c.read)); err != nil {
				t.Errorf("%s: not even %d bytes came: %v", c.name, c.read, err)
			}
			c.end(conn)
		})
		faults = append(faults, fault{name: c.name, base: base, reason: c.reason, call: s.large(base)})
	}
	s.together(t, faults, func(t reporter, _ fault, res delivery.Result) {
		if res.Outcome != delivery.OutcomeUnknown || res.Evidence != delivery.PossiblySent {
			t.Errorf("%+v", res)
		}
	})
	close(over)
}

// early is an answer that comes before the request was read. It is an answer all the same, if it arrives.
func (s walk) early(t *testing.T) {
	t.Parallel()
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
		base := newRawPeer(t, func(conn net.Conn) {
			if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
				t.Error(err)
			}
			write(conn, c.status, "", s.Accepted)
			if c.read {
				hold(conn)
			}
		})
		res := s.make(named{t, c.name}, s.New(t, base), s.large(base))
		lost := !c.read && res.Outcome == delivery.OutcomeUnknown // a reset can overtake the answer
		if res.Outcome != c.outcome && !lost {
			t.Errorf("%s: %+v", c.name, res)
		}
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
