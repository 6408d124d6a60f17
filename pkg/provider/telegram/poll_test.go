package telegram_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/provider/chattest"
	"github.com/tocsin-oncall/tocsin/pkg/provider/telegram"
	"github.com/tocsin-oncall/tocsin/pkg/provider/telegram/telegramtest"
)

// asked is a poll that must bring nothing, and why.
func asked(t *testing.T, s *telegramtest.Server, p *telegram.Provider) *telegram.PollError {
	t.Helper()
	got, err := p.Poll(t.Context(), 7)
	var e *telegram.PollError
	if !errors.As(err, &e) || len(got.Said) > 0 || got.Next != 0 {
		t.Fatalf("%+v, %v", got, err)
	}
	if _, secret, _ := strings.Cut(s.Options().Token, ":"); e.Text == "" || strings.Contains(e.Text, secret) {
		t.Errorf("it says %q", e.Text)
	}
	return e
}

func TestPollBringsWhatPeopleDo(t *testing.T) {
	t.Parallel()
	s, p := start(t, telegramtest.Options{})
	for _, text := range []string{"hello", "/who primary", "/start abc"} {
		if a, err := s.Say(t.Context(), 501, 501, text); err != nil || !a.Queued {
			t.Fatalf("%+v, %v", a, err)
		}
	}
	got, err := p.Poll(t.Context(), 0)
	if err != nil || len(got.Said) != 2 || len(got.Skipped) != 0 {
		t.Fatalf("%+v, %v", got, err)
	}
	if a, b := got.Said[0], got.Said[1]; a.Command != "who" || a.Text != "primary" || b.Command != "start" || b.Text != "abc" || a.Account != "501" || !a.Alone || a.Key == b.Key {
		t.Errorf("%+v", got.Said)
	}
	// Asking from there on confirms all of it, and what can't be read holds nothing up.
	s.MustFault(chattest.Fault{Kind: chattest.Answer, Method: "getUpdates", Count: 1, Body: `{"ok":true,"result":[{"update_id":2040,"callback_query":{"data":"ack:x"}},
		{"update_id":2041,"message":{"message_id":1,"from":{"id":501},"chat":{"id":501,"type":"private"},"text":"/who"}},{"update_id":2042,"edited_message":{}}]}`})
	odd, err := p.Poll(t.Context(), got.Next)
	if err != nil || odd.Next != 2043 || len(odd.Said) != 1 || len(odd.Skipped) != 1 || !strings.Contains(odd.Skipped[0], "update 2040") {
		t.Fatalf("%+v, %v", odd, err)
	}
	quiet, err := p.Poll(t.Context(), odd.Next)
	if err != nil || len(quiet.Said) != 0 || quiet.Next != odd.Next {
		t.Errorf("%+v, %v", quiet, err)
	}
}

// Each way in which Telegram does not answer says what is wrong and how to mend it, and how long Telegram wants to be left alone.
func TestPollThatIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault          chattest.Fault
		says           string
		webhook, other bool
		rest           time.Duration
	}{
		"another poller": {fault: chattest.Fault{Kind: chattest.Code, Status: 409, Code: "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running"},
			says: "another program asks for updates with this bot's token", other: true},
		"a webhook": {fault: chattest.Fault{Kind: chattest.Code, Status: 409, Code: "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first"},
			says: "delete it", webhook: true},
		"too often":      {fault: chattest.Fault{Kind: chattest.Limited, RetryAfter: "17"}, says: "asked again after 17s", rest: 17 * time.Second},
		"revoked":        {fault: chattest.Fault{Kind: chattest.Revoked}, says: "BotFather"},
		"no such method": {fault: chattest.Fault{Kind: chattest.Code, Status: 404, Code: "Not Found"}, says: "Not Found"},
		"wrong":          {fault: chattest.Fault{Kind: chattest.Code, Status: 400, Code: "Bad Request: offset is wrong"}, says: "offset is wrong"},
		"the server":     {fault: chattest.Fault{Kind: chattest.Error, Status: 502}, says: "the server answered 502"},
		"cut":            {fault: chattest.Fault{Kind: chattest.Reset}, says: "telegram: "},
		"no list":        {fault: chattest.Fault{Kind: chattest.Answer, Body: `{"ok":true,"result":{"update_id":1}}`}, says: "no list of updates"},
		"no number":      {fault: chattest.Fault{Kind: chattest.Answer, Body: `{"ok":true,"result":[{"message":{}}]}`}, says: "has no number"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p := start(t, telegramtest.Options{})
			c.fault.Method = "getUpdates"
			s.MustFault(c.fault)
			if e := asked(t, s, p); e.Webhook != c.webhook || e.Other != c.other || e.Rest.Round(time.Second) != c.rest || !strings.Contains(e.Text, c.says) {
				t.Errorf("%+v", e)
			}
		})
	}
}

// The real conflicts: of two who ask, the newer one ends the older one's wait; and beside a webhook nobody is given anything.
func TestPollMeetsAnotherWayOfUpdates(t *testing.T) {
	t.Parallel()
	_, p := start(t, telegramtest.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ended := make(chan error, 2)
	for range 2 {
		go func() { // whoever is alone hears after a while that there is nothing, and asks again
			for {
				if _, err := p.Poll(ctx, 0); err != nil {
					ended <- err
					return
				}
			}
		}()
	}
	var e *telegram.PollError
	if err := <-ended; !errors.As(err, &e) || !e.Other || e.Webhook {
		t.Errorf("%v", err)
	}
	hooked, q := start(t, telegramtest.Options{WebhookURL: hookURL, WebhookSecret: "hook-secret"})
	if e := asked(t, hooked, q); !e.Webhook || e.Other || !strings.Contains(e.Text, "use webhook_secret instead of poll") {
		t.Errorf("%+v", e)
	}
}
