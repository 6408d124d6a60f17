package intake_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/intake"
	"github.com/tocsin-oncall/tocsin/pkg/message"
)

var started = time.Date(2026, 11, 29, 2, 0, 0, 0, time.UTC)

// am makes an Alertmanager message; each alert is "fingerprint status severity".
func am(t *testing.T, truncated int, alerts ...string) []byte {
	t.Helper()
	type alert struct {
		Status       string            `json:"status"`
		Labels       map[string]string `json:"labels"`
		Annotations  map[string]string `json:"annotations"`
		StartsAt     time.Time         `json:"startsAt"`
		EndsAt       time.Time         `json:"endsAt"`
		GeneratorURL string            `json:"generatorURL"`
		Fingerprint  string            `json:"fingerprint"`
	}
	var list []alert
	for _, a := range alerts {
		var mark, status, severity string
		if _, err := fmt.Sscan(a, &mark, &status, &severity); err != nil {
			t.Fatal(err)
		}
		v := alert{
			Status: status, StartsAt: started, Fingerprint: mark, GeneratorURL: "http://prometheus.example.com/graph?g0.expr=up",
			Labels:      map[string]string{"alertname": "InstanceDown", "severity": severity, "job": "Load Balancer", "instance": mark},
			Annotations: map[string]string{"summary": mark + " is down", "description": "since a while", "runbook_url": "https://example.com/rb"},
		}
		if status == "resolved" {
			v.EndsAt = started.Add(time.Minute)
		}
		list = append(list, v)
	}
	b, err := json.Marshal(map[string]any{
		"version": "4", "receiver": "tocsin", "status": "firing", "groupKey": `{}:{alertname="InstanceDown"}`, "truncatedAlerts": truncated,
		"groupLabels": map[string]string{"alertname": "InstanceDown"}, "commonLabels": map[string]string{"alertname": "InstanceDown"},
		"commonAnnotations": map[string]string{}, "externalURL": "http://alertmanager.example.com", "alerts": list, "notification_reason": "first",
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (w *world) alertmanager(body []byte) intake.Result {
	w.t.Helper()
	g, err := group(body)
	if err != nil {
		w.t.Fatal(err)
	}
	return w.accept(g)
}

// group reads a message of an Alertmanager of which the file says nothing.
func group(body []byte) (intake.Group, error) {
	f := &config.File{}
	m, err := intake.Read(f, intake.SourceOf(f, "alertmanager", config.TypeAlertmanager), body)
	switch {
	case err != nil:
		return intake.Group{}, err
	case len(m.Wrong) > 0:
		return intake.Group{}, m.Wrong[0]
	}
	return m.Groups[0], nil
}

func TestAlertmanagerMessage(t *testing.T) {
	t.Parallel()
	g, err := group(am(t, 0, "a firing critical"))
	if err != nil {
		t.Fatal(err)
	}
	a := g.Alerts[0]
	if g.Key != `{}:{alertname="InstanceDown"}` || a.Topic() != "alert.instancedown.critical.load_balancer" || a.Mark() != "a" || a.Title != "a is down" {
		t.Errorf("%+v", g)
	}
	want := []message.Link{{Title: "Runbook", URL: "https://example.com/rb"}, {Title: "Source", URL: "http://prometheus.example.com/graph?g0.expr=up"}, {Title: "Alertmanager", URL: "http://alertmanager.example.com"}}
	if diff := cmp.Diff(want, a.Links); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{`{`, `{}`, `[]`, `{"alerts":[{"status":"odd"}]}`} {
		var wrong *intake.InputError
		if _, err := group([]byte(bad)); !errors.As(err, &wrong) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func TestAGroupResolvesWhenNoneFires(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	r := w.alertmanager(am(t, 0, "a firing critical", "b firing warning"))
	if inc := w.incident(r.IncidentID); inc.Firing != 2 || inc.Count != 2 || inc.Title != "InstanceDown" || inc.Criticality != "critical" {
		t.Errorf("%+v", inc)
	}
	if got := w.alertmanager(am(t, 0, "a resolved critical", "b firing warning")); got.IncidentID != r.IncidentID || got.State != message.Open {
		t.Errorf("partly resolved: %+v", got)
	}
	if inc := w.incident(r.IncidentID); inc.Firing != 1 || inc.Resolved != 1 || inc.Criticality != "warning" {
		t.Errorf("%+v", inc)
	}
	s := w.snapshot(r.IncidentID)
	if len(s.Alerts) != 2 || s.Alerts[0].Fingerprint != "b" || s.Alerts[1].EndsAt == nil {
		t.Errorf("the card shows %+v", s.Alerts)
	}
	// "a" was told as resolved and is left out from now on.
	if got := w.alertmanager(am(t, 0, "b resolved warning")); got.State != message.Resolved {
		t.Errorf("%+v", got)
	}
	want := []string{"opened", "paged", "alert_resolved", "alert_resolved", "resolved"}
	if diff := cmp.Diff(want, w.timeline(r.IncidentID)); diff != "" {
		t.Error(diff)
	}
}

func TestAReSendOfAlertmanagerChangesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	body := am(t, 0, "a firing critical", "b firing critical")
	r := w.alertmanager(body)
	before := w.incident(r.IncidentID)
	got := w.alertmanager(body)
	after := w.incident(r.IncidentID)
	if len(got.Deliveries) != 0 || after.Revision != before.Revision || after.Sequence != before.Sequence || after.Count != 4 {
		t.Errorf("%+v after %+v", after, before)
	}
}

func TestTruncatedAlertsCloseNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	r := w.alertmanager(am(t, 3, "a firing critical"))
	if s := w.snapshot(r.IncidentID); s.Truncated != 3 {
		t.Errorf("the card does not say that alerts are left out: %+v", s)
	}
	if got := w.alertmanager(am(t, 2, "a resolved critical")); got.State != message.Open {
		t.Errorf("all listed are resolved, others are not known: %+v", got)
	}
	want := []string{"opened", "truncated", "paged", "alert_resolved"}
	if diff := cmp.Diff(want, w.timeline(r.IncidentID)); diff != "" {
		t.Error(diff)
	}
	if got := w.alertmanager(am(t, 0, "a resolved critical", "b resolved critical")); got.State != message.Resolved {
		t.Errorf("a complete message closes it: %+v", got)
	}
}

func TestAMessageOfAThousandAlertsIsOneIncident(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	var list []string
	for i := range 1000 {
		list = append(list, fmt.Sprintf("f%d firing critical", i))
	}
	r := w.alertmanager(am(t, 0, list...))
	if inc := w.incident(r.IncidentID); inc.Firing != 1000 || len(w.snapshot(r.IncidentID).Alerts) != 50 {
		t.Errorf("%+v", inc)
	}
	for i := range list {
		list[i] = fmt.Sprintf("f%d resolved critical", i)
	}
	if got := w.alertmanager(am(t, 0, list...)); got.State != message.Resolved {
		t.Errorf("%+v", got)
	}
	if n := len(w.timeline(r.IncidentID)); n > 20 {
		t.Errorf("%d entries for one message", n)
	}
}

// Alertmanager and Grafana do not send again soon after a refusal: one alert that is wrong does not cost the others their
// page, and what is not known of it closes nothing.
func TestAWrongAlertOfAGroupCostsNoOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(f *config.File) { withSources(t, f) })
	body := `{"groupKey": "g", "alerts": [
		{"status": "firing", "labels": {"alertname": "Good", "severity": "critical"}, "startsAt": "2026-01-05T09:00:00Z", "endsAt": "0001-01-01T00:00:00Z"},
		{"status": "firing", "labels": {"alertname": "Bad", "job": "_tocsin"}}, {"status": "odd"}, 7, {"status": "firing", "startsAt": "now"}, {"status": "resolved", "labels": {"a": 1}}]}`
	m := w.read("am-west", body)
	var wrong []string
	for _, e := range m.Wrong {
		wrong = append(wrong, e.Field)
	}
	if diff := cmp.Diff([]string{"alerts[1].job", "alerts[2].status", "alerts[3]", "alerts[4].startsAt", "alerts[5].labels"}, wrong); diff != "" || m.Alerts != 1 || len(m.Groups) != 1 {
		t.Fatalf("%s %+v", diff, m)
	}
	rs, err := w.acceptAll(m)
	if err != nil || len(rs) != 1 || !rs[0].Opened {
		t.Fatalf("%+v, %v", rs, err)
	}
	if inc := w.incident(rs[0].IncidentID); inc.Firing != 1 || inc.Truncated != 4 {
		t.Errorf("%+v", inc)
	}
	m = w.read("am-west", strings.Replace(body, `"status": "firing", "labels": {"alertname": "Good"`, `"status": "resolved", "labels": {"alertname": "Good"`, 1))
	if rs, err := w.acceptAll(m); err != nil || rs[0].State != message.Open {
		t.Errorf("nobody knows whether the others fire: %+v, %v", rs, err)
	}
	if rs := w.send("am-west", `{"groupKey": "g", "alerts": [{"status": "resolved", "labels": {"alertname": "Good", "severity": "critical"}}]}`); rs[0].State != message.Resolved {
		t.Errorf("a message without mistakes ends it: %+v", rs)
	}
	if m := w.read("am-west", `{"groupKey": "h", "alerts": [{"status": "odd"}]}`); len(m.Groups) != 0 || len(m.Wrong) != 1 {
		t.Errorf("%+v", m)
	}
}

// What the file says of a topic may fail on an alert. Its labels count then.
func TestATopicThatFailsCostsNoPage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(f *config.File) { withSources(t, f) })
	for source, body := range map[string]string{
		"brittle-am":   `{"groupKey": "g", "alerts": [{"status": "firing", "labels": {"alertname": "A", "severity": "critical", "job": "db"}}]}`,
		"brittle-prom": `[{"labels": {"alertname": "A", "severity": "critical", "job": "db"}}]`,
		"brittle-json": `{"labels": {"alertname": "A", "severity": "critical", "job": "db"}}`,
	} {
		m := w.read(source, body)
		if len(m.Wrong) != 0 || len(m.Groups) != 1 || m.Groups[0].Alerts[0].Topic() != "alert.a.critical.db" {
			t.Errorf("%s: %+v", source, m)
			continue
		}
		if len(m.Notes) != 1 || !strings.HasSuffix(m.Notes[0].Field, "job") || !strings.Contains(m.Notes[0].Message, "topic.job of the source "+source) {
			t.Errorf("%s: %v", source, m.Notes)
		}
	}
}
