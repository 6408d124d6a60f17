package telegramtest_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	tgbotapi "github.com/go-telegram-bot-api/telegram-bot-api/v5"

	"github.com/tocsin-oncall/tocsin/pkg/provider/chattest"
	"github.com/tocsin-oncall/tocsin/pkg/provider/telegram/telegramtest"
)

const ops = -1001000000001

func bot(t *testing.T, s *telegramtest.Server) *tgbotapi.BotAPI {
	t.Helper()
	b, err := tgbotapi.NewBotAPIWithAPIEndpoint(s.Options().Token, s.Endpoint())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func html(chat int64, text string) tgbotapi.MessageConfig {
	m := tgbotapi.NewMessage(chat, text)
	m.ParseMode = "HTML"
	return m
}

// description is the code and description that telegram-bot-api made of an answer.
func refusal(err error) (int, string) {
	var e *tgbotapi.Error
	if errors.As(err, &e) {
		return e.Code, e.Message
	}
	if err != nil {
		return -1, err.Error()
	}
	return 0, ""
}

func TestMessageLife(t *testing.T) {
	t.Parallel()
	s := telegramtest.Start(t, telegramtest.Options{})
	b := bot(t, s)
	if b.Self.UserName != "tocsin_bot" || b.Self.ID != 110201543 {
		t.Fatalf("getMe: %+v", b.Self)
	}
	cfg := html(ops, "🔴 <b>disk &lt;full&gt;</b>\n<a href=\"https://example.com/x?a=1&amp;b=2\">runbook</a>  ")
	cfg.ReplyMarkup = tgbotapi.NewInlineKeyboardMarkup(tgbotapi.NewInlineKeyboardRow(tgbotapi.NewInlineKeyboardButtonData("Acknowledge", "ack:inc-1")))
	m, err := b.Send(cfg)
	if err != nil {
		t.Fatal(err)
	}
	stored, ok := s.Message(ops, m.MessageID)
	if !ok || stored.Text != "🔴 disk <full>\nrunbook" || len(stored.Entities) != 2 ||
		stored.Entities[0] != (telegramtest.Entity{Type: "bold", Offset: 3, Length: 11}) || stored.Entities[1].URL != "https://example.com/x?a=1&b=2" {
		t.Errorf("stored: %+v", stored)
	}
	reply := html(ops, "taken by Ana")
	reply.ReplyToMessageID = m.MessageID
	r, err := b.Send(reply)
	if err != nil || r.ReplyToMessage == nil || r.ReplyToMessage.MessageID != m.MessageID {
		t.Errorf("reply: %+v, %v", r, err)
	}
	edit := tgbotapi.NewEditMessageText(ops, m.MessageID, "🟡 <b>disk</b>")
	edit.ParseMode = "HTML"
	if _, err := b.Send(edit); err != nil {
		t.Fatal(err)
	}
	if got, _ := s.Message(ops, m.MessageID); got.Text != "🟡 disk" || got.Keyboard != nil || len(got.Edits) != 1 {
		t.Errorf("an edit without reply_markup takes the buttons away: %+v", got)
	}
	if code, text := refusal(second(b.Send(edit))); code != 400 || !strings.HasPrefix(text, "Bad Request: message is not modified") {
		t.Errorf("the same edit again: %d %s", code, text)
	}
	// A reply by the parameters that v5.5.1 does not know.
	resp, err := b.MakeRequest("SENDMESSAGE", tgbotapi.Params{"chat_id": "501", "text": "x", "reply_parameters": `{"message_id":99,"allow_sending_without_reply":true}`})
	if err != nil || !resp.Ok {
		t.Errorf("upper-case method: %+v, %v", resp, err)
	}
	made := s.Ledger(chattest.WithEffect())
	if len(made) != 4 || made[0].Object != "-1001000000001/1" || made[2].Effect != chattest.Changed || made[3].Method != "sendMessage" || made[3].Object != "501/1" {
		t.Errorf("ledger: %+v", made)
	}
}

func asError(err error, e **tgbotapi.Error) bool { return errors.As(err, e) }

func second[T any](_ T, err error) error { return err }

func TestRefusals(t *testing.T) {
	t.Parallel()
	s := telegramtest.Start(t, telegramtest.Options{
		Chats: []telegramtest.Chat{{ID: -1, Type: "group", Title: "old", MigratedTo: -1002}, {ID: -1002, Type: "supergroup", Title: "new", Topics: []telegramtest.Topic{{ID: 7, Name: "db", Closed: true}, {ID: 8, Name: "web"}}}, {ID: -3, Type: "supergroup", Kicked: true}, {ID: -4, Type: "channel", ReadOnly: true}},
		Users: []telegramtest.User{{ID: 1, FirstName: "Ana"}, {ID: 2, FirstName: "Bo", Blocked: true}, {ID: 3, FirstName: "Cho", NeverStarted: true}, {ID: 4, FirstName: "Dee", Deactivated: true}},
	})
	b := bot(t, s)
	p := func(kv ...string) tgbotapi.Params {
		out := tgbotapi.Params{"chat_id": "1", "text": "x"}
		for i := 0; i < len(kv); i += 2 {
			out[kv[i]] = kv[i+1]
		}
		return out
	}
	for _, c := range []struct {
		name   string
		params tgbotapi.Params
		code   int
		want   string
	}{
		{"unknown chat", p("chat_id", "77"), 400, "Bad Request: chat not found"},
		{"never started", p("chat_id", "3"), 400, "Bad Request: chat not found"},
		{"blocked", p("chat_id", "2"), 403, "Forbidden: bot was blocked by the user"},
		{"deactivated", p("chat_id", "4"), 403, "Forbidden: user is deactivated"},
		{"kicked", p("chat_id", "-3"), 403, "Forbidden: bot was kicked from the supergroup chat"},
		{"read only", p("chat_id", "-4"), 400, "Bad Request: need administrator rights in the channel chat"},
		{"migrated", p("chat_id", "-1"), 400, "Bad Request: group chat was upgraded to a supergroup chat"},
		{"closed topic", p("chat_id", "-1002", "message_thread_id", "7"), 400, "Bad Request: TOPIC_CLOSED"},
		{"no topic", p("chat_id", "-1002", "message_thread_id", "9"), 400, "Bad Request: message thread not found"},
		{"topic", p("chat_id", "-1002", "message_thread_id", "8"), 0, ""},
		{"br", p("parse_mode", "HTML", "text", "line<br>"), 400, `Bad Request: can't parse entities: Unsupported start tag "br" at byte offset 4`},
		{"cut tag", p("parse_mode", "HTML", "text", "<b>cut"), 400, `Bad Request: can't parse entities: Can't find end tag corresponding to start tag "b"`},
		{"crossed", p("parse_mode", "HTML", "text", "<b><i>x</b></i>"), 400, `Bad Request: can't parse entities: Unmatched end tag at byte offset 7, expected "</i>", found "</b>"`},
		{"bare less-than", p("parse_mode", "HTML", "text", "a < b"), 400, `Bad Request: can't parse entities: Unsupported start tag "" at byte offset 2`},
		{"empty", p("parse_mode", "HTML", "text", "<b> </b>"), 400, "Bad Request: message text is empty"},
		{"nothing to be seen", p("text", "\u200b\u2800 \ufeff\u202e"), 400, "Bad Request: message text is empty"},
		{"no UTF-8", p("text", "a\xff"), 400, "Bad Request: strings must be encoded in UTF-8"},
		{"4096 after parsing", p("parse_mode", "HTML", "text", "<b>"+strings.Repeat("&lt;", 4096)+"</b>"), 0, ""},
		{"4097", p("text", strings.Repeat("ü", 4097)), 400, "Bad Request: message is too long"},
		{"raw bytes", p("text", strings.Repeat("x", 32769)), 400, "Bad Request: text is too long"},
		{"button data", p("reply_markup", `{"inline_keyboard":[[{"text":"a","callback_data":"`+strings.Repeat("x", 65)+`"}]]}`), 400, "Bad Request: BUTTON_DATA_INVALID"},
		{"button url", p("reply_markup", `{"inline_keyboard":[[{"text":"a","url":"http://localhost:1"}]]}`), 400, "Bad Request: inline keyboard button URL 'http://localhost:1' is invalid: Wrong HTTP URL"},
		{"reply", p("reply_to_message_id", "99"), 400, "Bad Request: message to be replied not found"},
	} {
		_, err := b.MakeRequest("sendMessage", c.params)
		if code, text := refusal(err); code != c.code || text != c.want {
			t.Errorf("%s: %d %q, want %d %q", c.name, code, text, c.code, c.want)
		}
	}
	var e *tgbotapi.Error
	if _, err := b.MakeRequest("sendMessage", p("chat_id", "-1")); !errors.As(err, &e) || e.MigrateToChatID != -1002 {
		t.Errorf("migration names the new chat: %+v", e)
	}
	if code, text := refusal(second(b.MakeRequest("editMessageText", p("message_id", "4000")))); code != 400 || text != "Bad Request: message to edit not found" {
		t.Errorf("edit of nothing: %d %s", code, text)
	}
	for path, want := range map[string]int{"/botjunk/getMe": 404, "/bot1:wrong/getMe": 401, "/bot" + s.Options().Token + "/nothing": 404, "/bot": 404} {
		resp, err := http.Get(s.URL() + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, resp.StatusCode, want)
		}
	}
}

