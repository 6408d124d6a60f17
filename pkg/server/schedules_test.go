package server_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/oncall"
)

// pair adds a schedule of two people by the day, on weekdays of 2040 at working hours.
func (w *world) pair() {
	hours := &oncall.Window{Days: [7]bool{false, true, true, true, true, true, false}, From: 9 * 60, Until: 17 * 60, Zone: time.UTC}
	w.file.Schedules = append(w.file.Schedules, oncall.Schedule{ID: "pair", Name: "pair", Zone: time.UTC, Layers: []oncall.Layer{{
		Name: "days", Users: [][]string{{"ana"}, {"bo"}}, Every: oncall.Every{N: 1, Unit: "day"}, Start: time.Date(2040, 1, 2, 0, 0, 0, 0, time.UTC), Active: hours,
	}}})
}

// listed is the shifts of two days, a line each.
func (w *world) listed() []string {
	w.t.Helper()
	var all []string
	for _, s := range want[api.List[api.Shift]](w, http.StatusOK, "eye", http.MethodGet, "/v1/schedules/pair/shifts?from=2040-01-02T00:00:00Z&until=2040-01-04T00:00:00Z", "").Items {
		all = append(all, fmt.Sprintf("%s %s %s %s %t", s.Start.Format("02 15:04"), s.End.Format("02 15:04"), s.User, s.Layer, s.Override))
	}
	return all
}

func (w *world) lines(got []string, wanted ...string) {
	w.t.Helper()
	if !slices.Equal(got, wanted) {
		w.t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(wanted, "\n  "))
	}
}

