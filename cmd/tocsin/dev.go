package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/tocsin-oncall/tocsin/pkg/app"
)

func (p *program) devCommand() *cobra.Command {
	var o app.DevOptions
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run two replicas with a private Postgres and simulated chats, to try tocsin out",
		Long: "Starts a private Postgres, a simulated Slack and Telegram and two replicas with a sample file, hands in a sample\n" +
			"alert and prints the addresses to open. Nothing listens beyond this machine. Ctrl-C stops all of it.",
		Args: cobra.NoArgs,
		RunE: run(func(cmd *cobra.Command, _ []string) error {
			o.Out, o.Version, o.Program = p.out, version(), os.Args[0]
			return app.Dev(cmd.Context(), o)
		}),
	}
	cmd.Flags().StringVar(&o.Dir, "dir", "", "where the data lies (default: the user's cache folder, or /var/lib/tocsin-dev as root)")
	cmd.Flags().BoolVar(&o.Fetch, "fetch", false, "buttons and commands come by Socket Mode and polling, instead of over HTTP")
	cmd.Flags().BoolVar(&o.Quiet, "no-sample", false, "hand in no sample alert")
	return cmd
}
