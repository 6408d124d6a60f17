package slack

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
	"github.com/tocsin-oncall/tocsin/pkg/provider/wire"
)

// maxDrift is how far clocks may differ before it is worth a word. Beyond MaxSkew callbacks are refused.
const maxDrift = 30 * time.Second

// findings gathers what was found.
type findings []provider.Finding

func (f *findings) ok(check, format string, args ...any) {
	*f = append(*f, provider.Finding{Check: check, Level: provider.OK, Text: fmt.Sprintf(format, args...)})
}

func (f *findings) add(l provider.Level, check, fix, format string, args ...any) {
	*f = append(*f, provider.Finding{Check: check, Level: l, Text: fmt.Sprintf(format, args...), Fix: fix})
}

// Examine looks at the notifier's set-up. Nothing is posted unless e.Live is set.
func (p *Provider) Examine(ctx context.Context, e provider.Examination) []provider.Finding {
	if e.Now == nil {
		e.Now = time.Now
	}
	var f findings
	if p.hook != "" {
		p.examineHook(ctx, &f, e)
		return f
	}
	p.examineToken(ctx, &f, e)
	return f
}

func (p *Provider) examineToken(ctx context.Context, f *findings, e provider.Examination) {
	p.tokenKind(f)
	me, rec, res, ok := p.authTest(ctx)
	if rec.Status != 0 {
		p.clock(f, rec, e.Now())
	}
	if !ok {
		fix := res.Sentence
		if res.Evidence == delivery.NotSent || fix == "" {
			fix = "check the network between this machine and " + rec.Host + ", and api_url of the notifier in the file"
		}
		f.add(provider.Bad, "token", fix, "auth.test: %s", reasonOf(res))
		p.buttons(ctx, f, e)
		return
	}
	f.ok("token", "@%s of %s (%s)", rec.Text(me.user), rec.Text(me.team), rec.Text(me.teamID))
	has, told := scopes(rec)
	p.scopes(f, has, told)
	p.buttons(ctx, f, e)
	channel := p.notifier.Channel
	if channel == "" {
		if e.Live {
			f.ok("live test", "not made: the notifier sends to people and has no place of its own")
		}
		return
	}
	p.channel(ctx, f, channel, has)
	p.lookUps(ctx, f, channel)
	if e.Live {
		p.live(ctx, f, channel, e.Now())
	}
}

// reasonOf is a result in few words.
func reasonOf(res delivery.Result) string {
	if res.Error != "" {
		return res.Error
	}
	return res.Reason
}

// tokenKind looks at the token's first letters, as docs.slack.dev explains them.
func (p *Provider) tokenKind(f *findings) {
	const check = "token kind"
	switch {
	case strings.HasPrefix(p.token, "xoxb-"):
		f.ok(check, "a bot token")
	case strings.HasPrefix(p.token, "xapp-"):
		f.add(provider.Bad, check, useBot, "an app-level token (xapp-), which posts nothing")
	case strings.HasPrefix(p.token, "xoxp-"):
		f.add(provider.Warn, check, useBot, "a person's token (xoxp-): all goes out under their name, and ends when they leave")
	case strings.HasPrefix(p.token, "xoxe"):
		f.add(provider.Warn, check, "switch token rotation off in the Slack app, or "+useBot, "a rotating token (xoxe), which expires after twelve hours")
	default:
		f.add(provider.Warn, check, useBot, "a token of a kind that tocsin does not know")
	}
}

// clock compares the answer's Date with this machine's time.
func (p *Provider) clock(f *findings, rec wire.Record, now time.Time) {
	at, err := http.ParseTime(rec.Header.Get("Date"))
	if err != nil {
		return
	}
	const fix = "set this machine's clock by a time server (NTP)"
	drift := now.Sub(at).Abs().Truncate(time.Second)
	switch {
	case drift > MaxSkew:
		f.add(provider.Bad, "clock", fix, "%s apart from %s: presses of buttons are refused, since their signatures look too old or too new", drift, rec.Host)
	case drift > maxDrift:
		f.add(provider.Warn, "clock", fix, "%s apart from %s", drift, rec.Host)
	default:
		f.ok("clock", "as %s has it", rec.Host)
	}
}

// scopes says what the token may not do. That it may read a channel's history is tried, not read off the list.
func (p *Provider) scopes(f *findings, has map[string]bool, told bool) {
	const check = "scopes"
	give := func(scope string) string { return "give the Slack app the scope " + scope + " and reinstall it" }
	if !told {
		f.add(provider.Warn, check, "check in the Slack app, under OAuth & Permissions, that it has chat:write", "Slack does not say which scopes the token has")
		return
	}
	before := len(*f)
	if !granted(has, "chat:write") {
		f.add(provider.Bad, check, give("chat:write"), "chat:write is missing: nothing can be posted")
	}
	if p.notifier.Channel == "" {
		for _, s := range []struct{ name, why string }{
			{"im:write", "the conversation with a person cannot be found again, so that a page in doubt cannot be looked up"},
			{"im:history", "a page in doubt cannot be looked up: it is repeated"},
			{"users:read.email", "accounts cannot be found by e-mail address: link them one by one"},
		} {
			if !granted(has, s.name) {
				f.add(provider.Warn, "scope "+s.name, give(s.name), "it is missing: %s", s.why)
			}
		}
	}
	if len(*f) == before {
		f.ok(check, "all that the notifier needs")
	}
}

