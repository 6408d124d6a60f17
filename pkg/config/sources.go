package config

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/extract"
	"github.com/tocsin-oncall/tocsin/pkg/pace"
)

// Types of sources: what they speak.
const (
	TypeNative       = "native"
	TypeAlertmanager = "alertmanager"
	TypePrometheus   = "prometheus"
	TypeGrafana      = "grafana"
	TypeGeneric      = "generic"
)

var sourceTypes = []string{TypeAlertmanager, TypePrometheus, TypeGrafana, TypeGeneric, TypeNative}

// reopenAfter is how long re-sends after a person's resolve open nothing.
const reopenAfter = 4 * time.Hour

// The bounds of a message of a source. Those that gather alerts, and would not send them again after a refusal, may send
// more.
const (
	MaxBody      = 1 << 20
	MaxGroupBody = 8 << 20
	minBody      = 1 << 10
)

// Source is a place alerts come from, beside the built-in ones.
type Source struct {
	Name        string
	Type        string
	Token       string // empty: any token that may hand in alerts
	QueryToken  bool   // the token may come as ?token=
	Topic       Topic
	Fields      *Fields // generic only
	GroupBy     []string
	ReopenAfter time.Duration // default 4h
	Rate        pace.Rule     // of requests, on each replica
	MaxBody     int           // bytes
}

// Topic is how an alert becomes the words of its topic. What is not given is the default: the labels alertname, severity
// and job.
type Topic struct {
	Kind, Criticality, Job extract.Template
}

// Fields is how a message of a generic source becomes alerts.
type Fields struct {
	Alerts      extract.Expression // the list of alerts; not given: the message is one
	Title       extract.Expression
	Text        extract.Expression
	Key         extract.Expression
	Status      extract.Expression
	Fingerprint extract.Expression
	StartsAt    extract.Expression
	EndsAt      extract.Expression
	Labels      Entries
	Links       Entries
}

// Entries are named values: one expression for all of them, or one for each.
type Entries struct {
	All  extract.Expression
	Each map[string]extract.Expression
}

// Heartbeat is a sender that must call every so often.
type Heartbeat struct {
	Name        string
	Every       time.Duration
	Criticality string // default critical
	Token       string // empty: any token that may hand in alerts
	QueryToken  bool
}

// BodyBound is how large a message of a type may be, where the file says nothing.
func BodyBound(kind string) int {
	if kind == TypeGeneric || kind == TypeNative {
		return MaxBody
	}
	return MaxGroupBody
}

func (l *loader) sources(root *object) {
	l.file.Sources = map[string]Source{}
	all := root.get("sources").object()
	if all == nil {
		return
	}
	for _, name := range all.keys {
		v := all.get(name)
		value{r: v.r, at: all.places[name], path: v.path}.define("source", name)
		o := v.object()
		if o == nil {
			if v.null() {
				v.problem("give it a type and a token", "the source %s is empty", name)
			}
			continue
		}
		o.require("type", "what it speaks: one of "+strings.Join(sourceTypes, ", "))
		s := Source{
			Name: name, Type: o.oneOf("type", "", sourceTypes...), Token: l.senderToken(o), GroupBy: o.names("group_by"),
			ReopenAfter: o.duration("reopen_after", reopenAfter, time.Second), Rate: o.rate("rate"),
		}
		s.MaxBody = o.size("max_body", BodyBound(s.Type))
		s.QueryToken = queryToken(o)
		if s.QueryToken && s.Type != "" && s.Type != TypeGeneric {
			o.get("query_token").problem("remove it: set the header in the sender", "%s can send its token in the header Authorization", s.Type)
		}
		s.Topic = topic(o, s.Type)
		s.Fields = fields(o, s.Type)
		o.done(nil)
		l.file.Sources[name] = s
	}
}

func (l *loader) heartbeats(root *object) {
	l.file.Heartbeats = map[string]Heartbeat{}
	all := root.get("heartbeats").object()
	if all == nil {
		return
	}
	for _, name := range all.keys {
		v := all.get(name)
		value{r: v.r, at: all.places[name], path: v.path}.define("heartbeat", name)
		o := v.object()
		if o == nil {
			if v.null() {
				v.problem("write "+name+": {every: 1h}", "the heartbeat %s is empty", name)
			}
			continue
		}
		o.require("every", "how long it may be silent")
		h := Heartbeat{Name: name, Every: o.duration("every", 0, time.Second), Criticality: o.str("criticality", "critical"), Token: l.senderToken(o), QueryToken: queryToken(o)}
		o.done(nil)
		l.file.Heartbeats[name] = h
	}
}

// senderToken reads the token of a source or a heartbeat. Two with one token could not be told apart.
func (l *loader) senderToken(o *object) string {
	token := o.str("token", "")
	if token == "" {
		return ""
	}
	for _, name := range keys(l.file.Sources) {
		if l.file.Sources[name].Token == token {
			o.get("token").problem("each source needs a token of its own", "the token is also that of the source %s", name)
		}
	}
	for _, name := range keys(l.file.Heartbeats) {
		if l.file.Heartbeats[name].Token == token {
			o.get("token").problem("each heartbeat needs a token of its own", "the token is also that of the heartbeat %s", name)
		}
	}
	return token
}

