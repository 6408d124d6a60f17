package main

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/client"
)

func (p *program) deliveriesCommand() *cobra.Command {
	return group("deliveries", "See what was sent, what waits and what died", p.deliveriesListCommand(), p.deliveriesShowCommand())
}

func (p *program) deliveriesListCommand() *cobra.Command {
	var q client.Query
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List deliveries, newest first",
		Example: "  tocsin deliveries list --state dead",
		Args:    cobra.NoArgs,
		RunE: run(func(cmd *cobra.Command, _ []string) error {
			c, err := p.remote()
			if err != nil {
				return err
			}
			l, err := c.Deliveries(cmd.Context(), q)
			if err != nil {
				return err
			}
			if p.json {
				return p.printJSON(l)
			}
			p.printDeliveries(l)
			return nil
		}),
	}
	f := cmd.Flags()
	f.StringVar(&q.State, "state", "", "a state, or dead for all that wait for a decision")
	f.StringVar(&q.Notifier, "notifier", "", "only those through this notifier")
	f.StringVar(&q.Kind, "kind", "", "page, card, thread, notice, event or bulk")
	f.StringVar(&q.Incident, "incident", "", "only those of this incident")
	p.pageFlags(cmd, &q)
	return cmd
}

func (p *program) deliveriesShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show ID",
		Short: "Show one delivery with every attempt and decision",
		Args:  cobra.ExactArgs(1),
		RunE: run(func(cmd *cobra.Command, args []string) error {
			c, err := p.remote()
			if err != nil {
				return err
			}
			d, err := c.Delivery(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if p.json {
				return p.printJSON(d)
			}
			p.printDelivery(d)
			return nil
		}),
	}
}

func (p *program) printDeliveries(l api.List[api.Delivery]) {
	rows := make([][]cell, len(l.Items))
	for i, d := range l.Items {
		rows[i] = []cell{plain(d.ID), plain(d.Kind), plain(d.Notifier), plain(d.Target), state(d.State), plain(d.Reason), plain(strconv.Itoa(d.AttemptCount)), plain(when(d.CreatedAt))}
	}
	p.table([]string{"DELIVERY", "KIND", "NOTIFIER", "TARGET", "STATE", "REASON", "ATTEMPTS", "CREATED"}, rows)
	p.more(l.NextCursor)
}

func (p *program) printDelivery(d api.Delivery) {
	doubt := ""
	if d.InDoubt {
		doubt = "an attempt may have arrived, and nobody knows"
	}
	p.facts(
		plain("delivery"), plain(d.ID),
		plain("incident"), plain(d.IncidentID),
		plain("what"), plain(d.Kind+" through "+d.Notifier+" to "+d.Target),
		plain("state"), state(d.State),
		plain("reason"), plain(d.Reason),
		plain(""), plain(d.Sentence),
		plain("in doubt"), plain(doubt),
		plain("effect"), plain(strconv.Itoa(d.Effect)),
		plain("revision"), plain(fmt.Sprintf("%d applied, %d desired", d.AppliedRevision, d.DesiredRevision)),
		plain("created"), plain(when(d.CreatedAt)),
		plain("next"), plain(whenever(d.NextAt)),
		plain("expires"), plain(whenever(d.ExpiresAt)),
		plain("settled"), plain(whenever(d.SettledAt)),
	)
	if len(d.Attempts) > 0 {
		p.line()
		rows := make([][]cell, len(d.Attempts))
		for i, a := range d.Attempts {
			ms := ""
			if a.DurationMS != nil {
				ms = fmt.Sprintf("%.0f", *a.DurationMS)
			}
			late := a.LateOutcome
			if late != "" {
				late += " at " + whenever(a.LateAt)
			}
			outcome := a.Outcome
			if outcome == "" {
				outcome = "open"
			}
			rows[i] = []cell{plain(strconv.Itoa(a.Number)), plain(when(a.StartedAt)), plain(a.Operation), plain(a.Address), state(outcome), plain(a.Evidence), plain(a.Phase), plain(a.Form), plain(a.Reason), plain(ms), plain(a.Worker), plain(late)}
		}
		p.table([]string{"#", "STARTED", "OPERATION", "ADDRESS", "OUTCOME", "EVIDENCE", "PHASE", "FORM", "REASON", "MS", "REPLICA", "LATE"}, rows)
		p.printEvidence(d.Attempts)
	}
	if len(d.Decisions) > 0 {
		p.line()
		rows := make([][]cell, len(d.Decisions))
		for i, c := range d.Decisions {
			rows[i] = []cell{plain(when(c.At)), plain(c.Actor), plain(c.Action), state(c.FromState), plain(oneLine(c.Reason, 100))}
		}
		p.table([]string{"DECIDED", "BY", "ACTION", "WAS", "REASON"}, rows)
	}
}

// What is shown of one attempt's error and answer, in columns.
const shownOfEvidence = 300

// printEvidence prints what the provider, or the network, said to the attempts that were not simply sent.
func (p *program) printEvidence(attempts []api.Attempt) {
	for _, a := range attempts {
		answer := a.Answer
		if a.Outcome == "sent" {
			answer = "" // it is the provider's yes
		}
		if a.Error == "" && answer == "" {
			continue
		}
		p.line()
		status := ""
		if a.HTTPStatus != nil {
			status = strconv.Itoa(*a.HTTPStatus)
		}
		p.facts(plain("attempt"), plain(strconv.Itoa(a.Number)), plain("error"), plain(oneLine(a.Error, shownOfEvidence)), plain("code"), plain(a.ProviderCode),
			plain("status"), plain(status), plain("answer"), plain(oneLine(answer, shownOfEvidence)))
	}
}

// pageFlags are the flags of lists.
func (p *program) pageFlags(cmd *cobra.Command, q *client.Query) {
	cmd.Flags().IntVar(&q.Limit, "limit", api.DefaultLimit, fmt.Sprintf("how many at most, up to %d", api.MaxLimit))
	cmd.Flags().StringVar(&q.Cursor, "cursor", "", "go on where an earlier page ended")
}

// more says on the error output how to go on, so that the table can be piped.
func (p *program) more(cursor string) {
	if cursor != "" {
		fmt.Fprintf(p.err, "There are more: --cursor %s\n", cursor)
	}
}

func (p *program) line() { fmt.Fprintln(p.out) }
