package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/client"
)

func (p *program) decisionsCommand() *cobra.Command {
	return group("decisions", "See and cancel decisions on many deliveries",
		p.decisionsListCommand(),
		p.decisionsOneCommand("show", "Show how far one is, and what it left alone", (*client.Client).Decision),
		p.decisionsOneCommand("cancel", "Take no more of it; what is decided stays so", (*client.Client).CancelDecision))
}

func (p *program) decisionsListCommand() *cobra.Command {
	var q client.Query
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List decisions on many deliveries, newest first",
		Args:  cobra.NoArgs,
		RunE: run(func(cmd *cobra.Command, _ []string) error {
			c, err := p.remote()
			if err != nil {
				return err
			}
			l, err := c.Decisions(cmd.Context(), q)
			if err != nil {
				return err
			}
			if p.json {
				return p.printJSON(l)
			}
			rows := make([][]cell, len(l.Items))
			for i, r := range l.Items {
				rows[i] = []cell{plain(r.ID), state(r.State), plain(r.Action), plain(r.By), plain(whenever(r.MadeAt)), plain(fmt.Sprint(r.Total)), plain(fmt.Sprint(r.Applied)), plain(fmt.Sprint(r.Skipped)), plain(oneLine(r.Reason, 50))}
			}
			p.table([]string{"RUN", "STATE", "ACTION", "BY", "MADE", "TOTAL", "DECIDED", "LEFT ALONE", "REASON"}, rows)
			p.more(l.NextCursor)
			return nil
		}),
	}
	p.pageFlags(cmd, &q)
	return cmd
}

func (p *program) decisionsOneCommand(use, short string, ask func(*client.Client, context.Context, string) (api.DecisionRun, error)) *cobra.Command {
	return &cobra.Command{
		Use:   use + " ID",
		Short: short,
		Args:  cobra.ExactArgs(1),
		RunE: run(func(cmd *cobra.Command, args []string) error {
			c, err := p.remote()
			if err != nil {
				return err
			}
			r, err := ask(c, cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if p.json {
				return p.printJSON(r)
			}
			p.printRun(r)
			return nil
		}),
	}
}
