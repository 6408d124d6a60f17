package server

import (
	"context"
	"errors"
	"net/http"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/card"
	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/intake"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

func (s *Server) incidentRoutes() {
	route(s, http.MethodGet, "/v1/incidents", api.ScopeRead, "List incidents", http.StatusOK, s.listIncidents)
	route(s, http.MethodGet, "/v1/incidents/{id}", api.ScopeRead, "An incident with its timeline", http.StatusOK, s.showIncident)
	route(s, http.MethodPost, "/v1/incidents/{id}/acknowledge", api.ScopeOperate, "Say that somebody works on it", http.StatusOK, s.acknowledge)
	route(s, http.MethodPost, "/v1/incidents/{id}/snooze", api.ScopeOperate, "Put it off: it rings again unless it is resolved", http.StatusOK, s.snooze)
	route(s, http.MethodPost, "/v1/incidents/{id}/escalate", api.ScopeOperate, "Bring on the next step of its escalation", http.StatusOK, s.escalate)
	route(s, http.MethodPost, "/v1/incidents/{id}/reassign", api.ScopeOperate, "Page one person instead", http.StatusOK, s.reassign)
	route(s, http.MethodPost, "/v1/incidents/{id}/resolve", api.ScopeOperate, "End it by a person's word", http.StatusOK, s.resolve)
}

type incidentsInput struct {
	State  string `query:"state" enum:"open,acknowledged,resolved"`
	Limit  int    `query:"limit" minimum:"1" maximum:"200" default:"50"`
	Cursor string `query:"cursor" maxLength:"100"`
}

func (s *Server) listIncidents(ctx context.Context, in *incidentsInput) (*body[api.List[api.Incident]], error) {
	l, err := s.store.ListIncidents(ctx, store.IncidentFilter{State: in.State, Limit: in.Limit, Cursor: in.Cursor})
	if err != nil {
		return nil, s.fail(ctx, "listing incidents", err)
	}
	return &body[api.List[api.Incident]]{Body: l}, nil
}

// maxAlerts bounds the alerts that come with one incident.
const maxAlerts = 500

func (s *Server) showIncident(ctx context.Context, in *idInput) (*body[api.Incident], error) {
	const doing = "showing the incident"
	id := uuid.MustParse(in.ID)
	inc, err := s.store.ReadIncident(ctx, id)
	if err != nil {
		return nil, s.fail(ctx, doing, err)
	}
	var alerts []store.Alert
	silenced := map[string]*api.Silenced{}
	err = s.store.InTx(ctx, func(tx *store.Tx) (err error) {
		if alerts, err = tx.Alerts(ctx, id, maxAlerts); err != nil {
			return err
		}
		kept, err := tx.SilencedAlerts(ctx, id)
		for _, k := range kept {
			silenced[k.Fingerprint] = &api.Silenced{SilenceID: k.SilenceID.String(), By: k.Author, Until: k.EndsAt.UTC(), Reason: k.Reason}
		}
		return err
	})
	if err != nil {
		return nil, s.fail(ctx, doing, err)
	}
	inc.Alerts = make([]api.IncidentAlert, len(alerts))
	for i, a := range alerts {
		w := api.IncidentAlert{Status: a.Status, Title: a.Title, Criticality: a.Criticality, Labels: a.Labels, StartsAt: a.StartsAt.UTC(), Count: a.Count}
		if a.EndsAt != nil {
			at := a.EndsAt.UTC()
			w.EndsAt = &at
		}
		if a.Status == "firing" {
			w.Silenced = silenced[a.Fingerprint]
		}
		if w.Labels == nil {
			w.Labels = map[string]string{}
		}
		inc.Alerts[i] = w
	}
	return &body[api.Incident]{Body: inc}, nil
}

type actInput struct {
	ID   string              `path:"id" format:"uuid"`
	Body *api.IncidentAction // may be left out
}

// act is how an incident is answered: intake's Acknowledge or Resolve.
type act func(ctx context.Context, id uuid.UUID, by intake.Actor, reason string) (intake.Answer, error)

func (s *Server) acknowledge(ctx context.Context, in *actInput) (*body[api.Incident], error) {
	return s.answerIncident(ctx, in, "acknowledging the incident", s.intake.Acknowledge)
}

func (s *Server) resolve(ctx context.Context, in *actInput) (*body[api.Incident], error) {
	return s.answerIncident(ctx, in, "resolving the incident", s.intake.Resolve)
}

func (s *Server) escalate(ctx context.Context, in *actInput) (*body[api.Incident], error) {
	return s.answerIncident(ctx, in, "escalating the incident", s.intake.EscalateNow)
}

type snoozeInput struct {
	ID   string `path:"id" format:"uuid"`
	Body api.SnoozeIncident
}

func (s *Server) snooze(ctx context.Context, in *snoozeInput) (*body[api.Incident], error) {
	d, err := config.ParseDuration(in.Body.For)
	if err != nil {
		return nil, s.intakeError(ctx, "snoozing the incident", &intake.InputError{Field: "for", Message: in.Body.For + " is no duration: write for example 30m, 2h or 1d"})
	}
	return s.answerIncident(ctx, &actInput{ID: in.ID, Body: &in.Body.IncidentAction}, "snoozing the incident", func(ctx context.Context, id uuid.UUID, by intake.Actor, reason string) (intake.Answer, error) {
		return s.intake.Snooze(ctx, id, by, d, reason)
	})
}

type reassignInput struct {
	ID   string `path:"id" format:"uuid"`
	Body api.ReassignIncident
}

func (s *Server) reassign(ctx context.Context, in *reassignInput) (*body[api.Incident], error) {
	return s.answerIncident(ctx, &actInput{ID: in.ID, Body: &in.Body.IncidentAction}, "reassigning the incident", func(ctx context.Context, id uuid.UUID, by intake.Actor, reason string) (intake.Answer, error) {
		return s.intake.Reassign(ctx, id, by, in.Body.To, reason)
	})
}

// answerIncident is idempotent: the second one to answer gets the incident with who was first.
func (s *Server) answerIncident(ctx context.Context, in *actInput, doing string, do act) (*body[api.Incident], error) {
	var b api.IncidentAction
	if in.Body != nil {
		b = *in.Body
	}
	by, err := s.speaker(ctx, b.By, doing, "body.by")
	if err != nil {
		return nil, err
	}
	a, err := do(ctx, uuid.MustParse(in.ID), by, b.Reason)
	if err != nil {
		if errors.Is(err, intake.ErrNotFound) {
			err = store.ErrNotFound
		}
		return nil, s.intakeError(ctx, doing, err)
	}
	if a.Refused {
		return nil, problem(http.StatusConflict, "", a.Text())
	}
	if a.Changed {
		s.log.Infow("incident answered", "incident", in.ID, "state", string(a.Incident.State), "by", by.ID, "through", callerOf(ctx).actor())
	}
	return s.showIncident(ctx, &idInput{ID: in.ID})
}

// pressAs does what a button says in the name of a user, once however often the press comes, and gives the private
// answer.
func (s *Server) pressAs(ctx context.Context, u config.User, h deed, incident uuid.UUID) (string, error) {
	do := s.intake.Acknowledge
	switch h.Action {
	case card.ActionResolve:
		do = s.intake.Resolve
	case card.ActionEscalate:
		do = s.intake.EscalateNow
	case card.ActionSnooze:
		do = func(ctx context.Context, id uuid.UUID, by intake.Actor, reason string) (intake.Answer, error) {
			return s.intake.Snooze(ctx, id, by, intake.DefaultSnooze, reason)
		}
	}
	by := intake.Actor{ID: "user:" + u.ID, Name: userName(s.file(), u.ID), Callback: h.key}
	a, err := do(ctx, incident, by, "")
	if errors.Is(err, intake.ErrNotFound) {
		return "This incident is not known here any more: nothing was changed.", nil
	}
	if err != nil {
		return "", err
	}
	if a.Changed {
		s.log.Infow("incident answered", "incident", incident.String(), "state", string(a.Incident.State), "by", by.ID, "through", h.Provider)
	}
	return a.Text(), nil
}
