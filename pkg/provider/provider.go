// Package provider is what every way out has in common: one call in, one result out.
package provider

import (
	"context"
	"strings"
	"time"
	"unicode"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/message"
)

// Call is one provider call, ready to be made. Its attempt is recorded before Do is called.
type Call struct {
	Operation delivery.Operation
	Address   string             // what the target means now: a channel or user id, a chat id, a URL, a path
	Key       string             // effect key: the same on every repeat of one effect
	Reference delivery.Reference // edit: the object; reply: the parent
	Message   message.Message    // for chats
	Payload   []byte             // for webhook and log: the JSON body as it goes out
	Broadcast bool               // reply: show it in the channel too
	Form      delivery.Form      // what to leave out, since the provider refused it before
	Guarded   bool               // the address came over the API: private addresses are refused, see wire.Guard
}

// Provider speaks one dialect through one notifier's credentials. It must be safe for use by many goroutines.
//
// Do makes at most one call that could have an effect, never retries, returns within the notifier's timeout plus one
// second, and classifies from proof: failed only when nothing can have happened or the answer says so, sent only with
// the reference where the provider gives one, everything else unknown. Text in the result is redacted.
type Provider interface {
	Do(ctx context.Context, c Call) delivery.Result
}

// Linker is a provider that can name a link for people to an object it made. Link is a look-up: it changes nothing,
// needs no attempt, and returns "" when there is none within ctx.
type Linker interface {
	Link(ctx context.Context, r delivery.Reference) string
}

// Scanner is a provider that can look for messages of its own whose making is in doubt. A scan changes nothing and needs no
// attempt.
type Scanner interface {
	// Scan reads all that was posted at a place since a time. It returns within the notifier's timeout plus one second a
	// page of the history, and stops at ctx.
	Scan(ctx context.Context, s Search) Scan
}

// Search says where and how far back a Scan looks.
type Search struct {
	Operation delivery.Operation // create: among the messages of the place; reply: in the thread of Parent alone
	Address   string             // create: as attempts called it
	Parent    delivery.Reference // reply
	Oldest    time.Time          // the start of the oldest attempt in doubt; the margin for clocks that differ is the provider's
}

// Scan is what a look-up came to. Text in it is redacted.
type Scan struct {
	Found      map[string]delivery.Reference // by effect key, every one that was seen
	Complete   bool                          // all of it was read: what is not in Found was not there
	Blind      bool                          // it can't be read before a person mends something: scope, membership
	RetryAfter time.Duration                 // not complete: the provider asks for this much rest
	Code       string                        // why it is blind or not complete: the provider's code or a reason
	Sentence   string                        // blind: what a person should do
	Error      string                        // for the log
}

// Prober is a provider that can ask, without any effect, whether its credentials are good again.
type Prober interface {
	// Probe asks on behalf of an account fault with the given provider code. Sent: it is mended. Failed with an account
	// fault: it is not. Anything else: the probe proves neither, and one delivery must try.
	Probe(ctx context.Context, code string) delivery.Result
}

// Level says how bad a finding is.
type Level string

// The levels. Only Bad keeps messages from going out.
const (
	OK   Level = "ok"
	Warn Level = "warn"
	Bad  Level = "bad"
)

// Finding is one thing that was checked about a notifier.
type Finding struct {
	Check string // what was looked at, two or three words: "token", "scopes", "channel C0123"
	Level Level
	Text  string // what was found
	Fix   string // how to mend it; empty when OK
}

// Examination says what to examine.
type Examination struct {
	PublicURL string // what callbacks should be sent to
	Now       func() time.Time
	Live      bool // also post, find, edit and delete a message in the notifier's own place
}

// Examiner is a provider that can examine its own set-up. Nothing is sent, unless Live is set.
type Examiner interface {
	Examine(ctx context.Context, e Examination) []Finding
}

// Reach is what was found about a way to a person, without anything being sent. Text in it is redacted.
type Reach struct {
	Closed   bool   // a message would not arrive
	Unknown  bool   // it can't be known now: ask again later
	Reason   string // closed: from the closed list of reasons
	Sentence string // closed: how to mend it
}

// Reacher is a provider that can look whether a person could be reached. Nothing is sent.
type Reacher interface {
	Reach(ctx context.Context, address string) Reach
}

// ReachOf is what the result of a look-up says about a way. What is wrong with the account is not the person's, and is told
// elsewhere.
func ReachOf(res delivery.Result) Reach {
	switch {
	case res.Outcome == delivery.OutcomeSent:
		return Reach{}
	case res.Outcome == delivery.OutcomeFailed && res.Fault == delivery.FaultDestination:
		return Reach{Closed: true, Reason: res.Reason, Sentence: res.Sentence}
	}
	return Reach{Unknown: true}
}

// Grouper is a provider that can say who belongs to a group of its chat.
type Grouper interface {
	// SetGroup makes exactly the given people the group's members. It may be repeated.
	SetGroup(ctx context.Context, group string, members []string) delivery.Result
}

// FirstWord cuts what somebody wrote after its first word: blanks, tabs and line breaks end one.
func FirstWord(text string) (word, rest string) {
	text = strings.TrimSpace(text)
	at := strings.IndexFunc(text, unicode.IsSpace)
	if at < 0 {
		return text, ""
	}
	return text[:at], strings.TrimSpace(text[at:])
}

// Said is what a person did in a chat: they pressed a button, or wrote a command.
type Said struct {
	Key     string `json:"-"` // the same on every redelivery, however it comes
	Action  string `json:"action,omitempty"`
	Value   string `json:"value,omitempty"`   // of the button
	Command string `json:"command,omitempty"` // without its slash, lower case
	Text    string `json:"text,omitempty"`    // what follows the command
	Account string `json:"account"`           // who
	Name    string `json:"name,omitempty"`    // what the chat calls them
	To      string `json:"to,omitempty"`      // what Whisper takes
	Alone   bool   `json:"alone,omitempty"`   // nobody else reads the conversation
}

// Finder is a provider that can look up the account of a person by their e-mail address. It changes nothing and needs no attempt.
type Finder interface {
	// Find is the account's id; empty: the chat knows none, or none that can be written to. An error: it can't be known now.
	Find(ctx context.Context, email string) (string, error)
}

// Inviter is a provider that can name a link for people which opens the bot's conversation with a code to hand in.
type Inviter interface {
	// Invite is the link; "" when it can't be known within ctx.
	Invite(ctx context.Context, code string) string
	// Open makes the chat of a presser open such a link. to is what Whisper takes.
	Open(ctx context.Context, to, link string) error
}

// Whisperer is a provider that can answer people where they press a button or write a command.
type Whisperer interface {
	// Whisper says text to them, privately where the chat can. to is what the callback carried: Slack's response_url, Telegram's
	// callback query id or message.
	Whisper(ctx context.Context, to, text string) error
}
