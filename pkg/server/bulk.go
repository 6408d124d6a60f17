package server

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/intake"
	"github.com/tocsin-oncall/tocsin/pkg/scheduler"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// defaultPerSecond is how fast a run goes that does not say: a channel shows about one message a second.
const defaultPerSecond = 20

func (s *Server) bulkRoutes() {
	route(s, http.MethodPost, "/v1/decisions", api.ScopeOperate, "Decide what becomes of many dead deliveries, or count them", http.StatusAccepted, s.decideMany)
	route(s, http.MethodGet, "/v1/decisions", api.ScopeRead, "List decisions on many deliveries", http.StatusOK, s.listRuns)
	route(s, http.MethodGet, "/v1/decisions/{id}", api.ScopeRead, "A decision on many deliveries with its counts", http.StatusOK, s.showRun)
	route(s, http.MethodPost, "/v1/decisions/{id}/cancel", api.ScopeOperate, "Take no more of a decision on many deliveries", http.StatusOK, s.cancelRun)
}

type decideManyInput struct{ Body api.DecideMany }

type decideManyOutput struct {
	Status int
	Body   api.DecisionRun
}

func (s *Server) decideMany(ctx context.Context, in *decideManyInput) (*decideManyOutput, error) {
	const doing = "deciding on many deliveries"
	if s.stopping() {
		return nil, problem(http.StatusServiceUnavailable, api.ProblemStopping, "alerts are not running")
	}
	b := in.Body
	b.Reason = strings.ReplaceAll(b.Reason, "\x00", "\uFFFD") // Postgres takes no NUL
	for _, text := range []string{b.Filter.Notifier, b.Filter.Reason} {
		if strings.ContainsRune(text, 0) {
			return nil, problem(http.StatusUnprocessableEntity, "", doing+": the filter holds a NUL character")
		}
	}
	if b.DryRun {
		run, err := s.countRun(ctx, b)
		if err != nil {
			return nil, s.fail(ctx, doing, err)
		}
		return &decideManyOutput{Status: http.StatusOK, Body: run}, nil
	}
	if b.PerSecond == 0 {
		b.PerSecond = defaultPerSecond
	}
	id, by := store.NewID(), callerOf(ctx).actor()
	err := s.store.InTx(ctx, func(tx *store.Tx) error {
		if err := tx.AddRun(ctx, store.NewRun{ID: id, Actor: by, Action: delivery.Action(b.Action), Reason: b.Reason, Filter: b.Filter, PerSecond: b.PerSecond}); err != nil {
			return err
		}
		return tx.Audit(ctx, by, "decision_run:"+b.Action, id.String(), b.Reason)
	})
	if errors.Is(err, store.ErrTooMany) {
		return nil, problem(http.StatusUnprocessableEntity, "", err.Error())
	}
	if err != nil {
		return nil, s.fail(ctx, doing, err)
	}
	s.log.Infow("decision on many made", "run", id.String(), "action", b.Action, "by", by)
	run, err := s.store.ReadRun(ctx, id)
	if err != nil {
		return nil, s.fail(ctx, doing, err)
	}
	return &decideManyOutput{Status: http.StatusAccepted, Body: run}, nil
}

// countRun says what a decision on many would find, and on what of it it is not possible: the same rule as for one.
func (s *Server) countRun(ctx context.Context, b api.DecideMany) (api.DecisionRun, error) {
	found, err := s.store.CountDead(ctx, b.Filter)
	if err != nil {
		return api.DecisionRun{}, err
	}
	run := api.DecisionRun{DryRun: true, Action: b.Action, Reason: b.Reason, Filter: b.Filter, PerSecond: b.PerSecond}
	action := delivery.Action(b.Action)
	for _, c := range found {
		if n := len(run.Counts); n == 0 || run.Counts[n-1].Notifier != c.Notifier || run.Counts[n-1].Reason != c.Reason || run.Counts[n-1].State != string(c.State) {
			run.Counts = append(run.Counts, api.DecisionCount{Notifier: c.Notifier, Reason: c.Reason, State: string(c.State)})
		}
		last := &run.Counts[len(run.Counts)-1]
		last.Count += c.Count
		run.Total += c.Count
		d := delivery.Delivery{State: c.State, Effect: 1}
		if c.InDoubt {
			d.Doubt = &delivery.Doubt{Effect: 1}
		}
		why := ""
		var refused *delivery.Refusal
		if _, err := d.Decide(action); errors.As(err, &refused) {
			why = refused.Why
		} else if action == delivery.SendAgain {
			known, err := s.knows(ctx, c.Notifier)
			if err != nil {
				return api.DecisionRun{}, err
			}
			if !known {
				why = intake.SkipNotifier
			}
		}
		if why != "" {
			last.Refused += c.Count
			last.Why = why
			run.Refused += c.Count
		}
	}
	return run, nil
}

// knows says whether the file of any live replica has a notifier: during a rolling change that one sends.
func (s *Server) knows(ctx context.Context, notifier string) (bool, error) {
	if _, here := s.file().Notifiers[notifier]; here {
		return true, nil
	}
	return s.store.NotifierKnown(ctx, scheduler.Alive, notifier)
}

type pageInput struct {
	Limit  int    `query:"limit" minimum:"1" maximum:"200" default:"50"`
	Cursor string `query:"cursor" maxLength:"100"`
}

func (s *Server) listRuns(ctx context.Context, in *pageInput) (*body[api.List[api.DecisionRun]], error) {
	l, err := s.store.ListRuns(ctx, in.Limit, in.Cursor)
	if err != nil {
		return nil, s.fail(ctx, "listing decisions", err)
	}
	return &body[api.List[api.DecisionRun]]{Body: l}, nil
}

func (s *Server) showRun(ctx context.Context, in *idInput) (*body[api.DecisionRun], error) {
	run, err := s.store.ReadRun(ctx, uuid.MustParse(in.ID))
	if err != nil {
		return nil, s.fail(ctx, "showing the decision", err)
	}
	return &body[api.DecisionRun]{Body: run}, nil
}

func (s *Server) cancelRun(ctx context.Context, in *idInput) (*body[api.DecisionRun], error) {
	const doing = "canceling the decision"
	id, by := uuid.MustParse(in.ID), callerOf(ctx).actor()
	ended := false
	err := s.store.InTx(ctx, func(tx *store.Tx) (err error) {
		if ended, err = tx.CancelRun(ctx, id, by); err != nil || !ended {
			return err
		}
		return tx.Audit(ctx, by, "decision_run:stop", id.String(), "")
	})
	if err != nil {
		return nil, s.fail(ctx, doing, err)
	}
	run, err := s.store.ReadRun(ctx, id)
	if err != nil {
		return nil, s.fail(ctx, doing, err)
	}
	if !ended {
		return nil, problem(http.StatusConflict, "", "the decision is "+run.State+" already")
	}
	s.log.Infow("decision on many canceled", "run", in.ID, "by", by, "applied", run.Applied, "of", run.Total)
	return &body[api.DecisionRun]{Body: run}, nil
}
