package plan_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/oncall"
	"github.com/tocsin-oncall/tocsin/pkg/plan"
	"github.com/tocsin-oncall/tocsin/pkg/route"
)

var monday = time.Date(2026, 1, 5, 9, 0, 0, 0, time.UTC)

func pattern(t *testing.T, s string) route.Pattern {
	t.Helper()
	p, err := route.ParsePattern(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// file has two people in a weekly turn, and one notifier of each sort.
func file(t *testing.T) *config.File {
	t.Helper()
	f := &config.File{
		Users: []config.User{
			{ID: "ana", Name: "Ana Torres", Contacts: []config.Contact{{Via: "slack-dm"}, {Via: "telegram-dm", After: 2 * time.Minute}}},
			{ID: "bo", Name: "Bo", Contacts: []config.Contact{{Via: "slack-dm", Address: "U0BO", Urgency: "high"}, {Via: "telegram-dm", Address: "42", Urgency: "low"}}},
			{ID: "cho", Name: "Cho"},
		},
		Schedules: []oncall.Schedule{
			{ID: "primary", Zone: time.UTC, Layers: []oncall.Layer{{Name: "week", Users: [][]string{{"ana"}, {"bo"}}, Every: oncall.Every{N: 1, Unit: "week"}, Start: monday}}},
			{ID: "both", Zone: time.UTC, Layers: []oncall.Layer{{Name: "all", Users: [][]string{{"ana", "bo"}}, Every: oncall.Every{N: 1, Unit: "week"}, Start: monday}}},
		},
		Notifiers: map[string]config.Notifier{
			"ops-slack":   {Type: "slack", Token: "t", Channel: "C1"},
			"slack-dm":    {Type: "slack", Token: "t"},
			"telegram-dm": {Type: "telegram", Token: "t"},
			"ops-tg":      {Type: "telegram", Token: "t", ChatID: "-100"},
			"hook-slack":  {Type: "slack", WebhookURL: "https://hooks.example.com/x"},
			"audit":       {Type: "webhook", URL: "https://example.com/hook"},
			"team-log":    {Type: "log", Path: "/tmp/x.jsonl"},
			"off-slack":   {Type: "slack", Token: "t", Channel: "C2", Off: true},
		},
		Escalations: map[string]config.Escalation{"default": {Steps: []config.Step{{Page: []string{"schedule:primary"}}}}},
		Kinds:       map[delivery.Kind]delivery.Policy{},
	}
	for _, k := range delivery.Kinds {
		f.Kinds[k] = delivery.DefaultPolicy(k)
	}
	for name, n := range f.Notifiers {
		n.Name = name
		f.Notifiers[name] = n
	}
	return f
}

var linked = []plan.Account{{Provider: "slack", AccountID: "U0ANA", UserID: "ana"}, {Provider: "telegram", AccountID: "7", UserID: "ana"}}

func TestTwoRoutesAndTheAlertNameOneNotifier(t *testing.T) { // A2
	t.Parallel()
	f := file(t)
	f.Routes = []config.Route{
		{Match: pattern(t, "alert.#"), Notify: []string{"ops-slack", "audit"}, Escalate: "default"},
		{Match: pattern(t, "#.db"), Notify: []string{"ops-slack"}, Escalate: "default"},
		{Match: pattern(t, "#"), Labels: map[string]string{"team": "web"}, Notify: []string{"team-log"}},
	}
	m := plan.Routes(f, "alert.x.critical.db", map[string]string{"team": "db"}, []string{"ops-slack", "hook-slack", "gone"}, time.Time{})
	if diff := cmp.Diff([]string{"ops-slack", "audit", "hook-slack"}, m.Notifiers); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"default"}, m.Escalations); diff != "" {
		t.Error(diff)
	}
	if last := m.Routes[2]; last.Matched || !strings.Contains(last.Why, `team is "db"`) {
		t.Errorf("third route: %+v", last)
	}
}

