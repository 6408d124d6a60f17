// Package provider is what every way out has in common: one call in, one result out.
package provider

import (
	"context"

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

// Whisperer is a provider that can answer the presser of a button privately.
type Whisperer interface {
	// Whisper says text to the one who pressed. to is what the callback carried: Slack's response_url, Telegram's
	// callback query id.
	Whisper(ctx context.Context, to, text string) error
}
