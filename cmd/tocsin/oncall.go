package main

import (
	"strings"
	"time"

	"github.com/spf13/cobra"
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
			return nil
		}),
	}
	cmd.Flags().StringVar(&schedule, "schedule", "", "only this schedule")
	cmd.Flags().StringVar(&at, "at", "", "at this instant instead of now, e.g. 2026-01-05T09:00:00Z")
	return cmd
}
