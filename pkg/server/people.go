package server

import (
	"context"
	"net/http"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/oncall"
)

func (s *Server) peopleRoutes() {
	route(s, http.MethodGet, "/v1/oncall", api.ScopeRead, "Who is on call", http.StatusOK, s.onCall)
	route(s, http.MethodPost, "/v1/users/{id}/link", api.ScopeOperate, "Link a chat account to a user", http.StatusOK, s.linkAccount)
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
	return out, nil
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
