package server

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/intake"
	"github.com/tocsin-oncall/tocsin/pkg/oncall"
)

const (
	// spanUsual is how long a span is whose end is not given.
	spanUsual = 28 * 24 * time.Hour
	// spanMost is how long a span may be.
	spanMost = 366 * 24 * time.Hour
)

func (s *Server) scheduleRoutes() {
	route(s, http.MethodGet, "/v1/schedules/{id}/shifts", api.ScopeRead, "List who is on call when", http.StatusOK, s.listShifts)
	route(s, http.MethodGet, "/v1/schedules/{id}/gaps", api.ScopeRead, "List when nobody is on call", http.StatusOK, s.listGaps)
	route(s, http.MethodGet, "/v1/schedules/{id}/hours", api.ScopeRead, "Count the hours of each person", http.StatusOK, s.listHours)
	route(s, http.MethodGet, "/v1/schedules/{id}/overrides", api.ScopeRead, "List overrides", http.StatusOK, s.listOverrides)
	route(s, http.MethodPost, "/v1/schedules/{id}/overrides", api.ScopeOperate, "Put a person on call for a while", http.StatusCreated, s.addOverride)
	route(s, http.MethodDelete, "/v1/schedules/{id}/overrides/{override}", api.ScopeOperate, "End an override before its time", http.StatusOK, s.endOverride)
	route(s, http.MethodPost, "/v1/schedules/{id}/swaps", api.ScopeOperate, "Let two people take each other's shift", http.StatusCreated, s.swapShifts)
}

type spanInput struct {
	ID    string    `path:"id" doc:"A schedule of the file."`
	From  time.Time `query:"from" doc:"Now, if not given."`
	Until time.Time `query:"until" doc:"28 days later, if not given; 366 days later at most."`
}

// span reads the schedule that is asked about, with its overrides, and the span.
func (s *Server) span(ctx context.Context, in *spanInput, doing string) (*config.File, oncall.Schedule, error) {
	if in.From.IsZero() {
		in.From = time.Now()
	}
	if in.Until.IsZero() {
		in.Until = in.From.Add(spanUsual)
	}
	wrong := ""
	switch {
	case !in.Until.After(in.From):
		wrong = "it is not after from"
	case in.Until.Sub(in.From) > spanMost:
		wrong = "it is more than 366 days after from: ask for less at once"
	}
	if wrong != "" {
		p := problem(http.StatusUnprocessableEntity, "", doing+": the request is wrong")
		p.Errors = []api.ProblemItem{{Location: "query.until", Message: wrong}}
		return nil, oncall.Schedule{}, p
	}
	overrides, err := s.store.OverridesFrom(ctx, in.From)
	if err != nil {
		return nil, oncall.Schedule{}, s.fail(ctx, doing, err)
	}
	f := s.file().WithOverrides(overrides)
	sch, ok := f.Schedule(in.ID)
	if !ok {
		return nil, sch, noSchedule(in.ID)
	}
	return f, sch, nil
}

func noSchedule(id string) *api.Problem {
	return problem(http.StatusNotFound, "", "the file has no schedule "+id)
}

func (s *Server) listShifts(ctx context.Context, in *spanInput) (*body[api.List[api.Shift]], error) {
	f, sch, err := s.span(ctx, in, "listing the shifts")
	if err != nil {
		return nil, err
	}
	out := []api.Shift{}
	for _, shift := range sch.Shifts(in.From, in.Until) {
		for _, user := range shift.Users {
			out = append(out, api.Shift{
				User: user, Name: userName(f, user), Start: instant(shift.Start), End: instant(shift.End), Layer: shift.Layer, Override: shift.Override != "", OverrideID: shift.Override,
			})
		}
	}
	return &body[api.List[api.Shift]]{Body: api.List[api.Shift]{Items: out}}, nil
}

func (s *Server) listGaps(ctx context.Context, in *spanInput) (*body[api.List[api.Gap]], error) {
	_, sch, err := s.span(ctx, in, "listing the gaps")
	if err != nil {
		return nil, err
	}
	out := []api.Gap{}
	for _, gap := range sch.Gaps(in.From, in.Until) {
		out = append(out, api.Gap{Start: instant(gap.Start), End: instant(gap.End)})
	}
	return &body[api.List[api.Gap]]{Body: api.List[api.Gap]{Items: out}}, nil
}

func (s *Server) listHours(ctx context.Context, in *spanInput) (*body[api.List[api.Hours]], error) {
	f, sch, err := s.span(ctx, in, "counting the hours")
	if err != nil {
		return nil, err
	}
	out := []api.Hours{}
	for _, l := range sch.Load(in.From, in.Until) {
		out = append(out, api.Hours{User: l.User, Name: userName(f, l.User), Hours: l.Time.Hours(), Shifts: l.Shifts})
	}
	return &body[api.List[api.Hours]]{Body: api.List[api.Hours]{Items: out}}, nil
}

