package slack_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/message"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
	"github.com/tocsin-oncall/tocsin/pkg/provider/chattest"
	"github.com/tocsin-oncall/tocsin/pkg/provider/slack/slacktest"
)

// call calls a method with the workspace's token.
func call(ctx context.Context, s *slacktest.Server, method string, params map[string]string) error {
	form := url.Values{"token": {s.Options().Token}}
	for k, v := range params {
		form.Set(k, v)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.APIURL()+method, strings.NewReader(form.Encode()))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(body), `"ok":true`) {
		return fmt.Errorf("%s: %s %w", method, body, err)
	}
	return nil
}

func incident() message.Message {
	return message.Message{
		State: message.Open, Severity: "critical", Title: "Disk *full* on <db1>", Text: "Open since 10:00",
		Fields: []message.Field{{Name: "team", Value: "db"}}, Items: []message.Item{{Title: "db1"}, {Title: "db2", Resolved: true}}, More: 3,
		MoreURL: "https://tocsin.test/incidents/1",
		Links:   []message.Link{{Title: "Runbook", URL: "https://x.test/?a=1&b=2"}},
		Buttons: []message.Button{{Action: "ack", Label: "Acknowledge", Value: "incident-1"}, {Action: "resolve", Label: "Resolve", Value: "incident-1"}},
		Footer:  "incident 1",
	}
}

func TestFormLeavesOutWhatWasRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		form                           delivery.Form
		metadata, buttons, attachments bool
	}{
		{delivery.Form{}, true, true, true},
		{delivery.Form{NoMetadata: true}, false, true, true},
		{delivery.Form{NoButtons: true}, true, false, true},
		{delivery.Form{NoMetadata: true, NoButtons: true}, false, false, true},
		{delivery.Form{Plain: true}, true, false, false},
		{delivery.Form{Plain: true, NoMetadata: true, NoButtons: true}, false, false, false},
	} {
		t.Run(c.form.String(), func(t *testing.T) {
			t.Parallel()
			s, p := start(t)
			ref := made(t, p, provider.Call{Operation: delivery.OpCreate, Address: "C0OPS", Key: "key-1", Message: incident(), Form: c.form})
			m, _ := s.Message(ref.TS)
			if (m.Metadata != nil) != c.metadata || strings.Contains(string(m.Attachments), `"actions"`) != c.buttons || (m.Attachments != nil) != c.attachments || m.Blocks != nil {
				t.Errorf("%+v", m)
			}
			if c.attachments && !strings.Contains(string(m.Attachments), `"block_id":"d_key-1"`) {
				t.Errorf("the second mark is missing: %s", m.Attachments)
			}
			if c.form.Plain {
				for _, want := range []string{"🔴 Disk *full* on &lt;db1&gt; (Open · critical)", "Open since 10:00", "team: db", "🔴 db1\n🟢 db2", "and 3 more", "Runbook: https://x.test/?a=1&amp;b=2", "Incident: https://tocsin.test/incidents/1", "incident 1"} {
					if !strings.Contains(m.Text, want) {
						t.Errorf("%q is missing in %q", want, m.Text)
					}
				}
				if q := s.Ledger(chattest.ByMethod("chat.postMessage"))[0]; q.Params["mrkdwn"] != "false" || strings.Contains(m.Text, "<") {
					t.Errorf("markup: %v", q.Params)
				}
			}
		})
	}
}

// An edit keeps what it leaves out. A plain edit must therefore empty blocks and attachments.
func TestPlainEditEmptiesWhatWasThere(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]message.Message{"a card": incident(), "a message in blocks": {Title: "Shift", Text: "Ana is on call", Buttons: incident().Buttons}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p := start(t)
			c := provider.Call{Operation: delivery.OpCreate, Address: "C0OPS", Key: "key-1", Message: m}
			c.Reference = made(t, p, c)
			c.Operation, c.Form = delivery.OpEdit, delivery.Form{Plain: true}
			if res := p.Do(t.Context(), c); res.Outcome != delivery.OutcomeSent || res.Reference != c.Reference {
				t.Fatalf("%+v", res)
			}
			got, _ := s.Message(c.Reference.TS)
			if len(got.Blocks) > len("[]") || len(got.Attachments) > len("[]") || got.Text == "" || got.Key != "key-1" {
				t.Errorf("%+v", got)
			}
			q := s.Ledger(chattest.ByMethod("chat.update"))[0]
			if q.Params["blocks"] != "[]" || q.Params["attachments"] != "[]" {
				t.Errorf("%v", q.Params)
			}
			// And back again: the next revision is tried whole.
			c.Form = delivery.Form{}
			if res := p.Do(t.Context(), c); res.Outcome != delivery.OutcomeSent {
				t.Fatalf("%+v", res)
			}
		})
	}
}

// A card whose next face has no colour loses its attachment, which an edit would keep.
func TestEditToAMessageWithoutColour(t *testing.T) {
	t.Parallel()
	s, p := start(t)
	c := provider.Call{Operation: delivery.OpCreate, Address: "C0OPS", Key: "key-1", Message: incident()}
	c.Reference = made(t, p, c)
	c.Operation, c.Message = delivery.OpEdit, message.Message{Title: "Moved"}
	if res := p.Do(t.Context(), c); res.Outcome != delivery.OutcomeSent {
		t.Fatalf("%+v", res)
	}
	if got, _ := s.Message(c.Reference.TS); got.Colour() != "" || !strings.Contains(string(got.Blocks), "Moved") {
		t.Errorf("%+v", got)
	}
}

