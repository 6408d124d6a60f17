package wire

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/redact"
)

func discardLog() *log.Logger { return log.New(io.Discard, "", 0) }

type named map[string]string

func (n named) String(s string) string {
	for name, value := range n {
		s = strings.ReplaceAll(s, value, "${"+name+"}")
	}
	return s
}

func TestHideKnowsEveryForm(t *testing.T) {
	t.Parallel()
	const secret = `https://hooks.test/T/B?a=1&b="<é>`
	h := Hide(named{"OTHER": "other-secret"}, secret, "abc")
	js, err := json.Marshal(secret)
	if err != nil {
		t.Fatal(err)
	}
	for _, form := range []string{
		secret, url.QueryEscape(secret), url.PathEscape(secret), string(js),
		strings.ReplaceAll(string(js), "/", `\/`), base64.StdEncoding.EncodeToString([]byte(secret)),
		base64.RawURLEncoding.EncodeToString([]byte(secret)), "other-secret",
	} {
		got := h.String("before " + form + " after abc")
		if strings.Contains(got, "hooks") || strings.Contains(got, form) || !strings.HasPrefix(got, "before ") || !strings.HasSuffix(got, " after abc") {
			t.Errorf("%q left %q", form, got)
		}
	}
	if got := h.String("other-secret"); got != "${OTHER}" {
		t.Errorf("a secret with a name became %q", got)
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		after, date string
		want        time.Duration
	}{
		{"26", "", 26 * time.Second},
		{"0", "", time.Second},
		{"-5", "", time.Second},
		{"", "", time.Second},
		{"soon", "", time.Second},
		{"999999999", "", 24 * time.Hour},
		{"99999999999999999999", "", time.Second},
		{"Sun, 29 Nov 2026 12:00:30 GMT", "", 30 * time.Second},
		{"Sun, 29 Nov 2026 11:00:00 GMT", "", time.Second},
		{"Sun, 29 Nov 2026 14:00:30 GMT", "Sun, 29 Nov 2026 14:00:00 GMT", 30 * time.Second}, // our clock is wrong
	} {
		h := http.Header{}
		h.Set("Retry-After", c.after)
		if c.date != "" {
			h.Set("Date", c.date)
		}
		if got := RetryAfter(h, now); got != c.want {
			t.Errorf("%q: %s, want %s", c.after, got, c.want)
		}
	}
}

// An answer full of escape signs must not cost the lease: what is not kept is not looked through. No half of a secret is left
// where it was cut.
func TestLongAnswersAreLookedThroughInPart(t *testing.T) {
	t.Parallel()
	secret := strings.Repeat("s3cret/", 300)
	values := map[string]string{"A": secret, "B": "another-secret-value", "C": "https://example.com/hook/third"}
	set := redact.New(values)
	for _, sign := range []string{"%", "\\u0451", "&amp;"} {
		r := Record{redact: set, Body: []byte(strings.Repeat(sign, MaxBody/len(sign)))}
		began := time.Now()
		if got := r.Answer(); len(got) > MaxAnswer || got == "" {
			t.Errorf("%q: %d bytes", sign, len(got))
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%q took %s", sign, took)
		}
	}
	// A long secret is put down as a short name, so what stands at the cut comes to the front.
	long := strings.Repeat("l0ng/", 1_500)
	values["D"] = long
	r := Record{redact: redact.New(values), Body: []byte(long + secret + strings.Repeat("y", 10_000))}
	if got := r.Answer(); strings.Contains(got, "s3cret") || strings.Contains(got, "l0ng") {
		t.Errorf("a part of a secret is left: %q", got[:min(len(got), 100)])
	}
	for _, before := range []int{0, 1000, MaxAnswer - 10, maxClean - 1000, maxClean - 10} {
		r := Record{redact: set, Body: []byte(strings.Repeat("x", before) + secret + strings.Repeat("y", 10_000))}
		if got := r.Answer(); strings.Contains(got, "s3cret") {
			t.Errorf("after %d bytes a part of the secret is left", before)
		}
	}
}
