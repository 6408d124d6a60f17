package server

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/card"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/intake"
	"github.com/tocsin-oncall/tocsin/pkg/plan"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// explainIncident tells from what was kept why somebody was paged for an incident, or was not, and what would become of it if it came
// in now.
func (s *Server) explainIncident(ctx context.Context, id uuid.UUID) (*api.Explanation, error) {
	inc, err := s.store.ReadIncident(ctx, id)
	if err != nil {
		return nil, s.fail(ctx, explaining, err)
	}
	var rows []store.Alert
	err = s.store.InTx(ctx, func(tx *store.Tx) (err error) {
		rows, err = tx.Alerts(ctx, id, maxAlerts)
		return err
	})
	if err != nil {
		return nil, s.fail(ctx, explaining, err)
	}
	alerts := intake.Stored(rows)
	now, err := s.explainAlerts(ctx, alerts, time.Now())
	if err != nil {
		return nil, s.fail(ctx, explaining, err)
	}
	kept, err := s.kept(ctx, inc, id)
	if err != nil {
		return nil, s.fail(ctx, explaining, err)
	}
	out := kept.explanation()
	if len(kept.decisions) == 0 {
		// An incident of a version that kept no decisions.
		old, err := s.explainAlerts(ctx, alerts, inc.OpenedAt)
		if err != nil {
			return nil, s.fail(ctx, explaining, err)
		}
		out.Topic, out.Routes, out.Silences, out.People, out.Alerts = old.Topic, old.Routes, old.Silences, old.People, old.Alerts
		out.Silenced, out.Unrouted = old.Silenced, old.Unrouted
		out.Words = append(append([]string{"What the file said then was not kept. The file in force now says:"}, old.Words...), out.Words...)
	}
	out.Now = now
	if out.Story, err = s.stories(ctx, kept); err != nil {
		return nil, s.fail(ctx, explaining, err)
	}
	inc.Timeline = nil
	out.Incident = &inc
	return out, nil
}

// kept is what is stored about an incident.
type kept struct {
	server     *Server
	inc        api.Incident
	decisions  []api.ExplainedDecision
	steps      []store.EscalationStep
	deliveries []api.Delivery // oldest first
	pauses     []store.Pause
}

func (s *Server) kept(ctx context.Context, inc api.Incident, id uuid.UUID) (*kept, error) {
	k := &kept{server: s, inc: inc}
	rows, err := s.store.Routing(ctx, id)
	if err != nil {
		return nil, err
	}
	for _, r := range rows {
		var d api.ExplainedDecision
		if err := json.Unmarshal(r.Body, &d); err != nil {
			return nil, fmt.Errorf("read how incident %s was routed: %w", id, err)
		}
		d.At, d.File, d.Topic, d.Labels = r.At, r.File, r.Topic, r.Labels
		for i, v := range d.Routes {
			if v.Why == "" {
				d.Routes[i].Why = plan.OtherTopic(d.Topic, v.Match)
			}
		}
		k.decisions = append(k.decisions, d)
	}
	if k.steps, err = s.store.ReadSteps(ctx, id); err != nil {
		return nil, err
	}
	for cursor := ""; ; {
		l, err := s.store.ListDeliveries(ctx, store.DeliveryFilter{Incident: id, Limit: api.MaxLimit, Cursor: cursor})
		if err != nil {
			return nil, err
		}
		k.deliveries = append(k.deliveries, l.Items...)
		if cursor = l.NextCursor; cursor == "" || len(k.deliveries) >= maxAlerts {
			break
		}
	}
	slices.Reverse(k.deliveries)
	k.pauses, err = s.store.Pauses(ctx)
	return k, err
}

