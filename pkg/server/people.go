package server

import (
	"context"
	"net/http"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/oncall"
	"github.com/tocsin-oncall/tocsin/pkg/plan"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

func (s *Server) peopleRoutes() {
	route(s, http.MethodGet, "/v1/oncall", api.ScopeRead, "Who is on call", http.StatusOK, s.onCall)
}

type onCallInput struct {
	Schedule string    `query:"schedule" doc:"Only this schedule."`
	At       time.Time `query:"at" doc:"At this instant; now, if not given."`
}

func (s *Server) onCall(ctx context.Context, in *onCallInput) (*body[api.List[api.OnCall]], error) {
	at := in.At
	if at.IsZero() {
		at = time.Now()
	}
	overrides, err := s.store.OverridesFrom(ctx, at)
	if err != nil {
		return nil, s.fail(ctx, "looking who is on call", err)
	}
	f := s.file().WithOverrides(overrides)
	out := &body[api.List[api.OnCall]]{Body: api.List[api.OnCall]{Items: []api.OnCall{}}}
	for _, sch := range f.Schedules {
		if in.Schedule == "" || in.Schedule == sch.ID {
			out.Body.Items = append(out.Body.Items, onCallNow(f, sch, at))
		}
	}
	if in.Schedule != "" && len(out.Body.Items) == 0 {
		return nil, problem(http.StatusNotFound, "", "the file has no schedule "+in.Schedule)
	}
	if in.At.IsZero() {
		if err := s.addProblems(ctx, f, out.Body.Items); err != nil {
			return nil, s.fail(ctx, "looking who can be reached", err)
		}
		if err := s.addCalendars(ctx, overrides, out.Body.Items, at); err != nil {
			return nil, s.fail(ctx, "looking how it stands with calendars", err)
		}
	}
	return out, nil
}

// addProblems adds what is known of people who are on call soon and can't be reached.
func (s *Server) addProblems(ctx context.Context, f *config.File, items []api.OnCall) error {
	var ways []store.Reach
	var told []store.ReachTold
	if err := s.store.InTx(ctx, func(tx *store.Tx) (err error) {
		if told, err = tx.ReachToldRows(ctx); err != nil || len(told) == 0 {
			return err
		}
		ways, err = tx.ReachRows(ctx)
		return err
	}); err != nil {
		return err
	}
	for i, o := range items {
		for _, t := range told {
			for _, r := range ways {
				if t.Schedule == o.Schedule && r.User == t.User && r.Closed && r.Since != nil {
					items[i].Problems = append(items[i].Problems, api.OnCallProblem{
						User: api.Person{ID: r.User, Name: userName(f, r.User)}, Via: r.Via, Reason: r.Reason, Sentence: r.Sentence, Since: r.Since.UTC(),
					})
				}
			}
		}
	}
	return nil
}

// addCalendars adds how it stands with imported calendars.
func (s *Server) addCalendars(ctx context.Context, over oncall.Overlay, items []api.OnCall, now time.Time) error {
	if len(s.file().Calendars) == 0 {
		return nil
	}
	states, err := s.store.CalendarStates(ctx)
	if err != nil {
		return err
	}
	for _, c := range plan.Calendars(s.file(), store.PlannedCalendars(states), over, now) {
		for i := range items {
			if items[i].Schedule == c.Schedule {
				items[i].Calendars = append(items[i].Calendars, api.ImportedCalendar{Layer: c.Layer, FetchedAt: c.FetchedAt, Problems: c.Sentences(), Notes: c.Notes})
			}
		}
	}
	return nil
}

func onCallNow(f *config.File, sch oncall.Schedule, at time.Time) api.OnCall {
	shift, _ := sch.At(at)
	o := api.OnCall{Schedule: sch.ID, Layer: shift.Layer, Users: []api.Person{}}
	for _, id := range shift.Users {
		o.Users = append(o.Users, api.Person{ID: id, Name: userName(f, id)})
	}
	if !shift.Start.IsZero() {
		o.Since = &shift.Start
	}
	if !shift.End.IsZero() {
		o.Until = &shift.End
	}
	return o
}

// userName is a user's name, or the id where the file gives none.
func userName(f *config.File, id string) string {
	for _, u := range f.Users {
		if u.ID == id && u.Name != "" {
			return u.Name
		}
	}
	return id
}

func hasUser(f *config.File, id string) bool {
	for _, u := range f.Users {
		if u.ID == id {
			return true
		}
	}
	return false
}
