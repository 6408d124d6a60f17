// Package providertest says what every provider over HTTP must hold, whatever its dialect. A provider joins by one
// call of [Run].
//
// Its heart is a pair: each fault comes once before anything can have happened, and the provider must say failed, and
// once after the far side has the request, and it must not.
package providertest

import (
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
)

// Timeout is what the provider under test must be given, so that the hanging cases end soon.
const Timeout = 2 * time.Second

// Suite is a provider as the suite needs it.
type Suite struct {
	// New makes the provider with Timeout, so that it calls the far side at base, "http://127.0.0.1:1234". All its
	// credentials are among Secrets.
	New     func(t *testing.T, base string) provider.Provider
	Secrets []string
	// Call is a create that succeeds. Where the provider takes its URL from the call, Address makes it from base.
	Call    provider.Call
	Address func(base string) string
	// Accepted is the body of an answer that says yes; the reference in it is Reference.
	Accepted  string
	Reference delivery.Reference
	// Unlisted is the body of a refusal that no table of the provider knows.
	Unlisted string
	// AnyBody says that every 2xx is a yes, whatever its body.
	AnyBody bool
}

func (s Suite) call(base string) provider.Call {
	c := s.Call
	c.Operation = delivery.OpCreate
	if s.Address != nil {
		c.Address = s.Address(base)
	}
	return c
}

// do makes the provider's call to a far side and checks what must hold for every result.
func (s Suite) do(t *testing.T, base string) delivery.Result {
	t.Helper()
	began := time.Now()
	res := s.New(t, base).Do(t.Context(), s.call(base))
	if took := time.Since(began); took > Timeout+time.Second {
		t.Errorf("the call took %s with a timeout of %s", took, Timeout)
	}
	s.check(t, res)
	return res
}

// check is what holds for every result.
func (s Suite) check(t *testing.T, res delivery.Result) {
	t.Helper()
	switch res.Outcome {
	case delivery.OutcomeSent:
		if res.Fault != delivery.FaultNone || res.Evidence != delivery.Answered || res.Error != "" {
			t.Errorf("sent with fault %q, evidence %q, error %q", res.Fault, res.Evidence, res.Error)
		}
	case delivery.OutcomeFailed:
		if res.Fault == delivery.FaultNone || res.Reason == "" {
			t.Errorf("failed with fault %q, reason %q", res.Fault, res.Reason)
		}
		if res.Evidence == delivery.PossiblySent {
			t.Error("failed without proof: bytes went out and no answer came")
		}
		if res.Evidence == delivery.NotSent && res.Bytes != 0 {
			t.Errorf("%d bytes of a call that sent nothing", res.Bytes)
		}
	case delivery.OutcomeUnknown:
		if res.Fault != delivery.FaultNone || res.Reason == "" || res.Error == "" || res.Bytes == 0 {
			t.Errorf("unknown with fault %q, reason %q, error %q, %d bytes", res.Fault, res.Reason, res.Error, res.Bytes)
		}
	default:
		t.Errorf("outcome %q", res.Outcome)
	}
	if res.Outcome != delivery.OutcomeSent && !res.Reference.IsZero() {
		t.Errorf("%s with the reference %+v", res.Outcome, res.Reference)
	}
	if throttled := res.Fault == delivery.FaultThrottled; throttled && res.RetryAfter < time.Second {
		t.Errorf("throttled for %s", res.RetryAfter)
	}
	if len(res.Answer) > 2048 || len(res.Error) > 4096 || len(res.Sentence) > 4096 || len(res.Reason) > 200 || len(res.Code) > 200 {
		t.Errorf("answer of %d bytes, error of %d, sentence of %d, reason of %d, code of %d", len(res.Answer), len(res.Error), len(res.Sentence), len(res.Reason), len(res.Code))
	}
	s.checkSecrets(t, res)
}

