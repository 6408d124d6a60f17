// Package server is tocsin's HTTP surface: the API under /v1, the chats' callbacks, the page on which a chat account
// is linked, that of an incident, and health. It hands alerts and people's words to pkg/intake and reads through pkg/store; it decides
// nothing itself.
package server

import (
	"context"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"go.uber.org/zap"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/intake"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// Bounds of one request.
const (
	maxBody    = 1 << 20         // bytes
	maxGroup   = 8 << 20         // bytes, of a group of alerts: its source does not send it again after a refusal
	maxRequest = 8 * time.Second // from the first byte of the body to the answer
)

// Metrics is told what happens on this surface. Its methods must be safe for use by many goroutines.
type Metrics interface {
	HTTPServed(handler, method string, status int, took time.Duration)
	DecisionMade(action string)
	AlertsTaken(source string, alerts int, unrouted bool)
}

// Options are what a Server needs. All of it must be set.
type Options struct {
	Store     *store.Store
	Intake    *intake.Intake
	File      func() *config.File // the file in force
	Providers func(name string) (provider.Provider, bool)
	Insecure  bool                  // the API takes requests without a token
	Unready   func() string         // why this replica is not ready, "" when it is, as far as its own parts are concerned
	Stopping  func() bool           // alerts are not running any more
	Ring      func()                // deliveries became due outside of an alert: wake the workers
	Linked    func(context.Context) // a chat account was linked
	// Overridden is told that an override of a schedule was made or ended. May be nil.
	Overridden func()
	Redact     func(string) string
	Metrics    Metrics
	Log        *zap.SugaredLogger
	Version    string
}

// Server answers HTTP requests. It is safe for use by many goroutines.
type Server struct {
	store      *store.Store
	intake     *intake.Intake
	file       func() *config.File
	providers  func(string) (provider.Provider, bool)
	insecure   bool
	unready    func() string
	stopping   func() bool
	ring       func()
	linked     func(context.Context)
	overridden func()
	redact     func(string) string
	metrics    Metrics
	log        *zap.SugaredLogger

	tokens  *tokens
	api     huma.API
	mux     *http.ServeMux
	handler http.Handler

	rates rates // of sources
	ear   *ear  // of those who listen

	// Private answers to whoever pressed a button are given after the callback's own answer.
	whispers sync.WaitGroup
	places   chan struct{} // bounds them
}

// New makes the server. It neither listens nor starts anything.
func New(o Options) *Server {
	s := &Server{
		store: o.Store, intake: o.Intake, file: o.File, providers: o.Providers, insecure: o.Insecure,
		unready: o.Unready, stopping: o.Stopping, ring: o.Ring, linked: o.Linked, overridden: o.Overridden, redact: o.Redact, metrics: o.Metrics, log: o.Log,
		tokens: &tokens{file: o.File, live: o.Store.LiveTokens},
		mux:    http.NewServeMux(),
		places: make(chan struct{}, maxWhispers),
	}
	s.ear = newEar(s.store, func(err error) {
		s.log.Warnw("live events were not read, trying again", "error", s.redact(err.Error()))
	})
	if s.overridden == nil {
		s.overridden = func() {}
	}
	c := huma.DefaultConfig("tocsin", o.Version)
	c.Info.Description = "An on-call pager. Errors are RFC 9457 problem documents with stable types; lists have cursors."
	c.DocsPath, c.SchemasPath, c.CreateHooks = "", "", nil
	c.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"token": {Type: "http", Scheme: "bearer", Description: "An API token, made by `tocsin token create`."},
	}
	s.api = humago.New(s.mux, c)
	s.alertRoutes()
	s.sourceRoutes()
	s.heartbeatRoutes()
	s.incidentRoutes()
	s.deliveryRoutes()
	s.bulkRoutes()
	s.eventRoutes()
	s.notifierRoutes()
	s.peopleRoutes()
	s.scheduleRoutes()
	s.userRoutes()
	s.tokenRoutes()
	s.silenceRoutes()
	s.explainRoutes()
	s.replicaRoutes()
	s.describeCalendars()
	s.mux.HandleFunc("POST /slack/interactions", s.slackInteraction)
	s.mux.HandleFunc("POST /slack/commands", s.slackCommand)
	s.mux.HandleFunc("POST /telegram/{notifier}", s.telegramUpdate)
	s.mux.HandleFunc("GET /link/{code}", s.linkPage)
	s.mux.HandleFunc("GET /incidents/{id}", s.incidentPage)
	s.mux.HandleFunc("GET /v1/schedules/{file}", s.scheduleCalendar)
	s.mux.HandleFunc("GET /v1/users/{file}", s.userCalendar)
	s.mux.HandleFunc("GET /healthz", s.healthz)
	s.mux.HandleFunc("GET /readyz", s.readyz)
	s.mux.HandleFunc("/", s.elsewhere)
	s.handler = s.guard(s.mux)
	return s
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// OpenAPI is the description of the API as JSON.
func (s *Server) OpenAPI() ([]byte, error) { return s.api.OpenAPI().MarshalJSON() }

// Wait waits until the private answers under way are given, at most until ctx ends.
func (s *Server) Wait(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		s.whispers.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// body is an output that has a body and nothing else.
type body[T any] struct{ Body T }

// route registers one operation of the API that needs a scope.
func route[I, O any](s *Server, method, path, scope, summary string, status int, f func(context.Context, *I) (*O, error), more ...func(*huma.Operation)) {
	op := huma.Operation{
		OperationID:   operationID(method, path),
		Method:        method,
		Path:          path,
		Summary:       summary,
		Description:   "Needs a token with the scope " + scope + ".",
		DefaultStatus: status,
		MaxBodyBytes:  maxBody,
		Middlewares:   s.scope(scope),
		Security:      []map[string][]string{{"token": {}}},
		Errors:        []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusUnprocessableEntity, http.StatusServiceUnavailable},
	}
	if method == http.MethodGet {
		op.Middlewares = append(op.Middlewares, s.onlyQuery(queryNames(reflect.TypeFor[I]())))
	}
	for _, change := range more {
		change(&op)
	}
	huma.Register(s.api, op, f)
}

// queryNames are the query parameters that an operation's input names.
func queryNames(t reflect.Type) []string {
	var names []string
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("query"), ","); name != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// onlyQuery refuses parameters that an operation does not have. Passed over, a mistyped filter would choose everything.
func (s *Server) onlyQuery(names []string) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		u := ctx.URL()
		var wrong []error
		for _, name := range slices.Sorted(maps.Keys(u.Query())) {
			if !slices.Contains(names, name) {
				message := "there is no such parameter"
				if len(names) > 0 {
					message += ": use " + strings.Join(names, ", ")
				}
				wrong = append(wrong, &huma.ErrorDetail{Location: "query." + name, Message: message})
			}
		}
		if len(wrong) > 0 {
			_ = huma.WriteErr(s.api, ctx, http.StatusUnprocessableEntity, "the request is wrong", wrong...)
			return
		}
		next(ctx)
	}
}
