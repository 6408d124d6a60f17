package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tocsin-oncall/tocsin/pkg/app"
	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
)

func (p *program) doctorCommand() *cobra.Command {
	var o app.DoctorOptions
	cmd := &cobra.Command{
		Use:   "doctor --config FILE",
		Short: "Examine file, database, notifiers and what is stored, and say how to mend what is wrong",
		Long: "Looks at everything that messages depend on and prints a line for each: ok, warn or BAD, and beneath what to do.\n" +
			"It changes nothing and sends nothing, except with --live, and may be run at any time, beside serve or before it.\n" +
			"Run it on the machine where serve runs: what can be reached from there is what counts.\n\n" +
			"Exit codes: 0 when nothing is bad, 1 when something is, 2 for a wrong file.",
		Example: "  tocsin doctor --config tocsin.yaml\n  tocsin doctor --config tocsin.yaml --live    # also posts, edits and deletes a message",
		Args:    cobra.NoArgs,
		RunE: run(func(cmd *cobra.Command, _ []string) error {
			o.Env = p.env
			d, err := app.Doctor(cmd.Context(), o)
			var wrong config.Errors
			if err != nil && !errors.As(err, &wrong) {
				return &failure{code: exitUsage, err: err}
			}
			if p.json {
				if err := p.printJSON(d); err != nil {
					return err
				}
			} else {
				p.printDiagnosis(d)
			}
			switch {
			case len(wrong) > 0:
				return &failure{code: exitUsage, err: fmt.Errorf("%s is wrong, and nothing else was looked at", o.Path)}
			case !d.OK:
				return errors.New("something keeps messages from going out")
			}
			return nil
		}),
	}
	f := cmd.Flags()
	f.StringVar(&o.Path, "config", "", "the file (needed)")
	f.BoolVar(&o.Live, "live", false, "also post, find, edit and delete a message in each notifier's own place")
	f.BoolVar(&o.People, "people", false, "look at each way to each person in its chat, without sending, and print a line for it")
	_ = cmd.MarkFlagRequired("config")
	_ = cmd.MarkFlagFilename("config", "yaml", "yml")
	return cmd
}

// signs are how a level is shown, so that it is told without colours too.
var signs = map[provider.Level]cell{
	provider.OK:   {text: "ok", colour: green},
	provider.Warn: {text: "warn", colour: yellow},
	provider.Bad:  {text: "BAD", colour: red},
}

// printDiagnosis prints one line for each check, and beneath it how to mend it.
func (p *program) printDiagnosis(d app.Diagnosis) {
	about, check := 0, 0
	for _, c := range d.Checks {
		about, check = max(about, columns(printable(c.About))), max(check, columns(printable(c.Check)))
	}
	colours := p.colours()
	var b strings.Builder
	for _, c := range d.Checks {
		s := signs[c.Level]
		sign := pad(s.text, 4)
		if colours {
			sign = fmt.Sprintf("\x1b[%dm%s\x1b[0m", s.colour, sign)
		}
		fmt.Fprintf(&b, "%s  %s  %s  %s\n", sign, pad(printable(c.About), about), pad(printable(c.Check), check), unbroken(c.Text))
		if c.Fix != "" {
			fmt.Fprintf(&b, "%s-> %s\n", strings.Repeat(" ", 4+2+about+2), unbroken(c.Fix))
		}
	}
	warnings := "warnings"
	if d.Warnings == 1 {
		warnings = "warning"
	}
	fmt.Fprintf(&b, "\n%d bad, %d %s, %d good.\n", d.Bad, d.Warnings, warnings, len(d.Checks)-d.Bad-d.Warnings)
	_, _ = io.WriteString(p.out, b.String())
}

// pad fills a text up to so many columns.
func pad(s string, n int) string { return s + strings.Repeat(" ", max(0, n-columns(s))) }

// unbroken is a text on one line, whole.
func unbroken(s string) string { return strings.Join(strings.Fields(printable(s)), " ") }
