package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/intake"
	"github.com/tocsin-oncall/tocsin/pkg/pace"
	"github.com/tocsin-oncall/tocsin/pkg/plan"
	topic "github.com/tocsin-oncall/tocsin/pkg/route"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

func (s *Server) explainRoutes() {
	route(s, http.MethodGet, "/v1/explain", api.ScopeRead, "What would become of an alert, or became of an incident, and why", http.StatusOK, s.explainQuery)
	route(s, http.MethodPost, "/v1/explain", api.ScopeRead, "What would become of a whole payload, and why", http.StatusOK, s.explainBody)
}

type explainInput struct {
	Kind        string    `query:"kind" maxLength:"200"`
	Criticality string    `query:"criticality" maxLength:"200"`
	Job         string    `query:"job" maxLength:"200"`
	Label       []string  `query:"label,explode" doc:"NAME=VALUE; may be given several times."`
	At          time.Time `query:"at" doc:"The instant asked about, past or to come; now, if not given."`
	Incident    string    `query:"incident" format:"uuid" doc:"A stored incident, instead of all of these."`
}

func (s *Server) explainQuery(ctx context.Context, in *explainInput) (*body[api.Explanation], error) {
	q := api.Explain{Kind: in.Kind, Criticality: in.Criticality, Job: in.Job, At: in.At, Incident: in.Incident, Labels: map[string]string{}}
	for _, l := range in.Label {
		name, value, ok := strings.Cut(l, "=")
		if !ok || name == "" {
			p := problem(http.StatusUnprocessableEntity, "", explaining+": the request is wrong")
			p.Errors = []api.ProblemItem{{Location: "query.label", Message: l + " is not NAME=VALUE"}}
			return nil, p
		}
		q.Labels[name] = value
	}
	return s.explain(ctx, q)
}

func (s *Server) explainBody(ctx context.Context, in *struct{ Body api.Explain }) (*body[api.Explanation], error) {
	return s.explain(ctx, in.Body)
}

const explaining = "explaining the alert"

func (s *Server) explain(ctx context.Context, q api.Explain) (*body[api.Explanation], error) {
	if err := oneQuestion(q); err != nil {
		return nil, s.intakeError(ctx, explaining, err)
	}
	if q.Incident != "" {
		id, err := uuid.Parse(q.Incident)
		if err != nil {
			return nil, s.intakeError(ctx, explaining, &intake.InputError{Field: "incident", Message: "it is no id of an incident"})
		}
		out, err := s.explainIncident(ctx, id)
		if err != nil {
			return nil, err
		}
		return &body[api.Explanation]{Body: *out}, nil
	}
	alerts, err := s.asked(q)
	if err != nil {
		return nil, s.intakeError(ctx, explaining, err)
	}
	at := q.At
	if at.IsZero() {
		at = time.Now()
	}
	out, err := s.explainAlerts(ctx, alerts, at)
	if err != nil {
		return nil, s.fail(ctx, explaining, err)
	}
	return &body[api.Explanation]{Body: *out}, nil
}

// oneQuestion refuses what would be left out without a word.
func oneQuestion(q api.Explain) error {
	payload := len(q.Payload) > 0 && string(q.Payload) != "null"
	words := q.Kind != "" || q.Criticality != "" || q.Job != "" || len(q.Labels) > 0 || len(q.Notify) > 0
	switch {
	case q.Incident != "" && (words || payload || q.Source != "" || !q.At.IsZero()):
		return &intake.InputError{Field: "incident", Message: "it is told from what was kept: nothing else goes with it"}
	case payload && words:
		return &intake.InputError{Field: "payload", Message: "it holds all about its alerts: kind, criticality, job, labels and notify don't go with it"}
	case !payload && q.Source != "":
		return &intake.InputError{Field: "source", Message: "it says what sent a payload, and there is none"}
	}
	return nil
}

