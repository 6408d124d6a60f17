package redact_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/tocsin-oncall/tocsin/pkg/redact"
)

const (
	slackURL = "https://hooks.slack.com/services/T00000001/B00000002/xYz012345678901234567890"
	awkward  = `s3cr&t/"<k=y>+100% ä😀\end`
)

func set() *redact.Set {
	return redact.New(map[string]string{"SLACK_URL": slackURL, "AWKWARD": awkward, "TOKEN": "xoxb-123456789012-abcdefGHIJKL", "PORT": "443", "EMPTY": ""})
}

func quoted(t *testing.T, s string, escapeHTML bool) string {
	t.Helper()
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(escapeHTML)
	if err := e.Encode(s); err != nil {
		t.Fatal(err)
	}
	line := strings.TrimSpace(b.String())
	return line[1 : len(line)-1] // without its quotation marks
}

// Case A9.
func TestASecretIsFoundInEachForm(t *testing.T) {
	t.Parallel()
	for name, form := range map[string]func(string) string{
		"plain":                  func(s string) string { return s },
		"query":                  url.QueryEscape,
		"path":                   url.PathEscape,
		"query, lower case":      func(s string) string { return lowerHex(url.QueryEscape(s)) },
		"query, twice":           func(s string) string { return url.QueryEscape(url.QueryEscape(s)) },
		"query, three times":     func(s string) string { return url.QueryEscape(url.QueryEscape(url.QueryEscape(s))) },
		"path of a whole URL":    func(s string) string { return (&url.URL{Path: "/" + s}).String()[1:] },
		"JSON":                   func(s string) string { return quoted(t, s, false) },
		"JSON with HTML escapes": func(s string) string { return quoted(t, s, true) },
		"JSON in JSON":           func(s string) string { return quoted(t, quoted(t, s, true), true) },
		"JSON, slashes escaped":  func(s string) string { return strings.ReplaceAll(quoted(t, s, true), "/", `\/`) },
		"Go":                     strconv.Quote,
		"Go, ASCII only":         strconv.QuoteToASCII,
		"HTML":                   html.EscapeString,
		"base64":                 func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) },
		"base64, URL":            func(s string) string { return base64.URLEncoding.EncodeToString([]byte(s)) },
		"base64, raw":            func(s string) string { return base64.RawStdEncoding.EncodeToString([]byte(s)) },
		"base64, raw URL":        func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) },
		"base64 in a query": func(s string) string {
			return url.QueryEscape(base64.StdEncoding.EncodeToString([]byte(s)))
		},
	} {
		for secret, want := range map[string]string{slackURL: "${SLACK_URL}", awkward: "${AWKWARD}"} {
			text := "before " + form(secret) + ", after"
			got := set().String(text)
			if w := "before " + want + ", after"; got != w && strings.ReplaceAll(got, `"`, "") != w {
				t.Errorf("%s: %s became %s", name, text, got)
			}
		}
	}
}

func lowerHex(s string) string {
	b := []byte(s)
	for i := range b {
		if b[i] == '%' {
			copy(b[i:i+3], strings.ToLower(string(b[i:i+3])))
		}
	}
	return string(b)
}

func TestASecretWithinALongerBase64IsFoundAtEachAlignment(t *testing.T) {
	t.Parallel()
	const secret = "xoxb-123456789012-abcdefGHIJKL"
	for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
		for _, before := range []string{"", "u", "us", "user", "user:", "user::"} {
			for _, after := range []string{"", "!", "!!", "!!!"} {
				text := enc.EncodeToString([]byte(before + secret + after))
				got := set().String("Basic " + text)
				kept := strings.Split(strings.TrimPrefix(got, "Basic "), "${TOKEN}")
				if len(kept) != 2 || len(kept[0]) > (len(before)+2)*4/3+1 || len(kept[1]) > 8 {
					t.Errorf("%q + secret + %q: %s became %s", before, after, text, got)
				}
			}
		}
	}
}

