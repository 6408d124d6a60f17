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
	longer := want[api.Silence](w, http.StatusOK, "hand", http.MethodPatch, "/v1/silences/"+made.ID, `{"for": "5h", "reason": "more disks", "by": "bo"}`)
	if longer.Reason != "more disks" || longer.EditedBy != "Bo Lind" || longer.Author != "Ana Torres" || longer.Until.Before(made.Until.Add(2*time.Hour)) || !longer.From.Equal(made.From) {
		t.Errorf("edited: %+v", longer)
	}
	w.refused(http.StatusUnprocessableEntity, api.ProblemInvalid, "hand", http.MethodPatch, "/v1/silences/"+made.ID, `{}`)
	w.refused(http.StatusUnprocessableEntity, api.ProblemInvalid, "hand", http.MethodPatch, "/v1/silences/"+made.ID, `{"until": "2020-01-01T00:00:00Z"}`)
	w.refused(http.StatusForbidden, api.ProblemForbidden, "eye", http.MethodPatch, "/v1/silences/"+made.ID, `{"for": "1h"}`)
	w.refused(http.StatusNotFound, api.ProblemNotFound, "hand", http.MethodPatch, "/v1/silences/0190f3a2-0000-7000-8000-000000000000", `{"for": "1h"}`)
	for range 2 { // the second one changes nothing
		if ended := want[api.Silence](w, http.StatusOK, "hand", http.MethodDelete, "/v1/silences/"+made.ID+"?by=bo", ""); ended.State != "ended" || ended.EndedBy != "Bo Lind" {
			t.Errorf("ended: %+v", ended)
		}
	}
	if p := w.refused(http.StatusConflict, api.ProblemConflict, "hand", http.MethodPatch, "/v1/silences/"+made.ID, `{"for": "1h"}`); !strings.Contains(p.Detail, "it is over since") {
		t.Errorf("%+v", p)
	}
	if ended := want[api.Silence](w, http.StatusOK, "hand", http.MethodDelete, "/v1/silences/"+named.ID, ""); ended.State != "ended" {
		t.Errorf("ended before it began: %+v", ended)
	}
	if list := want[api.List[api.Silence]](w, http.StatusOK, "eye", http.MethodGet, "/v1/silences?ended=true&limit=1", ""); len(list.Items) != 1 || list.NextCursor == "" {
		t.Errorf("listed: %+v", list)
	}
	if n := w.count("select count(*) from audit where action like 'silence%'"); n != 5 {
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
