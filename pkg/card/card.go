package card

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tocsin-oncall/tocsin/pkg/message"
)

// The action ids of the buttons, as they come back with a press.
const (
	ActionAcknowledge = "ack"
	ActionResolve     = "resolve"
	ActionSnooze      = "snooze"
	ActionEscalate    = "escalate"
)

const (
	maxItems  = 15 // alerts shown on a card; a longer list is not read at night, and the rest is counted
	maxFields = 10 // common labels shown side by side
	maxDetail = 200
)

// Card is the incident as a channel shows it, at the state of the snapshot. A card that is first made when the incident
// is over already tells when it began and when it ended.
func Card(s Snapshot, o Options) message.Message {
	m := Notice(s, o)
	m.Buttons = buttons(s)
	return m
}

// Notice is the card without buttons, for ways out that can neither edit nor answer a press.
func Notice(s Snapshot, o Options) message.Message {
	items, more := items(s)
	return message.Message{
		State:    s.State,
		Severity: s.Criticality,
		Title:    s.Title,
		Text:     strings.Join(append(status(s), paragraphs(s.Text)...), "\n"),
		Fields:   fields(s),
		Items:    items,
		More:     more,
		MoreURL:  o.incident(s.IncidentID),
		Links:    s.Links,
		Footer:   o.footer(host(o.PublicURL), incident(s.IncidentID)),
	}
}

// incident is the small print that names an incident; empty for what belongs to none.
func incident(id string) string {
	if id == "" {
		return ""
	}
	return "incident " + id
}

// Page is the direct message to a person: what rings, why it rings with them, and where the card is. name is the one who
// is paged; link is the card's permalink, empty where the card is not out yet.
func Page(s Snapshot, name, link string, o Options) message.Message {
	m := message.Message{State: s.State, Severity: s.Criticality, Title: s.Title, Buttons: buttons(s)}
	var lines []string
	if why := reason(name, o.Target); why != "" && s.State == message.Open {
		lines = append(lines, why)
	}
	lines = append(lines, status(s)...)
	if s.State == message.Open {
		lines = append(lines, paragraphs(s.Text)...)
	}
	m.Text = strings.Join(lines, "\n")
	if link != "" {
		m.Links = append(m.Links, message.Link{Title: "Open the card", URL: link})
	}
	m.Links = append(m.Links, s.Links...)
	m.MoreURL = o.incident(s.IncidentID)
	m.Footer = o.footer("incident " + s.IncidentID)
	return m
}

// reason says why this person is paged.
func reason(name, target string) string {
	kind, id, _ := strings.Cut(target, ":")
	id, layer, _ := strings.Cut(id, "/")
	layer, _, _ = strings.Cut(layer, "/")
	greet := ""
	if name != "" {
		greet = name + ", "
	}
	switch {
	case kind == "schedule" && id != "":
		return greet + "you are on call for " + id + "."
	case kind == "layer" && layer != "":
		return greet + "you are on call for " + id + ", layer " + layer + "."
	case kind == "user" && id != "":
		return greet + "this incident is escalated to you."
	}
	return ""
}

// status is the head of the text: state, who answered and how long it took, what is firing.
func status(s Snapshot) []string {
	var lines []string
	switch s.State {
	case message.Plain: // no incident's: a test
		return nil
	case message.Acknowledged:
		line := "Acknowledged"
		if s.AcknowledgedBy != "" {
			line += " by " + s.AcknowledgedBy
		}
		if s.AcknowledgedAt != nil {
			line += " after " + Duration(s.AcknowledgedAt.Sub(s.OpenedAt)) + ", open since " + instant(s.OpenedAt)
		}
		lines = append(lines, line)
		if s.SnoozedUntil != nil {
			lines = append(lines, "Snoozed: rings again at "+instant(*s.SnoozedUntil))
		}
	case message.Resolved:
		line := "Resolved"
		if by := Person(s.ResolvedBy); by != "" {
			line += " by " + by
		}
		if s.ResolvedAt != nil {
			line += " after " + Duration(s.ResolvedAt.Sub(s.OpenedAt)) + ": " +
				instant(s.OpenedAt) + " to " + clock(*s.ResolvedAt, s.OpenedAt)
		}
		lines = append(lines, line)
		if s.AcknowledgedBy != "" && s.AcknowledgedAt != nil {
			lines = append(lines, "Acknowledged by "+s.AcknowledgedBy+" after "+Duration(s.AcknowledgedAt.Sub(s.OpenedAt)))
		}
		if s.Firing > 0 {
			lines = append(lines, counted(s.Firing, "alert")+" still firing at source")
		}
	default:
		lines = append(lines, "Open since "+instant(s.OpenedAt))
	}
	if s.State != message.Resolved && s.Firing+s.Resolved > 1 {
		lines = append(lines, fmt.Sprintf("%s firing, %d resolved", counted(s.Firing, "alert"), s.Resolved))
	}
	if s.Truncated > 0 {
		lines = append(lines, truncatedText(s.Truncated))
	}
	return lines
}

