package slacktest_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/slack-go/slack"

	"github.com/tocsin-oncall/tocsin/pkg/provider/chattest"
	"github.com/tocsin-oncall/tocsin/pkg/provider/slack/slacktest"
)

// postForm posts raw parameters and decodes the answer.
func postForm(t *testing.T, s *slacktest.Server, method string, form url.Values) map[string]any {
	t.Helper()
	form.Set("token", s.Options().Token)
	resp, err := http.PostForm(s.APIURL()+method, form)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var out map[string]any
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil || resp.StatusCode != 200 {
		t.Fatalf("%s: %d %v", method, resp.StatusCode, err)
	}
	return out
}

func TestLimitsAreSlacks(t *testing.T) {
	t.Parallel()
	s := slacktest.Start(t, slacktest.Options{})
	x := func(n int) string { return strings.Repeat("ü", n) }
	section := func(n int) string {
		return `{"type":"section","text":{"type":"mrkdwn","text":"` + x(n) + `"}}`
	}
	many := func(n int, s string) string { return "[" + strings.TrimSuffix(strings.Repeat(s+",", n), ",") + "]" }
	button := func(label, value string) string {
		return `{"type":"button","action_id":"a","value":"` + value + `","text":{"type":"plain_text","text":"` + label + `"}}`
	}
	for _, c := range []struct{ name, blocks, pointer string }{
		{"50 blocks", many(50, `{"type":"divider"}`), ""},
		{"51 blocks", many(51, `{"type":"divider"}`), "/blocks"},
		{"section 3000", "[" + section(3000) + "]", ""},
		{"section 3001", "[" + section(3001) + "]", "/blocks/0/text/text"},
		{"section empty", "[" + section(0) + "]", "/blocks/0/text/text"},
		{"section without text", `[{"type":"section"}]`, "/blocks/0"},
		{"header 150", `[{"type":"header","text":{"type":"plain_text","text":"` + x(150) + `"}}]`, ""},
		{"header 151", `[{"type":"header","text":{"type":"plain_text","text":"` + x(151) + `"}}]`, "/blocks/0/text/text"},
		{"header in mrkdwn", `[{"type":"header","text":{"type":"mrkdwn","text":"x"}}]`, "/blocks/0/text/type"},
		{"10 fields", `[{"type":"section","fields":` + many(10, `{"type":"mrkdwn","text":"x"}`) + `}]`, ""},
		{"11 fields", `[{"type":"section","fields":` + many(11, `{"type":"mrkdwn","text":"x"}`) + `}]`, "/blocks/0/fields"},
		{"field 2001", `[{"type":"section","fields":[{"type":"mrkdwn","text":"` + x(2001) + `"}]}]`, "/blocks/0/fields/0/text"},
		{"11 context elements", `[{"type":"context","elements":` + many(11, `{"type":"mrkdwn","text":"x"}`) + `}]`, "/blocks/0/elements"},
		{"no actions", `[{"type":"actions","elements":[]}]`, "/blocks/0/elements"},
		{"button 75", `[{"type":"actions","elements":[` + button(x(75), x(2000)) + `]}]`, ""},
		{"button 76", `[{"type":"actions","elements":[` + button(x(76), "") + `]}]`, "/blocks/0/elements/0/text/text"},
		{"value 2001", `[{"type":"actions","elements":[` + button("x", x(2001)) + `]}]`, "/blocks/0/elements/0/value"},
		{"same action twice", `[{"type":"actions","elements":[` + button("x", "") + "," + button("y", "") + `]}]`, "/blocks/0/elements/1/action_id"},
		{"same block_id twice", many(2, `{"type":"divider","block_id":"b"}`), "/blocks/1/block_id"},
		{"unknown block", `[{"type":"wall"}]`, "/blocks/0/type"},
		{"bad picture", `[{"type":"image","image_url":"nowhere","alt_text":"x"}]`, "/blocks/0/image_url"},
	} {
		got := postForm(t, s, "chat.postMessage", url.Values{"channel": {"C0OPS"}, "text": {"x"}, "blocks": {c.blocks}})
		if c.pointer == "" {
			if got["ok"] != true {
				t.Errorf("%s: %v", c.name, got)
			}
			continue
		}
		messages := fmt.Sprint(got["response_metadata"])
		if got["error"] != "invalid_blocks" || !strings.Contains(messages, "[ERROR] ") || !strings.Contains(messages, "[json-pointer:"+c.pointer+"]") {
			t.Errorf("%s: %v", c.name, got)
		}
	}
	for want, form := range map[string]url.Values{
		"invalid_blocks_format":   {"blocks": {"{}"}},
		"invalid_attachments":     {"attachments": {`[{"blocks":[{"type":"wall"}]}]`}},
		"too_many_attachments":    {"attachments": {many(101, `{"text":"x"}`)}},
		"invalid_metadata_format": {"text": {"x"}, "metadata": {"nonsense"}},
		"invalid_metadata_schema": {"text": {"x"}, "metadata": {`{"event_type":"x"}`}},
		"no_text":                 {"text": {"  "}},
	} {
		form.Set("channel", "C0OPS")
		if got := postForm(t, s, "chat.postMessage", form); got["error"] != want {
			t.Errorf("want %s, got %v", want, got)
		}
	}
	if got := postForm(t, s, "chat.flyAway", url.Values{}); got["error"] != "unknown_method" {
		t.Errorf("unknown method: %v", got)
	}
	n := 0
	for _, r := range s.Ledger() {
		if r.Effect != chattest.None {
			n++
		}
	}
	if n != len(s.Messages("C0OPS")) {
		t.Errorf("the ledger has %d effects, the channel %d messages", n, len(s.Messages("C0OPS")))
	}
}

