package server

import (
	"context"
	"net/http"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/plan"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

func (s *Server) userRoutes() {
	route(s, http.MethodGet, "/v1/users", api.ScopeRead, "The people of the file, their ways and accounts", http.StatusOK, s.listUsers)
	route(s, http.MethodPost, "/v1/users/{id}/link", api.ScopeOperate, "Link a chat account to a user, or make a code for it", http.StatusOK, s.linkAccount)
	route(s, http.MethodPost, "/v1/users/{id}/unlink", api.ScopeOperate, "Take a chat account away from a user", http.StatusOK, s.unlinkAccount)
}

func (s *Server) listUsers(ctx context.Context, _ *struct{}) (*body[api.List[api.User]], error) {
	accounts, err := s.store.Accounts(ctx)
	if err != nil {
		return nil, s.fail(ctx, "listing people", err)
	}
	f := s.file()
	out := &body[api.List[api.User]]{Body: api.List[api.User]{Items: make([]api.User, len(f.Users))}}
	for i, u := range f.Users {
		out.Body.Items[i] = wireUser(f, u, accounts)
	}
	return out, nil
}

func wireUser(f *config.File, u config.User, accounts []store.Account) api.User {
	w := api.User{ID: u.ID, Name: userName(f, u.ID), Email: u.Email, TimeZone: u.TimeZone, Contacts: []api.Contact{}, Accounts: []api.Account{}}
	var known []plan.Account
	for _, a := range accounts {
		known = append(known, plan.Account{Provider: a.Provider, AccountID: a.AccountID, UserID: a.UserID})
		if a.UserID == u.ID {
			w.Accounts = append(w.Accounts, api.Account{Provider: a.Provider, AccountID: a.AccountID, LinkedAt: a.LinkedAt.UTC(), LinkedBy: a.LinkedBy})
		}
	}
	for _, c := range u.Contacts {
		way := api.Contact{Via: c.Via, Urgency: c.Urgency, Address: "file"}
		if c.After > 0 {
			way.After = c.After.String()
		}
		_, err := plan.Resolve(f, known, c.Via, "user:"+u.ID, time.Time{})
		switch {
		case err != nil && plan.LooksUp(f.Notifiers[c.Via], u):
			way.Address = "email"
		case err != nil:
			way.Address, way.Trouble = "none", plan.Sentence(err)
		case c.Address == "":
			way.Address = "linked"
		}
		w.Contacts = append(w.Contacts, way)
	}
	return w
}

type unlinkInput struct {
	ID   string `path:"id" maxLength:"200"`
	Body api.UnlinkAccount
}

// unlinkAccount also takes accounts away from users who are not in the file any more.
func (s *Server) unlinkAccount(ctx context.Context, in *unlinkInput) (*body[api.User], error) {
	const doing = "unlinking the account"
	by, found := callerOf(ctx).actor(), 0
	err := s.store.InTx(ctx, func(tx *store.Tx) error {
		found = 0
		accounts, err := tx.Accounts(ctx)
		if err != nil {
			return err
		}
		for _, a := range accounts {
			if a.UserID != in.ID || a.Provider != in.Body.Provider || in.Body.AccountID != "" && a.AccountID != in.Body.AccountID {
				continue
			}
			found++
			if err := tx.RemoveAccount(ctx, a.Provider, a.AccountID, in.ID); err != nil {
				return err
			}
			if err := tx.Audit(ctx, by, "account_unlinked", in.ID, a.Provider+" "+a.AccountID); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, s.fail(ctx, doing, err)
	}
	if found == 0 {
		return nil, problem(http.StatusNotFound, "", "no such "+in.Body.Provider+" account is linked to "+in.ID+"; an address in the file is taken away there")
	}
	s.log.Infow("account unlinked", "provider", in.Body.Provider, "account", in.Body.AccountID, "user", in.ID, "by", by)
	s.linked(ctx)
	accounts, err := s.store.Accounts(ctx)
	if err != nil {
		return nil, s.fail(ctx, doing, err)
	}
	f := s.file()
	for _, u := range f.Users {
		if u.ID == in.ID {
			return &body[api.User]{Body: wireUser(f, u, accounts)}, nil
		}
	}
	return &body[api.User]{Body: api.User{ID: in.ID, Contacts: []api.Contact{}, Accounts: []api.Account{}}}, nil
}
