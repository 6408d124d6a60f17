package chattest

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

// ServeTools answers what every simulated chat offers beside its API: /ledger.json, /faults, /events. It returns
// false, having written nothing, when the path is none of these. The secrets are masked in the ledger.
func (c *Core) ServeTools(w http.ResponseWriter, r *http.Request, secrets ...string) bool {
	switch path := r.URL.Path; {
	case path == "/ledger.json":
		c.serveLedger(w, r, secrets)
	case path == "/faults" || strings.HasPrefix(path, "/faults/"):
		c.serveFaults(w, r)
	case path == "/events":
		c.serveEvents(w, r)
	default:
		return false
	}
	return true
}

// eventGap gathers changes: under load a page is told four times a second at most.
const eventGap = 250 * time.Millisecond

// serveEvents tells a page, as server-sent events, that something has changed; the page fetches what it shows.
func (c *Core) serveEvents(w http.ResponseWriter, r *http.Request) {
	rc := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	for sent := uint64(0); ; {
		changed, version := c.Changed()
		if version != sent {
			if _, err := fmt.Fprintf(w, "id: %d\ndata: changed\n\n", version); err != nil || rc.Flush() != nil {
				return
			}
			sent = version
		} else if rc.Flush() != nil {
			return
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
		select {
		case <-time.After(eventGap):
		case <-r.Context().Done():
			return
		}
	}
}
