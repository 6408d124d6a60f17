package server_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	ics "github.com/arran4/golang-ical"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/oncall"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// events are the events of a calendar, a line each, by UID.
func (w *world) events(path string) map[string]string {
	w.t.Helper()
	code, h, b := w.call("eye", http.MethodGet, path, "")
	if code != http.StatusOK || !strings.HasPrefix(h.Get("Content-Type"), "text/calendar") {
		w.t.Fatalf("%s: %d %s %s", path, code, h.Get("Content-Type"), b)
	}
	cal, err := ics.ParseCalendar(strings.NewReader(string(b)))
	if err != nil {
		w.t.Fatalf("%v in\n%s", err, b)
	}
	out := map[string]string{}
	for _, e := range cal.Events() {
		start, err := e.GetStartAt()
		if err != nil {
			w.t.Fatal(err)
		}
		end, err := e.GetEndAt()
		if err != nil {
			w.t.Fatal(err)
		}
		if _, double := out[e.Id()]; double {
			w.t.Errorf("the UID %s is there twice", e.Id())
		}
		out[e.Id()] = fmt.Sprint(start.UTC().Format("01-02 15:04"), " ", end.Sub(start).Hours(), " ", e.GetProperty(ics.ComponentPropertySummary).Value)
	}
	return out
}

func TestCalendars(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	today := time.Now().In(berlin)
	start := time.Date(today.Year(), today.Month(), today.Day()-10, 9, 0, 0, 0, time.UTC) // a wall clock
	w.file.Schedules = []oncall.Schedule{
		{ID: "first", Name: "First, line", Zone: berlin, Layers: []oncall.Layer{{Name: "days", Users: [][]string{{"ana"}, {"bo"}}, Every: oncall.Every{N: 1, Unit: "day"}, Start: start}}},
		{ID: "always", Name: "Always", Zone: time.UTC, Layers: []oncall.Layer{{Name: "all", Users: [][]string{{"ana"}}}}},
	}
	first := w.events("/v1/schedules/first.ics")
	next := time.Date(today.Year(), today.Month(), today.Day()+2, 9, 0, 0, 0, berlin) // an even number of days later: ana's
	uid := "first-ana-" + next.UTC().Format("20060102T150405Z") + "@tocsin"
	until := time.Date(today.Year(), today.Month(), today.Day()+3, 9, 0, 0, 0, berlin)
	if want := fmt.Sprint(next.UTC().Format("01-02 15:04"), " ", until.Sub(next).Hours(), " Ana Torres is on call: First, line"); first[uid] != want {
		t.Errorf("%s is %q, want %q", uid, first[uid], want)
	}
	if len(first) < 100 || len(first) > 104 {
		t.Errorf("%d events in 10 days behind and 92 ahead", len(first))
	}

	// An override that shortens the shift changes the event and not its UID.
	want[api.Override](w, http.StatusCreated, "hand", http.MethodPost, "/v1/schedules/first/overrides", fmt.Sprintf(`{"user": "bo", "start": %q, "for": "3h"}`, next.Add(5*time.Hour).UTC().Format(time.RFC3339)))
	ana := w.events("/v1/users/ana.ics")
	if got := ana[uid]; !strings.Contains(got, " 5 On call: First, line") {
		t.Errorf("with an override it is %q", got)
	}
	if got := ana["always-ana-always@tocsin"]; !strings.HasSuffix(got, fmt.Sprint((31+92)*24)+" On call: Always") {
		t.Errorf("a shift without beginning and end is %q", got)
	}
	for uid := range ana {
		if strings.Contains(uid, "-bo-") {
			t.Errorf("ana's calendar has %s", uid)
		}
	}
	// The same calendar has the same UIDs.
	if a, b := w.events("/v1/users/ana.ics"), ana; len(a) != len(b) || slices.ContainsFunc(keys(a), func(k string) bool { return b[k] == "" }) {
		t.Errorf("asked again it is another: %d, %d", len(a), len(b))
	}

	made := want[api.MadeToken](w, http.StatusCreated, "root", http.MethodPost, "/v1/tokens", `{"name": "ana-calendar", "scopes": ["calendar"]}`)
	more := want[api.MadeToken](w, http.StatusCreated, "root", http.MethodPost, "/v1/tokens", `{"name": "more", "scopes": ["calendar", "read"]}`)
	for _, c := range []struct {
		token, path string
		code        int
	}{
		{"", "/v1/users/ana.ics?token=" + made.Token, http.StatusOK},
		{"", "/v1/schedules/first.ics?token=" + made.Token, http.StatusOK},
		{made.Token, "/v1/schedules/first.ics", http.StatusOK},
		{made.Token, "/v1/incidents", http.StatusForbidden},
		{made.Token, "/v1/oncall", http.StatusForbidden},
		{"", "/v1/incidents?token=" + made.Token, http.StatusUnauthorized},
		{"", "/v1/users/ana.ics?token=" + more.Token, http.StatusForbidden},
		{"", "/v1/users/ana.ics?token=" + fileTokens["root"], http.StatusForbidden},
		{more.Token, "/v1/users/ana.ics", http.StatusOK},
		{"in", "/v1/users/ana.ics", http.StatusForbidden},
		{"", "/v1/users/ana.ics", http.StatusUnauthorized},
		{"", "/v1/users/ana.ics?token=wrong", http.StatusUnauthorized},
		{"eye", "/v1/users/zoe.ics", http.StatusNotFound},
		{"eye", "/v1/schedules/none.ics", http.StatusNotFound},
		{"eye", "/v1/schedules/first", http.StatusNotFound},
	} {
		if code, _, b := w.call(c.token, http.MethodGet, c.path, ""); code != c.code {
			t.Errorf("%s with the token %q: %d, want %d: %s", c.path, c.token, code, c.code, b)
		}
	}
}

