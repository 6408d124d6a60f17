package app

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/provider"
	"github.com/tocsin-oncall/tocsin/pkg/provider/chattest"
	"github.com/tocsin-oncall/tocsin/pkg/provider/slack/slacktest"
	"github.com/tocsin-oncall/tocsin/pkg/provider/telegram/telegramtest"
)

// chats are what the notifiers of a test lead to.
type chats struct {
	slack    *slacktest.Server
	telegram *telegramtest.Server
	env      map[string]string
}

const group = -1001000000001

func startChats(t *testing.T) *chats {
	c := &chats{
		slack: slacktest.Start(t, slacktest.Options{Token: "xoxb-271828182845", Channels: []slacktest.Channel{
			{ID: "C0OPS", Name: "ops"}, {ID: "C0OLD", Name: "old", Archived: true}, {ID: "C0OUT", Name: "out", NotMember: true},
		}}),
		telegram: telegramtest.Start(t, telegramtest.Options{Token: "110201543:AAHsimulatedsimulatedsimulatedsimul", WebhookSecret: "hook-secret-1618"}),
	}
	c.env = map[string]string{
		"SLACK": "xoxb-271828182845", "SIGNING": "8f742231b10e8888abcd99edeadbeef5", "SLACK_API": c.slack.APIURL(), "HOOK": c.slack.WebhookURL(),
		"TELEGRAM": "110201543:AAHsimulatedsimulatedsimulatedsimul", "TELEGRAM_API": c.telegram.APIURL(), "TELEGRAM_SECRET": "hook-secret-1618",
	}
	return c
}

// The notifiers of the tests below.
const (
	slackOps      = `{type: slack, token: "${SLACK}", signing_secret: "${SIGNING}", api_url: "${SLACK_API}", channel: C0OPS}`
	slackDM       = `{type: slack, token: "${SLACK}", signing_secret: "${SIGNING}", api_url: "${SLACK_API}"}`
	slackHook     = `{type: slack, webhook_url: "${HOOK}"}`
	telegramGroup = `{type: telegram, token: "${TELEGRAM}", webhook_secret: "${TELEGRAM_SECRET}", api_url: "${TELEGRAM_API}", chat_id: "-1001000000001"}`
)

