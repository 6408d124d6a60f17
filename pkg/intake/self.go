package intake

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/card"
	"github.com/tocsin-oncall/tocsin/pkg/message"
	"github.com/tocsin-oncall/tocsin/pkg/plan"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// AnnounceEvery is how often one self-alert incident is announced at most.
const AnnounceEvery = 24 * time.Hour

// The kinds of self-alerts that are raised here. delivery_<state> is raised by the scheduler.
const (
	SelfUnrouted       = "unrouted"
	SelfNobodyAnswered = "nobody_answered"
	SelfNotifierBroken = "notifier_broken"
	SelfReloadFailed   = "reload_failed"
	SelfHeartbeat      = "heartbeat_missed"
	SelfUnreachable    = "unreachable_soon"
	SelfUserGroup      = "user_group_failed"
	SelfCoverageGap    = "coverage_gap"
	SelfCalendar       = "calendar_failed"
)

// Self is an alert of tocsin about itself. What has the same kind and About is one incident.
type Self struct {
	Kind        string
	Criticality string
	About       string // what it is about: notifier, destination and reason; a topic; an incident
	Title       string
	Text        string
	Labels      map[string]string
	Links       []message.Link
	Avoid       []string // notifiers that it is not sent through while there are others: it is about them
	// Daily: its incident is announced once a day at most. That is for what comes again and again from one cause, as deaths do and what
	// no route takes. All else is news each time: an account that breaks after it was well, another wrong file, a silent source.
	Daily bool
}

// Key is its incident's key. Nobody outside can name it.
func (s Self) Key() string { return plan.SelfKey + s.Kind + ":" + s.About }

// SelfAlert raises an alert about tocsin itself within a transaction of the caller, who calls Committed after the
// commit. It is routed like any other. Where it is a daily one whose incident was announced within the last day and is resolved
// since, the new one is stored and shown but sends nothing.
func (i *Intake) SelfAlert(ctx context.Context, tx *store.Tx, s Self) (Result, error) {
	a := plan.Alert{
		Kind: s.Kind, Criticality: s.Criticality, Job: plan.SelfJob, Firing: true, Title: line(s.Title, MaxTitle), Text: clean(s.Text), Labels: s.Labels, Links: s.Links,
	}
	f := i.file()
	key := plan.Key(f, SelfSource, plan.Alert{Key: clean(s.Key())})
	r, _, err := i.accept(ctx, tx, f, Group{Source: SelfSource, Key: key, Alerts: []plan.Alert{a}, Avoid: s.Avoid, Daily: s.Daily}, nil)
	if err != nil {
		return r, fmt.Errorf("self-alert %s: %w", s.Kind, err)
	}
	return r, nil
}

// ResolveSelf ends a self-alert incident whose cause is gone. cause looks again under the incident's lock and says
// whether it is still there. False: it is, or the incident is over.
func (i *Intake) ResolveSelf(ctx context.Context, key, why string, cause func(tx *store.Tx) (bool, error)) (bool, error) {
	done := false
	var r Result
	err := i.store.InTx(ctx, func(tx *store.Tx) error {
		done, r = false, Result{}
		inc, ok, err := tx.LiveIncident(ctx, key)
		if err != nil || !ok {
			return err
		}
		if still, err := cause(tx); err != nil || still {
			return err
		}
		alerts, err := tx.Alerts(ctx, inc.ID, 10_000)
		if err != nil {
			return err
		}
		c := &change{tx: tx, f: i.file(), redact: i.redact, inc: inc}
		now := c.at()
		for n := range alerts {
			if alerts[n].Status == firing {
				alerts[n].Status, alerts[n].EndsAt = resolved, &now
				c.inc.Firing--
				c.inc.Resolved++
			}
		}
		if err := tx.PutAlerts(ctx, inc.ID, alerts); err != nil {
			return err
		}
		c.resolve("tocsin", "tocsin", "", why)
		done, r.wake = true, tx.Now()
		_, err = c.write(ctx)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("resolve the self-alert %s: %w", key, err)
	}
	i.Committed(r)
	return done, nil
}

// quiet says that a daily self-alert's incident sends nothing: one with its key was announced less than a day ago. It says so
// once on the timeline.
func (c *change) quiet(ctx context.Context) (bool, error) {
	if len(c.ds) > 0 {
		return false, nil
	}
	at, ok, err := c.tx.LastAnnounced(ctx, c.inc.Key)
	if err != nil {
		return false, fmt.Errorf("look for the last announcement: %w", err)
	}
	if !ok || c.tx.Now().Sub(at) >= AnnounceEvery {
		return false, nil
	}
	if c.created {
		c.note("tocsin", card.EntryQuiet, "Not announced again: the same was announced at "+at.UTC().Format(time.RFC3339))
	}
	return true, nil
}

// unrouted is the alert about an accepted alert that nothing in the file takes.
func unrouted(inc store.Incident) Self {
	return Self{
		Kind: SelfUnrouted, Criticality: inc.Criticality, About: inc.Topic, Daily: true,
		Title:  "No route takes " + inc.Topic,
		Text:   fmt.Sprintf("The alert %q was accepted and is kept, but nobody is told: no route of the file matches it and it names no notifier. Add a route that matches %s.", shorten(inc.Title, alertTitle), inc.Topic),
		Labels: map[string]string{"topic": inc.Topic},
	}
}

// nobodyAnswered is the alert about an escalation that ran to its end.
func nobodyAnswered(inc store.Incident, escalation string) Self {
	return Self{
		Kind: SelfNobodyAnswered, Criticality: inc.Criticality, About: inc.ID.String(),
		Title:  "Nobody answered: " + shorten(inc.Title, alertTitle),
		Text:   fmt.Sprintf("The escalation %s came to its end without an answer. The incident stays open; its card's buttons and `tocsin incidents ack %s` answer it.", escalation, inc.ID),
		Labels: map[string]string{"incident": inc.ID.String(), "escalation": escalation},
	}
}

// sorted are the keys of labels in order.
func sorted(labels map[string]string) []string {
	out := make([]string, 0, len(labels))
	for n := range labels {
		out = append(out, n)
	}
	slices.SortFunc(out, strings.Compare)
	return out
}
