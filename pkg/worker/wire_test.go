package worker_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/message"
	"github.com/tocsin-oncall/tocsin/pkg/plan"
	"github.com/tocsin-oncall/tocsin/pkg/provider/chattest"
	"github.com/tocsin-oncall/tocsin/pkg/provider/slack"
	"github.com/tocsin-oncall/tocsin/pkg/provider/slack/slacktest"
	"github.com/tocsin-oncall/tocsin/pkg/provider/telegram"
	"github.com/tocsin-oncall/tocsin/pkg/provider/telegram/telegramtest"
	"github.com/tocsin-oncall/tocsin/pkg/provider/webhook"
)

// posts makes a site whose notifier audit posts to a URL over the real wire.
func posts(t *testing.T, url string, timeout time.Duration, r delivery.Retries) *site {
	t.Helper()
	n := hook("audit")
	n.URL, n.Timeout, n.Retries = url, timeout, r
	s := newSite(t, n)
	p, err := webhook.New(n, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.provide("audit", p)
	return s
}

// A6: a server that never answers: the attempt closes within the timeout and a second, with the bound's own words; bytes
// were written, so nobody knows.
func TestServerThatNeverAnswers(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	var conns sync.WaitGroup
	defer conns.Wait()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer c.Close()
				_, _ = io.Copy(io.Discard, c) // reads all, says nothing, until the client leaves
			})
		}
	}()
	const timeout = 300 * time.Millisecond
	s := posts(t, "http://"+ln.Addr().String(), timeout, slow)
	id := s.events(s.incident("a"), "audit", 1)[0]
	s.start("first")
	s.until("the end of the attempt", func() bool { return s.row(id).Tries == 1 })
	a := s.attempts(id)[0]
	if took := time.Duration(a.DurationMS * float64(time.Millisecond)); took < timeout || took > timeout+time.Second {
		t.Errorf("it took %s", took)
	}
	if a.Outcome != "unknown" || a.Evidence != "possibly_sent" || a.Reason != "timeout" || a.Error != "send timed out after 300ms" {
		t.Errorf("%+v", a)
	}
	if bytes := get[int](s, "select bytes_written::int from attempt where id = $1", a.ID); bytes == 0 {
		t.Error("no byte was counted")
	}
	if r := s.row(id); r.State != "pending" || !r.Doubt {
		t.Errorf("%+v", r)
	}
}

// D1: what a receiver answers decides: 500 is tried again as unknown under the same id, 404 is rejected, 429 waits as told
// and costs no try, a redirect is a wrong URL and is not followed.
func TestWhatAReceiverAnswers(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	got := map[string][]string{} // ids by path
	answers := map[string]func(http.ResponseWriter, int){
		"/500": func(w http.ResponseWriter, n int) {
			if n == 1 {
				w.WriteHeader(http.StatusInternalServerError)
				_, _ = io.WriteString(w, strings.Repeat("sorry ", 1000))
			}
		},
		"/404": func(w http.ResponseWriter, _ int) { w.WriteHeader(http.StatusNotFound) },
		"/429": func(w http.ResponseWriter, n int) {
			if n == 1 {
				w.Header().Set("Retry-After", "26")
				w.WriteHeader(http.StatusTooManyRequests)
			}
		},
		"/302": func(w http.ResponseWriter, _ int) {
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(http.StatusFound)
		},
	}
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		mu.Lock()
		got[r.URL.Path] = append(got[r.URL.Path], r.Header.Get("webhook-id"))
		n := len(got[r.URL.Path])
		mu.Unlock()
		if f := answers[r.URL.Path]; f != nil {
			f(w, n)
		}
	}))
	t.Cleanup(receiver.Close)
	for path := range answers {
		t.Run(strings.TrimPrefix(path, "/"), func(t *testing.T) {
			t.Parallel()
			s := posts(t, receiver.URL+path, 5*time.Second, quick)
			id := s.events(s.incident("a"), "audit", 1)[0]
			w := s.start("first")
			ids := func() string {
				mu.Lock()
				defer mu.Unlock()
				return strings.Join(got[path], " ")
			}
			key := id.String() + ":1"
			switch path {
			case "/500":
				s.waitFor(id, delivery.Sent)
				if a := s.outcomes(id); a != "[create unknown by worker create sent by worker]" || ids() != key+" "+key {
					t.Errorf("%s, ids %s", a, ids())
				}
			case "/404", "/302":
				r := s.waitFor(id, delivery.Rejected)
				if !strings.HasPrefix(r.Reason, "destination:") || r.Sentence == "" || ids() != key {
					t.Errorf("%+v, ids %s", r, ids())
				}
				s.until("its death is told", func() bool { return w.deaths.Load() == 1 })
			case "/429":
				s.until("the wait", func() bool { return s.row(id).Reason == "rate_limited" })
				r := s.row(id)
				if *r.DueIn < 20 || *r.DueIn > 29 || r.Tries != 0 || r.Doubt || s.attempts(id)[0].Outcome != "failed" {
					t.Errorf("%+v", r)
				}
				s.move(30 * time.Second)
				s.waitFor(id, delivery.Sent)
			}
		})
	}
	t.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		if len(got["/elsewhere"]) > 0 {
			t.Error("a redirect was followed")
		}
	})
}

