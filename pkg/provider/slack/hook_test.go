package slack

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/message"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
	"github.com/tocsin-oncall/tocsin/pkg/provider/wire"
)

// A webhook may say how long to rest in the body of its 429 alone; a header goes before it.
func TestRestInTheBodyOfAWebhook(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		header map[string]string
		body   string
		want   time.Duration
	}{
		{nil, `{"retry_after":6,"ok":false,"error":"rate_limited"}`, 6 * time.Second},
		{nil, `{"retry_after":99999999}`, 24 * time.Hour},
		{nil, `{"retry_after":-6}`, time.Second},
		{nil, `{"retry_after":"soon"}`, time.Second},
		{nil, "slow down", time.Second},
		{map[string]string{"Retry-After": "2"}, `{"retry_after":6}`, 2 * time.Second},
	} {
		base, _ := serve(t, 429, c.header, c.body)
		p := newProvider(t, config.Notifier{WebhookURL: base + "/services/T/B/x"})
		if res := judgeHook(p.client.Do(jsonPost(t.Context(), mustParse(t, p.hook), []byte("{}"))), true); res.Fault != delivery.FaultThrottled || res.RetryAfter != c.want {
			t.Errorf("%s, header %v: %s after %s", c.body, c.header, res.Fault, res.RetryAfter)
		}
	}
}

func TestHookAnswers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status  int
		body    string
		slacks  bool
		outcome delivery.Outcome
		fault   delivery.Fault
		reason  string
	}{
		{200, "ok", true, delivery.OutcomeSent, "", ""},
		{200, "ok\n", true, delivery.OutcomeSent, "", ""},
		{200, "", true, delivery.OutcomeUnknown, "", "slack:unreadable_answer"},
		{200, `{"success":true}`, true, delivery.OutcomeUnknown, "", "slack:unreadable_answer"},
		{200, `{"success":true}`, false, delivery.OutcomeSent, "", ""},
		{200, "", false, delivery.OutcomeSent, "", ""},
		{200, `{"ok": false}`, false, delivery.OutcomeUnknown, "", "slack:unreadable_answer"},
		{200, "no_service", true, delivery.OutcomeFailed, delivery.FaultDestination, "destination:no_service"},
		{400, "invalid_payload", true, delivery.OutcomeFailed, delivery.FaultPayload, "payload:invalid_payload"},
		{400, "no_text", true, delivery.OutcomeFailed, delivery.FaultPayload, "payload:no_text"},
		{400, "user_not_found", true, delivery.OutcomeFailed, delivery.FaultPayload, "payload:user_not_found"},
		{400, "Missed timestamp", false, delivery.OutcomeFailed, delivery.FaultDestination, "destination:http_400"},
		{403, "invalid_token", true, delivery.OutcomeFailed, delivery.FaultDestination, "destination:invalid_token"},
		{403, "action_prohibited", true, delivery.OutcomeFailed, delivery.FaultDestination, "destination:action_prohibited"},
		{403, `{"ok":false,"error":"invalid_auth"}`, true, delivery.OutcomeFailed, delivery.FaultDestination, "destination:invalid_auth"},
		{404, "channel_not_found", true, delivery.OutcomeFailed, delivery.FaultDestination, "destination:channel_not_found"},
		{404, "no_active_hooks", true, delivery.OutcomeFailed, delivery.FaultDestination, "destination:no_active_hooks"},
		{404, "<html>", true, delivery.OutcomeFailed, delivery.FaultDestination, "destination:http_404"},
		{410, "channel_is_archived", true, delivery.OutcomeFailed, delivery.FaultDestination, "destination:channel_is_archived"},
		{429, `{"retry_after":1,"ok":false,"error":"rate_limited"}`, true, delivery.OutcomeFailed, delivery.FaultThrottled, "rate_limited"},
		{500, "rollup_error", true, delivery.OutcomeUnknown, "", "slack:http_500"},
		{200, "rollup_error", true, delivery.OutcomeUnknown, "", "slack:rollup_error"},
		{400, "brand_new_code", true, delivery.OutcomeFailed, delivery.FaultPayload, "slack:brand_new_code"},
		{408, "", true, delivery.OutcomeUnknown, "", "slack:http_408"},
	} {
		t.Run(fmt.Sprint(c.status, " ", c.body, " ", c.slacks), func(t *testing.T) {
			t.Parallel()
			base, _ := serve(t, c.status, map[string]string{"Retry-After": "1"}, c.body)
			p := newProvider(t, config.Notifier{WebhookURL: base + "/services/T/B/x"})
			u := mustParse(t, p.hook)
			rec := p.client.Do(jsonPost(t.Context(), u, []byte("{}")))
			res := judgeHook(rec, c.slacks)
			if res.Outcome != c.outcome || res.Fault != c.fault || res.Reason != c.reason {
				t.Errorf("%+v", res)
			}
			if res.Outcome == delivery.OutcomeFailed && res.Fault != delivery.FaultThrottled && res.Sentence == "" {
				t.Error("nobody is told what to do")
			}
			if res.Fault == delivery.FaultThrottled && res.RetryAfter != time.Second {
				t.Errorf("retry after %s", res.RetryAfter)
			}
			if strings.TrimSpace(c.body) != "" && res.Answer == "" {
				t.Error("the answer is not kept")
			}
		})
	}
}

func TestHookSendsWhatItCan(t *testing.T) {
	t.Parallel()
	base, got := serve(t, 200, nil, "ok")
	p := newProvider(t, config.Notifier{WebhookURL: base + "/services/T/B/x"})
	for _, m := range []message.Message{card(), {Title: "Shift", Text: "Ana is on call"}} {
		if res := p.Do(t.Context(), provider.Call{Operation: delivery.OpCreate, Key: "k", Message: m}); res.Outcome != delivery.OutcomeSent || !res.Reference.IsZero() {
			t.Fatalf("%+v", res)
		}
	}
	var one, two struct {
		Text        string
		Blocks      []map[string]any
		Attachments []struct {
			Color, Fallback string
			Blocks          []map[string]any
		}
	}
	if err := json.Unmarshal([]byte(got()[0].body), &one); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(got()[1].body), &two); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(one.Text, "🔴 Disk full") || len(one.Attachments) != 1 || one.Attachments[0].Color != colours[message.Open] {
		t.Errorf("%+v", one)
	}
	if strings.Contains(got()[0].body, `"actions"`) {
		t.Error("buttons that nobody hears")
	}
	if two.Text != "Shift\nAna is on call" || len(two.Blocks) == 0 || len(two.Attachments) != 0 {
		t.Errorf("%+v", two)
	}
	if got()[0].header.Get("Content-Type") != "application/json; charset=utf-8" {
		t.Error(got()[0].header)
	}
}

func TestUnbuiltRequestIsFailed(t *testing.T) {
	t.Parallel()
	tap := wire.New(wire.Options{Provider: "slack"}).Tap(t.Context())
	if res, _, _ := judge(tap.Record, opPost, ""); res.Outcome != delivery.OutcomeFailed || res.Evidence != delivery.NotCalled {
		t.Errorf("%+v", res)
	}
}
