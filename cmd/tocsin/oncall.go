package main

import (
	"cmp"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tocsin-oncall/tocsin/pkg/api"
)

func (p *program) oncallCommand() *cobra.Command {
	var schedule, at string
	cmd := &cobra.Command{
		Use:   "oncall",
		Short: "Say who is on call",
		Args:  cobra.NoArgs,
		RunE: run(func(cmd *cobra.Command, _ []string) error {
			var instant time.Time
			if at != "" {
				var err error
				if instant, err = time.Parse(time.RFC3339, at); err != nil {
					return usagef("--at %q is no instant: write it as 2026-01-05T09:00:00Z or with an offset", at)
				}
			}
			c, err := p.remote()
			if err != nil {
				return err
			}
			l, err := c.OnCall(cmd.Context(), schedule, instant)
			if err != nil {
				return err
			}
			if p.json {
				return p.printJSON(l)
			}
			rows := make([][]cell, len(l.Items))
			for i, o := range l.Items {
				names := make([]string, len(o.Users))
				for j, u := range o.Users {
					names[j] = u.Name
				}
				who := plain(strings.Join(names, ", "))
				if len(names) == 0 {
					who = cell{text: "nobody", colour: red}
				}
				rows[i] = []cell{plain(o.Schedule), who, plain(o.Layer), plain(whenever(o.Until))}
			}
			p.table([]string{"SCHEDULE", "ON CALL", "LAYER", "UNTIL"}, rows)
			if err := p.printProblems(l.Items); err != nil {
				return err
			}
			return p.printCalendars(l.Items)
		}),
	}
	cmd.Flags().StringVar(&schedule, "schedule", "", "only this schedule")
	cmd.Flags().StringVar(&at, "at", "", "at this instant instead of now, e.g. 2026-01-05T09:00:00Z")
	return cmd
}

// printProblems names those who are on call soon and can't be reached.
func (p *program) printProblems(items []api.OnCall) error {
	var rows [][]cell
	for _, o := range items {
		for _, w := range o.Problems {
			rows = append(rows, []cell{plain(o.Schedule), plain(w.User.Name), {text: cmp.Or(w.Via, "-"), colour: red}, plain(w.Sentence)})
		}
	}
	if len(rows) == 0 {
		return nil
	}
	if _, err := io.WriteString(p.out, "\nOn call within seven days, and not to be reached:\n"); err != nil {
		return err
	}
	p.table([]string{"SCHEDULE", "WHO", "VIA", "WHY"}, rows)
	return nil
}

// printCalendars says what is wrong with imported calendars, and what is perhaps not meant. Those that are well are not named.
func (p *program) printCalendars(items []api.OnCall) error {
	var rows [][]cell
	for _, o := range items {
		for _, c := range o.Calendars {
			add := func(text string, colour int) {
				fetched := "never"
				if c.FetchedAt != nil {
					fetched = whenever(c.FetchedAt)
				}
				rows = append(rows, []cell{plain(o.Schedule), {text: c.Layer, colour: colour}, plain(fetched), plain(text)})
			}
			for _, text := range c.Problems {
				add(text, red)
			}
			for _, text := range c.Notes {
				add(text, 0)
			}
		}
	}
	if len(rows) == 0 {
		return nil
	}
	if _, err := io.WriteString(p.out, "\nImported calendars:\n"); err != nil {
		return err
	}
	p.table([]string{"SCHEDULE", "LAYER", "FETCHED", "WHAT"}, rows)
	return nil
}
