package server

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

const heartbeatPath = "/v1/heartbeats/{name}"

func (s *Server) heartbeatRoutes() {
	door := func(op *huma.Operation) { op.Middlewares = s.sender(heartbeatDoor) }
	route(s, http.MethodGet, "/v1/heartbeats", api.ScopeRead, "Heartbeats of the file", http.StatusOK, s.listHeartbeats)
	route(s, http.MethodPost, heartbeatPath, api.ScopeIngest, "Say that a heartbeat is alive", http.StatusOK, s.heartbeat, door)
	route(s, http.MethodGet, heartbeatPath, api.ScopeIngest, "Say that a heartbeat is alive, for senders that can only GET", http.StatusOK, s.heartbeat, door)
}

func (s *Server) heartbeat(ctx context.Context, in *struct {
	Name string `path:"name"`
}) (*body[api.Heartbeat], error) {
	if _, ok := s.file().Heartbeats[in.Name]; !ok {
		return nil, problem(http.StatusNotFound, "", "the file has no heartbeat "+in.Name)
	}
	if err := s.intake.Called(ctx, in.Name); err != nil {
		return nil, s.fail(ctx, "noting the call", err)
	}
	all, err := s.heartbeats(ctx)
	if err != nil {
		return nil, s.fail(ctx, "reading the heartbeat", err)
	}
	for _, h := range all {
		if h.Name == in.Name {
			return &body[api.Heartbeat]{Body: h}, nil
		}
	}
	return nil, problem(http.StatusNotFound, "", "the file has no heartbeat "+in.Name)
}

func (s *Server) listHeartbeats(ctx context.Context, _ *struct{}) (*body[api.List[api.Heartbeat]], error) {
	all, err := s.heartbeats(ctx)
	if err != nil {
		return nil, s.fail(ctx, "reading the heartbeats", err)
	}
	return &body[api.List[api.Heartbeat]]{Body: api.List[api.Heartbeat]{Items: all}}, nil
}

// heartbeats are those of the file in force, by name, with what the database knows of them.
func (s *Server) heartbeats(ctx context.Context) ([]api.Heartbeat, error) {
	rows, err := s.store.Heartbeats(ctx)
	if err != nil {
		return nil, err
	}
	known := map[string]store.Heartbeat{}
	for _, r := range rows {
		known[r.Name] = r
	}
	f := s.file()
	out := []api.Heartbeat{}
	for _, name := range inOrder(f.Heartbeats) {
		r := known[name]
		h := api.Heartbeat{Name: name, Every: f.Heartbeats[name].Every.String(), Criticality: f.Heartbeats[name].Criticality, State: api.HeartbeatOK, CalledAt: r.CalledAt, MissedAt: r.MissedAt}
		switch {
		case r.MissedAt != nil:
			h.State = api.HeartbeatMissed
		case r.CalledAt == nil:
			h.State = api.HeartbeatNew
		}
		out = append(out, h)
	}
	return out, nil
}
