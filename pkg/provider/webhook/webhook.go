// Package webhook posts events to any HTTP receiver in the way of Standard Webhooks: one id on every repeat of an
// effect, by which the receiver can drop what it has, and a signature over id, time and body.
package webhook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
	"github.com/tocsin-oncall/tocsin/pkg/provider/wire"
)

// The headers that every call carries. HeaderID and HeaderEvent hold the effect key.
const (
	HeaderID        = "Webhook-Id"
	HeaderTimestamp = "Webhook-Timestamp"
	HeaderSignature = "Webhook-Signature"
	HeaderEvent     = "X-Tokay-Event-Id"
)

// Provider posts through one notifier. It is safe for use by many goroutines.
type Provider struct {
	url     string
	keys    [][]byte
	headers http.Header
	host    string // a configured Host header
	client  *wire.Client
	guarded *wire.Client // for addresses that came over the API
	tls     *tls.Config  // nil: the system's roots
	now     func() time.Time
}

var (
	_ provider.Provider = (*Provider)(nil)
	_ provider.Examiner = (*Provider)(nil)
)

// New makes a provider of a notifier with a URL. A secret that begins with "whsec_" is base64 after it; any other is
// taken as it is. red may be nil; secrets and header values are taken out of every result in any case. Guarded calls may
// go to public addresses and to those in allow, the file's server.allow_private.
func New(n config.Notifier, red wire.Redactor, allow ...netip.Prefix) (*Provider, error) {
	return newProvider(n, red, nil, allow)
}

func newProvider(n config.Notifier, red wire.Redactor, roots *tls.Config, allow []netip.Prefix) (*Provider, error) {
	p := &Provider{url: n.URL, headers: http.Header{}, tls: roots, now: time.Now}
	u, err := parse(n.URL)
	if err != nil {
		return nil, fmt.Errorf("notifier %s: %w", n.Name, err)
	}
	var hide []string
	if u.User != nil {
		password, _ := u.User.Password()
		hide = append(hide, password)
	}
	for i, s := range n.Secrets {
		key, err := decode(s)
		if err != nil {
			return nil, fmt.Errorf("notifier %s: secret %d: %w", n.Name, i+1, err)
		}
		p.keys = append(p.keys, key)
		hide = append(hide, s, strings.TrimPrefix(s, prefix))
	}
	for name, value := range n.Headers {
		switch name = textproto.CanonicalMIMEHeaderKey(name); name {
		case HeaderID, HeaderTimestamp, HeaderSignature, HeaderEvent, "Content-Length", "Transfer-Encoding", "Connection":
			return nil, fmt.Errorf("notifier %s: the header %s is tocsin's own and cannot be set", n.Name, name)
		case "Idempotency-Key", "X-Idempotency-Key", "Authorization", "Cookie":
			hide = append(hide, value)
		case "Host":
			p.host = value
			continue
		default:
			if strings.ContainsAny(name, " \t\r\n:") || name == "" {
				return nil, fmt.Errorf("notifier %s: %q is not a header's name", n.Name, name)
			}
		}
		if strings.ContainsAny(value, "\r\n\x00") {
			return nil, fmt.Errorf("notifier %s: the value of the header %s has a line break", n.Name, name)
		}
		p.headers.Set(name, value)
		// "Authorization: Bearer xyz" may come back without its first word.
		if _, token, ok := strings.Cut(value, " "); ok && name == "Authorization" {
			hide = append(hide, token)
		}
	}
	p.client = wire.New(wire.Options{Provider: "webhook", Timeout: n.Timeout, Redact: wire.Hide(red, hide...), TLS: roots})
	p.guarded = p.client.Guarded(wire.Guard{Allow: allow})
	return p, nil
}

func parse(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		// The URL may hold a secret, and url.Parse's error quotes it.
		return nil, fmt.Errorf("url is not a URL that begins with https:// or http://")
	}
	return u, nil
}

const prefix = "whsec_"

func decode(secret string) ([]byte, error) {
	rest, ok := strings.CutPrefix(secret, prefix)
	if !ok {
		if secret == "" {
			return nil, fmt.Errorf("it is empty")
		}
		return []byte(secret), nil
	}
	key, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(rest, "="))
	if err != nil || len(key) == 0 {
		return nil, fmt.Errorf("what follows %s is not base64", prefix)
	}
	return key, nil
}

