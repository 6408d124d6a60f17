package telegram

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	tgbotapi "github.com/go-telegram-bot-api/telegram-bot-api/v5"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/message"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
	"github.com/tocsin-oncall/tocsin/pkg/provider/wire"
)

// maxDrift is how far clocks may differ before it is worth a word, and manyPending how many updates may wait.
const (
	maxDrift    = 30 * time.Second
	manyPending = 100
)

// setHook is how the webhook is set; the handbook's page on Telegram has the whole command.
const setHook = "set the webhook again with telegram/set-webhook.sh, as the handbook's page on Telegram tells"

// findings gathers what was found.
type findings []provider.Finding

func (f *findings) ok(check, format string, args ...any) {
	*f = append(*f, provider.Finding{Check: check, Level: provider.OK, Text: fmt.Sprintf(format, args...)})
}

func (f *findings) add(l provider.Level, check, fix, format string, args ...any) {
	*f = append(*f, provider.Finding{Check: check, Level: l, Text: fmt.Sprintf(format, args...), Fix: fix})
}

// refused is a call that did not get what it asked for. Only an answer of Telegram's own is sure to keep messages from
// going out.
func (f *findings) refused(check string, rec wire.Record, res delivery.Result) {
	level, fix := provider.Bad, res.Sentence
	switch {
	case res.Outcome == delivery.OutcomeUnknown && rec.Status != 0, res.Fault == delivery.FaultThrottled, res.Fault == delivery.FaultTransient && rec.Status != 0:
		level, fix = provider.Warn, "examine it again later"
	case rec.Status == 0:
		fix = "check the network between this machine and " + rec.Host + ", and api_url of the notifier in the file"
	case fix == "":
		fix = "look up " + res.Reason + " in the handbook's page on Telegram"
	}
	text := res.Error
	if text == "" {
		text = res.Reason
	}
	f.add(level, check, fix, "%s", text)
}

// Examine looks at the bot, its chat and its webhook. Nothing is sent unless e.Live is set.
func (p *Provider) Examine(ctx context.Context, e provider.Examination) []provider.Finding {
	if e.Now == nil {
		e.Now = time.Now
	}
	var f findings
	bot, ok := p.examineToken(ctx, &f, e)
	if !ok {
		return f // every other call would fail in the same way
	}
	p.examineHook(ctx, &f, e)
	can := p.examineChat(ctx, &f, bot)
	f.ok("doubt", "Telegram cannot be asked what it has: a send without an answer stays unknown, and the kind's on_unknown decides")
	if e.Live {
		p.live(ctx, &f, e, can)
	}
	return f
}

// result reads what a look-up answered into v; fields of another type stay zero.
func result(rec wire.Record, v any) {
	var top struct{ Result json.RawMessage }
	if json.Unmarshal(rec.Body, &top) == nil {
		_ = json.Unmarshal(top.Result, v)
	}
}

// examineToken asks who the bot is, and what time it is over there.
func (p *Provider) examineToken(ctx context.Context, f *findings, e provider.Examination) (bot int64, ok bool) {
	rec, res := p.look(ctx, "getMe", nil)
	if rec.Status != 0 {
		clock(f, rec, e.Now())
	}
	if res.Outcome != delivery.OutcomeSent {
		f.refused("token", rec, res)
		return 0, false
	}
	var me struct {
		ID       int64
		Username string
		Name     string `json:"first_name"`
	}
	result(rec, &me)
	f.ok("token", "@%s (%s)", rec.Text(me.Username), rec.Text(me.Name))
	return me.ID, true
}

// clock compares the answer's Date with this machine's time.
func clock(f *findings, rec wire.Record, now time.Time) {
	at, err := http.ParseTime(rec.Header.Get("Date"))
	if err != nil {
		return
	}
	if drift := now.Sub(at).Abs().Truncate(time.Second); drift > maxDrift {
		f.add(provider.Warn, "clock", "set this machine's clock by a time server (NTP)", "%s apart from %s", drift, rec.Host)
		return
	}
	f.ok("clock", "as %s has it", rec.Host)
}

