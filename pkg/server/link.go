package server

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"html/template"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// linkLifetime is how long a one-time code can be used.
const linkLifetime = 15 * time.Minute

// makeCode makes a one-time code: 80 random bits in letters that people can read out.
func makeCode() string {
	b := make([]byte, 10)
	_, _ = rand.Read(b) // crypto/rand never fails: it ends the process instead
	return base32.StdEncoding.EncodeToString(b)
}

// hashCode is what is kept of a code. It forgives how people copy codes.
func hashCode(code string) []byte {
	h := sha256.Sum256([]byte(strings.ToUpper(strings.TrimSpace(code))))
	return h[:]
}

type linkInput struct {
	ID   string `path:"id" maxLength:"200"`
	Body api.LinkAccount
}

// linkAccount uses a code up, links its account to the user and applies the press that asked for it.
func (s *Server) linkAccount(ctx context.Context, in *linkInput) (*body[api.Linked], error) {
	f := s.file()
	if !hasUser(f, in.ID) {
		return nil, problem(http.StatusNotFound, "", "the file has no user "+in.ID)
	}
	by := callerOf(ctx).actor()
	var code store.LinkCode
	err := s.store.InTx(ctx, func(tx *store.Tx) error {
		var err error
		if code, err = tx.TakeLinkCode(ctx, hashCode(in.Body.Code)); err != nil {
			return err
		}
		if err := tx.PutAccount(ctx, code.Provider, code.AccountID, in.ID, by); err != nil {
			return err
		}
		return tx.Audit(ctx, by, "account_linked", in.ID, code.Provider+" "+code.AccountID)
	})
	if errors.Is(err, store.ErrNotFound) {
		return nil, problem(http.StatusNotFound, "", "this code is unknown, used already or older than 15 minutes: press the button again for a new one")
	}
	if err != nil {
		return nil, s.fail(ctx, "linking the account", err)
	}
	s.log.Infow("account linked", "provider", code.Provider, "account", code.AccountID, "user", in.ID, "by", by)
	s.linked(ctx)
	out := &body[api.Linked]{Body: api.Linked{UserID: in.ID, Provider: code.Provider, AccountID: code.AccountID}}
	incident, err := uuid.Parse(code.Press.IncidentID)
	if err != nil {
		return out, nil //nolint:nilerr // the code was not asked for by a press
	}
	for _, u := range f.Users {
		if u.ID == in.ID {
			// The account stays linked whatever becomes of the press: the code is used up.
			p := press{provider: code.Provider, key: "link:" + code.Provider + ":" + uuid.NewString(), action: code.Press.Action, incident: code.Press.IncidentID, account: code.AccountID}
			if out.Body.Applied, err = s.pressAs(ctx, u, p, incident); err != nil {
				s.log.Errorw("the press was not applied after linking", "incident", code.Press.IncidentID, "error", s.redact(err.Error()))
				out.Body.Applied = "it could not be recorded: press it again"
			}
		}
	}
	return out, nil
}

// linkPage tells the owner of a chat account how to be linked. Whoever has the code may see the account's name; using
// the code needs a token.
func (s *Server) linkPage(w http.ResponseWriter, r *http.Request) {
	code := r.PathValue("code")
	c, err := s.store.ReadLinkCode(r.Context(), hashCode(code))
	status, page := http.StatusOK, linkView{Provider: c.Provider, Account: c.Account, AccountID: c.AccountID, Code: strings.ToUpper(code)}
	switch {
	case errors.Is(err, store.ErrNotFound):
		status, page = http.StatusNotFound, linkView{Trouble: "This link is unknown, used already or older than 15 minutes. Press the button in the chat again for a new one."}
	case err != nil:
		s.log.Warnw("the link page failed", "error", s.redact(err.Error()))
		status, page = http.StatusServiceUnavailable, linkView{Trouble: "This can't be looked up at the moment. Load the page again in a minute."}
	}
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'")
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	if err := linkTemplate.Execute(w, page); err != nil {
		s.log.Debugw("the link page was not read to its end", "error", err)
	}
}

type linkView struct{ Provider, Account, AccountID, Code, Trouble string }

var linkTemplate = template.Must(template.New("link").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>tocsin: link your account</title>
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:40rem;margin:3rem auto;padding:0 1rem;color:#222;background:#fff}code{background:#f2f2f2;padding:.6rem .8rem;border-radius:4px;display:block;overflow-wrap:anywhere}
@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}code{background:#2a2a2a}}</style></head><body>
<h1>Link your account</h1>
{{if .Trouble}}<p>{{.Trouble}}</p>{{else}}<p>The {{.Provider}} account <strong>{{with .Account}}{{.}} {{end}}({{.AccountID}})</strong> pressed a button, and tocsin does not know whose it is. Nothing was changed.</p>
<p>Run this with your own user's id, or ask someone who operates tocsin to:</p>
<code>tocsin users link {{.Code}} --user YOUR_ID</code>
<p>It works once, within 15 minutes of the press. The button that you pressed is applied then.</p>{{end}}
</body></html>
`))