// Whatever is wrong with a notifier, doctor names it, says how to mend it, and tells no secret.
func TestDoctorNamesWhatIsWrongWithAChat(t *testing.T) {
	t.Parallel()
	const ok, warn, bad = provider.OK, provider.Warn, provider.Bad
	for name, c := range map[string]struct {
		notifier string
		set      func(*chats, *patient)
		check    string
		level    provider.Level
		text     string // in what was found
		fix      string // in how to mend it
		live     bool
	}{
		"all is well with Slack":     {notifier: slackOps, check: "channel C0OPS", level: ok, text: "a member"},
		"look-ups work":              {notifier: slackOps, check: "look-ups", level: ok, text: "can be looked up"},
		"the Slack token is revoked": {notifier: slackOps, set: func(c *chats, _ *patient) { c.slack.SetRevoked(true) }, check: "token", level: bad, text: "token_revoked", fix: "reinstall the Slack app"},
		"the Slack token is another's": {notifier: slackOps, set: func(c *chats, _ *patient) { c.env["SLACK"] = "xoxb-other-bot-token" },
			check: "token", level: bad, text: "invalid_auth", fix: "put a valid bot token"},
		"a scope is missing": {notifier: slackOps, set: func(c *chats, _ *patient) { c.slack.SetScopes("channels:read", "channels:history") },
			check: "scopes", level: bad, text: "chat:write is missing", fix: "give the Slack app the scope chat:write"},
		"look-ups are not possible": {notifier: slackOps, set: func(c *chats, _ *patient) { c.slack.SetScopes("chat:write", "channels:read") },
			check: "look-ups", level: warn, text: "missing_scope", fix: "channels:history"},
		"a person's messages can't be looked up": {notifier: slackDM, set: func(c *chats, _ *patient) { c.slack.SetScopes("chat:write") },
			check: "scope im:history", level: warn, text: "it is missing", fix: "im:history"},
		"the bot is not in the channel": {notifier: strings.Replace(slackOps, "C0OPS", "C0OUT", 1), check: "channel C0OUT", level: bad, text: "no member of #out", fix: "invite @tocsin to #out"},
		"the channel is archived":       {notifier: strings.Replace(slackOps, "C0OPS", "C0OLD", 1), check: "channel C0OLD", level: bad, text: "archived", fix: "unarchive #old"},
		"the channel is not there":      {notifier: strings.Replace(slackOps, "C0OPS", "C0NONE", 1), check: "channel C0NONE", level: bad, text: "does not exist", fix: "check the id"},
		"Slack is at another host": {notifier: slackOps, set: func(c *chats, _ *patient) { c.env["SLACK_API"] = "http://127.0.0.1:1/api/" },
			check: "token", level: bad, text: "127.0.0.1:1", fix: "check the network"},
		"this machine's clock is off, by Slack": {notifier: slackOps, set: func(_ *chats, p *patient) { p.o.now = func() time.Time { return time.Now().Add(10 * time.Minute) } },
			check: "clock", level: bad, text: "apart from", fix: "NTP"},
		"Slack's clock is off": {notifier: slackOps, set: func(c *chats, _ *patient) {
			c.slack.MustFault(chattest.Fault{Kind: chattest.Answer, Method: "auth.test", Header: map[string]string{"Date": "Mon, 05 Jan 2026 09:00:00 GMT"},
				Body: `{"ok": true, "user": "tocsin", "user_id": "U0TOCSIN", "team": "Simulated", "team_id": "T0SIM", "bot_id": "B0TOCSIN"}`})
		}, check: "clock", level: bad, text: "apart from", fix: "NTP"},
		"the signing secret is something else": {notifier: slackOps, set: func(c *chats, _ *patient) { c.env["SIGNING"] = "something-else" },
			check: "signing secret", level: warn, text: "not 32 hexadecimal digits", fix: "Signing Secret"},
		"a live test of Slack": {notifier: slackOps, live: true, check: "live test: delete", level: ok, text: ""},
		"a webhook's host is not there": {notifier: slackHook, set: func(c *chats, _ *patient) { c.env["HOOK"] = "http://127.0.0.1:1/services/T0/B0/abcdef" },
			check: "connection", level: bad, text: "127.0.0.1:1", fix: "check the network"},

		"all is well with Telegram": {notifier: telegramGroup, check: "chat -1001000000001", level: ok, text: "may send"},
		"the bot's token is revoked": {notifier: telegramGroup, set: func(c *chats, _ *patient) { c.telegram.MustFault(chattest.Fault{Kind: chattest.Revoked}) },
			check: "token", level: bad, text: "401", fix: "@BotFather"},
		"the chat is not found": {notifier: strings.Replace(telegramGroup, "-1001000000001", "-1009", 1), check: "chat -1009", level: bad, text: "chat not found", fix: "check the chat id"},
		"the bot was removed": {notifier: telegramGroup, set: func(c *chats, _ *patient) {
			c.telegram.SetChat(telegramtest.Chat{ID: group, Type: "supergroup", Title: "Ops", Kicked: true})
		}, check: "chat -1001000000001", level: bad, text: "", fix: "add the bot"},
		"the bot may not write": {notifier: telegramGroup, set: func(c *chats, _ *patient) {
			c.telegram.SetChat(telegramtest.Chat{ID: group, Type: "supergroup", Title: "Ops", ReadOnly: true})
		}, check: "chat -1001000000001", level: bad, text: "may not send", fix: "let the bot send messages"},
		"the person never pressed Start": {notifier: strings.Replace(telegramGroup, "-1001000000001", "777", 1), set: func(c *chats, _ *patient) {
			c.telegram.SetUser(telegramtest.User{ID: 777, FirstName: "New", NeverStarted: true})
		}, check: "chat 777", level: bad, text: "chat not found", fix: "the bot"},
		"the person has blocked the bot": {notifier: strings.Replace(telegramGroup, "-1001000000001", "501", 1), set: func(c *chats, _ *patient) {
			c.telegram.SetUser(telegramtest.User{ID: 501, FirstName: "Ana", Blocked: true})
		}, check: "chat 501", level: bad, text: "blocked by the user", fix: "press Start"},
		"no webhook is set":   {notifier: telegramGroup, check: "webhook", level: warn, text: "none is set", fix: "set the webhook"},
		"a secret is missing": {notifier: strings.Replace(telegramGroup, ` webhook_secret: "${TELEGRAM_SECRET}",`, "", 1), check: "webhook_secret", level: warn, text: "buttons do nothing", fix: "webhook_secret"},
		"Telegram is at another host": {notifier: telegramGroup, set: func(c *chats, _ *patient) { c.env["TELEGRAM_API"] = "http://127.0.0.1:1" },
			check: "token", level: bad, text: "127.0.0.1:1", fix: "check the network"},
		"this machine's clock is off, by Telegram": {notifier: telegramGroup, set: func(_ *chats, p *patient) { p.o.now = func() time.Time { return time.Now().Add(-time.Hour) } },
			check: "clock", level: warn, text: "apart from", fix: "NTP"},
		"a live test of Telegram": {notifier: telegramGroup, live: true, check: "live test", level: ok, text: "sent, edited and deleted"},
		"what can't be known":     {notifier: telegramGroup, check: "doubt", level: ok, text: "cannot be asked"},

		"a webhook refuses connections": {notifier: `{type: webhook, url: "http://127.0.0.1:1/hook", secret: "${SIGNING}"}`, check: "connection", level: bad, text: "127.0.0.1:1", fix: "whether the receiver runs"},
		"a webhook refuses events": {notifier: `{type: webhook, url: "${RECEIVER}/hook", secret: "${SIGNING}"}`, live: true, set: func(c *chats, _ *patient) {
			c.env["RECEIVER"] = serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
		}, check: "live test", level: bad, text: "403", fix: ""},
		"a webhook takes events": {notifier: `{type: webhook, url: "${RECEIVER}/hook", secret: "${SIGNING}"}`, live: true, set: func(c *chats, _ *patient) {
			c.env["RECEIVER"] = serve(t, func(http.ResponseWriter, *http.Request) {})
		}, check: "live test", level: ok, text: ""},
		"a log's folder is not there": {notifier: `{type: log, path: /nowhere/at/all/alerts.jsonl}`, check: "folder", level: bad, text: "/nowhere/at/all", fix: ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			chats := startChats(t)
			// The database is another test's matter.
			p := &patient{t: t, url: "postgres://u@127.0.0.1:1/x", env: chats.env}
			p.file = "notifiers: {n: " + c.notifier + "}\n"
			p.o.Live = c.live
			if c.set != nil {
				c.set(chats, p)
			}
			d, err := p.examine()
			if err != nil {
				t.Fatal(err)
			}
			got := find(t, d, "n", c.check)
			if got.Level != c.level || !strings.Contains(got.Text, c.text) || !strings.Contains(got.Fix, c.fix) || (got.Fix == "") != (c.level == ok) {
				t.Errorf("%+v in\n%s", got, lines(d))
			}
			text := lines(d)
			for _, secret := range []string{"SLACK", "SIGNING", "TELEGRAM", "TELEGRAM_SECRET"} {
				if strings.Contains(text, chats.env[secret]) {
					t.Errorf("%s is shown:\n%s", secret, text)
				}
			}
			if made := append(chats.slack.Ledger(chattest.WithEffect()), chats.telegram.Ledger(chattest.WithEffect())...); !c.live && len(made) > 0 {
				t.Errorf("an examination made something: %+v", made)
			}
			if left := slices.DeleteFunc(chats.slack.Messages("C0OPS"), func(m slacktest.Message) bool { return m.Deleted }); len(left) > 0 {
				t.Errorf("a live test left something behind: %+v", left)
			}
		})
	}
}

func serve(t *testing.T, h http.HandlerFunc) string {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}
