package config

import (
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/tocsin-oncall/tocsin/pkg/oncall"
	"github.com/tocsin-oncall/tocsin/pkg/route"
)

func (l *loader) routes(root *object) {
	for _, v := range root.get("routes").list() {
		o := v.object()
		if o == nil {
			continue
		}
		var r Route
		r.Line, _ = position(o.at)
		o.require("match", `say which topics it takes, for example match: "alert.*.critical.#"; "#" takes all`)
		if m := o.get("match"); m.present() {
			if s, ok := m.text(); ok {
				p, err := route.ParsePattern(s)
				if err != nil {
					m.problem("", "%v", err)
				}
				r.Match = p
			}
		}
		r.Labels = labels(o)
		r.Matchers = matchers(o)
		r.Notify = l.ways(o)
		if e := o.get("escalate"); e.present() {
			if name, ok := e.text(); ok {
				r.Escalate = name
				e.refer(anEscape, name)
			}
		}
		if (!o.has("notify") || o.get("notify").null()) && !o.has("escalate") {
			o.problem("add notify: [NOTIFIER] or escalate: ESCALATION", "the route leads nowhere")
		}
		r.GroupBy = o.names("group_by")
		r.Active = active(o, time.UTC)
		o.done(nil)
		l.file.Routes = append(l.file.Routes, r)
	}
}

// active reads when a route or a layer is there. Its hours are those of the given zone unless it has one of its own.
func active(o *object, zone *time.Location) *oncall.Window {
	v := o.get("active")
	a := v.object()
	if a == nil {
		if v.null() {
			v.problem("write active: {days: [mon-fri], hours: \"09:00-17:00\", time_zone: Europe/Berlin}, or remove it", "active has no value")
		}
		return nil
	}
	w := window(a, zone, "active bounds nothing")
	return &w
}

// window reads a part of the week. What it leaves out is unbounded: all days, all hours.
func window(a *object, zone *time.Location, nothing string) oncall.Window {
	w := oncall.Window{Until: 24 * 60, Zone: zone}
	if own := a.zone("time_zone"); own != nil {
		w.Zone = own
	}
	for _, v := range a.get("days").strings() {
		s, ok := v.text()
		if !ok {
			continue
		}
		days, err := oncall.ParseDay(s)
		if err != nil {
			v.problem("", "%v", err)
		}
		for _, d := range days {
			w.Days[d] = true
		}
	}
	if !a.has("days") {
		w.Days = everyDay
	} else if v := a.get("days"); v.present() && (v.null() || kindOf(v.node) == "a list" && len(v.list()) == 0) {
		v.problem("name at least one, or remove it", "days is empty")
	}
	if v := a.get("hours"); v.present() {
		if s, ok := v.text(); ok {
			var err error
			if w.From, w.Until, err = oncall.ParseHours(s); err != nil {
				v.problem("", "%v", err)
			}
		}
	}
	if !a.has("days") && !a.has("hours") {
		a.problem("name days or hours", "%s", nothing)
	}
	a.done(nil)
	return w
}

var everyDay = [7]bool{true, true, true, true, true, true, true}

// ways reads notify: notifiers that have a place of their own to send to.
func (l *loader) ways(o *object) []string {
	var all []string
	for _, v := range o.get("notify").strings() {
		if name, ok := v.text(); ok && !slices.Contains(all, name) {
			all = append(all, name)
			v.refer(aNotifier, name)
			l.places = append(l.places, ref{at: v, name: name})
		}
	}
	return all
}

// labels reads equalities. A null or a tag there would silently become some text or none, and the route would take
// other alerts than it seems to.
func labels(o *object) map[string]string {
	v := o.get("labels")
	if !v.present() || v.strict() {
		return nil
	}
	m := v.object()
	if m == nil {
		return nil
	}
	all := map[string]string{}
	for _, name := range m.keys {
		if v := m.get(name); !v.strict() {
			if s, ok := v.filled(); ok {
				all[name] = s
			}
		}
	}
	return all
}

