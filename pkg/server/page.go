package server

import (
	"crypto/sha256"
	_ "embed" // the page
	"encoding/base64"
	"net/http"
	"strings"

	"github.com/google/uuid"
)

// incidentHTML is the page of an incident, the same for all: it holds no data, and asks the API with a token that its reader
// has. Cards link to it where they don't show everything.
//
//go:embed incident.html
var incidentHTML string

// incidentPolicy lets the page run its own script and style, ask its own server, and nothing else.
var incidentPolicy = "default-src 'none'; script-src '" + digest(incidentHTML, "script") + "'; style-src '" + digest(incidentHTML, "style") +
	"'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// digest names the content of an element of a page for its policy. The page has one such element.
func digest(page, element string) string {
	_, rest, _ := strings.Cut(page, "<"+element+">")
	content, _, _ := strings.Cut(rest, "</"+element+">")
	sum := sha256.Sum256([]byte(content))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

func (s *Server) incidentPage(w http.ResponseWriter, r *http.Request) {
	if uuid.Validate(r.PathValue("id")) != nil {
		writeProblem(w, problem(http.StatusNotFound, "", "this is no incident's address"))
		return
	}
	w.Header().Set("Content-Security-Policy", incidentPolicy)
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write([]byte(incidentHTML))
}
