package server_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

func TestSilences(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	made := want[api.Silence](w, http.StatusCreated, "hand", http.MethodPost, "/v1/silences", `{"match": "alert.*.*.db", "matchers": ["host=\"db-1\""], "for": "2h", "reason": "new disks", "by": "ana"}`)
	if made.Author != "Ana Torres" || made.State != "active" || made.Until.Sub(made.From) != 2*time.Hour || made.Reason != "new disks" {
		t.Errorf("made: %+v", made)
	}
	named := want[api.Silence](w, http.StatusCreated, "hand", http.MethodPost, "/v1/silences", fmt.Sprintf(`{"match": "#", "from": %q, "until": %q, "reason": "later"}`,
		time.Now().Add(time.Hour).Format(time.RFC3339), time.Now().Add(2*time.Hour).Format(time.RFC3339)))
	if named.Author != "hand" || named.State != "pending" {
		t.Errorf("in the token's name: %+v", named)
	}
	inc := want[api.Accepted](w, http.StatusAccepted, "in", http.MethodPost, "/v1/alerts", `{"kind": "disk", "criticality": "critical", "job": "db", "labels": {"host": "db-1"}}`)
	if len(inc.Deliveries) > 0 {
		t.Errorf("a silenced alert made %+v", inc.Deliveries)
	}
	shown := want[api.Incident](w, http.StatusOK, "eye", http.MethodGet, "/v1/incidents/"+inc.IncidentID, "")
	if shown.Silenced == nil || shown.Silenced.SilenceID != made.ID || shown.Alerts[0].Silenced == nil || !strings.Contains(shown.Timeline[1].Text, "Silenced by Ana Torres until") {
		t.Errorf("shown: %+v", shown)
	}
	if list := want[api.List[api.Incident]](w, http.StatusOK, "eye", http.MethodGet, "/v1/incidents", ""); list.Items[0].Silenced == nil {
		t.Errorf("listed: %+v", list.Items[0])
	}
	if list := want[api.List[api.Silence]](w, http.StatusOK, "eye", http.MethodGet, "/v1/silences", ""); len(list.Items) != 2 || list.Items[1].Alerts != 1 {
		t.Errorf("listed: %+v", list.Items)
	}
	for range 2 { // the second one changes nothing
		if ended := want[api.Silence](w, http.StatusOK, "hand", http.MethodDelete, "/v1/silences/"+made.ID+"?by=bo", ""); ended.State != "ended" || ended.EndedBy != "Bo Lind" {
			t.Errorf("ended: %+v", ended)
		}
	}
	if ended := want[api.Silence](w, http.StatusOK, "hand", http.MethodDelete, "/v1/silences/"+named.ID, ""); ended.State != "ended" {
		t.Errorf("ended before it began: %+v", ended)
	}
	if list := want[api.List[api.Silence]](w, http.StatusOK, "eye", http.MethodGet, "/v1/silences?ended=true&limit=1", ""); len(list.Items) != 1 || list.NextCursor == "" {
		t.Errorf("listed: %+v", list)
	}
	if n := w.count("select count(*) from audit where action like 'silence%'"); n != 4 {
		t.Errorf("%d audit rows", n)
	}
	for location, body := range map[string]string{
		"body.match":  `{"reason": "x", "for": "1h"}`,
		"body.until":  `{"match": "#", "reason": "x"}`,
		"body.for":    `{"match": "#", "reason": "x", "for": "soon"}`,
		"body.reason": `{"match": "#", "reason": " ", "for": "1h"}`,
		"body.by":     `{"match": "#", "reason": "x", "for": "1h", "by": "nobody"}`,
	} {
		p := w.refused(http.StatusUnprocessableEntity, api.ProblemInvalid, "hand", http.MethodPost, "/v1/silences", body)
		if len(p.Errors) != 1 || p.Errors[0].Location != location {
			t.Errorf("%s: %+v", body, p)
		}
	}
	w.refused(http.StatusForbidden, api.ProblemForbidden, "eye", http.MethodPost, "/v1/silences", `{"match": "#", "for": "1h", "reason": "x"}`)
	w.refused(http.StatusNotFound, api.ProblemNotFound, "hand", http.MethodDelete, "/v1/silences/0190f3a2-0000-7000-8000-000000000000", "")
}

