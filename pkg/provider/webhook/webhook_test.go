package webhook_test

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
	"github.com/tocsin-oncall/tocsin/pkg/provider/providertest"
	"github.com/tocsin-oncall/tocsin/pkg/provider/webhook"
)

const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

func newProvider(t *testing.T, n config.Notifier) *webhook.Provider {
	t.Helper()
	n.Name, n.Type = "audit", "webhook"
	p, err := webhook.New(n, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestConformance(t *testing.T) {
	t.Parallel()
	providertest.Run(t, providertest.Suite{
		New: func(t *testing.T, base string) provider.Provider {
			return newProvider(t, config.Notifier{
				URL: base, Timeout: providertest.Timeout, Secrets: []string{secret},
				Headers: map[string]string{"Authorization": "Bearer s3cr3t-bearer"},
			})
		},
		Secrets:  []string{secret, "s3cr3t-bearer"},
		Call:     provider.Call{Key: "0198c0de-key", Payload: []byte(`{"type":"incident.opened"}`)},
		Address:  func(base string) string { return base + "/hook" },
		Accepted: "thanks",
		AnyBody:  true,
	})
}

type seen struct {
	header http.Header
	body   []byte
	host   string
}

// receive starts a receiver that answers with the statuses in turn.
func receive(t *testing.T, status ...int) (url string, got *[]seen) {
	t.Helper()
	got = &[]seen{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		*got = append(*got, seen{r.Header, body, r.Host})
		w.Header().Set("Retry-After", "26")
		w.WriteHeader(status[min(len(*got), len(status))-1])
	}))
	t.Cleanup(s.Close)
	return s.URL, got
}

// The verifier is a third party's.
func TestSignatureIsAcceptedByAnotherLibrary(t *testing.T) {
	t.Parallel()
	const raw = "an-older-secret-of-plain-bytes"
	url, got := receive(t, 200)
	p := newProvider(t, config.Notifier{URL: url, Secrets: []string{secret, raw}, Headers: map[string]string{"X-Team": "db", "Host": "hooks.test"}})
	body := []byte(`{"type":"incident.opened","text":"a < b & \"c\" 😀"}`)
	before := time.Now().Unix()
	res := p.Do(t.Context(), provider.Call{Operation: delivery.OpCreate, Key: "0198c0de-0001", Payload: body})
	if res.Outcome != delivery.OutcomeSent {
		t.Fatalf("%+v", res)
	}
	g := (*got)[0]
	if string(g.body) != string(body) {
		t.Errorf("body %s", g.body)
	}
	one, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	two, err := standardwebhooks.NewWebhookRaw([]byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	for i, w := range []*standardwebhooks.Webhook{one, two} {
		if err := w.Verify(g.body, g.header); err != nil {
			t.Errorf("secret %d: %v", i+1, err)
		}
	}
	other, err := standardwebhooks.NewWebhookRaw([]byte("not the secret"))
	if err != nil {
		t.Fatal(err)
	}
	if other.Verify(g.body, g.header) == nil || one.Verify([]byte(`{}`), g.header) == nil {
		t.Error("a wrong secret or body is accepted")
	}
	stamp, err := strconv.ParseInt(g.header.Get("webhook-timestamp"), 10, 64)
	if err != nil || stamp < before {
		t.Errorf("timestamp %q of before the attempt", g.header.Get("webhook-timestamp"))
	}
	for name, want := range map[string]string{
		"webhook-id": "0198c0de-0001", "X-Tokay-Event-ID": "0198c0de-0001", "Content-Type": "application/json", "X-Team": "db",
	} {
		if g.header.Get(name) != want {
			t.Errorf("%s: %q", name, g.header.Get(name))
		}
	}
	if g.host != "hooks.test" {
		t.Errorf("host %q", g.host)
	}
}

// Case D1: 500, 404, 429, 302.
func TestStatuses(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]struct {
		outcome delivery.Outcome
		fault   delivery.Fault
		reason  string
	}{
		200: {delivery.OutcomeSent, "", ""},
		201: {delivery.OutcomeSent, "", ""},
		204: {delivery.OutcomeSent, "", ""},
		302: {delivery.OutcomeFailed, delivery.FaultDestination, "destination:redirect_302"},
		400: {delivery.OutcomeFailed, delivery.FaultPayload, "payload:http_400"},
		401: {delivery.OutcomeFailed, delivery.FaultDenied, "webhook:http_401"},
		403: {delivery.OutcomeFailed, delivery.FaultDenied, "webhook:http_403"},
		404: {delivery.OutcomeFailed, delivery.FaultDestination, "destination:http_404"},
		405: {delivery.OutcomeFailed, delivery.FaultDestination, "destination:http_405"},
		408: {delivery.OutcomeFailed, delivery.FaultTransient, "webhook:http_408"},
		409: {delivery.OutcomeFailed, delivery.FaultPayload, "payload:http_409"},
		410: {delivery.OutcomeFailed, delivery.FaultDestination, "destination:http_410"},
		413: {delivery.OutcomeFailed, delivery.FaultPayload, "payload:http_413"},
		415: {delivery.OutcomeFailed, delivery.FaultDestination, "destination:http_415"},
		418: {delivery.OutcomeFailed, delivery.FaultDestination, "destination:http_418"},
		422: {delivery.OutcomeFailed, delivery.FaultPayload, "payload:http_422"},
		425: {delivery.OutcomeFailed, delivery.FaultTransient, "webhook:http_425"},
		429: {delivery.OutcomeFailed, delivery.FaultThrottled, "rate_limited"},
		500: {delivery.OutcomeUnknown, "", "webhook:http_500"},
		503: {delivery.OutcomeUnknown, "", "webhook:http_503"},
	} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			url, got := receive(t, status)
			res := newProvider(t, config.Notifier{URL: url}).Do(t.Context(), provider.Call{Operation: delivery.OpCreate, Key: "k", Payload: []byte("{}")})
			if res.Outcome != want.outcome || res.Fault != want.fault || res.Reason != want.reason || len(*got) != 1 {
				t.Errorf("%s, %q, %q after %d requests; want %+v", res.Outcome, res.Fault, res.Reason, len(*got), want)
			}
			if waits := status == 429 || status == 503; waits && res.RetryAfter != 26*time.Second {
				t.Errorf("retry after %s", res.RetryAfter)
			}
			if res.Fault == delivery.FaultDestination && res.Sentence == "" {
				t.Error("nobody is told what to do")
			}
			if (*got)[0].header.Get("webhook-signature") != "" {
				t.Error("a notifier without a secret signs")
			}
		})
	}
}