// explanation is what was kept, in the form in which what would be is told.
func (k *kept) explanation() *api.Explanation {
	out := &api.Explanation{At: k.inc.OpenedAt, Topic: k.inc.Topic, Routes: []api.ExplainedRoute{}, Silences: []api.ExplainedSilence{}, People: k.people(),
		Deliveries: []api.ExplainedDelivery{}, Decisions: k.decisions, Silent: len(k.deliveries) == 0}
	silenced, took := 0, false
	for i, d := range k.decisions {
		if i == 0 {
			out.Topic, out.Routes = d.Topic, d.Routes
		}
		if d.Silence != nil {
			silenced++
			out.Silences = append(out.Silences, *d.Silence)
		}
		took = took || d.Silence != nil || len(d.Notifiers)+len(d.Escalations) > 0 || slices.ContainsFunc(d.Routes, func(r api.ExplainedRoute) bool { return r.Rests })
	}
	out.Silenced = out.Silent && silenced > 0 && silenced == len(k.decisions)
	out.Unrouted = out.Silent && len(k.decisions) > 0 && !took
	f := k.server.file()
	for _, d := range k.deliveries {
		n := f.Notifiers[d.Notifier]
		w := api.ExplainedDelivery{ID: d.ID, Notifier: d.Notifier, Kind: d.Kind, Target: d.Target, State: d.State, Reason: d.Reason,
			After: d.CreatedAt.Sub(k.inc.OpenedAt).Round(time.Second).String(), Pace: paces(n)}
		if d.Kind == string(delivery.Page) {
			w.Person = whom(out.People, d.Target)
		}
		planned := plan.Planned{}
		if d.ExpiresAt != nil {
			planned.Lifetime = d.ExpiresAt.Sub(d.CreatedAt).Round(time.Second)
		}
		w.Policy = policy(f.Kinds[delivery.Kind(d.Kind)], planned, n.Retries)
		if delivery.State(d.State).Dead() {
			w.Dead, w.DeadReason = d.Sentence, d.Reason
		}
		if d.State == string(delivery.Pending) {
			w.HeldBack = heldBack(k.server.notifier(f, n, k.pauses))
		}
		out.Deliveries = append(out.Deliveries, w)
	}
	for _, s := range k.steps {
		w := api.ExplainedStep{Escalation: s.Name, Round: s.Round, Step: s.Step + 1, State: s.State, DueAt: s.DueAt, FiredAt: s.FiredAt, Reason: s.Reason}
		if s.Held {
			w.State = "held"
		}
		out.Steps = append(out.Steps, w)
	}
	out.Words = k.words()
	return out
}

// people are all whom the escalations would have paged, by the schedules of then.
func (k *kept) people() []api.ExplainedPerson {
	out := []api.ExplainedPerson{}
	for _, d := range k.decisions {
		for _, p := range d.People {
			if !slices.ContainsFunc(out, func(o api.ExplainedPerson) bool {
				return o.ID == p.ID && o.Escalation == p.Escalation && o.Step == p.Step
			}) {
				out = append(out, p)
			}
		}
	}
	return out
}

// whom is the person that a target meant then; empty where it meant several, or nobody knows.
func whom(all []api.ExplainedPerson, target string) string {
	id := ""
	for _, p := range all {
		if p.Target == target && id != "" && id != p.ID {
			return ""
		}
		if p.Target == target {
			id = p.ID
		}
	}
	return id
}

// words says in sentences why somebody was told, or was not.
func (k *kept) words() []string {
	out := []string{}
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	for _, d := range k.decisions {
		about := stamp(d.At)
		if len(k.decisions) > 1 {
			about += ", " + d.Topic + labelWords(d.Labels)
		}
		var took []string
		for _, r := range d.Routes {
			if r.Matched {
				took = append(took, r.Match)
			}
		}
		switch {
		case d.Silence != nil:
			say("%s: kept back, silenced by %s until %s: %s", about, d.Silence.By, stamp(d.Silence.Until), d.Silence.Reason)
		case len(took) == 0 && len(d.Notifiers) == 0 && !slices.ContainsFunc(d.Routes, func(r api.ExplainedRoute) bool { return r.Rests }):
			say("%s: no route took it.", about)
		case len(took) == 0 && len(d.Notifiers) > 0:
			say("%s: no route took it; it named %s itself.", about, strings.Join(d.Notifiers, ", "))
		case len(took) > 0:
			text := "taken by " + strings.Join(took, ", ")
			if len(d.Notifiers) > 0 {
				text += "; notifiers " + strings.Join(d.Notifiers, ", ")
			}
			if len(d.Escalations) > 0 {
				text += "; escalation " + strings.Join(d.Escalations, ", ")
			}
			say("%s: %s.", about, text)
		}
		for _, r := range d.Routes {
			if r.Rests && d.Silence == nil {
				say("%s: the route %s would have taken it, but %s.", about, r.Match, r.Why)
			}
		}
	}
	for _, e := range k.inc.Timeline {
		if e.Type == card.EntryUnreachable {
			say("%s: %s", stamp(e.At), e.Text)
		}
	}
	for _, d := range k.deliveries {
		if text := fate(d); text != "" {
			say("%s", text)
		}
	}
	out = append(out, k.stepWords()...)
	if !slices.ContainsFunc(k.deliveries, func(d api.Delivery) bool { return d.Kind == string(delivery.Page) }) && len(k.steps) == 0 && len(k.deliveries) > 0 {
		say("Nobody was paged: no route that took it names an escalation.")
	}
	return out
}

// fate says of a page what became of it, and of another delivery only where it is not out.
func fate(d api.Delivery) string {
	what := fmt.Sprintf("The %s through %s to %s", d.Kind, d.Notifier, d.Target)
	why := ""
	if d.Reason != "" {
		why = " (" + d.Reason + ")"
	}
	if d.Sentence != "" {
		why += ": " + d.Sentence
	}
	late := ""
	if d.Overdue {
		late = " It was kept back for longer than its bound, and the escalation did not wait for it."
	}
	page := d.Kind == string(delivery.Page)
	switch state := delivery.State(d.State); {
	case state.Dead():
		return what + " is dead, " + d.State + why + late
	case state == delivery.Pending && d.AttemptCount == 0 && d.Reason == "" && !page:
		return ""
	case state == delivery.Pending && d.Reference == nil:
		return what + " is not out yet" + why + late
	case state == delivery.Canceled && (page || d.Reference == nil):
		return what + " was taken back" + why + late
	case page && state == delivery.Assumed:
		return what + " counts as delivered by a person's word" + why + late
	case page:
		return what + " was accepted by the provider." + late
	}
	return ""
}

