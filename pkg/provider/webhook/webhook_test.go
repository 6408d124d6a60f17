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
	var table []providertest.Row
	for status, fault := range webhook.Rows() {
		table = append(table, providertest.Row{Name: fmt.Sprint(status), Status: status, Outcome: delivery.OutcomeFailed, Fault: fault})
	}
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
		Rows:     table,
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

// Every status there is, with and without a wish for rest.
func TestStatuses(t *testing.T) {
	t.Parallel()
	type meaning struct {
		outcome delivery.Outcome
		fault   delivery.Fault
		reason  string // before "http_<status>"
		rest    bool   // Retry-After is kept
	}
	listed := map[int]meaning{
		400: {delivery.OutcomeFailed, delivery.FaultPayload, "payload:", false},
		401: {delivery.OutcomeFailed, delivery.FaultDenied, "webhook:", false},
		403: {delivery.OutcomeFailed, delivery.FaultDenied, "webhook:", false},
		408: {delivery.OutcomeFailed, delivery.FaultTransient, "webhook:", true},
		409: {delivery.OutcomeFailed, delivery.FaultPayload, "payload:", false},
		413: {delivery.OutcomeFailed, delivery.FaultPayload, "payload:", false},
		422: {delivery.OutcomeFailed, delivery.FaultPayload, "payload:", false},
		425: {delivery.OutcomeFailed, delivery.FaultTransient, "webhook:", true},
	}
	for status := 200; status < 600; status++ {
		want, ok := listed[status]
		reason := fmt.Sprintf("%shttp_%d", want.reason, status)
		switch {
		case ok:
		case status < 300:
			want, reason = meaning{outcome: delivery.OutcomeSent}, ""
		case status < 400:
			want = meaning{delivery.OutcomeFailed, delivery.FaultDestination, "", false}
			reason = fmt.Sprintf("destination:redirect_%d", status)
		case status == 429:
			want, reason = meaning{delivery.OutcomeFailed, delivery.FaultThrottled, "", true}, "rate_limited"
		case status < 500:
			want = meaning{delivery.OutcomeFailed, delivery.FaultDestination, "", false}
			reason = fmt.Sprintf("destination:http_%d", status)
		default:
			want, reason = meaning{delivery.OutcomeUnknown, "", "", true}, fmt.Sprintf("webhook:http_%d", status)
		}
		url, got := receive(t, status)
		res := newProvider(t, config.Notifier{URL: url}).Do(t.Context(), provider.Call{Operation: delivery.OpCreate, Key: "k", Payload: []byte("{}")})
		if res.Outcome != want.outcome || res.Fault != want.fault || res.Reason != reason || len(*got) != 1 {
			t.Errorf("%d: %s, %q, %q after %d requests; want %+v", status, res.Outcome, res.Fault, res.Reason, len(*got), want)
		}
		if rest := res.RetryAfter == 26*time.Second; rest != want.rest || !rest && res.RetryAfter != 0 {
			t.Errorf("%d: retry after %s", status, res.RetryAfter)
		}
		if res.Outcome != delivery.OutcomeSent && res.Fault != delivery.FaultThrottled && res.Sentence == "" {
			t.Errorf("%d: nobody is told what it means", status)
		}
		if (*got)[0].header.Get("webhook-signature") != "" {
			t.Error("a notifier without a secret signs")
		}
	}
}

// A receiver that is overwhelmed says how long, in one of two ways, or not at all.
func TestRestThatAReceiverAsksFor(t *testing.T) {
	t.Parallel()
	date := time.Date(2026, 11, 29, 10, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		header string
		want   time.Duration
	}{
		"none": {"", 0}, "seconds": {"120", 2 * time.Minute}, "date": {date.Add(time.Minute).Format(http.TimeFormat), time.Minute},
		"for years": {"999999999", 24 * time.Hour}, "the past": {date.Add(-time.Hour).Format(http.TimeFormat), time.Second}, "words": {"soon", time.Second},
	} {
		for _, status := range []int{408, 425, 500, 502, 503, 504, 529} {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Date", date.Format(http.TimeFormat))
				if c.header != "" {
					w.Header().Set("Retry-After", c.header)
				}
				w.WriteHeader(status)
			}))
			res := newProvider(t, config.Notifier{URL: s.URL}).Do(t.Context(), provider.Call{Operation: delivery.OpCreate, Key: "k", Payload: []byte("{}")})
			if res.RetryAfter != c.want {
				t.Errorf("%s, %d: %s", name, status, res.RetryAfter)
			}
			s.Close()
		}
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
