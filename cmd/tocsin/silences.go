package main

import (
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/client"
)

func (p *program) silencesCommand() *cobra.Command {
	return group("silences", "Keep alerts back for a time", p.silencesListCommand(), p.silencesAddCommand(), p.silencesEditCommand(), p.silencesEndCommand())
}

// silenceColours is the colour of each state of a silence.
var silenceColours = map[string]int{api.SilencePending: blue, api.SilenceActive: yellow}

func (p *program) silencesListCommand() *cobra.Command {
	var q client.Query
	var ended bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the silences that are not over, newest first",
		Args:  cobra.NoArgs,
		RunE: run(func(cmd *cobra.Command, _ []string) error {
			c, err := p.remote()
			if err != nil {
				return err
			}
			l, err := c.Silences(cmd.Context(), ended, q)
			if err != nil {
				return err
			}
			if p.json {
				return p.printJSON(l)
			}
			rows := make([][]cell, len(l.Items))
			for i, s := range l.Items {
				rows[i] = []cell{plain(s.ID), {text: s.State, colour: silenceColours[s.State]}, plain(when(s.From)), plain(when(s.Until)), plain(strconv.Itoa(s.Alerts)),
					plain(hidden(s)), plain(s.Author), plain(oneLine(s.Reason, 60))}
			}
			p.table([]string{"SILENCE", "STATE", "FROM", "UNTIL", "KEEPS BACK", "WHAT", "BY", "WHY"}, rows)
			p.more(l.NextCursor)
			return nil
		}),
	}
	cmd.Flags().BoolVar(&ended, "ended", false, "also those that are over")
	p.pageFlags(cmd, &q)
	return cmd
}

func (p *program) silencesAddCommand() *cobra.Command {
	var s api.NewSilence
	var from, until string
	cmd := &cobra.Command{
		Use:   "add [--match PATTERN] [--matcher 'team=\"db\"'] --for 2h --reason REASON",
		Short: "Keep alerts back for a time",
		Long: "What comes in meanwhile and matches is stored and shown, and sent to nobody. What still fires when the silence ends is\n" +
			"sent then. Name what is silenced by a topic pattern, by matchers on labels, or both; and its end. The escalation of\n" +
			"an incident that was announced before stands still meanwhile.",
		Example: "  tocsin silences add --match 'alert.*.*.db' --for 2h --reason \"new disks\"\n" +
			"  tocsin silences add --matcher 'env=\"staging\"' --until 2026-01-12T07:00:00Z --reason \"load test\"",
		Args: cobra.NoArgs,
		RunE: run(func(cmd *cobra.Command, _ []string) error {
			var err error
			if s.From, err = maybeInstant("from", from); err != nil {
				return err
			}
			if s.Until, err = maybeInstant("until", until); err != nil {
				return err
			}
			c, err := p.remote()
			if err != nil {
				return err
			}
			made, err := c.AddSilence(cmd.Context(), s)
			if err != nil {
				return err
			}
			return p.printSilence(made)
		}),
	}
	f := cmd.Flags()
	f.StringVar(&s.Match, "match", "", "topic pattern, as in routes; # is every topic")
	f.StringArrayVar(&s.Matchers, "matcher", nil, "condition on a label, as in routes; may be given several times, and all must hold")
	f.StringVar(&from, "from", "", "when it begins, e.g. 2026-01-05T09:00:00Z (default: now)")
	f.StringVar(&until, "until", "", "when it ends, e.g. 2026-01-05T11:00:00Z")
	f.StringVar(&s.For, "for", "", "how long it lasts, instead of --until, e.g. 30m, 2h, 1d")
	f.StringVar(&s.Reason, "reason", "", "why; incidents show it (needed)")
	f.StringVar(&s.By, "by", "", "whose word it is: a user's id (default: the token's name)")
	_ = cmd.MarkFlagRequired("reason")
	return cmd
}

func (p *program) silencesEditCommand() *cobra.Command {
	var e api.EditSilence
	var until string
	cmd := &cobra.Command{
		Use:   "edit ID [--until INSTANT | --for 2h] [--reason REASON]",
		Short: "Move the end of a silence, or give another reason",
		Long: "Makes a silence that is not over longer or shorter. What it hides stays: end it and make another one for that. What it keeps\n" +
			"back is sent when it ends now.",
		Example: "  tocsin silences edit ID --for 1h --reason \"the disks take longer\"",
		Args:    cobra.ExactArgs(1),
		RunE: run(func(cmd *cobra.Command, args []string) error {
			var err error
			if e.Until, err = maybeInstant("until", until); err != nil {
				return err
			}
			c, err := p.remote()
			if err != nil {
				return err
			}
			s, err := c.EditSilence(cmd.Context(), args[0], e)
			if err != nil {
				return err
			}
			return p.printSilence(s)
		}),
	}
	f := cmd.Flags()
	f.StringVar(&until, "until", "", "when it ends now, e.g. 2026-01-05T11:00:00Z")
	f.StringVar(&e.For, "for", "", "how long it lasts from this moment on, or from its beginning where that is to come, e.g. 30m, 2h, 1d")
	f.StringVar(&e.Reason, "reason", "", "why now (default: as before)")
	f.StringVar(&e.By, "by", "", "whose word it is: a user's id (default: the token's name)")
	return cmd
}

func (p *program) silencesEndCommand() *cobra.Command {
	var by string
	cmd := &cobra.Command{
		Use:   "end ID",
		Short: "End a silence before its time",
		Long:  "What it kept back and still fires is sent within a second or two.",
		Args:  cobra.ExactArgs(1),
		RunE: run(func(cmd *cobra.Command, args []string) error {
			c, err := p.remote()
			if err != nil {
				return err
			}
			s, err := c.EndSilence(cmd.Context(), args[0], by)
			if err != nil {
				return err
			}
			return p.printSilence(s)
		}),
	}
	cmd.Flags().StringVar(&by, "by", "", "whose word it is: a user's id (default: the token's name)")
	return cmd
}

func (p *program) printSilence(s api.Silence) error {
	if p.json {
		return p.printJSON(s)
	}
	p.facts(plain("silence"), plain(s.ID), plain("what"), plain(hidden(s)), plain("state"), cell{text: s.State, colour: silenceColours[s.State]},
		plain("from"), plain(when(s.From)), plain("until"), plain(when(s.Until)), plain("why"), plain(oneLine(s.Reason, 200)), plain("by"), plain(s.Author),
		plain("changed by"), plain(s.EditedBy), plain("ended by"), plain(s.EndedBy), plain("keeps back"), plain(strconv.Itoa(s.Alerts)+" alerts"))
	return nil
}

// hidden is what a silence hides, as it was written.
func hidden(s api.Silence) string {
	var all []string
	if s.Match != "" {
		all = append(all, s.Match)
	}
	return strings.Join(append(all, s.Matchers...), " ")
}

// maybeInstant reads the instant of a flag that may be left out.
func maybeInstant(flag, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	return instant(flag, text)
}

// instant reads the instant of a flag.
func instant(flag, text string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, usagef("--%s %q is no instant: write it as 2026-01-05T09:00:00Z or with an offset", flag, text)
	}
	return t, nil
}
