package intake

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/extract"
	"github.com/tocsin-oncall/tocsin/pkg/message"
	"github.com/tocsin-oncall/tocsin/pkg/plan"
)

// mostReading bounds the expressions of one message: each goes through the body at most once, and there may be many alerts.
const mostReading = 2 * time.Second

// readGeneric reads any JSON document by the expressions of the source.
func readGeneric(f *config.File, src config.Source, body []byte) (Message, error) {
	if src.Fields == nil {
		return Message{}, &InputError{"body", "the file does not say how messages of the source " + src.Name + " are read"}
	}
	doc, err := extract.Decode(body)
	if err != nil {
		return Message{}, &InputError{"body", "it is no JSON document: " + err.Error()}
	}
	list, at := []any{doc}, func(int) string { return "" }
	if src.Fields.Alerts.Given() {
		v, err := src.Fields.Alerts.Value(extract.Input{extract.Body: doc})
		if err != nil {
			return Message{}, &InputError{"alerts", fmt.Sprintf("%s can't be made of it: %v", src.Fields.Alerts, err)}
		}
		if list, err = listOf(v); err != nil {
			return Message{}, &InputError{"alerts", fmt.Sprintf("%s: %v", src.Fields.Alerts, err)}
		}
		at = func(n int) string { return fmt.Sprintf("alerts[%d].", n) }
	}
	if len(list) > maxAlerts {
		return Message{}, &InputError{"alerts", fmt.Sprintf("there are %d, at most %d are possible", len(list), maxAlerts)}
	}
	var m Message
	began := time.Now()
	for n, alert := range list {
		if time.Since(began) > mostReading {
			return Message{}, &InputError{"alerts", fmt.Sprintf("after %d of %d alerts its expressions have taken %s: send fewer at once, or let no expression of one alert go through the whole body", n, len(list), mostReading)}
		}
		in := extract.Input{extract.Body: doc, extract.Alert: alert}
		p, wrong := mapped(src, in)
		if wrong != nil {
			wrong.Field = at(n) + wrong.Field
			m.Wrong = append(m.Wrong, wrong)
			continue
		}
		in[extract.Labels] = names(p.Labels)
		if m.words(src, &p, at(n), in); p.Kind == "" {
			p.Kind = src.Name // what is all that is known of it
		}
		m.group(f, src, p, at(n), Group{Clip: true})
	}
	return m, nil
}

func listOf(v any) ([]any, error) {
	switch t := v.(type) {
	case []any:
		return t, nil
	case nil:
		return nil, errors.New("it gives nothing, a list is needed")
	}
	return nil, errors.New("it gives no list")
}

// mapped makes an alert of what a generic source sent, but for its topic.
func mapped(src config.Source, in extract.Input) (plan.Alert, *InputError) {
	fields := src.Fields
	p := plan.Alert{Firing: true}
	refuse := func(field string, e extract.Expression, err error) (plan.Alert, *InputError) {
		return p, &InputError{field, fmt.Sprintf("%s can't be made of it: %v", e, err)}
	}
	var status string
	for _, t := range []struct {
		field string
		e     extract.Expression
		into  *string
	}{
		{"title", fields.Title, &p.Title}, {"text", fields.Text, &p.Text}, {"key", fields.Key, &p.Key}, {"status", fields.Status, &status},
		{"fingerprint", fields.Fingerprint, &p.Fingerprint},
	} {
		s, err := t.e.Text(in)
		if err != nil {
			return refuse(t.field, t.e, err)
		}
		*t.into = s
	}
	switch strings.ToLower(status) {
	case "", firing, "true":
	case resolved, "false":
		p.Firing = false
	default:
		return p, &InputError{"status", fmt.Sprintf("%s gives %q; firing or resolved, true or false are possible", fields.Status, shorten(status, 50))}
	}
	if p.Title == "" {
		return p, &InputError{"title", fmt.Sprintf("%s gives nothing", fields.Title)}
	}
	p.Key = scoped(src, p.Key)
	var err error
	for _, t := range []struct {
		field string
		e     extract.Expression
		ends  bool
	}{{"starts_at", fields.StartsAt, false}, {"ends_at", fields.EndsAt, true}} {
		v, err := t.e.Value(in)
		if err != nil {
			return refuse(t.field, t.e, err)
		}
		when, err := extract.Instant(v)
		if err != nil {
			return refuse(t.field, t.e, err)
		}
		if t.ends {
			p.EndsAt = when
		} else {
			p.StartsAt = when
		}
	}
	if p.Labels, err = labelsOf(fields.Labels, in); err != nil {
		return p, &InputError{"labels", err.Error()}
	}
	if p.Links, err = linksOf(fields.Links, in); err != nil {
		return p, &InputError{"links", err.Error()}
	}
	return p, nil
}

