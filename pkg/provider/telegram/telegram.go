// Package telegram speaks the dialect of Telegram's Bot API.
//
// The library builds the requests and nothing more: it looks at neither status nor headers, and its errors hold the
// bot's token. What an answer means is read from the wire's record with the table in codes.go.
//
// Telegram has no idempotency key and a bot cannot list what it sent. An unknown send stays unknown.
package telegram

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	tgbotapi "github.com/go-telegram-bot-api/telegram-bot-api/v5"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/message"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
	"github.com/tocsin-oncall/tocsin/pkg/provider/wire"
)

// DefaultTimeout bounds a call where the notifier sets none. The server may hold a send for more than 8 seconds; a
// shorter bound would turn slow sends into unknown ones.
const DefaultTimeout = 30 * time.Second

const defaultAPI = "https://api.telegram.org"

// Provider sends through one bot. It is safe for use by many goroutines.
type Provider struct {
	token    string
	endpoint string // with %s for token and method, as the library wants it
	topic    int    // message_thread_id; 0: none
	client   *wire.Client
	notifier config.Notifier        // as the file has it, for Examine
	name     atomic.Pointer[string] // of the bot, once it was asked
}

var (
	_ provider.Provider  = (*Provider)(nil)
	_ provider.Linker    = (*Provider)(nil)
	_ provider.Whisperer = (*Provider)(nil)
	_ provider.Inviter   = (*Provider)(nil)
	_ provider.Prober    = (*Provider)(nil)
	_ provider.Examiner  = (*Provider)(nil)
)

// New makes a provider of a notifier with a token. red may be nil; the token is taken out of every result in any case.
func New(n config.Notifier, red wire.Redactor) (*Provider, error) {
	if n.Token == "" {
		return nil, fmt.Errorf("notifier %s: telegram needs token", n.Name)
	}
	if strings.ContainsFunc(n.Token, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("/?#%", r) }) {
		return nil, fmt.Errorf("notifier %s: the token is no bot token, which looks like 123456:ABC-DEF: copy it from @BotFather", n.Name)
	}
	api := n.APIURL
	if api == "" {
		api = defaultAPI
	}
	u, err := url.Parse(api)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("notifier %s: api_url is not a URL that begins with https:// or http://", n.Name)
	}
	timeout := n.Timeout
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	return &Provider{
		token:    n.Token,
		endpoint: strings.ReplaceAll(strings.TrimRight(api, "/"), "%", "%%") + "/bot%s/%s",
		topic:    n.MessageThreadID,
		notifier: n,
		client: wire.New(wire.Options{
			Provider: "telegram", Timeout: timeout, Redact: wire.Hide(red, n.Token, n.WebhookSecret),
		}),
	}, nil
}

// call makes one call of the Bot API and returns its record. The library's result is set aside.
func (p *Provider) call(ctx context.Context, method string, params tgbotapi.Params) wire.Record {
	tap := p.client.Tap(ctx)
	// Built by hand: NewBotAPI would call getMe first.
	bot := &tgbotapi.BotAPI{Token: p.token, Client: tap}
	bot.SetAPIEndpoint(p.endpoint)
	_, _ = bot.MakeRequest(method, params)
	return tap.Record
}

// Do makes the call. A create goes to the address, a chat id or @name; edits and replies go where the reference says.
func (p *Provider) Do(ctx context.Context, c provider.Call) delivery.Result {
	text, keyboard := render(c.Message, c.Form)
	params := tgbotapi.Params{"text": text, "link_preview_options": `{"is_disabled":true}`}
	if !c.Form.Plain {
		params["parse_mode"] = tgbotapi.ModeHTML
	}
	if keyboard != "" {
		params["reply_markup"] = keyboard
	}
	method := "sendMessage"
	switch c.Operation {
	case delivery.OpCreate:
		if c.Address == "" {
			return notCalled(delivery.FaultDestination, "destination:no_address", "there is no chat for this delivery: set chat_id in the file, or link the account")
		}
		params["chat_id"] = c.Address
		p.inTopic(params)
	case delivery.OpReply, delivery.OpEdit:
		if c.Reference.ChatID == 0 || c.Reference.MessageID == 0 {
			return notCalled(delivery.FaultGone, "telegram:no_reference", "it is not known which message this belongs to")
		}
		params["chat_id"] = strconv.FormatInt(c.Reference.ChatID, 10)
		if c.Operation == delivery.OpEdit {
			method = "editMessageText"
			params["message_id"] = strconv.Itoa(c.Reference.MessageID)
			break
		}
		p.inTopic(params)
		if id, err := strconv.ParseInt(c.Address, 10, 64); err == nil && id != c.Reference.ChatID {
			// The chat has moved since the parent was made: there its number is another message's.
			params["chat_id"] = c.Address
			break
		}
		if !c.Form.Root {
			// A reply whose parent was deleted is still news: it may go out without its parent.
			params["reply_parameters"] = fmt.Sprintf(`{"message_id":%d,"allow_sending_without_reply":true}`, c.Reference.MessageID)
		}
	default:
		return notCalled(delivery.FaultPayload, "payload:operation", fmt.Sprintf("telegram cannot do %q", c.Operation))
	}
	return judge(p.call(ctx, method, params), c.Operation, c)
}

// Probe asks Telegram who the bot is. Whatever Telegram refuses there is the account's fault, since getMe names no place
// and carries no content; so is an address at which something else answers.
func (p *Provider) Probe(ctx context.Context, _ string) delivery.Result {
	_, res := p.look(ctx, "getMe", nil)
	switch res.Fault {
	case delivery.FaultDestination, delivery.FaultPayload, delivery.FaultGone, delivery.FaultMoved:
		res.Fault = delivery.FaultAccount
		res.Reason = "account:" + res.Reason[strings.IndexByte(res.Reason, ':')+1:]
	}
	return res
}