func TestWhatANotifierGets(t *testing.T) {
	t.Parallel()
	f := file(t)
	var lines []string
	for _, n := range []string{"ops-slack", "ops-tg", "hook-slack", "audit", "team-log", "slack-dm", "off-slack", "gone"} {
		for _, c := range []plan.Change{plan.Opened, plan.Acknowledged, plan.Resolved} {
			for _, d := range plan.ForNotifier(f, n, c) {
				s := fmt.Sprintf("%s %s %s %s %s", n, c, d.Kind, d.Target, d.Lifetime)
				if d.Dead != nil {
					s += fmt.Sprintf(" %s %s", d.Dead.State, d.Dead.Reason)
				}
				lines = append(lines, s)
			}
		}
	}
	want := []string{
		"ops-slack opened card channel 0s", "ops-slack opened thread channel 0s",
		"ops-tg opened card channel 0s", "ops-tg opened thread channel 0s",
		"hook-slack opened notice url 24h0m0s", "hook-slack resolved notice url 24h0m0s",
		"audit opened event url 24h0m0s", "audit acknowledged event url 24h0m0s", "audit resolved event url 24h0m0s",
		"team-log opened event log 24h0m0s", "team-log acknowledged event log 24h0m0s", "team-log resolved event log 24h0m0s",
		"slack-dm opened notice channel 0s unreachable destination:none",
		"off-slack opened card channel 0s unreachable notifier_off", "off-slack opened thread channel 0s canceled card_dead",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Error(diff)
	}
}

func TestWhoATargetMeans(t *testing.T) {
	t.Parallel()
	f := file(t)
	week := func(n int) time.Time { return monday.AddDate(0, 0, 7*n).Add(time.Hour) }
	for _, c := range []struct {
		notifier, target string
		when             time.Time
		want             string
	}{
		{"ops-slack", "channel", week(0), "C1"},
		{"ops-tg", "channel", week(0), "-100"},
		{"hook-slack", "url", week(0), "https://hooks.example.com/x"},
		{"audit", "url", week(0), "https://example.com/hook"},
		{"team-log", "log", week(0), "/tmp/x.jsonl"},
		{"slack-dm", "schedule:primary", week(0), "ana U0ANA"},
		{"slack-dm", "schedule:primary", week(1), "bo U0BO"}, // C15, C16: the hand-off between two attempts
		{"slack-dm", "schedule:both", week(0), "ana U0ANA"},
		{"slack-dm", "schedule:both/2", week(0), "bo U0BO"},
		{"slack-dm", "schedule:primary/2", week(1), "bo U0BO"}, // the shift became smaller: somebody, not nobody
		{"telegram-dm", "user:ana", week(0), "ana 7"},
		{"slack-dm", "user:cho", week(0), "no_linked_account"},
		{"slack-dm", "user:gone", week(0), "no_linked_account"},
		{"slack-dm", "schedule:primary", monday.Add(-time.Hour), "nobody_on_call"},
		{"slack-dm", "schedule:gone", week(0), "nobody_on_call"},
		{"slack-dm", "channel", week(0), "destination:none"},
		{"off-slack", "channel", week(0), "notifier_off"},
		{"gone", "channel", week(0), "notifier_removed"},
	} {
		p, err := plan.Resolve(f, linked, c.notifier, c.target, c.when)
		got := strings.TrimSpace(p.UserID + " " + p.Address)
		if err != nil {
			var u *plan.Unreachable
			if !errors.As(err, &u) {
				t.Fatalf("%s %s: %T", c.notifier, c.target, err)
			}
			if got = u.Reason; u.Sentence == "" || !strings.HasSuffix(u.Sentence, ".") {
				t.Errorf("%s %s: the sentence %q", c.notifier, c.target, u.Sentence)
			}
		}
		if got != c.want {
			t.Errorf("%s %s at %s: %s, want %s", c.notifier, c.target, c.when, got, c.want)
		}
	}
}

func show(p plan.Paging) []string {
	var out []string
	for _, d := range p.Pages {
		s := fmt.Sprintf("%s %s after %s wait %s", d.Notifier, d.Target, d.Delay, d.Wait)
		if d.Dead != nil {
			s = fmt.Sprintf("%s %s %s", d.Notifier, d.Target, d.Dead.Reason)
		}
		out = append(out, s)
	}
	return append(out, fmt.Sprintf("reached %t", p.Reached))
}

