package config

import (
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
)

// DatabaseVariable is the environment variable that overrides database.url.
const DatabaseVariable = "TOCSIN_DATABASE_URL"

// The bounds around the longest timeout: a call ends within the grace, and the lease must outlast it by the margin.
const (
	leaseGrace   = time.Second
	leaseMargin  = 2 * time.Second
	leaseSpare   = time.Minute      // by default the lease is that much longer than the longest timeout
	stopSpare    = 10 * time.Second // and so much the shutdown's grace
	reloadGrace  = 15 * time.Minute
	defaultPolls = time.Second

	defaultRetention = 90 * 24 * time.Hour
	leastRetention   = 7 * 24 * time.Hour // a look back at the week, and a wide margin over all that asks the past
)

// scopes are what a token can be allowed.
var scopes = []string{"calendar", "ingest", "read", "operate", "admin"}

var tokenHash = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// server reads the section server. The shutdown's grace depends on the notifiers: see finish.
func (l *loader) server(root *object) {
	v := root.get("server")
	o := v.object()
	s := &l.file.Server
	s.Listen = o.address("listen", ":8080")
	s.MetricsListen = o.address("metrics_listen", ":9090")
	if _, port, err := net.SplitHostPort(s.Listen); err == nil && port != "0" && s.Listen == s.MetricsListen {
		v := o.get("metrics_listen")
		if !v.present() {
			v = o.get("listen")
		}
		v.problem("metrics have a port of their own", "metrics_listen is the same address as listen, %s", s.Listen)
	}
	s.PublicURL = l.publicURL(root, o)
	s.ShutdownGrace = o.duration("shutdown_grace", 0, time.Second)
	for _, v := range o.get("tokens").list() {
		l.token(v)
	}
	for _, v := range o.get("allow_private").list() {
		text, ok := v.text()
		if !ok {
			continue
		}
		p, err := netip.ParsePrefix(text)
		if err != nil {
			v.problem("write an address with its length, for example 10.1.0.0/16", "%q is not a range of addresses", text)
			continue
		}
		s.AllowPrivate = append(s.AllowPrivate, p.Masked())
	}
	o.done(nil)
}

func (l *loader) publicURL(root, o *object) string {
	const why = "links in messages begin with it: add server: {public_url: \"https://tocsin.example.com\"}"
	if !o.has("public_url") {
		o.get("public_url") // known, though it is missing
		switch {
		case o != nil:
			o.require("public_url", why)
		case !root.has("server") || root.get("server").null():
			root.problem(why, "server.public_url is missing")
		}
		return ""
	}
	v := o.get("public_url")
	s, ok := v.text()
	if !ok {
		return ""
	}
	u := v.url(s)
	if u == nil {
		return ""
	}
	if u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		v.problem("leave out user, ? and #", "public_url must be a plain address that links can begin with")
		return ""
	}
	if u.Scheme == "http" && !PrivateHost(u.Hostname()) {
		l.warn("server.public_url is plain http on a public host: what people open from a message, buttons included, travels unencrypted")
	}
	return strings.TrimRight(s, "/")
}

// PrivateHost says that a host is surely not out on the internet: a loopback or private address, or a name without a dot.
func PrivateHost(host string) bool {
	if a, err := netip.ParseAddr(host); err == nil {
		return a.IsLoopback() || a.IsPrivate() || a.IsLinkLocalUnicast()
	}
	return !strings.Contains(host, ".") || strings.HasSuffix(host, ".localhost") || strings.HasSuffix(host, ".internal") || strings.HasSuffix(host, ".local")
}

// url checks s, the text of v, as an absolute http or https URL; nil where it is none, which is noted.
func (v value) url(s string) *url.URL {
	u, err := url.Parse(s)
	switch {
	case err != nil:
		v.problem("write it like https://host/path", "%s is not a URL", v.name())
	case u.Scheme != "http" && u.Scheme != "https":
		v.problem("write it like https://host/path", "%s must begin with http:// or https://", v.name())
	case u.Hostname() == "":
		v.problem("write it like https://host/path", "%s names no host", v.name())
	default:
		return u
	}
	return nil
}

// address is a listen address of a key.
func (o *object) address(key, otherwise string) string {
	v := o.get(key)
	s, ok := v.text()
	if !ok {
		return otherwise
	}
	_, port, err := net.SplitHostPort(s)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		v.problem(`write it like ":8080" or "127.0.0.1:8080"`, "%s %q is no listen address", key, s)
		return otherwise
	}
	return s
}

func (l *loader) token(v value) {
	o := v.object()
	if o == nil {
		return
	}
	o.require("name", "the audit trail shows it")
	o.require("hash", "sha256:<hex> of the token's text; tocsin token create prints one")
	o.require("scopes", "some of "+strings.Join(scopes, ", "))
	t := Token{Name: o.str("name", ""), Hash: strings.ToLower(o.str("hash", ""))}
	if t.Hash != "" && !tokenHash.MatchString(t.Hash) {
		o.get("hash").problem("write sha256: and 64 hexadecimal digits; never the token itself", "hash is not the hash of a token")
	}
	if t.Name != "" && slices.ContainsFunc(l.file.Server.Tokens, func(other Token) bool { return other.Name == t.Name }) {
		o.get("name").problem("", "the token %q is there twice", t.Name)
	}
	for _, s := range o.get("scopes").strings() {
		text, ok := s.text()
		switch {
		case !ok:
		case !slices.Contains(scopes, text):
			s.problem("one of "+strings.Join(scopes, ", "), "scope %q is unknown", text)
		case !slices.Contains(t.Scopes, text):
			t.Scopes = append(t.Scopes, text)
		}
	}
	o.done(nil)
	l.file.Server.Tokens = append(l.file.Server.Tokens, t)
}

