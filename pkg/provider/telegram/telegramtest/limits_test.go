package telegramtest_test

import (
	"sync"
	"testing"
	"time"

	tgbotapi "github.com/go-telegram-bot-api/telegram-bot-api/v5"

	"github.com/tocsin-oncall/tocsin/pkg/provider/chattest"
	"github.com/tocsin-oncall/tocsin/pkg/provider/telegram/telegramtest"
)

// clock is a time that tests move.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time { c.mu.Lock(); defer c.mu.Unlock(); return c.at }

func (c *clock) add(d time.Duration) { c.mu.Lock(); defer c.mu.Unlock(); c.at = c.at.Add(d) }

// say sends to a chat and gives the wait that Telegram asks for: 0 when it took the message.
func say(t *testing.T, b *tgbotapi.BotAPI, chat int64) int {
	t.Helper()
	_, err := b.Send(tgbotapi.NewMessage(chat, "hello"))
	if err == nil {
		return 0
	}
	code, text := refusal(err)
	if code != 429 {
		t.Fatalf("%d %s", code, text)
	}
	var e *tgbotapi.Error
	if ok := asError(err, &e); !ok || e.RetryAfter < 1 {
		t.Fatalf("429 without a wait: %v", err)
	}
	return e.RetryAfter
}

func TestLimits(t *testing.T) {
	t.Parallel()
	c := &clock{at: time.Date(2026, 11, 29, 10, 0, 0, 0, time.UTC)}
	s := telegramtest.Start(t, telegramtest.Options{Now: c.now})
	b := bot(t, s)
	for range 50 { // none are in force
		if wait := say(t, b, ops); wait != 0 {
			t.Fatal("limits without being asked")
		}
	}
	s.SetLimits(telegramtest.Limits{Chat: telegramtest.Limit{Most: 1, Per: time.Second}, Group: telegramtest.Limit{Most: 3, Per: time.Minute}, Bot: telegramtest.Limit{Most: 4, Per: 2 * time.Second}, Early: 10 * time.Millisecond})
	c.add(time.Hour)
	for i, step := range []struct {
		after time.Duration
		chat  int64
		wait  int
	}{
		{0, ops, 0},
		{0, 501, 0},                        // another chat has its own second
		{time.Second, ops, 0},              //
		{500 * time.Millisecond, ops, 1},   // half a second too early
		{1000 * time.Millisecond, ops, 0},  // as told: the group's third in a minute
		{995 * time.Millisecond, ops, 57},  // the fourth
		{0, 501, 0},                        // a person has no limit by the minute
		{20 * time.Millisecond, ops, 57},   // it did not wait
		{995 * time.Millisecond, 502, 0},   //
		{0, 503, 0},                        //
		{0, 504, 0},                        // the bot's fourth in two seconds
		{0, 501, 1},                        // the fifth: now the bot is closed
		{500 * time.Millisecond, 504, 1},   // for every chat
		{time.Second, 504, 0},              //
		{60 * time.Second, ops, 0},         //
		{60 * time.Second, -1009999999, 0}, // no such chat: refused for that, see below
	} {
		c.add(step.after)
		if step.chat == -1009999999 {
			if code, _ := refusal(second(b.Send(tgbotapi.NewMessage(step.chat, "x")))); code != 400 {
				t.Errorf("step %d: code %d", i, code)
			}
			continue
		}
		if wait := say(t, b, step.chat); wait != step.wait {
			t.Errorf("step %d: wait %d, want %d", i, wait, step.wait)
		}
	}
	v := s.Violations()
	if len(v) != 2 || v[0].Chat != ops || v[0].Method != "sendMessage" || v[1].Chat != 504 || !v[0].At.Before(v[0].Until) {
		t.Errorf("%+v", v)
	}
}

