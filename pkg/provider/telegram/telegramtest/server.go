// Package telegramtest is a simulated Telegram: the Bot API, signed button callbacks by webhook or getUpdates, and a
// page that shows the chats. Tests use it, and `tocsin dev` shows it to people. Nothing leaves the machine.
//
// It answers as core.telegram.org/bots/api describes the Bot API and as its server is known to behave, including the traps:
// message ids of different groups overlap, an edit without reply_markup takes the buttons away, a repeated edit is
// refused as "not modified", a message id alone cannot be looked up.
package telegramtest

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/provider/chattest"
)

// Options describe the bot and those who talk with it. Every zero value has a usable default.
type Options struct {
	Token         string // "110201543:AAHsimulatedsimulatedsimulatedsimul"
	BotID         int64  // the number at the head of the token
	BotUsername   string // "tocsin_bot"
	WebhookURL    string // as setWebhook would set it
	WebhookSecret string

	Chats []Chat // default: supergroup -1001000000001 "Ops"; private chats come with the users
	Users []User // default: Ana Torres 501, Bo Lind 502, Cho Park 503, Dee Okafor 504

	Seed   uint64 // of the faults
	Now    func() time.Time
	Client *http.Client // sends updates to the webhook
}

// Chat is a group, supergroup or channel.
type Chat struct {
	ID         int64
	Type       string // "group", "supergroup" or "channel"; "private" ones are made from the users
	Title      string
	Topics     []Topic
	Kicked     bool  // the bot was removed from it
	ReadOnly   bool  // the bot may not write
	MigratedTo int64 // the group became this supergroup
	user       int64
}

// Topic is a topic of a forum supergroup.
type Topic struct {
	ID     int
	Name   string
	Closed bool
}

// User is a person. Chat id and user id of the private chat are the same number.
type User struct {
	ID              int64
	FirstName, Last string
	Username        string
	Blocked         bool // has blocked the bot
	NeverStarted    bool // has never written to the bot: "chat not found"
	Deactivated     bool
}

// Message is one message as stored.
type Message struct {
	Chat     int64
	ID       int
	Thread   int   // message_thread_id
	From     int64 // the bot or a person
	Text     string
	Entities []Entity
	ReplyTo  int
	Keyboard [][]Button
	Edits    []Version // earlier versions, oldest first
	EditedAt time.Time
	Deleted  bool
	At       time.Time
}

// Button is one button of an inline keyboard.
type Button struct {
	Text string `json:"text"`
	Data string `json:"callback_data,omitempty"`
	URL  string `json:"url,omitempty"`
}

// Version is what a message showed before an edit.
type Version struct {
	Text     string
	Entities []Entity
	Keyboard [][]Button
	Until    time.Time
}

// CallbackAnswer is what answerCallbackQuery told the one who pressed; nobody else sees it.
type CallbackAnswer struct {
	QueryID string
	User    int64
	Chat    int64
	Message int
	Text    string
	Alert   bool
	URL     string
	At      time.Time
}

// Server is one simulated bot with its chats. All methods are safe for use by many goroutines.
type Server struct {
	*chattest.Core
	opt  Options
	mux  http.Handler
	page *page

	// Under the core's lock:
	chats    []*Chat
	users    []*User
	messages map[int64][]*Message
	lastID   map[int64]int // per supergroup and channel; 0 counts private chats and groups together
	answers  []CallbackAnswer
	queries  map[string]*query
	updates  []*update
	updateID int
	poller   int
	hook     hook
	limits   limiter
}

