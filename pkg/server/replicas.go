package server

import (
	"context"
	"net/http"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/scheduler"
)

func (s *Server) replicaRoutes() {
	route(s, http.MethodGet, "/v1/replicas", api.ScopeRead, "The replicas, and whether all run the same file", http.StatusOK, s.listReplicas)
}

func (s *Server) listReplicas(ctx context.Context, _ *struct{}) (*body[api.Replicas], error) {
	seen, err := s.store.SeenReplicas(ctx)
	if err != nil {
		return nil, s.fail(ctx, "listing replicas", err)
	}
	out := api.Replicas{Items: []api.Replica{}, Differences: []string{}}
	for _, r := range seen {
		w := api.Replica{
			ID: r.ID, Version: r.Version, Checksum: r.Checksum, Notifiers: r.Notifiers, StartedAt: r.StartedAt.UTC(), SeenAt: r.SeenAt.UTC(),
			SilentSeconds: int(r.Silent / time.Second), Live: r.Silent < scheduler.Alive, FileError: r.FileError,
		}
		if r.ReadAt != nil {
			at := r.ReadAt.UTC()
			w.ReadAt = &at
		}
		out.Items = append(out.Items, w)
	}
	out.Compare()
	return &body[api.Replicas]{Body: out}, nil
}