// asked are the alerts that a question is about, as intake would see them.
func (s *Server) asked(q api.Explain) ([]plan.Alert, error) {
	f := s.file()
	if len(q.Payload) == 0 || string(q.Payload) == "null" {
		if q.Kind == "" {
			return nil, &intake.InputError{Field: "kind", Message: "say what the alert is: a kind, a payload, or a stored incident"}
		}
		if topic.Word(q.Job) == plan.SelfJob { // not taken from outside, and asked about all the same
			return []plan.Alert{{Kind: q.Kind, Criticality: q.Criticality, Job: q.Job, Labels: q.Labels, Firing: true}}, nil
		}
		return intake.Checked(f, intake.Group{Alerts: []plan.Alert{{Kind: q.Kind, Criticality: q.Criticality, Job: q.Job, Labels: q.Labels, Notify: q.Notify, Firing: true}}})
	}
	alerts, err := intake.Payload(f, q.Source, q.Payload)
	var wrong *intake.InputError
	if errors.As(err, &wrong) && wrong.Field != "source" {
		return nil, &intake.InputError{Field: strings.TrimSuffix("payload."+strings.TrimPrefix(wrong.Field, "body"), "."), Message: wrong.Message}
	}
	return alerts, err
}

// explainedFor is how long after an alert an explanation looks at who is on call: longer than a round of an escalation takes.
const explainedFor = 30 * 24 * time.Hour

func (s *Server) explainAlerts(ctx context.Context, alerts []plan.Alert, at time.Time) (*api.Explanation, error) {
	rows, err := s.store.SilencesBetween(ctx, at, at)
	if err != nil {
		return nil, err
	}
	linked, err := s.store.Accounts(ctx)
	if err != nil {
		return nil, err
	}
	accounts := make([]plan.Account, len(linked))
	for i, a := range linked {
		accounts[i] = plan.Account(a)
	}
	pauses, err := s.store.Pauses(ctx)
	if err != nil {
		return nil, err
	}
	overrides, err := s.store.OverridesKnown(ctx, at, at.Add(explainedFor))
	if err != nil {
		return nil, err
	}
	f := s.file().WithOverrides(overrides)
	return s.explained(f, plan.Explain(f, plan.Question{Alerts: alerts, At: at, Silences: intake.Silences(rows), Accounts: accounts}), at, pauses), nil
}

// explained puts an explanation into the words of the API.
func (s *Server) explained(f *config.File, e plan.Explanation, at time.Time, pauses []store.Pause) *api.Explanation {
	out := &api.Explanation{At: at.UTC(), Routes: []api.ExplainedRoute{}, Silences: []api.ExplainedSilence{}, People: intake.ExplainedPeople(e.People), Deliveries: []api.ExplainedDelivery{},
		Silenced: e.Silenced, Unrouted: e.Unrouted, Silent: e.Silent(), Words: words(e)}
	for i, a := range e.Alerts {
		w := api.ExplainedAlert{Topic: a.Topic, Labels: a.Labels, Status: "resolved", Routes: []api.ExplainedRoute{}, Silences: []api.ExplainedSilence{}}
		if a.Firing {
			w.Status = "firing"
		}
		if w.Labels == nil {
			w.Labels = map[string]string{}
		}
		w.Routes = s.cleanRoutes(intake.ExplainedRoutes(a.Routes))
		for _, v := range a.Silences {
			w.Silences = append(w.Silences, intake.ExplainedSilence(v))
		}
		if i == 0 {
			out.Topic, out.Routes, out.Silences = w.Topic, w.Routes, w.Silences
		}
		if len(e.Alerts) > 1 {
			out.Alerts = append(out.Alerts, w)
		}
	}
	for _, d := range e.Deliveries {
		n := f.Notifiers[d.Notifier]
		w := api.ExplainedDelivery{Notifier: d.Notifier, Kind: string(d.Kind), Target: d.Target, Person: d.Person, Escalation: d.Escalation, Step: d.Step, After: d.After.String(),
			Policy: policy(f.Kinds[d.Kind], d, n.Retries), Pace: paces(n), HeldBack: heldBack(s.notifier(f, n, pauses))}
		if d.Dead != nil {
			w.Dead, w.DeadReason = d.Dead.Sentence, d.Dead.Reason
		}
		out.Deliveries = append(out.Deliveries, w)
	}
	for i := range out.Words {
		out.Words[i] = s.redact(out.Words[i])
	}
	return out
}

