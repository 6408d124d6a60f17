package plan

import (
	"slices"
	"strings"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/route"
)

// Question asks what would become of alerts that come in together at an instant, past or to come, and open an incident.
type Question struct {
	Alerts   []Alert
	At       time.Time
	Silences []Silence
	Accounts []Account // linked ones
}

// Explanation is what would become of them, and why.
type Explanation struct {
	Alerts     []ExplainedAlert
	Notifiers  []string // told at once, in order
	People     []Paged  // in the order of the steps
	Deliveries []Planned
	Silenced   bool // all that fire are
	Unrouted   bool // nothing in the file takes those that are not silenced, at any time
}

// ExplainedAlert is one of the alerts.
type ExplainedAlert struct {
	Topic    string
	Labels   map[string]string
	Firing   bool
	Routes   []Verdict
	Silences []SilenceVerdict // that hold at the instant
	Silenced bool
}

// SilenceVerdict says whether one silence hides an alert, and why.
type SilenceVerdict struct {
	Silence Silence
	Hides   bool
	Why     string
}

// Paged is a person whom a step of an escalation pages, unless somebody answers first.
type Paged struct {
	User       string
	Name       string
	Target     string // as the file names it
	Escalation string
	Step       int           // from 1
	After      time.Duration // since the beginning
	Ways       []string      // notifiers, in the order of their turns; empty: the person can't be reached
}

// Planned is a delivery that would be made.
type Planned struct {
	Delivery
	Person     string // user, of a page
	Escalation string // of what a step makes; empty: a route, or the alert itself
	Step       int
	After      time.Duration // since the beginning
}

// Explain answers a question. Escalations are told for their first round.
func Explain(f *config.File, q Question) Explanation {
	var e Explanation
	var notifiers, escalations []string
	criticality := ""
	fires, hidden, took := 0, 0, false
	for _, a := range q.Alerts {
		topic := a.Topic()
		m := Routes(f, topic, a.Labels, a.Notify, q.At)
		x := ExplainedAlert{Topic: topic, Labels: a.Labels, Firing: a.Firing, Routes: m.Routes}
		for _, s := range q.Silences {
			if s.Lasts(q.At) {
				hides, why := s.Hides(topic, a.Labels)
				x.Silences = append(x.Silences, SilenceVerdict{s, hides, why})
				x.Silenced = x.Silenced || hides
			}
		}
		e.Alerts = append(e.Alerts, x)
		if !a.Firing {
			continue
		}
		fires++
		if word := route.Word(a.Criticality); criticality == "" || Rank(word) > Rank(criticality) {
			criticality = word
		}
		if x.Silenced {
			hidden++
			continue
		}
		took = took || !m.Empty() || len(m.Resting) > 0
		notifiers = append(notifiers, m.Notifiers...)
		escalations = append(escalations, m.Escalations...)
	}
	e.Silenced = fires > 0 && hidden == fires
	e.Unrouted = fires > hidden && !took
	waits := time.Duration(0)
	for _, n := range known(notifiers, f.Notifiers) {
		e.join(f, n, "", 0, 0)
		if f.Notifiers[n].Cards() && !f.Notifiers[n].Off {
			waits = f.Kinds[delivery.Page].Wait
		}
	}
	for _, name := range known(escalations, f.Escalations) {
		e.escalate(f, q, name, criticality, waits)
	}
	return e
}

// join adds what a notifier gets that is told, once.
func (e *Explanation) join(f *config.File, notifier, escalation string, step int, after time.Duration) {
	if slices.ContainsFunc(e.Deliveries, func(d Planned) bool { return d.Notifier == notifier && d.Person == "" }) {
		return
	}
	if after == 0 {
		e.Notifiers = append(e.Notifiers, notifier)
	}
	for _, d := range ForNotifier(f, notifier, Opened) {
		e.Deliveries = append(e.Deliveries, Planned{Delivery: d, Escalation: escalation, Step: step, After: after})
	}
}

// escalate adds the steps of an escalation's first round. One that reaches nobody brings on the next at once.
func (e *Explanation) escalate(f *config.File, q Question, name, criticality string, wait time.Duration) {
	missed, last := false, time.Duration(0)
	rest := time.Duration(0) // of steps that waited for the end of quiet hours
	for n, s := range f.Escalations[name].Steps {
		after := s.After + rest
		if missed {
			after = last
		}
		if until := Pages(f, q.Accounts, s.Page, criticality, 0, q.At.Add(after)).Rests; !until.IsZero() {
			after = until.Sub(q.At)
			rest = after - s.After
		}
		if n > 0 || after > 0 {
			wait = 0 // the card is out by then
		}
		at := q.At.Add(after)
		for _, notifier := range s.Notify {
			e.join(f, notifier, name, n+1, after)
		}
		p := Pages(f, q.Accounts, s.Page, criticality, wait, at)
		for _, target := range s.Page {
			kind, id, _ := strings.Cut(target, ":")
			who, err := people(f, kind, id, at)
			if err != nil {
				continue
			}
			for _, u := range who {
				if !asleep(u, criticality, at).IsZero() {
					continue
				}
				if u.Name == "" {
					u.Name = u.ID
				}
				e.People = append(e.People, Paged{User: u.ID, Name: u.Name, Target: target, Escalation: name, Step: n + 1, After: after, Ways: ways(u, criticality, p, f, at)})
			}
		}
		for _, d := range p.Pages {
			x := Planned{Delivery: d, Escalation: name, Step: n + 1, After: after + d.Delay}
			if kind, id, _ := strings.Cut(d.Target, ":"); kind != "" {
				if who, err := people(f, kind, id, at); err == nil {
					x.Person = who[0].ID
				}
			}
			e.Deliveries = append(e.Deliveries, x)
		}
		missed, last = !p.Reached, after
	}
}

// ways are the notifiers through which a step pages a person.
func ways(u config.User, criticality string, p Paging, f *config.File, at time.Time) []string {
	var out []string
	for _, c := range u.Contacts {
		if c.Urgency == "high" && !HighUrgency(criticality) || c.Urgency == "low" && HighUrgency(criticality) || slices.Contains(out, c.Via) {
			continue
		}
		if slices.ContainsFunc(p.Pages, func(d Delivery) bool {
			kind, id, _ := strings.Cut(d.Target, ":")
			who, err := people(f, kind, id, at)
			return d.Dead == nil && d.Notifier == c.Via && err == nil && who[0].ID == u.ID
		}) {
			out = append(out, c.Via)
		}
	}
	return out
}

// AtOnce are the ids of the people who are paged without a delay, in order; Later those whom only a later step pages. Who can't be
// reached is not paged, whatever the escalation says.
func (e Explanation) AtOnce() (now, later []string) {
	for _, p := range e.People {
		if p.After == 0 && len(p.Ways) > 0 && !slices.Contains(now, p.User) {
			now = append(now, p.User)
		}
	}
	for _, p := range e.People {
		if len(p.Ways) > 0 && !slices.Contains(now, p.User) && !slices.Contains(later, p.User) {
			later = append(later, p.User)
		}
	}
	return now, later
}

// Silent says that nobody would be told of them.
func (e Explanation) Silent() bool { return len(e.Deliveries) == 0 }
