package plan_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/oncall"
	"github.com/tocsin-oncall/tocsin/pkg/plan"
)

// How it stands with a calendar, from what is known of fetching it and from its copy.
func TestHowItStandsWithACalendar(t *testing.T) {
	t.Parallel()
	ago := func(d time.Duration) *time.Time { at := monday.Add(-d); return &at }
	event := func(in, long time.Duration, summary string, invited ...string) oncall.Event {
		return oncall.Event{Start: monday.Add(in), End: monday.Add(in + long), Summary: summary, Invited: invited}
	}
	f := file(t)
	f.Users[0].Email = "ana@example.com"
	f.Schedules = []oncall.Schedule{{ID: "primary", Zone: time.UTC, Layers: []oncall.Layer{{Name: "week", Users: [][]string{{"ana"}}}, {Name: "calendar", Calendar: "c"}}}}
	fine := plan.CalendarState{FetchedAt: ago(time.Minute)}
	for _, c := range []struct {
		name   string
		state  plan.CalendarState
		copied *oncall.Calendar
		wrong  string // joined by |
		notes  string
	}{
		{"all is well", fine, &oncall.Calendar{Events: []oncall.Event{event(0, time.Hour, "ana")}}, "", ""},
		{"not fetched yet", plan.CalendarState{}, nil, "", "It was not fetched yet; the layer has nobody until it is."},
		{"never came", plan.CalendarState{FailedAt: ago(time.Minute), Error: "h answered 500."}, nil,
			"It could not be fetched since Mon 5 Jan 08:59 UTC, and there is no copy, so the layer has nobody: h answered 500.", ""},
		{"fails, and the copy is young", plan.CalendarState{FetchedAt: ago(59 * time.Minute), FailedAt: ago(time.Minute), Error: "h answered 500"}, &oncall.Calendar{}, "",
			"It can't be fetched since Mon 5 Jan 08:59 UTC: h answered 500. The copy of Mon 5 Jan 08:01 UTC is in force."},
		{"the copy is old", plan.CalendarState{FetchedAt: ago(time.Hour), FailedAt: ago(55 * time.Minute), Error: "h answered 500"}, &oncall.Calendar{},
			"It could not be fetched since Mon 5 Jan 08:05 UTC: h answered 500. The copy of Mon 5 Jan 08:00 UTC stays in force, and what was changed since is not in it.", ""},
		{"nobody fetches", plan.CalendarState{FetchedAt: ago(time.Hour)}, &oncall.Calendar{}, "No replica has fetched it since Mon 5 Jan 08:00 UTC; that copy stays in force.", ""},
		{"can't be understood", fine, &oncall.Calendar{Problems: []string{"a", "b", "c", "d", "e", "f", "g"}},
			"Something in it can't be understood, and does not count: a.|Something in it can't be understood, and does not count: b.|Something in it can't be understood, and does not count: c.|" +
				"Something in it can't be understood, and does not count: d.|Something in it can't be understood, and does not count: e.|2 more of its events can't be understood.", ""},
		{"strangers", fine, &oncall.Calendar{Events: []oncall.Event{
			event(-2*time.Hour, time.Hour, "over", "zoe@example.com"), event(-time.Hour, 2*time.Hour, "Busy"), event(time.Hour, time.Hour, "on", "zoe@example.com"),
			event(2*time.Hour, time.Hour, "on", "ana@example.com", "bob@example.com"), event(24*time.Hour, 2*time.Hour, "Busy"), event(48*time.Hour, 2*time.Hour, "Busy"), event(8*24*time.Hour, time.Hour, "far"),
		}},
			`The event "Busy", Mon 5 Jan 08:00 UTC to Mon 5 Jan 10:00 UTC and 2 times more within seven days, puts nobody on call: neither its title nor whoever made it names a user of the file.|` +
				`The event "on", Mon 5 Jan 10:00 UTC to Mon 5 Jan 11:00 UTC, puts nobody on call: zoe@example.com is no user's e-mail address in the file, and its title names none.|` +
				`The event "on", Mon 5 Jan 11:00 UTC to Mon 5 Jan 12:00 UTC, also names bob@example.com, who is no user of the file.`, ""},
		{"overlap", fine, &oncall.Calendar{Events: []oncall.Event{event(0, 3*time.Hour, "ana"), event(2*time.Hour, 2*time.Hour, "Bo")}}, "",
			"Events overlap: ana and bo are on call together from Mon 5 Jan 11:00 UTC to Mon 5 Jan 12:00 UTC."},
	} {
		got := plan.Calendars(f, map[string]plan.CalendarState{"c": c.state}, oncall.Overlay{Calendars: map[string]*oncall.Calendar{"c": c.copied}}, monday)
		if len(got) != 1 || got[0].Schedule != "primary" || got[0].Layer != "calendar" {
			t.Fatalf("%+v", got)
		}
		if wrong := strings.Join(got[0].Sentences(), "|"); wrong != c.wrong {
			t.Errorf("%s: wrong\n%s\nwant\n%s", c.name, wrong, c.wrong)
		}
		if notes := strings.Join(got[0].Notes, "|"); notes != c.notes {
			t.Errorf("%s: notes\n%s\nwant\n%s", c.name, notes, c.notes)
		}
		// The same trouble is the same later, so it is told once.
		later := plan.Calendars(f, map[string]plan.CalendarState{"c": {FetchedAt: c.state.FetchedAt, FailedAt: c.state.FailedAt, Error: "another word"}}, oncall.Overlay{Calendars: map[string]*oncall.Calendar{"c": c.copied}}, monday.Add(30*time.Second))
		if later[0].What() != got[0].What() {
			t.Errorf("%s: %q became %q", c.name, got[0].What(), later[0].What())
		}
	}
}

