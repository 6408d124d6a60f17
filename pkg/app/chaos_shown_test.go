package app

import (
	"strings"

	"github.com/tocsin-oncall/tocsin/pkg/provider/slack/slacktest"
	"github.com/tocsin-oncall/tocsin/pkg/provider/telegram/telegramtest"
)

// The faces of an incident in its states.
var (
	chaosColours = map[string]string{"open": "d92d20", "acknowledged": "f5b301", "resolved": "12a150"}
	chaosSigns   = map[string]string{"open": "🔴", "acknowledged": "🟡", "resolved": "🟢"}
)

// checkShown checks what people see: each card and each page in the colour of its incident, and below each card all that
// happened, in order.
func checkShown(f *chaosFacts, alerts []chaosAlert, slack *slacktest.Server, telegram *telegramtest.Server, blame func(string, ...any)) {
	slackReplies := map[string][]slacktest.Message{}
	for _, m := range slack.Messages("C0OPS") {
		if m.ThreadTS != "" && m.ThreadTS != m.TS {
			slackReplies[m.ThreadTS] = append(slackReplies[m.ThreadTS], m)
		}
	}
	telegramReplies := map[int][]telegramtest.Message{}
	for _, m := range telegram.Messages(ops) {
		telegramReplies[m.ReplyTo] = append(telegramReplies[m.ReplyTo], m)
	}
	for _, a := range alerts {
		i := f.incidents[a.Key]
		for _, id := range f.parts[i.ID] {
			d := f.deliveries[id]
			if d.State != "sent" || d.Kind == "thread" {
				continue
			}
			var told []string
			if d.slack() {
				m, ok := slack.Message(d.Reference.TS)
				if !ok || m.Channel != d.Reference.Channel || !holds(m, a.Title) || m.Colour() != chaosColours[i.State] {
					blame("alert %s is %s and Slack shows %+v:\n%s", a.Key, i.State, m, f.explain(d.ID))
				}
				for _, r := range slackReplies[d.Reference.TS] {
					told = append(told, r.Text+string(r.Blocks))
				}
			} else {
				m, ok := telegram.Message(d.Reference.ChatID, d.Reference.MessageID)
				if !ok || !strings.Contains(m.Text, a.Title) || !strings.Contains(m.Text, chaosSigns[i.State]) {
					blame("alert %s is %s and Telegram shows %+v:\n%s", a.Key, i.State, m, f.explain(d.ID))
				}
				for _, r := range telegramReplies[d.Reference.MessageID] {
					told = append(told, r.Text)
				}
			}
			if d.Kind == "card" {
				checkThread(a, f.timeline[i.ID], told, func(format string, args ...any) {
					blame(format+":\n%s", append(args, f.explain(d.ID))...)
				})
			}
		}
	}
}

// checkThread wants each event in some reply, and first told no earlier than the one before it.
func checkThread(a chaosAlert, events, replies []string, blame func(string, ...any)) {
	at := 0
	for _, e := range events {
		first := -1
		for n, r := range replies {
			if strings.Contains(r, e) {
				first = n
				break
			}
		}
		if first < at {
			blame("alert %s: the event %q is told by reply %d of %d, the one before it by reply %d", a.Key, e, first, len(replies), at)
			return
		}
		at = first
	}
}
