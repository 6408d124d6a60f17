package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/intake"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

func (s *Server) deliveryRoutes() {
	route(s, http.MethodGet, "/v1/deliveries", api.ScopeRead, "List deliveries", http.StatusOK, s.listDeliveries)
	route(s, http.MethodGet, "/v1/deliveries/{id}", api.ScopeRead, "A delivery with its attempts and decisions", http.StatusOK, s.showDelivery)
	route(s, http.MethodPost, "/v1/deliveries/{id}/decision", api.ScopeOperate, "Decide what becomes of a delivery", http.StatusOK, s.decide)
}

type deliveriesInput struct {
	State    string `query:"state" enum:"pending,sent,assumed,canceled,rejected,unreachable,held,exhausted,expired,dead" doc:"A state, or dead for all that wait for a decision."`
	Notifier string `query:"notifier" maxLength:"200"`
	Kind     string `query:"kind" enum:"page,call,sms,card,thread,notice,event,bulk"`
	Incident string `query:"incident" format:"uuid"`
	Limit    int    `query:"limit" minimum:"1" maximum:"200" default:"50"`
	Cursor   string `query:"cursor" maxLength:"100"`
}

type idInput struct {
	ID string `path:"id" format:"uuid"`
}

func (s *Server) listDeliveries(ctx context.Context, in *deliveriesInput) (*body[api.List[api.Delivery]], error) {
	f := store.DeliveryFilter{State: in.State, Notifier: in.Notifier, Kind: in.Kind, Limit: in.Limit, Cursor: in.Cursor}
	if in.Incident != "" {
		f.Incident = uuid.MustParse(in.Incident) // its format was checked
	}
	l, err := s.store.ListDeliveries(ctx, f)
	if err != nil {
		return nil, s.fail(ctx, "listing deliveries", err)
	}
	return &body[api.List[api.Delivery]]{Body: l}, nil
}

func (s *Server) showDelivery(ctx context.Context, in *idInput) (*body[api.Delivery], error) {
	d, err := s.store.ReadDelivery(ctx, uuid.MustParse(in.ID))
	if err != nil {
		return nil, s.fail(ctx, "showing the delivery", err)
	}
	return &body[api.Delivery]{Body: d}, nil
}

type decideInput struct {
	ID   string `path:"id" format:"uuid"`
	Body api.Decide
}

// decide applies a person's word. What may be decided in which state is pkg/delivery's to say; here is the transaction
// around it.
func (s *Server) decide(ctx context.Context, in *decideInput) (*body[api.Delivery], error) {
	if s.stopping() {
		return nil, problem(http.StatusServiceUnavailable, api.ProblemStopping, "alerts are not running")
	}
	id := uuid.MustParse(in.ID)
	seen, err := s.store.ReadDelivery(ctx, id)
	if err != nil {
		return nil, s.fail(ctx, "deciding on the delivery", err)
	}
	action := delivery.Action(in.Body.Action)
	if action == delivery.SendAgain {
		known, err := s.knows(ctx, seen.Notifier)
		if err != nil {
			return nil, s.fail(ctx, "deciding on the delivery", err)
		}
		if !known {
			return nil, problem(http.StatusConflict, "", fmt.Sprintf("the delivery is %s and its notifier %s is not in the file: put it back, then send again", seen.State, seen.Notifier))
		}
	}
	by := callerOf(ctx).actor()
	reason := strings.ReplaceAll(in.Body.Reason, "\x00", "\uFFFD") // Postgres takes no NUL
	incident := uuid.Nil
	if seen.IncidentID != "" {
		incident = uuid.MustParse(seen.IncidentID) // written by the store
	}
	err = s.store.InTx(ctx, func(tx *store.Tx) error {
		return s.intake.Decide(ctx, tx, id, incident, intake.Word{Action: action, By: by, Reason: reason})
	})
	var refused *delivery.Refusal
	switch {
	case errors.As(err, &refused):
		return nil, problem(http.StatusConflict, "", refused.Error())
	case errors.Is(err, store.ErrFenced):
		return nil, problem(http.StatusConflict, "", "the delivery changed at the same moment: look at it again")
	case err != nil:
		return nil, s.fail(ctx, "deciding on the delivery", err)
	}
	s.metrics.DecisionMade(in.Body.Action)
	s.log.Infow("decision made", "delivery", in.ID, "action", in.Body.Action, "by", by, "from_state", seen.State)
	s.ring()
	return s.showDelivery(ctx, &idInput{ID: in.ID})
}
