package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/client"
)

func (p *program) incidentsCommand() *cobra.Command {
	return group("incidents", "See, acknowledge and resolve incidents",
		p.incidentsListCommand(), p.incidentsShowCommand(),
		p.incidentActCommand("ack", "Say that you work on it: nobody else is paged for it", (*client.Client).Acknowledge),
		p.incidentActCommand("escalate", "Bring on the next step of its escalation", (*client.Client).Escalate),
		p.incidentsReassignCommand(), p.incidentsSnoozeCommand(),
		p.incidentActCommand("resolve", "End it by your word", (*client.Client).Resolve))
}

func (p *program) incidentsListCommand() *cobra.Command {
	var q client.Query
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List incidents, newest first",
		Args:  cobra.NoArgs,
		RunE: run(func(cmd *cobra.Command, _ []string) error {
			c, err := p.remote()
			if err != nil {
				return err
			}
			l, err := c.Incidents(cmd.Context(), q)
			if err != nil {
				return err
			}
			if p.json {
				return p.printJSON(l)
			}
			rows := make([][]cell, len(l.Items))
			for i, inc := range l.Items {
				rows[i] = []cell{plain(inc.ID), state(inc.State), plain(inc.Criticality), plain(when(inc.OpenedAt)), plain(strconv.Itoa(inc.Firing)), plain(oneLine(inc.Title, 70))}
			}
			p.table([]string{"INCIDENT", "STATE", "CRITICALITY", "OPENED", "FIRING", "TITLE"}, rows)
			p.more(l.NextCursor)
			return nil
		}),
	}
	cmd.Flags().StringVar(&q.State, "state", "", "open, acknowledged or resolved")
	p.pageFlags(cmd, &q)
	return cmd
}

func (p *program) incidentsShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show ID",
		Short: "Show one incident with its alerts, timeline and deliveries",
		Args:  cobra.ExactArgs(1),
		RunE: run(func(cmd *cobra.Command, args []string) error {
			c, err := p.remote()
			if err != nil {
				return err
			}
			inc, err := c.Incident(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if p.json {
				return p.printJSON(inc)
			}
			p.printIncident(inc)
			alerts := make([][]cell, len(inc.Alerts))
			for i, a := range inc.Alerts {
				status := state(a.Status)
				if a.Silenced != nil {
					status.text += ", silenced"
				}
				alerts[i] = []cell{plain(when(a.StartsAt)), status, plain(oneLine(a.Title, 70)), plain(oneLine(labels(a.Labels), 100)), plain(strconv.Itoa(a.Count))}
			}
			p.line()
			p.table([]string{"BEGAN", "ALERT", "TITLE", "LABELS", "COUNT"}, alerts)
			events := make([][]cell, len(inc.Timeline))
			for i, e := range inc.Timeline {
				events[i] = []cell{plain(when(e.At)), plain(e.Actor), plain(e.Type), plain(oneLine(e.Text, 100))}
			}
			p.line()
			p.table([]string{"AT", "WHO", "WHAT", ""}, events)
			l, err := c.Deliveries(cmd.Context(), client.Query{Incident: inc.ID, Limit: api.MaxLimit})
			if err != nil {
				return err
			}
			p.line()
			p.printDeliveries(l)
			return nil
		}),
	}
}

func (p *program) incidentActCommand(use, short string, act func(*client.Client, context.Context, string, api.IncidentAction) (api.Incident, error)) *cobra.Command {
	var a api.IncidentAction
	cmd := &cobra.Command{
		Use:   use + " ID",
		Short: short,
		Args:  cobra.ExactArgs(1),
		RunE: run(func(cmd *cobra.Command, args []string) error {
			c, err := p.remote()
			if err != nil {
				return err
			}
			inc, err := act(c, cmd.Context(), args[0], a)
			return p.answered(inc, err)
		}),
	}
	answerFlags(cmd, &a)
	return cmd
}

func answerFlags(cmd *cobra.Command, a *api.IncidentAction) {
	cmd.Flags().StringVar(&a.By, "by", "", "whose word it is: a user's id (default: the token's name)")
	cmd.Flags().StringVar(&a.Reason, "reason", "", "why, for the timeline")
}

// answered shows an incident after somebody's answer.
func (p *program) answered(inc api.Incident, err error) error {
	if err != nil {
		return err
	}
	if p.json {
		return p.printJSON(inc)
	}
	p.printIncident(inc)
	return nil
}

func (p *program) incidentsSnoozeCommand() *cobra.Command {
	var a api.SnoozeIncident
	cmd := &cobra.Command{
		Use:   "snooze ID --for 1h",
		Short: "Put it off: it rings again unless it is resolved",
		Long: "The incident is acknowledged for that time. When it is over and nobody has resolved or acknowledged it, its escalations\n" +
			"begin anew.",
		Args: cobra.ExactArgs(1),
		RunE: run(func(cmd *cobra.Command, args []string) error {
			c, err := p.remote()
			if err != nil {
				return err
			}
			inc, err := c.Snooze(cmd.Context(), args[0], a)
			return p.answered(inc, err)
		}),
	}
	cmd.Flags().StringVar(&a.For, "for", "1h", "how long, from 1m to 7d")
	answerFlags(cmd, &a.IncidentAction)
	return cmd
}

func (p *program) incidentsReassignCommand() *cobra.Command {
	var a api.ReassignIncident
	cmd := &cobra.Command{
		Use:   "reassign ID --to USER",
		Short: "Page one person instead",
		Long: "What was to come of the incident's escalations is withdrawn. The person is paged now, and every five minutes, three times\n" +
			"in all, until somebody answers.",
		Args: cobra.ExactArgs(1),
		RunE: run(func(cmd *cobra.Command, args []string) error {
			c, err := p.remote()
			if err != nil {
				return err
			}
			inc, err := c.Reassign(cmd.Context(), args[0], a)
			return p.answered(inc, err)
		}),
	}
	cmd.Flags().StringVar(&a.To, "to", "", "the id of the user who is paged (needed)")
	_ = cmd.MarkFlagRequired("to")
	answerFlags(cmd, &a.IncidentAction)
	return cmd
}

func (p *program) printIncident(inc api.Incident) {
	p.facts(
		plain("incident"), plain(inc.ID),
		plain("title"), plain(oneLine(inc.Title, 200)),
		plain("state"), state(inc.State),
		plain("criticality"), plain(inc.Criticality),
		plain("topic"), plain(inc.Topic),
		plain("alerts"), plain(strconv.Itoa(inc.Firing)+" firing, "+strconv.Itoa(inc.Resolved)+" resolved, "+strconv.Itoa(inc.Count)+" received"),
		plain("silenced"), plain(silencedText(inc.Silenced)),
		plain("opened"), plain(when(inc.OpenedAt)),
		plain("acknowledged"), plain(byWhom(whenever(inc.AcknowledgedAt), inc.AcknowledgedBy)),
		plain("snoozed until"), plain(whenever(inc.SnoozedUntil)),
		plain("resolved"), plain(byWhom(whenever(inc.ResolvedAt), inc.ResolvedBy)),
	)
}

// labels writes labels on one line.
func labels(all map[string]string) string {
	out := make([]string, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		out = append(out, name+"="+all[name])
	}
	return strings.Join(out, ", ")
}

func silencedText(s *api.Silenced) string {
	if s == nil {
		return ""
	}
	return fmt.Sprintf("by %s until %s: %s", s.By, when(s.Until), oneLine(s.Reason, 200))
}

func byWhom(at, by string) string {
	if at != "" && by != "" {
		return at + " by " + by
	}
	return at
}
