package slacktest_test

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/provider/slack/slacktest"
)

// raw posts a form and returns status, headers and body.
func raw(t *testing.T, s *slacktest.Server, method string, form url.Values) (int, http.Header, string) {
	t.Helper()
	form.Set("token", s.Options().Token)
	resp, err := http.PostForm(s.APIURL()+method, form)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(body)
}

func TestScopesAreAskedForAndShown(t *testing.T) {
	t.Parallel()
	s := slacktest.Start(t, slacktest.Options{Scopes: []string{"chat:write"}, Channels: []slacktest.Channel{{ID: "C1", Name: "a"}, {ID: "G1", Name: "b", Private: true}}})
	for _, c := range []struct{ method, channel, needed string }{
		{"auth.test", "", ""},
		{"chat.postMessage", "C1", ""},
		{"conversations.history", "C1", "channels:history"},
		{"conversations.history", "G1", "groups:history"},
		{"conversations.replies", "D1", "im:history"},
		{"conversations.info", "C1", "channels:read"},
		{"conversations.open", "", "im:write"},
		{"users.lookupByEmail", "", "users:read.email"},
		{"reactions.add", "C1", "reactions:write"},
	} {
		_, h, body := raw(t, s, c.method, url.Values{"channel": {c.channel}, "text": {"x"}})
		if h.Get("X-Oauth-Scopes") != "chat:write" {
			t.Errorf("%s: scopes %q", c.method, h.Get("X-Oauth-Scopes"))
		}
		if want := `"error":"missing_scope","needed":"` + c.needed + `"`; c.needed != "" && !strings.Contains(body, want) || c.needed == "" && !strings.Contains(body, `"ok":true`) {
			t.Errorf("%s of %s: %s", c.method, c.channel, body)
		}
	}
	s.SetScopes("chat:write", "channels:history")
	if _, h, body := raw(t, s, "conversations.history", url.Values{"channel": {"C1"}}); !strings.Contains(body, `"ok":true`) || h.Get("X-Accepted-Oauth-Scopes") != "channels:history" {
		t.Errorf("%v %s", h, body)
	}
	s.SetRevoked(true)
	if _, _, body := raw(t, s, "auth.test", url.Values{}); !strings.Contains(body, "token_revoked") {
		t.Error(body)
	}
	s.SetRevoked(false)
	if _, _, body := raw(t, s, "auth.test", url.Values{}); !strings.Contains(body, `"ok":true`) {
		t.Error(body)
	}
}

// The limit is per channel; what does not wait is refused and remembered.
func TestPostsAboveTheLimitMustWait(t *testing.T) {
	t.Parallel()
	var now atomic.Int64
	now.Store(1_700_000_000_000)
	s := slacktest.Start(t, slacktest.Options{Now: func() time.Time { return time.UnixMilli(now.Load()) }})
	post := func(channel string) (int, string) {
		status, h, _ := raw(t, s, "chat.postMessage", url.Values{"channel": {channel}, "text": {"x"}})
		return status, h.Get("Retry-After")
	}
	check := func(name, channel string, status int, after string) {
		t.Helper()
		if st, ra := post(channel); st != status || ra != after {
			t.Errorf("%s: %d, retry after %q", name, st, ra)
		}
	}
	for range 3 {
		check("no limit in a new workspace", "C0OPS", 200, "")
	}
	s.SetPostLimit(2, 1500*time.Millisecond)
	check("first", "C0OPS", 200, "")
	check("second", "C0OPS", 200, "")
	check("third", "C0OPS", 429, "2")
	check("another channel", "C0DB", 200, "")
	if v := s.Violations(); len(v) != 0 {
		t.Errorf("the first refusal is nobody's fault: %v", v)
	}
	now.Add(1900)
	check("too early", "C0OPS", 429, "1")
	if v := s.Violations(); len(v) != 1 || v[0].Channel != "C0OPS" || v[0].Until.Sub(v[0].At) != 100*time.Millisecond || v[0].String() == "" {
		t.Errorf("%v", v)
	}
	now.Add(100)
	check("in time", "C0OPS", 200, "")
	resp, err := http.Post(s.WebhookURL(), "application/json", strings.NewReader(`{"text":"x"}`))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	resp, err = http.Post(s.WebhookURL(), "application/json", strings.NewReader(`{"text":"x"}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != 429 || resp.Header.Get("Retry-After") != "2" || !strings.Contains(string(body), `"retry_after":2`) {
		t.Errorf("a webhook's posts count too: %d %s %v", resp.StatusCode, body, err)
	}
	if n := len(s.Messages("C0OPS")); n != 7 {
		t.Errorf("%d messages", n)
	}
	s.SetPostLimit(0, 0)
	check("no limit any more", "C0OPS", 200, "")
}

func TestWorkspaceThatKeepsNoMarks(t *testing.T) {
	t.Parallel()
	s := slacktest.Start(t, slacktest.Options{})
	s.SetDropMetadata(true)
	s.SetDropBlockIDs(true)
	form := url.Values{"channel": {"C0OPS"}, "text": {"x"}, "metadata": {`{"event_type":"t","event_payload":{"effect_key":"k"}}`},
		"blocks":      {`[{"type":"divider","block_id":"d_k"}]`},
		"attachments": {`[{"color":"#ff0000","blocks":[{"type":"divider","block_id":"d_k"}]}]`}}
	if _, _, body := raw(t, s, "chat.postMessage", form); !strings.Contains(body, `"ok":true`) || strings.Contains(body, "d_k") || strings.Contains(body, "effect_key") {
		t.Error(body)
	}
	if m := s.Messages("C0OPS"); len(m) != 1 || m[0].Metadata != nil || m[0].Colour() != "ff0000" {
		t.Errorf("%+v", m)
	}
}

func TestHistoryOfAnAppThatIsSold(t *testing.T) {
	t.Parallel()
	s := slacktest.Start(t, slacktest.Options{})
	s.SetHistoryPage(2)
	for range 3 {
		s.Put(slacktest.Message{Channel: "C0OPS", User: "U9", BotID: "B9", Text: "of another app"})
	}
	_, _, body := raw(t, s, "conversations.history", url.Values{"channel": {"C0OPS"}, "limit": {"200"}})
	if strings.Count(body, `"bot_id":"B9"`) != 2 || !strings.Contains(body, `"has_more":true`) || !strings.Contains(body, "next_cursor") {
		t.Error(body)
	}
}