func TestWhomAStepPages(t *testing.T) { // C1, C10: planning
	t.Parallel()
	f := file(t)
	now := monday.Add(time.Hour)
	wait := 5 * time.Second
	for _, c := range []struct {
		name        string
		accounts    []plan.Account
		targets     []string
		criticality string
		when        time.Time
		want        []string
	}{
		{"both ways, the first waits for the card", linked, []string{"schedule:primary"}, "critical", now,
			[]string{"slack-dm schedule:primary after 0s wait 5s", "telegram-dm schedule:primary after 2m0s wait 0s", "reached true"}},
		{"the second way at once when the first is closed", linked[1:], []string{"schedule:primary"}, "critical", now,
			[]string{"slack-dm schedule:primary no_linked_account", "telegram-dm schedule:primary after 0s wait 5s", "reached true"}},
		{"no way is open", nil, []string{"schedule:primary"}, "critical", now,
			[]string{"slack-dm schedule:primary no_linked_account", "telegram-dm schedule:primary no_linked_account", "reached false"}},
		{"nobody on call", linked, []string{"schedule:primary"}, "critical", monday.Add(-time.Hour),
			[]string{"slack-dm schedule:primary nobody_on_call", "reached false"}},
		{"no contacts", linked, []string{"user:cho"}, "critical", now, []string{"slack-dm user:cho no_linked_account", "reached false"}},
		{"ways by urgency, high", linked, []string{"user:bo"}, "high", now, []string{"slack-dm user:bo after 0s wait 5s", "reached true"}},
		{"ways by urgency, low", linked, []string{"user:bo"}, "error", now, []string{"telegram-dm user:bo after 0s wait 5s", "reached true"}},
		{"two people on one shift", linked, []string{"schedule:both"}, "critical", now,
			[]string{"slack-dm schedule:both after 0s wait 5s", "telegram-dm schedule:both after 2m0s wait 0s", "slack-dm schedule:both/2 after 0s wait 5s", "reached true"}},
		{"named twice, paged once", linked, []string{"schedule:primary", "user:ana"}, "critical", now,
			[]string{"slack-dm schedule:primary after 0s wait 5s", "telegram-dm schedule:primary after 2m0s wait 0s", "reached true"}},
		{"a step that pages nobody", linked, nil, "critical", now, []string{"reached true"}},
	} {
		p := plan.Pages(f, c.accounts, c.targets, c.criticality, wait, c.when)
		if diff := cmp.Diff(c.want, show(p)); diff != "" {
			t.Errorf("%s:\n%s", c.name, diff)
		}
	}
	p := plan.Pages(f, linked, []string{"schedule:primary"}, "critical", wait, now)
	if want := "Paging Ana Torres (primary) by slack-dm, telegram-dm in 2 min"; len(p.Lines) != 1 || p.Lines[0] != want {
		t.Errorf("the timeline says %q, want %q", p.Lines, want)
	}
}

