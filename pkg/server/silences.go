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
)

func (s *Server) silenceRoutes() {
	route(s, http.MethodGet, "/v1/silences", api.ScopeRead, "List silences", http.StatusOK, s.listSilences)
	route(s, http.MethodPost, "/v1/silences", api.ScopeOperate, "Keep alerts back for a time", http.StatusCreated, s.addSilence)
	route(s, http.MethodPatch, "/v1/silences/{id}", api.ScopeOperate, "Move the end of a silence, or give another reason", http.StatusOK, s.editSilence)
	route(s, http.MethodDelete, "/v1/silences/{id}", api.ScopeOperate, "End a silence before its time", http.StatusOK, s.endSilence)
}

type silencesInput struct {
	Ended  bool   `query:"ended" doc:"Also those that are over."`
	Limit  int    `query:"limit" minimum:"1" maximum:"200" default:"50"`
	Cursor string `query:"cursor" maxLength:"100"`
}

func (s *Server) listSilences(ctx context.Context, in *silencesInput) (*body[api.List[api.Silence]], error) {
	l, err := s.store.ListSilences(ctx, in.Ended, in.Limit, in.Cursor)
	if err != nil {
		return nil, s.fail(ctx, "listing silences", err)
	}
	return &body[api.List[api.Silence]]{Body: l}, nil
}

func (s *Server) addSilence(ctx context.Context, in *struct{ Body api.NewSilence }) (*body[api.Silence], error) {
	const doing = "making the silence"
	by, err := s.speaker(ctx, in.Body.By, doing, "body.by")
	if err != nil {
		return nil, err
	}
	n := intake.NewSilence{Match: in.Body.Match, Matchers: in.Body.Matchers, From: in.Body.From, Until: in.Body.Until, Reason: in.Body.Reason}
	if n.For, err = silenceFor(in.Body.For); err != nil {
		return nil, s.intakeError(ctx, doing, err)
	}
	id, err := s.intake.AddSilence(ctx, n, by)
	if err != nil {
		return nil, s.intakeError(ctx, doing, err)
	}
	s.log.Infow("silence made", "silence", id.String(), "by", by.ID, "through", callerOf(ctx).actor())
	return s.showSilence(ctx, id, doing)
}

// silenceFor reads how long a silence lasts; zero where nothing is said.
func silenceFor(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := config.ParseDuration(text)
	if err != nil || d < time.Second {
		return 0, &intake.InputError{Field: "for", Message: text + " is no duration of a second or more: write for example 30m, 2h or 1d"}
	}
	return d, nil
}

type editSilenceInput struct {
	ID   string `path:"id" format:"uuid"`
	Body api.EditSilence
}

func (s *Server) editSilence(ctx context.Context, in *editSilenceInput) (*body[api.Silence], error) {
	const doing = "changing the silence"
	by, err := s.speaker(ctx, in.Body.By, doing, "body.by")
	if err != nil {
		return nil, err
	}
	e := intake.SilenceEdit{Until: in.Body.Until, Reason: in.Body.Reason}
	if e.For, err = silenceFor(in.Body.For); err != nil {
		return nil, s.intakeError(ctx, doing, err)
	}
	id := uuid.MustParse(in.ID)
	if err := s.intake.EditSilence(ctx, id, e, by); err != nil {
		var wrong *intake.InputError
		if errors.As(err, &wrong) && wrong.Field == "id" {
			return nil, problem(http.StatusConflict, "", doing+": "+wrong.Message)
		}
		return nil, s.intakeError(ctx, doing, err)
	}
	s.log.Infow("silence changed", "silence", in.ID, "by", by.ID, "through", callerOf(ctx).actor())
	return s.showSilence(ctx, id, doing)
}

type endSilenceInput struct {
	ID string `path:"id" format:"uuid"`
	By string `query:"by" maxLength:"200" doc:"Whose word it is, if not the token's: a user's id."`
}

// endSilence is idempotent: the second one gets the silence with who was first.
func (s *Server) endSilence(ctx context.Context, in *endSilenceInput) (*body[api.Silence], error) {
	const doing = "ending the silence"
	by, err := s.speaker(ctx, in.By, doing, "query.by")
	if err != nil {
		return nil, err
	}
	id := uuid.MustParse(in.ID)
	ended, err := s.intake.EndSilence(ctx, id, by)
	if err != nil {
		return nil, s.fail(ctx, doing, err)
	}
	if ended {
		s.log.Infow("silence ended", "silence", in.ID, "by", by.ID, "through", callerOf(ctx).actor())
	}
	return s.showSilence(ctx, id, doing)
}

func (s *Server) showSilence(ctx context.Context, id uuid.UUID, doing string) (*body[api.Silence], error) {
	w, err := s.store.ReadSilence(ctx, id)
	if err != nil {
		return nil, s.fail(ctx, doing, err)
	}
	return &body[api.Silence]{Body: w}, nil
}

// speaker is whose word a request is: that of the user it names, else the token's. location is where it names one.
func (s *Server) speaker(ctx context.Context, user, doing, location string) (intake.Actor, error) {
	if user == "" {
		return intake.Actor{ID: callerOf(ctx).actor(), Name: callerOf(ctx).Name}, nil
	}
	f := s.file()
	if !hasUser(f, user) {
		p := problem(http.StatusUnprocessableEntity, "", doing+": the request is wrong")
		p.Errors = []api.ProblemItem{{Location: location, Message: "the file has no user " + user + "; leave it out to answer in the token's name"}}
		return intake.Actor{}, p
	}
	return intake.Actor{ID: "user:" + user, Name: userName(f, user)}, nil
}