func queryToken(o *object) bool {
	on := o.boolean("query_token")
	if on && !o.has("token") {
		o.get("query_token").problem("give it a token of its own", "query_token without a token: an API token does not belong into a URL")
	}
	return on
}

// rate reads how often something may happen.
func (o *object) rate(key string) pace.Rule {
	v := o.get(key)
	s, ok := v.text()
	if !ok {
		return pace.Rule{}
	}
	r, err := ParseRate(s)
	if err != nil {
		v.problem("write 100/s, 20/m or 5/10s, or off", "%s %q: %s", key, s, err)
	}
	return r
}

// size reads a number of bytes: 65536, 512KiB, 2MiB.
func (o *object) size(key string, otherwise int) int {
	v := o.get(key)
	s, ok := v.text()
	if !ok {
		return otherwise
	}
	number, unit := s, 1
	for suffix, bytes := range map[string]int{"KiB": 1 << 10, "MiB": 1 << 20} {
		if n, ok := strings.CutSuffix(s, suffix); ok {
			number, unit = strings.TrimSpace(n), bytes
		}
	}
	n, err := strconv.Atoi(number)
	if err != nil {
		v.problem("write for example 65536, 512KiB or 2MiB", "%s %q is no number of bytes", key, s)
		return otherwise
	}
	if n > MaxGroupBody/unit || n < 1 || n*unit < minBody {
		v.problem("", "%s is %s, it must be from 1KiB to 8MiB", key, s)
		return otherwise
	}
	return n * unit
}

// topicNames are the names that the templates of a type's topic may use.
func topicNames(kind string) []string {
	switch kind {
	case TypeGeneric:
		return []string{extract.Labels, extract.Alert, extract.Body}
	case TypeNative:
		return []string{extract.Labels}
	}
	return []string{extract.Labels, extract.Annotations}
}

func topic(o *object, kind string) Topic {
	t := o.get("topic").object()
	if t == nil {
		return Topic{}
	}
	var out Topic
	for _, w := range []struct {
		key  string
		into *extract.Template
	}{{"kind", &out.Kind}, {"criticality", &out.Criticality}, {"job", &out.Job}} {
		v := t.get(w.key)
		s, ok := v.text()
		if !ok {
			continue
		}
		template, err := extract.ParseTemplate(s, topicNames(kind)...)
		if err != nil {
			v.problem("write a word, or an expression in braces: {labels.severity}", "%s: %v", w.key, err)
		}
		*w.into = template
	}
	t.done(nil)
	return out
}

func fields(o *object, kind string) *Fields {
	if kind != TypeGeneric {
		if o.has("fields") && kind != "" {
			o.get("fields").problem("remove it, or make the type generic", "fields belong to the type generic; what %s sends is known", kind)
		}
		o.get("fields")
		return nil
	}
	o.require("fields", "where in a message title, labels and status stand: fields: {title: body.title}")
	m := o.get("fields").object()
	if m == nil {
		return nil
	}
	m.require("title", "an expression that gives the title, for example body.title")
	f := &Fields{Alerts: m.expression("alerts", extract.Body)}
	for key, into := range map[string]*extract.Expression{
		"title": &f.Title, "text": &f.Text, "key": &f.Key, "status": &f.Status, "fingerprint": &f.Fingerprint, "starts_at": &f.StartsAt, "ends_at": &f.EndsAt,
	} {
		*into = m.expression(key, extract.Alert, extract.Body)
	}
	f.Labels = m.entries("labels")
	f.Links = m.entries("links")
	m.done(nil)
	return f
}

// expression reads an expression that may use the names.
func (o *object) expression(key string, names ...string) extract.Expression {
	v := o.get(key)
	s, ok := v.text()
	if !ok {
		return extract.Expression{}
	}
	e, err := extract.Compile(s, names...)
	if err != nil {
		hint := "expressions here may use " + strings.Join(names, " and ")
		if strings.Contains(err.Error(), "unknown name") {
			hint += `; a fixed text stands in quotes within quotes: '"text"'`
		}
		if strings.Contains(err.Error(), "EOF") {
			hint += "; put it in quotes where it holds a #, which begins a comment in YAML"
		}
		v.problem(hint, "%s: %v", key, err)
	}
	return e
}

// entries reads one expression that gives a mapping, or a mapping of expressions.
func (o *object) entries(key string) Entries {
	v := o.get(key)
	if !v.present() || v.null() || kindOf(v.node) != "a mapping" {
		return Entries{All: o.expression(key, extract.Alert, extract.Body)}
	}
	m := v.object()
	if m == nil {
		return Entries{}
	}
	e := Entries{Each: map[string]extract.Expression{}}
	for _, name := range m.keys {
		e.Each[name] = m.expression(name, extract.Alert, extract.Body)
	}
	return e
}

// warnSources warns of sources that anybody with a token for alerts can speak as.
func (l *loader) warnSources() {
	for _, name := range slices.Sorted(maps.Keys(l.file.Sources)) {
		if l.file.Sources[name].Token == "" {
			l.warn("the source %s has no token: whoever has any token that may hand in alerts can speak as it; add token: \"${NAME}\"", name)
		}
	}
}