func policy(p delivery.Policy, d plan.Planned, r delivery.Retries) api.ExplainedPolicy {
	w := api.ExplainedPolicy{OnUnknown: string(p.OnUnknown)}
	if d.Lifetime > 0 {
		w.Lifetime = d.Lifetime.String()
	}
	if d.Wait > 0 {
		w.Wait = d.Wait.String()
	}
	w.Retries = fmt.Sprintf("again after %s, then at growing distances up to %s", r.Delay, r.MaxDelay)
	if r.Capped {
		w.Retries += fmt.Sprintf(", at most %d further tries", r.Count)
	}
	return w
}

func paces(n config.Notifier) []string {
	out := []string{}
	for _, r := range []struct {
		what string
		rule pace.Rule
	}{{"each destination", n.Pace.Destination}, {"each group", n.Pace.Group}, {"the account", n.Pace.Account}} {
		if !r.rule.None() {
			out = append(out, fmt.Sprintf("%d in %s to %s", r.rule.Count, r.rule.Per, r.what))
		}
	}
	return out
}

// heldBack says what keeps a notifier's deliveries back now.
func heldBack(n api.Notifier) []string {
	var out []string
	if n.Off {
		out = append(out, "the notifier is off")
	}
	if b := n.Breaker; b != nil {
		out = append(out, fmt.Sprintf("its credentials are refused since %s (%s): %s", stamp(b.Since), b.Reason, b.Sentence))
	}
	for _, p := range n.Pauses {
		out = append(out, fmt.Sprintf("%s rests until %s (%s)", p.Destination, stamp(p.Until), p.Reason))
	}
	return out
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// cleanRoutes takes the values of ${NAME} out of what the file says.
func (s *Server) cleanRoutes(all []api.ExplainedRoute) []api.ExplainedRoute {
	for i := range all {
		all[i].Match, all[i].Why = s.redact(all[i].Match), s.redact(all[i].Why)
	}
	return all
}

// words is an explanation in sentences.
func words(e plan.Explanation) []string {
	out := []string{}
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	fires := slices.ContainsFunc(e.Alerts, func(a plan.ExplainedAlert) bool { return a.Firing })
	switch {
	case !fires:
		say("Nothing fires: it ends an open incident with its key, and where there is none nothing happens.")
		return out
	case e.Unrouted:
		say("No route takes it: nobody is told, and tocsin raises alert.unrouted.")
		return out
	case e.Silenced:
		for _, a := range e.Alerts {
			for _, v := range a.Silences {
				if text := "It is " + v.Silence.Text() + ". What still fires then is sent then."; v.Hides && !slices.Contains(out, text) {
					out = append(out, text)
				}
			}
		}
		return out
	case e.Silent():
		say("Nobody is told at that time:")
		for _, a := range e.Alerts {
			for _, r := range a.Routes {
				if r.Rests {
					say("the route %s would take it, but %s.", r.Match, r.Why)
				}
			}
		}
		say("What still fires when the hours of a route begin is sent then.")
		return out
	}
	if len(e.Notifiers) > 0 {
		say("Told at once: %s.", strings.Join(e.Notifiers, ", "))
	}
	for _, p := range e.People {
		when := "at once"
		if p.After > 0 {
			when = "after " + p.After.String()
		}
		how := "through " + strings.Join(p.Ways, ", then ")
		if len(p.Ways) == 0 {
			how = "and can't be reached: no contact of theirs leads anywhere"
		}
		say("%s (%s) is paged %s %s (escalation %s, step %d).", p.Name, p.Target, when, how, p.Escalation, p.Step)
	}
	for _, d := range e.Deliveries {
		if d.Dead != nil {
			say("The %s through %s to %s would be %s: %s", d.Kind, d.Notifier, d.Target, d.Dead.State, d.Dead.Sentence)
		}
	}
	for _, a := range e.Alerts {
		for _, r := range a.Routes {
			if r.Rests {
				say("The route %s would take it, too, but %s. What still fires then is sent then.", r.Match, r.Why)
			}
		}
	}
	if len(e.People) == 0 && !slices.ContainsFunc(e.Deliveries, func(d plan.Planned) bool { return d.Kind == delivery.Page }) {
		say("Nobody is paged: no route that takes it names an escalation.")
	}
	return out
}
