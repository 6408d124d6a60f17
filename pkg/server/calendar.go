package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	ics "github.com/arran4/golang-ical"
	"github.com/danielgtaylor/huma/v2"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/oncall"
)

const (
	calendarBehind = 31 * 24 * time.Hour
	calendarAhead  = 92 * 24 * time.Hour
	calendarMost   = 5000 // events: hourly turns of 123 days are fewer
)

// describeCalendars puts the calendars into the description of the API. They are served beside it, since the token may stand in the
// address and the answer is no JSON.
func (s *Server) describeCalendars() {
	d := s.api.OpenAPI()
	d.Components.SecuritySchemes["calendar"] = &huma.SecurityScheme{
		Type: "apiKey", In: "query", Name: "token", Description: "A token of the scope calendar and no other, for calendar programs, which can send no header.",
	}
	refusal := func(text string) *huma.Response {
		return &huma.Response{Description: text, Content: map[string]*huma.MediaType{"application/problem+json": {}}}
	}
	for path, what := range map[string]string{
		"/v1/schedules/{id}.ics": "Subscribe to the shifts of a schedule",
		"/v1/users/{id}.ics":     "Subscribe to the shifts of a person",
	} {
		d.AddOperation(&huma.Operation{
			OperationID: operationID(http.MethodGet, path), Method: http.MethodGet, Path: path, Summary: what,
			Description: "An iCalendar feed (RFC 5545) of the last 31 days and the coming 92, overrides included. Needs a token with the scope calendar or read; in the address, one that has calendar alone.",
			Security:    []map[string][]string{{"token": {}}, {"calendar": {}}},
			Parameters:  []*huma.Param{{Name: "id", In: "path", Required: true, Description: "Its id in the file.", Schema: &huma.Schema{Type: huma.TypeString}}},
			Responses: map[string]*huma.Response{
				"200": {Description: "The calendar.", Content: map[string]*huma.MediaType{"text/calendar": {Schema: &huma.Schema{Type: huma.TypeString}}}},
				"401": refusal("No token, or one that is unknown."), "403": refusal("The token may not read calendars, or may do more and stands in the address."),
				"404": refusal("The file has no such schedule or user."), "503": refusal("The database can't be asked now."),
			},
		})
	}
}

// scheduleCalendar is GET /v1/schedules/{id}.ics: the shifts of one schedule.
func (s *Server) scheduleCalendar(w http.ResponseWriter, r *http.Request) {
	s.calendar(w, r, func(f *config.File, id string) (*calendar, error) {
		sch, ok := f.Schedule(id)
		if !ok {
			return nil, noSchedule(id)
		}
		return &calendar{name: "On call: " + sch.Name, zone: sch.Zone, schedules: []oncall.Schedule{sch}}, nil
	})
}

// userCalendar is GET /v1/users/{id}.ics: the shifts of one person, of all schedules.
func (s *Server) userCalendar(w http.ResponseWriter, r *http.Request) {
	s.calendar(w, r, func(f *config.File, id string) (*calendar, error) {
		u, ok := f.User(id)
		if !ok {
			return nil, problem(http.StatusNotFound, "", "the file has no user "+id)
		}
		c := &calendar{name: "On call: " + userName(f, id), user: id, schedules: f.Schedules}
		if u.TimeZone != "" {
			if zone, err := time.LoadLocation(u.TimeZone); err == nil { // the file's check has loaded it
				c.zone = zone
			}
		}
		return c, nil
	})
}

// calendar is what a feed shows.
type calendar struct {
	name      string
	zone      *time.Location // in which a program may show it; the events are in UTC
	schedules []oncall.Schedule
	user      string // only the shifts of this person; empty: everybody's
}