// Person is the name in a "by" field, empty where the source or tocsin itself did it: those are no news to a reader.
func Person(by string) string {
	if by == "tocsin" || strings.HasPrefix(by, "source:") {
		return ""
	}
	return by
}

// paragraphs sets a text apart from the status above it.
func paragraphs(text string) []string {
	if text = strings.TrimSpace(text); text == "" {
		return nil
	}
	return []string{"", text}
}

// fields are the common labels by name.
func fields(s Snapshot) []message.Field {
	names := names(s.Labels)
	if len(names) > maxFields {
		names = names[:maxFields]
	}
	var out []message.Field
	for _, n := range names {
		out = append(out, message.Field{Name: n, Value: s.Labels[n]})
	}
	return out
}

// items are the alerts and how many more there are. One alert that says nothing beyond the card itself is no item.
func items(s Snapshot) ([]message.Item, int) {
	total := max(s.Firing+s.Resolved, len(s.Alerts))
	if total == 0 || total == 1 && len(s.Alerts) == 1 && s.Alerts[0].Title == s.Title {
		return nil, 0
	}
	shown := s.Alerts[:min(len(s.Alerts), maxItems)]
	var out []message.Item
	for _, a := range shown {
		out = append(out, message.Item{Resolved: a.Status == "resolved", Title: a.Title, Detail: detail(a, s.Labels)})
	}
	return out, total - len(shown)
}

// detail is the labels by which an alert differs from the others.
func detail(a Alert, common map[string]string) string {
	var parts []string
	for _, n := range names(a.Labels) {
		if v, ok := common[n]; !ok || v != a.Labels[n] {
			parts = append(parts, n+"="+a.Labels[n])
		}
	}
	return clip(strings.Join(parts, ", "), maxDetail)
}

// buttons are the actions that still make sense.
func buttons(s Snapshot) []message.Button {
	button := func(action, label, style string) message.Button {
		return message.Button{Action: action, Label: label, Value: s.IncidentID, Style: style}
	}
	rest := []message.Button{button(ActionResolve, "Resolve", ""), button(ActionSnooze, "Snooze 1 h", ""), button(ActionEscalate, "Escalate", "")}
	switch {
	case s.State == message.Open:
		return append([]message.Button{button(ActionAcknowledge, "Acknowledge", "primary")}, rest...)
	case s.State == message.Acknowledged && s.SnoozedUntil != nil:
		return []message.Button{button(ActionAcknowledge, "Acknowledge", ""), rest[0], rest[2]}
	case s.State == message.Acknowledged:
		return rest
	}
	return nil
}

// names are the keys of labels in order.
func names(labels map[string]string) []string {
	out := make([]string, 0, len(labels))
	for n := range labels {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

// host is the address without its scheme: small print to read, not a link to a page behind a token.
func host(url string) string {
	_, h, ok := strings.Cut(url, "://")
	if !ok {
		h = url
	}
	return strings.TrimSuffix(h, "/")
}

// counted is a number with its noun.
func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// clip cuts a text to at most n characters, the mark included.
func clip(s string, n int) string { return message.Fit(s, n, message.CodePoints) }