// secretForm is what Slack's signing secrets look like.
var secretForm = regexp.MustCompile(`^[0-9a-f]{32}$`)

// buttons says whether presses can come back.
func (p *Provider) buttons(ctx context.Context, f *findings, e provider.Examination) {
	if p.notifier.AppToken != "" {
		if _, err := p.openSocket(ctx); err != nil {
			f.add(provider.Warn, "Socket Mode", "make an app-level token with the scope connections:write, switch Socket Mode on in the app, and put the token into app_token", "%s", err.Error())
		} else {
			f.ok("Socket Mode", "a connection can be opened; nothing needs to be published")
		}
		return
	}
	const fix = "copy the Signing Secret from the Slack app's Basic Information into signing_secret in the file"
	switch secret := p.notifier.SigningSecret; {
	case secret == "":
		f.add(provider.Warn, "signing secret", fix, "there is none: presses of buttons are refused")
	case !secretForm.MatchString(secret):
		f.add(provider.Warn, "signing secret", fix, "it is not 32 hexadecimal digits as Slack's are: presses of buttons will be refused")
	default:
		f.ok("signing secret", "it has the right form")
	}
	u, err := url.Parse(e.PublicURL)
	switch {
	case e.PublicURL == "" || err != nil || u.Host == "":
		f.add(provider.Warn, "callbacks", "set server.public_url in the file to the address under which Slack reaches tocsin", "there is no public address to which Slack could send the presses of buttons")
	case u.Scheme != "https":
		f.add(provider.Warn, "callbacks", "put tocsin behind https and change server.public_url in the file", "%s is not https, and Slack sends presses of buttons to https only", e.PublicURL)
	default:
		f.ok("callbacks", "Interactivity of the Slack app must send to %s/slack/interactions", strings.TrimSuffix(e.PublicURL, "/"))
	}
}

// channelID is the form of a conversation's id.
var channelID = regexp.MustCompile(`^[CGDUW][A-Z0-9]{2,}$`)

