package server

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// init makes the errors that huma finds by itself (a body that does not fit its schema, a wrong parameter) the same
// problem documents as ours. huma has one such hook for the whole process.
func init() {
	huma.NewError = func(status int, detail string, errs ...error) huma.StatusError {
		p := problem(status, "", detail)
		if status == http.StatusRequestTimeout {
			p.Status, p.Detail = http.StatusServiceUnavailable, detail+": send it again" // after a 408 Alertmanager does not
		}
		for _, err := range errs {
			if err == nil {
				continue
			}
			item := api.ProblemItem{Message: err.Error()}
			var d huma.ErrorDetailer
			if errors.As(err, &d) {
				// The value is left out: it may be the whole body, with secrets in it.
				item = api.ProblemItem{Location: d.ErrorDetail().Location, Message: d.ErrorDetail().Message}
			}
			p.Errors = append(p.Errors, item)
		}
		return p
	}
}

// sorts names the usual problem of each status.
var sorts = map[int]struct{ typ, title string }{
	http.StatusBadRequest:            {api.ProblemBadRequest, "The request can't be understood"},
	http.StatusUnauthorized:          {api.ProblemUnauthorized, "A valid token is needed"},
	http.StatusForbidden:             {api.ProblemForbidden, "The token may not do this"},
	http.StatusNotFound:              {api.ProblemNotFound, "Not found"},
	http.StatusMethodNotAllowed:      {api.ProblemMethod, "This address does not take that method"},
	http.StatusNotAcceptable:         {api.ProblemNotAcceptable, "Only JSON is spoken here"},
	http.StatusRequestTimeout:        {api.ProblemTimeout, "The request came too slowly"},
	http.StatusConflict:              {api.ProblemConflict, "The state forbids it"},
	http.StatusRequestEntityTooLarge: {api.ProblemTooLarge, "The request is too large"},
	http.StatusUnsupportedMediaType:  {api.ProblemMediaType, "The body must be JSON"},
	http.StatusUnprocessableEntity:   {api.ProblemInvalid, "The request is wrong"},
	http.StatusTooManyRequests:       {api.ProblemTooMany, "Too many requests"},
	http.StatusServiceUnavailable:    {api.ProblemUnavailable, "Not possible at the moment"},
}

// problem makes the problem of a status; an empty type is the status's usual one.
func problem(status int, typ, detail string) *api.Problem {
	s, ok := sorts[status]
	if !ok {
		s.typ, s.title = api.ProblemInternal, http.StatusText(status)
	}
	if typ == "" {
		typ = s.typ
	}
	return &api.Problem{Type: typ, Title: s.title, Status: status, Detail: detail}
}

// fail turns what went wrong inside into what a stranger may see. The cause of a 5xx goes to the log only; doing
// says what was asked for, for that line.
func (s *Server) fail(ctx context.Context, doing string, err error) error {
	var p *api.Problem
	switch {
	case errors.As(err, &p):
		return p
	case errors.Is(err, store.ErrNotFound):
		return problem(http.StatusNotFound, "", doing+": there is none with this id")
	case errors.Is(err, store.ErrCursor):
		return problem(http.StatusUnprocessableEntity, "", err.Error())
	case errors.Is(err, store.ErrKeyReused):
		return problem(http.StatusUnprocessableEntity, api.ProblemKeyReused, err.Error())
	}
	if ctx.Err() != nil {
		return comeAgain(doing + " took too long: send it again")
	}
	s.log.Warnw("request failed", "doing", doing, "error", s.redact(err.Error()))
	return comeAgain(doing + " is not possible at the moment: the database does not take it; send it again")
}

// comeAgain is a 503 that says when to try again.
func comeAgain(detail string) error {
	return huma.ErrorWithHeaders(problem(http.StatusServiceUnavailable, "", detail), http.Header{"Retry-After": {"1"}})
}

// writeProblem answers outside of huma's reach.
func writeProblem(w http.ResponseWriter, p *api.Problem) {
	b, err := json.Marshal(p)
	if err != nil { // strings and numbers only
		b = []byte(`{}`)
	}
	if p.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="tocsin"`)
	}
	if p.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	w.Header().Set("Content-Type", p.ContentType(""))
	w.WriteHeader(p.Status)
	_, _ = w.Write(b)
}

// isJSON says whether a body may be read as JSON. A form is refused although it might parse: browsers send forms to
// other sites without asking.
func isJSON(r *http.Request) bool {
	mt, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	mt = strings.ToLower(strings.TrimSpace(mt))
	return mt == "" || mt == "application/json" || strings.HasPrefix(mt, "application/") && strings.HasSuffix(mt, "+json")
}
