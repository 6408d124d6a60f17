package wire

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	crand "crypto/rand"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
)

// cutServer speaks TLS, and breaks connections off at random moments. A request has its effect once all of it was read.
type cutServer struct {
	url     string
	tls     *tls.Config          // of a client that trusts it
	span    func() time.Duration // about how long a whole call takes
	effects sync.Map             // by id
	cancels sync.Map             // by id: what the client cancels the call with
	stop    func()               // waits for what is still being served
}

func newCutServer(t *testing.T, span func() time.Duration) *cutServer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), crand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(crand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(cert)
	// One of the quick curves: most of these calls are a handshake and little more.
	curves := []tls.CurveID{tls.CurveP256}
	s := &cutServer{
		url: "https://" + l.Addr().String(), span: span,
		tls: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12, CurvePreferences: curves},
	}
	config := &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, MinVersion: tls.VersionTLS12, CurvePreferences: curves}
	s.stop = accept(l, func(c net.Conn) { s.serve(c, config) })
	t.Cleanup(s.stop)
	return s
}

// accept serves each connection until the function it returns is called, which waits for all of them.
func accept(l net.Listener, serve func(net.Conn)) (stop func()) {
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(20 * time.Second)) // for a test that went wrong
				serve(c)
			})
		}
	})
	return sync.OnceFunc(func() { l.Close(); wg.Wait() })
}

func (s *cutServer) serve(raw net.Conn, config *tls.Config) {
	c, cut := raw, func() { reset(raw); raw.Close() }
	switch rand.N(8) {
	case 0: // at any moment of the call
		defer time.AfterFunc(rand.N(s.span()), cut).Stop()
	case 1: // at any byte of the handshake, the request or what follows
		c = &cutAfter{Conn: c, left: rand.N(3000), cut: cut}
	}
	conn := tls.Server(c, config)
	if conn.Handshake() != nil {
		return
	}
	req, err := http.ReadRequest(bufio.NewReader(conn))
	if err != nil {
		return
	}
	id := req.Header.Get("X-Call")
	if n, err := io.Copy(io.Discard, req.Body); err != nil || n != req.ContentLength {
		return
	}
	s.effects.Store(id, true)
	switch rand.N(8) {
	case 0: // it is done, and nobody is told
		cut()
		return
	case 1: // some of the answer
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"[:rand.N(40)])
		cut()
		return
	case 2, 3: // the client gives up at this very moment, with its write hardly over
		if cancel, ok := s.cancels.Load(id); ok {
			cancel.(context.CancelFunc)()
		}
	}
	_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
}

// cutAfter is a connection that is cut once so many bytes were read from it.
type cutAfter struct {
	net.Conn
	left int
	cut  func()
}

func (c *cutAfter) Read(b []byte) (int, error) {
	if c.left == 0 {
		c.cut()
		return 0, io.ErrUnexpectedEOF
	}
	n, err := c.Conn.Read(b[:min(len(b), c.left)])
	c.left -= n
	return n, err
}

// cutCalls makes calls that are cut at random moments, by themselves or by what is between them and the server, and says what
// they came to. A call that says "failed" had no effect, ever.
func cutCalls(t *testing.T, calls int, s *cutServer, c *Client, span *atomic.Int64) {
	t.Helper()
	const workers = 4
	var mu sync.Mutex
	outcomes := map[string]delivery.Outcome{}
	var wg sync.WaitGroup
	var next atomic.Int64
	for range workers {
		wg.Go(func() {
			for n := next.Add(1); n <= int64(calls); n = next.Add(1) {
				id := fmt.Sprint(n)
				ctx, cancel := context.WithCancel(t.Context())
				if rand.N(2) == 0 {
					time.AfterFunc(rand.N(time.Duration(span.Load())), cancel)
				}
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, strings.NewReader(strings.Repeat("x", rand.IntN(20_000))))
				if err != nil {
					t.Error(err)
				}
				req.Header.Set("X-Call", id)
				s.cancels.Store(id, cancel)
				rec := c.Do(req)
				cancel()
				res, settled := rec.Judge()
				if !settled {
					res.Outcome = delivery.OutcomeSent
					// The moments of the cuts are spread over a little more than a call takes, however busy this machine is.
					old := span.Load()
					span.Store((old*15 + int64(rec.Duration)*3/2) / 16)
				}
				if res.Outcome == delivery.OutcomeSent && (rec.Bytes == 0 || rec.Status != 200) || res.Outcome == delivery.OutcomeUnknown && rec.Bytes == 0 || res.Outcome == delivery.OutcomeFailed && rec.Bytes != 0 {
					t.Errorf("call %s: %+v", id, res)
				}
				mu.Lock()
				outcomes[id] = res.Outcome
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	s.stop()
	if len(outcomes) != calls {
		t.Errorf("%d outcomes of %d calls", len(outcomes), calls)
	}
	var failed, sent, happened, didNot int
	for id, outcome := range outcomes {
		_, effect := s.effects.Load(id)
		switch {
		case outcome == delivery.OutcomeFailed && effect:
			t.Errorf("call %s was judged failed and had its effect", id)
		case outcome == delivery.OutcomeFailed:
			failed++
		case outcome == delivery.OutcomeSent && !effect:
			t.Errorf("call %s was answered without an effect", id)
		case outcome == delivery.OutcomeSent:
			sent++
		case effect:
			happened++
		default:
			didNot++
		}
	}
	t.Logf("%d failed; unknown: %d with effect, %d without; %d answered", failed, happened, didNot, sent)
	// With hardly any of one class nothing would be shown.
	if least := calls / 20; failed < least || happened < least || sent < least || didNot == 0 {
		t.Error("too few calls of one class: the test proves nothing")
	}
}

// The heart of it.
func TestFailedNeverHadAnEffect(t *testing.T) {
	t.Parallel()
	span := &atomic.Int64{}
	span.Store(int64(10 * time.Millisecond))
	s := newCutServer(t, func() time.Duration { return time.Duration(span.Load()) })
	cutCalls(t, 2000, s, New(Options{Provider: "slack", TLS: s.tls}), span)
}

// The same through a proxy, which refuses, and cuts, on its own.
func TestFailedNeverHadAnEffectThroughAProxy(t *testing.T) {
	t.Parallel()
	span := &atomic.Int64{}
	span.Store(int64(15 * time.Millisecond))
	s := newCutServer(t, func() time.Duration { return time.Duration(span.Load()) })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var refused atomic.Int64
	stop := accept(l, func(c net.Conn) {
		cut := func() { reset(c); c.Close() }
		if rand.N(8) == 0 {
			defer time.AfterFunc(rand.N(time.Duration(span.Load())), cut).Stop()
		}
		r := bufio.NewReader(c)
		req, err := http.ReadRequest(r)
		if err != nil || req.Method != http.MethodConnect {
			return
		}
		if rand.N(16) == 0 {
			refused.Add(1)
			_, _ = io.WriteString(c, "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
			return
		}
		far, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", req.Host)
		if err != nil {
			return
		}
		defer far.Close()
		_, _ = io.WriteString(c, "HTTP/1.1 200 Connection established\r\n\r\n")
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = io.Copy(far, r)
			far.Close()
		}()
		_, _ = io.Copy(c, far)
		c.Close()
		<-done
	})
	t.Cleanup(stop)
	c := New(Options{Provider: "slack", Proxy: proxyTo(t, "http://"+l.Addr().String()), TLS: s.tls})
	cutCalls(t, 500, s, c, span)
	if refused.Load() == 0 {
		t.Error("the proxy refused nothing")
	}
}
