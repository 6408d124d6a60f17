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
	// Calls are an edit and a reply to which Accepted says yes, for a provider that can do these.
	Calls map[delivery.Operation]provider.Call
	// Rows are the provider's own tables.
	Rows []Row
}

// Row is one line of a provider's table: what an answer means.
type Row struct {
	Name      string
	Operation delivery.Operation // empty: the same for each that the suite has a call of
	Status    int                // 0: 200
	Header    map[string]string
	Body      string
	Outcome   delivery.Outcome
	Fault     delivery.Fault
	Reason    string // empty: any
	Unlisted  bool   // the table does not know the answer's code
}

// walk is the suite for one operation.
type walk struct {
	Suite
	op delivery.Operation
}

// operations are those that the suite has a call of.
func (s Suite) operations() []delivery.Operation {
	out := []delivery.Operation{delivery.OpCreate}
	for _, op := range []delivery.Operation{delivery.OpEdit, delivery.OpReply} {
		if _, ok := s.Calls[op]; ok {
			out = append(out, op)
		}
	}
	return out
}

func (s walk) call(base string) provider.Call {
	c := s.Call
	if s.op != delivery.OpCreate {
		c = s.Calls[s.op]
	}
	c.Operation = s.op
	if s.Address != nil {
		c.Address = s.Address(base)
	}
	return c
}

// made is the reference that a yes comes with.
func (s walk) made() delivery.Reference {
	if s.op == delivery.OpEdit {
		return s.Calls[s.op].Reference // an edit makes nothing
	}
	return s.Reference
}

// reporter is the part of *testing.T that a check needs.
type reporter interface {
	Helper()
	Context() context.Context
	Errorf(format string, args ...any)
}

// named puts a case's name before what it reports.
type named struct {
	reporter
	name string
}

// Errorf reports that the case failed.
func (n named) Errorf(format string, args ...any) {
	n.Helper()
	n.reporter.Errorf("%s: "+format, append([]any{n.name}, args...)...)
}

// do makes the provider's call to a far side and checks what must hold for every result.
func (s walk) do(t *testing.T, base string) delivery.Result {
	t.Helper()
	return s.make(t, s.New(t, base), s.call(base))
}

func (s walk) make(t reporter, p provider.Provider, c provider.Call) delivery.Result {
	t.Helper()
	began := time.Now()
	res := p.Do(t.Context(), c)
	if took := time.Since(began); took > Timeout+time.Second {
		t.Errorf("the call took %s with a timeout of %s", took, Timeout)
	}
	s.check(t, res)
	return res
}

// check is what holds for every result.
func (s Suite) check(t reporter, res delivery.Result) {
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
			t.Errorf("failed without proof: bytes went out and no answer came")
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
	begun := res.Phase == delivery.PhaseRequest || res.Phase == delivery.PhaseAnswer
	if answered := res.Phase == delivery.PhaseAnswer; res.Evidence == delivery.Answered && !answered ||
		res.Evidence == delivery.PossiblySent && !begun || res.HTTPStatus != 0 && !answered {
		t.Errorf("%s, status %d, in the phase %q", res.Evidence, res.HTTPStatus, res.Phase)
	}
	if res.RetryAfter < 0 || res.RetryAfter > 24*time.Hour {
		t.Errorf("a rest of %s", res.RetryAfter)
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

func (s Suite) checkSecrets(t reporter, res delivery.Result) {
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
	for _, op := range s.operations() {
		t.Run(string(op), func(t *testing.T) {
			t.Parallel()
			w := walk{s, op}
			t.Run("accepted", w.accepted)
			t.Run("statuses", w.statuses)
			t.Run("faults", w.faults)
			t.Run("answered early", w.early)
			t.Run("framing", w.framing)
			t.Run("cut at every byte", w.cut)
			t.Run("bodies", w.bodies)
			t.Run("drifted", w.drifted)
			t.Run("rests", w.rests)
			t.Run("rows", w.rows)
			t.Run("secrets", w.secrets)
			t.Run("many at once", w.manyAtOnce)
		})
	}
}

func (s walk) accepted(t *testing.T) {
	t.Parallel()
	p := newPeer(t, func(c net.Conn, _ request) { write(c, 200, "Content-Type: application/json\r\n", s.Accepted) })
	res := s.do(t, p.url)
	if res.Outcome != delivery.OutcomeSent || res.Reference != s.made() || res.HTTPStatus != 200 {
		t.Errorf("%+v", res)
	}
	if res.Bytes == 0 || res.Duration == 0 || res.FirstByte == 0 {
		t.Errorf("%d bytes, first byte after %s, %s in all", res.Bytes, res.FirstByte, res.Duration)
	}
	if n := p.requests.Load(); n != 1 {
		t.Errorf("%d requests", n)
	}
}

// secrets has every secret sent back in every form, and all of the request with it.
func (s walk) secrets(t *testing.T) {
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
func (s walk) manyAtOnce(t *testing.T) {
	t.Parallel()
	p := newPeer(t, func(c net.Conn, _ request) { write(c, 200, "", s.Accepted) })
	one := s.New(t, p.url)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if res := one.Do(t.Context(), s.call(p.url)); res.Outcome != delivery.OutcomeSent || res.Reference != s.made() {
				t.Errorf("%+v", res)
			}
		})
	}
	wg.Wait()
	if n := p.requests.Load(); n != 20 {
		t.Errorf("%d requests for 20 calls", n)
	}
}