// calendar answers with a feed.
func (s *Server) calendar(w http.ResponseWriter, r *http.Request, find func(f *config.File, id string) (*calendar, error)) {
	refuse := func(err error) {
		var p *api.Problem
		if !errors.As(err, &p) {
			p = problem(http.StatusInternalServerError, "", "this is a mistake of tocsin's; its log says more")
		}
		writeProblem(w, p)
	}
	id, ok := strings.CutSuffix(r.PathValue("file"), ".ics")
	if !ok || id == "" {
		refuse(problem(http.StatusNotFound, "", "there is nothing here: a calendar's address ends with .ics"))
		return
	}
	if p := s.admitCalendar(r); p != nil {
		refuse(p)
		return
	}
	now := time.Now()
	overrides, err := s.store.OverridesFrom(r.Context(), now.Add(-calendarBehind))
	if err != nil {
		refuse(s.fail(r.Context(), "reading the calendar", err))
		return
	}
	f := s.file().WithOverrides(overrides)
	c, err := find(f, id)
	if err != nil {
		refuse(err)
		return
	}
	w.Header().Set("Content-Type", "text/calendar; charset=utf-8")
	_, _ = w.Write([]byte(c.text(r.Context(), f, now)))
}

// admitCalendar lets in who may read calendars. A token may stand in the address if it can do nothing else: addresses end up in
// logs and histories.
func (s *Server) admitCalendar(r *http.Request) *api.Problem {
	header, token := r.Header.Get("Authorization"), r.URL.Query().Get("token")
	inAddress := header == "" && token != ""
	if inAddress {
		header = "Bearer " + token
	}
	c, p := s.admit(r.Context(), header, api.ScopeCalendar)
	if p == nil && inAddress && !s.insecure && !slices.Equal(c.Scopes, []string{api.ScopeCalendar}) {
		p = problem(http.StatusForbidden, "", "the token "+c.Name+" may do more than read calendars, so it does not belong into an address: make one with `tocsin token create NAME --scopes calendar`")
	}
	return p
}

// text is the feed as RFC 5545 writes it.
func (c *calendar) text(ctx context.Context, f *config.File, now time.Time) string {
	cal := ics.NewCalendarFor("tocsin")
	cal.SetMethod(ics.MethodPublish)
	cal.SetXWRCalName(c.name)
	if c.zone != nil {
		cal.SetXWRTimezone(c.zone.String())
	}
	cal.SetRefreshInterval("PT1H", ics.WithValue(string(ics.ValueDataTypeDuration)))
	cal.SetXPublishedTTL("PT1H")
	from, until := now.Add(-calendarBehind), now.Add(calendarAhead)
	events := 0
	for _, sch := range c.schedules {
		for _, shift := range sch.Shifts(from, until) {
			for _, user := range shift.Users {
				if c.user != "" && user != c.user {
					continue
				}
				if events++; events > calendarMost || ctx.Err() != nil {
					return cal.Serialize()
				}
				c.add(cal, f, sch, shift, user, from, until, now)
			}
		}
	}
	return cal.Serialize()
}

// add puts one person's shift into the feed. Its UID says whose and which shift it is, and not how long it lasts.
func (c *calendar) add(cal *ics.Calendar, f *config.File, sch oncall.Schedule, shift oncall.Shift, user string, from, until, now time.Time) {
	begins := "always"
	if !shift.Start.IsZero() {
		begins = shift.Start.UTC().Format("20060102T150405Z")
	}
	e := cal.AddEvent(fmt.Sprintf("%s-%s-%s@tocsin", sch.ID, user, begins))
	e.SetDtStampTime(now)
	start, end := shift.Start, shift.End
	if start.IsZero() {
		start = from
	}
	if end.IsZero() {
		end = until
	}
	e.SetStartAt(start)
	e.SetEndAt(end)
	title := "On call: " + sch.Name
	if c.user == "" {
		title = userName(f, user) + " is on call: " + sch.Name
	}
	e.SetSummary(title)
	e.SetDescription("Layer: " + shift.Layer)
	e.SetTimeTransparency(ics.TransparencyTransparent)
}
