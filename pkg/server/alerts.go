package server

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/intake"
	"github.com/tocsin-oncall/tocsin/pkg/plan"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

func (s *Server) alertRoutes() {
	route(s, http.MethodPost, "/v1/alerts", api.ScopeIngest, "Hand in an alert", http.StatusAccepted, s.postAlert)
}

type alertInput struct {
	Key     string `header:"Idempotency-Key" maxLength:"200" doc:"The same key with the same body has one effect and one answer."`
	RawBody []byte
	Body    api.Alert
}

func (s *Server) postAlert(ctx context.Context, in *alertInput) (*body[api.Accepted], error) {
	c := callerOf(ctx)
	source, err := s.sourceAt(ctx, config.TypeNative)
	if err != nil {
		return nil, err
	}
	src := intake.SourceOf(s.file(), source, config.TypeNative)
	if err := s.within(src, len(in.RawBody)); err != nil {
		return nil, err
	}
	alert, err := intake.Native(src, in.Body)
	if err != nil {
		return nil, s.intakeError(ctx, "reading the alert", err)
	}
	group := intake.Group{Source: source, Key: in.Body.Key, Alerts: []plan.Alert{alert}}
	if in.Key == "" {
		result, err := s.intake.Accept(ctx, group)
		if err != nil {
			return nil, s.intakeError(ctx, "taking the alert", err)
		}
		s.took(source, result, 1)
		return &body[api.Accepted]{Body: accepted(result)}, nil
	}
	sum := sha256.Sum256(in.RawBody)
	return s.postOnce(ctx, group, store.KeyedRequest{Token: c.actor(), Key: in.Key, BodyHash: sum[:]})
}

// postOnce takes an alert that its sender may repeat: the answer is kept in the transaction that takes it.
func (s *Server) postOnce(ctx context.Context, group intake.Group, keyed store.KeyedRequest) (*body[api.Accepted], error) {
	var result intake.Result
	var out api.Accepted
	repeated := false
	err := s.intake.Alone(ctx, s.intake.KeyOf(group), func(ctx context.Context) error {
		return s.store.InTx(ctx, func(tx *store.Tx) error {
			result, out, repeated = intake.Result{}, api.Accepted{}, false
			first, answered, err := tx.FirstAnswer(ctx, keyed)
			if err != nil {
				return err
			}
			if answered {
				repeated = true
				return json.Unmarshal(first, &out)
			}
			if result, err = s.intake.AcceptIn(ctx, tx, group); err != nil {
				return err
			}
			out = accepted(result)
			answer, err := json.Marshal(out)
			if err != nil {
				return fmt.Errorf("encode the answer: %w", err)
			}
			return tx.KeepAnswer(ctx, keyed, http.StatusAccepted, answer)
		})
	})
	if err != nil {
		return nil, s.intakeError(ctx, "taking the alert", err)
	}
	if !repeated {
		s.intake.Committed(result)
		s.took(group.Source, result, 1)
	}
	return &body[api.Accepted]{Body: out}, nil
}

func accepted(r intake.Result) api.Accepted {
	out := api.Accepted{Deliveries: make([]api.AcceptedDelivery, len(r.Deliveries)), IncidentState: string(r.State)}
	if r.AlertID != uuid.Nil {
		out.AlertID = r.AlertID.String()
	}
	if r.IncidentID != uuid.Nil {
		out.IncidentID = r.IncidentID.String()
	}
	for i, d := range r.Deliveries {
		out.Deliveries[i] = api.AcceptedDelivery{ID: d.ID.String(), Kind: string(d.Kind), Notifier: d.Notifier, State: string(d.State)}
	}
	return out
}

// took counts and logs what is committed.
func (s *Server) took(source string, r intake.Result, alerts int) {
	s.metrics.AlertsTaken(source, alerts, r.Unrouted)
	if r.IncidentID == uuid.Nil {
		return
	}
	log := s.log.Infow
	if r.Unrouted {
		log = s.log.Warnw
	}
	log("alerts taken", "source", source, "alerts", alerts, "incident", r.IncidentID.String(), "state", string(r.State), "opened", r.Opened, "deliveries", len(r.Deliveries), "unrouted", r.Unrouted)
}

// intakeError is what a source is told. A mistake of its own is a 4xx, which it must not send again as it is;
// everything else is a 5xx, which it must.
func (s *Server) intakeError(ctx context.Context, doing string, err error) error {
	var wrong *intake.InputError
	var busy *intake.BusyError
	switch {
	case errors.As(err, &wrong):
		return wrongInput(doing+": the request is wrong", wrong)
	case errors.As(err, &busy):
		return comeAgain(busy.Error())
	}
	return s.fail(ctx, doing, err)
}

// wrongInput names the fields that a sender must change.
func wrongInput(detail string, all ...*intake.InputError) *api.Problem {
	p := problem(http.StatusUnprocessableEntity, "", detail)
	for _, wrong := range all {
		item := api.ProblemItem{Location: "body." + wrong.Field, Message: wrong.Message}
		if wrong.Field == "body" {
			item.Location = "body"
		}
		p.Errors = append(p.Errors, item)
	}
	return p
}
