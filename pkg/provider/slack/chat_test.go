package slack_test

import (
	"encoding/json"
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
	"github.com/tocsin-oncall/tocsin/pkg/provider/slack"
	"github.com/tocsin-oncall/tocsin/pkg/provider/slack/slacktest"
)

func start(t *testing.T) (*slacktest.Server, *slack.Provider) {
	t.Helper()
	s := slacktest.Start(t, slacktest.Options{})
	p, err := slack.New(config.Notifier{Name: "ops-slack", Token: s.Options().Token, APIURL: s.APIURL(), Timeout: 2 * time.Second}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s, p
}

func openCard() message.Message {
	m := message.Message{
		State: message.Open, Severity: "critical", Title: "Disk full on db1", Text: `a < b & "c" <no value>`,
		Links:   []message.Link{{Title: "Incident", URL: "https://tocsin.test/incidents/1"}},
		Buttons: []message.Button{{Action: "ack", Label: "Acknowledge", Value: "incident-1", Style: "primary"}},
	}
	for range 500 {
		m.Items = append(m.Items, message.Item{Title: strings.Repeat("<&>", 900)})
		m.Fields = append(m.Fields, message.Field{Name: "a_b*c[", Value: strings.Repeat("&", 3001)})
	}
	return m
}

func TestLifeOfACard(t *testing.T) {
	t.Parallel()
	s, p := start(t)
	create := provider.Call{Operation: delivery.OpCreate, Address: "C0OPS", Key: "key-1", Message: openCard()}
	made := p.Do(t.Context(), create)
	if made.Outcome != delivery.OutcomeSent {
		t.Fatalf("%+v", made)
	}
	m, ok := s.Message(made.Reference.TS)
	if !ok || m.Colour() != "d92d20" || m.Key != "key-1" || !strings.HasPrefix(m.Text, "🔴 Disk full on db1") {
		t.Fatalf("%+v", m)
	}
	edit := provider.Call{Operation: delivery.OpEdit, Key: "key-1", Reference: made.Reference, Message: openCard()}
	edit.Message.State, edit.Message.Buttons = message.Acknowledged, nil
	if res := p.Do(t.Context(), edit); res.Outcome != delivery.OutcomeSent {
		t.Fatalf("%+v", res)
	}
	m, _ = s.Message(made.Reference.TS)
	if m.Colour() != "f5b301" || len(m.Edits) != 1 || strings.Contains(string(m.Attachments), `"ack"`) || m.Key != "key-1" {
		t.Errorf("%+v", m)
	}
	reply := provider.Call{Operation: delivery.OpReply, Key: "key-2", Reference: made.Reference, Message: message.Message{Text: "Resolved"}, Broadcast: true}
	if res := p.Do(t.Context(), reply); res.Outcome != delivery.OutcomeSent || res.Code != "" {
		t.Fatalf("%+v", res)
	}
	if r := s.Replies("C0OPS", made.Reference.TS); len(r) != 1 || !r[0].Broadcast || r[0].Key != "key-2" {
		t.Errorf("%+v", r)
	}
	if link := p.Link(t.Context(), made.Reference); !strings.HasPrefix(link, s.URL()) || !strings.Contains(link, "C0OPS") {
		t.Errorf("link %q", link)
	}
}

func TestPageIsEditedByItsResolvedChannel(t *testing.T) {
	t.Parallel()
	s, p := start(t)
	made := p.Do(t.Context(), provider.Call{Operation: delivery.OpCreate, Address: "U0ANA", Key: "key-1", Message: openCard()})
	if made.Outcome != delivery.OutcomeSent || !strings.HasPrefix(made.Reference.Channel, "D") {
		t.Fatalf("%+v", made)
	}
	edit := provider.Call{Operation: delivery.OpEdit, Address: "U0ANA", Key: "key-1", Reference: made.Reference, Message: openCard()}
	edit.Message.State = message.Resolved
	if res := p.Do(t.Context(), edit); res.Outcome != delivery.OutcomeSent {
		t.Fatalf("%+v", res)
	}
	if m, _ := s.Message(made.Reference.TS); m.Colour() != "12a150" {
		t.Errorf("colour %s", m.Colour())
	}
}

// Each fault of the simulated workspace, with what really happened beside what is claimed.
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
		{chattest.Fault{Kind: chattest.Reset, Happens: true}, delivery.OutcomeUnknown, "", true},
		{chattest.Fault{Kind: chattest.Drop}, delivery.OutcomeUnknown, "", true},
		{chattest.Fault{Kind: chattest.Hang}, delivery.OutcomeUnknown, "", false},
		{chattest.Fault{Kind: chattest.Slow, Interval: chattest.Duration(time.Second)}, delivery.OutcomeUnknown, "", true},
		{chattest.Fault{Kind: chattest.Limited, RetryAfter: "26"}, delivery.OutcomeFailed, delivery.FaultThrottled, false},
		{chattest.Fault{Kind: chattest.Error, Status: 503}, delivery.OutcomeUnknown, "", false},
		{chattest.Fault{Kind: chattest.Code, Code: "is_archived"}, delivery.OutcomeFailed, delivery.FaultDestination, false},
		{chattest.Fault{Kind: chattest.Revoked}, delivery.OutcomeFailed, delivery.FaultAccount, false},
		{chattest.Fault{Kind: chattest.Cut}, delivery.OutcomeUnknown, "", true},
	} {
		t.Run(string(c.fault.Kind), func(t *testing.T) {
			t.Parallel()
			s, p := start(t)
			s.MustFault(c.fault)
			res := p.Do(t.Context(), provider.Call{Operation: delivery.OpCreate, Address: "C0OPS", Key: "key-1", Message: openCard()})
			if res.Outcome != c.outcome || res.Fault != c.fail {
				t.Errorf("%+v", res)
			}
			if happened := len(s.Messages("C0OPS")) > 0; happened != c.happens {
				t.Errorf("the message is there: %v", happened)
			} else if happened && res.Outcome == delivery.OutcomeFailed {
				t.Error("failed, and it happened")
			}
		})
	}
}