// labelsOf gives the labels. What is nested in one is kept as JSON.
func labelsOf(e config.Entries, in extract.Input) (map[string]string, error) {
	out := map[string]string{}
	put := func(name string, v any) error {
		if v == nil {
			return nil
		}
		s, err := extract.Text(v)
		if err != nil {
			nested, jsonErr := json.Marshal(v)
			if jsonErr != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			s = string(nested)
		}
		out[name] = s
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(e.Each)) {
		v, err := e.Each[name].Value(in)
		if err != nil {
			return nil, fmt.Errorf("%s: %s can't be made of it: %w", name, e.Each[name], err)
		}
		if err := put(name, v); err != nil {
			return nil, err
		}
	}
	v, err := e.All.Value(in)
	if err != nil {
		return nil, fmt.Errorf("%s can't be made of it: %w", e.All, err)
	}
	switch t := v.(type) {
	case nil:
	case map[string]any:
		for name, v := range t {
			if err := put(name, v); err != nil {
				return nil, err
			}
		}
	default:
		return nil, fmt.Errorf("%s gives no mapping", e.All)
	}
	return out, nil
}

// linksOf gives the links: a URL, a list of URLs or of {title, url}, or a mapping of titles to URLs.
func linksOf(e config.Entries, in extract.Input) ([]message.Link, error) {
	var out []message.Link
	put := func(title string, v any) {
		if s, err := extract.Text(v); err == nil && s != "" {
			out = append(out, message.Link{Title: title, URL: s})
		}
	}
	for _, title := range slices.Sorted(maps.Keys(e.Each)) {
		v, err := e.Each[title].Value(in)
		if err != nil {
			return nil, fmt.Errorf("%s: %s can't be made of it: %w", title, e.Each[title], err)
		}
		put(title, v)
	}
	v, err := e.All.Value(in)
	if err != nil {
		return nil, fmt.Errorf("%s can't be made of it: %w", e.All, err)
	}
	switch t := v.(type) {
	case nil:
	case string:
		put("Source", t)
	case map[string]any:
		for _, title := range slices.Sorted(maps.Keys(t)) {
			put(title, t[title])
		}
	case []any:
		for _, v := range t {
			if m, ok := v.(map[string]any); ok {
				title, _ := m["title"].(string)
				put(title, m["url"])
				continue
			}
			put("Link", v)
		}
	default:
		return nil, fmt.Errorf("%s gives neither a URL nor a list nor a mapping", e.All)
	}
	return out, nil
}

// readNative reads an alert as POST /v1/alerts takes it. The file's topic fills in what the alert does not say.
func readNative(f *config.File, src config.Source, body []byte) (Message, error) {
	var a api.Alert
	if wrong := decode(body, &a, "", "alert as POST /v1/alerts takes it"); wrong != nil {
		return Message{}, wrong
	}
	if a.Status != "" && a.Status != firing && a.Status != resolved {
		return Message{}, &InputError{"status", fmt.Sprintf("it is %q; firing or resolved are possible", shorten(a.Status, 50))}
	}
	p, err := Native(src, a)
	if err != nil {
		return Message{}, err
	}
	if p.Kind == "" {
		return Message{}, &InputError{"kind", "it is missing; say in one word what happened, e.g. disk_full"}
	}
	var m Message
	m.group(f, src, p, "", Group{})
	if len(m.Wrong) > 0 {
		return Message{}, m.Wrong[0]
	}
	return m, nil
}

// Native is an alert of the API in neutral form. What it does not say of its topic is what the source's topic says.
func Native(src config.Source, a api.Alert) (plan.Alert, error) {
	links := make([]message.Link, len(a.Links))
	for i, l := range a.Links {
		links[i] = message.Link{Title: l.Title, URL: l.URL}
	}
	p := plan.Alert{Kind: a.Kind, Criticality: a.Criticality, Job: a.Job, Key: a.Key, Firing: a.Status != resolved,
		Title: a.Title, Text: a.Text, Labels: a.Labels, Links: links, Notify: a.Notify}
	for _, w := range []struct {
		name     string
		template extract.Template
		into     *string
	}{{"kind", src.Topic.Kind, &p.Kind}, {"criticality", src.Topic.Criticality, &p.Criticality}, {"job", src.Topic.Job, &p.Job}} {
		if *w.into != "" || !w.template.Given() {
			continue
		}
		s, err := w.template.Text(extract.Input{extract.Labels: names(a.Labels)})
		if err != nil {
			return p, &InputError{w.name, fmt.Sprintf("topic.%s of the source %s can't be made of it: %v", w.name, src.Name, err)}
		}
		*w.into = s
	}
	if strings.TrimSpace(p.Kind) == "" {
		return p, &InputError{"kind", "it is missing; say in one word what happened, e.g. disk_full"}
	}
	return p, nil
}
