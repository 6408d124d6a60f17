package telegramtest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tocsin-oncall/tocsin/pkg/provider/chattest"
)

// longest is the longest wait of getUpdates, answerMost the longest answer to a press, in code points, and queryLife
// how long a press may be answered.
const (
	longest    = 50 * time.Second
	answerMost = 200
	queryLife  = 15 * time.Minute
)

// hook is the webhook in force.
type hook struct {
	URL, secret, lastError string
	lastErrorAt            time.Time
	allowed                []string // kinds of updates; empty: Telegram's default
}

type update struct {
	id        int
	body      obj
	delivered bool // the webhook took it; getUpdates no longer gives it
}

// query is a press that waits for its answer.
type query struct {
	user, chat int64
	message    int
	made       time.Time
	answered   bool
}

// PressAnswer is what became of a press or of a message to the bot.
type PressAnswer struct {
	UpdateID int
	QueryID  string // of a press
	Queued   bool   // no webhook is set: the update waits for getUpdates
	Status   int    // the webhook's answer
	Body     string
}

// Press presses a button as a person. action is the button's callback data, or its first word, or its label. The
// update goes to the webhook with the secret header, or waits for getUpdates when there is none.
func (s *Server) Press(ctx context.Context, chat int64, messageID int, action string, userID int64) (PressAnswer, error) {
	a := PressAnswer{}
	var u *update
	var err error
	s.Write(func() {
		m := s.message(chat, messageID)
		if m == nil || m.Deleted || s.user(userID) == nil {
			err = fmt.Errorf("telegramtest: press: no message %d/%d or no user %d", chat, messageID, userID)
			return
		}
		b, found := pick(m, action)
		if !found {
			err = fmt.Errorf("telegramtest: press: message %d/%d shows no button %q", chat, messageID, action)
			return
		}
		a.QueryID = fmt.Sprintf("4382%012d", len(s.queries)+1)
		s.queries[a.QueryID] = &query{user: userID, chat: chat, message: messageID, made: s.Now()}
		u = s.queue(obj{"callback_query": obj{"id": a.QueryID, "from": s.sender(userID), "message": s.shown(m, true),
			"chat_instance": strconv.FormatInt(chat*7919, 10), "data": b.Data}})
	})
	if err != nil {
		return a, err
	}
	sent, err := s.deliver(ctx, u)
	sent.QueryID = a.QueryID
	return sent, err
}

// pick finds a button by its data, by the first word of its data, or by its label.
func pick(m *Message, action string) (Button, bool) {
	word := regexp.MustCompile(`^` + regexp.QuoteMeta(action) + `(\W|_|$)`)
	for _, fits := range []func(Button) bool{
		func(b Button) bool { return b.Data == action },
		func(b Button) bool { return word.MatchString(b.Data) },
		func(b Button) bool { return b.Text == action },
	} {
		for _, row := range m.Keyboard {
			if i := slices.IndexFunc(row, func(b Button) bool { return b.Data != "" && fits(b) }); i >= 0 {
				return row[i], true
			}
		}
	}
	return Button{}, false
}

// Say writes a message as a person, such as "/start CODE", and tells the bot.
func (s *Server) Say(ctx context.Context, chat, userID int64, text string) (PressAnswer, error) {
	var u *update
	var err error
	s.Write(func() {
		p := s.user(userID)
		if s.chat(chat) == nil || p == nil {
			err = fmt.Errorf("telegramtest: no chat %d or no user %d", chat, userID)
			return
		}
		if chat == userID {
			p.NeverStarted, p.Blocked = false, false
		}
		m := s.store(&Message{Chat: chat, From: userID, Text: text})
		o := s.shown(m, true)
		if strings.HasPrefix(text, "/") {
			o["entities"] = []Entity{{Type: "bot_command", Length: units(strings.Fields(text)[0])}}
		}
		u = s.queue(obj{"message": o})
	})
	if err != nil {
		return PressAnswer{}, err
	}
	return s.deliver(ctx, u)
}

