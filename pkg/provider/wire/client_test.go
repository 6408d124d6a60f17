package wire

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/nettest"
)

func post(t *testing.T, c *Client, url string) Record {
	t.Helper()
	return postContext(t, t.Context(), c, url)
}

func postContext(t *testing.T, ctx context.Context, c *Client, url string) Record {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader("text=hello"))
	if err != nil {
		t.Fatal(err)
	}
	return c.Do(req)
}

// peer serves raw connections: each is given to serve after its request was read, and closed after.
func peer(t *testing.T, serve func(net.Conn)) string {
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
				req, err := http.ReadRequest(bufio.NewReader(c))
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, req.Body)
				serve(c)
			})
		}
	})
	return "http://" + l.Addr().String()
}

// hold keeps a connection open until the far side gives it up.
func hold(c net.Conn) { _, _ = io.Copy(io.Discard, c) }

func reset(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0) }

func judge(t *testing.T, r Record, outcome delivery.Outcome, evidence delivery.Evidence, reason string) delivery.Result {
	t.Helper()
	res, settled := r.Judge()
	if !settled {
		t.Fatalf("the transport left it open: %+v", res)
	}
	if res.Outcome != outcome || res.Evidence != evidence || res.Reason != reason {
		t.Errorf("%s, %s, %q (%s); want %s, %s, %q", res.Outcome, res.Evidence, res.Reason, res.Error, outcome, evidence, reason)
	}
	if failed, transient := outcome == delivery.OutcomeFailed, res.Fault == delivery.FaultTransient; evidence == delivery.NotSent && failed != transient {
		t.Errorf("fault %q", res.Fault)
	}
	return res
}

// Case A6, in false time: the server takes the request and never answers.
func TestSilentServerTimesOutAfterTenSeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		c := New(Options{Provider: "slack", Timeout: 10 * time.Second})
		c.transport.DialContext = func(context.Context, string, string) (net.Conn, error) { return &counted{Conn: near}, nil }
		go hold(far)
		began := time.Now()
		rec := post(t, c, "http://slack.test/")
		if took := time.Since(began); took < 10*time.Second || took > 11*time.Second {
			t.Errorf("it took %s", took)
		}
		res := judge(t, rec, delivery.OutcomeUnknown, delivery.PossiblySent, "timeout")
		if res.Error != "send timed out after 10s" {
			t.Errorf("error %q", res.Error)
		}
		if res.Bytes == 0 || !strings.Contains(res.Sentence, "may have arrived") {
			t.Errorf("%d bytes, %q", res.Bytes, res.Sentence)
		}
	})
}

func TestFirstByteBoundNamesItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		c := New(Options{Provider: "telegram", Timeout: 30 * time.Second})
		c.transport.DialContext = func(context.Context, string, string) (net.Conn, error) { return &counted{Conn: near}, nil }
		go hold(far)
		res := judge(t, post(t, c, "http://telegram.test/"), delivery.OutcomeUnknown, delivery.PossiblySent, "timeout")
		if res.Error != "no answer came within 25s" {
			t.Errorf("error %q", res.Error)
		}
	})
}

func TestHandshakeBoundNamesItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		c := New(Options{Provider: "slack"})
		c.transport.DialContext = func(context.Context, string, string) (net.Conn, error) { return &counted{Conn: near}, nil }
		go hold(far)
		res := judge(t, post(t, c, "https://slack.test/"), delivery.OutcomeFailed, delivery.NotSent, "timeout")
		if res.Error != "the TLS handshake timed out after 5s" {
			t.Errorf("error %q", res.Error)
		}
		if res.Bytes != 0 {
			t.Errorf("%d bytes: a handshake is no request", res.Bytes)
		}
	})
}