// New makes a bot and its chats. It serves nothing until its Handler is mounted or Start or Listen is called.
func New(o Options) *Server {
	if o.Token == "" {
		o.Token = "110201543:AAHsimulatedsimulatedsimulatedsimul"
	}
	if o.BotID == 0 {
		number, _, _ := strings.Cut(o.Token, ":")
		o.BotID = id64(number)
	}
	if o.BotUsername == "" {
		o.BotUsername = "tocsin_bot"
	}
	if o.Chats == nil {
		o.Chats = []Chat{{ID: -1001000000001, Type: "supergroup", Title: "Ops"}}
	}
	if o.Users == nil {
		o.Users = []User{
			{ID: 501, FirstName: "Ana", Last: "Torres", Username: "ana"}, {ID: 502, FirstName: "Bo", Last: "Lind", Username: "bo"},
			{ID: 503, FirstName: "Cho", Last: "Park", Username: "cho"}, {ID: 504, FirstName: "Dee", Last: "Okafor", Username: "dee"},
		}
	}
	if o.Client == nil {
		o.Client = &http.Client{Timeout: 10 * time.Second}
	}
	s := &Server{
		Core: chattest.NewCore(o.Now, o.Seed), opt: o,
		messages: map[int64][]*Message{}, lastID: map[int64]int{}, queries: map[string]*query{}, updateID: 1000,
		hook: hook{URL: o.WebhookURL, secret: o.WebhookSecret},
	}
	for _, c := range o.Chats {
		s.chats = append(s.chats, &c)
	}
	for _, u := range o.Users {
		s.users = append(s.users, &u)
		s.chats = append(s.chats, &Chat{ID: u.ID, Type: "private", Title: u.name(), user: u.ID})
	}
	s.page = newPage(s)
	s.mux = http.HandlerFunc(s.route)
	return s
}

// Start makes a bot and serves it on a free loopback port until the test ends.
func Start(t chattest.TB, o Options) *Server {
	t.Helper()
	s := New(o)
	s.Core.Start(t, s.Handler())
	return s
}

// Listen serves the bot on a loopback port that the fault "refuse" can close.
func (s *Server) Listen(addr string) (*chattest.Gate, error) { return s.Core.Listen(addr, s.Handler()) }

// Handler is everything on one port: /bot<token>/{method}, the page at /, /faults and /ledger.json.
func (s *Server) Handler() http.Handler { return s.mux }

// APIURL is what a notifier's api_url takes: scheme and host.
func (s *Server) APIURL() string { return s.URL() }

// Endpoint is the same in the form of telegram-bot-api's SetAPIEndpoint.
func (s *Server) Endpoint() string { return s.URL() + "/bot%s/%s" }

// Options are the options in force, defaults filled in.
func (s *Server) Options() Options { return s.opt }

// WaitFor returns as soon as ok says true, asking again after each change.
func (s *Server) WaitFor(ctx context.Context, ok func(*Server) bool) error {
	return s.Until(ctx, func() bool { return ok(s) })
}

// Messages are the messages of a chat, deleted ones not, in order.
func (s *Server) Messages(chat int64) []Message {
	var out []Message
	s.Read(func() {
		for _, m := range s.messages[chat] {
			if !m.Deleted {
				out = append(out, m.copied())
			}
		}
	})
	return out
}

// Message is one message, also a deleted one.
func (s *Server) Message(chat int64, id int) (Message, bool) {
	var out Message
	var ok bool
	s.Read(func() {
		if m := s.message(chat, id); m != nil {
			out, ok = m.copied(), true
		}
	})
	return out, ok
}

// Answers are the private answers to presses, oldest first; user 0 means everybody's.
func (s *Server) Answers(user int64) []CallbackAnswer {
	var out []CallbackAnswer
	s.Read(func() {
		for _, a := range s.answers {
			if user == 0 || a.User == user {
				out = append(out, a)
			}
		}
	})
	return out
}

// SetUser changes a person or adds one: block the bot, unblock it.
func (s *Server) SetUser(u User) {
	s.Write(func() {
		if old := s.user(u.ID); old != nil {
			*old = u
			return
		}
		s.users = append(s.users, &u)
		s.chats = append(s.chats, &Chat{ID: u.ID, Type: "private", Title: u.name(), user: u.ID})
	})
}

// SetChat changes a group or adds one: remove the bot, migrate it, close a topic.
func (s *Server) SetChat(c Chat) {
	s.Write(func() {
		if old := s.chat(c.ID); old != nil {
			c.user = old.user
			*old = c
			return
		}
		s.chats = append(s.chats, &c)
	})
}