func TestOverrides(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pair()
	const path = "/v1/schedules/pair/overrides"
	w.lines(w.listed(), "02 09:00 02 17:00 ana days false", "03 09:00 03 17:00 bo days false")

	keeps := want[api.Override](w, http.StatusCreated, "hand", http.MethodPost, path, `{"user": "bo", "start": "2040-01-02T12:00:00Z", "end": "2040-01-02T20:00:00Z", "reason": "dentist", "by": "ana"}`)
	if keeps.Author != "Ana Torres" || keeps.State != "pending" || keeps.Name != "Bo Lind" || keeps.Reason != "dentist" || keeps.Add {
		t.Errorf("made: %+v", keeps)
	}
	w.lines(w.listed(), "02 09:00 02 12:00 ana days false", "02 12:00 02 17:00 bo override true", "03 09:00 03 17:00 bo days false")
	covers := want[api.Override](w, http.StatusCreated, "hand", http.MethodPost, path, `{"user": "ana", "start": "2040-01-02T15:00:00+02:00", "for": "5h", "add": true}`)
	w.lines(w.listed(), "02 09:00 02 12:00 ana days false", "02 12:00 02 13:00 bo override true", "02 13:00 02 18:00 ana override true", "03 09:00 03 17:00 bo days false")

	on := want[api.List[api.OnCall]](w, http.StatusOK, "eye", http.MethodGet, "/v1/oncall?schedule=pair&at=2040-01-02T17:30:00Z", "").Items[0]
	if len(on.Users) != 1 || on.Users[0].ID != "ana" || on.Layer != "override" || on.Until.Format("15:04") != "18:00" {
		t.Errorf("on call: %+v", on)
	}
	var gaps []string
	for _, g := range want[api.List[api.Gap]](w, http.StatusOK, "eye", http.MethodGet, "/v1/schedules/pair/gaps?from=2040-01-02T00:00:00Z&until=2040-01-04T00:00:00Z", "").Items {
		from := "ever"
		if g.Start != nil {
			from = g.Start.Format("02 15:04")
		}
		gaps = append(gaps, from+" "+g.End.Format("02 15:04"))
	}
	w.lines(gaps, "ever 02 09:00", "02 18:00 03 09:00", "03 17:00 04 09:00")
	var hours []string
	for _, h := range want[api.List[api.Hours]](w, http.StatusOK, "eye", http.MethodGet, "/v1/schedules/pair/hours?from=2040-01-02T00:00:00Z&until=2040-01-03T10:30:00Z", "").Items {
		hours = append(hours, fmt.Sprint(h.User, h.Name, h.Hours, h.Shifts))
	}
	w.lines(hours, fmt.Sprint("ana", "Ana Torres", 8.0, 2), fmt.Sprint("bo", "Bo Lind", 2.5, 2))

	if l := want[api.List[api.Override]](w, http.StatusOK, "eye", http.MethodGet, path, ""); len(l.Items) != 2 || l.Items[0].ID != covers.ID || l.Items[0].Name != "Ana Torres" {
		t.Errorf("listed: %+v", l.Items)
	}
	for range 2 { // the second one changes nothing
		if ended := want[api.Override](w, http.StatusOK, "hand", http.MethodDelete, path+"/"+covers.ID+"?by=bo", ""); ended.State != "ended" || ended.EndedBy != "Bo Lind" {
			t.Errorf("ended: %+v", ended)
		}
	}
	w.lines(w.listed(), "02 09:00 02 12:00 ana days false", "02 12:00 02 17:00 bo override true", "03 09:00 03 17:00 bo days false")
	if l := want[api.List[api.Override]](w, http.StatusOK, "eye", http.MethodGet, path+"?ended=true&limit=1", ""); len(l.Items) != 1 || l.NextCursor == "" {
		t.Errorf("listed: %+v", l)
	}
	if n := w.count("select count(*) from audit where action like 'override%' and actor in ('user:ana', 'user:bo', 'token:hand')"); n != 3 {
		t.Errorf("%d audit rows", n)
	}

	for body, location := range map[string]string{
		`{"user": "zoe", "for": "1h"}`:                               "body.user",
		`{"user": "bo"}`:                                             "body.end",
		`{"user": "bo", "for": "soon"}`:                              "body.for",
		`{"user": "bo", "for": "1h", "end": "2040-01-02T20:00:00Z"}`: "body.for",
		`{"user": "bo", "start": "2040-01-02T12:00:00Z", "end": "2040-01-02T12:00:00Z"}`: "body.end",
		`{"user": "bo", "start": "2040-01-02T12:00:00Z", "end": "2042-01-02T12:00:00Z"}`: "body.end",
		`{"user": "bo", "for": "1h", "instead_of": "bo"}`:                                "body.instead_of",
		`{"user": "bo", "for": "1h", "instead_of": "ana", "add": true}`:                  "body.add",
		`{"user": "bo", "for": "1h", "by": "nobody"}`:                                    "body.by",
		`{"user": "bo", "for": "1h", "instead_of": "zoe"}`:                               "body.instead_of",
	} {
		p := w.refused(http.StatusUnprocessableEntity, api.ProblemInvalid, "hand", http.MethodPost, path, body)
		if len(p.Errors) != 1 || p.Errors[0].Location != location {
			t.Errorf("%s: %+v", body, p)
		}
	}
	w.refused(http.StatusForbidden, api.ProblemForbidden, "eye", http.MethodPost, path, `{"user": "bo", "for": "1h"}`)
	w.refused(http.StatusNotFound, api.ProblemNotFound, "hand", http.MethodPost, "/v1/schedules/none/overrides", `{"user": "bo", "for": "1h"}`)
	w.refused(http.StatusNotFound, api.ProblemNotFound, "hand", http.MethodDelete, path+"/0190f3a2-0000-7000-8000-000000000000", "")
	w.refused(http.StatusNotFound, api.ProblemNotFound, "hand", http.MethodDelete, "/v1/schedules/primary/overrides/"+keeps.ID, "")
	for _, what := range []string{"shifts", "gaps", "hours", "overrides"} {
		w.refused(http.StatusNotFound, api.ProblemNotFound, "eye", http.MethodGet, "/v1/schedules/none/"+what, "")
	}
	w.refused(http.StatusUnprocessableEntity, api.ProblemInvalid, "eye", http.MethodGet, "/v1/schedules/pair/shifts?from=2040-01-02T00:00:00Z&until=2042-01-02T00:00:00Z", "")
	w.refused(http.StatusUnprocessableEntity, api.ProblemInvalid, "eye", http.MethodGet, "/v1/schedules/pair/hours?from=2040-01-02T00:00:00Z&until=2040-01-01T00:00:00Z", "")

	// Whoever is not in the file any more is nobody to page: the layers count again.
	w.file.Users = slices.DeleteFunc(slices.Clone(w.file.Users), func(u config.User) bool { return u.ID == "bo" })
	if got := w.listed()[0]; got != "02 09:00 02 17:00 ana days false" {
		t.Errorf("an override of somebody who is gone: %s", got)
	}
}

// The years of JSON end with 9999: what begins near its end would make each list that it is in unreadable.
func TestAnOverrideBeginsWithinReason(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pair()
	p := w.refused(422, "urn:tocsin:problem:invalid", "hand", http.MethodPost, "/v1/schedules/pair/overrides", `{"user": "bo", "start": "9999-12-31T00:00:00Z", "for": "300d"}`)
	if len(p.Errors) != 1 || !strings.HasSuffix(p.Errors[0].Location, "start") {
		t.Errorf("%+v", p)
	}
}

