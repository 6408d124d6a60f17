package intake

import (
	"strings"

	"github.com/tocsin-oncall/tocsin/pkg/card"
	"github.com/tocsin-oncall/tocsin/pkg/message"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// What a snapshot holds at most, in characters and entries: every attempt reads it whole.
const (
	commonOf      = 200 // alerts from which the common labels are taken
	snapshotTitle = 3_000
	snapshotText  = 12_000
	alertTitle    = 500
	alertText     = 500
	snapshotLabel = 500
	manyLabels    = 40
	manyLinks     = 10
)

// snapshot is what an incident looks like now. alerts are its newest, firing first.
func snapshot(inc store.Incident, alerts []store.Alert) card.Snapshot {
	s := card.Snapshot{
		IncidentID: inc.ID.String(), Key: inc.Key, Topic: inc.Topic, Title: shorten(inc.Title, snapshotTitle), State: inc.State, Criticality: inc.Criticality,
		Revision: inc.Revision, Count: inc.Count, Firing: inc.Firing, Resolved: inc.Resolved, Truncated: inc.Truncated, OpenedAt: inc.OpenedAt,
		AcknowledgedAt: inc.AcknowledgedAt, AcknowledgedBy: inc.AcknowledgedBy, ResolvedAt: inc.ResolvedAt, ResolvedBy: inc.ResolvedBy,
		SnoozedUntil: inc.SnoozedUntil,
		Labels:       labels(common(alerts)),
	}
	for i, a := range alerts {
		if i == 0 {
			s.Text = shorten(a.Text, snapshotText)
		} else if a.Text != alerts[0].Text {
			s.Text = "" // several alerts with a text each: none of them speaks for all
		}
		for _, l := range a.Links {
			if len(s.Links) < manyLinks && !has(s.Links, l) {
				s.Links = append(s.Links, l)
			}
		}
		if a.Status == firing {
			a.EndsAt = nil // until when it holds without being sent again is nothing for readers, and changes with each re-send
		}
		if len(s.Alerts) < card.MaxAlerts {
			s.Alerts = append(s.Alerts, card.Alert{
				Fingerprint: a.Fingerprint, Status: a.Status, Title: shorten(a.Title, alertTitle), Text: shorten(a.Text, alertText),
				Labels: labels(a.Labels), StartsAt: a.StartsAt, EndsAt: a.EndsAt,
			})
		}
	}
	return s
}

// has says that a link to the same place is there, or one of the same name: 30 alerts have 30 sources, and the first
// few lead a reader to the others.
func has(links []message.Link, l message.Link) bool {
	same := 0
	for _, o := range links {
		if o.URL == l.URL {
			return true
		}
		if o.Title == l.Title {
			same++
		}
	}
	return same >= 2
}

// common are the labels that all alerts share.
func common(alerts []store.Alert) map[string]string {
	if len(alerts) == 0 {
		return nil
	}
	out := map[string]string{}
	for n, v := range alerts[0].Labels {
		out[n] = v
	}
	for _, a := range alerts[1:] {
		for n, v := range out {
			if a.Labels[n] != v {
				delete(out, n)
			}
		}
	}
	return out
}

// labels bounds a set of labels; which ones go does not change from one snapshot to the next.
func labels(all map[string]string) map[string]string {
	out := make(map[string]string, min(len(all), manyLabels))
	for _, n := range sorted(all) {
		if len(out) == manyLabels {
			break
		}
		out[n] = shorten(strings.TrimSpace(all[n]), snapshotLabel)
	}
	return out
}
