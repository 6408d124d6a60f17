// Package slacktest is a simulated Slack: the Web API, incoming webhooks, signed button callbacks and a page that
// shows the workspace. Tests use it, and `tocsin dev` shows it to people. Nothing leaves the machine.
//
// It answers as docs.slack.dev describes Slack and as it is known to behave, including the traps: `text` without
// `blocks` on chat.update removes the blocks, a reply to something that is no parent lands in the channel with
// ok:true, metadata comes back only when asked for, a U… target comes back as D….
package slacktest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/provider/chattest"
)

// Options describe the workspace. Every zero value has a usable default.
type Options struct {
	Token          string // bot token; "xoxb-simulated"
	SigningSecret  string // signs callbacks; "simulated-signing-secret"
	BotUserID      string // "U0TOCSIN"
	BotID          string // "B0TOCSIN"
	AppID          string // "A0TOCSIN"
	TeamID         string // "T0SIM"
	TeamName       string // "Simulated"
	TeamURL        string // begins permalinks; default is the simulated chat itself, so that links open its page
	InteractionURL string // where Press sends callbacks, ".../slack/interactions"
	CommandURL     string // where Command sends slash commands, ".../slack/commands"
	AppToken       string // app-level token: Socket Mode is on, and nothing is sent to the two URLs

	Channels []Channel // default: C0OPS #ops and C0DB #db-alerts
	Users    []User    // default: Ana Torres, Bo Lind, Cho Park, Dee Okafor
	Webhooks []Webhook // default: /services/T0SIM/B0SIM/simulated into the first channel

	PublicWrite bool     // scope chat:write.public: posting into public channels without membership
	Scopes      []string // of the token; default: all that are needed for anything here
	Seed        uint64   // of the faults
	Now         func() time.Time
	Client      *http.Client // sends callbacks; a client with a 3 s timeout, as Slack's
}

// Channel is a channel of the workspace.
type Channel struct {
	ID, Name  string
	Topic     string
	Private   bool
	Archived  bool
	NotMember bool   // the bot has not joined
	user      string // direct message with this user
}

// User is a person of the workspace.
type User struct {
	ID, Name, RealName, Email string
	TimeZone                  string // IANA name, for users.info
	Deactivated               bool
}

// Webhook is one incoming webhook.
type Webhook struct {
	Path    string // "/services/T…/B…/…"
	Channel string
}

// Message is one message as stored.
type Message struct {
	Channel     string
	TS          string
	ThreadTS    string // parent's ts on a reply
	Broadcast   bool   // reply shown in the channel too
	User        string // who wrote it: the bot's user id or a person's
	Username    string // chat:write.customize
	Text        string
	Blocks      json.RawMessage // array or nil
	Attachments json.RawMessage // array or nil
	Metadata    json.RawMessage // object or nil
	Key         string          // metadata.event_payload.effect_key
	BotID       string          // of another app that posted it; empty: nobody's, or the bot's own
	Edits       []Version       // earlier versions, oldest first
	EditedAt    time.Time
	Deleted     bool
	Reactions   []Reaction
	At          time.Time
	webhook     bool
	seq         int64
}

// Version is what a message showed before an edit.
type Version struct {
	Text                string
	Blocks, Attachments json.RawMessage
	Until               time.Time
}

// Reaction is one emoji with those who gave it.
type Reaction struct {
	Name  string
	Users []string
}

// Ephemeral is an answer that only one person sees.
type Ephemeral struct {
	Channel, User string
	TS            string
	AfterTS       string // message whose button was pressed; empty for chat.postEphemeral
	ThreadTS      string
	Text          string
	Blocks        json.RawMessage
	Attachments   json.RawMessage
	At            time.Time
}

// Server is one simulated workspace. All methods are safe for use by many goroutines.
type Server struct {
	*chattest.Core
	opt  Options
	mux  http.Handler
	page *page

	// Under the core's lock:
	channels   []*Channel
	users      []*User
	messages   map[string][]*Message // by channel, ascending ts
	byTS       map[string]*Message
	groups     map[string][]string // members, by user group
	ephemerals []Ephemeral
	responses  map[string]*responseURL
	lastTS     int64
	triggers   int
	rules      rules
	sockets    sockets
}