func TestSwap(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pair()
	const path = "/v1/schedules/pair/swaps"
	both := want[api.List[api.Override]](w, http.StatusCreated, "hand", http.MethodPost, path, `{"user": "ana", "at": "2040-01-02T12:00:00Z", "with": "bo", "with_at": "2040-01-03T12:00:00Z", "reason": "a wedding"}`)
	if len(both.Items) != 2 || both.Items[0].SwapID == "" || both.Items[0].SwapID != both.Items[1].SwapID || both.Items[0].User != "bo" || both.Items[0].InsteadOf != "ana" {
		t.Fatalf("made: %+v", both)
	}
	w.lines(w.listed(), "02 09:00 02 17:00 bo override true", "03 09:00 03 17:00 ana override true")
	for body, location := range map[string]string{
		`{"user": "ana", "at": "2040-01-02T12:00:00Z", "with": "bo", "with_at": "2040-01-05T12:00:00Z"}`:  "body.at", // it is bo's by now
		`{"user": "bo", "at": "2040-01-02T12:00:00Z", "with": "ana", "with_at": "2040-01-05T12:00:00Z"}`:  "body.with_at",
		`{"user": "bo", "at": "2040-01-02T12:00:00Z", "with": "bo", "with_at": "2040-01-05T12:00:00Z"}`:   "body.with",
		`{"user": "zoe", "at": "2040-01-02T12:00:00Z", "with": "bo", "with_at": "2040-01-05T12:00:00Z"}`:  "body.user",
		`{"user": "ana", "at": "2040-01-02T12:00:00Z", "with": "zoe", "with_at": "2040-01-05T12:00:00Z"}`: "body.with",
	} {
		p := w.refused(http.StatusUnprocessableEntity, api.ProblemInvalid, "hand", http.MethodPost, path, body)
		if len(p.Errors) != 1 || p.Errors[0].Location != location {
			t.Errorf("%s: %+v", body, p)
		}
	}
	w.refused(http.StatusNotFound, api.ProblemNotFound, "hand", http.MethodPost, "/v1/schedules/none/swaps", `{"user": "ana", "at": "2040-01-02T12:00:00Z", "with": "bo", "with_at": "2040-01-03T12:00:00Z"}`)
	// What is over is nobody's to give away, and who shares a shift has nothing to swap.
	w.file.Schedules = append(w.file.Schedules,
		oncall.Schedule{ID: "old", Zone: time.UTC, Layers: []oncall.Layer{{Users: [][]string{{"ana"}, {"bo"}}, Every: oncall.Every{N: 1, Unit: "day"}, Start: time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)}}},
		oncall.Schedule{ID: "shared", Zone: time.UTC, Layers: []oncall.Layer{{Users: [][]string{{"ana", "bo"}, {"ana"}}, Every: oncall.Every{N: 1, Unit: "day"}, Start: time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC)}}})
	for schedule, c := range map[string][3]string{
		"old":    {`{"user": "ana", "at": "2020-01-01T12:00:00Z", "with": "bo", "with_at": "2020-01-02T12:00:00Z"}`, "body.at", "is over"},
		"shared": {`{"user": "ana", "at": "2040-01-01T12:00:00Z", "with": "bo", "with_at": "2040-01-01T13:00:00Z"}`, "body.with_at", "share this shift"},
	} {
		p := w.refused(http.StatusUnprocessableEntity, api.ProblemInvalid, "hand", http.MethodPost, "/v1/schedules/"+schedule+"/swaps", c[0])
		if len(p.Errors) != 1 || p.Errors[0].Location != c[1] || !strings.Contains(p.Errors[0].Message, c[2]) {
			t.Errorf("%s: %+v", schedule, p)
		}
	}
	// The halves end together.
	want[api.Override](w, http.StatusOK, "hand", http.MethodDelete, "/v1/schedules/pair/overrides/"+both.Items[1].ID, "")
	w.lines(w.listed(), "02 09:00 02 17:00 ana days false", "03 09:00 03 17:00 bo days false")
}

// Rule 16: who is on call by an override is explained too, now and for a moment that is past.
func TestOverridesAreExplained(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	paged := func(at time.Time) string {
		t.Helper()
		e := want[api.Explanation](w, http.StatusOK, "eye", http.MethodGet, "/v1/explain?kind=disk&criticality=critical&job=db&at="+at.UTC().Format("2006-01-02T15:04:05Z"), "")
		if len(e.People) != 1 {
			t.Fatalf("%+v", e.People)
		}
		return e.People[0].ID
	}
	now, err := w.store.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want[api.Override](w, http.StatusCreated, "hand", http.MethodPost, "/v1/schedules/primary/overrides", fmt.Sprintf(`{"user": "bo", "start": %q, "end": %q}`,
		now.Add(-72*time.Hour).UTC().Format(time.RFC3339), now.Add(24*time.Hour).UTC().Format(time.RFC3339)))
	if got := paged(now.Add(time.Hour)); got != "bo" {
		t.Errorf("in an hour %s is paged", got)
	}
	if got := paged(now.Add(48 * time.Hour)); got != "ana" {
		t.Errorf("when it is over %s is paged", got)
	}
	if got := paged(now.Add(-24 * time.Hour)); got != "ana" {
		t.Errorf("yesterday, when nobody had made the override, %s was paged", got)
	}
	w.count("with u as (update schedule_override set created_at = $1 returning 1) select count(*) from u", now.Add(-48*time.Hour))
	if got := paged(now.Add(-24 * time.Hour)); got != "bo" {
		t.Errorf("yesterday, with the override made before, %s was paged", got)
	}
	if got := paged(now.Add(-60 * time.Hour)); got != "ana" {
		t.Errorf("before it was made %s was paged", got)
	}
}
