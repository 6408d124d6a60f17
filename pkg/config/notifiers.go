package config

import (
	"cmp"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
)

// The types of notifiers that this version speaks, and those that the contract knows besides.
var (
	types      = []string{"slack", "telegram", "webhook", "log"}
	laterTypes = []string{"email", "twilio"}
)

// keysOfType are the keys that only notifiers of one type have, so that a misplaced one can be told from an unknown one.
var keysOfType = map[string][]string{
	"slack":    {"token", "webhook_url", "channel", "signing_secret", "app_token", "api_url"},
	"telegram": {"token", "chat_id", "message_thread_id", "webhook_secret", "poll", "api_url"},
	"webhook":  {"url", "secret", "secrets", "headers", "events"},
	"log":      {"path"},
	"email":    {"smtp", "from", "to"},
	"twilio":   {"account_sid", "auth_token", "from", "mode", "api_url"},
}

const (
	defaultTimeout  = 10 * time.Second
	telegramTimeout = 30 * time.Second
	maxTimeout      = 10 * time.Minute
)

func (l *loader) notifiers(root *object) {
	l.file.Notifiers = map[string]Notifier{}
	all := root.get("notifiers").object()
	if all == nil {
		return
	}
	for _, name := range all.keys {
		v := all.get(name)
		value{r: v.r, at: all.places[name], path: v.path}.define(aNotifier, name)
		if v.null() {
			v.problem("give it a type: "+strings.Join(types, ", "), "the notifier %s is empty", name)
		}
		if o := v.object(); o != nil {
			n := notifier(o, name)
			n.account = n.Account()
			l.file.Notifiers[name] = n
		}
	}
}

func notifier(o *object, name string) Notifier {
	n := Notifier{Name: name, Off: o.boolean("off"), Concurrency: o.whole("concurrency", 4, 1, 1000), Timeout: defaultTimeout}
	o.require("type", "one of "+strings.Join(types, ", "))
	kind, ok := o.get("type").text()
	if ok && slices.Contains(laterTypes, kind) {
		o.get("type").problem("use "+strings.Join(types, ", "), "the type %s is not supported by this version", kind)
		return n // its other keys would only be noted for the same reason
	}
	n.Type = o.oneOf("type", "", types...)
	if n.Type == "telegram" {
		n.Timeout = telegramTimeout
	}
	n.Timeout = o.duration("timeout", n.Timeout, 100*time.Millisecond)
	if n.Timeout > maxTimeout {
		o.get("timeout").problem("", "timeout is %s, it must be at most %s", n.Timeout, maxTimeout)
	}
	n.Retries = retries(o.get("retries").object())
	n.Pace = paceOf(o, n.Type)
	switch n.Type {
	case "slack":
		slack(o, &n)
	case "telegram":
		telegram(o, &n)
	case "webhook":
		webhook(o, &n)
	case "log":
		o.require("path", "name the file that events are appended to")
		n.Path = o.str("path", "")
	case "":
		return n // which keys are right is not known
	}
	elsewhere := map[string]string{}
	for _, kind := range keys(keysOfType) {
		for _, key := range keysOfType[kind] {
			if hint, ok := elsewhere[key]; ok {
				elsewhere[key] = hint + " and " + kind
			} else {
				elsewhere[key] = "it belongs to the type " + kind
			}
		}
	}
	o.done(elsewhere)
	return n
}

// retries reads how often and how long to knock. One of the two delays alone moves the other's default out of its way.
func retries(o *object) delivery.Retries {
	r := delivery.DefaultRetries
	if o == nil {
		return r
	}
	if o.has("count") {
		r.Capped, r.Count = true, o.whole("count", 0, 0, 1_000_000)
	}
	delay, longest := o.has("delay"), o.has("max_delay")
	r.Delay = o.duration("delay", r.Delay, time.Millisecond)
	r.MaxDelay = o.duration("max_delay", r.MaxDelay, time.Millisecond)
	switch {
	case r.MaxDelay >= r.Delay:
	case delay && longest:
		o.get("max_delay").problem("", "max_delay %s is shorter than delay %s", r.MaxDelay, r.Delay)
	case delay:
		r.MaxDelay = r.Delay
	default:
		r.Delay = r.MaxDelay
	}
	o.done(nil)
	return r
}

func slack(o *object, n *Notifier) {
	n.Token, n.WebhookURL, n.Channel = o.str("token", ""), o.str("webhook_url", ""), o.str("channel", "")
	n.SigningSecret, n.AppToken, n.APIURL = o.str("signing_secret", ""), o.str("app_token", ""), o.apiURL()
	if n.APIURL != "" && !strings.HasSuffix(n.APIURL, "/") {
		n.APIURL += "/" // method names are appended
	}
	switch token, hook := o.has("token"), o.has("webhook_url"); {
	case !token && !hook:
		o.problem("add token: \"${SLACK_TOKEN}\" or webhook_url", "%s has neither token nor webhook_url", o.title())
	case token && hook:
		o.get("webhook_url").problem("keep one of them", "%s has both token and webhook_url", o.title())
	case hook:
		if n.WebhookURL != "" {
			o.get("webhook_url").url(n.WebhookURL)
		}
		for _, key := range []string{"channel", "signing_secret", "app_token", "api_url"} {
			if o.has(key) {
				o.get(key).problem("remove it, or use a token", "%s has no effect together with webhook_url, which fixes the channel and has no buttons", key)
			}
		}
	}
}