// Case C2: nothing was written.
func TestNothingWrittenIsFailed(t *testing.T) {
	t.Parallel()
	c := New(Options{Provider: "slack", Timeout: 3 * time.Second})
	t.Run("refused", func(t *testing.T) {
		t.Parallel()
		addr := nettest.Refused(t)
		res := judge(t, post(t, c, "http://"+addr), delivery.OutcomeFailed, delivery.NotSent, "refused")
		if !strings.Contains(res.Error, "connecting to "+addr) {
			t.Errorf("error %q names no place", res.Error)
		}
	})
	t.Run("dns", func(t *testing.T) {
		t.Parallel()
		judge(t, post(t, c, "http://no-such-name.invalid"), delivery.OutcomeFailed, delivery.NotSent, "dns")
	})
	t.Run("untrusted certificate", func(t *testing.T) {
		t.Parallel()
		s := httptest.NewUnstartedServer(http.NotFoundHandler())
		s.Config.ErrorLog = nil
		s.Config.ErrorLog = discardLog()
		s.StartTLS()
		t.Cleanup(s.Close)
		judge(t, post(t, c, s.URL), delivery.OutcomeFailed, delivery.NotSent, "tls")
	})
	t.Run("plain server behind https", func(t *testing.T) {
		t.Parallel()
		s := httptest.NewServer(http.NotFoundHandler())
		t.Cleanup(s.Close)
		judge(t, post(t, c, "https"+strings.TrimPrefix(s.URL, "http")), delivery.OutcomeFailed, delivery.NotSent, "tls")
	})
	t.Run("canceled before", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		judge(t, postContext(t, ctx, c, "http://127.0.0.1:1"), delivery.OutcomeFailed, delivery.NotSent, "shutdown")
	})
	t.Run("connection that refuses the first write", func(t *testing.T) {
		t.Parallel()
		c := New(Options{Provider: "slack"})
		near, far := net.Pipe()
		far.Close()
		c.transport.DialContext = func(context.Context, string, string) (net.Conn, error) { return &counted{Conn: near}, nil }
		res, _ := post(t, c, "http://slack.test").Judge()
		if res.Outcome != delivery.OutcomeFailed || res.Bytes != 0 {
			t.Errorf("%+v", res)
		}
	})
}

// Case C2: something was written, so nobody knows.
func TestAnythingWrittenIsUnknown(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, reason string
		serve        func(net.Conn)
		status       int
	}{
		{name: "reset", reason: "reset", serve: reset},
		{name: "closed", reason: "reset", serve: func(net.Conn) {}},
		{name: "hang", reason: "timeout", serve: hold},
		{name: "half a head", reason: "slack:malformed_answer", serve: func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nConte") }},
		{name: "no HTTP", reason: "slack:malformed_answer", serve: func(c net.Conn) { _, _ = io.WriteString(c, "SSH-2.0-OpenSSH_9.2\r\n\r\n") }},
		{name: "endless head", reason: "slack:malformed_answer", serve: func(c net.Conn) {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n")
			for i := 0; ; i++ {
				if _, err := fmt.Fprintf(c, "X-%d: %s\r\n", i, strings.Repeat("x", 1000)); err != nil {
					return
				}
			}
		}},
		{name: "cut body", reason: "reset", status: 200, serve: func(c net.Conn) {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{\"ok\":true")
		}},
		{name: "cut chunk", reason: "reset", status: 200, serve: func(c net.Conn) {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n{\"ok")
		}},
		{name: "hanging body", reason: "timeout", status: 200, serve: func(c net.Conn) {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{\"ok\":true")
			hold(c)
		}},
		{name: "body of 20 MB", reason: "slack:answer_too_long", status: 200, serve: func(c net.Conn) {
			_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", 20<<20)
			_, _ = io.Copy(c, io.LimitReader(zeros{}, 20<<20))
		}},
		{name: "endless body", reason: "slack:answer_too_long", status: 200, serve: func(c net.Conn) {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
			_, _ = io.Copy(c, zeros{})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			client := New(Options{Provider: "slack", Timeout: 2 * time.Second})
			rec := post(t, client, peer(t, c.serve))
			res := judge(t, rec, delivery.OutcomeUnknown, delivery.PossiblySent, c.reason)
			if res.Bytes == 0 || res.HTTPStatus != c.status || res.Error == "" || len(rec.Body) > MaxBody {
				t.Errorf("%d bytes, status %d, error %q, body of %d", res.Bytes, res.HTTPStatus, res.Error, len(rec.Body))
			}
			if strings.Contains(c.name, "hang") && res.Error != "send timed out after 2s" {
				t.Errorf("error %q", res.Error)
			}
		})
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// Case D20, in false time: one byte a second, for ever.
func TestDrippingBodyIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		c := New(Options{Provider: "slack", Timeout: 10 * time.Second})
		c.transport.DialContext = func(context.Context, string, string) (net.Conn, error) { return &counted{Conn: near}, nil }
		go func() {
			req, err := http.ReadRequest(bufio.NewReader(far))
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, req.Body)
			_, err = io.WriteString(far, "HTTP/1.1 200 OK\r\n\r\n")
			time.Sleep(time.Second / 2)
			for err == nil {
				_, err = io.WriteString(far, "x")
				time.Sleep(time.Second)
			}
		}()
		began := time.Now()
		rec := post(t, c, "http://slack.test")
		defer time.Sleep(2 * time.Second) // false time: lets the far side see that the call is over
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("it took %s", took)
		}
		res := judge(t, rec, delivery.OutcomeUnknown, delivery.PossiblySent, "timeout")
		if res.Error != "send timed out after 10s" || res.Answer != strings.Repeat("x", 10) {
			t.Errorf("%q, %q", res.Error, res.Answer)
		}
	})
}

