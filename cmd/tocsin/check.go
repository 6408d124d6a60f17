package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tocsin-oncall/tocsin/pkg/config"
)

// checked is what check --json prints.
type checked struct {
	OK       bool      `json:"ok"`
	Problems []problem `json:"problems"`
	Warnings []string  `json:"warnings"`
}

type problem struct {
	File    string `json:"file"`
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Path    string `json:"path,omitempty"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

func (p *program) checkCommand() *cobra.Command {
	var schema bool
	var expect string
	cmd := &cobra.Command{
		Use:   "check FILE [--test FILE] | --schema",
		Short: "Check a file and print every mistake with line and column",
		Long: "Checks the file as serve does, without starting anything: prints every mistake at once and exits with 2 if\n" +
			"there is one. What is possible and probably not meant is a warning.\n\n" +
			"With --test it also asks what would become of the alerts in a second file, and exits with 1 where that is not\n" +
			"what the second file expects. With --schema it prints a JSON Schema of the file, for editors.",
		Example: "  tocsin check tocsin.yaml\n  tocsin check tocsin.yaml --test expectations.yaml\n  tocsin check --schema > tocsin.schema.json",
		Args:    cobra.MaximumNArgs(1),
		RunE: run(func(_ *cobra.Command, args []string) error {
			if schema {
				if expect != "" {
					return usagef("give --schema or --test, not both")
				}
				_, err := p.out.Write(config.Schema())
				return err
			}
			if len(args) == 0 {
				return usagef("which file? Give its name")
			}
			f, _, err := config.Load(args[0], p.env)
			var wrong config.Errors
			if err != nil && !errors.As(err, &wrong) {
				return &failure{code: exitUsage, err: err}
			}
			if expect != "" && err == nil {
				for _, w := range f.Warnings {
					fmt.Fprintf(p.err, "%s: warning: %s\n", args[0], printable(w))
				}
				return p.testFile(f, expect)
			}
			if p.json {
				out := checked{OK: err == nil, Problems: []problem{}, Warnings: []string{}}
				for _, w := range wrong {
					out.Problems = append(out.Problems, problem(w))
				}
				if f != nil {
					out.Warnings = append(out.Warnings, f.Warnings...)
				}
				if err := p.printJSON(out); err != nil {
					return err
				}
			} else {
				for _, w := range wrong {
					fmt.Fprintln(p.out, printable(w.String()))
				}
				if f != nil {
					for _, w := range f.Warnings {
						fmt.Fprintf(p.out, "%s: warning: %s\n", args[0], printable(w))
					}
				}
			}
			if len(wrong) > 0 {
				mistakes := "mistakes"
				if len(wrong) == 1 {
					mistakes = "mistake"
				}
				return &failure{code: exitUsage, err: fmt.Errorf("%s has %d %s", args[0], len(wrong), mistakes)}
			}
			if !p.json {
				fmt.Fprintf(p.out, "%s is good. Users: %d, schedules: %d, notifiers: %d, routes: %d.\n", args[0], len(f.Users), len(f.Schedules), len(f.Notifiers), len(f.Routes))
			}
			return nil
		}),
	}
	cmd.Flags().BoolVar(&schema, "schema", false, "print a JSON Schema of the file instead")
	cmd.Flags().StringVar(&expect, "test", "", "a YAML file with alerts and what should become of each")
	return cmd
}
