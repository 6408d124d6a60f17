package telegram_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
	"github.com/tocsin-oncall/tocsin/pkg/provider/chattest"
	"github.com/tocsin-oncall/tocsin/pkg/provider/telegram"
	"github.com/tocsin-oncall/tocsin/pkg/provider/telegram/telegramtest"
)

// examine examines a notifier against a simulated Telegram and checks what holds for every finding.
func examine(t *testing.T, s *telegramtest.Server, n config.Notifier, e provider.Examination) map[string]provider.Finding {
	t.Helper()
	n.Name, n.Token, n.Timeout = "ops-telegram", s.Options().Token, 2*time.Second
	if n.APIURL == "" {
		n.APIURL = s.APIURL()
	}
	p, err := telegram.New(n, nil)
	if err != nil {
		t.Fatal(err)
	}
	if e.PublicURL == "" {
		e.PublicURL = "https://tocsin.test"
	}
	_, secret, _ := strings.Cut(s.Options().Token, ":")
	all := map[string]provider.Finding{}
	for _, f := range p.Examine(t.Context(), e) {
		if _, twice := all[f.Check]; twice {
			t.Errorf("%s is found twice", f.Check)
		}
		all[f.Check] = f
		if (f.Level == provider.OK) != (f.Fix == "") || f.Text == "" || f.Check == "" {
			t.Errorf("%+v", f)
		}
		if text := fmt.Sprint(f); strings.Contains(text, secret) || strings.Contains(text, "{place}") || n.WebhookSecret != "" && strings.Contains(text, n.WebhookSecret) {
			t.Errorf("%+v", f)
		}
	}
	return all
}

// has says that a finding has a level and words in its text or its fix.
func has(t *testing.T, all map[string]provider.Finding, check string, level provider.Level, words ...string) {
	t.Helper()
	f, ok := all[check]
	if !ok || f.Level != level {
		t.Errorf("%s: %+v; all: %+v", check, f, all)
		return
	}
	for _, w := range words {
		if !strings.Contains(f.Text+" | "+f.Fix, w) {
			t.Errorf("%s: %q is missing in %+v", check, w, f)
		}
	}
}

var good = config.Notifier{ChatID: "-1001000000001", WebhookSecret: "hook-secret"}

const hookURL = "https://tocsin.test/telegram/ops-telegram"

func TestExamineAllIsWell(t *testing.T) {
	t.Parallel()
	s := telegramtest.Start(t, telegramtest.Options{WebhookURL: hookURL, WebhookSecret: "hook-secret"})
	all := examine(t, s, good, provider.Examination{Now: time.Now, Live: true})
	for check, f := range all {
		if f.Level != provider.OK {
			t.Errorf("%s: %+v", check, f)
		}
	}
	has(t, all, "token", provider.OK, "@tocsin_bot (tocsin)")
	has(t, all, "clock", provider.OK)
	has(t, all, "webhook", provider.OK, hookURL)
	has(t, all, "chat -1001000000001", provider.OK, `supergroup "Ops"`, "as member")
	has(t, all, "doubt", provider.OK, "cannot be asked")
	has(t, all, "live test", provider.OK, "sent, edited and deleted")
	if left := s.Messages(ops); len(left) != 0 {
		t.Errorf("left behind: %+v", left)
	}
	if m, _ := s.Message(ops, 1); !m.Deleted || len(m.Edits) != 1 {
		t.Errorf("%+v", m)
	}
}

func TestExamineSendsNothingUnlessAsked(t *testing.T) {
	t.Parallel()
	s := telegramtest.Start(t, telegramtest.Options{WebhookURL: hookURL})
	all := examine(t, s, good, provider.Examination{})
	if _, ok := all["live test"]; ok || len(s.Ledger(chattest.WithEffect())) != 0 {
		t.Errorf("%+v", s.Ledger(chattest.WithEffect()))
	}
}

func TestExamineToken(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault chattest.Fault
		level provider.Level
		words string
	}{
		"revoked":   {chattest.Fault{Kind: chattest.Revoked}, provider.Bad, "@BotFather"},
		"down":      {chattest.Fault{Kind: chattest.Error, Status: 502}, provider.Warn, "again later"},
		"throttled": {chattest.Fault{Kind: chattest.Limited, RetryAfter: "26"}, provider.Warn, "again later"},
		"nobody":    {chattest.Fault{Kind: chattest.Refuse}, provider.Bad, "check the network"},
		"elsewhere": {chattest.Fault{Kind: chattest.Answer, Status: 403, Body: "<html>"}, provider.Bad, "api_url"},
		"new words": {chattest.Fault{Kind: chattest.Code, Code: "Bad Request: brand new words"}, provider.Bad, "brand new words"},
	} {
		s := telegramtest.Start(t, telegramtest.Options{})
		s.MustFault(c.fault)
		all := examine(t, s, good, provider.Examination{Live: true})
		has(t, all, "token", c.level, c.words)
		if _, ok := all["webhook"]; ok || len(s.Ledger()) > 1 {
			t.Errorf("%s: went on without a token: %+v", name, all)
		}
	}
}