// A stranger's event that recurs is one trouble as long as it does: it is not told anew each day.
func TestAStrangersEventThatRecurs(t *testing.T) {
	t.Parallel()
	f := file(t)
	f.Schedules = []oncall.Schedule{{ID: "primary", Zone: time.UTC, Layers: []oncall.Layer{{Name: "calendar", Calendar: "c"}}}}
	daily := &oncall.Calendar{}
	for day := range 20 {
		for _, title := range []string{"Stand-up", "Lunch"} {
			start := monday.Add(time.Duration(day) * 24 * time.Hour)
			daily.Events = append(daily.Events, oncall.Event{Start: start, End: start.Add(time.Hour), Summary: title})
		}
	}
	at := func(now time.Time) plan.CalendarLayer {
		return plan.Calendars(f, map[string]plan.CalendarState{"c": {FetchedAt: &now}}, oncall.Overlay{Calendars: map[string]*oncall.Calendar{"c": daily}}, now)[0]
	}
	first := at(monday)
	if len(first.Wrong) != 2 || first.What() == "" {
		t.Fatalf("%+v", first.Wrong)
	}
	for hours := range 7 * 24 {
		if later := at(monday.Add(time.Duration(hours) * time.Hour)); later.What() != first.What() {
			t.Fatalf("after %d hours %q has become %q", hours, first.What(), later.What())
		}
	}
}

// layered is a schedule whose layer "backup" lies below "first".
func layered(t *testing.T) *config.File {
	f := file(t)
	f.Schedules = append(f.Schedules, oncall.Schedule{ID: "two", Zone: time.UTC, Layers: []oncall.Layer{
		{Name: "backup", Users: [][]string{{"ana", "bo"}}}, {Name: "first", Users: [][]string{{"cho"}}}, {Name: "calendar", Calendar: "c"},
	}})
	f.Escalations["layers"] = config.Escalation{Steps: []config.Step{{Page: []string{"layer:two/backup", "layer:two/calendar", "layer:gone/x", "user:ana"}}, {Page: []string{"layer:two/backup"}}}}
	return f
}

func TestPagesForOneLayer(t *testing.T) {
	t.Parallel()
	f := layered(t)
	p := plan.Pages(f, linked, []string{"layer:two/backup", "layer:two/calendar"}, "critical", 0, monday)
	var got []string
	for _, d := range p.Pages {
		line := d.Notifier + " " + d.Target
		if d.Dead != nil {
			line += " " + d.Dead.Reason
		}
		got = append(got, line)
	}
	if want := "slack-dm layer:two/backup, telegram-dm layer:two/backup, slack-dm layer:two/backup/2, slack-dm layer:two/calendar nobody_on_call"; strings.Join(got, ", ") != want {
		t.Errorf("pages %s, want %s", strings.Join(got, ", "), want)
	}
	if len(p.Lines) != 2 || !strings.Contains(p.Lines[0], "two, layer backup") {
		t.Errorf("lines %q", p.Lines)
	}
	for target, want := range map[string]string{
		"layer:two/backup": "ana", "layer:two/backup/2": "bo", "layer:two/backup/9": "ana", "layer:two/backup/x": "ana", "schedule:two": "cho",
		"layer:two/calendar": "nobody_on_call: Nobody is on call in the layer calendar of two now: let the layer cover this time, or page schedule:two as well; then send again.",
		"layer:two/none":     `nobody_on_call: The schedule two has no layer "none" any more: put it back, then send again.`,
		"layer:two":          `nobody_on_call: The schedule two has no layer "" any more: put it back, then send again.`,
		"layer:gone/backup":  `nobody_on_call: The file has no schedule "gone" any more: put it back, then send again.`,
	} {
		f.Users[2].Contacts = []config.Contact{{Via: "slack-dm", Address: "U0CHO"}}
		who, err := plan.Resolve(f, linked, "slack-dm", target, monday)
		got := who.UserID
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %s, want %s", target, got, want)
		}
	}
	if got := plan.Layers(f); len(got) != 2 || got[0].ID != "two" {
		t.Errorf("layers that are paged: %+v", got)
	} else if s, _ := got[0].At(monday); fmt.Sprint(s.Users) != "[ana bo]" {
		t.Errorf("the first of them: %+v", s)
	}
}

func TestExplainSaysWhomALayerPages(t *testing.T) {
	t.Parallel()
	f := layered(t)
	f.Routes = []config.Route{{Match: pattern(t, "alert.#"), Escalate: "layers"}}
	e := plan.Explain(f, plan.Question{Alerts: []plan.Alert{{Kind: "x", Criticality: "critical", Job: "db", Firing: true}}, Accounts: linked, At: monday})
	var got []string
	for _, p := range e.People {
		got = append(got, fmt.Sprintf("%s by %s in step %d", p.User, p.Target, p.Step))
	}
	if want := "ana by layer:two/backup in step 1; bo by layer:two/backup in step 1; ana by user:ana in step 1; ana by layer:two/backup in step 2; bo by layer:two/backup in step 2"; strings.Join(got, "; ") != want {
		t.Errorf("people %s", strings.Join(got, "; "))
	}
}