// Do posts the payload to the address, or to the notifier's URL where the call has none. Only creates are possible.
func (p *Provider) Do(ctx context.Context, c provider.Call) delivery.Result {
	if c.Operation != delivery.OpCreate {
		return notCalled(delivery.FaultPayload, "payload:operation", "a webhook can neither edit nor reply")
	}
	address := c.Address
	if address == "" {
		address = p.url
	}
	u, err := parse(address)
	if err != nil {
		return notCalled(delivery.FaultDestination, "destination:url", err.Error())
	}
	// Built by hand: http.NewRequest would quote the URL in its error.
	req := &http.Request{
		Method: http.MethodPost, URL: u, Host: u.Host, Header: http.Header{},
		Body: io.NopCloser(bytes.NewReader(c.Payload)), ContentLength: int64(len(c.Payload)),
	}
	client := p.client
	if c.Guarded {
		client = p.guarded
	}
	// The file's headers may be credentials. They are for the file's own receiver, not for whatever a caller names.
	if own, err := parse(p.url); !c.Guarded || err == nil && own.Scheme == u.Scheme && own.Host == u.Host {
		req.Header = p.headers.Clone()
		if p.host != "" {
			req.Host = p.host
		}
	}
	for name, value := range map[string]string{"Content-Type": "application/json", "User-Agent": "tocsin"} {
		if req.Header.Get(name) == "" {
			req.Header.Set(name, value)
		}
	}
	stamp := strconv.FormatInt(p.now().Unix(), 10) // of this attempt: receivers refuse old ones
	req.Header.Set(HeaderID, c.Key)
	req.Header.Set(HeaderEvent, c.Key)
	req.Header.Set(HeaderTimestamp, stamp)
	if len(p.keys) > 0 {
		req.Header.Set(HeaderSignature, p.sign(c.Key, stamp, c.Payload))
	}
	return judge(client.Do(req.WithContext(ctx)))
}

// sign gives one signature for each secret, so that a receiver can change from one to the next.
func (p *Provider) sign(id, stamp string, body []byte) string {
	out := make([]string, 0, len(p.keys))
	for _, key := range p.keys {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(id + "." + stamp + ".")) // a hash never fails
		mac.Write(body)
		out = append(out, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	return strings.Join(out, " ")
}

func notCalled(f delivery.Fault, reason, sentence string) delivery.Result {
	return delivery.Result{
		Outcome: delivery.OutcomeFailed, Evidence: delivery.NotCalled, Fault: f, Reason: reason,
		Sentence: sentence, Error: "not called: " + sentence,
	}
}

// row is what a status means.
type row struct {
	fault    delivery.Fault
	sentence string
}

const (
	checkURL = "check url of the notifier in the file: the receiver does not know this address"
	content  = "the receiver refuses this content; it will not be sent again"
)

// rows are what the refusals mean, as Standard Webhooks has it, turned for alerts: a receiver that refuses a content for
// good is not asked for days, and 401 and 403, which a deploy may cause, get a few slow tries. Any other 4xx is checkURL.
// What a 2xx, 3xx, 429 or 5xx means the transport says already, see wire.Record.Judge.
var rows = map[int]row{
	400: {delivery.FaultPayload, content},
	401: {delivery.FaultDenied, "the receiver does not accept the notifier's credentials: check secret and headers in the file"},
	403: {delivery.FaultDenied, "the receiver does not allow this: check secret and headers in the file"},
	404: {delivery.FaultDestination, checkURL},
	405: {delivery.FaultDestination, "check url of the notifier in the file: the address takes no POST"},
	408: {delivery.FaultTransient, "the receiver did not wait for the whole request; it is sent again"},
	409: {delivery.FaultPayload, "the receiver says that this is in conflict with what it has; many mean that they have it already"},
	410: {delivery.FaultDestination, "the receiver is gone for good: remove the notifier or change its url in the file"},
	413: {delivery.FaultPayload, content},
	415: {delivery.FaultDestination, "check url of the notifier in the file: the address takes no JSON"},
	422: {delivery.FaultPayload, content},
	425: {delivery.FaultTransient, "the receiver does not take early data; it is sent again"},
}

// judge says what a post came to. Any 2xx is a yes, whatever its body says, as long as it came whole.
func judge(rec wire.Record) delivery.Result {
	res, settled := rec.Judge()
	if settled {
		if rec.Status >= 500 {
			res.RetryAfter = rest(rec)
		}
		return res
	}
	if rec.Status < 300 {
		res.Outcome = delivery.OutcomeSent
		return res
	}
	r, ok := rows[rec.Status]
	if !ok {
		r = row{delivery.FaultDestination, checkURL}
	}
	code := "http_" + strconv.Itoa(rec.Status)
	res.Outcome, res.Fault, res.Sentence, res.Code = delivery.OutcomeFailed, r.fault, r.sentence, code
	res.Error = fmt.Sprintf("%s answered %d", rec.Host, rec.Status)
	switch r.fault {
	case delivery.FaultPayload:
		res.Reason = "payload:" + code
	case delivery.FaultDestination:
		res.Reason = "destination:" + code
	case delivery.FaultTransient:
		res.Reason, res.RetryAfter = "webhook:"+code, rest(rec)
	default:
		res.Reason = "webhook:" + code
	}
	return rec.Clean(res)
}

// rest is how long the receiver asks not to be called; 0 where it does not say.
func rest(rec wire.Record) time.Duration {
	if rec.Header.Get("Retry-After") == "" {
		return 0
	}
	return wire.RetryAfter(rec.Header, time.Now())
}
