package telegram_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/message"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
	"github.com/tocsin-oncall/tocsin/pkg/provider/chattest"
	"github.com/tocsin-oncall/tocsin/pkg/provider/telegram"
	"github.com/tocsin-oncall/tocsin/pkg/provider/telegram/telegramtest"
)

// What has gone wrong between other programs and Telegram, each as it was reported by those who ran them.

func create(m message.Message) provider.Call {
	return provider.Call{Operation: delivery.OpCreate, Address: "-1001000000001", Key: "key-1", Message: m}
}

// only is the one message in a chat.
func only(t *testing.T, s *telegramtest.Server, chat int64) telegramtest.Message {
	t.Helper()
	all := s.Messages(chat)
	if len(all) != 1 {
		t.Fatalf("%d messages in %d", len(all), chat)
	}
	return all[0]
}

func TestLongTextFullOfMarkupCharactersIsCutBeforeItIsMarkedUp(t *testing.T) {
	t.Parallel()
	s, p := start(t, telegramtest.Options{})
	for n := 4080; n < 4110; n++ {
		m := message.Message{Title: strings.Repeat("<", n), Text: strings.Repeat("a&b<", n/4) + strings.Repeat("x", n%4)}
		if res := p.Do(t.Context(), create(m)); res.Outcome != delivery.OutcomeSent {
			t.Fatalf("%d: %+v", n, res)
		}
	}
	if n := len(s.Messages(ops)); n != 30 {
		t.Errorf("%d messages", n)
	}
}

func TestLessThanSignInALabelIsText(t *testing.T) {
	t.Parallel()
	s, p := start(t, telegramtest.Options{})
	m := message.Message{Title: "up <instance>", Fields: []message.Field{{Name: "job<1>", Value: `a<b & "c"`}}, Items: []message.Item{{Title: "<b>bold</b>", Detail: "<no value>"}}}
	if res := p.Do(t.Context(), create(m)); res.Outcome != delivery.OutcomeSent {
		t.Fatalf("%+v", res)
	}
	if got := only(t, s, ops); got.Text != "up <instance>\n\njob<1>: a<b & \"c\"\n\n🔴 <b>bold</b> — <no value>" {
		t.Errorf("%q", got.Text)
	}
}

func TestRefusedMarkupIsNotTriedAgainAsItIs(t *testing.T) {
	t.Parallel()
	s, p := start(t, telegramtest.Options{})
	s.MustFault(chattest.Fault{Kind: chattest.Code, Code: `Bad Request: can't parse entities: Unsupported start tag "no" at byte offset 9`, Count: 1})
	res := p.Do(t.Context(), create(openCard()))
	if res.Outcome != delivery.OutcomeFailed || res.Fault != delivery.FaultPayload || res.Refused != "" || res.RetryAfter != 0 {
		t.Fatalf("%+v", res)
	}
	plain := create(openCard())
	plain.Form = delivery.Form{Plain: true}
	if res := p.Do(t.Context(), plain); res.Outcome != delivery.OutcomeSent {
		t.Fatalf("%+v", res)
	}
	if got := only(t, s, ops); len(got.Keyboard) != 0 || !strings.HasPrefix(got.Text, "🔴 Disk full on db1\nOpen · critical") || !strings.Contains(got.Text, "Incident: https://tocsin.test/incidents/1") {
		t.Errorf("%+v", got)
	}
}

func TestThirtyFiveAlertsInOneMessageAreAllAccountedFor(t *testing.T) {
	t.Parallel()
	s, p := start(t, telegramtest.Options{})
	m := message.Message{State: message.Open, Title: "Pods crash", MoreURL: "https://tocsin.test/incidents/1"}
	for i := range 35 {
		m.Items = append(m.Items, message.Item{Title: fmt.Sprintf("pod-%d", i), Detail: strings.Repeat("namespace=shop ", 40)})
	}
	if res := p.Do(t.Context(), create(m)); res.Outcome != delivery.OutcomeSent {
		t.Fatalf("%+v", res)
	}
	got := only(t, s, ops)
	shown := strings.Count(got.Text, "🔴 pod-")
	if shown == 0 || !strings.HasSuffix(got.Text, fmt.Sprintf("\nand %d more", 35-shown)) {
		t.Errorf("%d shown, and then %q", shown, got.Text[len(got.Text)-40:])
	}
	if e := got.Entities[len(got.Entities)-1]; e.Type != "text_link" || e.URL != m.MoreURL {
		t.Errorf("the rest leads to %+v", e)
	}
}