func (s Suite) checkSecrets(t *testing.T, res delivery.Result) {
	t.Helper()
	all := fmt.Sprintf("%+v", res)
	for _, secret := range s.Secrets {
		for name, form := range map[string]string{
			"as it is": secret, "URL-encoded": url.QueryEscape(secret),
			"as base64": base64.StdEncoding.EncodeToString([]byte(secret)),
		} {
			if strings.Contains(all, form) {
				t.Errorf("a secret stands %s in %s", name, all)
			}
		}
	}
}

// Run checks the provider.
func Run(t *testing.T, s Suite) {
	t.Run("accepted", s.accepted)
	t.Run("statuses", s.statuses)
	t.Run("failed", s.failed)
	t.Run("failed but it happened", s.happened)
	t.Run("bodies", s.bodies)
	t.Run("secrets", s.secrets)
	t.Run("many at once", s.manyAtOnce)
}

func (s Suite) accepted(t *testing.T) {
	t.Parallel()
	p := newPeer(t, func(c net.Conn, _ request) { write(c, 200, "Content-Type: application/json\r\n", s.Accepted) })
	res := s.do(t, p.url)
	if res.Outcome != delivery.OutcomeSent || res.Reference != s.Reference || res.HTTPStatus != 200 {
		t.Errorf("%+v", res)
	}
	if res.Bytes == 0 || res.Duration == 0 || res.FirstByte == 0 {
		t.Errorf("%d bytes, first byte after %s, %s in all", res.Bytes, res.FirstByte, res.Duration)
	}
	if n := p.requests.Load(); n != 1 {
		t.Errorf("%d requests", n)
	}
}

// statuses walks every status there is, with a body that says yes and with one from a machine in front.
func (s Suite) statuses(t *testing.T) {
	t.Parallel()
	const page = "<html><head><title>error</title></head></html>"
	for kind, body := range map[string]string{"yes": s.Accepted, "page": page} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			for status := 100; status < 600; status++ {
				p := newPeer(t, func(c net.Conn, _ request) { write(c, status, "Location: /elsewhere\r\n", body) })
				res := s.do(t, p.url)
				if n := p.requests.Load(); n != 1 {
					t.Errorf("%d: %d requests", status, n)
				}
				s.checkStatus(t, status, kind == "yes", res)
				if t.Failed() {
					t.Fatalf("%d, %s: %+v", status, kind, res)
				}
			}
		})
	}
}

func (s Suite) checkStatus(t *testing.T, status int, yes bool, res delivery.Result) {
	t.Helper()
	want := []delivery.Outcome{delivery.OutcomeUnknown}
	switch {
	case status < 200, status >= 500:
	case status == http.StatusNoContent && !s.AnyBody:
		// its body is not read, so there is no yes
	case status < 300 && (yes || s.AnyBody):
		want = []delivery.Outcome{delivery.OutcomeSent}
	case status < 300:
	case status == http.StatusTooManyRequests:
		want = []delivery.Outcome{delivery.OutcomeFailed}
		if res.Fault != delivery.FaultThrottled {
			t.Errorf("%d: fault %q", status, res.Fault)
		}
	case status < 400:
		want = []delivery.Outcome{delivery.OutcomeFailed}
		if res.Fault != delivery.FaultDestination && res.Fault != delivery.FaultAccount {
			t.Errorf("%d: fault %q", status, res.Fault)
		}
	case status == http.StatusRequestTimeout, yes && !s.AnyBody:
		// a refusal whose body says yes contradicts itself; a 408 is a refusal where the provider says so
		want = append(want, delivery.OutcomeFailed)
	default:
		want = []delivery.Outcome{delivery.OutcomeFailed}
	}
	for _, w := range want {
		if res.Outcome == w {
			return
		}
	}
	t.Errorf("%d: outcome %s, want %s", status, res.Outcome, want)
}

