package plan

import (
	"fmt"
	"slices"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/config"
)

// Match is what the file says about one alert.
type Match struct {
	Notifiers   []string // each once, in the order of the routes, then the alert's own
	Escalations []string // each once
	Routes      []Verdict
	Resting     []Verdict // routes that would take the alert and are outside of their window
}

// Verdict says whether one route takes an alert, and why.
type Verdict struct {
	Match   string // the route's pattern
	Line    int    // where it stands in the file
	Topic   bool   // the pattern takes the topic
	Matched bool
	Why     string
	Rests   bool      // it would take the alert, but for the hour
	Opens   time.Time // then: when its hours begin; zero: not within weeks
}

// Routes asks every route at an instant. notify names the notifiers that the alert brings itself; names that the file does
// not know are left out.
func Routes(f *config.File, topic string, labels map[string]string, notify []string, now time.Time) Match {
	var m Match
	for _, r := range f.Routes {
		ok, why := takes(r, topic, labels)
		var opens time.Time
		rests := ok && r.Active != nil && !r.Active.Active(now)
		if rests {
			ok, why = false, fmt.Sprintf("it is %s, and the route is active %s", r.Active.Wall(now), r.Active)
			if at, soon := r.Active.Next(now); soon {
				opens = at
				why += ", again from " + opens.Format("2006-01-02 15:04 MST")
			}
		}
		v := Verdict{Match: r.Match.String(), Line: r.Line, Topic: r.Match.Match(topic), Matched: ok, Why: why, Rests: rests, Opens: opens}
		m.Routes = append(m.Routes, v)
		if rests {
			m.Resting = append(m.Resting, v)
		}
		if !ok {
			continue
		}
		m.Notifiers = append(m.Notifiers, r.Notify...)
		if r.Escalate != "" {
			m.Escalations = append(m.Escalations, r.Escalate)
		}
	}
	m.Notifiers = append(m.Notifiers, notify...)
	m.Notifiers = known(m.Notifiers, f.Notifiers)
	m.Escalations = known(m.Escalations, f.Escalations)
	return m
}

// Opens is when the first of the routes begins its hours that would take the alert but for them. False: there is none.
func (m Match) Opens() (time.Time, bool) {
	var first time.Time
	for _, v := range m.Resting {
		if !v.Opens.IsZero() && (first.IsZero() || v.Opens.Before(first)) {
			first = v.Opens
		}
	}
	return first, !first.IsZero()
}

// Empty says that nothing in the file takes the alert.
func (m Match) Empty() bool { return len(m.Notifiers) == 0 && len(m.Escalations) == 0 }

// known keeps each defined name once, in order.
func known[T any](names []string, defined map[string]T) []string {
	var out []string
	for _, n := range names {
		if _, ok := defined[n]; ok && !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out
}

// takes says whether a route takes an alert at some time, with the reason either way. The key of an incident depends on it,
// so it must not depend on the hour: what opened by day is resolved by night.
func takes(r config.Route, topic string, labels map[string]string) (bool, string) {
	if !r.Match.Match(topic) {
		return false, OtherTopic(topic, r.Match.String())
	}
	for _, name := range sortedKeys(r.Labels) {
		if want, got := r.Labels[name], labels[name]; want != got {
			return false, fmt.Sprintf("the label %s is %q, not %q", name, got, want)
		}
	}
	for _, m := range r.Matchers {
		if !m.Match(labels) {
			return false, fmt.Sprintf("the label %s is %q, which %s does not take", m.Name(), labels[m.Name()], m)
		}
	}
	return true, fmt.Sprintf("the topic %s is %s", topic, r.Match)
}

// OtherTopic says why a route does not take an alert that its pattern does not take.
func OtherTopic(topic, match string) string {
	return fmt.Sprintf("the topic %s is not %s", topic, match)
}

func sortedKeys(labels map[string]string) []string {
	out := make([]string, 0, len(labels))
	for n := range labels {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}