// stepWords says of the first round's steps why they did not fire.
func (k *kept) stepWords() []string {
	var out []string
	people := k.people()
	for _, s := range k.steps {
		if s.Round > 1 || s.Step == intake.StepEnd || s.State == "fired" {
			continue
		}
		what := fmt.Sprintf("Step %d of the escalation %s", s.Step+1, s.Name)
		var names []string
		after := ""
		for _, p := range people {
			if p.Escalation == s.Name && p.Step == s.Step+1 {
				names, after = append(names, p.Name), p.After
			}
		}
		if len(names) > 0 {
			what += " (" + strings.Join(names, ", ") + ", after " + after + ")"
		}
		switch {
		case s.Held:
			what += " stands still while the incident is silenced."
		case s.DueAt != nil:
			what += " is due at " + stamp(*s.DueAt) + ", unless somebody answers."
		case s.Reason == "acknowledged" && k.inc.AcknowledgedAt != nil:
			what += fmt.Sprintf(" did not fire: %s acknowledged at %s.", k.inc.AcknowledgedBy, stamp(*k.inc.AcknowledgedAt))
		case k.inc.ResolvedAt != nil:
			what += fmt.Sprintf(" did not fire: it was resolved at %s.", stamp(*k.inc.ResolvedAt))
		default:
			what += " did not fire: " + s.Reason + "."
		}
		out = append(out, what)
	}
	return out
}

func labelWords(labels map[string]string) string {
	var out []string
	for _, n := range slices.Sorted(maps.Keys(labels)) {
		out = append(out, n+"="+labels[n])
	}
	if len(out) == 0 {
		return ""
	}
	return " {" + strings.Join(out, ", ") + "}"
}

// stories are an incident's timeline, its deliveries and each of their attempts, in order.
func (s *Server) stories(ctx context.Context, k *kept) ([]api.ExplainedLine, error) {
	var out []api.ExplainedLine
	for _, e := range k.inc.Timeline {
		out = append(out, api.ExplainedLine{At: e.At, Text: e.Text})
	}
	for _, d := range k.deliveries {
		if d.AttemptCount > 0 {
			var err error
			if d, err = s.store.ReadDelivery(ctx, uuid.MustParse(d.ID)); err != nil { // written by the store
				return nil, err
			}
		}
		out = append(out, story(d)...)
	}
	slices.SortStableFunc(out, func(a, b api.ExplainedLine) int { return a.At.Compare(b.At) })
	return out, nil
}

// story is what became of a delivery, in words.
func story(d api.Delivery) []api.ExplainedLine {
	what := fmt.Sprintf("The %s through %s to %s", d.Kind, d.Notifier, d.Target)
	out := []api.ExplainedLine{{At: d.CreatedAt, Text: what + " was made"}}
	for _, a := range d.Attempts {
		text := fmt.Sprintf("%s, attempt %d to %s", what, a.Number, a.Address)
		switch a.Outcome {
		case "":
			text += " is under way"
		case "sent":
			text += " was accepted by the provider"
		case "failed":
			text += " failed: nothing was made"
		default:
			text += " is in doubt: it may have arrived, and nobody knows"
		}
		var why []string
		for _, w := range []string{a.Reason, a.Error} {
			if w != "" {
				why = append(why, w)
			}
		}
		if a.Outcome != "sent" && len(why) > 0 {
			text += " (" + strings.Join(why, ": ") + ")"
		}
		if a.LateOutcome != "" {
			text += "; a late answer said " + a.LateOutcome
		}
		out = append(out, api.ExplainedLine{At: a.StartedAt, Text: text})
	}
	for _, c := range d.Decisions {
		out = append(out, api.ExplainedLine{At: c.At, Text: fmt.Sprintf("%s: %s decided %s (%s)", what, c.Actor, c.Action, c.Reason)})
	}
	text := fmt.Sprintf("%s is %s", what, d.State)
	if d.Reason != "" {
		text += " (" + d.Reason + ")"
	}
	if d.Sentence != "" {
		text += ": " + d.Sentence
	}
	switch {
	case d.SettledAt != nil:
		out = append(out, api.ExplainedLine{At: *d.SettledAt, Text: text})
	case d.NextAt != nil:
		out = append(out, api.ExplainedLine{At: *d.NextAt, Text: text + "; this is when it is looked at next"})
	}
	return out
}
