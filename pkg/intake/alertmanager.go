package intake

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/extract"
	"github.com/tocsin-oncall/tocsin/pkg/message"
	"github.com/tocsin-oncall/tocsin/pkg/plan"
)

// webhook is Alertmanager's webhook message, version 4, which Grafana sends too, with fields of its own. Fields that are
// not read are left out.
type webhook struct {
	Receiver          string            `json:"receiver"`
	GroupKey          string            `json:"groupKey"`
	GroupLabels       map[string]string `json:"groupLabels"`
	CommonLabels      map[string]string `json:"commonLabels"`
	CommonAnnotations map[string]string `json:"commonAnnotations"`
	ExternalURL       string            `json:"externalURL"`
	TruncatedAlerts   int               `json:"truncatedAlerts"`
	Alerts            []json.RawMessage `json:"alerts"`

	// Grafana's
	Title   string `json:"title"`
	Message string `json:"message"`
}

type webhookAlert struct {
	Status       string            `json:"status"`
	Labels       map[string]string `json:"labels"`
	Annotations  map[string]string `json:"annotations"`
	StartsAt     instant           `json:"startsAt"`
	EndsAt       instant           `json:"endsAt"`
	GeneratorURL string            `json:"generatorURL"`
	Fingerprint  string            `json:"fingerprint"`

	// Grafana's
	SilenceURL   string `json:"silenceURL"`
	DashboardURL string `json:"dashboardURL"`
	PanelURL     string `json:"panelURL"`
}

// ParseAlertmanager reads the body of an Alertmanager webhook call of a source of which the file says nothing.
func ParseAlertmanager(source string, body []byte) (Group, error) {
	return readGroup(config.Source{Name: source, Type: config.TypeAlertmanager}, body)
}

// readGroup reads the body of a webhook call of Alertmanager or Grafana. One message is one incident: its groupKey is the
// incident's key. What is too long is cut rather than refused, since neither sends again after a 4xx.
func readGroup(src config.Source, body []byte) (Group, error) {
	what := "Alertmanager webhook message"
	if src.Type == config.TypeGrafana {
		what = "Grafana webhook message"
	}
	var w webhook
	if wrong := decode(body, &w, "", what); wrong != nil {
		return Group{}, wrong
	}
	if w.Alerts == nil {
		return Group{}, &InputError{"alerts", "the list is missing; send a webhook message as Alertmanager (version 4) and Grafana do"}
	}
	g := Group{Source: src.Name, Key: w.GroupKey, Truncated: w.TruncatedAlerts, Clip: true}
	if g.Key == "" {
		g.Key = fmt.Sprintf("%s{%s}", w.Receiver, pairs(w.GroupLabels))
	}
	g.Key = scoped(src, g.Key)
	if g.Title = w.CommonAnnotations["summary"]; g.Title == "" && len(w.Alerts) > 1 {
		// Several alerts with a summary each: none of them speaks for the group.
		g.Title = w.CommonLabels["alertname"]
		if rest := without(w.GroupLabels, "alertname"); g.Title != "" && len(rest) > 0 {
			g.Title += " (" + pairs(rest) + ")"
		}
		if g.Title == "" {
			g.Title = ownTitle(w.Title)
		}
	}
	for n, raw := range w.Alerts {
		at := fmt.Sprintf("alerts[%d].", n)
		var a webhookAlert
		if wrong := decode(raw, &a, at, "alert"); wrong != nil {
			return Group{}, wrong
		}
		if a.Status != firing && a.Status != resolved {
			return Group{}, &InputError{at + "status", fmt.Sprintf("it is %q; firing or resolved are possible", a.Status)}
		}
		p := labelled(a.Labels, a.Annotations)
		if wrong := words(src, &p, extract.Input{extract.Labels: names(a.Labels), extract.Annotations: names(a.Annotations)}); wrong != nil {
			wrong.Field = at + wrong.Field
			return Group{}, wrong
		}
		p.Fingerprint, p.Firing, p.StartsAt = a.Fingerprint, a.Status == firing, a.StartsAt.Time
		if !p.Firing {
			p.EndsAt = a.EndsAt.Time
		}
		if p.Text == "" && a.Annotations["summary"] == "" {
			p.Text = ownText(w.Message)
		}
		p.Links = links(
			message.Link{Title: "Runbook", URL: a.Annotations["runbook_url"]}, message.Link{Title: "Panel", URL: a.PanelURL},
			message.Link{Title: "Dashboard", URL: a.DashboardURL}, message.Link{Title: "Source", URL: a.GeneratorURL},
			message.Link{Title: "Silence", URL: a.SilenceURL}, message.Link{Title: sender(src), URL: w.ExternalURL},
		)
		g.Alerts = append(g.Alerts, p)
	}
	return g, nil
}

// sender is what a link to the sender's own page is called.
func sender(src config.Source) string {
	if src.Type == config.TypeGrafana {
		return "Grafana"
	}
	return "Alertmanager"
}

// labelled is an alert whose words for people are in the usual annotations.
func labelled(labels, annotations map[string]string) plan.Alert {
	p := plan.Alert{Title: annotations["summary"], Text: annotations["description"], Labels: labels}
	if p.Title == "" {
		p.Title = labels["alertname"]
	}
	if p.Title == "" {
		p.Title = "alert without a name"
	}
	return p
}

func links(all ...message.Link) []message.Link {
	return slices.DeleteFunc(all, func(l message.Link) bool { return l.URL == "" })
}

// ownTitle is a title that somebody wrote in Grafana. The one that it makes by itself begins with [FIRING:2]: it would
// change with each message, and says nothing that the card does not.
func ownTitle(title string) string {
	if strings.HasPrefix(title, "[") {
		return ""
	}
	return title
}

// ownText is a message that somebody wrote in Grafana. The one that it makes by itself lists all alerts with their values
// of the moment: each re-send would be news.
func ownText(text string) string {
	if strings.HasPrefix(text, "**Firing**") || strings.HasPrefix(text, "**Resolved**") {
		return ""
	}
	return text
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
