package intake

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/plan"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// Payload are the alerts in a whole body of a source, as intake would store them, without taking them in. source is the name
// of a source of the file or a type of source; empty: the form of the body tells.
func Payload(f *config.File, source string, body []byte) ([]plan.Alert, error) {
	name, kind := source, source
	if s, ok := f.Sources[source]; ok {
		kind = s.Type
	}
	if source == "" {
		kind = form(body)
		name = kind
	}
	if !slices.Contains([]string{config.TypeNative, config.TypeAlertmanager, config.TypePrometheus, config.TypeGrafana, config.TypeGeneric}, kind) {
		all := append([]string{config.TypeNative, config.TypeAlertmanager, config.TypePrometheus, config.TypeGrafana}, slices.Sorted(maps.Keys(f.Sources))...)
		return nil, &InputError{"source", "no source and no type of source is called " + source + "; possible are " + strings.Join(all, ", ")}
	}
	src := SourceOf(f, name, kind)
	if kind == config.TypeGeneric && src.Fields == nil {
		return nil, &InputError{"source", "how a generic payload is read stands in the file: name the source of the file that sends it"}
	}
	m, err := Read(f, src, body)
	if err != nil {
		return nil, err
	}
	if len(m.Wrong) > 0 {
		return nil, m.Wrong[0]
	}
	var all []plan.Alert
	for _, g := range m.Groups {
		alerts, err := Checked(f, g)
		if err != nil {
			return nil, err
		}
		all = append(all, alerts...)
	}
	return all, nil
}

// form tells by its fields which type of source sends a body.
func form(body []byte) string {
	if strings.HasPrefix(strings.TrimSpace(string(body)), "[") {
		return config.TypePrometheus
	}
	var fields map[string]json.RawMessage
	switch {
	case json.Unmarshal(body, &fields) != nil || fields["alerts"] == nil:
		return config.TypeNative
	case fields["orgId"] != nil:
		return config.TypeGrafana
	}
	return config.TypeAlertmanager
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
