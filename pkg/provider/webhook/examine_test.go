package webhook_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/nettest"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
	"github.com/tocsin-oncall/tocsin/pkg/provider/webhook"
)

// secure starts a receiver with TLS, and gives what trusts it.
func secure(t *testing.T, h http.HandlerFunc) (*httptest.Server, *tls.Config) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	return s, &tls.Config{RootCAs: pool}
}

// examine examines a notifier and checks what holds for every finding.
func examine(t *testing.T, n config.Notifier, roots *tls.Config, e provider.Examination) map[string]provider.Finding {
	t.Helper()
	n.Name, n.Type, n.Timeout = "audit", "webhook", 2*time.Second
	p, err := webhook.NewTrusting(n, roots)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]provider.Finding{}
	for _, f := range p.Examine(t.Context(), e) {
		if _, twice := all[f.Check]; twice {
			t.Errorf("%s is found twice", f.Check)
		}
		all[f.Check] = f
		if (f.Level == provider.OK) != (f.Fix == "") || f.Text == "" {
			t.Errorf("%+v", f)
		}
		if text := fmt.Sprint(f); strings.Contains(text, secret) || strings.Contains(text, "hush") {
			t.Errorf("a secret is told: %+v", f)
		}
	}
	return all
}

func has(t *testing.T, all map[string]provider.Finding, check string, level provider.Level, words string) {
	t.Helper()
	if f, ok := all[check]; !ok || f.Level != level || !strings.Contains(f.Text+" | "+f.Fix, words) {
		t.Errorf("%s, %q: %+v; all: %+v", check, words, f, all)
	}
}

func TestExamineAllIsWell(t *testing.T) {
	t.Parallel()
	got := make(chan seen, 2)
	s, roots := secure(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodHead {
			if r.URL.Path != "/" {
				t.Errorf("HEAD of %s", r.URL.Path)
			}
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got <- seen{r.Header, body, r.Host}
	})
	n := config.Notifier{URL: strings.Replace(s.URL, "https://", "https://user:hush-hush@", 1) + "/hook?key=hush", Secrets: []string{secret}}
	all := examine(t, n, roots, provider.Examination{})
	for check, f := range all {
		if f.Level != provider.OK {
			t.Errorf("%s: %+v", check, f)
		}
	}
	has(t, all, "url", provider.OK, "https of 127.0.0.1")
	has(t, all, "certificate", provider.OK, "valid until 2084")
	has(t, all, "clock", provider.OK, "127.0.0.1")
	if len(got) != 0 {
		t.Error("something was posted")
	}
	has(t, examine(t, n, roots, provider.Examination{Live: true}), "live test", provider.OK, "tocsin.test was taken with 200")
	post := <-got
	var event struct {
		Type      string
		Timestamp time.Time
		Data      map[string]any
	}
	if err := json.Unmarshal(post.body, &event); err != nil || event.Type != webhook.EventTest || event.Timestamp.IsZero() || event.Data == nil {
		t.Errorf("%s: %v", post.body, err)
	}
	if id := post.header.Get("webhook-id"); !strings.HasPrefix(id, "test-") || strings.Contains(id, ".") || post.header.Get("webhook-signature") == "" {
		t.Errorf("%+v", post.header)
	}
}

func TestExamineFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	fine := func(http.ResponseWriter, *http.Request) {}
	plain := httptest.NewServer(http.HandlerFunc(fine))
	t.Cleanup(plain.Close)
	s, roots := secure(t, fine)
	ends := s.Certificate().NotAfter
	at := func(when time.Time) provider.Examination {
		return provider.Examination{Now: func() time.Time { return when }}
	}
	nobody := "http://" + nettest.Refused(t)
	for _, c := range []struct {
		name  string
		n     config.Notifier
		roots *tls.Config
		e     provider.Examination
		check string
		level provider.Level
		words string
	}{
		{"no secret", config.Notifier{URL: plain.URL}, nil, provider.Examination{}, "secret", provider.Warn, "whsec_"},
		{"http on this machine", config.Notifier{URL: plain.URL}, nil, provider.Examination{}, "url", provider.OK, "http of"},
		{"http elsewhere", config.Notifier{URL: "http://no-such-name.invalid/hook"}, nil, provider.Examination{}, "url", provider.Warn, "https://"},
		{"no such name", config.Notifier{URL: "https://no-such-name.invalid/hook"}, nil, provider.Examination{}, "name", provider.Bad, "no-such-name.invalid is not found"},
		{"nobody listens", config.Notifier{URL: nobody}, nil, provider.Examination{}, "connection", provider.Bad, "connection refused"},
		{"a name", config.Notifier{URL: strings.Replace(plain.URL, "127.0.0.1", "localhost", 1)}, nil, provider.Examination{}, "name", provider.OK, "127.0.0.1"},
		{"stranger's certificate", config.Notifier{URL: s.URL}, nil, provider.Examination{}, "certificate", provider.Bad, "that this machine trusts"},
		{"other host's certificate", config.Notifier{URL: strings.Replace(s.URL, "127.0.0.1", "localhost", 1)}, roots, provider.Examination{}, "certificate", provider.Bad, "a certificate for localhost"},
		{"no TLS there", config.Notifier{URL: strings.Replace(plain.URL, "http://", "https://", 1)}, roots, provider.Examination{}, "certificate", provider.Bad, "no TLS"},
		{"ends soon", config.Notifier{URL: s.URL}, roots, at(ends.Add(-13*24*time.Hour - time.Hour)), "certificate", provider.Warn, "it ends in 13 days"},
		{"ends later", config.Notifier{URL: s.URL}, roots, at(ends.Add(-15 * 24 * time.Hour)), "certificate", provider.OK, "valid until"},
		{"ended", config.Notifier{URL: s.URL}, roots, at(ends.Add(time.Hour)), "certificate", provider.Bad, "renew"},
		{"clocks apart", config.Notifier{URL: plain.URL}, nil, at(time.Now().Add(-time.Minute)), "clock", provider.Warn, "NTP"},
		{"clocks far apart", config.Notifier{URL: plain.URL}, nil, at(time.Now().Add(-time.Hour)), "clock", provider.Warn, "NTP"},
		{"signatures too old", config.Notifier{URL: plain.URL, Secrets: []string{secret}}, nil, at(time.Now().Add(-time.Hour)), "clock", provider.Bad, "refuse every signature"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			has(t, examine(t, c.n, c.roots, c.e), c.check, c.level, c.words)
		})
	}
}

func TestExamineLive(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]struct {
		level provider.Level
		words string
	}{
		204: {provider.OK, "taken with 204"},
		302: {provider.Bad, "redirect"},
		400: {provider.Warn, "types that it does not know"},
		401: {provider.Bad, "check secret and headers"},
		404: {provider.Bad, "check url"},
		409: {provider.Warn, "it refuses"},
		410: {provider.Bad, "gone for good"},
		429: {provider.Warn, "again later"},
		500: {provider.Warn, "500"},
	} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			url, got := receive(t, status)
			all := examine(t, config.Notifier{URL: url}, nil, provider.Examination{Live: true})
			has(t, all, "live test", want.level, want.words)
			if len(*got) != 2 { // the HEAD and the post
				t.Errorf("%d requests", len(*got))
			}
		})
	}
}

// A server that takes connections and never answers, or breaks off.
func TestExamineOfSomethingElse(t *testing.T) {
	t.Parallel()
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
			c.Close()
		}
	}()
	has(t, examine(t, config.Notifier{URL: "http://" + l.Addr().String()}, nil, provider.Examination{}), "answer", provider.Warn, "answers nothing")
	has(t, examine(t, config.Notifier{URL: "https://" + l.Addr().String()}, nil, provider.Examination{}), "certificate", provider.Bad, "no TLS")
}

// An address that came over the API may not lead into the private network, unless the file says so; and the file's
// headers, which may be credentials, go to the file's own receiver alone.
func TestGuardedCalls(t *testing.T) {
	t.Parallel()
	url, got := receive(t, 200)
	n := config.Notifier{Name: "audit", URL: "https://hooks.test/own", Secrets: []string{secret}, Headers: map[string]string{"Authorization": "Bearer hush-hush", "Host": "inner.test"}}
	call := provider.Call{Operation: delivery.OpCreate, Address: url, Key: "k", Payload: []byte("{}"), Guarded: true}

	p, err := webhook.NewTrusting(n, nil)
	if err != nil {
		t.Fatal(err)
	}
	res := p.Do(t.Context(), call)
	if res.Outcome != delivery.OutcomeFailed || res.Evidence != delivery.NotSent || res.Fault != delivery.FaultDestination || res.Bytes != 0 || !strings.Contains(res.Sentence, "server.allow_private") {
		t.Errorf("%+v", res)
	}
	if len(*got) != 0 {
		t.Fatal("the private network was called")
	}

	p, err = webhook.NewTrusting(n, nil, netip.MustParsePrefix("127.0.0.0/8"))
	if err != nil {
		t.Fatal(err)
	}
	if res := p.Do(t.Context(), call); res.Outcome != delivery.OutcomeSent {
		t.Errorf("%+v", res)
	}
	call.Guarded = false // from the file: trusted
	if res := p.Do(t.Context(), call); res.Outcome != delivery.OutcomeSent {
		t.Errorf("%+v", res)
	}
	for i, own := range []bool{false, true} {
		g := (*got)[i]
		if (g.header.Get("Authorization") != "") != own || (g.host == "inner.test") != own || g.header.Get("webhook-signature") == "" {
			t.Errorf("%d: %+v, host %s", i, g.header, g.host)
		}
	}
}