// Edits count, look-ups do not.
func TestLimitsAreForWhatPeopleSee(t *testing.T) {
	t.Parallel()
	c := &clock{at: time.Date(2026, 11, 29, 10, 0, 0, 0, time.UTC)}
	s := telegramtest.Start(t, telegramtest.Options{Now: c.now})
	s.SetLimits(telegramtest.Usual)
	b := bot(t, s)
	m, err := b.Send(tgbotapi.NewMessage(ops, "one"))
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if _, err := b.MakeRequest("getChat", tgbotapi.Params{"chat_id": "-1001000000001"}); err != nil {
			t.Error(err)
		}
	}
	if code, _ := refusal(second(b.Send(tgbotapi.NewEditMessageText(ops, m.MessageID, "two")))); code != 429 {
		t.Errorf("an edit at once: %d", code)
	}
	c.add(time.Second)
	if _, err := b.Send(tgbotapi.NewEditMessageText(ops, m.MessageID, "two")); err != nil {
		t.Error(err)
	}
	if v := s.Violations(); len(v) != 0 {
		t.Errorf("%+v", v)
	}
}

// A wait that a fault asks for is a wait too, with limits or without.
func TestCallBeforeTheEndOfAFaultsWaitIsNoted(t *testing.T) {
	t.Parallel()
	c := &clock{at: time.Date(2026, 11, 29, 10, 0, 0, 0, time.UTC)}
	s := telegramtest.Start(t, telegramtest.Options{Now: c.now})
	b := bot(t, s)
	for _, after := range []time.Duration{26 * time.Second, 25 * time.Second} {
		s.MustFault(chattest.Fault{Kind: chattest.Limited, RetryAfter: "26", Count: 1})
		if wait := say(t, b, ops); wait != 26 {
			t.Errorf("wait %d", wait)
		}
		c.add(after)
		if wait := say(t, b, 501); wait != 0 { // another chat was told nothing
			t.Errorf("wait %d", wait)
		}
		if wait := say(t, b, ops); wait != 0 {
			t.Errorf("wait %d", wait)
		}
	}
	if v := s.Violations(); len(v) != 1 || v[0].Chat != ops || v[0].Until.Sub(v[0].At) != time.Second {
		t.Errorf("%+v", v)
	}
}

func TestMigrate(t *testing.T) {
	t.Parallel()
	s := telegramtest.Start(t, telegramtest.Options{Chats: []telegramtest.Chat{{ID: -42, Type: "group", Title: "Ops"}}})
	b := bot(t, s)
	old, err := b.Send(tgbotapi.NewMessage(-42, "before"))
	if err != nil {
		t.Fatal(err)
	}
	s.Migrate(-42, -1000000000042)
	for _, call := range []tgbotapi.Chattable{tgbotapi.NewMessage(-42, "after"), tgbotapi.NewEditMessageText(-42, old.MessageID, "x")} {
		_, err := b.Send(call)
		var e *tgbotapi.Error
		if !asError(err, &e) || e.Code != 400 || e.MigrateToChatID != -1000000000042 {
			t.Errorf("%v", err)
		}
	}
	m, err := b.Send(tgbotapi.NewMessage(-1000000000042, "after"))
	if err != nil || m.MessageID != 2 || m.Chat.Type != "supergroup" || m.Chat.Title != "Ops" {
		t.Errorf("%+v, %v", m, err)
	}
	if got := s.Messages(-42); len(got) != 1 {
		t.Errorf("%+v", got)
	}
}

func TestWhatTheBotMayDo(t *testing.T) {
	t.Parallel()
	s := telegramtest.Start(t, telegramtest.Options{Chats: []telegramtest.Chat{
		{ID: -1, Type: "group"}, {ID: -2, Type: "supergroup", ReadOnly: true}, {ID: -3, Type: "channel"}, {ID: -4, Type: "channel", ReadOnly: true}, {ID: -5, Type: "group", Kicked: true},
	}})
	b := bot(t, s)
	for chat, want := range map[int64]string{-1: "member", -2: "restricted", -3: "administrator", -4: "administrator", -5: ""} {
		m, err := b.GetChatMember(tgbotapi.GetChatMemberConfig{ChatConfigWithUser: tgbotapi.ChatConfigWithUser{ChatID: chat, UserID: b.Self.ID}})
		if code, _ := refusal(err); m.Status != want || (code == 403) != (want == "") || m.CanPostMessages != (chat == -3) {
			t.Errorf("%d: %+v, %v", chat, m, err)
		}
	}
	if code, _ := refusal(second(b.GetChatMember(tgbotapi.GetChatMemberConfig{ChatConfigWithUser: tgbotapi.ChatConfigWithUser{ChatID: -1, UserID: 99}}))); code != 400 {
		t.Errorf("a stranger: %d", code)
	}
}
