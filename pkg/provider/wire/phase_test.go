package wire

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/nettest"
)

// times says which of a record's four times must be there.
type times struct{ dns, connect, tls, first bool }

func checkTimes(t *testing.T, r Record, want times) {
	t.Helper()
	got := times{r.DNS > 0, r.Connect > 0, r.TLS > 0, r.FirstByte > 0}
	if got != want {
		t.Errorf("times %+v, want %+v", got, want)
	}
	if sum := r.DNS + r.Connect + r.TLS + r.FirstByte; sum > r.Duration {
		t.Errorf("the phases took %s, the call %s", sum, r.Duration)
	}
}

// silent accepts connections and says nothing on them.
func silent(t *testing.T) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { hold(c); c.Close() }()
		}
	}()
	return l.Addr().String()
}

// full is an address that takes no connection and refuses none: its queue is full. Empty: on this system none fills up.
func full(t *testing.T) (address string) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	sa, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	address = fmt.Sprintf("127.0.0.1:%d", sa.(*syscall.SockaddrInet4).Port)
	for range 8 {
		c, err := (&net.Dialer{Timeout: 50 * time.Millisecond}).DialContext(t.Context(), "tcp", address)
		if err != nil {
			return address
		}
		t.Cleanup(func() { c.Close() })
	}
	return ""
}