func TestExamineClock(t *testing.T) {
	t.Parallel()
	s := telegramtest.Start(t, telegramtest.Options{})
	all := examine(t, s, good, provider.Examination{Now: func() time.Time { return time.Now().Add(-2 * time.Hour) }})
	has(t, all, "clock", provider.Warn, "apart from 127.0.0.1", "NTP")
}

func TestExamineChat(t *testing.T) {
	t.Parallel()
	s := telegramtest.Start(t, telegramtest.Options{
		Chats: []telegramtest.Chat{
			{ID: -1, Type: "group", Title: "old", MigratedTo: -1002}, {ID: -1002, Type: "supergroup", Title: "forum", Topics: []telegramtest.Topic{{ID: 7}}},
			{ID: -3, Type: "supergroup", Kicked: true}, {ID: -4, Type: "channel", ReadOnly: true}, {ID: -5, Type: "supergroup", ReadOnly: true},
			{ID: -6, Type: "channel", Title: "news"}, {ID: -7, Type: "group", Title: "a\nb"},
		},
		Users: []telegramtest.User{{ID: 501, FirstName: "Ana"}, {ID: 502, FirstName: "Bo", Blocked: true}},
	})
	for _, c := range []struct {
		chat  string
		topic int
		check string
		level provider.Level
		words string
	}{
		{"-77", 0, "chat -77", provider.Bad, "add the bot to -77"},
		{"-1", 0, "chat -1", provider.Bad, "chat_id: -1002"},
		{"-3", 0, "chat -3", provider.Bad, "kicked"},
		{"-4", 0, "chat -4", provider.Bad, "administrator of the channel"},
		{"-5", 0, "chat -5", provider.Bad, "let the bot send"},
		{"-6", 0, "chat -6", provider.OK, `channel "news": the bot may send, as administrator`},
		{"-7", 0, "chat -7", provider.OK, `group "a b"`},
		{"501", 0, "chat 501", provider.OK, `private "Ana"`},
		{"502", 0, "chat 502", provider.Bad, "pressed Start|press Start"},
		{"", 0, "chat", provider.OK, "it sends to people"},
		{"-1002", 7, "topic 7", provider.OK, "cannot be asked"},
		{"-1002", 1, "topic 1", provider.Bad, "General"},
		{"-7", 7, "topic 7", provider.Bad, "has no topics"},
	} {
		all := examine(t, s, config.Notifier{ChatID: c.chat, MessageThreadID: c.topic}, provider.Examination{})
		words := strings.Split(c.words, "|")
		has(t, all, c.check, c.level, words[len(words)-1])
	}
	// Rights that the simulated Telegram does not take away.
	for body, words := range map[string]string{
		`{"ok":true,"result":{"status":"left"}}`:                                    "add the bot",
		`{"ok":true,"result":{"status":"administrator","can_post_messages":false}}`: "may not post",
		`{"ok":true,"result":{"status":"member"}}`:                                  "may not post",
	} {
		s.MustFault(chattest.Fault{Kind: chattest.Answer, Method: "getChatMember", Body: body, Count: 1})
		has(t, examine(t, s, config.Notifier{ChatID: "-6"}, provider.Examination{}), "chat -6", provider.Bad, words)
	}
	s.MustFault(chattest.Fault{Kind: chattest.Answer, Method: "getChat", Body: `{"ok":true,"result":{"type":"group","permissions":{"can_send_messages":false}}}`, Count: 1})
	has(t, examine(t, s, config.Notifier{ChatID: "-7"}, provider.Examination{}), "chat -7", provider.Bad, "may not send messages")
}

