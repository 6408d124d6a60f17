// Package slack speaks Slack's dialect: the Web API with a bot token, incoming webhooks, and the callbacks of buttons.
//
// slack-go builds the requests and nothing more. What an answer means is read from the wire's record with the tables
// in codes.go, since the library drops the status, the body or the error in most of the answers that matter.
package slack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	slackgo "github.com/slack-go/slack"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
	"github.com/tocsin-oncall/tocsin/pkg/provider/wire"
)

// MetadataType is the event type of the metadata that every new message carries, and MetadataKey the name under which
// its payload holds the effect key. By them an unknown post can be found again.
const (
	MetadataType = "tocsin_delivery"
	MetadataKey  = "effect_key"
)

const defaultAPI = "https://slack.com/api/"

// Provider sends through one notifier. It is safe for use by many goroutines.
type Provider struct {
	token    string
	api      string   // ends in a slash
	base     *url.URL // api, taken apart
	apiHost  string   // without its port
	hook     string   // incoming webhook; empty: Web API
	client   *wire.Client
	guard    wire.Guard // of response_urls
	clean    wire.Redactor
	notifier config.Notifier

	ping   time.Duration          // between pings of a Socket Mode connection
	needed atomic.Pointer[string] // the scope that Slack missed last
	me     atomic.Pointer[identity]
}

var (
	_ provider.Provider  = (*Provider)(nil)
	_ provider.Linker    = (*Provider)(nil)
	_ provider.Whisperer = (*Provider)(nil)
	_ provider.Scanner   = (*Provider)(nil)
	_ provider.Prober    = (*Provider)(nil)
	_ provider.Examiner  = (*Provider)(nil)
	_ provider.Finder    = (*Provider)(nil)
)

// New makes a provider of a notifier with a token or a webhook URL. red may be nil; the notifier's own secrets are
// taken out of every result in any case.
func New(n config.Notifier, red wire.Redactor, allow ...netip.Prefix) (*Provider, error) {
	if n.Token == "" && n.WebhookURL == "" {
		return nil, fmt.Errorf("notifier %s: slack needs token or webhook_url", n.Name)
	}
	if n.Token != "" && n.WebhookURL != "" {
		return nil, fmt.Errorf("notifier %s: slack takes token or webhook_url, not both", n.Name)
	}
	p := &Provider{token: n.Token, api: n.APIURL, hook: n.WebhookURL, notifier: n, ping: socketPing}
	if p.api == "" {
		p.api = defaultAPI
	}
	p.api = strings.TrimRight(p.api, "/") + "/"
	u, err := url.Parse(p.api)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("notifier %s: api_url is not a URL that begins with https:// or http://", n.Name)
	}
	p.apiHost, p.base = u.Hostname(), u
	secrets := []string{n.Token, n.WebhookURL, n.SigningSecret, n.AppToken}
	if n.WebhookURL != "" {
		h, err := url.Parse(n.WebhookURL)
		if err != nil || h.Host == "" || h.Scheme != "http" && h.Scheme != "https" {
			// The URL is a secret, and url.Parse's error quotes it.
			return nil, fmt.Errorf("notifier %s: webhook_url is not a URL that begins with https:// or http://", n.Name)
		}
		if len(h.Path) > len("/services/") {
			secrets = append(secrets, h.EscapedPath())
		}
		if h.User != nil {
			password, _ := h.User.Password()
			secrets = append(secrets, password)
		}
	}
	p.clean = wire.Hide(red, secrets...)
	p.guard = wire.Guard{Allow: allow}
	p.client = wire.New(wire.Options{Provider: "slack", Timeout: n.Timeout, Redact: p.clean})
	return p, nil
}

// Do makes the call. A create goes to the address, which is a channel id or, for a page, a user id; replies and edits
// go where the reference says.
func (p *Provider) Do(ctx context.Context, c provider.Call) delivery.Result {
	if p.hook != "" {
		return p.doHook(ctx, c)
	}
	op, channel := opPost, c.Address
	switch {
	case c.Operation == delivery.OpCreate && channel == "":
		return notCalled(delivery.FaultDestination, "destination:no_address", "the notifier has no channel for this delivery: set channel in the file")
	case c.Operation == delivery.OpCreate:
	case c.Operation == delivery.OpReply && c.Form.Root && (c.Reference.Channel != "" || channel != ""):
		channel = orElse(c.Reference.Channel, channel)
	case c.Operation != delivery.OpEdit && c.Operation != delivery.OpReply:
		return notCalled(delivery.FaultPayload, "payload:operation", fmt.Sprintf("slack cannot do %q", c.Operation))
	case c.Reference.Channel == "" || c.Reference.TS == "":
		return notCalled(delivery.FaultGone, "slack:no_reference", "it is not known which message this belongs to")
	default:
		op, channel = opReply, c.Reference.Channel
		if c.Operation == delivery.OpEdit {
			op = opEdit
		}
	}
	place := c.Address
	if place == "" {
		place = channel
	}

	tap := p.client.Tap(ctx)
	api := slackgo.New(p.token, slackgo.OptionHTTPClient(tap), slackgo.OptionAPIURL(p.api))
	// The library's results are set aside: judge reads the record.
	var r rendered
	if op == opEdit {
		// The marks of the create stay: Slack keeps metadata that an edit leaves out.
		r = render(c.Message, c.Form, "")
		_, _, _, _ = api.UpdateMessageContext(ctx, channel, c.Reference.TS, r.options(true)...)
	} else {
		r = render(c.Message, c.Form, c.Key)
		opts := r.options(false)
		if !c.Form.NoMetadata {
			opts = append(opts, slackgo.MsgOptionMetadata(slackgo.SlackMetadata{
				EventType: MetadataType, EventPayload: map[string]any{MetadataKey: c.Key},
			}))
		}
		if op == opReply {
			opts = append(opts, slackgo.MsgOptionTS(c.Reference.TS))
			if c.Broadcast {
				opts = append(opts, slackgo.MsgOptionBroadcast())
			}
		}
		_, _, _ = api.PostMessageContext(ctx, channel, opts...)
	}

	rec := tap.Record
	res, a, ok := judge(rec, op, place)
	switch {
	case ok:
		return accepted(rec, res, a, op, c.Reference)
	case res.Outcome == delivery.OutcomeSent: // it is so already
		res.Reference = c.Reference
	case res.Fault == delivery.FaultPayload && onlyAt(a.messages, r.buttonsAt()):
		res.Refused = delivery.PartButtons
	case res.Fault == delivery.FaultPayload && onlyAt(a.messages, "/metadata"):
		res.Refused = delivery.PartMetadata
	case res.Code == missingScope:
		p.needed.Store(&a.needed)
	}
	return res
}

