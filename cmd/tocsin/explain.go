package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/config"
)

func (p *program) explainCommand() *cobra.Command {
	var q api.Explain
	var labels []string
	var at, payload string
	cmd := &cobra.Command{
		Use:   "explain --kind KIND [--criticality C] [--job JOB] [--label NAME=VALUE] | --payload FILE | --incident ID",
		Short: "Say what would become of an alert, or became of an incident, and why",
		Long: "Says of each route whether it takes the alert and why, who is on call, which deliveries would be made, how patient each\n" +
			"is, and what keeps its notifier back now. Nothing is sent or stored. With --at it answers for another time, past or to\n" +
			"come. With --payload it reads a whole body as a source sends it, - is the standard input. With --incident it tells why\n" +
			"somebody was paged for a stored incident, or was not: then and now, with each delivery and attempt.",
		Example: "  tocsin explain --kind disk_full --criticality critical --job db --at 2026-12-24T22:00:00Z\n" +
			"  tocsin explain --payload alerts.json --source alertmanager\n" +
			"  tocsin explain --incident ID",
		Args: cobra.NoArgs,
		RunE: run(func(cmd *cobra.Command, _ []string) error {
			ways := 0
			for _, given := range []bool{q.Kind != "", payload != "", q.Incident != ""} {
				if given {
					ways++
				}
			}
			if ways != 1 {
				return usagef("give one of --kind, --payload and --incident")
			}
			for _, l := range labels {
				name, value, ok := strings.Cut(l, "=")
				if !ok || name == "" {
					return usagef("--label %q is not NAME=VALUE", l)
				}
				if q.Labels == nil {
					q.Labels = map[string]string{}
				}
				q.Labels[name] = value
			}
			var err error
			if at != "" {
				if q.At, err = instant("at", at); err != nil {
					return err
				}
			}
			if payload != "" {
				if q.Payload, err = p.readPayload(payload); err != nil {
					return err
				}
			}
			c, err := p.remote()
			if err != nil {
				return err
			}
			e, err := c.Explain(cmd.Context(), q)
			if err != nil {
				return err
			}
			if p.json {
				return p.printJSON(e)
			}
			p.printExplanation(e)
			return nil
		}),
	}
	f := cmd.Flags()
	f.StringVar(&q.Kind, "kind", "", "what happened")
	f.StringVar(&q.Criticality, "criticality", "", "critical and high are urgent")
	f.StringVar(&q.Job, "job", "", "what it happened to")
	f.StringArrayVar(&labels, "label", nil, "NAME=VALUE; may be given several times")
	f.StringSliceVar(&q.Notify, "notify", nil, "notifiers that the alert names itself")
	f.StringVar(&at, "at", "", "at this instant instead of now, e.g. 2026-01-05T09:00:00Z")
	f.StringVar(&payload, "payload", "", "a file with a whole body as a source sends it; - is the standard input")
	f.StringVar(&q.Source, "source", "", "with --payload: what sent it, a source of the file or a type of source (default: its form tells)")
	f.StringVar(&q.Incident, "incident", "", "the id of a stored incident")
	return cmd
}

// readPayload reads a JSON body; - is the standard input.
func (p *program) readPayload(path string) (json.RawMessage, error) {
	in := p.in
	if path != "-" {
		f, err := os.Open(path) //nolint:gosec // the operator names the file
		if err != nil {
			return nil, &failure{code: exitUsage, err: err}
		}
		defer f.Close()
		in = f
	}
	b, err := io.ReadAll(io.LimitReader(in, config.MaxSize+1))
	if err != nil {
		return nil, err
	}
	if len(b) > config.MaxSize {
		return nil, usagef("%s has more than %d bytes", path, config.MaxSize)
	}
	if !json.Valid(b) {
		if path == "-" {
			path = "what the standard input gave"
		}
		return nil, usagef("%s is no JSON", path)
	}
	return b, nil
}

func (p *program) printExplanation(e api.Explanation) {
	if e.Incident != nil {
		p.printIncident(*e.Incident)
		p.line()
		p.heading("What became of it")
		rows := make([][]cell, len(e.Story))
		for i, l := range e.Story {
			rows[i] = []cell{plain(when(l.At)), plain(oneLine(l.Text, 240))}
		}
		p.table(nil, rows)
		p.line()
		p.heading("Why")
	}
	p.printAnswer(e)
	if e.Now != nil {
		p.line()
		p.heading("If it came in now")
		p.printAnswer(*e.Now)
	}
}

func (p *program) heading(text string) { p.table(nil, [][]cell{{{text: text, colour: bold}}}) }

func (p *program) printAnswer(e api.Explanation) {
	file := ""
	if len(e.Decisions) > 0 {
		file = e.Decisions[0].File
	}
	p.facts(plain("topic"), plain(e.Topic), plain("at"), plain(when(e.At)), plain("by the file"), plain(file))
	for _, w := range e.Words {
		fmt.Fprintln(p.out, printable(w))
	}
	alerts := e.Alerts
	if len(alerts) == 0 {
		alerts = []api.ExplainedAlert{{Topic: e.Topic, Routes: e.Routes, Silences: e.Silences}}
	}
	if len(e.Decisions) > 0 {
		alerts = nil
		for _, d := range e.Decisions {
			a := api.ExplainedAlert{Topic: d.Topic, Status: when(d.At), Routes: d.Routes}
			if d.Silence != nil {
				a.Silences = append(a.Silences, *d.Silence)
			}
			alerts = append(alerts, a)
		}
	}
	for _, a := range alerts {
		p.line()
		if len(alerts) > 1 {
			p.facts(plain("alert"), plain(a.Topic+" ("+a.Status+")"))
		}
		rows := make([][]cell, 0, len(a.Routes)+len(a.Silences))
		for _, r := range a.Routes {
			yes := cell{text: "no"}
			switch {
			case r.Matched:
				yes = cell{text: "yes", colour: green}
			case r.Rests:
				yes = cell{text: "rests", colour: yellow}
			}
			rows = append(rows, []cell{plain(r.Match), plain(strconv.Itoa(r.Line)), yes, plain(oneLine(r.Why, 160))})
		}
		p.table([]string{"ROUTE", "LINE", "TAKES IT", "WHY"}, rows)
		for _, s := range a.Silences {
			hides := "does not hide it: " + s.Why
			if s.Hides {
				hides = "hides it until " + when(s.Until) + ": " + oneLine(s.Reason, 100)
			}
			p.facts(plain("silence"), plain(s.ID+" by "+s.By+" "+hides))
		}
	}
	if len(e.Deliveries) == 0 {
		return
	}
	p.line()
	rows := make([][]cell, len(e.Deliveries))
	for i, d := range e.Deliveries {
		left := strings.Join(d.HeldBack, "; ")
		if d.State != "" && left == "" {
			left = strings.TrimSuffix(d.State+" "+d.Reason, " ")
		}
		if d.Dead != "" {
			left = d.DeadReason
		}
		lives := d.Policy.Lifetime
		if lives == "" {
			lives = "as its incident"
		}
		rows[i] = []cell{plain(d.Kind), plain(d.Notifier), plain(d.Target), plain(d.Person), plain(d.After), plain(d.Policy.OnUnknown), plain(lives), plain(strings.Join(d.Pace, ", ")), {text: oneLine(left, 100), colour: red}}
	}
	p.table([]string{"KIND", "NOTIFIER", "TARGET", "PERSON", "AFTER", "ON UNKNOWN", "LIVES", "PACE", "STATE"}, rows)
}