func TestStatusesThatSettleWithoutTheirBody(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]struct {
		outcome delivery.Outcome
		fault   delivery.Fault
		reason  string
	}{
		302: {delivery.OutcomeFailed, delivery.FaultDestination, "destination:redirect_302"},
		308: {delivery.OutcomeFailed, delivery.FaultDestination, "destination:redirect_308"},
		429: {delivery.OutcomeFailed, delivery.FaultThrottled, "rate_limited"},
		500: {delivery.OutcomeUnknown, delivery.FaultNone, "slack:http_500"},
		599: {delivery.OutcomeUnknown, delivery.FaultNone, "slack:http_599"},
		101: {delivery.OutcomeUnknown, delivery.FaultNone, "slack:http_101"},
	} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			var hits atomic.Int32
			target := peer(t, func(c net.Conn) {
				hits.Add(1)
				_, _ = fmt.Fprintf(c, "HTTP/1.1 %d X\r\nLocation: /elsewhere\r\nRetry-After: 26\r\nUpgrade: x\r\nConnection: upgrade\r\nContent-Length: 11\r\n\r\n{\"ok\":true}", status)
			})
			res := judge(t, post(t, New(Options{Provider: "slack"}), target), want.outcome, delivery.Answered, want.reason)
			if res.Fault != want.fault || res.HTTPStatus != status || hits.Load() != 1 {
				t.Errorf("fault %q, status %d, %d requests", res.Fault, res.HTTPStatus, hits.Load())
			}
			if status == 429 && res.RetryAfter != 26*time.Second {
				t.Errorf("retry after %s", res.RetryAfter)
			}
		})
	}
	for _, status := range []int{200, 201, 204, 400, 408, 499} {
		if res, settled := (Record{Called: true, Status: status}).Judge(); settled {
			t.Errorf("%d is the provider's to judge, not %+v", status, res)
		}
	}
}

// A sealed connection is the other half of the proof: the write that was about to happen cannot.
func TestSealedConnectionWritesNothing(t *testing.T) {
	t.Parallel()
	near, far := net.Pipe()
	defer far.Close()
	c := &counted{Conn: near}
	c.n.Store(300) // a handshake
	c.seal(300)
	if _, err := c.Write([]byte("POST /")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the write ended with %v", err)
	}
	if c.written(300) != 0 {
		t.Errorf("%d bytes", c.written(300))
	}
	d := &counted{Conn: near}
	d.n.Store(301)
	d.seal(300)
	if d.written(300) != 1 {
		t.Error("sealing took a written byte back")
	}
}

// during is a connection that looks at something while it writes.
type during struct {
	net.Conn
	look func()
}

func (d during) Write(b []byte) (int, error) { d.look(); return len(b) / 2, io.ErrShortWrite }