func TestLineBreakStaysALineBreak(t *testing.T) {
	t.Parallel()
	s, p := start(t, telegramtest.Options{})
	if res := p.Do(t.Context(), create(message.Message{Title: "a", Text: "one\ntwo\n\nthree<br/>"})); res.Outcome != delivery.OutcomeSent {
		t.Fatalf("%+v", res)
	}
	if got := only(t, s, ops); got.Text != "a\n\none\ntwo\n\nthree<br/>" {
		t.Errorf("%q", got.Text)
	}
}

func TestGroupThatBecameASupergroupNamesItsNewIDAndGetsTheMessageOnce(t *testing.T) {
	t.Parallel()
	s, p := start(t, telegramtest.Options{Chats: []telegramtest.Chat{{ID: -42, Type: "group", Title: "Ops"}}})
	c := create(openCard())
	c.Address = "-42"
	card := p.Do(t.Context(), c)
	if card.Outcome != delivery.OutcomeSent {
		t.Fatalf("%+v", card)
	}
	s.Migrate(-42, -1000000000042)
	res := p.Do(t.Context(), c)
	if res.Outcome != delivery.OutcomeFailed || res.Fault != delivery.FaultMoved || res.MovedTo != "-1000000000042" || !strings.Contains(res.Sentence, "chat_id: -1000000000042 in the file") {
		t.Fatalf("%+v", res)
	}
	c.Address = res.MovedTo
	if res := p.Do(t.Context(), c); res.Outcome != delivery.OutcomeSent || res.Reference.ChatID != -1000000000042 {
		t.Errorf("%+v", res)
	}
	only(t, s, -1000000000042)

	// What was made before cannot be edited any more.
	edit := provider.Call{Operation: delivery.OpEdit, Key: "key-1", Reference: card.Reference, Message: openCard()}
	if res := p.Do(t.Context(), edit); res.Fault != delivery.FaultMoved || res.MovedTo != "-1000000000042" {
		t.Errorf("%+v", res)
	}
	// A reply goes to the new place as a message of its own, since its parent's number is another message's there.
	reply := provider.Call{Operation: delivery.OpReply, Key: "key-2", Reference: card.Reference, Message: message.Message{Title: "Resolved"}}
	if res := p.Do(t.Context(), reply); res.Fault != delivery.FaultMoved || res.MovedTo != "-1000000000042" {
		t.Errorf("%+v", res)
	}
	reply.Address = "-1000000000042"
	if res := p.Do(t.Context(), reply); res.Outcome != delivery.OutcomeSent || res.Reference.ChatID != -1000000000042 {
		t.Errorf("%+v", res)
	}
	if all := s.Messages(-1000000000042); len(all) != 2 || all[1].ReplyTo != 0 || all[1].Text != "Resolved" {
		t.Errorf("%+v", all)
	}
}

