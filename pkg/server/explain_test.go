package server_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/oncall"
	"github.com/tocsin-oncall/tocsin/pkg/route"
)

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
		"body.payload":                  `{"kind": "x", "payload": {"kind": "x"}}`,
		"body.notify[0]":                `{"kind": "x", "notify": ["nobody"]}`,
	} {
		p := w.refused(http.StatusUnprocessableEntity, api.ProblemInvalid, "eye", http.MethodPost, "/v1/explain", body)
		if len(p.Errors) != 1 || p.Errors[0].Location != location {
			t.Errorf("%s: %+v", body, p)
		}
	}
	for _, query := range []string{"kind=x&label=odd", "kind=x&incident=0190f3a2-0000-7000-8000-000000000000", "incident=0190f3a2-0000-7000-8000-000000000000&at=2026-01-01T00:00:00Z"} {
		w.refused(http.StatusUnprocessableEntity, api.ProblemInvalid, "eye", http.MethodGet, "/v1/explain?"+query, "")
	}
	w.refused(http.StatusUnprocessableEntity, api.ProblemInvalid, "eye", http.MethodPost, "/v1/explain", `{"kind": "x", "source": "native"}`)
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

// exec changes the database behind everybody's back.
func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	conn, err := pgx.Connect(w.t.Context(), w.url)
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close(w.t.Context())
	if _, err := conn.Exec(w.t.Context(), sql, args...); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
}

// fire sends an alert and gives its incident's id.
func (w *world) fire(body string) string {
	w.t.Helper()
	return want[api.Accepted](w, http.StatusAccepted, "in", http.MethodPost, "/v1/alerts", body).IncidentID
}

// why is what explain says of a stored incident, as one text.
func (w *world) why(id string) (api.Explanation, string) {
	w.t.Helper()
	e := want[api.Explanation](w, http.StatusOK, "eye", http.MethodGet, "/v1/explain?incident="+id, "")
	return e, strings.Join(e.Words, "\n")
}

func says(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("%q is missing in\n%s", p, text)
		}
	}
}

const diskAlert = `{"kind": "disk", "criticality": "critical", "job": "db"}`

// The file of today has no route for it, another person and another escalation: what is told is what was kept.
func TestExplainTellsWhatWasKeptAndNotTheFileOfToday(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.file.Checksum = "then"
	w.file.Escalations["default"] = config.Escalation{Steps: []config.Step{{Page: []string{"schedule:primary"}}, {After: 10 * time.Minute, Page: []string{"user:bo"}}}}
	id := w.fire(diskAlert)
	acked := want[api.Incident](w, http.StatusOK, "hand", http.MethodPost, "/v1/incidents/"+id+"/acknowledge", `{"by": "ana"}`)
	w.file.Checksum, w.file.Routes, w.file.Escalations = "today", nil, nil
	w.file.Users = w.file.Users[:0]

	e, text := w.why(id)
	if len(e.Decisions) != 1 || e.Decisions[0].File != "then" || len(e.Routes) != 1 || !e.Routes[0].Matched || e.Unrouted || e.Silent {
		t.Errorf("%+v", e)
	}
	if len(e.People) != 2 || e.People[0].ID != "ana" || e.People[1].Name != "Bo Lind" || e.People[1].After != "10m0s" {
		t.Errorf("people: %+v", e.People)
	}
	says(t, text, "taken by alert.#; notifiers ops-slack; escalation default.", "The page through slack-dm to schedule:primary was taken back (acknowledged)",
		"Step 2 of the escalation default (Bo Lind, after 10m0s) did not fire: Ana Torres acknowledged at "+acked.AcknowledgedAt.Format("2006-01-02 15:04:05")+" UTC.")
	if len(e.Steps) != 3 || e.Steps[0].State != "fired" || e.Steps[1].State != "withdrawn" || e.Steps[1].Reason != "acknowledged" || e.Steps[0].FiredAt == nil {
		t.Errorf("steps: %+v", e.Steps)
	}
	if len(e.Deliveries) != 3 || e.Deliveries[2].Kind != "page" || e.Deliveries[2].State != "canceled" || e.Deliveries[2].Person != "ana" || e.Deliveries[2].ID == "" {
		t.Errorf("deliveries: %+v", e.Deliveries)
	}
	if e.Now == nil || !e.Now.Unrouted {
		t.Errorf("now: %+v", e.Now)
	}
}

