package intake_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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
	g, err := intake.ParseAlertmanager("alertmanager", body)
	if err != nil {
		w.t.Fatal(err)
	}
	return w.accept(g)
}

func TestAlertmanagerMessage(t *testing.T) {
	t.Parallel()
	g, err := intake.ParseAlertmanager("alertmanager", am(t, 0, "a firing critical"))
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
		if _, err := intake.ParseAlertmanager("alertmanager", []byte(bad)); !errors.As(err, &wrong) {
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