func TestTopicThatIsClosedOrGoneIsForAPersonToMend(t *testing.T) {
	t.Parallel()
	s := telegramtest.Start(t, telegramtest.Options{Chats: []telegramtest.Chat{{ID: ops, Type: "supergroup", Title: "Ops", Topics: []telegramtest.Topic{{ID: 7, Name: "db", Closed: true}, {ID: 8, Name: "web"}}}}})
	for thread, want := range map[int]string{7: "destination:topic_closed", 9: "destination:topic_not_found", 1: "destination:topic_not_found", 8: ""} {
		p, err := telegram.New(config.Notifier{Name: "ops", Token: s.Options().Token, APIURL: s.APIURL(), MessageThreadID: thread}, nil)
		if err != nil {
			t.Fatal(err)
		}
		res := p.Do(t.Context(), create(openCard()))
		if res.Reason != want || want != "" && (res.Fault != delivery.FaultDestination || !strings.Contains(res.Sentence, "message_thread_id")) {
			t.Errorf("%d: %+v", thread, res)
		}
	}
	// The refusals are nowhere in the chat, and the message that went out stands in its topic.
	if got := only(t, s, ops); got.Thread != 8 || strings.Contains(got.Text, "thread not found") {
		t.Errorf("%+v", got)
	}
}

func TestPageOfTheServerInFrontSaysNothingAboutTheMessage(t *testing.T) {
	t.Parallel()
	for _, happens := range []bool{false, true} {
		for _, status := range []int{500, 502, 503, 504} {
			for _, form := range []bool{false, true} {
				s, p := start(t, telegramtest.Options{})
				s.MustFault(chattest.Fault{Kind: chattest.Error, Status: status, JSON: form, Happens: happens})
				res := p.Do(t.Context(), create(openCard()))
				if res.Outcome != delivery.OutcomeUnknown || res.HTTPStatus != status || res.Fault != "" || res.Unlisted {
					t.Errorf("%d, JSON %v: %+v", status, form, res)
				}
				if n := len(s.Ledger(chattest.ByMethod("sendMessage"))); n != 1 {
					t.Errorf("%d requests", n)
				}
			}
		}
	}
}

func TestErrorsOfTheConnectionDoNotTellTheToken(t *testing.T) {
	t.Parallel()
	for _, kind := range []chattest.Kind{chattest.Reset, chattest.Drop, chattest.Hang, chattest.Cut, chattest.Refuse, chattest.Revoked} {
		s := telegramtest.Start(t, telegramtest.Options{})
		p, err := telegram.New(config.Notifier{Name: "ops", Token: s.Options().Token, APIURL: s.APIURL(), Timeout: 300 * time.Millisecond}, nil)
		if err != nil {
			t.Fatal(err)
		}
		s.MustFault(chattest.Fault{Kind: kind})
		_, secret, _ := strings.Cut(s.Options().Token, ":")
		res := p.Do(t.Context(), create(openCard()))
		if res.Outcome == delivery.OutcomeSent || res.Error == "" || strings.Contains(fmt.Sprintf("%+v", res), secret) {
			t.Errorf("%s: %+v", kind, res)
		}
		if err := p.Whisper(t.Context(), "query", "hello"); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

func TestAnswerLostAfterDeliveryIsOneMessageAndUnknown(t *testing.T) {
	t.Parallel()
	s, p := start(t, telegramtest.Options{})
	s.MustFault(chattest.Fault{Kind: chattest.Drop, Count: 1})
	if res := p.Do(t.Context(), create(openCard())); res.Outcome != delivery.OutcomeUnknown || res.Evidence != delivery.PossiblySent || res.Bytes == 0 {
		t.Errorf("%+v", res)
	}
	only(t, s, ops)
	s.MustFault(chattest.Fault{Kind: chattest.Refuse})
	if res := p.Do(t.Context(), create(openCard())); res.Outcome != delivery.OutcomeFailed || res.Fault != delivery.FaultTransient || res.Evidence != delivery.NotSent {
		t.Errorf("nobody listens: %+v", res)
	}
	only(t, s, ops)
}

func TestEditThatChangesNothingIsASuccess(t *testing.T) {
	t.Parallel()
	s, p := start(t, telegramtest.Options{})
	made := p.Do(t.Context(), create(openCard()))
	edit := provider.Call{Operation: delivery.OpEdit, Key: "key-1", Reference: made.Reference, Message: openCard()}
	if res := p.Do(t.Context(), edit); res.Outcome != delivery.OutcomeSent || res.Fault != "" || res.Reason != "" || res.Sentence != "" || res.Reference != made.Reference {
		t.Errorf("%+v", res)
	}
	// The answer to an edit gets lost; the same edit again proves that it is there.
	edit.Message.State = message.Resolved
	s.MustFault(chattest.Fault{Kind: chattest.Drop, Count: 1})
	for i, want := range []delivery.Outcome{delivery.OutcomeUnknown, delivery.OutcomeSent} {
		if res := p.Do(t.Context(), edit); res.Outcome != want {
			t.Errorf("%d: %+v", i, res)
		}
	}
	if got := only(t, s, ops); !strings.HasPrefix(got.Text, "🟢") || len(got.Edits) != 1 {
		t.Errorf("%+v", got)
	}
}

func TestJunkTokenThatIsSentToTelegramsHomePageIsTheAccountsFault(t *testing.T) {
	t.Parallel()
	home := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "https://core.telegram.org/bots")
		w.WriteHeader(http.StatusFound)
		_, _ = fmt.Fprint(w, "<html>", strings.Repeat("x", 27_000))
	}))
	t.Cleanup(home.Close)
	p, err := telegram.New(config.Notifier{Name: "ops", Token: "junk-token", APIURL: home.URL}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, res := range []delivery.Result{p.Do(t.Context(), create(openCard())), p.Probe(t.Context(), "malformed_token")} {
		if res.Outcome != delivery.OutcomeFailed || res.Fault != delivery.FaultAccount || res.Reason != "account:malformed_token" || !strings.Contains(res.Sentence, "@BotFather") {
			t.Errorf("%+v", res)
		}
	}
}

