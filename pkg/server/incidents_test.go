package server_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/api"
)

func TestSnoozeEscalateAndReassignOverTheAPI(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.open()
	at := "/v1/incidents/" + id
	inc := want[api.Incident](w, 200, "hand", "POST", at+"/snooze", `{"for": "2h", "by": "ana", "reason": "deploying"}`)
	if inc.State != "acknowledged" || inc.AcknowledgedBy != "Ana Torres" || inc.SnoozedUntil == nil || time.Until(*inc.SnoozedUntil) < time.Hour {
		t.Errorf("%+v", inc)
	}
	w.refused(422, api.ProblemInvalid, "hand", "POST", at+"/snooze", `{"for": "soon"}`)
	w.refused(422, api.ProblemInvalid, "hand", "POST", at+"/snooze", `{"for": "30d"}`)
	w.refused(403, api.ProblemForbidden, "eye", "POST", at+"/snooze", `{"for": "1h"}`)
	w.refused(422, api.ProblemInvalid, "hand", "POST", at+"/reassign", `{"to": "nobody"}`)
	w.refused(404, api.ProblemNotFound, "hand", "POST", "/v1/incidents/01a22884-97a8-75f8-b925-a7f68764bda3/escalate", "")
	inc = want[api.Incident](w, 200, "hand", "POST", at+"/reassign", `{"to": "bo"}`)
	if inc.State != "open" || inc.SnoozedUntil != nil {
		t.Errorf("%+v", inc)
	}
	if n := w.count("select count(*) from delivery where kind = 'page' and target = 'user:bo' and state = 'pending'"); n != 1 {
		t.Errorf("%d pages to Bo", n)
	}
	if inc = want[api.Incident](w, 200, "hand", "POST", at+"/escalate", ""); inc.State != "open" {
		t.Errorf("%+v", inc)
	}
	want[api.Incident](w, 200, "hand", "POST", at+"/resolve", "")
	for _, path := range []string{"/snooze", "/reassign", "/escalate"} {
		w.refused(409, api.ProblemConflict, "hand", "POST", at+path, map[string]string{"/snooze": `{"for": "1h"}`, "/reassign": `{"to": "ana"}`}[path])
	}
	if n := w.count("select count(*) from audit where action in ('snooze', 'reassign', 'escalate')"); n != 3 {
		t.Errorf("%d lines in the audit trail", n)
	}
}

func TestSnoozeAndEscalateByButton(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.open()
	press := func(user, action, at string) string {
		t.Helper()
		body, header := slackPress(signing, user, action, id, at, time.Now())
		if status, _, b := w.call("", "POST", "/slack/interactions", body, header...); status != 200 {
			t.Fatalf("%d %s", status, b)
		}
		return w.heard().text
	}
	if said := press("U0ANA", "snooze", "5.1"); !strings.Contains(said, "You snoozed it until") {
		t.Error(said)
	}
	if said := press("U0BO", "snooze", "5.2"); !strings.Contains(said, "Ana Torres snoozed it already, until") {
		t.Error(said)
	}
	if said := press("U0BO", "escalate", "5.3"); !strings.Contains(said, "You escalated it") {
		t.Error(said)
	}
	if said := press("U0ANA", "escalate", "5.4"); !strings.Contains(said, "Bo Lind escalated it already") {
		t.Error(said)
	}
	if said := press("U0ANA", "resolve", "5.5"); !strings.Contains(said, "You resolved it") {
		t.Error(said)
	}
	if said := press("U0BO", "snooze", "5.6"); !strings.Contains(said, "Ana Torres resolved it already") {
		t.Error(said)
	}
}
