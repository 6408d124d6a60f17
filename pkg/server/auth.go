package server

import (
	"context"
	"crypto/subtle"
	"encoding/hex"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// tokenMemory is how long the database's tokens are remembered: a revoked one works that much longer, and a burst of
// alerts does not ask for tokens with each.
const (
	tokenMemory  = 3 * time.Second
	tokenTimeout = 2 * time.Second // how long the database may take to give them
	tokenPause   = time.Second     // between two tries while it gives none
)

// caller is who sent a request.
type caller struct {
	Name   string // of the token
	Scopes []string
	Source string // the file's source whose token it is; empty: an API token
	Pulse  string // the file's heartbeat whose token it is, which may call and nothing else
}

// actor is the caller's name in timelines and the audit trail.
func (c caller) actor() string {
	if c.Source != "" {
		return "source:" + c.Source
	}
	return "token:" + c.Name
}

type callerKey struct{}

// callerOf is who sent the request of ctx.
func callerOf(ctx context.Context) caller {
	c, _ := ctx.Value(callerKey{}).(caller)
	return c
}

// anyone is the caller of a server without tokens (--insecure).
var anyone = caller{Name: "insecure", Scopes: []string{api.ScopeAdmin}}

// tokens checks bearer tokens against those of the file, of its sources and of the database.
type tokens struct {
	file func() *config.File
	live func(context.Context) ([]store.Token, error)

	mu     sync.Mutex
	stored []store.Token
	asked  time.Time // when the database last gave them; zero: never
	tried  time.Time // when it was last asked
	failed error     // why it did not give them
}

// find gives the caller of a token's text; false where no live token has it. When the database can't be asked, the
// tokens it gave last still count, and a token that is not among them gets an error: it may be a good one, and a source
// that is told 401 does not send its alert again.
func (t *tokens) find(ctx context.Context, text string) (caller, bool, error) {
	sum := store.HashToken(text)
	c, ok := caller{}, false
	// Every hash is compared, in constant time each: how long it takes says nothing about which one is near.
	f := t.file()
	for _, ft := range f.Server.Tokens {
		hash, err := hex.DecodeString(strings.TrimPrefix(ft.Hash, "sha256:"))
		if err == nil && subtle.ConstantTimeCompare(hash, sum) == 1 {
			c, ok = caller{Name: ft.Name, Scopes: ft.Scopes}, true
		}
	}
	for name, src := range f.Sources {
		if src.Token != "" && subtle.ConstantTimeCompare(store.HashToken(src.Token), sum) == 1 {
			c, ok = caller{Name: name, Scopes: []string{api.ScopeIngest}, Source: name}, true
		}
	}
	for name, h := range f.Heartbeats {
		if h.Token != "" && subtle.ConstantTimeCompare(store.HashToken(h.Token), sum) == 1 {
			c, ok = caller{Name: name, Pulse: name}, true
		}
	}
	if ok {
		return c, true, nil
	}
	stored, err := t.recent(ctx)
	for _, st := range stored {
		if subtle.ConstantTimeCompare(st.Hash, sum) == 1 {
			c, ok = caller{Name: st.Name, Scopes: st.Scopes}, true
		}
	}
	if ok {
		return c, true, nil
	}
	return caller{}, false, err
}

func (t *tokens) recent(ctx context.Context) ([]store.Token, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.asked.IsZero() && time.Since(t.asked) < tokenMemory {
		return t.stored, nil
	}
	if t.failed != nil && time.Since(t.tried) < tokenPause {
		return t.stored, t.failed // an outage must not make every request wait for it in turn
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tokenTimeout)
	defer cancel()
	fresh, err := t.live(ctx)
	t.tried, t.failed = time.Now(), err
	if err == nil {
		t.stored, t.asked = fresh, t.tried
	}
	return t.stored, err
}

// forget makes the next request ask the database again: a token was made or revoked here.
func (t *tokens) forget() {
	t.mu.Lock()
	t.asked = time.Time{}
	t.mu.Unlock()
}

// scope is huma's middleware that lets in only callers with the scope.
func (s *Server) scope(wanted string) huma.Middlewares {
	return huma.Middlewares{func(ctx huma.Context, next func(huma.Context)) {
		c, p := s.admit(ctx.Context(), ctx.Header("Authorization"), wanted)
		if p != nil {
			s.turnAway(ctx, p)
			return
		}
		next(huma.WithValue(ctx, callerKey{}, c))
	}}
}

// turnAway answers a caller that is not let in.
func (s *Server) turnAway(ctx huma.Context, p *api.Problem) {
	switch p.Status {
	case http.StatusUnauthorized:
		ctx.SetHeader("WWW-Authenticate", `Bearer realm="tocsin"`)
	case http.StatusServiceUnavailable:
		ctx.SetHeader("Retry-After", "1")
	}
	_ = huma.WriteErr(s.api, ctx, p.Status, p.Detail)
}

// admit says who the bearer of an Authorization header is, or why it may not do what needs the scope.
func (s *Server) admit(ctx context.Context, header, wanted string) (caller, *api.Problem) {
	c, p := s.identify(ctx, header)
	if p == nil && !api.Allows(c.Scopes, wanted) {
		return caller{}, problem(http.StatusForbidden, "", "the token "+c.Name+" has the scopes "+strings.Join(c.Scopes, ", ")+" and this needs "+wanted)
	}
	return c, p
}

// identify says who the bearer of an Authorization header is.
func (s *Server) identify(ctx context.Context, header string) (caller, *api.Problem) {
	if s.insecure {
		return anyone, nil
	}
	scheme, text, _ := strings.Cut(header, " ")
	text = strings.TrimSpace(text)
	if !strings.EqualFold(scheme, "Bearer") || text == "" {
		return caller{}, problem(http.StatusUnauthorized, "", "send a token as `Authorization: Bearer TOKEN`; `tocsin token create` makes one")
	}
	c, ok, err := s.tokens.find(ctx, text)
	if err != nil {
		return caller{}, problem(http.StatusServiceUnavailable, "", "the token can't be checked at the moment: the database does not answer; send it again")
	}
	if !ok {
		return caller{}, problem(http.StatusUnauthorized, "", "the token is not known here, or it was revoked; `tocsin token create` makes one")
	}
	return c, nil
}
