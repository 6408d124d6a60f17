package app

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/provider/chattest"
	"github.com/tocsin-oncall/tocsin/pkg/provider/telegram/telegramtest"
)

// Ana has one way, and the next step is Bo's. Cho has two ways, the second one later.
const accountFile = `
users:
  - {id: ana, contacts: [{via: slack-dm, address: U0ANA}]}
  - {id: bo, contacts: [{via: telegram-dm, address: "502"}]}
  - {id: cho, contacts: [{via: slack-dm, address: U0CHO}, {via: telegram-dm, address: "503", after: 1h}]}
escalations:
  steps: {every: 24h, steps: [{after: 0s, page: ["user:ana"]}, {after: 2h, page: ["user:bo"]}]}
  ways: {every: 24h, steps: [{after: 0s, page: ["user:cho"]}]}
notifiers:
  ops-slack: {type: slack, token: "${SLACK_TOKEN}", channel: C0OPS, api_url: SLACK_API, timeout: 5s, pace: off}
  slack-dm: {type: slack, token: "${SLACK_TOKEN}", api_url: SLACK_API, timeout: 5s, pace: off}
  ops-telegram: {type: telegram, token: "${TELEGRAM_TOKEN}", chat_id: "-1001000000001", api_url: TELEGRAM_API, timeout: 5s, pace: off}
  telegram-dm: {type: telegram, token: "${TELEGRAM_TOKEN}", api_url: TELEGRAM_API, timeout: 5s, pace: off}
routes:
  - {match: "alert.*.*.db", notify: [ops-slack]}
  - {match: "alert.*.*.steps", escalate: steps}
  - {match: "alert.*.*.ways", escalate: ways}
  - {match: "alert.*.*._tocsin", notify: [ops-slack, ops-telegram]}
`

// A token is revoked for five minutes. Nothing dies: one alarm comes through another notifier, what is to be sent waits and
// says for what, escalations go on without it, and when the token is back all of it leaves by itself.
func TestTokenIsRevokedForFiveMinutes(t *testing.T) {
	t.Parallel()
	d := newDrill(t, drillSetup{replicas: 2, file: accountFile})
	posts := func() int { return len(d.slack.Ledger(chattest.ByMethod("chat.postMessage"))) }
	alarms := func() (out []telegramtest.Message) {
		for _, m := range d.cards(ops) {
			if strings.Contains(m.Text, "Nothing goes out through") {
				out = append(out, m)
			}
		}
		return out
	}
	d.slack.SetRevoked(true)
	d.fire(0, "db", "warning", "first while revoked")
	d.until("the alarm is raised through the other chat", 0, func() bool { return len(alarms()) == 1 })
	if text := alarms()[0].Text; !strings.Contains(text, "ops-slack") || !strings.Contains(text, "slack-dm") || !strings.Contains(text, "token_revoked") {
		t.Errorf("the alarm does not say what is broken:\n%s", text)
	}
	knocks := posts()

	d.fire(1, "steps", "critical", "a page with a next step")
	d.fire(0, "ways", "critical", "a page with another way")
	d.until("the next step and the other way take over at once", 0, func() bool {
		return len(d.telegram.Messages(502)) == 1 && len(d.telegram.Messages(503)) == 1
	})
	for i := range 5 {
		d.fire(i, "db", "warning", "later while revoked "+string(rune('a'+i)))
	}
	began := d.moved.Load()
	d.until("five minutes have passed", 10*time.Second, func() bool { return time.Duration(d.moved.Load()-began) >= 5*time.Minute })

	for _, line := range list[string](d, "select kind || ' ' || target || ' ' || state || ' ' || reason || ' ' || sentence from delivery_board where notifier in ('ops-slack', 'slack-dm') and kind in ('card', 'page')") {
		if !strings.Contains(line, "pending account:token_revoked the token was revoked: reinstall the Slack app") {
			t.Errorf("while the token is revoked: %s", line)
		}
	}
	if n := ask[int](d, "select count(*) from delivery_board where notifier in ('ops-slack', 'slack-dm') and kind in ('card', 'page') and state = 'pending'"); n < 8 {
		t.Errorf("%d deliveries wait\n%s", n, d.board())
	}
	if n := posts() - knocks; n != 0 {
		t.Errorf("%d posts were tried while the account was known to be broken", n)
	}
	if n := len(alarms()); n != 1 {
		t.Errorf("%d alarms", n)
	}
	if n := ask[int](d, "select count(*) from incident where topic = 'alert.notifier_broken.critical._tocsin'"); n != 1 {
		t.Errorf("%d incidents of a broken notifier", n)
	}
	for _, name := range []string{"ops-slack", "slack-dm"} {
		if v := d.metric("tocsin_breaker_open", `notifier="`+name+`"`); v != 2 {
			t.Errorf("tocsin_breaker_open of %s is %v on two replicas", name, v)
		}
	}
	if v := d.metric("tocsin_breaker_open", `notifier="ops-telegram"`); v != 0 {
		t.Errorf("tocsin_breaker_open of ops-telegram is %v", v)
	}
	l, err := d.clients[0].Notifiers(within(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range l.Items {
		if broken := n.Type == "slack"; broken != (n.State == api.NotifierBroken) || broken != (n.Breaker != nil) {
			t.Errorf("the API shows %+v", n)
		}
	}

	d.slack.SetRevoked(false)
	d.until("all leave by themselves", 10*time.Second, func() bool {
		return ask[int](d, "select count(*) from delivery_board where notifier in ('ops-slack', 'slack-dm') and state <> 'sent'") == 0
	})
	if n := len(d.slack.Messages("U0ANA")); n != 1 {
		t.Errorf("Ana has %d pages", n)
	}
	titles := map[string]int{}
	for _, m := range d.roots("C0OPS") {
		titles[m.Text]++
	}
	for text, n := range titles {
		if n != 1 {
			t.Errorf("%q is shown %d times", text, n)
		}
	}
	d.until("the alarm is over", 2*time.Second, func() bool {
		return ask[bool](d, "select bool_and(state = 'resolved') from incident where topic = 'alert.notifier_broken.critical._tocsin'") && strings.Contains(alarms()[0].Text, "🟢")
	})
	d.until("the metrics say so", 0, func() bool { return d.metric("tocsin_breaker_open", "") == 0 })
	if n := ask[int](d, "select count(*) from delivery_board where state in ('rejected', 'unreachable', 'held', 'exhausted', 'expired')"); n != 0 {
		t.Errorf("%d deliveries died\n%s", n, d.board())
	}
	if n := ask[int](d, "select count(*) from pause"); n != 0 {
		t.Errorf("%d pauses are left", n)
	}
	if len(slices.DeleteFunc(d.cards(ops), func(m telegramtest.Message) bool { return !strings.Contains(m.Text, "Nothing goes out") })) != 1 {
		t.Error("the alarm was raised again")
	}
}