// The account is not to blame for metadata, and not the whole content either.
func TestRefusalOfAPart(t *testing.T) {
	t.Parallel()
	refusal := func(code string, at ...string) string {
		var messages []string
		for _, a := range at {
			messages = append(messages, `"[ERROR] must be less than 76 characters`+a+`"`)
		}
		return `{"ok":false,"error":"` + code + `","response_metadata":{"messages":[` + strings.Join(messages, ",") + `]}}`
	}
	// The card: status, text, fields, items, links, buttons, footer. The message in blocks: text, buttons.
	const inCard, inBlocks = " [json-pointer:/attachments/0/blocks/5/elements/1/text/text]", " [json-pointer:/blocks/1/elements/0/value]"
	for _, c := range []struct {
		name    string
		answer  string
		blocks  bool
		form    delivery.Form
		refused delivery.Part
	}{
		{"metadata", refusal("invalid_metadata_format"), false, delivery.Form{}, delivery.PartMetadata},
		{"metadata of a token that is no app's", refusal("metadata_must_be_sent_from_app"), false, delivery.Form{}, delivery.PartMetadata},
		{"too large metadata", refusal("metadata_too_large"), false, delivery.Form{}, delivery.PartMetadata},
		{"arguments, of which metadata alone is wrong", refusal("invalid_arguments", " [json-pointer:/metadata/event_payload]"), false, delivery.Form{}, delivery.PartMetadata},
		{"arguments, of which metadata is one", refusal("invalid_arguments", " [json-pointer:/metadata/event_payload]", " [json-pointer:/text]"), false, delivery.Form{}, ""},
		{"a button's label", refusal("invalid_attachments", inCard), false, delivery.Form{}, delivery.PartButtons},
		{"a button's value", refusal("invalid_blocks", inBlocks), true, delivery.Form{}, delivery.PartButtons},
		{"the block of buttons itself", refusal("invalid_blocks", " [json-pointer:/blocks/1]"), true, delivery.Form{}, delivery.PartButtons},
		{"a button, and something else", refusal("invalid_attachments", inCard, " [json-pointer:/attachments/0/blocks/1/text/text]"), false, delivery.Form{}, ""},
		{"a button, and something without a place", refusal("invalid_attachments", inCard, ""), false, delivery.Form{}, ""},
		{"another block whose number begins so", refusal("invalid_blocks", " [json-pointer:/blocks/11]"), true, delivery.Form{}, ""},
		{"the text", refusal("invalid_blocks", " [json-pointer:/blocks/0/text/text]"), true, delivery.Form{}, ""},
		{"a block, where no buttons were sent", refusal("invalid_blocks", inBlocks), true, delivery.Form{NoButtons: true}, ""},
		{"nothing is said", refusal("invalid_blocks"), true, delivery.Form{}, ""},
		{"messages of an odd type", `{"ok":false,"error":"invalid_blocks","response_metadata":{"messages":7}}`, true, delivery.Form{}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, p := start(t)
			s.MustFault(chattest.Fault{Kind: chattest.Answer, Body: c.answer})
			m := incident()
			if c.blocks {
				m = message.Message{Title: "Shift", Buttons: m.Buttons}
			}
			res := p.Do(t.Context(), provider.Call{Operation: delivery.OpCreate, Address: "C0OPS", Key: "key-1", Message: m, Form: c.form})
			if res.Outcome != delivery.OutcomeFailed || res.Fault != delivery.FaultPayload || res.Refused != c.refused || res.Sentence == "" {
				t.Errorf("%+v", res)
			}
		})
	}
}

// The simulated workspace points at a bad button as Slack does.
func TestBadButtonAlone(t *testing.T) {
	t.Parallel()
	s, p := start(t)
	m := incident()
	m.Buttons = append(m.Buttons, message.Button{Action: "x", Label: "More", Style: "primary"})
	s.MustFault(chattest.Fault{Kind: chattest.Answer, Count: 1, Body: `{"ok":false,"error":"invalid_attachments","response_metadata":{"messages":["[ERROR] no more than 2 items allowed [json-pointer:/attachments/0/blocks/5/elements]"]}}`})
	c := provider.Call{Operation: delivery.OpCreate, Address: "C0OPS", Key: "key-1", Message: m}
	res := p.Do(t.Context(), c)
	if res.Refused != delivery.PartButtons {
		t.Fatalf("%+v", res)
	}
	c.Form.NoButtons = true
	made(t, p, c)
}

// A reply whose parent takes none is posted as a message of its own.
func TestReplyWithoutAThread(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"restricted_action_non_threadable_channel", "restricted_action_thread_locked", "cannot_reply_to_message", "thread_not_found", "message_not_found"} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			s, p := start(t)
			root := made(t, p, short("root", "C0OPS"))
			s.MustFault(chattest.Fault{Kind: chattest.Code, Code: code, Count: 1})
			c := provider.Call{Operation: delivery.OpReply, Reference: root, Key: "key-2", Message: message.Message{Text: "Resolved"}, Broadcast: true}
			if res := p.Do(t.Context(), c); res.Outcome != delivery.OutcomeFailed || res.Fault != delivery.FaultGone {
				t.Fatalf("%+v", res)
			}
			c.Form.Root = true
			res := p.Do(t.Context(), c)
			if m, _ := s.Message(res.Reference.TS); res.Outcome != delivery.OutcomeSent || res.Code != "" || m.ThreadTS != "" || m.Channel != "C0OPS" || m.Key != "key-2" {
				t.Errorf("%+v %+v", res, m)
			}
			if q := s.Ledger(chattest.ByKey("key-2")); q[1].Params["thread_ts"] != "" || q[1].Params["reply_broadcast"] != "" {
				t.Errorf("%v", q[1].Params)
			}
		})
	}
}