// Each phase is named by the call that ended in it, and has taken its time, also when the call was cut there.
func TestPhaseInWhichACallEnded(t *testing.T) {
	t.Parallel()
	tlsServer := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	tlsServer.Config.ErrorLog = discardLog()
	tlsServer.StartTLS()
	t.Cleanup(tlsServer.Close)
	closed := nettest.Refused(t)
	loopback := names(t, func(string, int) []netip.Addr { return addr("127.0.0.1") })
	nobody := names(t, func(string, int) []netip.Addr { return nil })
	mute := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }}
	trusted := tlsServer.Client().Transport.(*http.Transport).TLSClientConfig
	named := func(address string) string {
		_, port, _ := net.SplitHostPort(address)
		return "far.test.:" + port
	}
	quiet := silent(t)
	for _, c := range []struct {
		name     string
		url      string
		resolver *net.Resolver
		tls      *tls.Config
		phase    delivery.Phase
		evidence delivery.Evidence
		reason   string
		times    times
	}{
		{"no such name", "http://far.test./", nobody, nil, delivery.PhaseDNS, delivery.NotSent, "dns", times{dns: true}},
		{"name server that is silent", "http://far.test./", mute, nil, delivery.PhaseDNS, delivery.NotSent, "timeout", times{dns: true}},
		{"refused", "http://" + closed, nil, nil, delivery.PhaseConnect, delivery.NotSent, "refused", times{connect: true}},
		{"refused, by name", "http://" + named(closed), loopback, nil, delivery.PhaseConnect, delivery.NotSent, "refused", times{dns: true, connect: true}},
		{"connection that does not come about", "http://" + full(t), nil, nil, delivery.PhaseConnect, delivery.NotSent, "timeout", times{connect: true}},
		{"untrusted certificate", tlsServer.URL, nil, nil, delivery.PhaseTLS, delivery.NotSent, "tls", times{connect: true, tls: true}},
		{"silent handshake", "https://" + named(quiet), loopback, nil, delivery.PhaseTLS, delivery.NotSent, "timeout", times{dns: true, connect: true, tls: true}},
		{"silent server", "http://" + quiet, nil, nil, delivery.PhaseRequest, delivery.PossiblySent, "timeout", times{connect: true, first: true}},
		{"reset", peer(t, reset), nil, nil, delivery.PhaseRequest, delivery.PossiblySent, "reset", times{connect: true, first: true}},
		{"half a head", peer(t, func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nCo"); hold(c) }), nil, nil, delivery.PhaseAnswer, delivery.PossiblySent, "timeout", times{connect: true, first: true}},
		{"no HTTP", peer(t, func(c net.Conn) { _, _ = io.WriteString(c, "220 mail\r\n\r\n") }), nil, nil, delivery.PhaseAnswer, delivery.PossiblySent, "slack:malformed_answer", times{connect: true, first: true}},
		{"hanging body", peer(t, func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok"); hold(c) }), nil, nil, delivery.PhaseAnswer, delivery.PossiblySent, "timeout", times{connect: true, first: true}},
		{"refusal", peer(t, func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 429 X\r\nContent-Length: 2\r\n\r\nno") }), nil, nil, delivery.PhaseAnswer, delivery.Answered, "rate_limited", times{connect: true, first: true}},
		{"answer over TLS", tlsServer.URL, nil, trusted, delivery.PhaseAnswer, delivery.Answered, "", times{connect: true, tls: true, first: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.url == "http://" {
				t.Skip("no queue of connections fills up here")
			}
			client := New(Options{Provider: "slack", Timeout: 300 * time.Millisecond, TLS: c.tls})
			if c.tls != nil || strings.HasPrefix(c.reason, "tls") {
				client.timeout = 5 * time.Second
			}
			client.dialer.Resolver = c.resolver
			rec := post(t, client, c.url)
			res, _ := rec.Judge()
			if res.Phase != c.phase || res.Evidence != c.evidence || res.Reason != c.reason {
				t.Errorf("%q, %q, %q (%s)", res.Phase, res.Evidence, res.Reason, res.Error)
			}
			checkTimes(t, rec, c.times)
			if c.reason == "timeout" {
				if res.Error != "send timed out after 300ms" {
					t.Errorf("error %q", res.Error)
				}
				if longest := max(rec.DNS, rec.Connect, rec.TLS, rec.FirstByte); longest < 250*time.Millisecond && rec.Status == 0 && c.phase != delivery.PhaseAnswer {
					t.Errorf("the phase in which it ended took %s of %s", longest, rec.Duration)
				}
			}
		})
	}
}

func TestPhaseOfACallThatWasNotMade(t *testing.T) {
	t.Parallel()
	if res, _ := (Record{}).Judge(); res.Phase != "" || res.Evidence != delivery.NotCalled {
		t.Errorf("%+v", res)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if res, _ := postContext(t, ctx, New(Options{}), "http://127.0.0.1:1").Judge(); res.Phase != "" || res.Evidence != delivery.NotSent {
		t.Errorf("%+v", res)
	}
}

// Every bound by its words, in false time: where it fires before a byte was written, and where after.
func TestEachBoundNamesItself(t *testing.T) {
	t.Parallel()
	// speak does to a connection what a server does before it falls silent.
	speak := func(text string) func(net.Conn) {
		return func(c net.Conn) {
			req, err := http.ReadRequest(bufio.NewReader(c))
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, req.Body)
			_, _ = io.WriteString(c, text)
			hold(c)
		}
	}
	for _, c := range []struct {
		name    string
		url     string
		timeout time.Duration
		caller  time.Duration  // deadline that the caller sets
		far     func(net.Conn) // nil: the connection does not come about
		want    string
		took    time.Duration
		outcome delivery.Outcome
		phase   delivery.Phase
	}{
		{"dial", "http://192.0.2.1/", 30 * time.Second, 0, nil, "connecting timed out after 5s", 5 * time.Second, delivery.OutcomeFailed, delivery.PhaseConnect},
		{"whole call in the dial", "http://192.0.2.1/", 3 * time.Second, 0, nil, "send timed out after 3s", 3 * time.Second, delivery.OutcomeFailed, delivery.PhaseConnect},
		{"handshake", "https://192.0.2.1/", 30 * time.Second, 0, hold, "the TLS handshake timed out after 5s", 5 * time.Second, delivery.OutcomeFailed, delivery.PhaseTLS},
		{"whole call in the handshake", "https://192.0.2.1/", 3 * time.Second, 0, hold, "send timed out after 3s", 3 * time.Second, delivery.OutcomeFailed, delivery.PhaseTLS},
		{"first byte", "http://192.0.2.1/", 30 * time.Second, 0, hold, "no answer came within 25s", 25 * time.Second, delivery.OutcomeUnknown, delivery.PhaseRequest},
		{"first byte after a 1xx", "http://192.0.2.1/", 30 * time.Second, 0, speak("HTTP/1.1 103 Early Hints\r\n\r\n"), "no answer came within 25s", 25 * time.Second, delivery.OutcomeUnknown, delivery.PhaseAnswer},
		{"whole call waiting", "http://192.0.2.1/", 10 * time.Second, 0, hold, "send timed out after 10s", 10 * time.Second, delivery.OutcomeUnknown, delivery.PhaseRequest},
		{"whole call writing", "http://192.0.2.1/", 10 * time.Second, 0, func(c net.Conn) { _, _ = io.ReadFull(c, make([]byte, 10)); time.Sleep(11 * time.Second) }, "send timed out after 10s", 10 * time.Second, delivery.OutcomeUnknown, delivery.PhaseRequest},
		{"whole call in the body", "http://192.0.2.1/", 10 * time.Second, 0, speak("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok"), "send timed out after 10s", 10 * time.Second, delivery.OutcomeUnknown, delivery.PhaseAnswer},
		{"the caller, before", "http://192.0.2.1/", 10 * time.Second, 2 * time.Second, nil, "its caller gave it 2s, which are over", 2 * time.Second, delivery.OutcomeFailed, delivery.PhaseConnect},
		{"the caller, after", "http://192.0.2.1/", 10 * time.Second, 2 * time.Second, hold, "its caller gave it 2s, which are over", 2 * time.Second, delivery.OutcomeUnknown, delivery.PhaseRequest},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				client := New(Options{Provider: "slack", Timeout: c.timeout})
				client.transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
					return dialWith(ctx, address, func(ctx context.Context) (net.Conn, error) {
						if c.far == nil {
							<-ctx.Done()
							return nil, ctx.Err()
						}
						near, far := net.Pipe()
						go func() { c.far(far); far.Close() }()
						return near, nil
					})
				}
				ctx := t.Context()
				if c.caller > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.caller)
					defer cancel()
				}
				defer time.Sleep(20 * time.Second) // false time: lets the far side see that the call is over
				rec := postContext(t, ctx, client, c.url)
				res, _ := rec.Judge()
				if res.Outcome != c.outcome || res.Reason != "timeout" || res.Error != c.want || res.Phase != c.phase || res.Duration != c.took {
					t.Errorf("%s, %q, %q, phase %q after %s", res.Outcome, res.Reason, res.Error, res.Phase, res.Duration)
				}
				if sum := rec.DNS + rec.Connect + rec.TLS + rec.FirstByte; sum != rec.Duration && c.phase != delivery.PhaseAnswer {
					t.Errorf("%s, %s, %s, %s of %s", rec.DNS, rec.Connect, rec.TLS, rec.FirstByte, rec.Duration)
				}
				if (res.Bytes > 0) != (c.outcome == delivery.OutcomeUnknown) {
					t.Errorf("%d bytes", res.Bytes)
				}
			})
		})
	}
}
