package intake

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/message"
	"github.com/tocsin-oncall/tocsin/pkg/plan"
	"github.com/tocsin-oncall/tocsin/pkg/route"
)

// What one alert may hold, in characters and entries. Text that is longer is stored up to the bound, with a mark; what
// tells alerts apart is refused beyond it, or cut where the source would not send again ([Group.Clip]).
const (
	MaxWord       = 200 // kind, criticality, job, fingerprint
	MaxTitle      = 10_000
	MaxText       = 200_000
	MaxLabels     = 200
	MaxLabelName  = 300
	MaxLabelValue = 10_000
	MaxLinks      = 20
	MaxURL        = 3_000
	MaxNotify     = 50
)

// check brings a group into the form that is stored, and says what is wrong with it.
func check(f *config.File, g *Group) error {
	g.Key, g.Title = clean(g.Key), line(g.Title, MaxTitle)
	if strings.HasPrefix(g.Key, plan.SelfKey) {
		return &InputError{"key", fmt.Sprintf("keys that begin with %s are tocsin's own; use another one", plan.SelfKey)}
	}
	if g.Truncated < 0 {
		g.Truncated = 0
	}
	alerts := make([]plan.Alert, len(g.Alerts)) // the caller's stay as they are: a transaction may be run again
	for n, a := range g.Alerts {
		at := ""
		if len(g.Alerts) > 1 {
			at = fmt.Sprintf("alerts[%d].", n)
		}
		var wrong *InputError
		if alerts[n], wrong = checkAlert(f, a, g.Clip); wrong != nil {
			wrong.Field = at + wrong.Field
			return wrong
		}
	}
	g.Alerts = alerts
	if g.Key != "" {
		g.Key = plan.Key(f, g.Source, plan.Alert{Key: g.Key}) // as given, within the bound of the index
	}
	return nil
}

func checkAlert(f *config.File, a plan.Alert, cut bool) (plan.Alert, *InputError) {
	refuse := func(field, format string, args ...any) (plan.Alert, *InputError) {
		return a, &InputError{field, fmt.Sprintf(format, args...)}
	}
	for _, w := range []struct {
		field string
		text  *string
	}{{"kind", &a.Kind}, {"criticality", &a.Criticality}, {"job", &a.Job}, {"fingerprint", &a.Fingerprint}} {
		*w.text = clean(*w.text)
		if long := utf8.RuneCountInString(*w.text); long > MaxWord {
			if !cut {
				return refuse(w.field, "it has %d characters, at most %d are possible", long, MaxWord)
			}
			*w.text = string([]rune(*w.text)[:MaxWord])
		}
	}
	if route.Word(a.Job) == plan.SelfJob {
		return refuse("job", "the job %s is for tocsin's own alerts; use another one", plan.SelfJob)
	}
	if a.Key = clean(a.Key); strings.HasPrefix(a.Key, plan.SelfKey) {
		return refuse("key", "keys that begin with %s are tocsin's own; use another one", plan.SelfKey)
	}
	if a.Title = line(a.Title, MaxTitle); a.Title == "" {
		a.Title = line(a.Kind, MaxTitle)
	}
	if a.Title == "" {
		return refuse("kind", "it is empty; say in one word what happened, e.g. disk_full")
	}
	a.Text = shorten(clean(a.Text), MaxText)
	labels := make(map[string]string, len(a.Labels))
	for _, name := range slices.Sorted(maps.Keys(a.Labels)) { // in order: of too many, the same ones are left out each time
		name, value := clean(name), clean(a.Labels[name])
		switch {
		case name == "":
			if !cut {
				return refuse("labels", "a label's name is empty")
			}
			continue
		case cut:
			name, value = shorten(name, MaxLabelName), shorten(value, MaxLabelValue)
			if len(labels) == MaxLabels {
				continue
			}
		case utf8.RuneCountInString(name) > MaxLabelName:
			return refuse("labels", "a label's name has more than %d characters", MaxLabelName)
		case utf8.RuneCountInString(value) > MaxLabelValue:
			return refuse("labels."+name, "its value has more than %d characters; put long text into text", MaxLabelValue)
		case len(a.Labels) > MaxLabels:
			return refuse("labels", "there are %d labels, at most %d are possible", len(a.Labels), MaxLabels)
		}
		labels[name] = value
	}
	a.Labels = labels
	var links []message.Link
	for n, l := range a.Links {
		l.URL, l.Title = clean(strings.TrimSpace(l.URL)), line(l.Title, 300)
		if why := badURL(l.URL); why != "" || len(links) == MaxLinks {
			if cut {
				continue // a link that no chat takes would cost the whole message
			}
			if why == "" {
				why = fmt.Sprintf("at most %d links are possible", MaxLinks)
			}
			return refuse(fmt.Sprintf("links[%d]", n), "%s", why)
		}
		if l.Title == "" {
			l.Title = "Link"
		}
		links = append(links, l)
	}
	a.Links = links
	if len(a.Notify) > MaxNotify {
		return refuse("notify", "there are %d names, at most %d are possible", len(a.Notify), MaxNotify)
	}
	for n, name := range a.Notify {
		v, ok := f.Notifiers[name]
		field := fmt.Sprintf("notify[%d]", n)
		switch {
		case !ok:
			return refuse(field, "there is no notifier %q in the file", name)
		case v.Direct():
			return refuse(field, "the notifier %s sends to people and has no channel of its own; name people in an escalation", name)
		}
	}
	a.StartsAt, a.EndsAt = sane(a.StartsAt), sane(a.EndsAt)
	return a, nil
}

// badURL says what is wrong with a link; empty: nothing.
func badURL(s string) string {
	u, err := url.Parse(s)
	switch {
	case len(s) > MaxURL:
		return fmt.Sprintf("the URL has more than %d characters", MaxURL)
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return "it is no http or https URL"
	}
	return ""
}

// clean makes text storable: Postgres takes neither NUL nor invalid UTF-8.
func clean(s string) string {
	if strings.IndexByte(s, 0) >= 0 {
		s = strings.ReplaceAll(s, "\x00", "\uFFFD")
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// line is clean text on one line.
func line(s string, most int) string {
	return shorten(strings.Join(strings.Fields(clean(s)), " "), most)
}

// shorten cuts text to at most n characters, the mark included.
func shorten(s string, n int) string {
	if len(s) <= n || utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}

// sane drops instants that no alert has: a source's zero value, years that JSON can't write. The rest keeps what the
// database keeps, microseconds, so that the same instant compares as the same later.
func sane(t time.Time) time.Time {
	if t.Year() < 1970 || t.Year() > 9000 {
		return time.Time{}
	}
	return t.UTC().Truncate(time.Microsecond)
}
