package slack_test

import (
	"context"
	"encoding/json"
	"fmt"
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

func made(t *testing.T, p *slack.Provider, c provider.Call) delivery.Reference {
	t.Helper()
	res := p.Do(t.Context(), c)
	if res.Outcome != delivery.OutcomeSent {
		t.Fatalf("%+v", res)
	}
	return res.Reference
}

func short(key, address string) provider.Call {
	return provider.Call{Operation: delivery.OpCreate, Address: address, Key: key, Message: message.Message{State: message.Open, Title: key}}
}

func search(address string) provider.Search {
	return provider.Search{Operation: delivery.OpCreate, Address: address, Oldest: time.Now()}
}

// A post whose answer was lost is found, edited later, and stays one message. Either mark alone is enough.
func TestLostPostIsFoundByEitherMark(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(*slacktest.Server){
		"both marks":    func(*slacktest.Server) {},
		"metadata only": func(s *slacktest.Server) { s.SetDropBlockIDs(true) },
		"block id only": func(s *slacktest.Server) { s.SetDropMetadata(true) },
	} {
		for _, address := range []string{"C0OPS", "U0ANA"} {
			for _, plain := range []bool{false, true} {
				t.Run(fmt.Sprint(name, address, plain), func(t *testing.T) {
					t.Parallel()
					s, p := start(t)
					set(s)
					s.MustFault(chattest.Fault{Kind: chattest.Drop, Method: "chat.postMessage", Count: 1})
					c := short("key-1", address)
					if plain {
						c.Message = message.Message{Title: "Shift", Text: "Ana is on call"}
					}
					if res := p.Do(t.Context(), c); res.Outcome != delivery.OutcomeUnknown {
						t.Fatalf("%+v", res)
					}
					scan := p.Scan(t.Context(), search(address))
					there := s.Messages(address)
					if len(there) != 1 {
						t.Fatalf("%d messages", len(there))
					}
					if want := (delivery.Reference{Channel: there[0].Channel, TS: there[0].TS}); !scan.Complete || scan.Found["key-1"] != want || len(scan.Found) != 1 {
						t.Fatalf("%+v", scan)
					}
					edit := c
					edit.Operation, edit.Reference = delivery.OpEdit, scan.Found["key-1"]
					if res := p.Do(t.Context(), edit); res.Outcome != delivery.OutcomeSent {
						t.Errorf("%+v", res)
					}
				})
			}
		}
	}
}

func TestNothingWasPosted(t *testing.T) {
	t.Parallel()
	s, p := start(t)
	s.MustFault(chattest.Fault{Kind: chattest.Reset, Method: "chat.postMessage", Count: 1})
	if res := p.Do(t.Context(), short("key-1", "C0OPS")); res.Outcome != delivery.OutcomeUnknown {
		t.Fatalf("%+v", res)
	}
	if scan := p.Scan(t.Context(), search("C0OPS")); !scan.Complete || len(scan.Found) != 0 || scan.Blind || scan.Code != "" {
		t.Errorf("%+v", scan)
	}
}

// Some apps get few messages a page; all of the pages are read.
func TestScanReadsEveryPage(t *testing.T) {
	t.Parallel()
	s, p := start(t)
	s.SetHistoryPage(3)
	root := made(t, p, short("root", "C0OPS"))
	for i := range 10 {
		made(t, p, short(fmt.Sprint("key-", i), "C0OPS"))
		reply := provider.Call{Operation: delivery.OpReply, Reference: root, Key: fmt.Sprint("reply-", i), Message: message.Message{Text: "x"}}
		made(t, p, reply)
	}
	scan := p.Scan(t.Context(), search("C0OPS"))
	if !scan.Complete || len(scan.Found) != 11 {
		t.Errorf("%+v", scan)
	}
	thread := p.Scan(t.Context(), provider.Search{Operation: delivery.OpReply, Parent: root, Oldest: time.Now()})
	for i := range 10 {
		if _, ok := thread.Found[fmt.Sprint("reply-", i)]; !ok || !thread.Complete {
			t.Errorf("reply-%d: %+v", i, thread)
		}
	}
	// A page in the middle is lost: nothing is proven, and what was seen is kept.
	s.MustFault(chattest.Fault{Kind: chattest.Cut, Method: "conversations.history"})
	if scan := p.Scan(t.Context(), search("C0OPS")); scan.Complete || scan.Blind || scan.Code == "" || scan.Error == "" {
		t.Errorf("%+v", scan)
	}
}

// More was posted than anybody reads: what is not in it may be further back.
func TestScanEndsSomewhere(t *testing.T) {
	t.Parallel()
	s, p := start(t)
	s.SetHistoryPage(1)
	for range 52 {
		if _, err := s.Say("C0OPS", "U0ANA", "hello"); err != nil {
			t.Fatal(err)
		}
	}
	if scan := p.Scan(t.Context(), search("C0OPS")); scan.Complete || scan.Blind || scan.Code != "slack:too_many_messages" {
		t.Errorf("%+v", scan)
	}
	if n := len(s.Ledger(chattest.ByMethod("conversations.history"))); n != 50 {
		t.Errorf("%d pages", n)
	}
}

// The window begins before the attempt: the ts is Slack's clock. What is older is not asked for.
func TestScanWindow(t *testing.T) {
	t.Parallel()
	s, p := start(t)
	made(t, p, short("key-1", "C0OPS"))
	for after, want := range map[time.Duration]int{-time.Hour: 1, 0: 1, 50 * time.Second: 1, 70 * time.Second: 0} {
		scan := p.Scan(t.Context(), provider.Search{Operation: delivery.OpCreate, Address: "C0OPS", Oldest: time.Now().Add(after)})
		if !scan.Complete || len(scan.Found) != want {
			t.Errorf("%s later: %+v", after, scan)
		}
	}
	q := s.Ledger(chattest.ByMethod("conversations.history"))[0]
	if q.Params["include_all_metadata"] != "true" || q.Params["inclusive"] != "true" || q.Params["limit"] != "200" || q.Params["oldest"] == "" {
		t.Errorf("%+v", q.Params)
	}
}

// Metadata is open to the whole workspace: what another app copied is not ours.
func TestCopiedMarksAreNotAdopted(t *testing.T) {
	t.Parallel()
	s, p := start(t)
	mark := json.RawMessage(`{"event_type":"` + slack.MetadataType + `","event_payload":{"` + slack.MetadataKey + `":"key-1"}}`)
	s.Put(slacktest.Message{Channel: "C0OPS", User: "U9", BotID: "B9", Text: "a copy", Metadata: mark, Blocks: json.RawMessage(`[{"type":"divider","block_id":"d_key-1"}]`)})
	s.Put(slacktest.Message{Channel: "C0OPS", User: "U0ANA", Text: "a person's copy", Blocks: json.RawMessage(`[{"type":"divider","block_id":"d_key-1"}]`)})
	s.Put(slacktest.Message{Channel: "C0OPS", User: s.Options().BotUserID, Text: "ours, and another event", Metadata: json.RawMessage(`{"event_type":"other","event_payload":{"effect_key":"key-1"}}`)})
	for range 3 {
		if scan := p.Scan(t.Context(), search("C0OPS")); !scan.Complete || len(scan.Found) != 0 {
			t.Errorf("%+v", scan)
		}
	}
	if n := len(s.Ledger(chattest.ByMethod("auth.test"))); n != 1 {
		t.Errorf("who the bot is was asked %d times", n)
	}
}

// Where Slack does not say whose the token is, or who wrote a message, the mark is enough.
func TestMarksOfUnnamedAuthorsAreAdopted(t *testing.T) {
	t.Parallel()
	s, p := start(t)
	s.MustFault(chattest.Fault{Kind: chattest.Answer, Method: "auth.test", Body: `{"ok":true}`})
	first := made(t, p, short("key-1", "C0OPS"))
	if scan := p.Scan(t.Context(), search("C0OPS")); !scan.Complete || scan.Found["key-1"] != first {
		t.Errorf("%+v, first %+v", scan, first)
	}
}

// A page of rich cards can be larger than an answer may be: fewer are asked for at a time, until it fits.
func TestPagesThatAreTooLargeAreReadInParts(t *testing.T) {
	t.Parallel()
	s, p := start(t)
	rich := strings.Repeat("x", 7_000)
	for i := range 190 {
		s.Put(slacktest.Message{Channel: "C0OPS", User: "U9", BotID: "B9", Text: fmt.Sprint(i, rich)})
	}
	first := made(t, p, short("key-1", "C0OPS"))
	if scan := p.Scan(t.Context(), search("C0OPS")); !scan.Complete || scan.Found["key-1"] != first {
		t.Errorf("complete %t, found %v, %s", scan.Complete, scan.Found, scan.Error)
	}
}

// A list that is none proves nothing.
func TestNoListOfMessagesIsNoLookUp(t *testing.T) {
	t.Parallel()
	for _, body := range []string{`{"ok":true,"messages":null,"has_more":false}`, `{"ok":true}`, `{"ok":true,"messages":{}}`} {
		s, p := start(t)
		s.MustFault(chattest.Fault{Kind: chattest.Answer, Method: "conversations.history", Body: body})
		if scan := p.Scan(t.Context(), search("C0OPS")); scan.Complete || scan.Blind {
			t.Errorf("%s: %+v", body, scan)
		}
	}
}

// Of two messages with one key the first is adopted.
func TestFirstOfTwoIsAdopted(t *testing.T) {
	t.Parallel()
	_, p := start(t)
	first := made(t, p, short("key-1", "C0OPS"))
	made(t, p, short("key-1", "C0OPS"))
	if scan := p.Scan(t.Context(), search("C0OPS")); scan.Found["key-1"] != first {
		t.Errorf("%+v, first %+v", scan, first)
	}
}

// A reply can stand in three places: in its thread, in the channel since its parent was deleted, and there since it was
// posted as a message of its own.
func TestReplyIsFoundWhereverItStands(t *testing.T) {
	t.Parallel()
	s, p := start(t)
	root := made(t, p, short("root", "C0OPS"))
	in := provider.Call{Operation: delivery.OpReply, Reference: root, Key: "in-thread", Message: message.Message{Text: "x"}}
	alone := in
	alone.Key, alone.Form.Root = "alone", true
	threaded, own := made(t, p, in), made(t, p, alone)
	if m, _ := s.Message(own.TS); m.ThreadTS != "" || m.Channel != "C0OPS" {
		t.Errorf("%+v", m)
	}
	look := provider.Search{Operation: delivery.OpReply, Parent: root, Oldest: time.Now()}
	if scan := p.Scan(t.Context(), look); !scan.Complete || scan.Found["in-thread"] != threaded {
		t.Errorf("%+v", scan)
	}
	if scan := p.Scan(t.Context(), search("C0OPS")); !scan.Complete || scan.Found["alone"] != own {
		t.Errorf("%+v", scan)
	}
	if err := remove(t.Context(), s, root.TS); err != nil {
		t.Fatal(err)
	}
	lost := in
	lost.Key = "unthreaded"
	res := p.Do(t.Context(), lost)
	if res.Outcome != delivery.OutcomeSent || res.Code != "unthreaded" {
		t.Fatalf("%+v", res)
	}
	if scan := p.Scan(t.Context(), look); !scan.Complete || len(scan.Found) != 0 {
		t.Errorf("the thread is gone: %+v", scan)
	}
	if scan := p.Scan(t.Context(), search("C0OPS")); !scan.Complete || scan.Found["unthreaded"] != res.Reference {
		t.Errorf("%+v", scan)
	}
}

// What a person must mend makes a scan blind, with a sentence that says how. All the rest is asked again.
func TestScanThatCannotLook(t *testing.T) {
	t.Parallel()
	channels := []slacktest.Channel{{ID: "C0OPS", Name: "ops"}, {ID: "C0OUT", Name: "out", NotMember: true}, {ID: "G0SEC", Name: "secret", Private: true}}
	for _, c := range []struct {
		name, address string
		set           func(*slacktest.Server)
		blind         bool
		code, want    string
		after         time.Duration
	}{
		{"no scope for a channel", "C0OPS", func(s *slacktest.Server) { s.SetScopes("chat:write") }, true, "missing_scope", "channels:history", 0},
		{"no scope for a private channel", "G0SEC", func(s *slacktest.Server) { s.SetScopes("chat:write", "channels:history") }, true, "missing_scope", "groups:history", 0},
		{"no scope to open direct messages", "U0ANA", func(s *slacktest.Server) { s.SetScopes("chat:write") }, true, "missing_scope", "im:write", 0},
		{"no scope for direct messages", "U0ANA", func(s *slacktest.Server) { s.SetScopes("chat:write", "im:write") }, true, "missing_scope", "im:history", 0},
		{"no member", "C0OUT", nil, true, "not_in_channel", "invite @tocsin to C0OUT", 0},
		{"no such channel", "C0NONE", nil, true, "channel_not_found", "invite @tocsin", 0},
		{"a stranger", "U0NOBODY", nil, true, "user_not_found", "link the account", 0},
		{"the token is revoked", "C0OPS", func(s *slacktest.Server) { s.SetRevoked(true) }, true, "token_revoked", "reinstall", 0},
		{"too many questions", "C0OPS", func(s *slacktest.Server) {
			s.MustFault(chattest.Fault{Kind: chattest.Limited, Method: "conversations.history", RetryAfter: "40"})
		}, false, "rate_limited", "", 40 * time.Second},
		{"Slack is unwell", "C0OPS", func(s *slacktest.Server) {
			s.MustFault(chattest.Fault{Kind: chattest.Error, Method: "conversations.history", Status: 503})
		}, false, "http_503", "", 0},
		{"a code that nobody knows", "C0OPS", func(s *slacktest.Server) {
			s.MustFault(chattest.Fault{Kind: chattest.Code, Method: "conversations.history", Code: "brand_new_code"})
		}, false, "brand_new_code", "", 0},
		{"a filter's page", "C0OPS", func(s *slacktest.Server) {
			s.MustFault(chattest.Fault{Kind: chattest.Error, Method: "conversations.history", Status: 403, Body: "<html>"})
		}, false, "http_403", "", 0},
		{"the connection ends", "C0OPS", func(s *slacktest.Server) {
			s.MustFault(chattest.Fault{Kind: chattest.Reset, Method: "conversations.history"})
		}, false, "reset", "", 0},
		{"ok without messages", "C0OPS", func(s *slacktest.Server) {
			s.MustFault(chattest.Fault{Kind: chattest.Answer, Method: "conversations.history", Body: `{"ok":true}`})
		}, false, "no_messages", "", 0},
		{"more, and no way to it", "C0OPS", func(s *slacktest.Server) {
			s.MustFault(chattest.Fault{Kind: chattest.Answer, Method: "conversations.history", Body: `{"ok":true,"messages":[],"has_more":true}`})
		}, false, "no_cursor", "", 0},
		{"a message without a ts", "C0OPS", func(s *slacktest.Server) {
			s.MustFault(chattest.Fault{Kind: chattest.Answer, Method: "conversations.history", Body: `{"ok":true,"messages":[{"text":"x"}]}`})
		}, false, "unreadable_message", "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := slacktest.Start(t, slacktest.Options{Channels: channels})
			p, err := slack.New(config.Notifier{Name: "ops-slack", Token: s.Options().Token, APIURL: s.APIURL(), Timeout: 2 * time.Second}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if c.set != nil {
				c.set(s)
			}
			scan := p.Scan(t.Context(), search(c.address))
			if scan.Complete || scan.Blind != c.blind || scan.Code != c.code || !strings.Contains(scan.Sentence, c.want) || scan.RetryAfter != c.after {
				t.Errorf("%+v", scan)
			}
			if c.blind && scan.Sentence == "" || !c.blind && scan.Error == "" && scan.RetryAfter == 0 {
				t.Errorf("it is not said why: %+v", scan)
			}
		})
	}
}

func TestWebhookCannotLook(t *testing.T) {
	t.Parallel()
	s := slacktest.Start(t, slacktest.Options{})
	p, err := slack.New(config.Notifier{Name: "hook", WebhookURL: s.WebhookURL()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if scan := p.Scan(t.Context(), search("")); !scan.Blind || scan.Complete || scan.Sentence == "" || scan.Code == "" {
		t.Errorf("%+v", scan)
	}
	if res := p.Probe(t.Context(), "invalid_token"); res.Outcome != delivery.OutcomeUnknown {
		t.Errorf("%+v", res)
	}
	if n := s.Requests(); n != 0 {
		t.Errorf("%d requests", n)
	}
}

// An ok of auth.test mends only what it would be refused with itself.
func TestProbe(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, code string
		set        func(*slacktest.Server)
		outcome    delivery.Outcome
		fault      delivery.Fault
		want       string
	}{
		{"a revoked token is back", "token_revoked", nil, delivery.OutcomeSent, "", ""},
		{"a new token", "invalid_auth", nil, delivery.OutcomeSent, "", ""},
		{"still revoked", "token_revoked", func(s *slacktest.Server) { s.SetRevoked(true) }, delivery.OutcomeFailed, delivery.FaultAccount, "reinstall"},
		{"the scope is there", "missing_scope", nil, delivery.OutcomeSent, "", ""},
		{"the scope is missing", "missing_scope", func(s *slacktest.Server) { s.SetScopes("channels:read") }, delivery.OutcomeFailed, delivery.FaultAccount, "chat:write"},
		{"what an administrator forbade", "access_denied", nil, delivery.OutcomeUnknown, "", ""},
		{"what the network forbade", "accesslimited", nil, delivery.OutcomeUnknown, "", ""},
		{"no permission", "no_permission", nil, delivery.OutcomeUnknown, "", ""},
		{"a restricted app", "app_access_restricted", nil, delivery.OutcomeUnknown, "", ""},
		{"a method that is gone", "unknown_method", nil, delivery.OutcomeUnknown, "", ""},
		{"a token of the wrong kind", "is_bot", nil, delivery.OutcomeUnknown, "", ""},
		{"a code that nobody knows", "brand_new_code", nil, delivery.OutcomeUnknown, "", ""},
		{"no code", "", nil, delivery.OutcomeUnknown, "", ""},
		{"Slack is unwell", "token_revoked", func(s *slacktest.Server) { s.MustFault(chattest.Fault{Kind: chattest.Error}) }, delivery.OutcomeUnknown, "", ""},
		{"a server without auth.test", "token_revoked", func(s *slacktest.Server) {
			s.MustFault(chattest.Fault{Kind: chattest.Code, Code: "unknown_method"})
		}, delivery.OutcomeUnknown, "", ""},
		{"limited", "token_revoked", func(s *slacktest.Server) { s.MustFault(chattest.Fault{Kind: chattest.Limited}) }, delivery.OutcomeFailed, delivery.FaultThrottled, ""},
		{"Slack does not say which scopes", "missing_scope", func(s *slacktest.Server) {
			s.MustFault(chattest.Fault{Kind: chattest.Answer, Body: `{"ok":true,"user_id":"U1","bot_id":"B1"}`})
		}, delivery.OutcomeUnknown, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, p := start(t)
			if c.set != nil {
				c.set(s)
			}
			res := p.Probe(t.Context(), c.code)
			if res.Outcome != c.outcome || res.Fault != c.fault || !strings.Contains(res.Sentence, c.want) {
				t.Errorf("%+v", res)
			}
			for _, q := range s.Ledger() {
				if q.Method != "auth.test" || q.Effect != chattest.None {
					t.Errorf("a probe has an effect: %+v", q)
				}
			}
		})
	}
}

// The scope that Slack missed is the one that must be there again.
func TestProbeAsksForTheScopeThatWasMissed(t *testing.T) {
	t.Parallel()
	s, p := start(t)
	s.MustFault(chattest.Fault{Kind: chattest.Answer, Method: "chat.postMessage", Body: `{"ok":false,"error":"missing_scope","needed":"chat:write.customize"}`})
	if res := p.Do(t.Context(), short("key-1", "C0OPS")); res.Fault != delivery.FaultAccount {
		t.Fatalf("%+v", res)
	}
	if res := p.Probe(t.Context(), "missing_scope"); res.Fault != delivery.FaultAccount || !strings.Contains(res.Sentence, "chat:write.customize") {
		t.Errorf("%+v", res)
	}
	s.SetScopes("chat:write", "chat:write.customize")
	if res := p.Probe(t.Context(), "missing_scope"); res.Outcome != delivery.OutcomeSent {
		t.Errorf("%+v", res)
	}
}

// remove deletes a message by the API, as anybody with the token could.
func remove(ctx context.Context, s *slacktest.Server, ts string) error {
	m, ok := s.Message(ts)
	if !ok {
		return fmt.Errorf("no message %s", ts)
	}
	return call(ctx, s, "chat.delete", map[string]string{"channel": m.Channel, "ts": ts})
}
