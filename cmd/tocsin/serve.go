package main

import (
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/tocsin-oncall/tocsin/pkg/app"
	"github.com/tocsin-oncall/tocsin/pkg/redact"
)

func (p *program) serveCommand() *cobra.Command {
	var o app.Options
	cmd := &cobra.Command{
		Use:   "serve --config FILE",
		Short: "Run one replica",
		Long: "Runs one replica until SIGINT or SIGTERM; any number may run on one database. On a signal it claims nothing\n" +
			"more, finishes the calls in flight and records them, and then leaves. Its log is JSON lines on the error output.\n" +
			"A changed file is taken within a few seconds, or at once on SIGHUP; a wrong one is told, and the old one stays in force.",
		Args: cobra.NoArgs,
		RunE: run(func(cmd *cobra.Command, _ []string) error {
			o.Env, o.Version = p.env, version()
			o.Secrets = &atomic.Pointer[redact.Set]{}
			log := app.NewLog(p.err, o.Secrets)
			defer func() { _ = log.Sync() }()
			o.Log = log
			hangup := make(chan os.Signal, 1)
			signal.Notify(hangup, syscall.SIGHUP)
			defer signal.Stop(hangup)
			o.Hangup = hangup
			a, err := app.New(cmd.Context(), o)
			if err != nil {
				return err
			}
			return a.Run(cmd.Context())
		}),
	}
	f := cmd.Flags()
	f.StringVar(&o.Path, "config", "", "the file (needed)")
	f.BoolVar(&o.Insecure, "insecure", false, "take API requests without tokens; only on a loopback address")
	f.BoolVar(&o.Migrate, "migrate", false, "bring an older schema up to date first")
	_ = cmd.MarkFlagRequired("config")
	_ = cmd.MarkFlagFilename("config", "yaml", "yml")
	return cmd
}
