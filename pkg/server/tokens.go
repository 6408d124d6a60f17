package server

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

func (s *Server) tokenRoutes() {
	route(s, http.MethodPost, "/v1/tokens", api.ScopeAdmin, "Make an API token", http.StatusCreated, s.createToken)
	route(s, http.MethodGet, "/v1/tokens", api.ScopeAdmin, "List API tokens", http.StatusOK, s.listTokens)
	route(s, http.MethodDelete, "/v1/tokens/{name}", api.ScopeAdmin, "Revoke an API token", http.StatusNoContent, s.revokeToken)
}

func (s *Server) createToken(ctx context.Context, in *struct{ Body api.NewToken }) (*body[api.MadeToken], error) {
	for _, scope := range in.Body.Scopes {
		if !slices.Contains(api.Scopes, scope) {
			return nil, &api.Problem{Type: api.ProblemInvalid, Title: "The request is wrong", Status: http.StatusUnprocessableEntity,
				Errors: []api.ProblemItem{{Location: "body.scopes", Message: scope + " is no scope: use calendar, ingest, read, operate or admin"}}}
		}
	}
	for _, t := range s.file().Server.Tokens {
		if t.Name == in.Body.Name {
			return nil, problem(http.StatusConflict, "", "the file has a token of that name: choose another")
		}
	}
	text, hash := store.MakeToken()
	if err := s.store.AddToken(ctx, store.Token{Name: in.Body.Name, Hash: hash, Scopes: in.Body.Scopes}); err != nil {
		if errors.Is(err, store.ErrTokenExists) {
			return nil, problem(http.StatusConflict, "", err.Error())
		}
		return nil, s.fail(ctx, "making a token", err)
	}
	s.note(ctx, "token_created", in.Body.Name, "")
	s.tokens.forget()
	return &body[api.MadeToken]{Body: api.MadeToken{Name: in.Body.Name, Scopes: in.Body.Scopes, Token: text}}, nil
}

func (s *Server) listTokens(ctx context.Context, _ *struct{}) (*body[api.List[api.Token]], error) {
	all, err := s.store.ListTokens(ctx)
	if err != nil {
		return nil, s.fail(ctx, "listing tokens", err)
	}
	return &body[api.List[api.Token]]{Body: api.List[api.Token]{Items: all}}, nil
}

func (s *Server) revokeToken(ctx context.Context, in *struct {
	Name string `path:"name"`
}) (*struct{}, error) {
	if err := s.store.RevokeToken(ctx, in.Name); err != nil {
		if errors.Is(err, store.ErrNotFound) {
			return nil, problem(http.StatusNotFound, "", "no live token of the database has that name; those of the file are removed there")
		}
		return nil, s.fail(ctx, "revoking the token", err)
	}
	s.note(ctx, "token_revoked", in.Name, "")
	s.tokens.forget()
	return nil, nil //nolint:nilnil // 204 has no body
}

// note writes the audit trail for what has no transaction of its own. The deed is done: a failure is logged.
func (s *Server) note(ctx context.Context, action, object, detail string) {
	err := s.store.InTx(ctx, func(tx *store.Tx) error {
		return tx.Audit(ctx, callerOf(ctx).actor(), action, object, detail)
	})
	if err != nil {
		s.log.Errorw("the audit trail was not written", "action", action, "object", object, "error", s.redact(err.Error()))
	}
}