// Why nobody was paged, or not I: each cause is told by its words.
func TestExplainTellsEachCause(t *testing.T) {
	t.Parallel()
	only := func(w *world, match string, change func(r *config.Route)) {
		p, err := route.ParsePattern(match)
		if err != nil {
			t.Fatal(err)
		}
		r := config.Route{Match: p, Line: 7, Notify: []string{"ops-slack"}, Escalate: "default"}
		if change != nil {
			change(&r)
		}
		w.file.Routes = []config.Route{r}
	}
	closed := &oncall.Window{Until: 24 * 60}
	closed.Days[(time.Now().UTC().Weekday()+3)%7] = true
	for _, c := range []struct {
		name   string
		before func(w *world)
		after  func(w *world, id string)
		want   []string
	}{
		{"silenced", func(w *world) {
			want[api.Silence](w, http.StatusCreated, "hand", http.MethodPost, "/v1/silences", `{"match": "#", "for": "2h", "reason": "new disks", "by": "bo"}`)
		}, nil, []string{"kept back, silenced by Bo Lind until ", ": new disks"}},
		{"outside of the hours", func(w *world) { only(w, "alert.#", func(r *config.Route) { r.Active = closed }) }, func(w *world, _ string) { only(w, "alert.#", nil) },
			[]string{"the route alert.# would have taken it, but it is ", "and the route is active ", ", again from "}},
		{"unrouted", func(w *world) { only(w, "alert.*.low.#", nil) }, func(w *world, _ string) { only(w, "alert.#", nil) }, []string{"no route took it."}},
		{"no escalation", func(w *world) { only(w, "alert.#", func(r *config.Route) { r.Escalate = "" }) }, nil, []string{"Nobody was paged: no route that took it names an escalation."}},
		{"named by the alert", func(w *world) { w.file.Routes = nil }, nil, []string{"no route took it; it named ops-slack itself."}},
		{"nobody on call", func(w *world) { w.file.Schedules[0].Layers[0].Start = time.Now().Add(400 * 24 * time.Hour) },
			func(w *world, _ string) { w.file.Schedules[0].Layers[0].Start = time.Now().Add(-400 * 24 * time.Hour) },
			[]string{"Page not possible: Nobody is on call for primary now"}},
		{"no linked account", func(w *world) { w.file.Users[0].Contacts[0].Address = "" }, func(w *world, _ string) { w.file.Users[0].Contacts[0].Address = "U0ANA" },
			[]string{"The page through slack-dm to schedule:primary is dead, unreachable (no_linked_account): No slack account is linked to Ana Torres"}},
		{"dead", nil, func(w *world, _ string) {
			w.exec("update delivery set state = 'rejected', reason = 'destination:channel_not_found', sentence = 'Invite it.', next_at = null, wait_until = null, settled_at = now() where kind <> 'thread'")
		}, []string{"The card through ops-slack to channel is dead, rejected (destination:channel_not_found): Invite it."}},
		{"a destination that rests", nil, func(w *world, _ string) {
			w.exec("update delivery set reason = 'paused', sentence = 'It rests.', overdue = 1 where kind = 'page'")
		}, []string{"The page through slack-dm to schedule:primary is not out yet (paused): It rests.", "the escalation did not wait for it"}},
		{"due", func(w *world) {
			w.file.Escalations["default"] = config.Escalation{Steps: []config.Step{{After: 5 * time.Minute, Page: []string{"user:bo"}}}}
		}, nil, []string{"Step 1 of the escalation default (Bo Lind, after 5m0s) is due at "}},
		{"held", func(w *world) {
			w.file.Escalations["default"] = config.Escalation{Steps: []config.Step{{After: 5 * time.Minute, Page: []string{"user:bo"}}}}
		}, func(w *world, _ string) { w.exec("update escalation set held_at = now()") }, []string{"Step 1 of the escalation default (Bo Lind, after 5m0s) stands still while the incident is silenced."}},
		{"resolved", func(w *world) {
			w.file.Escalations["default"] = config.Escalation{Steps: []config.Step{{After: 5 * time.Minute, Page: []string{"user:bo"}}}}
		}, func(w *world, _ string) {
			w.fire(`{"kind": "disk", "criticality": "critical", "job": "db", "status": "resolved"}`)
		}, []string{"(Bo Lind, after 5m0s) did not fire: it was resolved at "}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			if c.before != nil {
				c.before(w)
			}
			body := diskAlert
			if c.name == "named by the alert" {
				body = `{"kind": "disk", "criticality": "critical", "job": "db", "notify": ["ops-slack"]}`
			}
			id := w.fire(body)
			if c.after != nil {
				c.after(w, id)
			}
			_, text := w.why(id)
			says(t, text, c.want...)
		})
	}
}

// A breaker that is open now is told of deliveries that wait.
func TestExplainTellsWhatKeepsADeliveryBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.fire(diskAlert)
	account := w.file.Notifiers["ops-slack"].Account()
	w.exec(`insert into pause (key, scope, account, notifier, checksum, reason, code, sentence, since, probe_at) values ($1, 'account', $2, 'ops-slack', $3, 'account:token_revoked', 'token_revoked', 'Give it another token.', now(), now())`,
		account+"@"+w.file.Checksum, account, w.file.Checksum)
	e, _ := w.why(id)
	if len(e.Deliveries) == 0 || len(e.Deliveries[0].HeldBack) != 1 || !strings.Contains(e.Deliveries[0].HeldBack[0], "Give it another token.") {
		t.Errorf("%+v", e.Deliveries)
	}
}

// An incident that is older than what is kept is told by the file of today, and says so.
func TestExplainAnIncidentOfAnOlderVersion(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.fire(diskAlert)
	w.exec("delete from routing")
	e, text := w.why(id)
	if len(e.Decisions) != 0 || len(e.Routes) != 1 || len(e.People) != 1 {
		t.Errorf("%+v", e)
	}
	says(t, text, "What the file said then was not kept. The file in force now says:", "Told at once: ops-slack.")
}
