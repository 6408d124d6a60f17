package telegram

import (
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
	token = "123456:AAtest-2718281828-token"
	okay  = `{"ok":true,"result":{"message_id":55,"date":1,"chat":{"id":-1001234567890,"type":"supergroup"},"text":"x"}}`
)

var made = delivery.Reference{ChatID: -1001234567890, MessageID: 55}

func newProvider(t *testing.T, n config.Notifier) *Provider {
	t.Helper()
	n.Name, n.Type, n.Token = "ops-telegram", "telegram", token
	p, err := New(n, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestConformance(t *testing.T) {
	t.Parallel()
	providertest.Run(t, providertest.Suite{
		New: func(t *testing.T, base string) provider.Provider {
			return newProvider(t, config.Notifier{APIURL: base, Timeout: providertest.Timeout, WebhookSecret: "webhook-secret-31415"})
		},
		Secrets:   []string{token, "webhook-secret-31415"},
		Call:      provider.Call{Address: "-1001234567890", Key: "key-1", Message: message.Message{Title: "Disk full"}},
		Accepted:  okay,
		Reference: made,
		Unlisted:  `{"ok":false,"description":"Bad Request: brand new words"}`,
		Calls:     map[delivery.Operation]provider.Call{delivery.OpEdit: call(delivery.OpEdit), delivery.OpReply: call(delivery.OpReply)},
		Rows:      conformanceRows(),
	})
}

// conformanceRows are the table as the suite walks it.
func conformanceRows() []providertest.Row {
	var out []providertest.Row
	for _, r := range rows {
		for _, op := range []delivery.Operation{delivery.OpCreate, delivery.OpEdit, delivery.OpReply} {
			m := meanings[r.on(op)]
			if r.on(op) == moved {
				m = meanings[dest] // without a way to go
			}
			row := providertest.Row{
				Name: fmt.Sprint(r.code, " ", r.prefix), Operation: op, Status: r.code, Outcome: m.outcome, Fault: m.fault,
				Body: fmt.Sprintf(`{"ok":false,"error_code":%d,"description":%q}`, r.code, r.prefix+" and so on"),
			}
			if r.code == http.StatusFound {
				row.Header = map[string]string{"Location": "https://core.telegram.org/bots"}
			}
			if m.outcome != delivery.OutcomeSent {
				row.Reason = m.reason + r.slug
			}
			out = append(out, row)
		}
	}
	return out
}

type request struct {
	method string
	form   url.Values
}

func serve(t *testing.T, status int, header map[string]string, body string) (base string, got func() []request) {
	t.Helper()
	var mu sync.Mutex
	var all []request
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		form, err := url.ParseQuery(string(raw))
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		all = append(all, request{strings.TrimPrefix(r.URL.Path, "/bot"+token+"/"), form})
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

func call(op delivery.Operation) provider.Call {
	c := provider.Call{Operation: op, Address: "@ops", Key: "key-1", Message: card()}
	if op != delivery.OpCreate {
		c.Reference = made
	}
	return c
}

func card() message.Message {
	return message.Message{
		State: message.Open, Severity: "critical", Title: "Disk full on db1", Text: "Open since 10:00\nline two",
		Fields:  []message.Field{{Name: "team", Value: "db"}, {Name: "re", Value: "a_b*c["}},
		Items:   []message.Item{{Title: "db1", Detail: "disk=sda"}, {Resolved: true, Title: "db2"}},
		More:    3,
		Links:   []message.Link{{Title: "Incident", URL: `https://tocsin.test/i/1?a=1&b="2"`}},
		Buttons: []message.Button{{Action: "ack", Label: "Acknowledge", Value: "0198c0de-0000-7000-8000-000000000001"}},
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
		wait    time.Duration
		want    string // in the sentence
	}{
		{name: "migrated", status: 400, body: `{"ok":false,"error_code":400,"description":"Bad Request: group chat was upgraded to a supergroup chat","parameters":{"migrate_to_chat_id":-1009}}`, outcome: delivery.OutcomeFailed, fault: delivery.FaultMoved, reason: "destination:migrated", want: "chat_id: -1009"},
		{name: "migrated in new words", status: 400, body: `{"ok":false,"error_code":400,"description":"Bad Request: brand new words","parameters":{"migrate_to_chat_id":-1009}}`, outcome: delivery.OutcomeFailed, fault: delivery.FaultMoved, reason: "destination:migrated", want: "chat_id: -1009"},
		{name: "migrated, nobody says where to", status: 400, body: `{"ok":false,"error_code":400,"description":"Bad Request: group chat was upgraded to a supergroup chat"}`, outcome: delivery.OutcomeFailed, fault: delivery.FaultDestination, reason: "destination:migrated", want: "put its new chat_id into the file"},
		{name: "503 that asks for rest", status: 503, header: map[string]string{"Retry-After": "30"}, body: "<html>", outcome: delivery.OutcomeUnknown, reason: "telegram:http_503", wait: 30 * time.Second},
		{name: "restart", status: 500, body: `{"ok":false,"error_code":500,"description":"Internal Server Error: restart"}`, outcome: delivery.OutcomeUnknown, reason: "telegram:restart"},
		{name: "429", status: 429, body: `{"ok":false,"error_code":429,"description":"Too Many Requests: retry after 26","parameters":{"retry_after":26}}`, outcome: delivery.OutcomeFailed, fault: delivery.FaultThrottled, reason: "rate_limited", wait: 26 * time.Second},
		{name: "429 of the server in front", status: 429, header: map[string]string{"Retry-After": "7"}, body: "<html>", outcome: delivery.OutcomeFailed, fault: delivery.FaultThrottled, reason: "rate_limited", wait: 7 * time.Second},
		{name: "429 in a 200", status: 200, body: `{"ok":false,"error_code":429,"parameters":{"retry_after":3}}`, outcome: delivery.OutcomeFailed, fault: delivery.FaultThrottled, reason: "rate_limited", wait: 3 * time.Second},
		{name: "huge retry_after", status: 429, body: `{"ok":false,"error_code":429,"parameters":{"retry_after":99999999999999}}`, outcome: delivery.OutcomeFailed, fault: delivery.FaultThrottled, reason: "rate_limited", wait: 24 * time.Hour},
		{name: "HTML 502", status: 502, body: "<html>502 Bad Gateway</html>", outcome: delivery.OutcomeUnknown, reason: "telegram:http_502"},
		{name: "sent and deleted", status: 500, body: `{"ok":false,"error_code":500,"description":"Internal Server Error: sent message was immediately deleted and can't be returned"}`, outcome: delivery.OutcomeUnknown, reason: "telegram:sent_and_deleted", want: "made the message"},
		{name: "500 in a 200", status: 200, body: `{"ok":false,"error_code":500,"description":"x"}`, outcome: delivery.OutcomeUnknown, reason: "telegram:http_500"},
		{name: "no code", status: 200, body: `{"ok":false,"description":"x"}`, outcome: delivery.OutcomeUnknown, reason: "telegram:0"},
		{name: "junk token", status: 302, header: map[string]string{"Location": "https://core.telegram.org/bots"}, outcome: delivery.OutcomeFailed, fault: delivery.FaultAccount, reason: "account:malformed_token", want: "@BotFather"},
		{name: "redirect", status: 301, header: map[string]string{"Location": "https://elsewhere.test"}, outcome: delivery.OutcomeFailed, fault: delivery.FaultDestination, reason: "destination:redirect_301"},
		{name: "HTML 413", status: 413, body: "<html>", outcome: delivery.OutcomeFailed, fault: delivery.FaultPayload, reason: "payload:http_413"},
		{name: "HTML 400", status: 400, body: "<html>", outcome: delivery.OutcomeFailed, fault: delivery.FaultDestination, reason: "destination:http_400", want: "check api_url"},
		{name: "unlisted", status: 400, body: `{"ok":false,"error_code":400,"description":"Bad Request: brand new words"}`, outcome: delivery.OutcomeFailed, fault: delivery.FaultPayload, reason: "telegram:400", want: "brand new words"},
		{name: "another result", status: 200, body: `{"ok":true,"result":true}`, outcome: delivery.OutcomeUnknown, reason: "telegram:no_reference"},
		{name: "drifted result", status: 200, body: `{"ok":true,"result":{"message_id":55,"chat":{"id":-1001234567890,"type":7},"entities":"none"}}`, outcome: delivery.OutcomeSent},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			base, got := serve(t, c.status, c.header, c.body)
			res := newProvider(t, config.Notifier{APIURL: base}).Do(t.Context(), call(delivery.OpCreate))
			if res.Outcome != c.outcome || res.Fault != c.fault || res.Reason != c.reason || res.RetryAfter != c.wait || !strings.Contains(res.Sentence, c.want) {
				t.Errorf("%+v", res)
			}
			if res.Outcome != delivery.OutcomeSent && res.HTTPStatus != c.status || len(got()) != 1 {
				t.Errorf("status %d, %d requests", res.HTTPStatus, len(got()))
			}
		})
	}
}

func TestCreateEditReply(t *testing.T) {
	t.Parallel()
	base, got := serve(t, 200, nil, okay)
	p := newProvider(t, config.Notifier{APIURL: base + "/", MessageThreadID: 9})
	for _, op := range []delivery.Operation{delivery.OpCreate, delivery.OpEdit, delivery.OpReply} {
		if res := p.Do(t.Context(), call(op)); res.Outcome != delivery.OutcomeSent || res.Reference != made {
			t.Errorf("%s: %+v", op, res)
		}
	}
	all := got()
	if len(all) != 3 {
		t.Fatalf("%d requests", len(all))
	}
	for i, want := range []map[string]string{
		{"method": "sendMessage", "chat_id": "@ops", "message_thread_id": "9", "message_id": "", "reply_parameters": ""},
		{"method": "editMessageText", "chat_id": "-1001234567890", "message_id": "55", "message_thread_id": "", "reply_parameters": ""},
		{"method": "sendMessage", "chat_id": "-1001234567890", "message_thread_id": "9", "message_id": "", "reply_parameters": `{"message_id":55,"allow_sending_without_reply":true}`},
	} {
		if all[i].method != want["method"] {
			t.Errorf("%d: %s", i, all[i].method)
		}
		delete(want, "method")
		want["parse_mode"], want["link_preview_options"] = "HTML", `{"is_disabled":true}`
		want["reply_markup"] = `{"inline_keyboard":[[{"text":"Acknowledge","callback_data":"ack:0198c0de-0000-7000-8000-000000000001"}]]}`
		for k, v := range want {
			if all[i].form.Get(k) != v {
				t.Errorf("%d: %s = %q, want %q", i, k, all[i].form.Get(k), v)
			}
		}
	}
}

// An edit without buttons takes them away, and the answer to an edit may be no message.
func TestEditMakesNothing(t *testing.T) {
	t.Parallel()
	base, got := serve(t, 200, nil, `{"ok":true,"result":true}`)
	c := call(delivery.OpEdit)
	c.Message.Buttons = nil
	if res := newProvider(t, config.Notifier{APIURL: base}).Do(t.Context(), c); res.Outcome != delivery.OutcomeSent || res.Reference != made {
		t.Errorf("%+v", res)
	}
	if got()[0].form.Has("reply_markup") {
		t.Error("the buttons stay")
	}
}

func TestCallsThatCannotBeMade(t *testing.T) {
	t.Parallel()
	base, got := serve(t, 200, nil, okay)
	p := newProvider(t, config.Notifier{APIURL: base})
	for name, c := range map[string]provider.Call{
		"no address":       {Operation: delivery.OpCreate},
		"edit of nothing":  {Operation: delivery.OpEdit, Address: "1"},
		"reply to nothing": {Operation: delivery.OpReply, Address: "1", Reference: delivery.Reference{ChatID: 1}},
		"no operation":     {Address: "1"},
	} {
		if res := p.Do(t.Context(), c); res.Outcome != delivery.OutcomeFailed || res.Evidence != delivery.NotCalled || res.Reason == "" || res.Sentence == "" {
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
		{}, {Token: "hush-hush/x"}, {Token: "hush-hush\n"}, {Token: "hush-hush", APIURL: "api.telegram.org"},
	} {
		n.Name = "ops"
		if _, err := New(n, nil); err == nil || !strings.Contains(err.Error(), "notifier ops") || strings.Contains(err.Error(), "hush-hush") {
			t.Errorf("%v", err)
		}
	}
}

func TestLink(t *testing.T) {
	t.Parallel()
	p := newProvider(t, config.Notifier{})
	for _, c := range []struct {
		ref  delivery.Reference
		want string
	}{
		{made, "https://t.me/c/1234567890/55"},
		{delivery.Reference{ChatID: 42, MessageID: 5}, ""},  // a person
		{delivery.Reference{ChatID: -42, MessageID: 5}, ""}, // a small group
		{delivery.Reference{ChatID: -1001234567890}, ""},    // no message
		{delivery.Reference{Permalink: "https://t.me/x/1"}, "https://t.me/x/1"},
	} {
		if got := p.Link(t.Context(), c.ref); got != c.want {
			t.Errorf("%+v: %q", c.ref, got)
		}
	}
}

func TestWhisper(t *testing.T) {
	t.Parallel()
	base, got := serve(t, 200, nil, `{"ok":true,"result":true}`)
	if err := newProvider(t, config.Notifier{APIURL: base}).Whisper(t.Context(), "query-1", strings.Repeat("é", 300)); err != nil {
		t.Fatal(err)
	}
	f := got()[0].form
	if got()[0].method != "answerCallbackQuery" || f.Get("callback_query_id") != "query-1" || f.Get("show_alert") != "true" || len([]rune(f.Get("text"))) != 200 {
		t.Errorf("%+v", got()[0])
	}
	for to, want := range map[string]string{"query-1": `write tocsin users list, a < b & c`, "message:501/7": "write <code>tocsin users list</code>, a &lt; b &amp; c"} {
		base, got := serve(t, 200, nil, okay)
		if err := newProvider(t, config.Notifier{APIURL: base}).Whisper(t.Context(), to, "write `tocsin users list`, a < b & c"); err != nil || got()[0].form.Get("text") != want {
			t.Errorf("%s: %v, %+v", to, err, got())
		}
	}
	for _, c := range []struct {
		status int
		body   string
		fine   bool
	}{
		{400, `{"ok":false,"error_code":400,"description":"Bad Request: query is too old and response timeout expired or query ID is invalid"}`, true},
		{400, `{"ok":false,"error_code":400,"description":"Bad Request: something else ` + token + `"}`, false},
		{502, "<html>", false},
	} {
		base, _ := serve(t, c.status, nil, c.body)
		err := newProvider(t, config.Notifier{APIURL: base}).Whisper(t.Context(), "query-1", "hello")
		if (err == nil) != c.fine || err != nil && strings.Contains(err.Error(), token) {
			t.Errorf("%s: %v", c.body, err)
		}
	}
	if err := newProvider(t, config.Notifier{APIURL: "http://127.0.0.1:1"}).Whisper(t.Context(), "q", "x"); err == nil || strings.Contains(err.Error(), token) {
		t.Errorf("%v", err)
	}
	if err := newProvider(t, config.Notifier{}).Whisper(t.Context(), "", "x"); err == nil {
		t.Error("answered nobody")
	}
}