// The key is the receiver's way to drop a repeat; the timestamp is the attempt's own.
func TestRepeatCarriesTheSameID(t *testing.T) {
	t.Parallel()
	url, got := receive(t, 500, 200)
	p := newProvider(t, config.Notifier{URL: url, Secrets: []string{secret}})
	call := provider.Call{Operation: delivery.OpCreate, Key: "same", Payload: []byte("{}")}
	first, second := p.Do(t.Context(), call), p.Do(t.Context(), call)
	if first.Outcome != delivery.OutcomeUnknown || second.Outcome != delivery.OutcomeSent {
		t.Errorf("%s, %s", first.Outcome, second.Outcome)
	}
	if (*got)[0].header.Get("webhook-id") != "same" || (*got)[1].header.Get("webhook-id") != "same" {
		t.Error("the id changed")
	}
}

func TestOnlyCreates(t *testing.T) {
	t.Parallel()
	p := newProvider(t, config.Notifier{URL: "http://127.0.0.1:1"})
	for _, op := range []delivery.Operation{delivery.OpEdit, delivery.OpReply} {
		if res := p.Do(t.Context(), provider.Call{Operation: op}); res.Outcome != delivery.OutcomeFailed || res.Evidence != delivery.NotCalled {
			t.Errorf("%s: %+v", op, res)
		}
	}
}

func TestNewNamesTheMistakeAndNotTheSecret(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		n    config.Notifier
		want string
	}{
		{config.Notifier{URL: "ftp://hush-hush.test"}, "url is not a URL"},
		{config.Notifier{URL: "https://hush-hush.test/%zz"}, "url is not a URL"},
		{config.Notifier{URL: "https://x.test", Secrets: []string{"whsec_!hush-hush"}}, "secret 1: what follows whsec_ is not base64"},
		{config.Notifier{URL: "https://x.test", Secrets: []string{"fine", ""}}, "secret 2: it is empty"},
		{config.Notifier{URL: "https://x.test", Headers: map[string]string{"webhook-id": "hush-hush"}}, "the header Webhook-Id is tocsin's own"},
		{config.Notifier{URL: "https://x.test", Headers: map[string]string{"X-A": "hush-hush\r\nX-B: 1"}}, "X-A has a line break"},
		{config.Notifier{URL: "https://x.test", Headers: map[string]string{"X A": "1"}}, "is not a header's name"},
	} {
		c.n.Name = "audit"
		_, err := webhook.New(c.n, nil)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "notifier audit") || strings.Contains(err.Error(), "hush-hush") {
			t.Errorf("%v; want %q", err, c.want)
		}
	}
}

func TestSecretsWithAndWithoutPaddingAreTheSameKey(t *testing.T) {
	t.Parallel()
	key := []byte("0123456789abcdef0123456789") // 26 bytes: base64 has padding
	url, got := receive(t, 200)
	for _, s := range []string{"whsec_" + base64.StdEncoding.EncodeToString(key), "whsec_" + base64.RawStdEncoding.EncodeToString(key)} {
		newProvider(t, config.Notifier{URL: url, Secrets: []string{s}}).Do(t.Context(), provider.Call{Operation: delivery.OpCreate, Key: "k", Payload: []byte("{}")})
	}
	w, err := standardwebhooks.NewWebhookRaw(key)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range *got {
		if err := w.Verify(g.body, g.header); err != nil {
			t.Error(err)
		}
	}
	if len(*got) != 2 {
		t.Errorf("%d requests", len(*got))
	}
}
