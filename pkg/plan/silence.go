package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/route"
)

// Silence keeps back the alerts that it hides, while it lasts.
type Silence struct {
	ID          string
	Match       *route.Pattern // nil: every topic
	Matchers    []route.Matcher
	From, Until time.Time
	Reason      string
	Author      string
}

// NewSilence checks what a silence hides. An empty match is every topic. The error names the field.
func NewSilence(match string, matchers []string) (Silence, error) {
	var s Silence
	if match != "" {
		p, err := route.ParsePattern(match)
		if err != nil {
			return s, &SilenceError{"match", err.Error()}
		}
		s.Match = &p
	}
	for i, text := range matchers {
		ms, err := route.ParseMatchers(text)
		if err != nil {
			return s, &SilenceError{fmt.Sprintf("matchers[%d]", i), err.Error()}
		}
		s.Matchers = append(s.Matchers, ms...)
	}
	if s.Match == nil && len(s.Matchers) == 0 {
		return s, &SilenceError{"match", `name what is silenced: a topic pattern, matchers on labels, or both; "#" is every topic`}
	}
	return s, nil
}

// SilenceError says what is wrong with a silence.
type SilenceError struct{ Field, Message string }

func (e *SilenceError) Error() string { return e.Field + ": " + e.Message }

// Hides says whether the silence is meant for an alert, whatever the time, and why. What tocsin says about itself is
// hidden only by a pattern with its job in it: whoever silences everything must still hear that nothing goes out.
func (s Silence) Hides(topic string, labels map[string]string) (bool, string) {
	if s.Match != nil && !s.Match.Match(topic) {
		return false, fmt.Sprintf("the topic %s is not %s", topic, s.Match)
	}
	if strings.HasSuffix(topic, "."+SelfJob) && (s.Match == nil || !slices.Contains(strings.Split(strings.ToLower(s.Match.String()), "."), SelfJob)) {
		return false, fmt.Sprintf("tocsin's own alerts are silenced only by a pattern with the word %s", SelfJob)
	}
	for _, m := range s.Matchers {
		if !m.Match(labels) {
			return false, fmt.Sprintf("the label %s is %q, which %s does not take", m.Name(), labels[m.Name()], m)
		}
	}
	return true, "it hides " + topic
}

// Lasts says whether the silence holds at an instant.
func (s Silence) Lasts(at time.Time) bool { return !at.Before(s.From) && at.Before(s.Until) }

// Text is what incidents say of it.
func (s Silence) Text() string {
	return fmt.Sprintf("silenced by %s until %s: %s", s.Author, s.Until.UTC().Format("2006-01-02 15:04:05 UTC"), s.Reason)
}

// SilencedBy is the silence that hides an alert; of several the one that ends last.
func SilencedBy(all []Silence, topic string, labels map[string]string) (Silence, bool) {
	var last Silence
	found := false
	for _, s := range all {
		if hides, _ := s.Hides(topic, labels); hides && (!found || s.Until.After(last.Until)) {
			last, found = s, true
		}
	}
	return last, found
}
