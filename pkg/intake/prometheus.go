package intake

import (
	"encoding/json"
	"fmt"
	"hash/fnv"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/extract"
	"github.com/tocsin-oncall/tocsin/pkg/message"
)

// pushed is an alert as Prometheus pushes it to an Alertmanager's /api/v2/alerts.
type pushed struct {
	Labels       map[string]string `json:"labels"`
	Annotations  map[string]string `json:"annotations"`
	StartsAt     instant           `json:"startsAt"`
	EndsAt       instant           `json:"endsAt"`
	GeneratorURL string            `json:"generatorURL"`
}

// readPrometheus reads a push of Prometheus. A push has no groups: an alert's key is that of the native rule. Whether it
// fires is for the database's clock to say: endsAt is in the past when it is over, else how long it holds without being
// sent again.
func readPrometheus(f *config.File, src config.Source, body []byte) (Message, error) {
	var raw []json.RawMessage
	if wrong := decode(body, &raw, "", "list of alerts as Prometheus pushes it"); wrong != nil {
		return Message{}, wrong
	}
	if len(raw) > maxAlerts {
		return Message{}, &InputError{"body", fmt.Sprintf("it has %d alerts, at most %d are possible", len(raw), maxAlerts)}
	}
	var m Message
	at := func(n int) string { return fmt.Sprintf("alerts[%d].", n) }
	for n := range raw {
		var a pushed
		if wrong := decode(raw[n], &a, at(n), "alert"); wrong != nil {
			m.Wrong = append(m.Wrong, wrong)
			continue
		}
		if len(a.Labels) == 0 {
			m.Wrong = append(m.Wrong, &InputError{at(n) + "labels", "an alert has at least one label: they say which one it is"})
			continue
		}
		p := labelled(a.Labels, a.Annotations)
		m.words(src, &p, at(n), extract.Input{extract.Labels: names(a.Labels), extract.Annotations: names(a.Annotations)})
		p.Fingerprint, p.Firing = labelsFingerprint(a.Labels), true
		var wrong *InputError
		if p.StartsAt, wrong = a.StartsAt.read(at(n) + "startsAt"); wrong == nil {
			p.EndsAt, wrong = a.EndsAt.read(at(n) + "endsAt")
		}
		if wrong != nil {
			m.Wrong = append(m.Wrong, wrong)
			continue
		}
		p.Links = links(message.Link{Title: "Runbook", URL: a.Annotations["runbook_url"]}, message.Link{Title: "Source", URL: a.GeneratorURL})
		m.group(f, src, p, at(n), Group{Clip: true, Pair: true})
	}
	return m, nil
}

// labelsFingerprint is what Alertmanager calls an alert with these labels: FNV-1a over names and values, in order. It does
// not tell which of two Prometheus servers of a pair sent it.
func labelsFingerprint(labels map[string]string) string {
	h := fnv.New64a()
	for _, n := range sorted(labels) {
		for _, s := range []string{n, labels[n]} {
			_, _ = h.Write([]byte(s)) // a hash takes everything
			_, _ = h.Write([]byte{255})
		}
	}
	return fmt.Sprintf("%016x", h.Sum64())
}
