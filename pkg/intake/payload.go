package intake

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/message"
	"github.com/tocsin-oncall/tocsin/pkg/plan"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// Payload are the alerts in a whole body of a source, as intake would store them, without taking them in. source is the name
// of a source of the file or a type of source; empty: the form of the body tells.
func Payload(f *config.File, source string, body []byte) ([]plan.Alert, error) {
	kind := source
	if s, ok := f.Sources[source]; ok {
		kind = s.Type
	}
	if kind == "" {
		kind = form(body)
	}
	switch kind {
	case "native":
		var a api.Alert
		d := json.NewDecoder(bytes.NewReader(body))
		d.DisallowUnknownFields()
		if err := d.Decode(&a); err != nil {
			return nil, &InputError{"body", "it is no alert: " + err.Error()}
		}
		if a.Status != "" && a.Status != firing && a.Status != resolved {
			return nil, &InputError{"status", "firing or resolved are possible"}
		}
		return Checked(f, Group{Source: "native", Key: a.Key, Alerts: []plan.Alert{neutral(a)}})
	case "alertmanager":
		g, err := ParseAlertmanager(source, body)
		if err != nil {
			return nil, err
		}
		return Checked(f, g)
	}
	return nil, &InputError{"source", "no source and no type of source is called " + source + "; native and alertmanager are possible"}
}

// form tells by its fields which type of source sends a body.
func form(body []byte) string {
	var fields map[string]json.RawMessage
	if json.Unmarshal(body, &fields) == nil && fields["alerts"] != nil {
		return "alertmanager"
	}
	return "native"
}

// neutral is an alert of the native API in neutral form.
func neutral(a api.Alert) plan.Alert {
	links := make([]message.Link, len(a.Links))
	for i, l := range a.Links {
		links[i] = message.Link{Title: l.Title, URL: l.URL}
	}
	return plan.Alert{Kind: a.Kind, Criticality: a.Criticality, Job: a.Job, Key: a.Key, Firing: a.Status != resolved,
		Title: a.Title, Text: a.Text, Labels: a.Labels, Links: links, Notify: a.Notify}
}

// Checked are a group's alerts as they would be stored, each once, or what is wrong with them.
func Checked(f *config.File, g Group) ([]plan.Alert, error) {
	if err := check(f, &g); err != nil {
		return nil, err
	}
	all, _ := distinct(g.Alerts)
	return all, nil
}

// Stored are stored alerts as their source would send them again. The notifiers that an alert named itself are not kept.
func Stored(rows []store.Alert) []plan.Alert {
	var out []plan.Alert
	for _, row := range rows {
		words := strings.Split(row.Topic, ".")
		if len(words) != 4 {
			continue
		}
		out = append(out, plan.Alert{
			Kind: words[1], Criticality: words[2], Job: words[3], Fingerprint: row.Fingerprint, Firing: true, Title: row.Title, Text: row.Text,
			Labels: row.Labels, Links: slices.Clone(row.Links), StartsAt: row.StartsAt,
		})
	}
	return out
}