// failed is every fault before a byte of the request is out.
func (s Suite) failed(t *testing.T) {
	t.Parallel()
	plain := newPeer(t, func(net.Conn, request) {})
	for _, c := range []struct{ name, base, reason string }{
		{"refused", closedURL(t), "refused"},
		{"dns", "http://no-such-name.invalid", "dns"},
		{"tls", strings.Replace(plain.url, "http://", "https://", 1), "tls"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			res := s.do(t, c.base)
			if res.Outcome != delivery.OutcomeFailed || res.Evidence != delivery.NotSent || res.Fault != delivery.FaultTransient || res.Reason != c.reason {
				t.Errorf("%+v", res)
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
func (s Suite) happened(t *testing.T) {
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

// bodies are answers with status 200 that are not what was agreed.
func (s Suite) bodies(t *testing.T) {
	t.Parallel()
	t.Run("wrong content type", func(t *testing.T) {
		t.Parallel()
		p := newPeer(t, func(c net.Conn, _ request) { write(c, 200, "Content-Type: image/png\r\n", s.Accepted) })
		if res := s.do(t, p.url); res.Outcome != delivery.OutcomeSent {
			t.Errorf("%+v", res) // the body says it all
		}
	})
	if s.AnyBody {
		return
	}
	for name, body := range map[string]string{
		"empty": "", "null": "null", "list": "[]", "object": "{}", "number": "200", "page": "<html>", "text": "fine",
		"not ok": `{"ok":false}`, "ok as text": `{"ok":"true"}`, "ok alone": `{"ok":true}`, "ok with result true": `{"ok":true,"result":true}`,
		"two objects": s.Accepted + s.Accepted, "binary": "\x00\xff\xfe{\"ok\":true}", "unlisted": s.Unlisted,
		"half": s.Accepted[:len(s.Accepted)/2],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPeer(t, func(c net.Conn, _ request) { write(c, 200, "Content-Type: application/json\r\n", body) })
			if res := s.do(t, p.url); res.Outcome != delivery.OutcomeUnknown {
				t.Errorf("%+v", res)
			}
		})
	}
	t.Run("unlisted refusal", func(t *testing.T) {
		t.Parallel()
		p := newPeer(t, func(c net.Conn, _ request) { write(c, 400, "", s.Unlisted) })
		if res := s.do(t, p.url); res.Outcome != delivery.OutcomeFailed || res.Code == "" {
			t.Errorf("%+v", res)
		}
	})
}

// secrets has every secret sent back in every form, and all of the request with it.
func (s Suite) secrets(t *testing.T) {
	t.Parallel()
	for _, status := range []int{200, 302, 400, 401, 404, 429, 500} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			p := newPeer(t, func(c net.Conn, r request) {
				var b strings.Builder
				for _, secret := range s.Secrets {
					fmt.Fprintf(&b, "%s %s %s %q ", secret, url.QueryEscape(secret), base64.StdEncoding.EncodeToString([]byte(secret)), secret)
				}
				b.Write(r.raw)
				write(c, status, "Location: "+r.http.URL.String()+"\r\nX-Echo: "+url.QueryEscape(strings.Join(s.Secrets, " "))+"\r\n", b.String())
			})
			s.do(t, p.url) // check looks for them
		})
	}
	t.Run("no answer", func(t *testing.T) {
		t.Parallel()
		s.do(t, closedURL(t))
	})
	t.Run("in a code", func(t *testing.T) {
		t.Parallel()
		for _, word := range append([]string{strings.Repeat("x", 100_000)}, s.Secrets...) {
			for _, status := range []int{200, 400} {
				p := newPeer(t, func(c net.Conn, _ request) {
					write(c, status, "", fmt.Sprintf(`{"ok":false,"error":%q,"needed":%q,"error_code":400,"description":%q}`, word, word, word))
				})
				s.do(t, p.url)
			}
		}
	})
}

// manyAtOnce is for the race detector, and for results that leak from one call into another.
func (s Suite) manyAtOnce(t *testing.T) {
	t.Parallel()
	p := newPeer(t, func(c net.Conn, _ request) { write(c, 200, "", s.Accepted) })
	one := s.New(t, p.url)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if res := one.Do(t.Context(), s.call(p.url)); res.Outcome != delivery.OutcomeSent || res.Reference != s.Reference {
				t.Errorf("%+v", res)
			}
		})
	}
	wg.Wait()
	if n := p.requests.Load(); n != 20 {
		t.Errorf("%d requests for 20 calls", n)
	}
}
