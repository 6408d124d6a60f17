package slack_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
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

// The situations in this file are those in which senders of alerts are known to have gone wrong.

func webAPI(t *testing.T, url string, timeout time.Duration) *slack.Provider {
	t.Helper()
	p, err := slack.New(config.Notifier{Name: "ops-slack", Token: "xoxb-simulated", APIURL: url + "/api/", Timeout: timeout}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func webhook(t *testing.T, url string) *slack.Provider {
	t.Helper()
	p, err := slack.New(config.Notifier{Name: "hook-slack", WebhookURL: url, Timeout: time.Second}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// answering answers every request with one status and body, and counts them.
func answering(t *testing.T, status int, header map[string]string, body string) (url string, count *atomic.Int64) {
	t.Helper()
	count = &atomic.Int64{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		count.Add(1)
		for k, v := range header {
			w.Header().Set(k, v)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(s.Close)
	return s.URL, count
}

func TestAnswersThatWereMisread(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		hook    bool
		status  int
		header  map[string]string
		body    string
		outcome delivery.Outcome
		fault   delivery.Fault
		code    string
		after   time.Duration
		want    string // in sentence, error or answer
	}{
		{"a webhook's 429 is no loss", true, 429, map[string]string{"Retry-After": "1"}, `{"retry_after":1,"ok":false,"error":"rate_limited"}`, delivery.OutcomeFailed, delivery.FaultThrottled, "", time.Second, ""},
		{"a 429 that asks for half a minute gets it", false, 429, map[string]string{"Retry-After": "30"}, `{"ok":false,"error":"ratelimited"}`, delivery.OutcomeFailed, delivery.FaultThrottled, "", 30 * time.Second, ""},
		{"a webhook whose token was taken away says what to do", true, 403, nil, "invalid_token", delivery.OutcomeFailed, delivery.FaultDestination, "invalid_token", 0, "make a new one in Slack"},
		{"a webhook that was switched off", true, 404, nil, "no_active_hooks", delivery.OutcomeFailed, delivery.FaultDestination, "no_active_hooks", 0, "switch it on"},
		{"a webhook's channel that is gone: the answer is kept", true, 404, nil, "channel_not_found", delivery.OutcomeFailed, delivery.FaultDestination, "channel_not_found", 0, "channel does not exist"},
		{"a channel that is gone is named", false, 200, nil, `{"ok":false,"error":"channel_not_found"}`, delivery.OutcomeFailed, delivery.FaultDestination, "channel_not_found", 0, "C0OPS"},
		{"a server that speaks like Slack says success", true, 200, nil, `{"success":true}`, delivery.OutcomeSent, "", "", 0, ""},
		{"a workflow's empty answer is a yes", true, 200, nil, "", delivery.OutcomeSent, "", "", 0, ""},
		{"somebody else's words about a timestamp", false, 400, nil, "Missed timestamp", delivery.OutcomeFailed, delivery.FaultDestination, "http_400", 0, "what answers is not Slack"},
		{"a plain 400 is a refusal", false, 400, nil, "", delivery.OutcomeFailed, delivery.FaultDestination, "http_400", 0, "400"},
		{"a webhook's plain 400 is a refusal", true, 400, nil, "", delivery.OutcomeFailed, delivery.FaultDestination, "http_400", 0, "400"},
		{"a move to https is not followed", true, 301, map[string]string{"Location": "/elsewhere"}, "", delivery.OutcomeFailed, delivery.FaultDestination, "", 0, "put the address that answers without a redirect"},
		{"a permanent move that would carry the token along", false, 308, map[string]string{"Location": "https://elsewhere.test/"}, "", delivery.OutcomeFailed, delivery.FaultDestination, "", 0, "put the address"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			url, count := answering(t, c.status, c.header, c.body)
			p := webAPI(t, url, time.Second)
			if c.hook {
				p = webhook(t, url+"/hooks/x")
			}
			res := p.Do(t.Context(), short("key-1", "C0OPS"))
			if res.Outcome != c.outcome || res.Fault != c.fault || res.Code != c.code || res.RetryAfter != c.after || count.Load() != 1 {
				t.Errorf("%d requests: %+v", count.Load(), res)
			}
			if all := res.Sentence + res.Error; !strings.Contains(all, c.want) {
				t.Errorf("%q is not in %q", c.want, all)
			}
			if res.Answer != c.body {
				t.Errorf("the answer was kept as %q", res.Answer)
			}
		})
	}
}

// A burst at one channel: nothing is lost, nothing comes twice, and who waits as told is never refused for it.
func TestBurstAtOneChannelLosesNothing(t *testing.T) {
	t.Parallel()
	var now atomic.Int64
	now.Store(time.Now().UnixMilli())
	s := slacktest.Start(t, slacktest.Options{Now: func() time.Time { return time.UnixMilli(now.Load()) }})
	s.SetPostLimit(1, time.Second)
	p := webAPI(t, s.URL(), time.Second)
	refused := 0
	for i := range 50 {
		c := short(fmt.Sprint("key-", i), "C0OPS")
		for res := p.Do(t.Context(), c); res.Outcome != delivery.OutcomeSent; res = p.Do(t.Context(), c) {
			if res.Fault != delivery.FaultThrottled || res.RetryAfter != time.Second {
				t.Fatalf("%+v", res)
			}
			refused++
			now.Add(res.RetryAfter.Milliseconds())
		}
	}
	seen := map[string]int{}
	for _, m := range s.Messages("C0OPS") {
		seen[m.Key]++
	}
	if len(seen) != 50 || len(s.Messages("C0OPS")) != 50 || refused == 0 || len(s.Violations()) != 0 {
		t.Errorf("%d keys in %d messages, %d refusals, %v", len(seen), len(s.Messages("C0OPS")), refused, s.Violations())
	}
	// Who does not wait is refused again, and Slack would hold it against them.
	p.Do(t.Context(), short("hasty", "C0OPS"))
	for range 3 {
		if res := p.Do(t.Context(), short("hasty", "C0OPS")); res.Fault != delivery.FaultThrottled {
			t.Errorf("%+v", res)
		}
	}
	if n := len(s.Violations()); n != 3 {
		t.Errorf("%d violations", n)
	}
}

func TestOneBrokenWebhookIsNobodyElsesTrouble(t *testing.T) {
	t.Parallel()
	s := slacktest.Start(t, slacktest.Options{})
	broken, well := webhook(t, s.URL()+"/services/T0SIM/B0GONE/x"), webhook(t, s.WebhookURL())
	if res := broken.Do(t.Context(), short("key-1", "")); res.Fault != delivery.FaultDestination || res.Code != "no_service" {
		t.Errorf("%+v", res)
	}
	if res := well.Do(t.Context(), short("key-1", "")); res.Outcome != delivery.OutcomeSent {
		t.Errorf("%+v", res)
	}
}

// The connection ends before an answer: in doubt, once, and no library repeats it behind our back.
func TestEndOfConnectionIsDoubtAndNotRepeated(t *testing.T) {
	t.Parallel()
	s, p := start(t)
	s.MustFault(chattest.Fault{Kind: chattest.Reset, Method: "chat.postMessage"})
	for i := range 13 {
		res := p.Do(t.Context(), short(fmt.Sprint("key-", i), "C0OPS"))
		if res.Outcome != delivery.OutcomeUnknown || res.Reason != "reset" || res.Bytes == 0 {
			t.Errorf("%+v", res)
		}
	}
	if n := s.Requests(); n != 13 {
		t.Errorf("%d requests for 13 calls", n)
	}
}

// The message is there and its answer comes too late. A repeat carries the same key, and a look finds the first one.
func TestSlowAnswerIsDoubtWithTheSameKey(t *testing.T) {
	t.Parallel()
	s := slacktest.Start(t, slacktest.Options{})
	s.MustFault(chattest.Fault{Kind: chattest.Hang, Method: "chat.postMessage", Happens: true, Count: 1})
	p := webAPI(t, s.URL(), 200*time.Millisecond)
	c := short("key-1", "C0OPS")
	res := p.Do(t.Context(), c)
	if res.Outcome != delivery.OutcomeUnknown || res.Reason != "timeout" || res.Bytes == 0 || res.Evidence != delivery.PossiblySent {
		t.Errorf("%+v", res)
	}
	host := strings.TrimPrefix(s.URL(), "http://")
	if !strings.Contains(res.Error, "timed out after 200ms") || !strings.Contains(res.Sentence, host) || !strings.Contains(res.Sentence, fmt.Sprint(res.Bytes, " bytes")) || res.Phase == "" {
		t.Errorf("it does not say what was sent where: %+v", res)
	}
	if m := s.Messages("C0OPS"); len(m) != 1 || m[0].Key != "key-1" {
		t.Errorf("%+v", m)
	}
	if scan := p.Scan(t.Context(), search("C0OPS")); len(scan.Found) != 1 {
		t.Errorf("%+v", scan)
	}
}

// Something in between takes the connection and never speaks. No byte of the request is out: nothing can have happened.
func TestProxyThatNeverSpeaksIsNoDoubt(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p := webAPI(t, "https://"+l.Addr().String(), 200*time.Millisecond)
	res := p.Do(t.Context(), short("key-1", "C0OPS"))
	if res.Outcome != delivery.OutcomeFailed || res.Fault != delivery.FaultTransient || res.Evidence != delivery.NotSent || res.Bytes != 0 {
		t.Errorf("%+v", res)
	}
}

func TestNobodyListensIsNoDoubt(t *testing.T) {
	t.Parallel()
	s, p := start(t)
	s.MustFault(chattest.Fault{Kind: chattest.Refuse})
	for range 5 {
		if res := p.Do(t.Context(), short("key-1", "C0OPS")); res.Outcome != delivery.OutcomeFailed || res.Evidence != delivery.NotSent || res.Reason != "refused" {
			t.Errorf("%+v", res)
		}
	}
}

// Slack has been seen to refuse by rate and to show the message all the same. It waits as told; a look finds it.
func TestRefusedByRateAndShownAllTheSame(t *testing.T) {
	t.Parallel()
	s, p := start(t)
	s.MustFault(chattest.Fault{Kind: chattest.Limited, Happens: true, RetryAfter: "20", Count: 1})
	res := p.Do(t.Context(), short("key-1", "C0OPS"))
	if res.Fault != delivery.FaultThrottled || res.RetryAfter != 20*time.Second {
		t.Errorf("%+v", res)
	}
	if scan := p.Scan(t.Context(), search("C0OPS")); len(scan.Found) != 1 || !scan.Complete {
		t.Errorf("%+v", scan)
	}
}

// A thread belongs to what the database remembers, not to what a process does.
func TestReplyAfterARestartIsInTheSameThread(t *testing.T) {
	t.Parallel()
	s, p := start(t)
	root := made(t, p, short("root", "C0OPS"))
	again := webAPI(t, s.URL(), time.Second)
	made(t, again, provider.Call{Operation: delivery.OpReply, Reference: root, Key: "reply", Message: message.Message{Text: "Resolved"}})
	if r := s.Replies("C0OPS", root.TS); len(r) != 1 {
		t.Errorf("%+v", r)
	}
}

// A test that a person starts is judged as any other message is.
func TestLiveTestSaysWhatEverybodyElseWouldHear(t *testing.T) {
	t.Parallel()
	url, _ := answering(t, 400, nil, `{"ok":false,"error":"invalid_arguments"}`)
	p := webAPI(t, url, time.Second)
	res := p.Do(t.Context(), short("key-1", "C0OPS"))
	if res.Outcome != delivery.OutcomeFailed || res.Fault != delivery.FaultPayload || res.HTTPStatus != 400 {
		t.Errorf("%+v", res)
	}
	s := slacktest.Start(t, slacktest.Options{Token: "xoxb-1"})
	s.MustFault(chattest.Fault{Kind: chattest.Answer, Method: "chat.postMessage", Status: 400, Body: `{"ok":false,"error":"invalid_arguments"}`})
	by := examine(t, config.Notifier{Token: "xoxb-1", APIURL: s.APIURL(), Channel: "C0OPS"}, provider.Examination{Live: true})
	if by["live test: post"].Level != provider.Bad {
		t.Errorf("%+v", by)
	}
}

// Blocks without text show nothing in a notification; whatever the message, there is text.
func TestThereIsAlwaysTextForANotification(t *testing.T) {
	t.Parallel()
	s, p := start(t)
	for i, m := range []message.Message{{}, {Title: " "}, {Text: "\x00"}, {State: message.Open}, {Footer: "x"}, {Buttons: incident().Buttons}, incident()} {
		for _, form := range []delivery.Form{{}, {NoButtons: true}, {Plain: true}} {
			ref := made(t, p, provider.Call{Operation: delivery.OpCreate, Address: "C0OPS", Key: fmt.Sprint("key-", i), Message: m, Form: form})
			if got, _ := s.Message(ref.TS); strings.TrimSpace(got.Text) == "" {
				t.Errorf("%+v in form %q: %+v", m, form, got)
			}
		}
	}
}
