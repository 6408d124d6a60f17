package main

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
)

func (p *program) replicasCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "replicas",
		Short: "Say which replicas run, and whether all have the same file",
		Long: "Lists the replicas that were heard of within a day; one that stopped as it should is not among them. Below the table\n" +
			"stands in what those that live differ: file, version, notifiers, and who refuses the file on its disk.",
		Args: cobra.NoArgs,
		RunE: run(func(cmd *cobra.Command, _ []string) error {
			c, err := p.remote()
			if err != nil {
				return err
			}
			l, err := c.Replicas(cmd.Context())
			if err != nil {
				return err
			}
			if p.json {
				return p.printJSON(l)
			}
			rows := make([][]cell, len(l.Items))
			for i, r := range l.Items {
				seen := cell{text: strconv.Itoa(r.SilentSeconds) + " s ago", colour: green}
				if !r.Live {
					seen = cell{text: "not since " + when(r.SeenAt), colour: red}
				}
				taken := whenever(r.ReadAt)
				rows[i] = []cell{plain(r.ID), plain(r.Version), plain(when(r.StartedAt)), seen, plain(r.Checksum), plain(taken)}
			}
			p.table([]string{"REPLICA", "VERSION", "STARTED", "SEEN", "FILE", "SINCE"}, rows)
			for _, r := range l.Items {
				if r.FileError != "" {
					p.line()
					p.table(nil, [][]cell{{{text: r.ID + " refuses the file on its disk and keeps " + r.Checksum + ":", colour: red}}})
					fmt.Fprintln(p.out, printable(r.FileError))
				}
			}
			p.line()
			for _, d := range l.Differences {
				fmt.Fprintln(p.out, printable(d))
			}
			if len(l.Differences) == 0 && len(l.Items) > 0 {
				fmt.Fprintln(p.out, "All that live have the same file and version.")
			}
			return nil
		}),
	}
}