// look makes a call that changes nothing people read. Sent means that Telegram answered ok with a result.
func (p *Provider) look(ctx context.Context, method string, params tgbotapi.Params) (wire.Record, delivery.Result) {
	rec := p.call(ctx, method, params)
	res := judge(rec, lookUp, provider.Call{Address: params["chat_id"]})
	if res.Outcome == delivery.OutcomeSent && res.Code == "" && !parse(rec.Body).result {
		return rec, rec.Doubt("no_result", "Telegram answered ok and said nothing more")
	}
	return rec, res
}

func (p *Provider) inTopic(params tgbotapi.Params) {
	if p.topic > 0 {
		params["message_thread_id"] = strconv.Itoa(p.topic)
	}
}

// notCalled is the result of a call that was not made.
func notCalled(f delivery.Fault, reason, sentence string) delivery.Result {
	return delivery.Result{
		Outcome: delivery.OutcomeFailed, Evidence: delivery.NotCalled, Fault: f, Reason: reason,
		Sentence: sentence, Error: "not called: " + sentence,
	}
}

// supergroup is subtracted from the number in a supergroup's or channel's link to make its chat id.
const supergroup = -1_000_000_000_000

// Link names the message's link for members of its chat. Only supergroups and channels have links; it asks nobody.
func (p *Provider) Link(_ context.Context, r delivery.Reference) string {
	if r.Permalink != "" {
		return r.Permalink
	}
	if r.ChatID >= supergroup || r.MessageID == 0 {
		return ""
	}
	return fmt.Sprintf("https://t.me/c/%d/%d", supergroup-r.ChatID, r.MessageID)
}

const (
	maxAlert       = 200 // characters in the answer to a callback
	maxAnswer      = 4000
	whisperTimeout = 5 * time.Second
)

// Whisper shows text to the presser as an alert. to is the callback query's id. A query that has grown too old is no
// error: only the button's spinner is lost.
func (p *Provider) Whisper(ctx context.Context, to, text string) error {
	if to == "" {
		return errors.New("telegram: there is no callback query to answer")
	}
	if place, ok := strings.CutPrefix(to, messageTo); ok {
		return p.answer(ctx, place, text)
	}
	text = inCode.ReplaceAllString(text, "$1") // this answer has no markup
	return p.query(ctx, tgbotapi.Params{"callback_query_id": to, "text": message.Fit(text, maxAlert, message.UTF16), "show_alert": "true"})
}

// Open makes the presser's Telegram open a link of Invite.
func (p *Provider) Open(ctx context.Context, to, link string) error {
	if to == "" || strings.HasPrefix(to, messageTo) {
		return errors.New("telegram: only the answer to a button opens a link")
	}
	return p.query(ctx, tgbotapi.Params{"callback_query_id": to, "url": link})
}

// inCode are the words of an answer that are to be copied as they are.
var inCode = regexp.MustCompile("`([^`\n]+)`")

// messageTo begins an address for Whisper that is a person's message; chat and message follow.
const messageTo = "message:"

// answer replies to a person's message. It is no effect that anybody counts on: nothing is recorded of it.
func (p *Provider) answer(ctx context.Context, place, text string) error {
	chat, id, _ := strings.Cut(place, "/")
	number, err := strconv.Atoi(id)
	if err != nil || chat == "" {
		return errors.New("telegram: it is not known which message is to be answered")
	}
	ctx, cancel := context.WithTimeout(ctx, whisperTimeout)
	defer cancel()
	rec := p.call(ctx, "sendMessage", tgbotapi.Params{
		"chat_id": chat, "text": inCode.ReplaceAllString(escaper.Replace(message.Fit(text, maxAnswer, message.UTF16)), "<code>$1</code>"), "parse_mode": tgbotapi.ModeHTML, "link_preview_options": `{"is_disabled":true}`,
		"reply_parameters": fmt.Sprintf(`{"message_id":%d,"allow_sending_without_reply":true}`, number),
	})
	res := judge(rec, delivery.OpCreate, provider.Call{Address: chat})
	if res.Outcome == delivery.OutcomeSent {
		return nil
	}
	return fmt.Errorf("telegram: the answer to a command did not go out: %s", res.Error)
}

// Invite is the link that opens the bot's conversation and hands in a code with Start. The bot's name is asked once.
func (p *Provider) Invite(ctx context.Context, code string) string {
	name := p.name.Load()
	if name == nil {
		rec, res := p.look(ctx, "getMe", nil)
		var me struct{ Username string }
		if result(rec, &me); res.Outcome != delivery.OutcomeSent || me.Username == "" {
			return ""
		}
		name = &me.Username
		p.name.Store(name)
	}
	return "https://t.me/" + url.PathEscape(*name) + "?start=" + url.QueryEscape(code)
}

// query answers the press of a button.
func (p *Provider) query(ctx context.Context, params tgbotapi.Params) error {
	ctx, cancel := context.WithTimeout(ctx, whisperTimeout)
	defer cancel()
	rec, res := p.look(ctx, "answerCallbackQuery", params)
	switch {
	case res.Outcome == delivery.OutcomeSent:
		return nil
	case rec.Status == 0:
		return fmt.Errorf("telegram: the answer to the button did not go out: %s", res.Error)
	}
	return fmt.Errorf("telegram: the answer to the button was refused with %d: %s", rec.Status, rec.Answer())
}
