package telegram

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
)

// What a form leaves out of each operation's request, and what stays.
func TestForms(t *testing.T) {
	t.Parallel()
	base, got := serve(t, 200, nil, okay)
	p := newProvider(t, config.Notifier{APIURL: base, MessageThreadID: 9})
	for _, c := range []struct {
		form                   delivery.Form
		markup, buttons, reply bool
	}{
		{delivery.Form{}, true, true, true},
		{delivery.Form{NoMetadata: true}, true, true, true},
		{delivery.Form{NoButtons: true}, true, false, true},
		{delivery.Form{Plain: true}, false, false, true},
		{delivery.Form{NoButtons: true, Plain: true}, false, false, true},
		{delivery.Form{Root: true}, true, true, false},
		{delivery.Form{Plain: true, Root: true}, false, false, false},
	} {
		for _, op := range []delivery.Operation{delivery.OpCreate, delivery.OpEdit, delivery.OpReply} {
			k := call(op)
			k.Form = c.form
			if res := p.Do(t.Context(), k); res.Outcome != delivery.OutcomeSent {
				t.Fatalf("%s: %+v", op, res)
			}
			f := got()[len(got())-1].form
			if f.Has("parse_mode") != c.markup || f.Has("reply_markup") != c.buttons || f.Has("reply_parameters") != (c.reply && op == delivery.OpReply) || f.Has("entities") {
				t.Errorf("%q, %s: %v", c.form, op, f)
			}
			if f.Has("message_thread_id") != (op != delivery.OpEdit) {
				t.Errorf("%q, %s: the topic is %q", c.form, op, f.Get("message_thread_id"))
			}
			text := f.Get("text")
			if strings.Contains(text, "<b>") != c.markup || strings.Contains(text, "&quot;") != c.markup {
				t.Errorf("%q: text %s", c.form, text)
			}
			for _, want := range []string{"🔴 Disk full on db1", "Open · critical", "https://tocsin.test/i/1?a=1", "Incident", "repeat"} {
				if !strings.Contains(text, want) {
					t.Errorf("%q: %q is missing in %s", c.form, want, text)
				}
			}
		}
	}
}

// A probe tells the token's faults from those that pass.
func TestProbe(t *testing.T) {
	t.Parallel()
	const me = `{"ok":true,"result":{"id":123456,"is_bot":true,"first_name":"tocsin","username":"tocsin_bot"}}`
	refusal := func(code int) string {
		return fmt.Sprintf(`{"ok":false,"error_code":%d,"description":"no"}`, code)
	}
	for _, c := range []struct {
		name    string
		status  int
		header  map[string]string
		body    string
		outcome delivery.Outcome
		fault   delivery.Fault
		reason  string
	}{
		{"mended", 200, nil, me, delivery.OutcomeSent, "", ""},
		{"revoked", 401, nil, refusal(401), delivery.OutcomeFailed, delivery.FaultAccount, "account:unauthorized"},
		{"no such bot", 404, nil, refusal(404), delivery.OutcomeFailed, delivery.FaultAccount, "account:not_found"},
		{"not of this server", 421, nil, refusal(421), delivery.OutcomeFailed, delivery.FaultAccount, "account:unallowed_token"},
		{"junk token", 302, map[string]string{"Location": "https://core.telegram.org/bots"}, "<html>", delivery.OutcomeFailed, delivery.FaultAccount, "account:malformed_token"},
		{"api_url leads elsewhere", 301, map[string]string{"Location": "https://x.test/"}, "", delivery.OutcomeFailed, delivery.FaultAccount, "account:redirect_301"},
		{"something else answers", 404, nil, "<html>", delivery.OutcomeFailed, delivery.FaultAccount, "account:http_404"},
		{"new words", 403, nil, refusal(403), delivery.OutcomeFailed, delivery.FaultAccount, "account:forbidden"},
		{"asked too often", 429, nil, refusal(429), delivery.OutcomeFailed, delivery.FaultThrottled, "rate_limited"},
		{"two who fetch updates", 409, nil, refusal(409), delivery.OutcomeFailed, delivery.FaultTransient, "telegram:conflict"},
		{"down", 502, nil, "<html>", delivery.OutcomeUnknown, "", "telegram:http_502"},
		{"ok and nothing more", 200, nil, `{"ok":true}`, delivery.OutcomeUnknown, "", "telegram:no_result"},
		{"a page", 200, nil, "<html>", delivery.OutcomeUnknown, "", "telegram:unreadable_answer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			base, got := serve(t, c.status, c.header, c.body)
			res := newProvider(t, config.Notifier{APIURL: base}).Probe(t.Context(), "unauthorized")
			if res.Outcome != c.outcome || res.Fault != c.fault || res.Reason != c.reason {
				t.Errorf("%+v", res)
			}
			if len(got()) != 1 || got()[0].method != "getMe" {
				t.Errorf("%+v", got())
			}
		})
	}
	res := newProvider(t, config.Notifier{APIURL: "http://127.0.0.1:1"}).Probe(t.Context(), "")
	if res.Outcome != delivery.OutcomeFailed || res.Fault != delivery.FaultTransient || strings.Contains(fmt.Sprint(res), token) {
		t.Errorf("nobody there: %+v", res)
	}
}