func matchers(o *object) []route.Matcher {
	v := o.get("matchers")
	if !v.present() || v.strict() {
		return nil
	}
	if kindOf(v.node) == "a mapping" {
		v.problem(`write ['team="db"', 'env!~"dev.*"'], or use labels for equality`, "matchers must be a list of texts, it is a mapping")
		return nil
	}
	var all []route.Matcher
	for _, v := range v.strings() {
		if v.strict() {
			continue
		}
		s, ok := v.text()
		if !ok {
			continue
		}
		ms, err := route.ParseMatchers(s)
		if err != nil {
			v.problem(`write them as Alertmanager does: 'team="db"'`, "%v", err)
			continue
		}
		all = append(all, ms...)
	}
	return all
}

// strict notes a null or a tag.
func (v value) strict() bool {
	switch v.node.(type) {
	case *ast.NullNode:
		v.problem(`write "" for an absent label, or remove it`, "%s is null", v.name())
		return true
	case *ast.TagNode:
		v.problem("put the text in quotes", "%s has a YAML tag", v.name())
		return true
	}
	return false
}

// selfKinds are the kinds of self-alerts (job _tocsin).
var selfKinds = []string{
	"delivery_rejected", "delivery_unreachable", "delivery_held", "delivery_exhausted", "delivery_expired", "reload_failed",
	"notifier_broken", "nobody_answered", "unrouted", "unreachable_soon", "coverage_gap", "heartbeat_missed", "user_group_failed", "calendar_failed",
}

// selfCriticalities stand for all: a self-alert has the criticality of what it is about.
var selfCriticalities = []string{"critical", "high", "warning", "info", "none"}

// warnSelf warns where tocsin could not tell anybody that something of its own went wrong: no route takes its
// self-alerts, or a notifier that is broken would be announced only through itself.
func (l *loader) warnSelf() {
	var lost []string
	ways := map[string]bool{}   // each by its credentials, since those are what breaks
	notify := map[string]bool{} // notifier names, for the message
	for _, kind := range selfKinds {
		for _, criticality := range selfCriticalities {
			topic := route.Topic(kind, criticality, "_tocsin")
			taken := false
			for _, r := range l.file.Routes {
				if len(r.Labels) > 0 || len(r.Matchers) > 0 || r.Active != nil || !r.Match.Match(topic) {
					continue // a condition on labels or the time can't be relied on to take them
				}
				taken = true
				for _, n := range l.file.tells(r) {
					if n, ok := l.file.Notifiers[n]; ok && !n.Off {
						ways[n.Account()] = true // notifiers with one token break as one
						notify[n.Name] = true
					}
				}
			}
			if !taken {
				lost = append(lost, topic)
			}
		}
	}
	switch all := len(selfKinds) * len(selfCriticalities); {
	case len(lost) == all:
		l.warn(`no route takes alert.*.*._tocsin: nobody would hear of deliveries that die; add {match: "alert.*.*._tocsin", notify: [...]}`)
		return
	case len(lost) > 0:
		l.warn(`%d of %d kinds of self-alerts are taken by no route, for example %s; add {match: "alert.*.*._tocsin", notify: [...]}`, len(lost), all, lost[0])
	}
	if len(ways) == 1 {
		l.warn("self-alerts go out through %s only: when that breaks, nobody hears of it; add a notifier with other credentials", strings.Join(keys(notify), ", "))
	}
	if len(ways) == 0 {
		l.warn("the routes that take alert.*.*._tocsin reach no notifier that is on")
	}
}

// tells are the notifiers that a route uses: its own, its escalation's, and the contacts of the people paged.
func (f *File) tells(r Route) []string {
	all := slices.Clone(r.Notify)
	e := f.Escalations[r.Escalate]
	for _, s := range e.Steps {
		all = append(all, s.Notify...)
	}
	for _, id := range f.paged(e) {
		u, _ := f.User(id)
		for _, c := range u.Contacts {
			all = append(all, c.Via)
		}
	}
	return all
}

// people are all who have turns in a schedule, or in one layer of it. Whom an imported calendar names, the file alone does not say.
func (f *File) people(id, only string) []string {
	var all []string
	s, _ := f.Schedule(id)
	for _, layer := range s.Layers {
		if only != "" && layer.Name != only {
			continue
		}
		for _, turn := range layer.Users {
			all = append(all, turn...)
		}
	}
	return all
}