// notCalled is the result of a call that was not made.
func notCalled(f delivery.Fault, reason, sentence string) delivery.Result {
	return delivery.Result{
		Outcome: delivery.OutcomeFailed, Evidence: delivery.NotCalled, Fault: f, Reason: reason,
		Sentence: sentence, Error: "not called: " + sentence,
	}
}

// Link asks Slack for the message's permalink. Where Slack does not say, it is made up of the coordinates, which Slack
// resolves for whoever is signed in.
func (p *Provider) Link(ctx context.Context, r delivery.Reference) string {
	if r.Permalink != "" {
		return r.Permalink
	}
	if r.Channel == "" || r.TS == "" || p.token == "" {
		return ""
	}
	tap := p.client.Tap(ctx)
	api := slackgo.New(p.token, slackgo.OptionHTTPClient(tap), slackgo.OptionAPIURL(p.api))
	_, _ = api.GetPermalinkContext(ctx, &slackgo.PermalinkParameters{Channel: r.Channel, Ts: r.TS})
	if rec := tap.Record; rec.Whole() && rec.Status == http.StatusOK {
		var answer struct {
			OK        bool   `json:"ok"`
			Permalink string `json:"permalink"`
		}
		if json.Unmarshal(rec.Body, &answer) == nil && answer.OK {
			if u, err := url.Parse(answer.Permalink); err == nil && u.Host != "" && (u.Scheme == "https" || u.Scheme == "http") {
				return answer.Permalink
			}
		}
	}
	return "https://slack.com/archives/" + url.PathEscape(r.Channel) + "/p" + url.PathEscape(strings.ReplaceAll(r.TS, ".", ""))
}

// ephemeralTo begins an address for Whisper that is no URL; channel and user follow.
const ephemeralTo = "ephemeral:"

// EphemeralTo is the address for Whisper of a presser whose callback brought no response_url.
func EphemeralTo(channel, user string) string { return ephemeralTo + channel + "/" + user }

// ephemeral shows text to one user of a channel. It is no effect that anybody counts on: nothing is recorded of it.
func (p *Provider) ephemeral(ctx context.Context, place, text string) error {
	channel, user, _ := strings.Cut(place, "/")
	if channel == "" || user == "" {
		return errors.New("slack: the callback says neither response_url nor channel and user: the presser can't be answered")
	}
	ctx, cancel := context.WithTimeout(ctx, whisperTimeout)
	defer cancel()
	tap := p.client.Tap(ctx)
	api := slackgo.New(p.token, slackgo.OptionHTTPClient(tap), slackgo.OptionAPIURL(p.api))
	if _, err := api.PostEphemeralContext(ctx, channel, user, slackgo.MsgOptionText(spoken(text), false)); err != nil {
		return fmt.Errorf("slack: the private answer did not go out: %s", p.clean.String(err.Error()))
	}
	return nil
}

// spoken is the text of a private answer, with its addresses as links.
func spoken(text string) string {
	return inText.ReplaceAllString(escape(fit(text)), "<$0>")
}

var inText = regexp.MustCompile(`https?://[^\s<>"]*[^\s<>".,;:!?)]`)

// whisperTimeout bounds a private answer: the person is looking at the button.
const whisperTimeout = 5 * time.Second

// Whisper posts text to a callback's response_url, or to an address of [EphemeralTo], so that only the presser sees it. The URL must be https, or on the
// host of api_url; it comes with a signed callback, but a signature does not make an address safe.
func (p *Provider) Whisper(ctx context.Context, to, text string) error {
	if place, ok := strings.CutPrefix(to, ephemeralTo); ok {
		return p.ephemeral(ctx, place, text)
	}
	u, err := url.Parse(to)
	if err != nil || u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || u.Hostname() != p.apiHost) {
		return errors.New("slack: the callback's response_url is neither https nor on the host of api_url")
	}
	body, err := json.Marshal(map[string]any{
		"response_type": "ephemeral", "replace_original": false, "text": spoken(text),
	})
	if err != nil {
		return fmt.Errorf("slack: the private answer: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, whisperTimeout)
	defer cancel()
	client := p.client
	if u.Hostname() != p.apiHost {
		client = client.Guarded(p.guard) // the address comes from outside the file
	}
	rec := client.Do(jsonPost(ctx, u, body))
	if rec.Err != nil {
		return fmt.Errorf("slack: the private answer did not go out: %s", rec.Text(rec.Err.Error()))
	}
	if rec.Status/100 != 2 {
		return fmt.Errorf("slack: the private answer was refused with %d: %s", rec.Status, rec.Answer())
	}
	return nil
}
