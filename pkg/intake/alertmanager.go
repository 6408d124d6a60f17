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
	OrgID   int64  `json:"orgId"`
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
	ImageURL     string `json:"imageURL"`
}

// readGroup reads the body of a webhook call of Alertmanager or Grafana. One message is one incident: its groupKey is the
// incident's key. What is too long is cut rather than refused, and an alert that is wrong does not take the others with it:
// neither sends again soon after a 4xx.
func readGroup(f *config.File, src config.Source, body []byte) (Message, error) {
	what := "Alertmanager webhook message"
	if src.Type == config.TypeGrafana {
		what = "Grafana webhook message"
	}
	var w webhook
	if wrong := decode(body, &w, "", what); wrong != nil {
		return Message{}, wrong
	}
	if w.Alerts == nil {
		return Message{}, &InputError{"alerts", "the list is missing; send a webhook message as Alertmanager (version 4) and Grafana do"}
	}
	g := Group{Source: src.Name, Key: w.GroupKey, Truncated: min(max(w.TruncatedAlerts, 0), maxTruncated), Clip: true}
	if g.Key == "" {
		g.Key = fmt.Sprintf("%s{%s}", w.Receiver, pairs(w.GroupLabels))
	}
	if w.OrgID > 1 {
		g.Key = fmt.Sprintf("org %d %s", w.OrgID, g.Key) // its organisations have policies of their own, whose keys look alike
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
	var m Message
	for n, raw := range w.Alerts {
		at := fmt.Sprintf("alerts[%d]", n)
		var a webhookAlert
		p, wrong := w.alert(src, raw, &a)
		if wrong == nil {
			m.words(src, &p, at+".", extract.Input{extract.Labels: names(a.Labels), extract.Annotations: names(a.Annotations)})
			_, wrong = checkAlert(f, p, g.Clip)
		}
		if wrong == nil {
			g.Alerts = append(g.Alerts, p)
			continue
		}
		if wrong.Field = strings.TrimSuffix(at+"."+wrong.Field, "."); a.Status != resolved {
			g.Truncated++ // whether it still fires is not known: the others' end does not close the incident
		}
		m.Wrong = append(m.Wrong, wrong)
	}
	if m.Alerts = len(g.Alerts); m.Alerts > 0 || len(m.Wrong) == 0 {
		m.Groups = []Group{g}
	}
	return m, nil
}

// alert reads one alert of the message, but for its topic.
func (w *webhook) alert(src config.Source, raw json.RawMessage, a *webhookAlert) (p plan.Alert, wrong *InputError) {
	if wrong := decode(raw, a, "", "alert"); wrong != nil {
		if wrong.Field == "body" {
			wrong.Field = ""
		}
		return p, wrong
	}
	if a.Status != firing && a.Status != resolved {
		return p, &InputError{"status", fmt.Sprintf("it is %q; firing or resolved are possible", shorten(a.Status, 50))}
	}
	p = labelled(a.Labels, a.Annotations)
	p.Fingerprint, p.Firing = a.Fingerprint, a.Status == firing
	if p.StartsAt, wrong = a.StartsAt.read("startsAt"); wrong != nil {
		return p, wrong
	}
	if !p.Firing {
		if p.EndsAt, wrong = a.EndsAt.read("endsAt"); wrong != nil {
			return p, wrong
		}
	}
	if p.Text == "" && a.Annotations["summary"] == "" {
		p.Text = ownText(w.Message)
	}
	p.Links = links(
		message.Link{Title: "Runbook", URL: a.Annotations["runbook_url"]}, message.Link{Title: "Panel", URL: a.PanelURL}, message.Link{Title: "Image", URL: a.ImageURL},
		message.Link{Title: "Dashboard", URL: a.DashboardURL}, message.Link{Title: "Source", URL: a.GeneratorURL},
		message.Link{Title: "Silence", URL: a.SilenceURL}, message.Link{Title: sender(src), URL: w.ExternalURL},
	)
	return p, nil
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
