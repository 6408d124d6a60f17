package intake

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/extract"
	"github.com/tocsin-oncall/tocsin/pkg/plan"
)

// maxTruncated bounds how many alerts a source may say that it left out: the column holds no more.
const maxTruncated = 1_000_000_000

// maxAlerts bounds one message: each alert may be an incident with a transaction of its own.
const maxAlerts = 10_000

// Message is what one request of a source brought.
type Message struct {
	Groups []Group
	Alerts int           // how many alerts there are in them
	Wrong  []*InputError // alerts that could not be taken. The others are: most senders would send all of them again, or none
	Notes  []*InputError // what is wrong with alerts that are taken all the same

	places map[string]int // of the groups, by key
}

// SourceOf is a source of the file, or a built-in one of the same name that says nothing but its type.
func SourceOf(f *config.File, name, kind string) config.Source {
	s, ok := f.Sources[name]
	if !ok || s.Type != kind {
		s = config.Source{Name: name, MaxBody: config.BodyBound(kind)}
	}
	s.Type = kind
	return s
}

// Read reads what a source has sent, as its type speaks. An *InputError: nothing of it could be read.
func Read(f *config.File, src config.Source, body []byte) (Message, error) {
	switch src.Type {
	case config.TypeAlertmanager, config.TypeGrafana:
		return readGroup(f, src, body)
	case config.TypePrometheus:
		return readPrometheus(f, src, body)
	case config.TypeGeneric:
		return readGeneric(f, src, body)
	case config.TypeNative:
		return readNative(f, src, body)
	}
	return Message{}, &InputError{"body", "no source speaks " + src.Type}
}

// maxFailed is how many groups of a message may fail before the others are left for the next time: one that can't be
// taken holds up no other, and a database that takes none is not asked thousands of times.
const maxFailed = 3

// groupsAtOnce is how many groups of a message stand in line at once: one with a thousand of them is not done within its sender's
// patience one by one, and it must leave room to others.
const groupsAtOnce = 16

// AcceptAll accepts the groups of a message as [Intake.Accept] does. A result that is
// nil is that of a group that was not taken; an error says why. The sender sends all of them again then, and what is there already
// changes nothing. It begins anywhere: of a message that is never taken whole, each group has its turn sooner or later.
func (i *Intake) AcceptAll(ctx context.Context, groups []Group) ([]*Result, error) {
	out, errs := make([]*Result, len(groups)), make([]error, len(groups))
	if len(groups) == 0 {
		return out, nil
	}
	begin := rand.IntN(len(groups))
	var next, failed atomic.Int64
	var all sync.WaitGroup
	for range min(groupsAtOnce, len(groups)) {
		all.Go(func() {
			for failed.Load() < maxFailed {
				n := int(next.Add(1)) - 1
				if n >= len(groups) {
					return
				}
				n = (begin + n) % len(groups)
				r, err := i.Accept(ctx, groups[n])
				if err != nil {
					errs[n] = err
					failed.Add(1)
					continue
				}
				out[n] = &r
			}
		})
	}
	all.Wait()
	var first error
	for _, err := range errs {
		var wrong *InputError
		if err != nil && (first == nil || errors.As(first, &wrong)) {
			first = err // what the sender must send again counts before what it must change
		}
	}
	return out, first
}

// group adds an alert to the others that belong to its incident. A wrong one is left out and told; at is where it stands.
func (m *Message) group(f *config.File, src config.Source, a plan.Alert, at string, like Group) {
	checked, wrong := checkAlert(f, a, like.Clip)
	if wrong != nil {
		wrong.Field = at + wrong.Field
		m.Wrong = append(m.Wrong, wrong)
		return
	}
	m.Alerts++
	key := plan.Key(f, src.Name, checked)
	if n, ok := m.places[key]; ok {
		m.Groups[n].Alerts = append(m.Groups[n].Alerts, a)
		return
	}
	if m.places == nil {
		m.places = map[string]int{}
	}
	m.places[key] = len(m.Groups)
	like.Source, like.Key, like.Alerts = src.Name, key, []plan.Alert{a}
	m.Groups = append(m.Groups, like)
}

// words fills in the topic: what the file says, else what the alert's labels say. Where what the file says fails on this
// alert, its labels count as well: a page with an unforeseen topic is better than none. What failed is noted.
func (m *Message) words(src config.Source, a *plan.Alert, at string, in extract.Input) {
	for _, w := range []struct {
		name, label string
		template    extract.Template
		into        *string
	}{
		{"kind", "alertname", src.Topic.Kind, &a.Kind}, {"criticality", "severity", src.Topic.Criticality, &a.Criticality}, {"job", "job", src.Topic.Job, &a.Job},
	} {
		*w.into = a.Labels[w.label]
		if !w.template.Given() {
			continue
		}
		s, err := w.template.Text(in)
		if err != nil {
			m.Notes = append(m.Notes, &InputError{at + w.name, fmt.Sprintf("topic.%s of the source %s can't be made of it, its label %s is taken: %v", w.name, src.Name, w.label, err)})
			continue
		}
		*w.into = s
	}
}

// names are labels or annotations as expressions see them: an absent one is nil, which ?? takes.
func names(all map[string]string) map[string]any {
	out := make(map[string]any, len(all))
	for n, v := range all {
		out[n] = v
	}
	return out
}

// scoped is a key that a source gave, told apart from the same key of another source. The built-in Alertmanager keeps
// its own: incidents that are open were opened with it.
func scoped(src config.Source, key string) string {
	if key == "" || src.Name == config.TypeAlertmanager {
		return key
	}
	return src.Name + ": " + key
}

// decode reads JSON into v. The error names the field below at.
func decode(body []byte, v any, at, what string) *InputError {
	d := json.NewDecoder(bytes.NewReader(body))
	if _, ours := v.(*api.Alert); ours {
		d.DisallowUnknownFields() // there, a field that is not known is a mistake; others may add fields as they like
	}
	err := d.Decode(v)
	if err == nil && !json.Valid(body) {
		err = errors.New("something follows the JSON document")
	}
	if err == nil {
		return nil
	}
	var typ *json.UnmarshalTypeError
	if errors.As(err, &typ) {
		field := typ.Field
		if field == "" {
			field = strings.TrimSuffix(at, ".")
		} else {
			field = at + field
		}
		if field == "" {
			field = "body"
		}
		return &InputError{field, fmt.Sprintf("it is %s, %s is needed", article(typ.Value), sort(typ.Type.Kind().String()))}
	}
	field := strings.TrimSuffix(at, ".")
	if field == "" {
		field = "body"
	}
	return &InputError{field, "it is no " + what + ": " + err.Error()}
}

func article(value string) string {
	switch value {
	case "object", "array":
		return "an " + value
	case "null", "bool":
		return value
	}
	word, _, _ := strings.Cut(value, " ")
	return "a " + word
}

// sort is what JSON calls a kind of Go's.
func sort(kind string) string {
	switch kind {
	case "map", "struct":
		return "an object"
	case "slice", "array":
		return "an array"
	case "string":
		return "a string"
	case "bool":
		return "true or false"
	}
	return "a number"
}
