package config

import (
	"fmt"
	"net/mail"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/oncall"
)

// The kinds of names that refer to one another.
const (
	aUser       = "user"
	aSchedule   = "schedule"
	aLayer      = "layer"
	anEscape    = "escalation"
	aNotifier   = "notifier"
	maxRepeat   = 100
	nameLetters = "letters, digits, _ . and - only, beginning with a letter or digit, at most 100"
)

// goodName is what names are made of: they are parts of targets (user:ana), URLs and metrics.
var goodName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$`)

// define notes that the name exists. A bad or second one is a mistake at v.
func (v value) define(kind, name string) {
	if !goodName.MatchString(name) {
		v.problem(nameLetters, "%q cannot be the name of a %s", name, kind)
	}
	if slices.Contains(v.r.defined[kind], name) {
		v.problem("each needs a name of its own", "the %s %q is there twice", kind, name)
		return
	}
	v.r.defined[kind] = append(v.r.defined[kind], name)
}

// id reads the id of a user or schedule.
func (o *object) id(kind string) string {
	o.require("id", "other parts of the file refer to the "+kind+" by it")
	v := o.get("id")
	id, ok := v.text()
	if ok {
		v.define(kind, id)
	}
	return id
}

// zone is a time zone of a key; nil where there is none.
func (o *object) zone(key string) *time.Location {
	v := o.get(key)
	s, ok := v.text()
	if !ok {
		return nil
	}
	z, err := time.LoadLocation(s)
	if err != nil || s == "Local" {
		v.problem("write it like Europe/Berlin or UTC", "%s %q is unknown", key, s)
		return nil
	}
	return z
}

func (l *loader) users(root *object) {
	for _, v := range root.get("users").list() {
		o := v.object()
		if o == nil {
			continue
		}
		u := User{ID: o.id(aUser), Role: o.str("role", ""), Email: o.str("email", "")}
		u.Name = o.str("name", u.ID)
		if u.Email != "" {
			if a, err := mail.ParseAddress(u.Email); err != nil || a.Address != u.Email {
				o.get("email").problem("write it like ana@example.com", "email %q is no address", u.Email)
			}
		}
		zone := o.zone("time_zone")
		if zone != nil {
			u.TimeZone = zone.String()
		}
		for _, c := range o.get("contacts").list() {
			if c := c.object(); c != nil {
				u.Contacts = append(u.Contacts, contact(c))
			}
		}
		u.Quiet = quietHours(o, zone)
		o.done(nil)
		l.file.Users = append(l.file.Users, u)
	}
}

func contact(o *object) Contact {
	o.require("via", "name the notifier that reaches the person")
	c := Contact{
		Address: o.str("address", ""),
		After:   o.duration("after", 0, 0),
		Urgency: o.oneOf("urgency", "", "high", "low"),
	}
	if v := o.get("via"); v.present() {
		if name, ok := v.text(); ok {
			c.Via = name
			v.refer(aNotifier, name)
		}
	}
	o.done(nil)
	return c
}

func (l *loader) schedules(root *object) {
	l.file.Notices, l.file.UserGroups, l.file.Calendars = map[string]Notices{}, map[string]UserGroup{}, map[string]Calendar{}
	for _, v := range root.get("schedules").list() {
		o := v.object()
		if o == nil {
			continue
		}
		s := oncall.Schedule{ID: o.id(aSchedule), Owner: o.str("owner", "")}
		s.Name = o.str("name", s.ID)
		o.require("time_zone", "hand-offs are wall clocks of this zone; write it like Europe/Berlin")
		s.Zone = o.zone("time_zone")
		if !o.has("ical_url") {
			o.require("layers", "a schedule without a layer has nobody on call")
		}
		layers := o.get("layers")
		list := layers.list()
		if layers.present() && !layers.null() && kindOf(layers.node) == "a list" && len(list) == 0 || layers.null() {
			layers.problem("a schedule without a layer has nobody on call", "layers is empty")
		}
		for i, v := range list {
			if o := v.object(); o != nil {
				s.Layers = append(s.Layers, l.layer(o, fmt.Sprintf("layer %d", i+1), s.Zone))
			}
		}
		if id := l.calendar(o, s.Zone); id != "" {
			s.Layers = append(s.Layers, oncall.Layer{Name: CalendarLayer, Calendar: id})
		}
		importedNames(o, s)
		s.Partial = o.oneOf("coverage", "full", "full", "partial") == "partial"
		l.file.Notices[s.ID] = notices(o)
		if g, ok := l.userGroup(o); ok {
			l.file.UserGroups[s.ID] = g
		}
		o.done(nil)
		l.file.Schedules = append(l.file.Schedules, s)
	}
}

// layer reads one layer of a schedule with the given zone: a rotation, or an imported calendar.
func (l *loader) layer(o *object, name string, zone *time.Location) oncall.Layer {
	layer := oncall.Layer{Name: o.str("name", name), Zone: o.zone("time_zone")}
	if layer.Zone != nil {
		zone = layer.Zone
	}
	if o.has("ical_url") {
		return l.importedLayer(o, layer, zone)
	}
	o.get("ical_url")
	o.require("users", "list the people in the order of their turns, or give the layer an ical_url")
	users := o.get("users")
	for _, v := range users.list() {
		var turn []string
		for _, u := range v.strings() {
			if id, ok := u.text(); ok {
				turn = append(turn, id)
				u.refer(aUser, id)
			}
		}
		if len(turn) > 0 {
			layer.Users = append(layer.Users, turn)
		} else if v.null() || kindOf(v.node) == "a list" {
			v.problem("name at least one person", "turn %s has nobody", v.name())
		}
	}
	if users.null() || users.present() && kindOf(users.node) == "a list" && len(users.list()) == 0 {
		users.problem("list the people in the order of their turns", "users is empty")
	}
	if v := o.get("every"); v.present() {
		if s, ok := v.text(); ok {
			every, err := oncall.ParseEvery(s)
			if err != nil {
				v.problem("", "every: %v", err)
			}
			layer.Every = every
		}
	}
	if len(layer.Users) > 1 {
		o.require("every", "say how long a turn is, for example 1 week")
		o.require("start", `say when the first turn begins, for example "2026-01-05 09:00"`)
	}
	layer.Start, layer.End = o.wallClock("start"), o.wallClock("end")
	if !layer.End.IsZero() && !layer.Start.Before(layer.End) {
		o.get("end").problem("", "end is not after start")
	}
	layer.Active = active(o, zone)
	layer.SkipInactive = o.boolean("skip_inactive")
	switch {
	case layer.SkipInactive && !o.has("active"):
		o.get("skip_inactive").problem("remove it, or say in active when the layer counts", "without active no turn can be skipped")
	case layer.SkipInactive && layer.Active != nil && zone != nil && layer.Active.Zone.String() != zone.String():
		o.get("active").problem("give the layer this time_zone instead: then its turns and its hours go by one clock", "with skip_inactive the hours must be those of the layer's own zone, %s", zone)
	}
	o.done(nil)
	return layer
}

// wallClock is a local date and time of a key, as a UTC time with the same fields; zero where there is none.
func (o *object) wallClock(key string) time.Time {
	v := o.get(key)
	s, ok := v.text()
	if !ok {
		return time.Time{}
	}
	for _, format := range []string{"2006-01-02 15:04", "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02T15:04:05", "2006-01-02"} {
		if t, err := time.Parse(format, s); err == nil {
			return t
		}
	}
	hint := `write it like "2026-01-05 09:00"`
	if _, err := time.Parse(time.RFC3339, s); err == nil {
		hint += ": it is the clock on the wall in the schedule's time_zone, so leave out the offset"
	}
	v.problem(hint, "%s %q is no date and time", key, s)
	return time.Time{}
}

func (l *loader) escalations(root *object) {
	l.file.Escalations = map[string]Escalation{}
	all := root.get("escalations").object()
	if all == nil {
		return
	}
	for _, name := range all.keys {
		v := all.get(name)
		value{r: v.r, at: all.places[name], path: v.path}.define(anEscape, name)
		if v.null() {
			v.problem("give it steps", "the escalation %s is empty", name)
		}
		o := v.object()
		if o == nil {
			continue
		}
		e := Escalation{Repeat: o.whole("repeat", 0, 0, maxRepeat)}
		o.require("steps", "say who is paged and when")
		steps := o.get("steps")
		for _, v := range steps.list() {
			if o := v.object(); o != nil {
				e.Steps = append(e.Steps, l.step(o, e.Steps))
			}
		}
		if steps.null() || steps.present() && kindOf(steps.node) == "a list" && len(steps.list()) == 0 {
			steps.problem("say who is paged and when", "steps is empty")
		}
		if len(e.Steps) > 0 {
			e.Every = e.Steps[len(e.Steps)-1].After
		}
		e.Every = o.duration("every", e.Every, time.Second)
		if e.Repeat > 0 && e.Every == 0 && len(e.Steps) > 0 {
			o.get("repeat").problem("set every, for example 10m", "the rounds would follow one another at once")
		}
		e.AckTimeout = o.duration("ack_timeout", 0, time.Minute)
		o.done(nil)
		l.file.Escalations[name] = e
	}
}

// layerTarget checks that ID/NAME, the target v, is one layer of a schedule.
func (l *loader) layerTarget(v value, target string) {
	id, name, _ := strings.Cut(target, "/")
	if id == "" || name == "" {
		v.problem("write layer:ID/NAME, with the schedule's id and the layer's name", "%q names no layer of a schedule", "layer:"+target)
		return
	}
	v.refer(aSchedule, id)
	s, ok := l.file.Schedule(id)
	if !ok {
		return
	}
	var names []string
	for _, layer := range s.Layers {
		names = append(names, layer.Name)
	}
	same := 0
	for _, n := range names {
		if n == name {
			same++
		}
	}
	switch {
	case same == 0:
		hint := suggest(name, names)
		if hint == "" {
			hint = "it has " + strings.Join(names, ", ")
		}
		v.problem(hint, "the schedule %s has no layer %q", id, name)
	case same > 1:
		v.problem("give each layer a name of its own", "the schedule %s has %d layers %q", id, same, name)
	case strings.Contains(name, "/"):
		v.problem("give the layer a name without it", "a layer whose name has a slash can't be paged")
	}
}

func (l *loader) step(o *object, before []Step) Step {
	s := Step{After: o.duration("after", 0, 0), Notify: l.ways(o)}
	if n := len(before); n > 0 && s.After < before[n-1].After {
		o.get("after").problem("after counts from the beginning of the round; put the steps in order", "this step comes before the one above it")
	}
	for _, v := range o.get("page").strings() {
		target, ok := v.text()
		if !ok {
			continue
		}
		kind, id, _ := strings.Cut(target, ":")
		switch {
		case kind == aLayer && id != "":
			l.layerTarget(v, id)
		case kind != aSchedule && kind != aUser || id == "":
			v.problem("write schedule:ID, layer:ID/NAME or user:ID", "%q is nobody to page", target)
			continue
		default:
			v.refer(kind, id)
		}
		if !slices.Contains(s.Page, target) {
			s.Page = append(s.Page, target)
		}
	}
	if !o.has("page") && !o.has("notify") {
		o.problem(`add page: ["schedule:ID"] or notify: [NOTIFIER]`, "the step tells nobody")
	}
	o.done(nil)
	return s
}