func TestPressReachesTheWebhookWithItsSecretAndTheAnswerIsPrivate(t *testing.T) {
	t.Parallel()
	s := telegramtest.Start(t, telegramtest.Options{})
	b := bot(t, s)
	got := make(chan string, 2)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- r.Header.Get("X-Telegram-Bot-Api-Secret-Token") + " " + string(body)
	}))
	t.Cleanup(receiver.Close)
	if _, err := b.MakeRequest("setWebhook", tgbotapi.Params{"url": receiver.URL, "secret_token": "s3cret"}); err != nil {
		t.Fatal(err)
	}
	if code, _ := refusal(second(b.MakeRequest("setWebhook", tgbotapi.Params{"url": "http://example.com/"}))); code != 400 {
		t.Errorf("a webhook without TLS elsewhere: code %d", code)
	}
	cfg := tgbotapi.NewMessage(501, "disk")
	cfg.ReplyMarkup = tgbotapi.NewInlineKeyboardMarkup(tgbotapi.NewInlineKeyboardRow(tgbotapi.NewInlineKeyboardButtonData("Acknowledge", "ack:inc-1")))
	m, err := b.Send(cfg)
	if err != nil {
		t.Fatal(err)
	}
	a, err := s.Press(t.Context(), 501, m.MessageID, "ack", 501)
	if err != nil || a.Status != 200 || a.Queued {
		t.Fatalf("press: %+v, %v", a, err)
	}
	if u := <-got; !strings.HasPrefix(u, "s3cret ") || !strings.Contains(u, `"data":"ack:inc-1"`) {
		t.Errorf("update: %s", u)
	}
	if _, err := s.Redeliver(t.Context(), a.UpdateID); err != nil {
		t.Fatal(err)
	}
	<-got
	if _, err := b.Request(tgbotapi.CallbackConfig{CallbackQueryID: a.QueryID, Text: "taken by you", ShowAlert: true}); err != nil {
		t.Fatal(err)
	}
	if p := s.Answers(501); len(p) != 1 || p[0].Text != "taken by you" || !p[0].Alert || len(s.Answers(502)) != 0 {
		t.Errorf("answers: %+v", p)
	}
	if code, _ := refusal(second(b.Request(tgbotapi.NewCallback(a.QueryID, "again")))); code != 400 {
		t.Errorf("a second answer: code %d", code)
	}
	if code, _ := refusal(second(b.GetUpdates(tgbotapi.NewUpdate(0)))); code != 409 {
		t.Errorf("getUpdates beside a webhook: code %d", code)
	}
	if _, err := s.Press(t.Context(), 501, m.MessageID, "resolve", 501); err == nil {
		t.Error("pressed a button that is not there")
	}
}

