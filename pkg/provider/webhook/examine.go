package webhook

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
	"github.com/tocsin-oncall/tocsin/pkg/provider/wire"
)

// EventTest is the type of the event that a live examination posts. Receivers can pass it over.
const EventTest = "tocsin.test"

const (
	// maxDrift is how far clocks may differ before it is worth a word. Receivers that keep to Standard Webhooks refuse
	// signatures whose time is more than five minutes away; so far apart, maxSkew, nothing is taken.
	maxDrift = 30 * time.Second
	maxSkew  = 5 * time.Minute
	// expiresSoon is how long before its end a certificate is worth a word.
	expiresSoon = 14 * 24 * time.Hour
)

// findings gathers what was found.
type findings []provider.Finding

func (f *findings) ok(check, format string, args ...any) {
	*f = append(*f, provider.Finding{Check: check, Level: provider.OK, Text: fmt.Sprintf(format, args...)})
}

func (f *findings) add(l provider.Level, check, fix, format string, args ...any) {
	*f = append(*f, provider.Finding{Check: check, Level: l, Text: fmt.Sprintf(format, args...), Fix: fix})
}

// Examine looks at the URL and at what answers there. Nothing is posted unless e.Live is set: to the receiver's own
// address goes no other request at all, since some take any for an event.
func (p *Provider) Examine(ctx context.Context, e provider.Examination) []provider.Finding {
	if e.Now == nil {
		e.Now = time.Now
	}
	var f findings
	u, err := parse(p.url)
	if err != nil {
		f.add(provider.Bad, "url", "mend url of the notifier in the file", "%s", err)
		return f
	}
	p.examineURL(&f, u)
	switch len(p.keys) {
	case 0:
		f.add(provider.Warn, "secret", "put a secret into the file and into the receiver: openssl rand -base64 32, with whsec_ before it", "none: the receiver cannot tell tocsin's events from a stranger's")
	default:
		f.ok("secret", "events are signed with %d", len(p.keys))
	}
	if !p.examineConnection(ctx, &f, u, e.Now) {
		return f
	}
	p.examineClock(ctx, &f, u, e.Now)
	if e.Live {
		p.live(ctx, &f, e.Now)
	}
	return f
}

func (p *Provider) examineURL(f *findings, u *url.URL) {
	if u.Scheme == "https" || loopback(u.Hostname()) {
		f.ok("url", "%s of %s", u.Scheme, u.Host)
		return
	}
	f.add(provider.Warn, "url", "use https:// in url of the notifier in the file", "events go to %s without encryption", u.Host)
}

func loopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.IsLoopback()
}

// examineConnection looks the name up, connects, and shakes hands, as a post would, and then hangs up.
func (p *Provider) examineConnection(ctx context.Context, f *findings, u *url.URL, now func() time.Time) bool {
	host, port := u.Hostname(), u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	if _, err := netip.ParseAddr(host); err != nil {
		lookup, cancel := context.WithTimeout(ctx, wire.DialTimeout)
		at, err := net.DefaultResolver.LookupNetIP(lookup, "ip", host)
		cancel()
		if err != nil {
			f.add(provider.Bad, "name", "check url of the notifier in the file, and this machine's name servers", "%s is not found: %s", host, plain(err))
			return false
		}
		f.ok("name", "%s has %s", host, addresses(at))
	}
	dial, cancel := context.WithTimeout(ctx, wire.DialTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(dial, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		f.add(provider.Bad, "connection", "check the network between this machine and "+u.Host+", and whether the receiver runs", "cannot connect to %s: %s", net.JoinHostPort(host, port), plain(err))
		return false
	}
	defer conn.Close()
	f.ok("connection", "%s takes connections", net.JoinHostPort(host, port))
	if u.Scheme != "https" {
		return true
	}
	return p.examineTLS(ctx, f, conn, host, now)
}

// plain is an error of the network without the address, which stands beside it already.
func plain(err error) string {
	var op *net.OpError
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns):
		return dns.Err
	case errors.As(err, &op) && op.Err != nil:
		return op.Err.Error()
	}
	return err.Error()
}

// addresses lists some addresses.
func addresses(all []netip.Addr) string {
	const enough = 4
	words := make([]string, 0, enough+1)
	for i, a := range all {
		if i == enough {
			words = append(words, fmt.Sprintf("%d more", len(all)-i))
			break
		}
		words = append(words, a.Unmap().String())
	}
	return strings.Join(words, ", ")
}