// A press comes signed; the one who pressed is answered by the response_url that came with it.
func TestPressAndWhisper(t *testing.T) {
	t.Parallel()
	s, p := start(t)
	presses := make(chan slack.Press, 1)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		if err := slack.VerifySignature(s.Options().SigningSecret, r.Header, body, time.Now()); err != nil {
			t.Error(err)
		}
		press, err := slack.ParseInteraction(body)
		if err != nil {
			t.Error(err)
		}
		presses <- press
	}))
	defer receiver.Close()
	s.SetInteractionURL(receiver.URL)
	made := p.Do(t.Context(), provider.Call{Operation: delivery.OpCreate, Address: "C0OPS", Key: "key-1", Message: openCard()})
	if _, err := s.Press(t.Context(), made.Reference.TS, "ack", "U0ANA"); err != nil {
		t.Fatal(err)
	}
	press := <-presses
	if press.Action != "ack" || press.Value != "incident-1" || press.UserID != "U0ANA" || press.MessageTS != made.Reference.TS || press.Channel != "C0OPS" || press.ActionTS == "" || press.TriggerID == "" {
		t.Errorf("%+v", press)
	}
	if err := p.Whisper(t.Context(), press.ResponseURL, "You acknowledged it"); err != nil {
		t.Fatal(err)
	}
	if e := s.Ephemerals("U0ANA"); len(e) != 1 || e[0].Text != "You acknowledged it" {
		t.Errorf("%+v", e)
	}
}

// A callback without a response_url: the presser is answered in the channel, for them alone.
func TestWhisperWithoutAResponseURL(t *testing.T) {
	t.Parallel()
	s, p := start(t)
	if err := p.Whisper(t.Context(), slack.EphemeralTo("C0OPS", "U0ANA"), "You acknowledged it"); err != nil {
		t.Fatal(err)
	}
	if e := s.Ephemerals("U0ANA"); len(e) != 1 || e[0].Text != "You acknowledged it" {
		t.Errorf("%+v", e)
	}
	if m := s.Messages("C0OPS"); len(m) != 0 {
		t.Errorf("everybody sees %+v", m)
	}
	for _, to := range []string{slack.EphemeralTo("", "U0ANA"), slack.EphemeralTo("C0OPS", ""), slack.EphemeralTo("C0NONE", "U0ANA")} {
		if err := p.Whisper(t.Context(), to, "hello"); err == nil {
			t.Errorf("%q: no error", to)
		}
	}
}

func TestIncomingWebhook(t *testing.T) {
	t.Parallel()
	s, _ := start(t)
	p, err := slack.New(config.Notifier{Name: "hook-slack", WebhookURL: s.WebhookURL()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if res := p.Do(t.Context(), provider.Call{Operation: delivery.OpCreate, Key: "key-1", Message: openCard()}); res.Outcome != delivery.OutcomeSent {
		t.Fatalf("%+v", res)
	}
	m := s.Messages("C0OPS")
	if len(m) != 1 || m[0].Colour() != "d92d20" || !json.Valid(m[0].Attachments) {
		t.Errorf("%+v", m)
	}
}
