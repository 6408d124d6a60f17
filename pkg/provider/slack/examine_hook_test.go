package slack

import (
	"context"
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
)

// The form of a webhook's URL is looked at without calling Slack; the context has ended.
func TestFormOfSlacksOwnWebhooks(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]provider.Level{
		"https://hooks.slack.com/services/T0AB1/B0CD2/aBcDeF123":  provider.OK,
		"http://hooks.slack.com/services/T0AB1/B0CD2/aBcDeF123":   provider.Bad,
		"https://hooks.slack.com/services/T0AB1/B0CD2":            provider.Bad,
		"https://hooks.slack.com/services/B0CD2/T0AB1/aBcDeF123":  provider.Bad,
		"https://hooks.slack.com/workflows/T0AB1/A1/1/aBcDeF123":  provider.Warn,
		"https://hooks.slack.com/triggers/T0AB1/1/aBcDeF123":      provider.Warn,
		"https://hooks.slack.com/":                                provider.Bad,
		"https://chat.example.com/hooks/aBcDeF123":                provider.OK,
		"http://127.0.0.1:1/hooks/aBcDeF123":                      provider.Warn,
		"https://hooks.slack.com.evil.test/services/T1/B1/aBcDeF": provider.OK, // another server, and named as one
	} {
		p := newProvider(t, config.Notifier{WebhookURL: url, Timeout: time.Second})
		ctx, cancel := contextThatEnded(t)
		f := p.Examine(ctx, provider.Examination{})
		cancel()
		if f[0].Check != "webhook URL" || f[0].Level != want || (f[0].Level == provider.OK) != (f[0].Fix == "") {
			t.Errorf("%s: %+v", url, f[0])
		}
	}
}

// A call without content: what Slack refuses in it tells whether it knows the webhook.
func TestLiveLookAtAWebhook(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status int
		body   string
		want   provider.Level
	}{
		{400, "no_text", provider.OK},
		{400, "invalid_payload", provider.OK},
		{404, "no_service", provider.Bad},
		{403, "invalid_token", provider.Bad},
		{410, "channel_is_archived", provider.Bad},
		{429, "", provider.Warn},
		{500, "", provider.Warn},
		{200, "ok", provider.Warn},
	} {
		base, got := serve(t, c.status, nil, c.body)
		p := newProvider(t, config.Notifier{WebhookURL: base + "/services/T/B/x"})
		var f findings
		p.liveHook(t.Context(), &f, mustParse(t, p.hook), true)
		if len(f) != 1 || f[0].Level != c.want || (f[0].Level == provider.OK) != (f[0].Fix == "") {
			t.Errorf("%d %s: %+v", c.status, c.body, f)
		}
		if r := got(); len(r) != 1 || r[0].body != "{}" {
			t.Errorf("%+v", r)
		}
	}
}

func contextThatEnded(t *testing.T) (context.Context, context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx, cancel
}