func TestJSONBodyAndHeaderToken(t *testing.T) {
	t.Parallel()
	s := slacktest.Start(t, slacktest.Options{})
	do := func(token, contentType, body string) string {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.APIURL()+"chat.postMessage", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", contentType)
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		read, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(read)
	}
	const js = "application/json; charset=utf-8"
	body := `{"channel":"C0OPS","text":"x","blocks":[{"type":"divider"}],"metadata":{"event_type":"t","event_payload":{"effect_key":"k"}},"thread_ts":null}`
	if got := do(s.Options().Token, js, body); !strings.Contains(got, `"ok":true`) {
		t.Errorf("JSON: %s", got)
	}
	if m := s.Messages("C0OPS"); len(m) != 1 || m[0].Key != "k" || m[0].Blocks == nil {
		t.Errorf("stored: %+v", m)
	}
	for want, got := range map[string]string{
		"not_authed": do("", js, body), "invalid_auth": do("xoxb-other", js, body), "invalid_json": do(s.Options().Token, js, "{"), "invalid_post_type": do(s.Options().Token, "text/plain", body),
	} {
		if !strings.Contains(got, `"error":"`+want+`"`) {
			t.Errorf("want %s, got %s", want, got)
		}
	}
}

func TestIncomingWebhook(t *testing.T) {
	t.Parallel()
	s := slacktest.Start(t, slacktest.Options{})
	post := func(u, body string) (int, string) {
		t.Helper()
		resp, err := http.Post(u, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		read, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(read)
	}
	check := func(name string, status int, body string, wantStatus int, want string) {
		t.Helper()
		if status != wantStatus || body != want {
			t.Errorf("%s: %d %q, want %d %q", name, status, body, wantStatus, want)
		}
	}
	st, b := post(s.WebhookURL(), `{"text":"hello"}`)
	check("text", st, b, 200, "ok")
	st, b = post(s.WebhookURL(), `nonsense`)
	check("nonsense", st, b, 400, "invalid_payload")
	st, b = post(s.WebhookURL(), `{}`)
	check("empty", st, b, 400, "no_text")
	st, b = post(s.URL()+"/services/T/B/gone", `{"text":"x"}`)
	check("no such hook", st, b, 404, "no_service")
	s.SetChannel(slacktest.Channel{ID: "C0OPS", Name: "ops", Archived: true})
	st, b = post(s.WebhookURL(), `{"text":"x"}`)
	check("archived", st, b, 410, "channel_is_archived")
	s.SetChannel(slacktest.Channel{ID: "C0OPS", Name: "ops"})
	s.MustFault(chattest.Fault{Kind: chattest.Limited, Method: "webhook", RetryAfter: "7", Count: 1})
	st, b = post(s.WebhookURL(), `{"text":"x"}`)
	check("limited", st, b, 429, `{"error":"rate_limited","ok":false,"retry_after":7}`)
	s.MustFault(chattest.Fault{Kind: chattest.Code, Code: "no_active_hooks", Method: "webhook", Count: 1})
	st, b = post(s.WebhookURL(), `{"text":"x"}`)
	check("code", st, b, 404, "no_active_hooks")
	if m := s.Messages("C0OPS"); len(m) != 1 || m[0].Text != "hello" {
		t.Errorf("messages: %+v", m)
	}
}

func TestFaultsInSlacksWords(t *testing.T) {
	t.Parallel()
	s := slacktest.Start(t, slacktest.Options{})
	api := client(s)
	post := func() error {
		_, _, err := api.PostMessage("C0OPS", slack.MsgOptionText("x", false), keyed("k"))
		return err
	}
	s.MustFault(chattest.Fault{Kind: chattest.Limited, RetryAfter: "26", Count: 1})
	var limited *slack.RateLimitedError
	if err := post(); !errors.As(err, &limited) || limited.RetryAfter.Seconds() != 26 {
		t.Errorf("limited: %v", err)
	}
	s.MustFault(chattest.Fault{Kind: chattest.Revoked, Count: 1})
	if got := code(post()); got != "token_revoked" {
		t.Errorf("revoked: %s", got)
	}
	s.MustFault(chattest.Fault{Kind: chattest.Code, Code: "internal_error", Happens: true, Count: 1})
	if got := code(post()); got != "internal_error" || len(s.Messages("C0OPS")) != 1 {
		t.Errorf("happens all the same: %s, %d messages", got, len(s.Messages("C0OPS")))
	}
	s.MustFault(chattest.Fault{Kind: chattest.Error, Status: 503, JSON: true, Count: 1})
	var status slack.StatusCodeError
	if err := post(); !errors.As(err, &status) || status.Code != 503 {
		t.Errorf("503: %v", err)
	}
	s.MustFault(chattest.Fault{Kind: chattest.Answer, Body: `{}`, Count: 1})
	if _, ts, err := api.PostMessage("C0OPS", slack.MsgOptionText("x", false)); err != nil || ts != "" {
		t.Errorf("an empty success: %q %v", ts, err)
	}
	s.MustFault(chattest.Fault{Kind: chattest.Drop, Count: 1})
	if err := post(); err == nil || len(s.Messages("C0OPS")) != 2 {
		t.Errorf("store, then drop: %v, %d messages", err, len(s.Messages("C0OPS")))
	}
	dropped := s.Ledger(chattest.ByKey("k"))
	if e := dropped[len(dropped)-1]; e.Effect != chattest.Created || e.Status != 0 || e.Fault != chattest.Drop || e.Object != "C0OPS/"+s.Messages("C0OPS")[1].TS {
		t.Errorf("ledger of the drop: %+v", e)
	}
}
