package telegram_test

import (
	"io"
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

const ops = -1001000000001

func start(t *testing.T, o telegramtest.Options) (*telegramtest.Server, *telegram.Provider) {
	t.Helper()
	s := telegramtest.Start(t, o)
	p, err := telegram.New(config.Notifier{Name: "ops-telegram", Token: s.Options().Token, APIURL: s.APIURL(), Timeout: 2 * time.Second}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s, p
}

func openCard() message.Message {
	m := message.Message{
		State: message.Open, Severity: "critical", Title: "Disk full on db1", Text: `a < b & "c" <no value>`,
		Links:   []message.Link{{Title: "Incident", URL: "https://tocsin.test/incidents/1"}},
		Buttons: []message.Button{{Action: "ack", Label: "Acknowledge", Value: "0198c0de-0000-7000-8000-000000000001"}},
	}
	for range 500 {
		m.Items = append(m.Items, message.Item{Title: strings.Repeat("<&>", 900)})
		m.Fields = append(m.Fields, message.Field{Name: "a_b*c[", Value: strings.Repeat("&", 3001)})
	}
	return m
}

func TestLifeOfACard(t *testing.T) {
	t.Parallel()
	s, p := start(t, telegramtest.Options{})
	made := p.Do(t.Context(), provider.Call{Operation: delivery.OpCreate, Address: "-1001000000001", Key: "key-1", Message: openCard()})
	if made.Outcome != delivery.OutcomeSent || made.Reference.ChatID != ops {
		t.Fatalf("%+v", made)
	}
	m, ok := s.Message(ops, made.Reference.MessageID)
	if !ok || !strings.HasPrefix(m.Text, "🔴 Disk full on db1\nOpen · critical\n\na < b & \"c\" <no value>") || len(m.Keyboard) != 1 {
		t.Fatalf("%+v", m)
	}
	edit := provider.Call{Operation: delivery.OpEdit, Key: "key-1", Reference: made.Reference, Message: openCard()}
	edit.Message.State, edit.Message.Buttons = message.Acknowledged, nil
	for range 2 { // the second is "not modified"
		if res := p.Do(t.Context(), edit); res.Outcome != delivery.OutcomeSent || res.Reference != made.Reference {
			t.Fatalf("%+v", res)
		}
	}
	m, _ = s.Message(ops, made.Reference.MessageID)
	if !strings.HasPrefix(m.Text, "🟡 ") || len(m.Edits) != 1 || len(m.Keyboard) != 0 {
		t.Errorf("%+v", m)
	}
	reply := p.Do(t.Context(), provider.Call{Operation: delivery.OpReply, Key: "key-2", Reference: made.Reference, Message: message.Message{Title: "Resolved"}})
	if r, _ := s.Message(ops, reply.Reference.MessageID); reply.Outcome != delivery.OutcomeSent || r.ReplyTo != made.Reference.MessageID || r.Text != "Resolved" {
		t.Errorf("%+v, %+v", reply, r)
	}
}

// Each fault of the simulated chat, with what really happened beside what is claimed.
func TestFaults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fault   chattest.Fault
		outcome delivery.Outcome
		fail    delivery.Fault
		happens bool
	}{
		{chattest.Fault{Kind: chattest.Refuse}, delivery.OutcomeFailed, delivery.FaultTransient, false},
		{chattest.Fault{Kind: chattest.Reset}, delivery.OutcomeUnknown, "", false},
		{chattest.Fault{Kind: chattest.Drop}, delivery.OutcomeUnknown, "", true},
		{chattest.Fault{Kind: chattest.Hang}, delivery.OutcomeUnknown, "", false},
		{chattest.Fault{Kind: chattest.Slow, Interval: chattest.Duration(time.Second)}, delivery.OutcomeUnknown, "", true},
		{chattest.Fault{Kind: chattest.Limited, RetryAfter: "26"}, delivery.OutcomeFailed, delivery.FaultThrottled, false},
		{chattest.Fault{Kind: chattest.Error, Status: 502}, delivery.OutcomeUnknown, "", false},
		{chattest.Fault{Kind: chattest.Code, Code: "Bad Request: chat not found"}, delivery.OutcomeFailed, delivery.FaultDestination, false},
		{chattest.Fault{Kind: chattest.Revoked}, delivery.OutcomeFailed, delivery.FaultAccount, false},
		{chattest.Fault{Kind: chattest.Cut}, delivery.OutcomeUnknown, "", true},
	} {
		t.Run(string(c.fault.Kind), func(t *testing.T) {
			t.Parallel()
			s, p := start(t, telegramtest.Options{})
			s.MustFault(c.fault)
			res := p.Do(t.Context(), provider.Call{Operation: delivery.OpCreate, Address: "-1001000000001", Key: "key-1", Message: openCard()})
			if res.Outcome != c.outcome || res.Fault != c.fail {
				t.Errorf("%+v", res)
			}
			if happened := len(s.Messages(ops)) > 0; happened != c.happens {
				t.Errorf("the message is there: %v", happened)
			} else if happened && res.Outcome == delivery.OutcomeFailed {
				t.Error("failed, and it happened")
			}
		})
	}
}

func TestPressAndWhisper(t *testing.T) {
	t.Parallel()
	presses := make(chan telegram.Press, 1)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		if err := telegram.VerifySecret(r.Header, "hook-secret"); err != nil {
			t.Error(err)
		}
		press, err := telegram.ParseUpdate(body)
		if err != nil {
			t.Error(err)
		}
		presses <- press
	}))
	defer receiver.Close()
	s, p := start(t, telegramtest.Options{WebhookURL: receiver.URL, WebhookSecret: "hook-secret"})
	made := p.Do(t.Context(), provider.Call{Operation: delivery.OpCreate, Address: "501", Key: "key-1", Message: openCard()})
	if made.Outcome != delivery.OutcomeSent {
		t.Fatalf("%+v", made)
	}
	if _, err := s.Press(t.Context(), 501, made.Reference.MessageID, "ack", 501); err != nil {
		t.Fatal(err)
	}
	press := <-presses
	if press.Action != "ack" || press.Value != "0198c0de-0000-7000-8000-000000000001" || press.UserID != 501 || press.Username != "ana" || press.MessageID != made.Reference.MessageID || press.ChatID != 501 {
		t.Errorf("%+v", press)
	}
	if err := p.Whisper(t.Context(), press.CallbackID, "You acknowledged it"); err != nil {
		t.Fatal(err)
	}
	if a := s.Answers(501); len(a) != 1 || a[0].Text != "You acknowledged it" || !a[0].Alert {
		t.Errorf("%+v", a)
	}
}
