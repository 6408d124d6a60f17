package plan_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/oncall"
	"github.com/tocsin-oncall/tocsin/pkg/plan"
)

func TestARouteRestsOutsideItsWindow(t *testing.T) {
	t.Parallel()
	f := file(t)
	working := &oncall.Window{Days: [7]bool{1: true, 2: true, 3: true, 4: true, 5: true}, From: 9 * 60, Until: 17 * 60}
	f.Routes = []config.Route{{Match: pattern(t, "alert.#"), Notify: []string{"ops-slack"}, Active: working, GroupBy: []string{"cluster"}}}
	monday, sunday := time.Date(2026, 1, 5, 9, 0, 0, 0, time.UTC), time.Date(2026, 1, 4, 9, 0, 0, 0, time.UTC)
	if m := plan.Routes(f, "alert.x.low.db", nil, nil, monday); m.Empty() || len(m.Resting) > 0 {
		t.Errorf("by day: %+v", m)
	}
	m := plan.Routes(f, "alert.x.low.db", nil, nil, sunday)
	if !m.Empty() || len(m.Resting) != 1 || m.Routes[0].Matched || !strings.Contains(m.Routes[0].Why, "Sun 09:00 in UTC") || !strings.Contains(m.Routes[0].Why, "mon tue wed thu fri 09:00-17:00 UTC") {
		t.Errorf("on Sunday: %+v", m)
	}
	// The incident's key does not depend on the hour, or what opened by day could not be resolved by night.
	a := plan.Alert{Kind: "x", Job: "db", Labels: map[string]string{"cluster": "eu"}}
	if got, want := plan.Key(f, "native", a), `route alert.#{"cluster"="eu"}`; got != want {
		t.Errorf("the key is %s", got)
	}
}