func TestExamineWebhook(t *testing.T) {
	t.Parallel()
	const set = "telegram/set-webhook.sh"
	for _, c := range []struct {
		url, info, check string
		level            provider.Level
		words            string
	}{
		{"", "", "webhook", provider.Warn, set},
		{"https://old.test/telegram/ops-telegram", "", "webhook", provider.Warn, "and not to " + hookURL},
		{"https://tocsin.test/telegram/other", "", "webhook", provider.OK, "another notifier"},
		{"https://tocsin.test/telegram/", "", "webhook", provider.Warn, set},
		{hookURL, "", "webhook", provider.OK, hookURL},
		{"", `{"url":"` + hookURL + `","last_error_message":"Wrong response from the webhook: 401 Unauthorized","last_error_date":1764410000}`, "webhook errors", provider.Warn, "2025-11-29T"},
		{"", `{"url":"` + hookURL + `","pending_update_count":250}`, "webhook queue", provider.Warn, "250 updates"},
		{"", `{"url":"` + hookURL + `","allowed_updates":["message"]}`, "webhook updates", provider.Warn, set},
		{"", `{"url":"` + hookURL + `","allowed_updates":["callback_query"]}`, "webhook updates", provider.Warn, "/start and commands do nothing"},
		{"", `{"url":7}`, "webhook", provider.Warn, set},
	} {
		s := telegramtest.Start(t, telegramtest.Options{WebhookURL: c.url})
		if c.info != "" {
			s.MustFault(chattest.Fault{Kind: chattest.Answer, Method: "getWebhookInfo", Body: `{"ok":true,"result":` + c.info + `}`})
		}
		has(t, examine(t, s, good, provider.Examination{PublicURL: "https://tocsin.test/"}), c.check, c.level, c.words)
	}
	s := telegramtest.Start(t, telegramtest.Options{WebhookURL: hookURL})
	has(t, examine(t, s, config.Notifier{ChatID: good.ChatID}, provider.Examination{}), "webhook_secret", provider.Warn, "webhook_secret into the file", "buttons do nothing")
	s.MustFault(chattest.Fault{Kind: chattest.Error, Method: "getWebhookInfo", Status: 500, JSON: true})
	has(t, examine(t, s, good, provider.Examination{}), "webhook", provider.Warn, "again later")
}

func TestExamineLive(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		n     config.Notifier
		fault chattest.Fault
		level provider.Level
		words string
		left  int
	}{
		{"people", config.Notifier{}, chattest.Fault{}, provider.OK, "not made", 0},
		{"no chat", config.Notifier{ChatID: "-77"}, chattest.Fault{}, provider.Warn, "mend the chat", 0},
		{"closed topic", good, chattest.Fault{Kind: chattest.Code, Method: "sendMessage", Code: "Bad Request: TOPIC_CLOSED"}, provider.Bad, "open the topic", 0},
		{"lost answer", good, chattest.Fault{Kind: chattest.Drop, Method: "sendMessage"}, provider.Warn, "could not send", 1},
		{"no edit", good, chattest.Fault{Kind: chattest.Code, Method: "editMessageText", Code: "Bad Request: message can't be edited"}, provider.Bad, "could not edit", 0},
		{"no deleting", good, chattest.Fault{Kind: chattest.Code, Method: "deleteMessage", Code: "Bad Request: message can't be deleted"}, provider.Warn, "by hand", 1},
	} {
		s := telegramtest.Start(t, telegramtest.Options{WebhookURL: hookURL})
		if c.fault.Kind != "" {
			s.MustFault(c.fault)
		}
		has(t, examine(t, s, c.n, provider.Examination{Live: true}), "live test", c.level, c.words)
		if n := len(s.Messages(ops)); n != c.left {
			t.Errorf("%s: %d messages are left", c.name, n)
		}
	}
}

// Whatever answers, an examination ends and says something.
func TestExamineOfSomethingElse(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"", "<html>", "{}", `{"ok":true}`, `{"ok":true,"result":true}`, `{"ok":true,"result":[]}`, `{"ok":true,"result":{"id":"x","type":7,"url":{}}}`} {
		other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, body) }))
		t.Cleanup(other.Close)
		s := telegramtest.New(telegramtest.Options{})
		n := good
		n.APIURL = other.URL
		if all := examine(t, s, n, provider.Examination{Live: true}); len(all) == 0 {
			t.Errorf("%q: nothing is found", body)
		}
	}
}

func TestExaminePolling(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		hook, body string
		level      provider.Level
		says       string
	}{
		{"", "", provider.OK, "no webhook is set"},
		{hookURL, "", provider.Warn, "one way only"},
		{"", `{"url":"","pending_update_count":250}`, provider.Warn, "250 updates"},
	} {
		s := telegramtest.Start(t, telegramtest.Options{WebhookURL: c.hook})
		if c.body != "" {
			s.MustFault(chattest.Fault{Kind: chattest.Answer, Method: "getWebhookInfo", Body: `{"ok":true,"result":` + c.body + `}`})
		}
		p, err := telegram.New(config.Notifier{Name: "ops-telegram", Type: "telegram", Token: s.Options().Token, APIURL: s.APIURL(), Poll: true}, nil)
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, f := range p.Examine(t.Context(), provider.Examination{PublicURL: "https://tocsin.test"}) {
			if f.Check == "polling" {
				found = true
				if f.Level != c.level || !strings.Contains(f.Text, c.says) {
					t.Errorf("%q, %q: %+v", c.hook, c.body, f)
				}
			}
			if f.Check == "webhook_secret" || f.Check == "webhook" {
				t.Errorf("it looks at %s: %+v", f.Check, f)
			}
		}
		if !found {
			t.Error("polling was not looked at")
		}
		for _, r := range s.Ledger() {
			if r.Method == "getUpdates" {
				t.Error("it ended the poll of a replica")
			}
		}
	}
}