// examineChat asks about the notifier's own chat, and whether the bot may send there.
func (p *Provider) examineChat(ctx context.Context, f *findings, bot int64) (can bool) {
	id := p.notifier.ChatID
	if id == "" {
		f.ok("chat", "none of its own: it sends to people, each of whom must have pressed Start")
		return false
	}
	check := "chat " + id
	rec, res := p.look(ctx, "getChat", tgbotapi.Params{"chat_id": id})
	if res.Outcome != delivery.OutcomeSent {
		f.refused(check, rec, res)
		return false
	}
	var chat struct {
		Type, Title, Username string
		Name                  string `json:"first_name"`
		Forum                 bool   `json:"is_forum"`
		Permissions           struct {
			Send *bool `json:"can_send_messages"`
		}
	}
	result(rec, &chat)
	for _, s := range []string{chat.Name, chat.Username, "without a name"} {
		if chat.Title == "" {
			chat.Title = s
		}
	}
	name := rec.Text(chat.Type + " " + strconv.Quote(message.Fit(message.Line(chat.Title), 100, cost)))
	if chat.Type == "private" {
		f.ok(check, "%s: a person's chat with the bot", name)
		return true
	}
	rec, res = p.look(ctx, "getChatMember", tgbotapi.Params{"chat_id": id, "user_id": strconv.FormatInt(bot, 10)})
	if res.Outcome != delivery.OutcomeSent {
		f.refused(check, rec, res)
		return false
	}
	var member struct {
		Status string
		Send   *bool `json:"can_send_messages"`
		Post   *bool `json:"can_post_messages"`
		Edit   *bool `json:"can_edit_messages"`
	}
	result(rec, &member)
	not := func(b *bool) bool { return b != nil && !*b }
	admin := member.Status == "administrator" || member.Status == "creator"
	switch {
	case member.Status == "left" || member.Status == "kicked":
		f.add(provider.Bad, check, "add the bot to the "+chat.Type+" again", "%s: the bot is not in it", name)
	case chat.Type == "channel" && (!admin || not(member.Post)):
		f.add(provider.Bad, check, "make the bot an administrator of the channel that may post and edit messages", "%s: the bot may not post", name)
	case member.Status == "restricted" && not(member.Send), member.Status == "member" && not(chat.Permissions.Send):
		f.add(provider.Bad, check, "let the bot send messages there, or make it an administrator", "%s: the bot may not send messages", name)
	default:
		can = true
		f.ok(check, "%s: the bot may send, as %s", name, rec.Text(member.Status))
	}
	if can {
		can = p.examineTopic(f, chat.Type, chat.Forum)
	}
	return can
}

// examineTopic says what can be known about the topic, which is little: no call tells a bot which topics there are.
func (p *Provider) examineTopic(f *findings, kind string, forum bool) bool {
	if p.topic == 0 {
		return true
	}
	check := "topic " + strconv.Itoa(p.topic)
	switch {
	case p.topic == 1:
		f.add(provider.Bad, check, "remove message_thread_id from the file: what has none goes to the General topic", "the General topic cannot be named")
	case !forum:
		f.add(provider.Bad, check, "remove message_thread_id from the file, or turn topics on in the "+kind, "the %s has no topics", kind)
	default:
		f.ok(check, "whether it is there and open cannot be asked; a message shows it")
		return true
	}
	return false
}

// examineHook compares what Telegram knows of the webhook with what the file wants. Without it messages go out all the
// same, but their buttons do nothing.
func (p *Provider) examineHook(ctx context.Context, f *findings, e provider.Examination) {
	const check, dead = "webhook", "buttons do nothing"
	if p.notifier.Poll {
		p.examinePoll(ctx, f)
		return
	}
	if p.notifier.WebhookSecret == "" {
		f.add(provider.Warn, "webhook_secret", "put webhook_secret into the file, restart, and "+setHook, "missing in the file: presses and /start are refused, so that %s", dead)
	}
	rec, res := p.look(ctx, "getWebhookInfo", nil)
	if res.Outcome != delivery.OutcomeSent {
		f.refused(check, rec, res)
		return
	}
	var hook struct {
		URL       string
		Pending   int      `json:"pending_update_count"`
		LastError string   `json:"last_error_message"`
		LastDate  int64    `json:"last_error_date"`
		Allowed   []string `json:"allowed_updates"`
	}
	result(rec, &hook)
	callbacks := strings.TrimRight(e.PublicURL, "/") + "/telegram/"
	want := callbacks + url.PathEscape(p.notifier.Name)
	at := rec.Text(hook.URL)
	switch name, ours := strings.CutPrefix(hook.URL, callbacks); {
	case hook.URL == "":
		f.add(provider.Warn, check, setHook+", with url="+want, "none is set: %s", dead)
	case hook.URL == want:
		f.ok(check, "%s", at)
	case ours && name != "" && !strings.Contains(name, "/"):
		// A bot has one webhook, and several notifiers may share a bot.
		f.ok(check, "%s: of another notifier, which must have this bot's token and secret", at)
	default:
		f.add(provider.Warn, check, setHook+", with url="+want, "it leads to %s and not to %s: %s", at, want, dead)
	}
	if hook.URL == "" {
		return
	}
	if told := rec.Text(strings.Join(hook.Allowed, ", ")); len(hook.Allowed) > 0 {
		switch {
		case !slices.Contains(hook.Allowed, "callback_query"):
			f.add(provider.Warn, "webhook updates", setHook, "it is told of %s only, and of no press: %s", told, dead)
		case !slices.Contains(hook.Allowed, "message"): // as versions set it that knew no commands
			f.add(provider.Warn, "webhook updates", setHook, "it is told of %s only, and of no message: /start and commands do nothing, and nobody is linked by a code", told)
		}
	}
	if hook.LastError != "" {
		when := "at some time"
		if hook.LastDate > 0 {
			when = time.Unix(hook.LastDate, 0).UTC().Format(time.RFC3339)
		}
		f.add(provider.Warn, "webhook errors", "look at the last table of the handbook's page on Telegram", "the last one, %s: %s", when, rec.Text(message.Fit(hook.LastError, 300, cost)))
	}
	if hook.Pending >= manyPending {
		f.add(provider.Warn, "webhook queue", "see that "+want+" is reached from the internet and answers with 200", "%d updates wait to be taken", hook.Pending)
	}
}