func silence(t *testing.T, match string, matchers ...string) plan.Silence {
	t.Helper()
	s, err := plan.NewSilence(match, matchers)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestWhatASilenceHides(t *testing.T) {
	t.Parallel()
	dev := map[string]string{"env": "dev"}
	for _, c := range []struct {
		s      plan.Silence
		topic  string
		labels map[string]string
		hides  bool
	}{
		{silence(t, "alert.*.*.db"), "alert.x.low.db", nil, true},
		{silence(t, "alert.*.*.db"), "alert.x.low.web", nil, false},
		{silence(t, "", `env="dev"`), "alert.x.low.web", dev, true},
		{silence(t, "", `env="dev"`), "alert.x.low.web", nil, false},
		{silence(t, "alert.*.*.db", `env="dev"`), "alert.x.low.web", dev, false},
		{silence(t, "alert.*.*.db", `env="dev", team!="ops"`), "alert.x.low.db", dev, true},
		// Whoever silences everything must still hear that nothing goes out.
		{silence(t, "#"), "alert.x.low.db", nil, true},
		{silence(t, "#"), "alert.delivery_rejected.low._tocsin", nil, false},
		{silence(t, "alert.unrouted.#"), "alert.unrouted.low._tocsin", nil, false},
		{silence(t, "", `env!="prod"`), "alert.unrouted.low._tocsin", nil, false},
		{silence(t, "alert.unrouted.*._tocsin"), "alert.unrouted.low._tocsin", nil, true},
	} {
		if hides, why := c.s.Hides(c.topic, c.labels); hides != c.hides {
			t.Errorf("%v %v on %s %v: %t, %s", c.s.Match, c.s.Matchers, c.topic, c.labels, hides, why)
		}
	}
	for _, wrong := range []struct {
		match    string
		matchers []string
		field    string
	}{{"", nil, "match: "}, {"a..b", nil, "match: "}, {"#", []string{`a="b"`, "x"}, "matchers[1]: "}} {
		if _, err := plan.NewSilence(wrong.match, wrong.matchers); err == nil || !strings.HasPrefix(err.Error(), wrong.field) {
			t.Errorf("%q %q: %v", wrong.match, wrong.matchers, err)
		}
	}
	one, two := silence(t, "#"), silence(t, "alert.#")
	one.Until, two.Until, one.ID, two.ID = time.Unix(10, 0), time.Unix(20, 0), "one", "two"
	if s, ok := plan.SilencedBy([]plan.Silence{one, two}, "alert.x.low.db", nil); !ok || s.ID != "two" {
		t.Errorf("of two silences %q counts", s.ID)
	}
	if !one.Lasts(time.Unix(9, 0)) || one.Lasts(time.Unix(10, 0)) {
		t.Error("a silence is over when it ends")
	}
}

func TestExplain(t *testing.T) {
	t.Parallel()
	f := file(t)
	f.Routes = []config.Route{{Match: pattern(t, "alert.*.critical.#"), Notify: []string{"ops-slack", "audit"}, Escalate: "default"}, {Match: pattern(t, "#.web"), Notify: []string{"team-log"}}}
	f.Escalations["default"] = config.Escalation{Steps: []config.Step{{Page: []string{"user:ana"}}, {After: 10 * time.Minute, Page: []string{"user:bo", "user:cho"}, Notify: []string{"hook-slack", "audit"}}}}
	q := plan.Question{At: time.Date(2026, 1, 6, 12, 0, 0, 0, time.UTC), Accounts: linked,
		Alerts: []plan.Alert{{Kind: "disk", Criticality: "critical", Job: "db", Firing: true}}}
	e := plan.Explain(f, q)
	if diff := cmp.Diff([]string{"ops-slack", "audit"}, e.Notifiers); diff != "" || e.Silent() || e.Silenced || e.Unrouted {
		t.Errorf("%s: %+v", diff, e)
	}
	now, later := e.AtOnce() // but for cho, who has no contacts
	if diff := cmp.Diff([][]string{{"ana"}, {"bo"}}, [][]string{now, later}); diff != "" {
		t.Error(diff)
	}
	var lines []string
	for _, d := range e.Deliveries {
		lines = append(lines, strings.Join([]string{d.Notifier, string(d.Kind), d.Target, d.Person, d.After.String()}, " "))
	}
	for _, want := range []string{"ops-slack card channel  0s", "audit event url  0s", "hook-slack notice url  10m0s"} {
		if !strings.Contains(strings.Join(lines, "\n"), want) {
			t.Errorf("%q is missing in\n%s", want, strings.Join(lines, "\n"))
		}
	}

	hide := silence(t, "alert.*.*.db")
	hide.From, hide.Until = q.At.Add(-time.Hour), q.At.Add(time.Hour)
	q.Silences = []plan.Silence{hide}
	if e := plan.Explain(f, q); !e.Silenced || !e.Silent() || e.Unrouted || !e.Alerts[0].Routes[0].Matched {
		t.Errorf("silenced: %+v", e)
	}
	// Partly silenced is not silenced.
	q.Alerts = append(q.Alerts, plan.Alert{Kind: "disk", Criticality: "low", Job: "web", Firing: true})
	if e := plan.Explain(f, q); e.Silenced || !cmp.Equal(e.Notifiers, []string{"team-log"}) {
		t.Errorf("partly silenced: %+v", e)
	}
	// What is silenced is no excuse for another that no route takes.
	q.Alerts[1].Job = "other"
	if e := plan.Explain(f, q); !e.Unrouted {
		t.Errorf("partly silenced, and the rest unrouted: %+v", e)
	}
	// After it, before it, and what no route takes.
	q.Alerts = q.Alerts[:1]
	q.At = hide.Until
	if e := plan.Explain(f, q); e.Silenced || len(e.Notifiers) != 2 {
		t.Errorf("after the silence: %+v", e)
	}
	q.Alerts[0].Criticality = "low"
	if e := plan.Explain(f, q); !e.Unrouted || !e.Silent() {
		t.Errorf("unrouted: %+v", e)
	}
}

// What is explained is what intake makes: the same steps, brought on in the same way where nobody can be reached.
func TestExplainBringsOnTheNextStep(t *testing.T) {
	t.Parallel()
	f := file(t)
	f.Routes = []config.Route{{Match: pattern(t, "#"), Escalate: "default"}}
	f.Escalations["default"] = config.Escalation{Steps: []config.Step{{Page: []string{"schedule:gone"}}, {After: 10 * time.Minute, Page: []string{"user:ana"}}}}
	e := plan.Explain(f, plan.Question{At: time.Date(2026, 1, 6, 12, 0, 0, 0, time.UTC), Accounts: linked, Alerts: []plan.Alert{{Kind: "x", Criticality: "critical", Firing: true}}})
	if now, _ := e.AtOnce(); !cmp.Equal(now, []string{"ana"}) {
		t.Errorf("paged at once: %v", now)
	}
}
