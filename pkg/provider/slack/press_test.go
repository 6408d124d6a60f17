package slack

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"testing"
	"time"
)

func mustParse(t *testing.T, raw string) *url.URL {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// The example of Slack's own documentation.
func TestVerifySignatureKnowsSlacksExample(t *testing.T) {
	t.Parallel()
	const secret = "8f742231b10e8888abcd99yyyzzz85a5"
	body := []byte("token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c")
	h := http.Header{}
	h.Set("X-Slack-Request-Timestamp", "1531420618")
	h.Set("X-Slack-Signature", "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503")
	if err := VerifySignature(secret, h, body, time.Unix(1531420618, 0)); err != nil {
		t.Error(err)
	}
	if err := VerifySignature(secret, h, body, time.Unix(1531420618+301, 0)); !errors.Is(err, ErrStale) {
		t.Errorf("late: %v", err)
	}
	if err := VerifySignature(secret, h, body, time.Unix(1531420618-301, 0)); !errors.Is(err, ErrStale) {
		t.Errorf("early: %v", err)
	}
	if err := VerifySignature("another", h, body, time.Unix(1531420618, 0)); !errors.Is(err, ErrSignature) {
		t.Errorf("another secret: %v", err)
	}
	if err := VerifySignature(secret, h, append(body, 'x'), time.Unix(1531420618, 0)); !errors.Is(err, ErrSignature) {
		t.Errorf("another body: %v", err)
	}
}

func TestVerifySignatureRefusesWhatIsNotSigned(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	sign := func(secret, stamp string) string {
		mac := hmac.New(sha256.New, []byte(secret))
		fmt.Fprintf(mac, "v0:%s:body", stamp)
		return "v0=" + hex.EncodeToString(mac.Sum(nil))
	}
	for name, c := range map[string]struct {
		secret, stamp, signature string
		want                     error
	}{
		"good":         {"s", "1700000000", sign("s", "1700000000"), nil},
		"empty secret": {"", "1700000000", sign("", "1700000000"), ErrSignature},
		"no stamp":     {"s", "", sign("s", ""), ErrStale},
		"odd stamp":    {"s", "soon", sign("s", "soon"), ErrStale},
		"no signature": {"s", "1700000000", "", ErrSignature},
		"no hex":       {"s", "1700000000", "v0=zz", ErrSignature},
		"stamp moved":  {"s", "1700000001", sign("s", "1700000000"), ErrSignature},
	} {
		h := http.Header{}
		h.Set("X-Slack-Request-Timestamp", c.stamp)
		h.Set("X-Slack-Signature", c.signature)
		if err := VerifySignature(c.secret, h, []byte("body"), now); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func form(payload string) []byte { return []byte(url.Values{"payload": {payload}}.Encode()) }

func TestParseInteraction(t *testing.T) {
	t.Parallel()
	got, err := ParseInteraction(form(`{"type":"block_actions","user":{"id":"U045","username":"ana","team_id":"T1"},"team":{"id":"T1"},
		"container":{"type":"message","message_ts":"1.2","channel_id":"C0123"},"trigger_id":"13.37",
		"actions":[{"type":"button","action_id":"ack","value":"a&amp;b","action_ts":"1700000001.5"}],"response_url":"https://hooks.slack.com/actions/x"}`))
	want := Press{Action: "ack", Value: "a&b", UserID: "U045", UserName: "ana", TeamID: "T1", Channel: "C0123", MessageTS: "1.2", ActionTS: "1700000001.5", ResponseURL: "https://hooks.slack.com/actions/x", TriggerID: "13.37"}
	if err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	for name, c := range map[string]struct {
		body    []byte
		noPress bool
	}{
		"view":       {form(`{"type":"view_submission","user":{"id":"U1"}}`), true},
		"no actions": {form(`{"type":"block_actions","user":{"id":"U1"},"actions":[]}`), true},
		"no user":    {form(`{"type":"block_actions","actions":[{"action_id":"ack"}]}`), false},
		"no payload": {[]byte("a=b"), false},
		"no JSON":    {form("hello"), false},
		"no form":    {[]byte("%zz"), false},
	} {
		if _, err := ParseInteraction(c.body); err == nil || errors.Is(err, ErrNoPress) != c.noPress {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzParseInteraction(f *testing.F) {
	f.Add("payload=" + url.QueryEscape(`{"type":"block_actions","user":{"id":"U1"},"actions":[{"action_id":"ack"}]}`))
	f.Add("payload=" + strconv.Quote("{"))
	f.Fuzz(func(t *testing.T, body string) {
		p, err := ParseInteraction([]byte(body))
		if err == nil && (p.Action == "" || p.UserID == "") {
			t.Errorf("%q became %+v", body, p)
		}
	})
}
