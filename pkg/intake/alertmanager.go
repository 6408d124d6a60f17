package intake

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/message"
	"github.com/tocsin-oncall/tocsin/pkg/plan"
)

// webhook is Alertmanager's webhook message, version 4. Fields that are not read are left out.
type webhook struct {
	Receiver          string            `json:"receiver"`
	GroupKey          string            `json:"groupKey"`
	GroupLabels       map[string]string `json:"groupLabels"`
	CommonLabels      map[string]string `json:"commonLabels"`
	CommonAnnotations map[string]string `json:"commonAnnotations"`
	ExternalURL       string            `json:"externalURL"`
	TruncatedAlerts   int               `json:"truncatedAlerts"`
	Alerts            []webhookAlert    `json:"alerts"`
}

type webhookAlert struct {
	Status       string            `json:"status"`
	Labels       map[string]string `json:"labels"`
	Annotations  map[string]string `json:"annotations"`
	StartsAt     time.Time         `json:"startsAt"`
	EndsAt       time.Time         `json:"endsAt"`
	GeneratorURL string            `json:"generatorURL"`
	Fingerprint  string            `json:"fingerprint"`
}

// ParseAlertmanager reads the body of an Alertmanager webhook call. One message is one incident: its groupKey is the
// incident's key. What is too long is cut rather than refused, since Alertmanager does not send again after a 4xx.
func ParseAlertmanager(source string, body []byte) (Group, error) {
	var w webhook
	if err := json.Unmarshal(body, &w); err != nil {
		return Group{}, &InputError{"body", "it is no Alertmanager webhook message: " + err.Error()}
	}
	if w.Alerts == nil {
		return Group{}, &InputError{"alerts", "the list is missing; send Alertmanager's webhook message, version 4"}
	}
	g := Group{Source: source, Key: w.GroupKey, Truncated: w.TruncatedAlerts, Clip: true}
	if g.Key == "" {
		g.Key = fmt.Sprintf("%s{%s}", w.Receiver, pairs(w.GroupLabels))
	}
	if g.Title = w.CommonAnnotations["summary"]; g.Title == "" && len(w.Alerts) > 1 {
		// Several alerts with a summary each: none of them speaks for the group.
		g.Title = w.CommonLabels["alertname"]
		if rest := without(w.GroupLabels, "alertname"); g.Title != "" && len(rest) > 0 {
			g.Title += " (" + pairs(rest) + ")"
		}
	}
	for n, a := range w.Alerts {
		if a.Status != "firing" && a.Status != "resolved" {
			return Group{}, &InputError{fmt.Sprintf("alerts[%d].status", n), fmt.Sprintf("it is %q; firing or resolved are possible", a.Status)}
		}
		p := plan.Alert{
			Kind: a.Labels["alertname"], Criticality: a.Labels["severity"], Job: a.Labels["job"],
			Fingerprint: a.Fingerprint, Firing: a.Status == "firing",
			Title: a.Annotations["summary"], Text: a.Annotations["description"], Labels: a.Labels, StartsAt: a.StartsAt,
		}
		if p.Title == "" {
			p.Title = a.Labels["alertname"]
		}
		if p.Title == "" {
			p.Title = "alert without a name"
		}
		if !p.Firing {
			p.EndsAt = a.EndsAt
		}
		for _, l := range []message.Link{
			{Title: "Runbook", URL: a.Annotations["runbook_url"]}, {Title: "Source", URL: a.GeneratorURL}, {Title: "Alertmanager", URL: w.ExternalURL},
		} {
			if l.URL != "" {
				p.Links = append(p.Links, l)
			}
		}
		g.Alerts = append(g.Alerts, p)
	}
	return g, nil
}

// pairs writes labels in order for people: a=b, c=d.
func pairs(labels map[string]string) string {
	var out []string
	for n, v := range labels {
		out = append(out, n+"="+v)
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

func without(labels map[string]string, name string) map[string]string {
	out := map[string]string{}
	for n, v := range labels {
		if n != name {
			out[n] = v
		}
	}
	return out
}
