package main

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

func (p *program) migrateCommand() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "migrate --config FILE [status|up]",
		Short: "Bring the database's schema up to date (up, the default) or show where it stands (status)",
		Long: "Migrations go forward only and one at a time, each in a transaction of its own, under a lock: several may be\n" +
			"started at once. Replicas of the release before may run meanwhile.",
		Args:      cobra.MaximumNArgs(1),
		ValidArgs: []string{"up", "status"},
		RunE: run(func(cmd *cobra.Command, args []string) error {
			verb := "up"
			if len(args) == 1 {
				verb = args[0]
			}
			if verb != "up" && verb != "status" {
				return usagef("%q is not possible: use up or status", verb)
			}
			f, _, err := config.Load(path, p.env)
			if err != nil {
				return err
			}
			if verb == "up" {
				if err := store.Migrate(cmd.Context(), f.Database.URL); err != nil {
					return err
				}
			}
			all, err := store.Migrations(cmd.Context(), f.Database.URL)
			if err != nil {
				return err
			}
			if p.json {
				return p.printJSON(all)
			}
			rows := make([][]cell, len(all))
			waiting := 0
			for i, m := range all {
				s := cell{text: "applied", colour: green}
				if !m.Applied {
					s = cell{text: "waiting", colour: yellow}
					waiting++
				}
				rows[i] = []cell{plain(strconv.FormatInt(m.Version, 10)), plain(m.Name), s}
			}
			p.table([]string{"VERSION", "MIGRATION", "STATE"}, rows)
			if waiting == 0 {
				fmt.Fprintln(p.out, "The schema is up to date.")
			}
			return nil
		}),
	}
	cmd.Flags().StringVar(&path, "config", "", "the file (needed)")
	_ = cmd.MarkFlagRequired("config")
	_ = cmd.MarkFlagFilename("config", "yaml", "yml")
	return cmd
}
