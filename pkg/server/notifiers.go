package server

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/intake"
)

func (s *Server) notifierRoutes() {
	route(s, http.MethodGet, "/v1/notifiers", api.ScopeRead, "The ways out, and whether messages go out through them", http.StatusOK, s.listNotifiers)
	route(s, http.MethodPost, "/v1/notifiers/{name}/test", api.ScopeOperate, "Send a test through a notifier", http.StatusAccepted, s.tryNotifier)
}

func (s *Server) listNotifiers(ctx context.Context, _ *struct{}) (*body[api.List[api.Notifier]], error) {
	waiting, err := s.store.CountWaiting(ctx)
	if err != nil {
		return nil, s.fail(ctx, "listing notifiers", err)
	}
	count := map[string]int{}
	for _, w := range waiting {
		count[w.Notifier] += w.Count
	}
	f := s.file()
	out := &body[api.List[api.Notifier]]{Body: api.List[api.Notifier]{Items: []api.Notifier{}}}
	for _, name := range slices.Sorted(maps.Keys(f.Notifiers)) {
		n := f.Notifiers[name]
		w := api.Notifier{Name: name, Type: n.Type, Direct: n.Direct(), Off: n.Off, Account: n.Account(), State: api.NotifierOK, Pauses: []api.Pause{}, Waiting: count[name]}
		if n.Off {
			w.State = api.NotifierOff
		}
		out.Body.Items = append(out.Body.Items, w)
	}
	return out, nil
}

type trialInput struct {
	Name string     `path:"name" maxLength:"200"`
	Body *api.Trial // may be left out
}

// tryNotifier makes a delivery like every other. What becomes of it is told by the delivery.
func (s *Server) tryNotifier(ctx context.Context, in *trialInput) (*body[api.Tried], error) {
	if s.stopping() {
		return nil, problem(http.StatusServiceUnavailable, api.ProblemStopping, "alerts are not running")
	}
	to := ""
	if in.Body != nil {
		to = in.Body.To
	}
	const doing = "testing the notifier"
	id, err := s.intake.Trial(ctx, in.Name, to, intake.Actor{ID: callerOf(ctx).actor(), Name: callerOf(ctx).Name})
	var impossible *intake.ImpossibleError
	switch {
	case errors.Is(err, intake.ErrNoNotifier):
		return nil, problem(http.StatusNotFound, "", "the file has no notifier "+in.Name+"; GET /v1/notifiers lists those that it has")
	case errors.As(err, &impossible):
		return nil, problem(http.StatusConflict, "", "nothing was sent: "+impossible.Sentence)
	case err != nil:
		return nil, s.intakeError(ctx, doing, err)
	}
	s.log.Infow("notifier tested", "notifier", in.Name, "to", to, "delivery", id.String(), "by", callerOf(ctx).actor())
	return &body[api.Tried]{Body: api.Tried{DeliveryID: id.String()}}, nil
}