// Open opens a link to the bot as a person and presses Start: the code in it goes to the bot as "/start CODE".
func (s *Server) Open(ctx context.Context, userID int64, link string) (PressAnswer, error) {
	code, ok := s.startCode(link)
	if !ok {
		return PressAnswer{}, fmt.Errorf("telegramtest: %q is no link to the bot @%s", link, s.opt.BotUsername)
	}
	return s.Say(ctx, userID, userID, strings.TrimSpace("/start "+code))
}

// startCode is the code in a link to the bot.
func (s *Server) startCode(link string) (string, bool) {
	u, err := url.Parse(strings.TrimSpace(link))
	if err != nil || u.Host != "t.me" || !strings.EqualFold(strings.Trim(u.Path, "/"), s.opt.BotUsername) {
		return "", false
	}
	return u.Query().Get("start"), true
}

// Redeliver sends an update again, as Telegram does after a lost answer.
func (s *Server) Redeliver(ctx context.Context, updateID int) (PressAnswer, error) {
	var u *update
	s.Read(func() {
		if i := slices.IndexFunc(s.updates, func(u *update) bool { return u.id == updateID }); i >= 0 {
			u = s.updates[i]
		}
	})
	if u == nil {
		return PressAnswer{}, fmt.Errorf("telegramtest: no update %d is kept", updateID)
	}
	return s.deliver(ctx, u)
}

// updatesKept bounds the queue; Telegram drops updates after a day.
const updatesKept = 10_000

// queue numbers an update and keeps it for getUpdates and Redeliver. The lock is held.
func (s *Server) queue(body obj) *update {
	s.updateID++
	body["update_id"] = s.updateID
	u := &update{id: s.updateID, body: body}
	s.updates = append(s.updates, u)
	if len(s.updates) > updatesKept {
		s.updates = slices.Clone(s.updates[updatesKept/2:])
	}
	return u
}

// deliver posts an update to the webhook; without one it stays in the queue.
func (s *Server) deliver(ctx context.Context, u *update) (PressAnswer, error) {
	a := PressAnswer{UpdateID: u.id}
	var h hook
	s.Read(func() { h = s.hook })
	if h.URL == "" {
		a.Queued = true
		return a, nil
	}
	body, err := json.Marshal(u.body)
	if err != nil {
		return a, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, h.URL, bytes.NewReader(body))
	if err != nil {
		return a, fmt.Errorf("telegramtest: webhook URL: %w", err)
	}
	r.Header.Set("Content-Type", "application/json")
	if h.secret != "" {
		r.Header.Set("X-Telegram-Bot-Api-Secret-Token", h.secret)
	}
	resp, err := s.opt.Client.Do(r)
	if err != nil {
		s.failed("Connection refused or broken: " + err.Error())
		return a, fmt.Errorf("telegramtest: send the update: %w", err)
	}
	defer resp.Body.Close()
	read, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	a.Status, a.Body = resp.StatusCode, string(read)
	if a.Status < 200 || a.Status > 299 {
		s.failed("Wrong response from the webhook: " + resp.Status)
	} else {
		s.Write(func() { u.delivered = true })
	}
	return a, err
}

func (s *Server) failed(why string) {
	s.Write(func() { s.hook.lastError, s.hook.lastErrorAt = why, s.Now() })
}

func (s *Server) answerCallbackQuery(c *call) result {
	q := s.queries[c.get("callback_query_id")]
	if q == nil || q.answered || s.Now().Sub(q.made) > queryLife {
		return bad("query is too old and response timeout expired or query ID is invalid")
	}
	if utf8.RuneCountInString(c.get("text")) > answerMost {
		return bad("MESSAGE_TOO_LONG")
	}
	q.answered = true
	s.answers = append(s.answers, CallbackAnswer{QueryID: c.get("callback_query_id"), User: q.user, Chat: q.chat, Message: q.message,
		Text: c.get("text"), Alert: c.flag("show_alert"), URL: c.get("url"), At: s.Now()})
	c.req.Channel, c.req.TS = strconv.FormatInt(q.chat, 10), itoa(q.message)
	c.req.Effect, c.req.Object = chattest.Created, "answer/"+c.get("callback_query_id")
	return ok(true)
}

var secretForm = regexp.MustCompile(`^[A-Za-z0-9_-]{1,256}$`)

