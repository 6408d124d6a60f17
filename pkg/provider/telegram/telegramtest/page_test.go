package telegramtest_test

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	tgbotapi "github.com/go-telegram-bot-api/telegram-bot-api/v5"

	"github.com/tocsin-oncall/tocsin/pkg/provider/chattest"
	"github.com/tocsin-oncall/tocsin/pkg/provider/telegram/telegramtest"
)

func get(t *testing.T, u string) string {
	t.Helper()
	resp, err := http.Get(u)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("%s: %d %v", u, resp.StatusCode, err)
	}
	return string(body)
}

func TestPageDrawsChatsAndKeepsTextText(t *testing.T) {
	t.Parallel()
	const attack = `<script>alert(1)</script>`
	s := telegramtest.Start(t, telegramtest.Options{Users: []telegramtest.User{{ID: 501, FirstName: attack}, {ID: 502, FirstName: "Bo", Blocked: true}}})
	b := bot(t, s)
	cfg := html(ops, "🔴 <b>disk</b> &lt;script&gt;alert(1)&lt;/script&gt; <a href=\"https://example.com/?a=1&amp;b=2\">runbook</a>")
	keys := tgbotapi.NewInlineKeyboardMarkup(tgbotapi.NewInlineKeyboardRow(tgbotapi.NewInlineKeyboardButtonData(attack, "ack:\"><script>"), tgbotapi.NewInlineKeyboardButtonURL("Open", "https://example.com/")))
	cfg.ReplyMarkup = keys
	m, err := b.Send(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Send(tgbotapi.NewEditMessageTextAndMarkup(ops, m.MessageID, "🟡 disk https://example.com/x.", keys)); err != nil {
		t.Fatal(err)
	}
	reply := html(ops, "taken")
	reply.ReplyToMessageID = m.MessageID
	if _, err := b.Send(reply); err != nil {
		t.Fatal(err)
	}
	a, err := s.Press(t.Context(), ops, m.MessageID, "ack", 501)
	if err != nil || !a.Queued {
		t.Fatalf("press: %+v, %v", a, err)
	}
	if _, err := b.Request(tgbotapi.NewCallbackWithAlert(a.QueryID, attack)); err != nil {
		t.Fatal(err)
	}
	mine, his := get(t, s.URL()+"/?as=501"), get(t, s.URL()+"/?as=502&note="+url.QueryEscape(attack))
	for _, want := range []string{
		"Simulated Telegram", "nothing leaves this machine", "🔴 <strong>disk</strong> &lt;script&gt;", `<a href="https://example.com/?a=1&amp;b=2" rel="noopener noreferrer" target="_blank">runbook</a>`,
		`<a href="https://example.com/x" rel="noopener noreferrer" target="_blank">https://example.com/x</a>.`, "1 earlier version", "edited", `<a class="quote" href="#m1">`, "Only visible to you",
		`<a class="key" href="https://example.com/"`,
	} {
		if !strings.Contains(mine, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(his, "Only visible to you") {
		t.Error("Bo sees the answer to another's press")
	}
	for _, page := range []string{mine, his, get(t, s.URL()+"/?c=502"), get(t, s.URL()+"/?view=ledger"), get(t, s.URL()+"/?view=faults&only="+url.QueryEscape(attack))} {
		if n := strings.Count(strings.ToLower(page), "<script"); n != 1 {
			t.Errorf("%d script tags, want the page's own only", n)
		}
	}
	if page := get(t, s.URL()+"/?c=502"); !strings.Contains(page, "has blocked the bot") {
		t.Error("the page does not say why the bot cannot write to Bo")
	}
}

func TestFaultsInTelegramsWords(t *testing.T) {
	t.Parallel()
	s := telegramtest.Start(t, telegramtest.Options{})
	b := bot(t, s)
	send := func() error { return second(b.Send(tgbotapi.NewMessage(501, "x"))) }
	var e *tgbotapi.Error
	s.MustFault(chattest.Fault{Kind: chattest.Limited, RetryAfter: "26", Count: 1})
	if err := send(); !errors.As(err, &e) || e.Code != 429 || e.RetryAfter != 26 || e.Message != "Too Many Requests: retry after 26" {
		t.Errorf("limited: %+v", e)
	}
	s.MustFault(chattest.Fault{Kind: chattest.Revoked, Count: 1})
	if code, text := refusal(send()); code != 401 || text != "Unauthorized" {
		t.Errorf("revoked: %d %s", code, text)
	}
	s.MustFault(chattest.Fault{Kind: chattest.Code, Code: "Forbidden: bot was kicked from the group chat", Channel: "501", Count: 1})
	if code, _ := refusal(send()); code != 403 {
		t.Errorf("kicked: %d", code)
	}
	s.MustFault(chattest.Fault{Kind: chattest.Error, JSON: true, Happens: true, Count: 1})
	if code, text := refusal(send()); code != 500 || text != "Internal Server Error: restart" || len(s.Messages(501)) != 1 {
		t.Errorf("happens all the same: %d %s, %d messages", code, text, len(s.Messages(501)))
	}
	s.MustFault(chattest.Fault{Kind: chattest.Error, Status: 502, Method: "sendmessage", Count: 1})
	if err := send(); err == nil || !strings.Contains(err.Error(), "invalid character '<'") {
		t.Errorf("HTML 502: %v", err)
	}
	s.MustFault(chattest.Fault{Kind: chattest.Drop, Method: "sendMessage", Count: 1})
	if err := send(); err == nil || len(s.Messages(501)) != 2 {
		t.Errorf("store, then drop: %v, %d messages", err, len(s.Messages(501)))
	}
	if err := send(); err != nil || len(s.Messages(501)) != 3 {
		t.Errorf("after all that: %v", err)
	}
	page := get(t, s.URL()+"/?view=ledger&only=faulty")
	if n := strings.Count(page, `class="entry faulty"`); n != 6 || strings.Contains(page, s.Options().Token) {
		t.Errorf("%d faults in the ledger view, or the token is shown", n)
	}
}

func TestFormsOfThePage(t *testing.T) {
	t.Parallel()
	s := telegramtest.Start(t, telegramtest.Options{})
	b := bot(t, s)
	cfg := tgbotapi.NewMessage(ops, "x")
	cfg.ReplyMarkup = tgbotapi.NewInlineKeyboardMarkup(tgbotapi.NewInlineKeyboardRow(tgbotapi.NewInlineKeyboardButtonData("Acknowledge", "ack:1")))
	if _, err := b.Send(cfg); err != nil {
		t.Fatal(err)
	}
	noFollow := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	post := func(path string, form url.Values) string {
		t.Helper()
		resp, err := noFollow.PostForm(s.URL()+path, form)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.Header.Get("Location")
	}
	if to := post("/page/press", url.Values{"chat": {"-1001000000001"}, "message": {"1"}, "action": {"ack:1"}, "as": {"502"}, "back": {"/?c=1"}}); !strings.Contains(to, "waits+for+getUpdates") {
		t.Errorf("press: %s", to)
	}
	post("/page/say", url.Values{"chat": {"501"}, "as": {"501"}, "text": {"/start abc"}})
	u, err := b.GetUpdates(tgbotapi.NewUpdate(0))
	if err != nil || len(u) != 2 || u[0].CallbackQuery.From.ID != 502 || u[0].CallbackQuery.Data != "ack:1" || u[0].CallbackQuery.Message.Text != "x" || u[1].Message.Command() != "start" {
		t.Errorf("updates: %+v, %v", u, err)
	}
}