// instant is a bound of a shift; a zero one, which means never, is left out.
func instant(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

type overridesInput struct {
	ID     string `path:"id" doc:"A schedule of the file."`
	Ended  bool   `query:"ended" doc:"Also those that are over."`
	Limit  int    `query:"limit" minimum:"1" maximum:"200" default:"50"`
	Cursor string `query:"cursor" maxLength:"100"`
}

func (s *Server) listOverrides(ctx context.Context, in *overridesInput) (*body[api.List[api.Override]], error) {
	if _, ok := s.file().Schedule(in.ID); !ok {
		return nil, noSchedule(in.ID)
	}
	l, err := s.store.ListOverrides(ctx, in.ID, in.Ended, in.Limit, in.Cursor)
	if err != nil {
		return nil, s.fail(ctx, "listing overrides", err)
	}
	for i := range l.Items {
		l.Items[i].Name = userName(s.file(), l.Items[i].User)
	}
	return &body[api.List[api.Override]]{Body: l}, nil
}

type addOverrideInput struct {
	ID   string `path:"id" doc:"A schedule of the file."`
	Body api.NewOverride
}

func (s *Server) addOverride(ctx context.Context, in *addOverrideInput) (*body[api.Override], error) {
	const doing = "making the override"
	by, err := s.speaker(ctx, in.Body.By, doing, "body.by")
	if err != nil {
		return nil, err
	}
	b := in.Body
	n := intake.NewOverride{User: b.User, InsteadOf: b.InsteadOf, Add: b.Add, Start: b.Start, End: b.End, Reason: b.Reason}
	if b.For != "" {
		if n.For, err = config.ParseDuration(b.For); err != nil || n.For < time.Second {
			return nil, s.intakeError(ctx, doing, &intake.InputError{Field: "for", Message: b.For + " is no duration of a second or more: write for example 30m, 2h or 1d"})
		}
	}
	id, err := s.intake.AddOverride(ctx, in.ID, n, by)
	if err != nil {
		return nil, s.overrideError(ctx, in.ID, doing, err)
	}
	s.overridden()
	s.log.Infow("override made", "override", id.String(), "schedule", in.ID, "user", b.User, "by", by.ID, "through", callerOf(ctx).actor())
	return s.showOverride(ctx, in.ID, id, doing)
}

func (s *Server) overrideError(ctx context.Context, schedule, doing string, err error) error {
	if errors.Is(err, intake.ErrNoSchedule) {
		return noSchedule(schedule)
	}
	return s.intakeError(ctx, doing, err)
}

type endOverrideInput struct {
	ID       string `path:"id" doc:"A schedule of the file."`
	Override string `path:"override" format:"uuid"`
	By       string `query:"by" maxLength:"200" doc:"Whose word it is, if not the token's: a user's id."`
}

// endOverride is idempotent: the second one gets the override with who was first.
func (s *Server) endOverride(ctx context.Context, in *endOverrideInput) (*body[api.Override], error) {
	const doing = "ending the override"
	by, err := s.speaker(ctx, in.By, doing, "query.by")
	if err != nil {
		return nil, err
	}
	id := uuid.MustParse(in.Override)
	ended, err := s.intake.EndOverride(ctx, in.ID, id, by)
	if err != nil {
		return nil, s.fail(ctx, doing, err)
	}
	if ended {
		s.overridden()
		s.log.Infow("override ended", "override", in.Override, "schedule", in.ID, "by", by.ID, "through", callerOf(ctx).actor())
	}
	return s.showOverride(ctx, in.ID, id, doing)
}

type swapInput struct {
	ID   string `path:"id" doc:"A schedule of the file."`
	Body api.NewSwap
}

func (s *Server) swapShifts(ctx context.Context, in *swapInput) (*body[api.List[api.Override]], error) {
	const doing = "swapping the shifts"
	by, err := s.speaker(ctx, in.Body.By, doing, "body.by")
	if err != nil {
		return nil, err
	}
	b := in.Body
	ids, err := s.intake.Swap(ctx, in.ID, intake.NewSwap{User: b.User, With: b.With, At: b.At, WithAt: b.WithAt, Reason: b.Reason}, by)
	if err != nil {
		return nil, s.overrideError(ctx, in.ID, doing, err)
	}
	s.overridden()
	s.log.Infow("shifts swapped", "overrides", ids, "schedule", in.ID, "by", by.ID, "through", callerOf(ctx).actor())
	out := &body[api.List[api.Override]]{}
	for _, id := range ids {
		o, err := s.showOverride(ctx, in.ID, id, doing)
		if err != nil {
			return nil, err
		}
		out.Body.Items = append(out.Body.Items, o.Body)
	}
	return out, nil
}

func (s *Server) showOverride(ctx context.Context, schedule string, id uuid.UUID, doing string) (*body[api.Override], error) {
	w, err := s.store.ReadOverride(ctx, schedule, id)
	if err != nil {
		return nil, s.fail(ctx, doing, err)
	}
	w.Name = userName(s.file(), w.User)
	return &body[api.Override]{Body: w}, nil
}
