package server

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
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
	ID   string           `path:"id" maxLength:"200"`
	Body *api.LinkAccount // without a code: one is made
}

// linkAccount links the account that was shown a code to a user, or makes a code for the user to hand in from a chat.
func (s *Server) linkAccount(ctx context.Context, in *linkInput) (*body[api.Linked], error) {
	if !hasUser(s.file(), in.ID) {
		return nil, problem(http.StatusNotFound, "", "the file has no user "+in.ID+": `tocsin users list` shows all")
	}
	by := callerOf(ctx).actor()
	if in.Body == nil || in.Body.Code == "" {
		return s.invite(ctx, in.ID, by)
	}
	var code store.LinkCode
	var waiting []store.Callback
	err := s.store.InTx(ctx, func(tx *store.Tx) error {
		var err error
		if code, err = tx.TakeLinkCode(ctx, hashCode(in.Body.Code)); err != nil {
			return err
		}
		waiting, err = s.join(ctx, tx, code.Provider, code.AccountID, in.ID, by, code.Press)
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return nil, problem(http.StatusNotFound, "", "this code is unknown, used already or older than 15 minutes: press the button again for a new one")
	}
	if err != nil {
		return nil, s.fail(ctx, "linking the account", err)
	}
	out := &body[api.Linked]{Body: api.Linked{UserID: in.ID, Provider: code.Provider, AccountID: code.AccountID}}
	out.Body.Applied = s.afterLink(ctx, code.Provider, code.AccountID, in.ID, waiting)
	// Whoever ran the command is somebody else, perhaps.
	s.whisper(code.Press.Notifier, code.Press.To, answer{text: s.linkedText(code.Provider, in.ID, out.Body.Applied)})
	return out, nil
}

// join makes a chat account that of a user. The presses of its owner that wait for it are stored as callbacks in the same
// transaction, so that they are applied whatever happens to this replica; none is older than its code.
func (s *Server) join(ctx context.Context, tx *store.Tx, chat, account, user, by string, presses ...store.Press) ([]store.Callback, error) {
	codes, err := tx.TakeLinkCodesOf(ctx, chat, account)
	if err != nil {
		return nil, err
	}
	for _, c := range codes {
		presses = append(presses, c.Press)
	}
	if err := tx.PutAccount(ctx, chat, account, user, by); err != nil {
		return nil, err
	}
	var waiting []store.Callback
	seen := map[string]bool{}
	for _, p := range presses {
		if p.Action == "" || seen[p.Action+p.IncidentID] {
			continue
		}
		seen[p.Action+p.IncidentID] = true
		h := deed{Provider: chat, Said: provider.Said{Action: p.Action, Value: p.IncidentID, Account: account}}
		body, err := json.Marshal(h)
		if err != nil {
			return nil, fmt.Errorf("write a press: %w", err)
		}
		c := store.Callback{Key: "link:" + chat + ":" + uuid.NewString(), Body: body}
		if err := tx.Receive(ctx, c, applyHold); err != nil {
			return nil, err
		}
		waiting = append(waiting, c)
	}
	return waiting, tx.Audit(ctx, by, "account_linked", user, chat+" "+account)
}

// linkedText tells the owner of a chat account that it is linked, and what became of what they had pressed before.
func (s *Server) linkedText(chat, user, applied string) string {
	text := fmt.Sprintf("This account is linked to %s (%s).", userName(s.file(), user), user)
	if applied != "" {
		text += " The button that you pressed before: " + applied
	}
	return text + "\n" + helpText(chat)
}

// afterLink applies the presses that waited for a link, and says what became of them. The account stays linked in any case: what
// can't be applied now is applied as soon as it can.
func (s *Server) afterLink(ctx context.Context, chat, account, user string, waiting []store.Callback) string {
	s.log.Infow("account linked", "provider", chat, "account", account, "user", user)
	s.linked(ctx)
	var said []string
	for _, c := range waiting {
		var h deed
		if err := json.Unmarshal(c.Body, &h); err != nil {
			continue // it was written a moment ago
		}
		h.key = c.Key
		a, err := s.apply(ctx, h)
		if err != nil {
			s.log.Errorw("a press was not applied after linking, trying again", "incident", h.Value, "error", s.redact(err.Error()))
			a.text = "it could not be recorded yet, and is tried again."
		}
		if a.text != "" {
			said = append(said, a.text)
		}
	}
	return strings.Join(said, " ")
}

// invite makes a code that a user hands in from their own chat account.
func (s *Server) invite(ctx context.Context, user, by string) (*body[api.Linked], error) {
	code := makeCode()
	err := s.store.InTx(ctx, func(tx *store.Tx) error {
		if err := tx.AddInvitation(ctx, hashCode(code), user, by, linkLifetime); err != nil {
			return err
		}
		return tx.Audit(ctx, by, "account_invited", user, "")
	})
	if err != nil {
		return nil, s.fail(ctx, "making a code", err)
	}
	in := &api.Invitation{Code: code, ExpiresAt: time.Now().Add(linkLifetime).UTC()}
	f := s.file()
	for _, name := range slices.Sorted(maps.Keys(f.Notifiers)) {
		switch n := f.Notifiers[name]; {
		case n.Type == "slack" && n.Token != "":
			in.Slack = "/tocsin link " + code
		case n.Type == "telegram":
			in.Telegram = s.invitation(ctx, name, code, in.Telegram)
		}
	}
	return &body[api.Linked]{Body: api.Linked{UserID: user, Invitation: in}}, nil
}

// invitation adds the link that opens a bot with the code, once per bot.
func (s *Server) invitation(ctx context.Context, notifier, code string, links []string) []string {
	p, ok := s.providers(notifier)
	i, can := p.(provider.Inviter)
	if !ok || !can {
		return links
	}
	ctx, cancel := context.WithTimeout(ctx, whisperTimeout)
	defer cancel()
	if link := i.Invite(ctx, code); link != "" && !slices.Contains(links, link) {
		links = append(links, link)
	}
	return links
}

// linkPage tells the owner of a chat account how to be linked. Whoever has the code may see the account's name; using
// the code needs a token.
func (s *Server) linkPage(w http.ResponseWriter, r *http.Request) {
	code := r.PathValue("code")
	c, err := s.store.ReadLinkCode(r.Context(), hashCode(code))
	status, page := http.StatusOK, linkView{Provider: chatName(c.Provider), Server: s.file().Server.PublicURL, Account: c.Account, AccountID: c.AccountID, Code: strings.ToUpper(code), Pressed: c.Press.Action != ""}
	switch {
	case errors.Is(err, store.ErrNotFound):
		status, page = http.StatusNotFound, linkView{Trouble: "This link is unknown, used already or older than 15 minutes. Press the button in the chat, or write the command, again for a new one."}
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

// chatName is what people call a chat.
func chatName(provider string) string {
	return map[string]string{"slack": "Slack", "telegram": "Telegram"}[provider]
}

type linkView struct {
	Provider, Account, AccountID, Code, Trouble, Server string
	Pressed                                             bool
}

var linkTemplate = template.Must(template.New("link").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>tocsin: link your account</title>
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:40rem;margin:3rem auto;padding:0 1rem;color:#222;background:#fff}code{background:#f2f2f2;padding:.6rem .8rem;border-radius:4px;display:block;overflow-wrap:anywhere}code,kbd{font:.9em/1.5 ui-monospace,monospace}kbd{background:#f2f2f2;padding:.1rem .3rem;border-radius:4px;overflow-wrap:anywhere}span{display:inline-block}
@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}code,kbd{background:#2a2a2a}}</style></head><body>
<h1>Link your account</h1>
{{if .Trouble}}<p>{{.Trouble}}</p>{{else}}<p>The {{.Provider}} account <strong>{{with .Account}}{{.}} {{end}}({{.AccountID}})</strong> {{if .Pressed}}pressed a button{{else}}wrote to tocsin{{end}}, and tocsin does not know whose it is.{{if .Pressed}} Nothing was changed.{{end}}</p>
<p>Run this with your own user's id, or ask someone who operates tocsin to:</p>
<code>tocsin users link {{.Code}} <span>--user YOUR_ID</span></code>
<p>YOUR_ID is your id under <em>users</em> in tocsin's file; <kbd>tocsin users list</kbd> shows all. Both commands need the server, <kbd><span>--server {{.Server}}</span></kbd> or TOCSIN_SERVER, and a token of the scope operate, <kbd>--token</kbd> or TOCSIN_TOKEN.</p>
<p>It works once, within 15 minutes.{{if .Pressed}} The button that you pressed is applied then.{{end}}</p>{{end}}
</body></html>
`))