// database reads the section database. With the environment variable set, the file's url is not even filled in.
func (l *loader) database(root *object) {
	o := root.get("database").object()
	d := &l.file.Database
	v := o.get("url")
	if url, ok := l.reader.env(DatabaseVariable); ok && url != "" {
		d.URL = url
		l.reader.used[DatabaseVariable] = url
		if o.has("url") {
			v.raw()
		}
		if !postgres(url) {
			root.problem("write it like postgres://user:password@host:5432/tocsin", "the environment variable %s is no address of a Postgres database", DatabaseVariable)
		}
	} else {
		const why = "name a Postgres database, or set " + DatabaseVariable
		switch {
		case o != nil:
			o.require("url", why)
		case !root.has("database") || root.get("database").null():
			root.problem(why, "database.url is missing")
		}
		if d.URL, ok = v.text(); ok && !postgres(d.URL) {
			v.problem("write it like postgres://user:password@host:5432/tocsin", "url is no address of a Postgres database")
		}
	}
	d.ListenURL = o.str("listen_url", d.URL)
	if o.has("listen_url") && d.ListenURL != "" && d.ListenURL != d.URL && !postgres(d.ListenURL) {
		o.get("listen_url").problem("write it like postgres://user:password@host:5432/tocsin", "listen_url is no address of a Postgres database")
	}
	// Each replica needs connections for intake, console and scheduler besides the workers' (rule 14).
	d.MaxConnections = o.whole("max_connections", 20, 4, 1000)
	o.done(nil)
}

// postgres says that s is a connection string: a URL, or key=value pairs with a host.
func postgres(s string) bool {
	if strings.Contains(s, "://") {
		u, err := url.Parse(s)
		return err == nil && (u.Scheme == "postgres" || u.Scheme == "postgresql")
	}
	return strings.Contains(s, "host=") || strings.Contains(s, "dbname=") || strings.Contains(s, "service=")
}

// worker reads the sections worker and reload. Notifiers are read before: the lease depends on their timeouts.
func (l *loader) worker(root *object) {
	o := root.get("worker").object()
	longest := l.file.LongestTimeout()
	w := &l.file.Worker
	w.Lease = o.duration("lease", longest+leaseSpare, 0)
	if least := longest + leaseGrace + leaseMargin; w.Lease < least {
		o.get("lease").problem("make it at least "+least.String()+", or leave it out",
			"lease %s is shorter than the longest timeout, %s, with 1s grace and 2s margin", w.Lease, longest)
	}
	w.Poll = o.duration("poll", defaultPolls, 10*time.Millisecond)
	o.done(nil)
	o = root.get("reload").object()
	l.file.Reload.Grace = o.duration("grace", reloadGrace, 0)
	o.done(nil)
	switch s := &l.file.Server; {
	case s.ShutdownGrace == 0:
		s.ShutdownGrace = longest + stopSpare
	case s.ShutdownGrace < longest+leaseGrace:
		l.warn("server.shutdown_grace %s is shorter than the longest timeout, %s: a call in flight at a stop can be left in doubt", s.ShutdownGrace, longest)
	}
}

// retention reads how long what is over is kept. Sources are read before: what a person resolved is known no longer than that.
func (l *loader) retention(root *object) {
	d := root.duration("retention", defaultRetention, 0)
	v := root.get("retention")
	if d < leastRetention {
		v.problem("make it at least 7d", "retention is %s, and what happened within a week must be there to be looked at", d)
		return
	}
	for _, name := range keys(l.file.Sources) {
		if after := l.file.Sources[name].ReopenAfter; after > d {
			v.problem("make it longer, or that shorter", "retention is %s and reopen_after of the source %s %s: who resolved its incident would be forgotten before", d, name, after)
		}
	}
	l.file.Retention = d
}

// kinds reads the section kinds over the default policies.
func (l *loader) kinds(root *object) {
	l.file.Kinds = map[delivery.Kind]delivery.Policy{}
	for _, k := range delivery.Kinds {
		l.file.Kinds[k] = delivery.DefaultPolicy(k)
	}
	o := root.get("kinds").object()
	for _, k := range delivery.Kinds {
		c := o.get(string(k)).object()
		if c == nil {
			continue
		}
		p := l.file.Kinds[k]
		p.OnUnknown = delivery.OnUnknown(c.oneOf("on_unknown", string(p.OnUnknown), string(delivery.Retry), string(delivery.Hold)))
		p.Lifetime = c.duration("lifetime", p.Lifetime, time.Second)
		if k == delivery.Page {
			p.Wait = c.duration("wait", p.Wait, 0)
		} else if c.has("wait") {
			c.get("wait").problem("remove it", "only a page waits, for its card's first attempt; a %s does not", k)
		}
		c.done(nil)
		l.file.Kinds[k] = p
	}
	o.done(nil)
}