func TestGetUpdatesWaitsAndTwoPollersConflict(t *testing.T) {
	t.Parallel()
	s := telegramtest.Start(t, telegramtest.Options{})
	b := bot(t, s)
	type polled struct {
		updates []tgbotapi.Update
		err     error
	}
	poll := func(offset int) <-chan polled {
		done := make(chan polled, 1)
		n := len(s.Ledger(chattest.ByMethod("getUpdates")))
		go func() {
			u, err := b.GetUpdates(tgbotapi.UpdateConfig{Offset: offset, Timeout: 40})
			done <- polled{u, err}
		}()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if err := s.WaitFor(ctx, func(s *telegramtest.Server) bool { return len(s.Ledger(chattest.ByMethod("getUpdates"))) > n }); err != nil {
			t.Fatal(err)
		}
		return done
	}
	first := poll(0)
	next := poll(0)
	if p := <-first; p.err == nil || !strings.HasPrefix(p.err.Error(), "Conflict: terminated by other getUpdates") {
		t.Errorf("older poller: %+v", p)
	}
	if _, err := s.Say(t.Context(), 502, 502, "/start abc"); err != nil {
		t.Fatal(err)
	}
	p := <-next
	if p.err != nil || len(p.updates) != 1 || p.updates[0].Message.CommandArguments() != "abc" || p.updates[0].Message.From.ID != 502 {
		t.Fatalf("update: %+v", p)
	}
	confirmed := poll(p.updates[0].UpdateID + 1)
	if _, err := s.Say(t.Context(), 501, 501, "hello"); err != nil {
		t.Fatal(err)
	}
	if p := <-confirmed; p.err != nil || len(p.updates) != 1 || p.updates[0].Message.Text != "hello" {
		t.Errorf("after the offset: %+v", p)
	}
}