// Migrate makes a supergroup of a group, as Telegram does when a group grows or gets topics: the old id answers every
// call with the new one, the new id takes messages, and its numbers begin anew.
func (s *Server) Migrate(group, supergroup int64) {
	s.Write(func() {
		old := s.chat(group)
		if old == nil {
			old = &Chat{ID: group, Type: "group", Title: "Group"}
			s.chats = append(s.chats, old)
		}
		old.MigratedTo = supergroup
		if s.chat(supergroup) == nil {
			s.chats = append(s.chats, &Chat{ID: supergroup, Type: "supergroup", Title: old.Title, Topics: slices.Clone(old.Topics)})
			s.lastID[supergroup]++ // the message that says so
		}
	})
}

func (u *User) name() string {
	if u.Last == "" {
		return u.FirstName
	}
	return u.FirstName + " " + u.Last
}

func (m *Message) copied() Message {
	c := *m
	c.Edits = slices.Clone(m.Edits)
	return c
}

// The functions below need the lock.

func (s *Server) chat(id int64) *Chat {
	i := slices.IndexFunc(s.chats, func(c *Chat) bool { return c.ID == id })
	if i < 0 {
		return nil
	}
	return s.chats[i]
}

func (s *Server) user(id int64) *User {
	i := slices.IndexFunc(s.users, func(u *User) bool { return u.ID == id })
	if i < 0 {
		return nil
	}
	return s.users[i]
}

func (s *Server) message(chat int64, id int) *Message {
	list := s.messages[chat]
	i, ok := slices.BinarySearchFunc(list, id, func(m *Message, id int) int { return m.ID - id })
	if !ok {
		return nil
	}
	return list[i]
}

// store numbers a message as Telegram does: each supergroup and channel by itself, all the rest of the bot together.
func (s *Server) store(m *Message) *Message {
	m.At = s.Now()
	counter := int64(0)
	if c := s.chat(m.Chat); c.Type == "supergroup" || c.Type == "channel" {
		counter = c.ID
	}
	s.lastID[counter]++
	m.ID = s.lastID[counter]
	s.messages[m.Chat] = append(s.messages[m.Chat], m)
	return m
}

// shown is a message as the API gives it.
func (s *Server) shown(m *Message, withReply bool) obj {
	c := s.chat(m.Chat)
	o := obj{"message_id": m.ID, "from": s.sender(m.From), "chat": s.describe(c), "date": m.At.Unix(), "text": m.Text}
	if c.Type == "channel" {
		delete(o, "from")
		o["sender_chat"] = s.describe(c)
	}
	if m.Thread != 0 {
		o["message_thread_id"], o["is_topic_message"] = m.Thread, true
	}
	if len(m.Entities) > 0 {
		o["entities"] = m.Entities
	}
	if !m.EditedAt.IsZero() {
		o["edit_date"] = m.EditedAt.Unix()
	}
	if len(m.Keyboard) > 0 {
		o["reply_markup"] = obj{"inline_keyboard": m.Keyboard}
	}
	if r := s.message(m.Chat, m.ReplyTo); withReply && r != nil && !r.Deleted {
		o["reply_to_message"] = s.shown(r, false)
	}
	return o
}

func (s *Server) sender(id int64) obj {
	if u := s.user(id); u != nil {
		o := obj{"id": u.ID, "is_bot": false, "first_name": u.FirstName, "language_code": "en"}
		if u.Last != "" {
			o["last_name"] = u.Last
		}
		if u.Username != "" {
			o["username"] = u.Username
		}
		return o
	}
	return obj{"id": s.opt.BotID, "is_bot": true, "first_name": "tocsin", "username": s.opt.BotUsername}
}

func (s *Server) describe(c *Chat) obj {
	if u := s.user(c.user); u != nil {
		o := s.sender(u.ID)
		delete(o, "is_bot")
		delete(o, "language_code")
		o["type"] = "private"
		return o
	}
	o := obj{"id": c.ID, "type": c.Type, "title": c.Title}
	if len(c.Topics) > 0 {
		o["is_forum"] = true
	}
	return o
}

// obj is a JSON object of an answer.
type obj map[string]any

func id64(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}

func decode(raw string, v any) bool { return json.Unmarshal([]byte(raw), v) == nil }
