package server

import (
	"context"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/api"
)

// guard is what every request goes through before its handler: bounds, headers, a measure, and a net under panics.
func (s *Server) guard(next http.Handler) http.Handler {
	// A page in somebody's browser must not speak to a server on the same machine that asks for no token.
	sameSite := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		began := time.Now()
		w := &recorder{ResponseWriter: out}
		_, pattern := s.mux.Handler(r)
		defer func() {
			if p := recover(); p != nil {
				s.log.Errorw("a request's handler panicked", "handler", handlerName(pattern), "panic", s.redact(asText(p)), "stack", string(debug.Stack()))
				if w.status == 0 {
					writeProblem(w, problem(http.StatusInternalServerError, "", "this is a mistake of tocsin's; its log says more"))
				}
			}
			took := time.Since(began)
			if r.URL.Path == eventsPath && !w.began.IsZero() {
				took = w.began.Sub(began) // how long somebody listens is no measure of anything
			}
			s.metrics.HTTPServed(handlerName(pattern), r.Method, w.status, took)
		}()
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		h.Set("Cache-Control", "no-store")
		if err := sameSite.Check(r); err != nil {
			writeProblem(w, problem(http.StatusForbidden, "", "a page of another site asked a browser for this; tocsin answers no such requests"))
			return
		}
		bound := int64(maxBody)
		if takesGroups(r.URL.Path) {
			bound = maxGroup
		}
		r.Body = http.MaxBytesReader(w, r.Body, bound+1) // huma's own bound of one less gives the better answer
		if enc := r.Header.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
			h.Set("Accept-Encoding", "identity")
			writeProblem(w, problem(http.StatusUnsupportedMediaType, "", "bodies are not unpacked here: send it without `Content-Encoding`"))
			return
		}
		if r.Method != http.MethodGet && !isHeartbeat(r) && (strings.HasPrefix(r.URL.Path, "/v1/") || r.URL.Path == prometheusPath) && !isJSON(r) {
			writeProblem(w, problem(http.StatusUnsupportedMediaType, "", "send the body as JSON, with the header `Content-Type: application/json`"))
			return
		}
		if r.URL.Path == eventsPath {
			next.ServeHTTP(w, r) // it lasts as long as somebody listens; each of its steps has a bound
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), maxRequest)
		defer cancel()
		// Not WithContext on the outer request alone: the mux notes the pattern in the request it is given.
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// isHeartbeat says that a request's body does not matter, whatever it is: a heartbeat's call says all by being made.
func isHeartbeat(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/v1/heartbeats/") }

// elsewhere answers what no other route takes.
func (s *Server) elsewhere(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/" && r.Method == http.MethodGet {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte("tocsin, an on-call pager. The API is described at /openapi.json; /readyz says whether this replica is ready.\n"))
		return
	}
	var allowed []string
	for _, m := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
		probe := r.Clone(r.Context())
		probe.Method = m
		if _, pattern := s.mux.Handler(probe); pattern != "/" {
			allowed = append(allowed, m)
		}
	}
	if len(allowed) > 0 {
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		writeProblem(w, problem(http.StatusMethodNotAllowed, "", "use "+strings.Join(allowed, " or ")))
		return
	}
	p := problem(http.StatusNotFound, "", "there is nothing at this address; /openapi.json describes what there is")
	p.Type = api.ProblemNotFound
	writeProblem(w, p)
}

// recorder notes the status for the measure.
type recorder struct {
	http.ResponseWriter
	status int
	began  time.Time // when the status went out
}

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status, r.began = status, time.Now()
	}
	if status == http.StatusRequestEntityTooLarge {
		// The rest of the body is on its way: what follows on this connection would be read as the next request, and refused.
		r.Header().Set("Connection", "close")
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(b []byte) (int, error) {
	if r.status == 0 {
		r.status, r.began = http.StatusOK, time.Now()
	}
	return r.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach the connection.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// handlerName is a route's path with its parameters unfilled: a bounded set of label values.
func handlerName(pattern string) string {
	if pattern == "/" || pattern == "" {
		return "other"
	}
	_, path, ok := strings.Cut(pattern, " ")
	if !ok {
		return pattern
	}
	return path
}

// operationID names an operation after its address: post-v1-incidents-id-acknowledge.
func operationID(method, path string) string {
	id := strings.ToLower(method) + strings.NewReplacer("/", "-", "{", "", "}", "").Replace(path)
	return strings.TrimSuffix(id, "-")
}

func asText(v any) string {
	switch t := v.(type) {
	case error:
		return t.Error()
	case string:
		return t
	}
	return "of an unusual type"
}
