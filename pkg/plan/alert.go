// Package plan composes the file, the schedules and an alert into what should happen: which routes take it, which
// deliveries that makes, whom a step of an escalation pages and by which ways. It is pure: the time is an argument.
package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/message"
	"github.com/tocsin-oncall/tocsin/pkg/route"
)

// SelfJob is the topic's last word of tocsin's own alerts, and SelfKey the head of their incidents' keys. Neither is
// taken from outside.
const (
	SelfJob = "_tocsin"
	SelfKey = "_tocsin:"
)

// maxKey bounds an incident's key, in bytes: an index holds it. What is longer is cut and told apart by a hash.
const maxKey = 1000

// Alert is one event from a source in neutral form.
type Alert struct {
	Kind        string // the topic's words, as the source gave them
	Criticality string
	Job         string
	Key         string // grouping key; empty: derived
	Fingerprint string // which alert of the incident this is; empty: derived from topic and labels
	Firing      bool
	Title       string
	Text        string
	Labels      map[string]string
	Links       []message.Link
	Notify      []string  // notifiers besides those of the routes
	StartsAt    time.Time // zero: the source does not say
	EndsAt      time.Time // zero: not known
}

// Topic is alert.<kind>.<criticality>.<job>.
func (a Alert) Topic() string { return route.Topic(a.Kind, a.Criticality, a.Job) }

// Mark is the alert's fingerprint: the sender's, else a hash of topic and labels. Title and text do not count: they hold
// values that change while the alert stays the same.
func (a Alert) Mark() string {
	if a.Fingerprint != "" {
		return a.Fingerprint
	}
	sum := sha256.Sum256([]byte(a.Topic() + labelText(a.Labels)))
	return hex.EncodeToString(sum[:8])
}

// Key is the incident's key: the alert's own, else the labels that the source or the first matching route groups by,
// else topic and labels.
func Key(f *config.File, source string, a Alert) string {
	if a.Key != "" {
		return bounded(a.Key)
	}
	if s, ok := f.Sources[source]; ok && len(s.GroupBy) > 0 {
		return bounded("source " + source + labelText(only(a.Labels, s.GroupBy)))
	}
	topic := a.Topic()
	for _, r := range f.Routes {
		if ok, _ := takes(r, topic, a.Labels); ok && len(r.GroupBy) > 0 {
			return bounded("route " + r.Match.String() + labelText(only(a.Labels, r.GroupBy)))
		}
	}
	return bounded(topic + labelText(a.Labels))
}

// labelText writes labels in order, each quoted, so that no two different sets look alike.
func labelText(labels map[string]string) string {
	names := make([]string, 0, len(labels))
	for n := range labels {
		names = append(names, n)
	}
	slices.Sort(names)
	var b strings.Builder
	b.WriteByte('{')
	for i, n := range names {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Quote(n))
		b.WriteByte('=')
		b.WriteString(strconv.Quote(labels[n]))
	}
	b.WriteByte('}')
	return b.String()
}

// only keeps the named labels. An absent one counts as empty, as in matchers.
func only(labels map[string]string, names []string) map[string]string {
	out := make(map[string]string, len(names))
	for _, n := range names {
		out[n] = labels[n]
	}
	return out
}

func bounded(key string) string {
	if len(key) <= maxKey {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return strings.ToValidUTF8(key[:maxKey/2], "") + "…#" + hex.EncodeToString(sum[:])
}

// Rank orders criticalities: critical, high, error, warning, any other word, info, none.
func Rank(criticality string) int {
	switch criticality {
	case "critical":
		return 6
	case "high":
		return 5
	case "error":
		return 4
	case "warning":
		return 3
	case "info", "debug", "low":
		return 1
	case "none", "":
		return 0
	}
	return 2
}

// HighUrgency says that a person is to be woken for it.
func HighUrgency(criticality string) bool { return criticality == "critical" || criticality == "high" }
