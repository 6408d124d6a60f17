package server

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/intake"
	"github.com/tocsin-oncall/tocsin/pkg/plan"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

func (s *Server) notifierRoutes() {
	route(s, http.MethodGet, "/v1/notifiers", api.ScopeRead, "The ways out, and whether messages go out through them", http.StatusOK, s.listNotifiers)
	route(s, http.MethodPost, "/v1/notifiers/{name}/test", api.ScopeOperate, "Send a test through a notifier", http.StatusAccepted, s.tryNotifier)
}

func (s *Server) listNotifiers(ctx context.Context, _ *struct{}) (*body[api.List[api.Notifier]], error) {
	const doing = "listing notifiers"
	waiting, err := s.store.CountWaiting(ctx)
	if err != nil {
		return nil, s.fail(ctx, doing, err)
	}
	pauses, err := s.store.Pauses(ctx)
	if err != nil {
		return nil, s.fail(ctx, doing, err)
	}
	count := map[string]int{}
	for _, w := range waiting {
		count[w.Notifier] += w.Count
	}
	f := s.file()
	out := &body[api.List[api.Notifier]]{Body: api.List[api.Notifier]{Items: []api.Notifier{}}}
	for _, name := range slices.Sorted(maps.Keys(f.Notifiers)) {
		n := s.notifier(f, f.Notifiers[name], pauses)
		n.Waiting = count[name]
		out.Body.Items = append(out.Body.Items, n)
	}
	return out, nil
}

// notifier says how a notifier stands. Of its account's pauses it has those that concern it: a notifier with a place of its
// own that of the place, one for people all that are no other notifier's place.
func (s *Server) notifier(f *config.File, n config.Notifier, pauses []store.Pause) api.Notifier {
	w := api.Notifier{Name: n.Name, Type: n.Type, Direct: n.Direct(), Off: n.Off, Account: n.Account(), State: api.NotifierOK, Pauses: []api.Pause{}}
	places := map[string]bool{} // of the account
	for _, o := range f.Notifiers {
		if !o.Direct() && o.Account() == w.Account {
			places[s.place(o)] = true
		}
	}
	for _, p := range pauses {
		switch {
		case p.Account != w.Account:
		case p.Scope == store.ScopeAccount && strings.HasSuffix(p.Key, "@"+f.Checksum): // not one of another file, which may be mended by this one
			w.Breaker = &api.Breaker{Code: p.Code, Reason: p.Reason, Sentence: p.Sentence, Since: p.Since.UTC()}
			if !p.ProbeAt.IsZero() {
				at := p.ProbeAt.UTC()
				w.Breaker.NextProbeAt = &at
			}
		case p.Scope == store.ScopeDestination && (w.Direct && !places[p.Destination] || !w.Direct && p.Destination == s.place(n)):
			w.Pauses = append(w.Pauses, api.Pause{Destination: p.Destination, Reason: p.Reason, Sentence: p.Sentence, Until: p.Until.UTC()})
		}
	}
	switch {
	case n.Off:
		w.State = api.NotifierOff
	case w.Breaker != nil:
		w.State = api.NotifierBroken
	case len(w.Pauses) > 0:
		w.State = api.NotifierPaused
	}
	return w
}

// place is a notifier's own destination as attempts name it, "" where it has none.
func (s *Server) place(n config.Notifier) string {
	n.Off = false // it is the same place
	p, err := plan.Resolve(&config.File{Notifiers: map[string]config.Notifier{n.Name: n}}, nil, n.Name, plan.TargetChannel, time.Time{})
	if err != nil {
		return ""
	}
	return s.redact(p.Address)
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
