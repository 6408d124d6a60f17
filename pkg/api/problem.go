package api

import "fmt"

// Problem is an error answer (RFC 9457, application/problem+json). Type is stable: programs may compare it.
type Problem struct {
	Type   string        `json:"type" doc:"Stable name of the sort of problem." example:"urn:tocsin:problem:not-found"`
	Title  string        `json:"title" doc:"The sort of problem in words."`
	Status int           `json:"status" doc:"The HTTP status."`
	Detail string        `json:"detail,omitempty" doc:"What went wrong here and how to mend it."`
	Errors []ProblemItem `json:"errors,omitempty" doc:"Each mistake of the request."`
}

// ProblemItem is one mistake of a request.
type ProblemItem struct {
	Location string `json:"location,omitempty" doc:"Where the mistake is, e.g. body.labels."`
	Message  string `json:"message" doc:"What is wrong there."`
}

// Types of problems.
const (
	problemPrefix = "urn:tocsin:problem:"

	ProblemBadRequest    = problemPrefix + "bad-request"          // 400: not understood
	ProblemUnauthorized  = problemPrefix + "unauthorized"         // 401: no token, or one that is not known
	ProblemForbidden     = problemPrefix + "forbidden"            // 403: the token lacks a scope
	ProblemNotFound      = problemPrefix + "not-found"            // 404
	ProblemMethod        = problemPrefix + "method-not-allowed"   // 405
	ProblemNotAcceptable = problemPrefix + "not-acceptable"       // 406: only JSON is spoken
	ProblemTimeout       = problemPrefix + "timeout"              // 503: the body came too slowly
	ProblemConflict      = problemPrefix + "conflict"             // 409: the state forbids it; Detail names the state
	ProblemTooLarge      = problemPrefix + "too-large"            // 413
	ProblemMediaType     = problemPrefix + "not-json"             // 415
	ProblemInvalid       = problemPrefix + "invalid"              // 422: understood, and wrong; Errors says where
	ProblemKeyReused     = problemPrefix + "idempotency-key-used" // 422: the Idempotency-Key came with another body before
	ProblemTooMany       = problemPrefix + "too-many"             // 429: more than the source's rate; Retry-After says when
	ProblemInternal      = problemPrefix + "internal"             // 500
	ProblemUnavailable   = problemPrefix + "unavailable"          // 503: send it again later
	ProblemStopping      = problemPrefix + "stopping"             // 503: this replica is leaving
)

// Error is the detail with the items, on one line.
func (p *Problem) Error() string {
	s := p.Detail
	if s == "" {
		s = p.Title
	}
	for i, e := range p.Errors {
		sep := "; "
		if i == 0 {
			sep = ": "
		}
		if e.Location == "" {
			s += sep + e.Message
			continue
		}
		s += fmt.Sprintf("%s%s: %s", sep, e.Location, e.Message)
	}
	return s
}

// GetStatus is the HTTP status.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType is the media type of problems.
func (p *Problem) ContentType(string) string { return "application/problem+json" }