func TestTooManyMessagesWaitAsTelegramSays(t *testing.T) {
	t.Parallel()
	s, p := start(t, telegramtest.Options{})
	s.SetLimits(telegramtest.Limits{Chat: telegramtest.Limit{Most: 1, Per: time.Hour}})
	if res := p.Do(t.Context(), create(openCard())); res.Outcome != delivery.OutcomeSent {
		t.Fatalf("%+v", res)
	}
	res := p.Do(t.Context(), create(openCard()))
	if res.Outcome != delivery.OutcomeFailed || res.Fault != delivery.FaultThrottled || res.RetryAfter < 59*time.Minute || res.RetryAfter > time.Hour {
		t.Errorf("%+v", res)
	}
	only(t, s, ops)
}

func TestTwoProgramsThatFetchUpdatesDoNotBreakSending(t *testing.T) {
	t.Parallel()
	s, p := start(t, telegramtest.Options{})
	s.MustFault(chattest.Fault{Kind: chattest.Code, Status: 409, Code: "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running", Count: 1})
	if res := p.Do(t.Context(), create(openCard())); res.Outcome != delivery.OutcomeFailed || res.Fault != delivery.FaultTransient {
		t.Errorf("%+v", res)
	}
	if res := p.Do(t.Context(), create(openCard())); res.Outcome != delivery.OutcomeSent {
		t.Errorf("%+v", res)
	}
}

func TestButtonThatTelegramRefusesIsLeftOutNextTime(t *testing.T) {
	t.Parallel()
	for _, words := range []string{
		"Bad Request: BUTTON_URL_INVALID", "Bad Request: BUTTON_DATA_INVALID", "Bad Request: inline keyboard button URL 'x' is invalid: Wrong HTTP URL",
		"Bad Request: wrong HTTP URL specified", "Bad Request: reply markup is too long",
	} {
		s, p := start(t, telegramtest.Options{})
		s.MustFault(chattest.Fault{Kind: chattest.Code, Code: words, Count: 1})
		c := create(openCard())
		if res := p.Do(t.Context(), c); res.Fault != delivery.FaultPayload || res.Refused != delivery.PartButtons {
			t.Errorf("%s: %+v", words, res)
		}
		c.Form.NoButtons = true
		if res := p.Do(t.Context(), c); res.Outcome != delivery.OutcomeSent || len(only(t, s, ops).Keyboard) != 0 {
			t.Errorf("%s: %+v", words, res)
		}
	}
}