func TestQuietHours(t *testing.T) {
	t.Parallel()
	madrid, err := time.LoadLocation("Europe/Madrid")
	if err != nil {
		t.Fatal(err)
	}
	f := file(t)
	every := [7]bool{true, true, true, true, true, true, true}
	f.Users[0].Quiet = &oncall.Window{Days: every, From: 22 * 60, Until: 7 * 60, Zone: madrid}
	f.Users[1].Quiet = &oncall.Window{Days: every, From: 23 * 60, Until: 5 * 60, Zone: madrid}
	f.Escalations["default"] = config.Escalation{Steps: []config.Step{{Page: []string{"user:ana"}}, {After: 10 * time.Minute, Page: []string{"user:bo"}}}}
	f.Routes = []config.Route{{Match: pattern(t, "#"), Escalate: "default"}}
	at := func(clock string) time.Time {
		when, err := time.ParseInLocation("2006-01-02 15:04", "2026-01-06 "+clock, madrid)
		if err != nil {
			t.Fatal(err)
		}
		return when
	}
	for _, c := range []struct {
		name, criticality, clock string
		targets                  []string
		pages                    int
		asleep                   string
		rests                    string
	}{
		{"urgent rings at night", "critical", "03:00", []string{"user:ana"}, 2, "", ""},
		{"by day", "error", "12:00", []string{"user:ana"}, 2, "", ""},
		{"not urgent waits for the end", "error", "03:00", []string{"user:ana"}, 0, "Ana Torres has quiet hours until Tue 07:00 CET", "07:00"},
		{"the first end counts", "error", "03:00", []string{"user:ana", "user:bo"}, 0, "Ana Torres has quiet hours until Tue 07:00 CET|Bo has quiet hours until Tue 05:00 CET", "05:00"},
		{"who is awake gets it", "error", "06:00", []string{"user:ana", "user:bo"}, 1, "Ana Torres has quiet hours until Tue 07:00 CET", ""},
		{"who is awake and can't be reached counts for nothing", "error", "06:00", []string{"user:ana", "user:cho"}, 0, "Ana Torres has quiet hours until Tue 07:00 CET", "07:00"},
	} {
		p := plan.Pages(f, linked, c.targets, c.criticality, 0, at(c.clock))
		rests := ""
		if !p.Rests.IsZero() {
			rests = p.Rests.In(madrid).Format("15:04")
		}
		if got := strings.Join(p.Asleep, "|"); len(p.Pages) != c.pages || got != c.asleep || rests != c.rests {
			t.Errorf("%s: %d pages, asleep %q, rests until %q", c.name, len(p.Pages), got, rests)
		}
	}
	// Ana's hours end at 07:00; what follows her step comes in its distance.
	e := plan.Explain(f, plan.Question{Alerts: []plan.Alert{{Kind: "x", Criticality: "error", Firing: true}}, Accounts: linked, At: at("06:00")})
	var got []string
	for _, p := range e.People {
		got = append(got, fmt.Sprintf("%s after %s", p.User, p.After))
	}
	if diff := cmp.Diff([]string{"ana after 1h0m0s", "bo after 1h10m0s"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestKeysAndFingerprints(t *testing.T) {
	t.Parallel()
	f := file(t)
	f.Routes = []config.Route{{Match: pattern(t, "alert.grouped.#"), GroupBy: []string{"cluster", "absent"}}}
	f.Sources = map[string]config.Source{"ci": {Name: "ci", GroupBy: []string{"repo"}}}
	a := plan.Alert{Kind: "Disk Full", Criticality: "critical", Job: "db.main", Labels: map[string]string{"a": "1", "b": "2"}, Title: "x"}
	b := a
	b.Title, b.Text, b.Labels = "y", "other words", map[string]string{"b": "2", "a": "1"}
	if a.Topic() != "alert.disk_full.critical.db_main" {
		t.Errorf("topic %s", a.Topic())
	}
	if plan.Key(f, "native", a) != plan.Key(f, "native", b) || a.Mark() != b.Mark() {
		t.Error("D7: other words or another order of labels make another alert")
	}
	c := a
	c.Labels = map[string]string{"a": "1", "b": "3"}
	if plan.Key(f, "native", a) == plan.Key(f, "native", c) || a.Mark() == c.Mark() {
		t.Error("D8: other labels make the same alert")
	}
	tricky := plan.Alert{Kind: "k", Labels: map[string]string{"a": `1","b"="2`}}
	plain := plan.Alert{Kind: "k", Labels: map[string]string{"a": "1", "b": "2"}}
	if tricky.Mark() == plain.Mark() {
		t.Error("a quoted value reads as two labels")
	}
	grouped := plan.Alert{Kind: "grouped", Labels: map[string]string{"cluster": "eu", "pod": "1"}}
	if got, want := plan.Key(f, "native", grouped), `route alert.grouped.#{"absent"="","cluster"="eu"}`; got != want {
		t.Errorf("key by route %s, want %s", got, want)
	}
	if got, want := plan.Key(f, "ci", plan.Alert{Kind: "k", Labels: map[string]string{"repo": "r", "x": "y"}}), `source ci{"repo"="r"}`; got != want {
		t.Errorf("key by source %s, want %s", got, want)
	}
	if got := plan.Key(f, "ci", plan.Alert{Key: "own"}); got != "own" {
		t.Errorf("own key became %s", got)
	}
	long := strings.Repeat("ü", 5000)
	one, two := plan.Key(f, "native", plan.Alert{Key: long + "1"}), plan.Key(f, "native", plan.Alert{Key: long + "2"})
	if one == two || len(one) > 1000 {
		t.Errorf("long keys: %d bytes, equal %t", len(one), one == two)
	}
}

func TestCriticalitiesAreOrdered(t *testing.T) {
	t.Parallel()
	order := []string{"critical", "high", "error", "warning", "odd", "info", "none"}
	for i := range order[1:] {
		if plan.Rank(order[i]) <= plan.Rank(order[i+1]) {
			t.Errorf("%s does not rank above %s", order[i], order[i+1])
		}
	}
	if !plan.HighUrgency("high") || plan.HighUrgency("error") {
		t.Error("critical and high are urgent, the rest is not")
	}
}