func (p *Provider) examineTLS(ctx context.Context, f *findings, conn net.Conn, host string, now func() time.Time) bool {
	const check = "certificate"
	conf := p.tls.Clone()
	if conf == nil {
		conf = &tls.Config{}
	}
	conf.ServerName, conf.Time = host, now
	ctx, cancel := context.WithTimeout(ctx, wire.TLSTimeout)
	defer cancel()
	c := tls.Client(conn, conf)
	if err := c.HandshakeContext(ctx); err != nil {
		var invalid x509.CertificateInvalidError
		fix := "let the receiver show a certificate for " + host + " that this machine trusts"
		switch {
		case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
			fix = "renew the receiver's certificate, and check this machine's clock"
		case ctx.Err() != nil:
			fix = "see whether the port in url is one for https"
		}
		f.add(provider.Bad, check, fix, "no TLS with %s: %s", host, err)
		return false
	}
	end := c.ConnectionState().PeerCertificates[0].NotAfter // the handshake has seen at least one
	left := end.Sub(now())
	if left < expiresSoon {
		f.add(provider.Warn, check, "renew the receiver's certificate", "it ends in %s days, on %s", strconv.Itoa(int(left/(24*time.Hour))), end.UTC().Format(time.DateOnly))
		return true
	}
	f.ok(check, "valid until %s", end.UTC().Format(time.DateOnly))
	return true
}

// examineClock compares the receiver's time with this machine's. The question is a HEAD for the root of the host, which
// changes nothing; whatever the answer is, it has the time.
func (p *Provider) examineClock(ctx context.Context, f *findings, u *url.URL, now func() time.Time) {
	root := &url.URL{Scheme: u.Scheme, Host: u.Host, Path: "/"}
	rec := p.client.Do((&http.Request{Method: http.MethodHead, URL: root, Host: u.Host, Header: http.Header{"User-Agent": {"tocsin"}}}).WithContext(ctx))
	if rec.Status == 0 {
		f.add(provider.Warn, "answer", "see what listens at "+u.Host, "%s takes connections and answers nothing to a HEAD: %s", u.Host, rec.Text(fmt.Sprint(rec.Err)))
		return
	}
	at, err := http.ParseTime(rec.Header.Get("Date"))
	if err != nil {
		return
	}
	const fix = "set the clocks of this machine and the receiver by a time server (NTP)"
	switch drift := now().Sub(at).Abs().Truncate(time.Second); {
	case drift > maxSkew && len(p.keys) > 0:
		f.add(provider.Bad, "clock", fix, "%s apart from %s: the receiver may refuse every signature as too old or too new", drift, u.Host)
	case drift > maxDrift:
		f.add(provider.Warn, "clock", fix, "%s apart from %s", drift, u.Host)
	default:
		f.ok("clock", "as %s has it", u.Host)
	}
}

// live posts a test event through the classifier of every post.
func (p *Provider) live(ctx context.Context, f *findings, now func() time.Time) {
	const check = "live test"
	at := now()
	payload, err := json.Marshal(map[string]any{
		"type": EventTest, "timestamp": at.UTC().Format(time.RFC3339), "data": map[string]string{"text": "A test of tocsin doctor. Nothing is wrong."},
	})
	if err != nil {
		return // strings always marshal
	}
	res := p.Do(ctx, provider.Call{Operation: delivery.OpCreate, Key: "test-" + strconv.FormatInt(at.UnixNano(), 10), Payload: payload})
	text, fix := res.Error, res.Sentence
	if text == "" {
		text = res.Reason
	}
	if fix == "" {
		fix = "examine it again later"
	}
	switch {
	case res.Outcome == delivery.OutcomeSent:
		f.ok(check, "an event of type %s was taken with %d in %s", EventTest, res.HTTPStatus, res.Duration.Round(time.Millisecond))
	case res.Fault == delivery.FaultPayload:
		f.add(provider.Warn, check, "let the receiver answer 2xx to events of types that it does not know", "it refuses an event of type %s, so that nothing is shown about others: %s", EventTest, text)
	case res.Outcome == delivery.OutcomeUnknown, res.Fault == delivery.FaultThrottled, res.Fault == delivery.FaultTransient && res.HTTPStatus != 0:
		f.add(provider.Warn, check, fix, "%s", text)
	default:
		f.add(provider.Bad, check, fix, "%s", text)
	}
}