func keys(m map[string]string) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	return out
}

// An imported calendar says who is on call, and what is wrong with it is said wherever that is asked.
func TestOnCallByAnImportedCalendar(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	now := time.Now().UTC().Truncate(time.Second)
	w.file.Calendars = map[string]config.Calendar{"c": {URL: "https://example.com/s3cr3t", Zone: time.UTC}}
	w.file.Schedules = []oncall.Schedule{{ID: "rota", Name: "Rota", Zone: time.UTC, Layers: []oncall.Layer{{Name: "calendar", Calendar: "c"}}}}
	onCall := func() api.OnCall {
		t.Helper()
		return want[api.List[api.OnCall]](w, http.StatusOK, "eye", http.MethodGet, "/v1/oncall?schedule=rota", "").Items[0]
	}
	if o := onCall(); len(o.Users) != 0 || len(o.Calendars) != 1 || o.Calendars[0].FetchedAt != nil || len(o.Calendars[0].Notes) != 1 {
		t.Errorf("before it was fetched: %+v", o)
	}
	if err := w.store.InTx(t.Context(), func(tx *store.Tx) error {
		if err := tx.ListCalendars(t.Context(), []string{"c"}); err != nil {
			return err
		}
		all, err := tx.ClaimCalendars(t.Context(), []string{"c"}, time.Minute, 1)
		if err != nil {
			return err
		}
		_, err = tx.PutCalendar(t.Context(), all[0], &oncall.Calendar{Events: []oncall.Event{
			{Start: now.Add(-time.Hour), End: now.Add(time.Hour), Summary: "Ana Torres"}, {Start: now.Add(2 * time.Hour), End: now.Add(3 * time.Hour), Summary: "Zoe"},
		}}, time.Minute)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	o := onCall()
	if len(o.Users) != 1 || o.Users[0].ID != "ana" || o.Layer != "calendar" || o.Until == nil || !o.Until.Equal(now.Add(time.Hour)) {
		t.Errorf("on call: %+v", o)
	}
	if c := o.Calendars; len(c) != 1 || c[0].FetchedAt == nil || len(c[0].Problems) != 1 || !strings.Contains(c[0].Problems[0], `The event "Zoe"`) {
		t.Errorf("how it stands: %+v", c)
	}
	if l := want[api.List[api.Shift]](w, http.StatusOK, "eye", http.MethodGet, "/v1/schedules/rota/shifts", ""); len(l.Items) != 1 || l.Items[0].User != "ana" {
		t.Errorf("shifts: %+v", l.Items)
	}
	if feed := w.events("/v1/schedules/rota.ics"); len(feed) != 1 {
		t.Errorf("the feed: %v", feed)
	}
	past := want[api.List[api.OnCall]](w, http.StatusOK, "eye", http.MethodGet, "/v1/oncall?at="+now.Add(-2*time.Hour).Format(time.RFC3339), "").Items[0]
	if len(past.Users) != 0 || len(past.Calendars) != 0 {
		t.Errorf("two hours ago: %+v", past)
	}
}

// The feeds are in the description of the API, as what they are.
func TestCalendarsAreDescribed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := want[struct {
		Paths map[string]map[string]struct {
			ID         string `json:"operationId"`
			Responses  map[string]struct{ Content map[string]any }
			Security   []map[string][]string
			Parameters []struct{ Name, In string }
		}
		Components struct {
			SecuritySchemes map[string]struct{ Type, In, Name string }
		}
	}](w, http.StatusOK, "", http.MethodGet, "/openapi.json", "")
	ids := map[string]bool{}
	for path, operations := range d.Paths {
		for method, o := range operations {
			if ids[o.ID] {
				t.Errorf("%s %s: the id %s is there twice", method, path, o.ID)
			}
			ids[o.ID] = true
		}
	}
	for _, path := range []string{"/v1/schedules/{id}.ics", "/v1/users/{id}.ics"} {
		o, ok := d.Paths[path]["get"]
		if _, feed := o.Responses["200"].Content["text/calendar"]; !ok || !feed || len(o.Parameters) != 1 || o.Parameters[0].Name != "id" {
			t.Errorf("%s: %+v", path, o)
		}
		var ways []string
		for _, s := range o.Security {
			for name := range s {
				ways = append(ways, name)
			}
		}
		if !slices.Equal(ways, []string{"token", "calendar"}) {
			t.Errorf("%s is opened by %v", path, ways)
		}
	}
	if s := d.Components.SecuritySchemes["calendar"]; s.Type != "apiKey" || s.In != "query" || s.Name != "token" {
		t.Errorf("the token in the address: %+v", s)
	}
}