// channel looks whether the notifier's channel can be posted to.
func (p *Provider) channel(ctx context.Context, f *findings, channel string, has map[string]bool) {
	check := "channel " + channel
	if !channelID.MatchString(channel) {
		f.add(provider.Warn, check, "put the channel's id (C...) into channel in the file: it stands at the foot of the channel's details", "it is a name, not an id: it changes with the channel's, and cannot be looked up")
		return
	}
	if isPerson(channel) {
		f.ok(check, "the direct messages with one person")
		return
	}
	rec := p.ask(ctx, "conversations.info", url.Values{"channel": {channel}})
	res, a, ok := judge(rec, opRead, channel)
	if !ok {
		switch {
		case res.Code == missingScope:
			f.add(provider.Warn, check, "give the Slack app the scope "+rec.Text(orElse(a.needed, "channels:read"))+" and reinstall it", "it cannot be looked at: the scope for that is missing")
		case res.Fault == delivery.FaultDestination && res.Code == "channel_not_found":
			f.add(provider.Bad, check, "check the id, or invite @tocsin to the channel", "it does not exist, or it is private and @tocsin is no member")
		default:
			f.add(provider.Warn, check, orElse(res.Sentence, "examine it again later"), "it cannot be looked at: %s", reasonOf(res))
		}
		return
	}
	var c struct {
		Name     string `json:"name"`
		Archived bool   `json:"is_archived"`
		Member   bool   `json:"is_member"`
		Private  bool   `json:"is_private"`
		Direct   bool   `json:"is_im"`
	}
	if json.Unmarshal(a.top["channel"], &c) != nil {
		f.add(provider.Warn, check, "examine it again later", "it cannot be looked at: Slack's answer is not what it documents")
		return
	}
	name := "#" + rec.Text(c.Name)
	invite := "invite @tocsin to " + name
	switch {
	case c.Archived:
		f.add(provider.Bad, check, "unarchive "+name+" or choose another channel in the file", "%s is archived", name)
	case c.Direct || c.Member:
		f.ok(check, "%s, and @tocsin is a member", orElse(strings.TrimPrefix(name, "#"), "a direct message"))
	case c.Private || !has["chat:write.public"]:
		f.add(provider.Bad, check, invite, "@tocsin is no member of %s and cannot post there", name)
	default:
		f.add(provider.Warn, check, invite, "@tocsin is no member of %s: it can post there, and cannot look up what is in doubt", name)
	}
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// lookUps reads one message, to see whether a message in doubt could be looked up.
func (p *Provider) lookUps(ctx context.Context, f *findings, channel string) {
	const check = "look-ups"
	if isPerson(channel) {
		id, res, ok := p.openDirect(ctx, channel)
		if !ok {
			f.add(provider.Warn, check, orElse(res.Sentence, "examine it again later"), "the conversation cannot be opened: %s", reasonOf(res))
			return
		}
		channel = id
	}
	rec := p.ask(ctx, "conversations.history", url.Values{"channel": {channel}, "limit": {"1"}})
	res, _, ok := judge(rec, opRead, channel)
	if !ok {
		f.add(provider.Warn, check, orElse(res.Sentence, "examine it again later"), "a message in doubt cannot be looked up, so that it is repeated: %s", reasonOf(res))
		return
	}
	f.ok(check, "a message in doubt can be looked up")
}

// hookPath is the path of Slack's own incoming webhooks.
var hookPath = regexp.MustCompile(`^/services/T[A-Z0-9]+/B[A-Z0-9]+/[A-Za-z0-9]+$`)

func (p *Provider) examineHook(ctx context.Context, f *findings, e provider.Examination) {
	u, err := url.Parse(p.hook)
	if err != nil { // New has parsed it already
		return
	}
	const check = "webhook URL"
	own := u.Hostname() == "hooks.slack.com"
	copyIt := "copy the webhook URL from Slack once more into webhook_url in the file"
	switch {
	case u.Scheme != "https" && own:
		f.add(provider.Bad, check, "write https:// in webhook_url in the file", "it begins with http://, and %s takes https only", u.Host)
	case own && strings.HasPrefix(u.Path, "/services/") && !hookPath.MatchString(u.Path):
		f.add(provider.Bad, check, copyIt, "it is not complete: after /services/ come three parts, of which the first begins with T and the second with B")
	case own && strings.HasPrefix(u.Path, "/services/"):
		f.ok(check, "an incoming webhook of Slack: it can post, and neither edit nor reply")
	case own && (strings.HasPrefix(u.Path, "/workflows/") || strings.HasPrefix(u.Path, "/triggers/")):
		f.add(provider.Warn, check, "use an incoming webhook or a bot token, unless the workflow has a variable named text", "it starts a workflow, which shows only what its variables take")
	case own:
		f.add(provider.Bad, check, copyIt, "it leads to %s and to no webhook there", u.Host)
	case u.Scheme != "https":
		f.add(provider.Warn, check, "use https, if "+u.Host+" is not on this machine", "it goes to %s without encryption, and the URL is a secret", u.Host)
	default:
		f.ok(check, "a server that speaks like Slack, %s", u.Host)
	}
	// The root of the host, not the webhook: some servers take any request to it for a message.
	root := url.URL{Scheme: u.Scheme, Host: u.Host, Path: "/"}
	head := (&http.Request{Method: http.MethodHead, URL: &root, Host: u.Host, Header: http.Header{"User-Agent": {"tocsin"}}}).WithContext(ctx)
	rec := p.client.Do(head)
	if rec.Status == 0 {
		res, _ := rec.Judge()
		f.add(provider.Bad, "connection", "check the network between this machine and "+u.Host, "%s: %s", u.Host, reasonOf(res))
		return
	}
	f.ok("connection", "%s answers", u.Host)
	if e.Live {
		p.liveHook(ctx, f, u, own)
	}
}

// liveHook calls a webhook of Slack's own with nothing to post, which Slack refuses with a code that tells whether the URL is
// good. What was posted could not be deleted again, here and anywhere else.
func (p *Provider) liveHook(ctx context.Context, f *findings, u *url.URL, own bool) {
	const check = "live test"
	if !own {
		f.ok(check, "not made: what a webhook posts cannot be deleted again")
		return
	}
	hookFinding(f, judgeHook(p.client.Do(jsonPost(ctx, u, []byte("{}"))), true))
}

// hookFinding says what the answer to a call without content shows about a webhook.
func hookFinding(f *findings, res delivery.Result) {
	const check = "live test"
	switch res.Fault {
	case delivery.FaultPayload:
		f.ok(check, "Slack knows the webhook: it refused a message without text, and posted nothing")
	case delivery.FaultDestination:
		f.add(provider.Bad, check, orElse(res.Sentence, "make a new webhook in Slack and put it into the file"), "Slack refuses the webhook: %s", reasonOf(res))
	default:
		f.add(provider.Warn, check, "examine it again later", "it does not show whether the webhook is good: %s", orElse(reasonOf(res), "Slack took a message without text"))
	}
}