func TestExplain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	e := want[api.Explanation](w, http.StatusOK, "eye", http.MethodGet, "/v1/explain?kind=disk&criticality=critical&job=db&label=host=db-1&label=team=x", "")
	if e.Topic != "alert.disk.critical.db" || len(e.Routes) != 1 || !e.Routes[0].Matched || e.Routes[0].Line == 0 || e.Silent || e.Unrouted {
		t.Errorf("%+v", e)
	}
	if len(e.People) != 1 || e.People[0].ID != "ana" || strings.Join(e.People[0].Ways, " ") != "slack-dm" || e.People[0].Target != "schedule:primary" {
		t.Errorf("people: %+v", e.People)
	}
	var kinds []string
	for _, d := range e.Deliveries {
		kinds = append(kinds, d.Kind+" "+d.Notifier+" "+d.Target)
		if len(d.Pace) == 0 || d.Policy.OnUnknown != "retry" {
			t.Errorf("%+v", d)
		}
	}
	if got := strings.Join(kinds, ", "); got != "card ops-slack channel, thread ops-slack channel, page slack-dm schedule:primary" {
		t.Errorf("deliveries: %s", got)
	}
	// Long before the schedule began nobody is on call.
	old := want[api.Explanation](w, http.StatusOK, "eye", http.MethodPost, "/v1/explain", `{"kind": "disk", "criticality": "critical", "at": "2020-01-01T00:00:00Z"}`)
	if len(old.People) != 0 || !strings.Contains(strings.Join(old.Words, "\n"), "Nobody is on call for primary") {
		t.Errorf("%+v", old)
	}
	group := want[api.Explanation](w, http.StatusOK, "eye", http.MethodPost, "/v1/explain",
		`{"payload": {"groupKey": "k", "alerts": [{"status": "firing", "labels": {"alertname": "A", "severity": "low"}}, {"status": "resolved", "labels": {"alertname": "B"}}]}}`)
	if len(group.Alerts) != 2 || group.Alerts[1].Status != "resolved" || group.Topic != "alert.a.low.none" {
		t.Errorf("%+v", group)
	}
	if self := want[api.Explanation](w, http.StatusOK, "eye", http.MethodGet, "/v1/explain?kind=unrouted&criticality=error&job=_tocsin", ""); !self.Routes[0].Matched {
		t.Errorf("%+v", self)
	}
	if n := w.count("select count(*) from incident"); n != 0 {
		t.Errorf("explaining made %d incidents", n)
	}
	for location, body := range map[string]string{
		"body.kind":                     `{}`,
		"body.payload.alerts[0].status": `{"payload": {"alerts": [{"status": "odd"}]}}`,
		"body.source":                   `{"source": "pigeon", "payload": {"kind": "x"}}`,
		"body.incident":                 `{"incident": "x"}`,
		"body.notify[0]":                `{"kind": "x", "notify": ["nobody"]}`,
	} {
		p := w.refused(http.StatusUnprocessableEntity, api.ProblemInvalid, "eye", http.MethodPost, "/v1/explain", body)
		if len(p.Errors) != 1 || p.Errors[0].Location != location {
			t.Errorf("%s: %+v", body, p)
		}
	}
	w.refused(http.StatusUnprocessableEntity, api.ProblemInvalid, "eye", http.MethodGet, "/v1/explain?kind=x&label=odd", "")
	w.refused(http.StatusNotFound, api.ProblemNotFound, "eye", http.MethodGet, "/v1/explain?incident=0190f3a2-0000-7000-8000-000000000000", "")
}

// Why was I not paged? The silence that kept it back is named, also when it is over, and what became of each delivery.
func TestExplainAStoredIncident(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := want[api.Silence](w, http.StatusCreated, "hand", http.MethodPost, "/v1/silences", `{"match": "alert.*.*.db", "for": "2h", "reason": "new disks"}`)
	inc := want[api.Accepted](w, http.StatusAccepted, "in", http.MethodPost, "/v1/alerts", `{"kind": "disk", "criticality": "critical", "job": "db"}`)
	want[api.Silence](w, http.StatusOK, "hand", http.MethodDelete, "/v1/silences/"+s.ID, "")
	e := want[api.Explanation](w, http.StatusOK, "eye", http.MethodGet, "/v1/explain?incident="+inc.IncidentID, "")
	if !e.Silenced || len(e.Silences) != 1 || !e.Silences[0].Hides || e.Silences[0].Reason != "new disks" || len(e.Deliveries) != 0 {
		t.Errorf("then: %+v", e)
	}
	if e.Now == nil || e.Now.Silenced || len(e.Now.Silences) != 0 || len(e.Now.People) != 1 {
		t.Errorf("now: %+v", e.Now)
	}
	if e.Incident == nil || e.Incident.ID != inc.IncidentID || len(e.Story) != 2 || !strings.Contains(e.Story[1].Text, "Silenced by hand") {
		t.Errorf("%+v", e.Story)
	}
	other := want[api.Accepted](w, http.StatusAccepted, "in", http.MethodPost, "/v1/alerts", `{"kind": "disk", "criticality": "critical", "job": "web"}`)
	w.settle(other.Deliveries[0].ID, "rejected", "destination:channel_not_found", false)
	e = want[api.Explanation](w, http.StatusOK, "eye", http.MethodGet, "/v1/explain?incident="+other.IncidentID, "")
	var story []string
	for _, l := range e.Story {
		story = append(story, l.Text)
	}
	if text := strings.Join(story, "\n"); !strings.Contains(text, "The card through ops-slack to channel is rejected (destination:channel_not_found)") || !strings.Contains(text, "The page through slack-dm to schedule:primary was made") {
		t.Errorf("the story is\n%s", text)
	}
}

func TestReplicas(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	beat := func(id, checksum, version, fileError string, notifiers ...string) {
		t.Helper()
		if err := w.store.Heartbeat(t.Context(), store.Replica{ID: id, Checksum: checksum, Notifiers: notifiers, Version: version, FileError: fileError}); err != nil {
			t.Fatal(err)
		}
	}
	beat("one", "aaa", "1", "", "ops", "audit")
	beat("two", "aaa", "1", "", "ops", "audit")
	r := want[api.Replicas](w, http.StatusOK, "eye", http.MethodGet, "/v1/replicas", "")
	if len(r.Items) != 2 || !r.SameFile || len(r.Differences) > 0 || !r.Items[0].Live || r.Items[0].ReadAt == nil {
		t.Errorf("%+v", r)
	}
	beat("two", "bbb", "2", "tocsin.yaml:3:1: unknown key", "ops")
	r = want[api.Replicas](w, http.StatusOK, "eye", http.MethodGet, "/v1/replicas", "")
	text := strings.Join(r.Differences, "\n")
	for _, line := range []string{"two refuses the file on its disk and keeps bbb", "different files: aaa on one; bbb on two", "only one knows the notifier audit", "different versions: 1 on one; 2 on two"} {
		if !strings.Contains(text, line) {
			t.Errorf("%q is missing in\n%s", line, text)
		}
	}
	if r.SameFile || r.Items[1].FileError == "" {
		t.Errorf("%+v", r)
	}
}
