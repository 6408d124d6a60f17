package main

import (
	"github.com/spf13/cobra"

	"github.com/tocsin-oncall/tocsin/pkg/api"
)

func (p *program) heartbeatsCommand() *cobra.Command {
	return group("heartbeats", "See who must call every so often", p.heartbeatsListCommand())
}

var heartbeatColours = map[string]int{api.HeartbeatOK: green, api.HeartbeatMissed: red, api.HeartbeatNew: yellow}

func (p *program) heartbeatsListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the heartbeats, with when each last called",
		Long:  "Lists the heartbeats of the server's file. One that is missed has raised an alert, which resolves when it calls again.",
		Args:  cobra.NoArgs,
		RunE: run(func(cmd *cobra.Command, _ []string) error {
			c, err := p.remote()
			if err != nil {
				return err
			}
			l, err := c.Heartbeats(cmd.Context())
			if err != nil {
				return err
			}
			if p.json {
				return p.printJSON(l)
			}
			rows := make([][]cell, len(l.Items))
			for i, h := range l.Items {
				rows[i] = []cell{plain(h.Name), {text: h.State, colour: heartbeatColours[h.State]}, plain(h.Every), plain(whenever(h.CalledAt)), plain(whenever(h.MissedAt))}
			}
			p.table([]string{"HEARTBEAT", "STATE", "EVERY", "CALLED", "MISSED"}, rows)
			return nil
		}),
	}
}