// botSecret is what Telegram allows as a webhook's secret.
var botSecret = regexp.MustCompile(`^[A-Za-z0-9_-]{1,256}$`)

// chat is the name or the number of a chat.
var chat = regexp.MustCompile(`^(-?[0-9]{1,19}|@[A-Za-z][A-Za-z0-9_]{3,})$`)

func telegram(o *object, n *Notifier) {
	o.require("token", "@BotFather gives it; write token: \"${TELEGRAM_TOKEN}\"")
	n.Token, n.ChatID, n.APIURL = o.str("token", ""), o.str("chat_id", ""), strings.TrimRight(o.apiURL(), "/")
	n.MessageThreadID = o.whole("message_thread_id", 0, 1, 1<<31-1)
	n.WebhookSecret = o.str("webhook_secret", "")
	if n.ChatID != "" {
		_, err := strconv.ParseInt(n.ChatID, 10, 64)
		if !chat.MatchString(n.ChatID) || err != nil && n.ChatID[0] != '@' {
			o.get("chat_id").problem("write the number, for example -1001234567890, or @name", "chat_id %q is no chat", n.ChatID)
		}
	}
	if o.has("message_thread_id") && !o.has("chat_id") {
		o.get("message_thread_id").problem("add chat_id", "message_thread_id names a topic of a chat, and there is no chat_id")
	}
	if n.WebhookSecret != "" && !botSecret.MatchString(n.WebhookSecret) {
		o.get("webhook_secret").problem("use letters, digits, _ and - only, at most 256", "Telegram refuses this webhook_secret")
	}
	if n.Poll = o.boolean("poll"); n.Poll && o.has("webhook_secret") {
		o.get("poll").problem("keep one of them", "%s has both webhook_secret and poll: Telegram gives updates in one way only", o.title())
	}
}

// headerName is a token of RFC 9110.
var headerName = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

// ownHeaders are those that the webhook provider and HTTP set.
var ownHeaders = []string{
	"Webhook-Id", "Webhook-Timestamp", "Webhook-Signature", "X-Tokay-Event-Id", "Content-Type", "Content-Length",
	"Transfer-Encoding", "Connection", "Host", "Trailer", "Upgrade",
}

func webhook(o *object, n *Notifier) {
	o.require("url", "say where events are sent to")
	if n.URL = o.str("url", ""); n.URL != "" {
		o.get("url").url(n.URL)
	}
	n.Secrets = o.names("secrets")
	if o.has("secret") {
		if o.has("secrets") {
			o.get("secret").problem("keep one of them", "%s has both secret and secrets", o.title())
		} else if s := o.str("secret", ""); s != "" {
			n.Secrets = []string{s}
		}
	}
	o.get("secret")
	n.Events = heard(o)
	h := o.get("headers").object()
	if h == nil {
		return
	}
	n.Headers = map[string]string{}
	for _, name := range h.keys {
		v := h.get(name)
		text, ok := v.filled()
		at := value{r: v.r, at: h.places[name], path: v.path}
		canonical := http.CanonicalHeaderKey(name)
		switch {
		case !ok:
		case !headerName.MatchString(name):
			at.problem("", "%q cannot be the name of a header", name)
		case slices.Contains(ownHeaders, canonical):
			at.problem("remove it", "tocsin sets the header %s itself", name)
		case strings.ContainsFunc(text, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
			v.problem("remove line breaks", "the header %s holds a control character", name)
		default:
			n.Headers[canonical] = text
		}
	}
}

// heard reads which sorts of events a webhook asks for.
func heard(o *object) []string {
	known := []string{HearsIncident, HearsDelivery, HearsOnCall}
	v := o.get("events")
	if !v.present() {
		return []string{HearsIncident}
	}
	var all []string
	for _, v := range v.strings() {
		sort, ok := v.text()
		switch {
		case !ok:
		case !slices.Contains(known, sort):
			v.problem(cmp.Or(suggest(sort, known), "use "+strings.Join(known, ", ")), "%q is no sort of events", sort)
		case !slices.Contains(all, sort):
			all = append(all, sort)
		}
	}
	if len(all) == 0 && kindOf(v.node) == "a list" {
		v.problem("name some of "+strings.Join(known, ", "), "events is empty: nothing would be sent")
	}
	return all
}

// apiURL reads another server's address.
func (o *object) apiURL() string {
	v := o.get("api_url")
	s, ok := v.text()
	if !ok || v.url(s) == nil {
		return ""
	}
	return s
}
