package server

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/intake"
	"github.com/tocsin-oncall/tocsin/pkg/pace"
)

// Where sources that need no entry in the file hand in alerts. What they speak is told by the address.
const (
	alertmanagerPath = "/v1/alertmanager"
	grafanaPath      = "/v1/grafana"
	prometheusPath   = "/api/v2/alerts" // where Prometheus looks for an Alertmanager
	sourcePath       = "/v1/sources/"
)

// takesGroups says that bodies at an address may be as large as a group of alerts.
func takesGroups(path string) bool {
	return path == alertmanagerPath || path == grafanaPath || path == prometheusPath || strings.HasPrefix(path, sourcePath)
}

func (s *Server) sourceRoutes() {
	groups := func(op *huma.Operation) { op.MaxBodyBytes, op.SkipValidateBody = maxGroup, true } // intake reads the body
	route(s, http.MethodPost, alertmanagerPath, api.ScopeIngest, "Hand in alerts as Alertmanager's webhook does (version 4)", http.StatusAccepted, s.postAs(config.TypeAlertmanager), groups)
	route(s, http.MethodPost, grafanaPath, api.ScopeIngest, "Hand in alerts as Grafana's webhook contact point does", http.StatusAccepted, s.postAs(config.TypeGrafana), groups)
	route(s, http.MethodPost, prometheusPath, api.ScopeIngest, "Hand in alerts as Prometheus does with an Alertmanager", http.StatusAccepted, s.postAs(config.TypePrometheus), groups)
	route(s, http.MethodPost, sourcePath+"{name}", api.ScopeIngest, "Hand in what a source of the file sends", http.StatusAccepted, s.postSource, groups,
		func(op *huma.Operation) { op.Middlewares = s.sender(sourceDoor) })
}

type rawInput struct {
	RawBody []byte `contentType:"application/json"`
}

// postAs takes what speaks a type. A token of a source of the file brings that source's settings along.
func (s *Server) postAs(kind string) func(context.Context, *rawInput) (*body[api.AcceptedGroup], error) {
	return func(ctx context.Context, in *rawInput) (*body[api.AcceptedGroup], error) {
		name, err := s.sourceAt(ctx, kind)
		if err != nil {
			return nil, err
		}
		return s.take(ctx, intake.SourceOf(s.file(), name, kind), in.RawBody)
	}
}

// sourceAt is the source that a caller speaks as at the address of a type: the file's one whose token it is, else the built-in
// one. A source's token opens what its source speaks, and nothing else.
func (s *Server) sourceAt(ctx context.Context, kind string) (string, error) {
	c := callerOf(ctx)
	if c.Source == "" {
		return kind, nil
	}
	if src := s.file().Sources[c.Source]; src.Type != kind {
		return "", problem(http.StatusForbidden, "", fmt.Sprintf("the token is that of %s, which speaks %s: send to %s%[1]s", c.Source, src.Type, sourcePath))
	}
	return c.Source, nil
}

func (s *Server) postSource(ctx context.Context, in *struct {
	Name    string `path:"name"`
	RawBody []byte `contentType:"application/json"`
}) (*body[api.AcceptedGroup], error) {
	src, ok := s.file().Sources[in.Name]
	if !ok {
		return nil, problem(http.StatusNotFound, "", "the file has no source "+in.Name)
	}
	return s.take(ctx, src, in.RawBody)
}

// take accepts what a source sent. Alerts that are wrong are told after the others are committed, and logged: what a
// sender is told ends up where nobody looks.
func (s *Server) take(ctx context.Context, src config.Source, text []byte) (*body[api.AcceptedGroup], error) {
	if err := s.within(src, len(text)); err != nil {
		return nil, err
	}
	m, err := intake.Read(s.file(), src, text)
	if err != nil {
		s.refused(src.Name, err)
		return nil, s.intakeError(ctx, "reading the alerts", err)
	}
	if len(m.Notes) > 0 {
		s.log.Warnw("topics of alerts can't be made as the file says, and are made of their labels", "source", src.Name, "alerts", len(m.Notes), "first", s.redact(m.Notes[0].Error()))
	}
	results, err := s.intake.AcceptAll(ctx, m.Groups)
	out := api.AcceptedGroup{Incidents: []api.Accepted{}}
	for n, r := range results {
		if r == nil {
			continue
		}
		s.took(src.Name, *r, len(m.Groups[n].Alerts))
		if r.IncidentID != uuid.Nil {
			out.Incidents = append(out.Incidents, accepted(*r))
		}
	}
	if err != nil {
		return nil, s.intakeError(ctx, "taking the alerts", err)
	}
	if len(m.Wrong) > 0 {
		s.refused(src.Name, m.Wrong[0], "alerts", len(m.Wrong), "taken", m.Alerts)
		const most = 100
		detail := fmt.Sprintf("reading the alerts: %d of them are wrong", len(m.Wrong))
		if m.Alerts > 0 {
			detail += fmt.Sprintf("; the other %d were taken", m.Alerts)
		}
		return nil, wrongInput(detail, m.Wrong[:min(len(m.Wrong), most)]...)
	}
	return &body[api.AcceptedGroup]{Body: out}, nil
}