// New makes a workspace. It serves nothing until its Handler is mounted or Start or Listen is called.
func New(o Options) *Server {
	def := func(v *string, d string) {
		if *v == "" {
			*v = d
		}
	}
	def(&o.Token, "xoxb-simulated")
	def(&o.SigningSecret, "simulated-signing-secret")
	def(&o.BotUserID, "U0TOCSIN")
	def(&o.BotID, "B0TOCSIN")
	def(&o.AppID, "A0TOCSIN")
	def(&o.TeamID, "T0SIM")
	def(&o.TeamName, "Simulated")
	if o.Channels == nil {
		o.Channels = []Channel{{ID: "C0OPS", Name: "ops", Topic: "Alerts of all teams"}, {ID: "C0DB", Name: "db-alerts", Topic: "Databases"}}
	}
	if o.Users == nil {
		o.Users = []User{
			{ID: "U0ANA", Name: "ana", RealName: "Ana Torres", Email: "ana@example.com", TimeZone: "Europe/Madrid"},
			{ID: "U0BO", Name: "bo", RealName: "Bo Lind", Email: "bo@example.com", TimeZone: "Europe/Stockholm"},
			{ID: "U0CHO", Name: "cho", RealName: "Cho Park", Email: "cho@example.com", TimeZone: "Asia/Seoul"},
			{ID: "U0DEE", Name: "dee", RealName: "Dee Okafor", Email: "dee@example.com", TimeZone: "Africa/Lagos"},
		}
	}
	if o.Webhooks == nil && len(o.Channels) > 0 {
		o.Webhooks = []Webhook{{Path: "/services/T0SIM/B0SIM/simulated", Channel: o.Channels[0].ID}}
	}
	if o.Scopes == nil {
		o.Scopes = slices.Clone(allScopes)
	}
	if o.PublicWrite && !slices.Contains(o.Scopes, publicWrite) {
		o.Scopes = append(slices.Clone(o.Scopes), publicWrite)
	}
	if o.Client == nil {
		o.Client = &http.Client{Timeout: 3 * time.Second}
	}
	s := &Server{
		Core: chattest.NewCore(o.Now, o.Seed), opt: o,
		messages: map[string][]*Message{}, byTS: map[string]*Message{}, responses: map[string]*responseURL{},
		sockets: sockets{acked: map[string]chan struct{}{}},
	}
	for _, c := range o.Channels {
		s.channels = append(s.channels, &c)
	}
	for _, u := range o.Users {
		s.users = append(s.users, &u)
	}
	s.users = append(s.users, &User{ID: o.BotUserID, Name: "tocsin", RealName: "tocsin"})
	s.page = newPage(s)
	mux := http.NewServeMux()
	mux.HandleFunc("/api/{method}", s.serveAPI)
	mux.HandleFunc("/services/", s.serveWebhook)
	mux.HandleFunc("/response/{id}", s.serveResponseURL)
	mux.HandleFunc("/socket/{ticket}", s.serveSocket)
	mux.Handle("/", s.page)
	s.mux = mux
	return s
}

// Start makes a workspace and serves it on a free loopback port until the test ends.
func Start(t chattest.TB, o Options) *Server {
	t.Helper()
	s := New(o)
	s.Core.Start(t, s.Handler())
	return s
}

// Listen serves the workspace on a loopback port that the fault "refuse" can close.
func (s *Server) Listen(addr string) (*chattest.Gate, error) { return s.Core.Listen(addr, s.Handler()) }

// Handler is everything on one port: /api/{method}, /services/…, /response/…, the page at /, /faults and /ledger.json.
func (s *Server) Handler() http.Handler { return s.mux }

// APIURL is what a notifier's api_url takes: it ends in /api/.
func (s *Server) APIURL() string { return s.URL() + "/api/" }

// WebhookURL is the address of the first incoming webhook.
func (s *Server) WebhookURL() string {
	if len(s.opt.Webhooks) == 0 {
		return ""
	}
	return s.URL() + s.opt.Webhooks[0].Path
}

// Options are the options in force, defaults filled in.
func (s *Server) Options() Options {
	var o Options
	s.Read(func() { o = s.opt })
	return o
}

// SetInteractionURL says where Press sends callbacks from now on.
func (s *Server) SetInteractionURL(u string) { s.Write(func() { s.opt.InteractionURL = u }) }

// SetCommandURL says where Command sends slash commands from now on.
func (s *Server) SetCommandURL(u string) { s.Write(func() { s.opt.CommandURL = u }) }

// WaitFor returns as soon as ok says true, asking again after each change.
func (s *Server) WaitFor(ctx context.Context, ok func(*Server) bool) error {
	return s.Until(ctx, func() bool { return ok(s) })
}

