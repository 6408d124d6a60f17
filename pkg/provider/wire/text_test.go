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