// refused logs what a source must change.
func (s *Server) refused(source string, first error, more ...any) {
	s.log.Warnw("a source sent what can't be taken", append([]any{"source", source, "first", s.redact(first.Error())}, more...)...)
}

// within holds a source to its rate and its largest body.
func (s *Server) within(src config.Source, size int) error {
	if src.MaxBody > 0 && size > src.MaxBody {
		p := problem(http.StatusRequestEntityTooLarge, "", fmt.Sprintf("the body has %d bytes, and the source %s may send %d", size, src.Name, src.MaxBody))
		s.refused(src.Name, p)
		return p
	}
	if wait := s.rates.wait(src.Name, src.Rate, time.Now()); wait > 0 {
		p := problem(tooMany(src.Type), "", fmt.Sprintf("the source %s may send %d requests in %s: send it again", src.Name, src.Rate.Count, src.Rate.Per))
		return huma.ErrorWithHeaders(p, http.Header{"Retry-After": {strconv.Itoa(max(1, int(math.Ceil(wait.Seconds()))))}})
	}
	return nil
}

// tooMany is the status that tells a sender that it sends too often. Alertmanager gives a message up after a 429, until it
// looks at the group again minutes later; after a 503 it tries again at once, and ever more slowly.
func tooMany(kind string) int {
	if kind == config.TypeAlertmanager {
		return http.StatusServiceUnavailable
	}
	return http.StatusTooManyRequests
}

// rates counts requests by source, on this replica only: a bound against a sender that has gone wild, not a quota. A count
// across replicas would cost each request a write of one row of the database, just when there are too many of them.
type rates struct {
	mu    sync.Mutex
	begun map[string][]time.Time
}

// wait is how long a source must wait before its next request. Zero: it need not, and the request is counted.
func (r *rates) wait(name string, rule pace.Rule, now time.Time) time.Duration {
	if rule.None() {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	b := pace.Bucket{Key: name, Rules: []pace.Rule{rule}}
	if at := b.Earliest(r.begun[name]); at.After(now) {
		return at.Sub(now)
	}
	if r.begun == nil {
		r.begun = map[string][]time.Time{}
	}
	r.begun[name] = b.Begin(r.begun[name], now)
	return 0
}

// door is what a sender of the file may knock at.
type door struct {
	own   bool // it has a token of its own
	query bool // which may come as ?token=
	opens func(c caller) bool
}

func sourceDoor(f *config.File, name string) door {
	src := f.Sources[name]
	return door{own: src.Token != "", query: src.QueryToken, opens: func(c caller) bool { return c.Source == name }}
}

func heartbeatDoor(f *config.File, name string) door {
	h := f.Heartbeats[name]
	return door{own: h.Token != "", query: h.QueryToken, opens: func(c caller) bool { return c.Pulse == name }}
}

// sender is huma's middleware that lets in who may speak as the source or heartbeat {name}: its own token, or any API
// token that may hand in alerts. The token of another one may not.
func (s *Server) sender(find func(f *config.File, name string) door) huma.Middlewares {
	return huma.Middlewares{func(ctx huma.Context, next func(huma.Context)) {
		name := ctx.Param("name")
		d := find(s.file(), name)
		header := ctx.Header("Authorization")
		if token := ctx.Query("token"); header == "" && d.query && token != "" {
			header = "Bearer " + token
		}
		c, p := s.identify(ctx.Context(), header)
		if p == nil && (c.Source != "" || c.Pulse != "") && !d.opens(c) {
			p = problem(http.StatusForbidden, "", "the token is that of "+c.Name+", and not of "+name)
		}
		if p == nil && c.Source == "" && c.Pulse == "" && !api.Allows(c.Scopes, api.ScopeIngest) {
			p = problem(http.StatusForbidden, "", "the token "+c.Name+" has the scopes "+strings.Join(c.Scopes, ", ")+" and this needs "+api.ScopeIngest)
		}
		if p != nil {
			s.turnAway(ctx, p)
			return
		}
		next(huma.WithValue(ctx, callerKey{}, c))
	}}
}

// inOrder are the names of senders, for lists.
func inOrder[T any](all map[string]T) []string {
	out := make([]string, 0, len(all))
	for n := range all {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}