// C9: "message is not modified" to an edit is sent, and no loop; the same words to a create are no success.
func TestNotModified(t *testing.T) {
	t.Parallel()
	chat := telegramtest.Start(t, telegramtest.Options{})
	group := chat.Options().Chats[0].ID
	n := channel("ops")
	n.Type, n.Token, n.Channel, n.ChatID, n.APIURL = "telegram", chat.Options().Token, "", strconv.FormatInt(group, 10), chat.APIURL()
	s := newSite(t, n)
	p, err := telegram.New(n, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.provide("ops", p)
	i := s.incident("a")
	id := s.add(i, aCard("ops"))[0]
	s.start("first")
	s.settled()
	same := chattest.Fault{Kind: chattest.Code, Status: 400, Code: "Bad Request: message is not modified: specified new message content is exactly the same"}
	same.Method = "editMessageText"
	chat.MustFault(same)
	s.becomes(i, message.Acknowledged)
	s.settled()
	if r := s.row(id); r.State != "sent" || r.Reason != "" || r.Applied != 2 {
		t.Errorf("%+v", r)
	}
	if n := len(chat.Ledger(chattest.ByMethod("editMessageText"))); n != 1 {
		t.Errorf("%d edits", n)
	}
	same.Method = "sendMessage"
	chat.MustFault(same)
	other := s.add(s.incident("b"), aCard("ops"))[0]
	if r := s.waitFor(other, delivery.Rejected); r.Reference {
		t.Errorf("%+v", r)
	}
}

// Card, thread and page through the real dialect: what was stored and then dropped is tried again as a repeat, every
// request of the chat's ledger has its attempt, and the page leads to the card.
func TestSlackStoresAndDrops(t *testing.T) {
	t.Parallel()
	chat := slacktest.Start(t, slacktest.Options{})
	ops, dm := channel("ops"), direct("dm")
	for _, n := range []*config.Notifier{&ops, &dm} {
		n.Token, n.APIURL = chat.Options().Token, chat.APIURL()
	}
	s := newSite(t, ops, dm)
	for _, n := range []config.Notifier{ops, dm} {
		p, err := slack.New(n, nil)
		if err != nil {
			t.Fatal(err)
		}
		s.provide(n.Name, p)
	}
	s.accounts = []plan.Account{{Provider: "slack", AccountID: "U0ANA", UserID: "ana"}}
	chat.MustFault(chattest.Fault{Kind: chattest.Drop, Method: "chat.postMessage", Channel: "U0ANA", Count: 1})
	i := s.incident("a")
	c := aCard("ops")
	s.add(i, c, aThread(c), aPage("dm", "ana", time.Hour))
	s.start("first")
	s.start("second")
	s.settled()
	s.becomes(i, message.Resolved)
	s.settled()
	pages := chat.Messages("U0ANA")
	if len(pages) != 2 {
		t.Fatalf("%d pages", len(pages))
	}
	if last := chat.Messages("C0OPS"); len(last) < 2 {
		t.Errorf("%d messages in the channel", len(last))
	}
	for _, r := range chat.Ledger(chattest.WithEffect(), chattest.ByMethod("chat.postMessage")) {
		if n := get[int](s, "select count(*)::int from attempt where effect_key = $1", r.Key); n == 0 {
			t.Errorf("request %d with key %s has no attempt", r.Sequence, r.Key)
		}
	}
	if got := get[string](s, "select string_agg(operation || ' ' || outcome, ', ' order by number) from attempt where delivery_id in (select id from delivery where kind = 'page')"); got != "create unknown, create sent, edit sent" {
		t.Errorf("the page's attempts: %s", got)
	}
	if body := chat.Ledger(chattest.ByMethod("chat.postMessage"), chattest.ByChannel("U0ANA"))[1].Body; !strings.Contains(body, "repeat") {
		t.Errorf("the second page does not say that it may be a repeat: %s", body)
	}
}
