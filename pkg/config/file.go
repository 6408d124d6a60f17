// Package config is the one file that says who gets which alert: read, filled from the environment, checked whole.
package config

import (
	"net/netip"
	"slices"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/oncall"
	"github.com/tocsin-oncall/tocsin/pkg/route"
)

// File is the checked file. Defaults are filled in; every name that one part uses, another defines.
type File struct {
	Server      Server
	Database    Database
	Worker      Worker
	Users       []User
	Schedules   []oncall.Schedule
	Notices     map[string]Notices   // by schedule
	UserGroups  map[string]UserGroup // by schedule; only those that have one
	Calendars   map[string]Calendar  // by [oncall.Layer.Calendar]
	Escalations map[string]Escalation
	Notifiers   map[string]Notifier
	Routes      []Route
	Sources     map[string]Source
	Heartbeats  map[string]Heartbeat
	Kinds       map[delivery.Kind]delivery.Policy // every kind, defaults included
	Reload      Reload
	Retention   time.Duration // how long what is over is kept, default 90d; 0, which only tests set: for ever
	Checksum    string        // sha256 of the file's text with ${NAME} unfilled, first 12 hex digits
	Warnings    []string      // what check warns of
	SecretFiles []string      // the files that ${file:PATH} was filled from: a change of one is a change of the file
	imports     *imports      // may be nil
}

// Server is where tocsin listens and what it calls itself.
type Server struct {
	Listen        string // default ":8080"
	MetricsListen string // default ":9090"
	PublicURL     string // no slash at the end; links in messages begin with it
	ShutdownGrace time.Duration
	Tokens        []Token
	AllowPrivate  []netip.Prefix // addresses that URLs from outside the file may lead to although they are not public
}

// Token is an API token of the file. Hash is "sha256:<hex>" of the token's text.
type Token struct {
	Name   string
	Hash   string
	Scopes []string // calendar, ingest, read, operate, admin
}

// Database is where the one Postgres is. TOCSIN_DATABASE_URL overrides URL.
type Database struct {
	URL            string
	ListenURL      string // direct connection for LISTEN where a pooler stands between; default URL
	MaxConnections int    // default 20
}

// Worker sets the lease and the poll.
type Worker struct {
	Lease time.Duration // derived: longest timeout + 60s
	Poll  time.Duration // 1s
}

// User is a person who can be on call.
type User struct {
	ID, Name, Email, TimeZone, Role string
	Contacts                        []Contact      // in order
	Quiet                           *oncall.Window // what is not urgent waits for its end; nil: none
}

// Contact is one way to reach a person.
type Contact struct {
	Via     string        // a notifier's name
	Address string        // empty: the linked account's
	After   time.Duration // how long after the page began
	Urgency string        // "high", "low" or "" for both
}

// Escalation is who is paged when, until someone answers.
type Escalation struct {
	Repeat     int           // further rounds
	Every      time.Duration // between rounds; default the last step's After
	AckTimeout time.Duration // an acknowledgement rings again after it; 0: never
	Steps      []Step
}

// Step is one step of an escalation. After counts from the round's start.
type Step struct {
	After  time.Duration
	Page   []string // "schedule:ID", "layer:ID/NAME", "user:ID"
	Notify []string // notifier names
}

// Notifier is a named, configured way out. Only the fields of its type are set.
type Notifier struct {
	Name        string
	Type        string // slack, telegram, webhook, log
	Timeout     time.Duration
	Concurrency int
	Retries     delivery.Retries
	Off         bool
	Pace        Pace
	account     string // what Account says, once the file is read: it is asked for with each delivery

	// slack
	Token, WebhookURL, Channel, SigningSecret, AppToken, APIURL string
	// telegram; Token and APIURL too
	ChatID          string // digits or @name; empty: direct messages
	MessageThreadID int
	WebhookSecret   string
	Poll            bool // updates are asked for, instead of a webhook
	// webhook
	URL     string
	Secrets []string
	Headers map[string]string
	Events  []string // what it is told of: incident, delivery, oncall
	// log
	Path string
}

// The sorts of events that a webhook can ask for.
const (
	HearsIncident = "incident"
	HearsDelivery = "delivery"
	HearsOnCall   = "oncall"
)

// Hears says that a notifier wants events of a sort. Those about an incident go to every notifier that a route names, unless it is a
// webhook that asks for others only.
func (n Notifier) Hears(sort string) bool {
	if n.Type != "webhook" || len(n.Events) == 0 {
		return sort == HearsIncident
	}
	return slices.Contains(n.Events, sort)
}

// Direct says that the notifier sends to people, not to a place of its own.
func (n Notifier) Direct() bool {
	switch n.Type {
	case "slack":
		return n.Channel == "" && n.WebhookURL == ""
	case "telegram":
		return n.ChatID == ""
	}
	return false
}

// Cards says that the notifier can show a card with a thread: Slack with a token and a channel, Telegram with a chat.
func (n Notifier) Cards() bool {
	return n.Type == "slack" && n.Token != "" && n.Channel != "" || n.Type == "telegram" && n.ChatID != ""
}

// Route sends the alerts that match to notifiers and an escalation.
type Route struct {
	Match    route.Pattern
	Labels   map[string]string // equality
	Matchers []route.Matcher
	Notify   []string
	Escalate string
	GroupBy  []string
	Active   *oncall.Window // nil: always
	Line     int            // where it stands in the file
}

// Reload sets how a changed file takes hold.
type Reload struct {
	Grace time.Duration // 15m
}