func (s *Server) setWebhook(c *call) result {
	target := c.get("url")
	if target == "" {
		return s.deleteWebhook(c)
	}
	u, err := url.Parse(target)
	// Telegram demands https and four ports. Loopback addresses are let through: that is where tocsin listens in dev.
	if err != nil || u.Host == "" {
		return bad("bad webhook: invalid webhook URL specified")
	}
	ip, _ := netip.ParseAddr(u.Hostname())
	if local := ip.IsLoopback() || u.Hostname() == "localhost"; !local {
		if u.Scheme != "https" {
			return bad("bad webhook: An HTTPS URL must be provided for webhook")
		}
		if !slices.Contains([]string{"", "443", "80", "88", "8443"}, u.Port()) {
			return bad("bad webhook: Webhook can be set up only on ports 80, 88, 443 or 8443")
		}
	}
	if t := c.get("secret_token"); t != "" && !secretForm.MatchString(t) {
		return bad("secret token contains unallowed characters")
	}
	if c.flag("drop_pending_updates") {
		s.updates = nil
	}
	s.hook = hook{URL: target, secret: c.get("secret_token")}
	if raw := c.get("allowed_updates"); raw != "" && !decode(raw, &s.hook.allowed) {
		return bad("can't parse allowed updates: Expected an Array")
	}
	c.req.Effect, c.req.Object = chattest.Changed, "webhook"
	return ok(true)
}

func (s *Server) deleteWebhook(c *call) result {
	if c.flag("drop_pending_updates") {
		s.updates = nil
	}
	s.hook = hook{}
	c.req.Effect, c.req.Object = chattest.Changed, "webhook"
	return ok(true)
}

func (s *Server) getWebhookInfo(*call) result {
	o := obj{"url": s.hook.URL, "has_custom_certificate": false, "pending_update_count": 0, "max_connections": 40}
	o["pending_update_count"] = len(s.waiting())
	if len(s.hook.allowed) > 0 {
		o["allowed_updates"] = s.hook.allowed
	}
	if s.hook.lastError != "" {
		o["last_error_message"], o["last_error_date"] = s.hook.lastError, s.hook.lastErrorAt.Unix()
	}
	return ok(o)
}

// turn makes a getUpdates call the newest one; older ones that still wait end with a conflict.
func (s *Server) turn() (turn int) {
	s.Write(func() { s.poller++; turn = s.poller })
	return turn
}

// await waits until an update is there, the timeout is over, or another poller has come.
func (s *Server) await(ctx context.Context, c *call, turn int) {
	seconds, _ := strconv.Atoi(c.get("timeout"))
	wait := min(time.Duration(max(seconds, 0))*time.Second, longest)
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	stale := false
	_ = s.Until(ctx, func() (done bool) {
		s.Read(func() {
			stale = s.poller != turn
			done = stale || s.hook.URL != "" || len(s.pending(c)) > 0
		})
		return done
	})
	c.stale = stale
}

// pending are the updates from the offset on; a negative offset counts from the end. The lock is held.
func (s *Server) pending(c *call) []*update {
	offset, _ := strconv.Atoi(c.get("offset"))
	all := s.waiting()
	if offset < 0 {
		return all[max(len(all)+offset, 0):]
	}
	return slices.DeleteFunc(all, func(u *update) bool { return u.id < offset })
}

// waiting are the updates that nobody has taken yet. The lock is held.
func (s *Server) waiting() []*update {
	return slices.DeleteFunc(slices.Clone(s.updates), func(u *update) bool { return u.delivered })
}

func (s *Server) getUpdates(c *call) result {
	if s.hook.URL != "" {
		return result{code: 409, description: "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first"}
	}
	if c.stale {
		return result{code: 409, description: "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running"}
	}
	s.updates = s.pending(c) // asking from an offset on confirms everything before it
	limit, err := strconv.Atoi(c.get("limit"))
	if err != nil || limit < 1 || limit > 100 {
		limit = 100
	}
	out := []obj{}
	for _, u := range s.updates[:min(limit, len(s.updates))] {
		out = append(out, u.body)
	}
	return ok(out)
}
