package config

import (
	"slices"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/oncall"
)

// Notices are what people are told of their shifts in one schedule.
type Notices struct {
	Start, End bool
	Evening    bool // also the day before a shift starts, at EveningAt
	EveningAt  int  // minutes since midnight on the person's wall
}

// UserGroup is a group of a chat that has whoever is on call as its members.
type UserGroup struct {
	Notifier string
	ID       string
}

// notices reads what people are told of their shifts: of the start, unless the file says otherwise.
func notices(o *object) Notices {
	n := Notices{Start: true}
	v := o.get("notices")
	const how = `write notices: off, or notices: {start: true, end: true, evening: "18:00"}`
	switch {
	case !v.present():
		return n
	case kindOf(v.node) == "a mapping":
		m := v.object()
		if m == nil {
			return n
		}
		if m.has("start") {
			n.Start = m.boolean("start")
		} else {
			m.get("start")
		}
		n.End = m.boolean("end")
		if e := m.get("evening"); e.present() {
			if s, ok := e.text(); ok {
				at, _, err := oncall.ParseHours(s + "-24:00")
				if n.Evening, n.EveningAt = err == nil, at; err != nil {
					e.problem(`write it like "18:00"`, "evening %q is no time of day", s)
				}
			}
		}
		m.done(nil)
	case kindOf(v.node) == "true or false":
		n.Start = o.boolean("notices")
	default:
		if s, ok := v.text(); !ok || s != "off" {
			v.problem(how, "notices must be off or a mapping")
		}
		return Notices{}
	}
	return n
}

// userGroup reads the group that a schedule keeps: its id, or a mapping that names the notifier too.
func (l *loader) userGroup(o *object) (UserGroup, bool) {
	v := o.get("user_group")
	var g UserGroup
	const how = "write user_group: S0123456789, or user_group: {notifier: NAME, id: S0123456789}"
	switch {
	case !v.present():
		return g, false
	case v.null():
		v.problem(how+", or remove it", "user_group has no value")
		return g, false
	case kindOf(v.node) == "a mapping":
		m := v.object()
		if m == nil {
			return g, false
		}
		m.require("id", "it begins with S and stands in the address of the group's page")
		m.require("notifier", "name the notifier of type slack whose token may change the group")
		g.ID = m.str("id", "")
		if n := m.get("notifier"); n.present() {
			if name, ok := n.text(); ok {
				g.Notifier = name
				n.refer(aNotifier, name)
				if to, known := l.file.Notifiers[name]; known && (to.Type != "slack" || to.Token == "") {
					n.problem("name one of type slack that has a token", "the notifier %s cannot change a group", name)
				}
			}
		}
		m.done(nil)
	default:
		g.ID, _ = v.text()
		g.Notifier = l.slackWithToken(v, how)
	}
	return g, g.ID != "" && g.Notifier != ""
}

// slackWithToken is the notifier that is meant where only one set of Slack credentials is in the file.
func (l *loader) slackWithToken(v value, how string) string {
	var names []string
	accounts := map[string]bool{}
	for name, n := range l.file.Notifiers {
		if n.Type == "slack" && n.Token != "" && !n.Off {
			names = append(names, name)
			accounts[n.Account()] = true
		}
	}
	if len(accounts) != 1 {
		v.problem(how, "%d sets of Slack credentials are in the file, and user_group names none of them", len(accounts))
		return ""
	}
	slices.Sort(names)
	return names[0]
}

// Zone is the zone of a person's clock; the given one where the file says nothing.
func (u User) Zone(otherwise *time.Location) *time.Location {
	if z, err := time.LoadLocation(u.TimeZone); err == nil && u.TimeZone != "" {
		return z
	}
	if otherwise == nil {
		return time.UTC
	}
	return otherwise
}
