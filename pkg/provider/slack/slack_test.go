package slack

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/message"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
	"github.com/tocsin-oncall/tocsin/pkg/provider/providertest"
)

const (
	token = "xoxb-test-2718281828"
	okay  = `{"ok":true,"channel":"C0123","ts":"1700000000.000100","message":{"text":"x"}}`
)

func newProvider(t *testing.T, n config.Notifier) *Provider {
	t.Helper()
	n.Name, n.Type = "ops-slack", "slack"
	if n.WebhookURL == "" {
		n.Token = token
	}
	p, err := New(n, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestConformance(t *testing.T) {
	t.Parallel()
	t.Run("web api", func(t *testing.T) {
		t.Parallel()
		providertest.Run(t, providertest.Suite{
			New: func(t *testing.T, base string) provider.Provider {
				return newProvider(t, config.Notifier{APIURL: base + "/api/", Timeout: providertest.Timeout, SigningSecret: "signing-secret-31415"})
			},
			Secrets:   []string{token, "signing-secret-31415"},
			Call:      provider.Call{Address: "C0123", Key: "key-1", Message: message.Message{Title: "Disk full"}},
			Accepted:  okay,
			Reference: delivery.Reference{Channel: "C0123", TS: "1700000000.000100"},
			Unlisted:  `{"ok":false,"error":"brand_new_code"}`,
			Calls: map[delivery.Operation]provider.Call{
				delivery.OpEdit:  {Key: "key-1", Reference: delivery.Reference{Channel: "C0123", TS: "1700000000.000100"}, Message: message.Message{Title: "Disk full"}},
				delivery.OpReply: {Key: "key-2", Reference: delivery.Reference{Channel: "C0123", TS: "1700000000.000001"}, Message: message.Message{Title: "Resolved"}},
			},
			Rows: rows([]delivery.Operation{delivery.OpCreate, delivery.OpEdit, delivery.OpReply}, func(code string) string { return fmt.Sprintf(`{"ok":false,"error":%q}`, code) }),
		})
	})
	t.Run("webhook", func(t *testing.T) {
		t.Parallel()
		const path = "/services/T000/B000/sEcReTsEcReT"
		providertest.Run(t, providertest.Suite{
			New: func(t *testing.T, base string) provider.Provider {
				return newProvider(t, config.Notifier{WebhookURL: base + path, Timeout: providertest.Timeout})
			},
			Secrets:  []string{path},
			Call:     provider.Call{Key: "key-1", Message: message.Message{Title: "Disk full"}},
			Accepted: "ok",
			AnyBody:  true,
			Rows:     rows([]delivery.Operation{""}, func(code string) string { return code }),
		})
	})
}

// rows are the tables as the suite walks them.
func rows(ops []delivery.Operation, body func(code string) string) (out []providertest.Row) {
	for _, do := range ops {
		op := map[delivery.Operation]operation{delivery.OpCreate: opPost, delivery.OpEdit: opEdit, delivery.OpReply: opReply, "": opHook}[do]
		for _, code := range listed() {
			if r, ok := classify(op, code); ok {
				res := r.apply(delivery.Result{}, op, code, "", "")
				out = append(out, providertest.Row{Name: code, Operation: do, Body: body(code), Outcome: res.Outcome, Fault: res.Fault, Reason: res.Reason})
			}
		}
	}
	return out
}

// request is what the far side saw.
type request struct {
	method string // API method, or path
	form   url.Values
	body   string
	header http.Header
}

// serve starts a far side that answers every call with one status and body.
func serve(t *testing.T, status int, header map[string]string, body string) (base string, got func() []request) {
	t.Helper()
	var mu sync.Mutex
	var all []request
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		form, _ := url.ParseQuery(string(raw)) // JSON bodies have none
		mu.Lock()
		all = append(all, request{strings.TrimPrefix(r.URL.Path, "/api/"), form, string(raw), r.Header})
		mu.Unlock()
		for k, v := range header {
			w.Header().Set(k, v)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(s.Close)
	return s.URL, func() []request { mu.Lock(); defer mu.Unlock(); return all }
}

func create() provider.Call {
	return provider.Call{Operation: delivery.OpCreate, Address: "C0123", Key: "key-1", Message: card()}
}

func card() message.Message {
	return message.Message{
		State: message.Open, Severity: "critical", Title: "Disk full on db1", Text: "Open since 10:00",
		Fields:  []message.Field{{Name: "team", Value: "db"}, {Name: "path", Value: "a_b*c["}},
		Items:   []message.Item{{Title: "db1", Detail: "disk=sda"}, {Resolved: true, Title: "db2"}},
		More:    3,
		Links:   []message.Link{{Title: "Incident", URL: "https://tocsin.test/i/1?a=1&b=2"}},
		Buttons: []message.Button{{Action: "ack", Label: "Acknowledge", Value: "incident-1", Style: "primary"}, {Action: "resolve", Label: "Resolve", Value: "incident-1"}},
		Footer:  "repeat: an earlier attempt may have arrived",
	}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		status  int
		header  map[string]string
		body    string
		outcome delivery.Outcome
		fault   delivery.Fault
		reason  string
		want    string // in the sentence
	}{
		{name: "not in channel", status: 200, body: `{"ok":false,"error":"not_in_channel"}`, outcome: delivery.OutcomeFailed, fault: delivery.FaultDestination, reason: "destination:not_in_channel", want: "invite @tocsin to C0123, then send again"},
		{name: "missing scope", status: 200, body: `{"ok":false,"error":"missing_scope","needed":"chat:write.public"}`, outcome: delivery.OutcomeFailed, fault: delivery.FaultAccount, reason: "account:missing_scope", want: "scope chat:write.public"},
		{name: "Slack Connect", status: 200, body: `{"ok":false,"error":"slack_connect_file_link_sharing_blocked"}`, outcome: delivery.OutcomeFailed, fault: delivery.FaultDestination, reason: "destination:slack_connect_file_link_sharing_blocked"},
		{name: "429 with seconds", status: 429, header: map[string]string{"Retry-After": "26"}, body: "{}", outcome: delivery.OutcomeFailed, fault: delivery.FaultThrottled, reason: "rate_limited"},
		{name: "429 without anything", status: 429, outcome: delivery.OutcomeFailed, fault: delivery.FaultThrottled, reason: "rate_limited"},
		{name: "code in a 429", status: 429, body: `{"ok":false,"error":"channel_not_found"}`, outcome: delivery.OutcomeFailed, fault: delivery.FaultThrottled, reason: "rate_limited"},
		{name: "code in a 500", status: 500, body: `{"ok":false,"error":"channel_not_found"}`, outcome: delivery.OutcomeUnknown, reason: "slack:http_500"},
		{name: "code in a 403", status: 403, body: `{"ok":false,"error":"invalid_auth"}`, outcome: delivery.OutcomeFailed, fault: delivery.FaultAccount, reason: "account:invalid_auth"},
		{name: "drifted message", status: 200, body: `{"ok":true,"channel":"C0123","ts":"1.2","message":{"reply_count":"3","bot_profile":7}}`, outcome: delivery.OutcomeSent},
		{name: "a proxy's page", status: 400, body: "Missed timestamp", outcome: delivery.OutcomeFailed, fault: delivery.FaultDestination, reason: "destination:http_400", want: "check api_url"},
		{name: "a filter's 403", status: 403, body: "<html>blocked", outcome: delivery.OutcomeFailed, fault: delivery.FaultDestination, reason: "destination:http_403"},
		{name: "408", status: 408, outcome: delivery.OutcomeUnknown, reason: "slack:http_408"},
		{name: "ok with 404", status: 404, body: okay, outcome: delivery.OutcomeUnknown, reason: "slack:ok_with_404"},
		{name: "redirect", status: 301, header: map[string]string{"Location": "https://slack.com/api/chat.postMessage"}, outcome: delivery.OutcomeFailed, fault: delivery.FaultDestination, reason: "destination:redirect_301", want: "the URL is wrong"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			base, got := serve(t, c.status, c.header, c.body)
			res := newProvider(t, config.Notifier{APIURL: base + "/api/"}).Do(t.Context(), create())
			if res.Outcome != c.outcome || res.Fault != c.fault || res.Reason != c.reason || !strings.Contains(res.Sentence, c.want) {
				t.Errorf("%+v", res)
			}
			if len(got()) != 1 {
				t.Errorf("%d requests", len(got()))
			}
			if c.header["Retry-After"] != "" && res.RetryAfter != 26*time.Second {
				t.Errorf("retry after %s", res.RetryAfter)
			}
		})
	}
}

func TestCreateEditReply(t *testing.T) {
	t.Parallel()
	base, got := serve(t, 200, nil, `{"ok":true,"channel":"D024","ts":"1700000000.000200","message":{"thread_ts":"1.2"}}`)
	p := newProvider(t, config.Notifier{APIURL: base + "/api"}) // without its last slash: no reason to fail
	page := create()
	page.Address = "U045"
	res := p.Do(t.Context(), page)
	made := delivery.Reference{Channel: "D024", TS: "1700000000.000200"}
	if res.Outcome != delivery.OutcomeSent || res.Reference != made {
		t.Fatalf("%+v", res)
	}
	edit := provider.Call{Operation: delivery.OpEdit, Address: "U045", Key: "key-1", Reference: made, Message: card()}
	edit.Reference.Permalink = "https://x.slack.com/archives/D024/p1"
	if res := p.Do(t.Context(), edit); res.Outcome != delivery.OutcomeSent || res.Reference != edit.Reference {
		t.Errorf("edit: %+v", res)
	}
	reply := provider.Call{Operation: delivery.OpReply, Key: "key-2", Reference: delivery.Reference{Channel: "C0123", TS: "1.2"}, Message: message.Message{Text: "ana <acknowledged> & more"}, Broadcast: true}
	if res := p.Do(t.Context(), reply); res.Outcome != delivery.OutcomeSent || res.Reference != made || res.Code != "" {
		t.Errorf("reply: %+v", res)
	}
	reply.Reference.TS, reply.Broadcast = "9.9", false
	if res := p.Do(t.Context(), reply); res.Outcome != delivery.OutcomeSent || res.Code != "unthreaded" || res.Sentence == "" {
		t.Errorf("reply to a deleted parent: %+v", res)
	}

	all := got()
	if len(all) != 4 {
		t.Fatalf("%d requests", len(all))
	}
	for i, want := range []map[string]string{
		{"method": "chat.postMessage", "channel": "U045", "ts": "", "thread_ts": "", "metadata": `{"event_type":"tocsin_delivery","event_payload":{"effect_key":"key-1"}}`},
		{"method": "chat.update", "channel": "D024", "ts": "1700000000.000200", "thread_ts": "", "metadata": ""},
		{"method": "chat.postMessage", "channel": "C0123", "thread_ts": "1.2", "reply_broadcast": "true", "text": "ana &lt;acknowledged&gt; &amp; more", "attachments": ""},
		{"method": "chat.postMessage", "channel": "C0123", "thread_ts": "9.9", "reply_broadcast": ""},
	} {
		if all[i].method != want["method"] {
			t.Errorf("%d: %s", i, all[i].method)
		}
		delete(want, "method")
		for k, v := range want {
			if all[i].form.Get(k) != v {
				t.Errorf("%d: %s = %q, want %q", i, k, all[i].form.Get(k), v)
			}
		}
		if all[i].form.Get("text") == "" {
			t.Errorf("%d: no text for a notification", i)
		}
		if all[i].header.Get("Idempotency-Key") != "" {
			t.Errorf("%d: a header by which net/http resends", i)
		}
	}
}

func TestCallsThatCannotBeMade(t *testing.T) {
	t.Parallel()
	base, got := serve(t, 200, nil, okay)
	p := newProvider(t, config.Notifier{APIURL: base + "/api/"})
	h := newProvider(t, config.Notifier{WebhookURL: base + "/services/T/B/x"})
	for name, res := range map[string]delivery.Result{
		"no address":       p.Do(t.Context(), provider.Call{Operation: delivery.OpCreate}),
		"edit of nothing":  p.Do(t.Context(), provider.Call{Operation: delivery.OpEdit, Address: "C1"}),
		"reply to nothing": p.Do(t.Context(), provider.Call{Operation: delivery.OpReply, Address: "C1", Reference: delivery.Reference{Channel: "C1"}}),
		"no operation":     p.Do(t.Context(), provider.Call{Address: "C1"}),
		"webhook edits":    h.Do(t.Context(), provider.Call{Operation: delivery.OpEdit}),
	} {
		if res.Outcome != delivery.OutcomeFailed || res.Evidence != delivery.NotCalled || res.Reason == "" || res.Sentence == "" {
			t.Errorf("%s: %+v", name, res)
		}
	}
	if len(got()) != 0 {
		t.Errorf("%d requests", len(got()))
	}
}

func TestNewNamesTheMistakeAndNotTheSecret(t *testing.T) {
	t.Parallel()
	for _, n := range []config.Notifier{
		{},
		{Token: "hush-hush", WebhookURL: "https://hooks.slack.com/services/hush-hush"},
		{WebhookURL: "hooks.slack.com/services/hush-hush"},
		{WebhookURL: "https://hooks.slack.com/%zz/hush-hush"},
		{Token: "hush-hush", APIURL: "slack.com/api/"},
	} {
		n.Name = "ops-slack"
		if _, err := New(n, nil); err == nil || !strings.Contains(err.Error(), "notifier ops-slack") || strings.Contains(err.Error(), "hush-hush") {
			t.Errorf("%+v: %v", n, err)
		}
	}
}

func TestLink(t *testing.T) {
	t.Parallel()
	ref := delivery.Reference{Channel: "C0123", TS: "1700000000.000100"}
	const made = "https://slack.com/archives/C0123/p1700000000000100"
	for _, c := range []struct{ name, body, want string }{
		{"told", `{"ok":true,"permalink":"https://acme.slack.com/archives/C0123/p1"}`, "https://acme.slack.com/archives/C0123/p1"},
		{"refused", `{"ok":false,"error":"message_not_found"}`, made},
		{"nonsense", `{"ok":true,"permalink":"javascript:alert(1)"}`, made},
		{"no JSON", `<html>`, made},
	} {
		base, got := serve(t, 200, nil, c.body)
		if link := newProvider(t, config.Notifier{APIURL: base + "/api/"}).Link(t.Context(), ref); link != c.want {
			t.Errorf("%s: %q", c.name, link)
		}
		if len(got()) != 1 || got()[0].method != "chat.getPermalink" {
			t.Errorf("%s: %+v", c.name, got())
		}
	}
	p := newProvider(t, config.Notifier{APIURL: "http://127.0.0.1:1/api/"})
	if link := p.Link(t.Context(), ref); link != made {
		t.Errorf("nobody answers: %q", link)
	}
	if link := p.Link(t.Context(), delivery.Reference{}); link != "" {
		t.Errorf("no reference: %q", link)
	}
	if link := p.Link(t.Context(), delivery.Reference{Channel: "C1", TS: "1.2", Permalink: "https://known.test"}); link != "https://known.test" {
		t.Errorf("known: %q", link)
	}
}

func TestPrivateAnswersReachPublicAddressesOnly(t *testing.T) {
	t.Parallel()
	asked := false
	inner := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	t.Cleanup(inner.Close)
	p, err := New(config.Notifier{Name: "ops", Token: token, APIURL: "https://slack.com/api/", Timeout: 2 * time.Second}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Whisper(t.Context(), inner.URL+"/actions/1", "hello"); err == nil || asked || !strings.Contains(err.Error(), "allow_private") && !strings.Contains(err.Error(), "private") {
		t.Errorf("asked %t: %v", asked, err)
	}
}

func TestWhisper(t *testing.T) {
	t.Parallel()
	base, got := serve(t, 200, nil, "ok")
	p := newProvider(t, config.Notifier{APIURL: base + "/api/"})
	if err := p.Whisper(t.Context(), base+"/actions/T1/2/x", "Ana <acknowledged> it"); err != nil {
		t.Fatal(err)
	}
	var body map[string]any
	if err := json.Unmarshal([]byte(got()[0].body), &body); err != nil {
		t.Fatal(err)
	}
	if body["response_type"] != "ephemeral" || body["replace_original"] != false || body["text"] != "Ana &lt;acknowledged&gt; it" {
		t.Errorf("%v", body)
	}
	other, otherGot := serve(t, 200, nil, "ok")
	stranger := strings.Replace(other, "127.0.0.1", "localhost", 1) // another name than api_url's
	for _, to := range []string{stranger + "/actions/x", "file:///etc/passwd", "https://", "", "//x/y", "\x00"} {
		if err := p.Whisper(t.Context(), to, "hello"); err == nil {
			t.Errorf("%q was called", to)
		}
	}
	if len(otherGot()) != 0 {
		t.Error("a stranger's host got the answer")
	}
	refused, _ := serve(t, 404, nil, "expired_url "+token)
	p = newProvider(t, config.Notifier{APIURL: refused + "/api/"})
	if err := p.Whisper(t.Context(), refused+"/x", "hello"); err == nil || !strings.Contains(err.Error(), "expired_url") || strings.Contains(err.Error(), token) {
		t.Errorf("%v", err)
	}
}

// A code that no table knows is marked, so that it is counted; one that is known is not.
func TestUnlistedCodesAreMarked(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]bool{`{"ok":false,"error":"brand_new_code"}`: true, `{"ok":false,"error":"internal_error"}`: false, `{"ok":false,"error":"not_in_channel"}`: false} {
		for _, status := range []int{200, 400} {
			base, _ := serve(t, status, nil, body)
			p := newProvider(t, config.Notifier{APIURL: base + "/api/"})
			res := p.Do(t.Context(), provider.Call{Operation: delivery.OpCreate, Address: "C0OPS", Key: "key-1", Message: message.Message{Title: "t"}})
			if res.Unlisted != want || res.Outcome == delivery.OutcomeSent {
				t.Errorf("%d %s: %+v", status, body, res)
			}
		}
	}
}
