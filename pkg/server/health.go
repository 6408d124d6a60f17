package server

import (
	"context"
	"net/http"
	"time"
)

// readyTimeout is how long the database may take to answer before the replica counts as not ready.
const readyTimeout = time.Second

// healthz says that the process answers; it says nothing of the database, whose outage no restart would mend.
func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "ok\n") }

// readyz says whether this replica can take alerts, and why not.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	if why := s.notReady(r.Context()); why != "" {
		w.Header().Set("Retry-After", "1")
		writeText(w, http.StatusServiceUnavailable, "not ready: "+why+"\n")
		return
	}
	writeText(w, http.StatusOK, "ready\n")
}

func (s *Server) notReady(ctx context.Context) string {
	if s.stopping() {
		return "this replica is stopping"
	}
	if why := s.unready(); why != "" {
		return why
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if err := s.store.CheckSchema(ctx); err != nil {
		if ctx.Err() != nil {
			return "the database does not answer within " + readyTimeout.String()
		}
		return s.redact(err.Error())
	}
	return ""
}

func writeText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text))
}