// The far side can have the bytes before Write returns, so they count before.
func TestBytesCountBeforeTheyAreWritten(t *testing.T) {
	t.Parallel()
	var c *counted
	c = &counted{Conn: during{look: func() {
		c.seal(0)
		if c.written(0) != 6 {
			t.Errorf("%d bytes while they are written", c.written(0))
		}
	}}}
	if n, err := c.Write([]byte("POST /")); n != 3 || err == nil || c.written(0) != 3 {
		t.Errorf("%d, %v, %d bytes after a short write", n, err, c.written(0))
	}
}

func TestTapMakesOneCallAndHandsOutTheAnswer(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusConflict)
		_, _ = io.WriteString(w, "taken")
	}))
	defer s.Close()
	tap := New(Options{Provider: "slack"}).Tap(t.Context())
	if res, settled := tap.Record.Judge(); !settled || res.Evidence != delivery.NotCalled || res.Outcome != delivery.OutcomeFailed {
		t.Errorf("before the call: %+v", res)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := tap.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil || string(body) != "taken" || resp.StatusCode != http.StatusConflict || string(tap.Record.Body) != "taken" {
		t.Errorf("%d %q %v", resp.StatusCode, body, err)
	}
	if _, err := tap.Do(req); err == nil {
		t.Error("a second call went out")
	}
	if tap.Record.Status != http.StatusConflict {
		t.Error("the refused call overwrote the record")
	}
}

func TestURLCredentialsAreSentAndNeverTold(t *testing.T) {
	t.Parallel()
	var user, password string
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { user, password, _ = r.BasicAuth() }))
	rec := post(t, New(Options{Provider: "webhook"}), strings.Replace(s.URL, "http://", "http://ana:hunter22@", 1))
	s.Close()
	if rec.Status != 200 || user != "ana" || password != "hunter22" {
		t.Errorf("status %d, %q, %q", rec.Status, user, password)
	}
	res, _ := post(t, New(Options{Provider: "webhook"}), strings.Replace(s.URL, "http://", "http://ana:hunter22@", 1)).Judge()
	if strings.Contains(fmt.Sprintf("%+v", res), "hunter22") {
		t.Errorf("%+v", res)
	}
}

func TestEveryCallHasItsOwnConnection(t *testing.T) {
	t.Parallel()
	var conns atomic.Int32
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	s.Config.ConnState = func(_ net.Conn, st http.ConnState) {
		if st == http.StateNew {
			conns.Add(1)
		}
	}
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	c := New(Options{TLS: &tls.Config{RootCAs: s.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs, MinVersion: tls.VersionTLS12}})
	for range 3 {
		rec := post(t, c, s.URL)
		if rec.Status != 200 || rec.Conns != 1 || rec.TLS == 0 || rec.FirstByte == 0 || rec.Duration < rec.FirstByte {
			t.Errorf("%+v", rec)
		}
		if rec.Bytes < 100 || rec.Bytes > 400 { // the request in one TLS record; a handshake alone is more than that
			t.Errorf("%d bytes of a small request", rec.Bytes)
		}
	}
	if conns.Load() != 3 {
		t.Errorf("%d connections for 3 calls", conns.Load())
	}
}

func TestAnswerIsCutOnARuneBorderAfterSecretsWentOut(t *testing.T) {
	t.Parallel()
	const secret = "xoxb-1234567890"
	body := bytes.Repeat([]byte("é"), MaxAnswer/2-4)
	body = append(body, " \x00"+secret+" and more"...)
	got := Record{Body: body, redact: Hide(nil, secret)}.Answer()
	if len(got) > MaxAnswer || strings.Contains(got, "xox") || strings.ContainsRune(got, 0) || !strings.HasPrefix(got, "éé") {
		t.Errorf("%q", got[len(got)-40:])
	}
	odd := Record{Body: append([]byte("a"), bytes.Repeat([]byte("é"), MaxAnswer)...)}.Answer()
	if len(odd) != MaxAnswer-1 || strings.ContainsRune(odd, '\uFFFD') {
		t.Errorf("%d bytes", len(odd))
	}
}

func proxyTo(t *testing.T, raw string) func(*http.Request) (*url.URL, error) {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return http.ProxyURL(u)
}