// examinePoll looks whether Telegram gives updates to whoever asks. It does not ask for any itself: that would end the poll of a replica.
func (p *Provider) examinePoll(ctx context.Context, f *findings) {
	const check = "polling"
	rec, res := p.look(ctx, "getWebhookInfo", nil)
	if res.Outcome != delivery.OutcomeSent {
		f.refused(check, rec, res)
		return
	}
	var hook struct {
		URL     string
		Pending int `json:"pending_update_count"`
	}
	switch result(rec, &hook); {
	case hook.URL != "":
		f.add(provider.Warn, check, "delete the webhook as the handbook's page on Telegram tells under Polling, or use webhook_secret instead of poll", "a webhook leads to %s, and Telegram gives updates in one way only: buttons do nothing", rec.Text(hook.URL))
	case hook.Pending >= manyPending:
		f.add(provider.Warn, check, "see that a replica runs, and what its log says of this notifier", "%d updates wait to be asked for", hook.Pending)
	default:
		f.ok(check, "no webhook is set: updates are there to be asked for")
	}
}

// live sends a message to the notifier's own chat, edits it and deletes it, through the classifier of every send.
func (p *Provider) live(ctx context.Context, f *findings, e provider.Examination, can bool) {
	const check = "live test"
	if p.notifier.ChatID == "" {
		f.ok(check, "not made: the notifier sends to people and has no chat of its own")
		return
	}
	if !can {
		f.add(provider.Warn, check, "mend the chat first", "not made")
		return
	}
	m := message.Message{
		Title: "A test of tocsin doctor", Text: "It is edited and deleted at once. Nothing is wrong.",
		Footer: e.Now().UTC().Format(time.RFC3339),
	}
	made := p.Do(ctx, provider.Call{Operation: delivery.OpCreate, Address: p.notifier.ChatID, Message: m})
	if made.Outcome != delivery.OutcomeSent {
		f.liveFailed(check, "send", made)
		return
	}
	m.Text = "It was edited, and is deleted at once. Nothing is wrong."
	edited := p.Do(ctx, provider.Call{Operation: delivery.OpEdit, Reference: made.Reference, Message: m})
	// Deleted in any case, and although ctx may be over: the message would stay.
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.client.Timeout())
	defer cancel()
	_, deleted := p.look(clean, "deleteMessage", tgbotapi.Params{
		"chat_id": strconv.FormatInt(made.Reference.ChatID, 10), "message_id": strconv.Itoa(made.Reference.MessageID),
	})
	switch {
	case edited.Outcome != delivery.OutcomeSent:
		f.liveFailed(check, "edit", edited)
	case deleted.Outcome != delivery.OutcomeSent:
		f.liveFailed(check, "delete", deleted)
	default:
		f.ok(check, "message %d was sent, edited and deleted in %s", made.Reference.MessageID, (made.Duration + edited.Duration + deleted.Duration).Round(time.Millisecond))
	}
}

func (f *findings) liveFailed(check, what string, res delivery.Result) {
	level, fix := provider.Bad, res.Sentence
	if res.Fault == delivery.FaultThrottled || res.Fault == delivery.FaultTransient || res.Outcome == delivery.OutcomeUnknown || what == "delete" {
		level = provider.Warn
	}
	if fix == "" {
		fix = "try again later"
	}
	text := res.Error
	if text == "" {
		text = res.Reason
	}
	f.add(level, check, fix, "could not %s: %s", what, text)
}