// Messages are the messages of a channel, replies included, deleted ones not, in order. A user id means the direct
// messages with that person.
func (s *Server) Messages(channel string) []Message {
	var out []Message
	s.Read(func() {
		for _, m := range s.messages[s.resolved(channel)] {
			if !m.Deleted {
				out = append(out, m.copied())
			}
		}
	})
	return out
}

// Replies are the replies below one parent, in order, the parent not included.
func (s *Server) Replies(channel, ts string) []Message {
	return slices.DeleteFunc(s.Messages(channel), func(m Message) bool { return m.ThreadTS != ts || m.TS == ts })
}

// Message is one message by its ts, also a deleted one.
func (s *Server) Message(ts string) (Message, bool) {
	var out Message
	var ok bool
	s.Read(func() {
		if m := s.byTS[ts]; m != nil {
			out, ok = m.copied(), true
		}
	})
	return out, ok
}

// Ephemerals are the private answers given so far, oldest first; user "" means everybody's.
func (s *Server) Ephemerals(user string) []Ephemeral {
	var out []Ephemeral
	s.Read(func() {
		for _, e := range s.ephemerals {
			if user == "" || e.User == user {
				out = append(out, e)
			}
		}
	})
	return out
}

// Say writes a message as a person.
func (s *Server) Say(channel, user, text string) (ts string, err error) {
	s.Write(func() {
		c := s.channel(s.resolved(channel))
		if c == nil || s.user(user) == nil {
			err = fmt.Errorf("slacktest: no channel %q or no user %q", channel, user)
			return
		}
		ts = s.store(&Message{Channel: c.ID, User: user, Text: text}).TS
	})
	return ts, err
}

// Put stores a message as it stands, as if another app or a person had posted it, and returns its ts.
func (s *Server) Put(m Message) (ts string) {
	s.Write(func() {
		if m.Metadata != nil {
			m.Key = effectKey(m.Metadata)
		}
		ts = s.store(&m).TS
	})
	return ts
}

// SetChannel changes a channel or adds one: archive it, make the bot leave it.
func (s *Server) SetChannel(c Channel) {
	s.Write(func() {
		if old := s.channel(c.ID); old != nil {
			c.user = old.user
			*old = c
			return
		}
		s.channels = append(s.channels, &c)
	})
}

func (m *Message) copied() Message {
	c := *m
	c.Edits, c.Reactions = slices.Clone(m.Edits), slices.Clone(m.Reactions)
	return c
}

// Colour is the colour of the first attachment, without "#", lower case; empty when there is none.
func (m Message) Colour() string {
	for _, a := range parseList(m.Attachments) {
		if c, ok := a["color"].(string); ok {
			return strings.ToLower(strings.TrimPrefix(c, "#"))
		}
	}
	return ""
}

// The functions below need the lock.

func (s *Server) channel(id string) *Channel {
	i := slices.IndexFunc(s.channels, func(c *Channel) bool { return c.ID == id })
	if i < 0 {
		return nil
	}
	return s.channels[i]
}

func (s *Server) user(id string) *User {
	i := slices.IndexFunc(s.users, func(u *User) bool { return u.ID == id })
	if i < 0 {
		return nil
	}
	return s.users[i]
}

// resolved turns a user id into the id of the direct messages with that person.
func (s *Server) resolved(id string) string {
	if s.user(id) != nil {
		return "D" + strings.TrimPrefix(id, "U")
	}
	return id
}

// open finds or makes the direct messages with a person.
func (s *Server) open(u *User) (c *Channel, already bool) {
	id := s.resolved(u.ID)
	if c := s.channel(id); c != nil {
		return c, true
	}
	c = &Channel{ID: id, Name: u.Name, Private: true, user: u.ID}
	s.channels = append(s.channels, c)
	return c, false
}

// store gives a message its ts, which is unique in the workspace and rises, and keeps it.
func (s *Server) store(m *Message) *Message {
	m.At = s.Now()
	s.lastTS = max(s.lastTS+1, m.At.UnixMicro())
	m.seq = s.lastTS
	m.TS = stamp(s.lastTS)
	s.messages[m.Channel] = append(s.messages[m.Channel], m)
	s.byTS[m.TS] = m
	return m
}

func stamp(micro int64) string { return fmt.Sprintf("%d.%06d", micro/1e6, micro%1e6) }