// Case A9.
func TestAURLDoesNotLeakThroughErrorsRedirectsOrEchoes(t *testing.T) {
	t.Parallel()
	s := set()
	_, err := http.Get("http://127.0.0.1:1/services/T00000001/B00000002/xYz012345678901234567890")
	if err == nil {
		t.Fatal("the call succeeded")
	}
	for name, text := range map[string]string{
		"error with another host": err.Error(),
		"wrapped":                 fmt.Errorf("send: %w", &url.Error{Op: "Post", URL: slackURL, Err: errors.New("EOF")}).Error(),
		"redirect":                "Location: /services/T00000001/B00000002/xYz012345678901234567890",
		"echo without a slash":    "no such hook: T00000001/B00000002/xYz012345678901234567890 (services)",
		"another host":            "https://proxy.example/services/T00000001/B00000002/xYz012345678901234567890?x=1",
	} {
		if got := s.String(text); strings.Contains(got, "xYz0123") || !strings.Contains(got, "${SLACK_URL}") {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestPartsOfAURLAreSecret(t *testing.T) {
	t.Parallel()
	s := redact.New(map[string]string{
		"HOOK": "https://ops:pa%2Fss@hooks.example.com:8443/in?token=abcdef123456&room=42",
		"DB":   "host=db user=tocsin password='hunter2 x' dbname=tocsin",
		"USER": "https://0123456789abcdef@sentry.example.com/7",
	})
	for text, want := range map[string]string{
		"GET /in?token=abcdef123456&room=42":           "GET ${HOOK}",
		"GET /in?room=42&token=abcdef123456 HTTP/1.1":  "GET /in?room=42&token=${HOOK} HTTP/1.1",
		"password pa/ss is wrong":                      "password ${HOOK} is wrong",
		"password pa%2Fss is wrong":                    "password ${HOOK} is wrong",
		"failed: hunter2 x":                            "failed: ${DB}",
		"dsn https://0123456789abcdef@other.example/7": "dsn https://${USER}@other.example/7",
		"hooks.example.com:8443 is down":               "hooks.example.com:8443 is down",
		"room=42":                                      "room=42",
	} {
		if got := s.String(text); got != want {
			t.Errorf("%s became %s, want %s", text, got, want)
		}
	}
}

func TestShortValuesAreReplacedOnlyAsTheWholeText(t *testing.T) {
	t.Parallel()
	s := set()
	if got := s.String("dial tcp 10.0.0.1:443: refused"); got != "dial tcp 10.0.0.1:443: refused" {
		t.Errorf("a short value was replaced inside: %s", got)
	}
	if got := s.String("443"); got != "${PORT}" {
		t.Errorf("a short value as the whole text: %s", got)
	}
	if got := s.String(""); got != "" {
		t.Errorf("the empty text became %s", got)
	}
}

func TestOverlappingSecretsLeaveNoTail(t *testing.T) {
	t.Parallel()
	s := redact.New(map[string]string{"A": "abcdefgh", "B": "efghijkl", "LONG": "abcdefghIJKL", "SAME": "abcdefgh"})
	for text, want := range map[string]string{
		"<abcdefghijkl>":   "<${A}${B}>",
		"<abcdefghIJKL>":   "<${LONG}>",
		"<abcdefghIJKX>":   "<${A}IJKX>",
		"abcdefghabcdefgh": "${A}${A}",
	} {
		if got := s.String(text); got != want {
			t.Errorf("%s became %s, want %s", text, got, want)
		}
	}
}

func TestTextCutInTheMiddleOfASecret(t *testing.T) {
	t.Parallel()
	s := set()
	if got := s.String("token xoxb-123456789012-abc"); got != "token ${TOKEN}" {
		t.Errorf("got %s", got)
	}
	if got := s.String("see https://"); got != "see https://" {
		t.Errorf("the first few characters of a secret are no secret: %s", got)
	}
}

func TestRedactingTwiceIsTheSameAsOnce(t *testing.T) {
	t.Parallel()
	s := redact.New(map[string]string{"SLACK_TOKEN": "SLACK", "B": "${SLACK"})
	once := s.String("the token is SLACK")
	if once != "the token is ${SLACK_TOKEN}" || s.String(once) != once {
		t.Errorf("once: %s, twice: %s", once, s.String(once))
	}
}

func TestNilSetAndBytes(t *testing.T) {
	t.Parallel()
	var none *redact.Set
	if got := none.String("a " + slackURL); got != "a "+slackURL {
		t.Errorf("nil set: %s", got)
	}
	if got := string(none.Bytes([]byte("x"))); got != "x" {
		t.Errorf("nil set: %s", got)
	}
	if got := string(set().Bytes([]byte("a " + slackURL))); got != "a ${SLACK_URL}" {
		t.Errorf("bytes: %s", got)
	}
	if set().Bytes(nil) != nil {
		t.Error("nil bytes became something")
	}
}

func TestValueWithLinesAndBytesThatAreNotText(t *testing.T) {
	t.Parallel()
	s := redact.New(map[string]string{"KEY": "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0B\n-----END KEY-----\n", "RAW": "ab\xff\xfecd", "NL": "s3cret-token\n"})
	for text, want := range map[string]string{
		"line MIIEvQIBADANBgkqhkiG9w0B": "line ${KEY}",
		"raw ab\xff\xfecd.":             "raw ${RAW}.",
		`json ab\ufffd\ufffdcd.`:        "json ${RAW}.",
		"json ab\ufffd\ufffdcd.":        "json ${RAW}.",
		`go ab\xff\xfecd.`:              "go ${RAW}.",
		"url ab%FF%fecd.":               "url ${RAW}.",
		"Bearer s3cret-token":           "Bearer ${NL}",
	} {
		if got := s.String(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

// The server echoes everything it was told, as a careless receiver does; nothing of it may be stored.
func TestAnEchoingServerLeaksNothing(t *testing.T) {
	t.Parallel()
	s := set()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", r.URL.String())
		_, _ = fmt.Fprintf(w, `{"url":%q,"auth":%q,"raw":%q}`, r.URL.String(), r.Header.Get("Authorization"), r.URL.RawQuery)
	}))
	t.Cleanup(server.Close)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/services/T00000001/B00000002/xYz012345678901234567890?k="+url.QueryEscape(awkward), nil)
	if err != nil {
		t.Fatal(err)
	}
	req.SetBasicAuth("u", "xoxb-123456789012-abcdefGHIJKL")
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var echo strings.Builder
	if err := resp.Write(&echo); err != nil {
		t.Fatal(err)
	}
	got := s.String(echo.String())
	for _, part := range []string{"xYz0123", "T00000001", "s3cr", url.QueryEscape(awkward), "MTIzNDU2Nzg5MDEy"} {
		if strings.Contains(got, part) {
			t.Errorf("%s is in %s", part, got)
		}
	}
	for _, name := range []string{"${SLACK_URL}", "${AWKWARD}", "${TOKEN}"} {
		if !strings.Contains(got, name) {
			t.Errorf("%s is not in %s", name, got)
		}
	}
}

func FuzzOutputNeverHoldsTheSecret(f *testing.F) {
	f.Add(awkward, "a ", " b", 0)
	f.Add("%25%", "%", "25", 1)
	f.Add(`\\"\`, `\`, `\`, 2)
	f.Add("https://h/p?q=12345678901", "x", "y", 3)
	f.Fuzz(func(t *testing.T, secret, before, after string, how int) {
		if len(secret) < 4 || len(secret) > 200 || strings.ContainsAny(secret, "${}") || strings.Contains("SECRET", secret) {
			return // a secret that looks like a placeholder can be made by the replacement itself
		}
		s := redact.New(map[string]string{"SECRET": secret})
		form := secret
		switch how % 6 {
		case 1:
			form = url.QueryEscape(secret)
		case 2:
			form = quoted(t, secret, true)
		case 3:
			form = url.PathEscape(secret)
		case 4:
			form = strconv.Quote(secret)
		case 5:
			form = base64.StdEncoding.EncodeToString([]byte(secret))
		}
		got := s.String(before + form + after)
		if strings.Contains(got, secret) {
			t.Fatalf("%q holds %q", got, secret)
		}
		if len(form) >= 8 && !strings.Contains(before+after, form) && !strings.Contains("${SECRET}", form) && strings.Contains(got, form) {
			t.Fatalf("%q holds %q, a form of %q", got, form, secret)
		}
		if string(s.Bytes([]byte(before+form+after))) != got {
			t.Fatal("Bytes and String differ")
		}
	})
}

func BenchmarkAnswerOfTwoKilobytes(b *testing.B) {
	s := set()
	text := strings.Repeat(`{"ok":false,"error":"channel_not_found","warning":"100% \"sure\""}`, 30)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		s.String(text)
	}
}
