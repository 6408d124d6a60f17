package main

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/client"
)

func (p *program) schedulesCommand() *cobra.Command {
	return group("schedules", "See who is on call when, and change it for a while", p.shiftsCommand(), p.gapsCommand(), p.hoursCommand(),
		p.overrideCommand(), p.overridesCommand(), p.endOverrideCommand(), p.swapCommand())
}

// inSpan is a verb that asks about a schedule in a span of time.
func inSpan[T any](p *program, use, short string, ask func(*client.Client, context.Context, string, client.Span) (api.List[T], error), head []string, row func(T) []cell) *cobra.Command {
	var from, until string
	cmd := &cobra.Command{
		Use:   use + " SCHEDULE",
		Short: short,
		Args:  cobra.ExactArgs(1),
		RunE: run(func(cmd *cobra.Command, args []string) error {
			var s client.Span
			if err := instants(at{"from", from, &s.From}, at{"until", until, &s.Until}); err != nil {
				return err
			}
			c, err := p.remote()
			if err != nil {
				return err
			}
			l, err := ask(c, cmd.Context(), args[0], s)
			if err != nil {
				return err
			}
			if p.json {
				return p.printJSON(l)
			}
			rows := make([][]cell, len(l.Items))
			for i, item := range l.Items {
				rows[i] = row(item)
			}
			p.table(head, rows)
			return nil
		}),
	}
	cmd.Flags().StringVar(&from, "from", "", "from this instant on, e.g. 2026-01-05T09:00:00Z (default: now)")
	cmd.Flags().StringVar(&until, "until", "", "until this one (default: 28 days later)")
	return cmd
}

// at is an instant that a flag gives.
type at struct {
	flag, text string
	into       *time.Time
}

// instants reads the flags that are given.
func instants(all ...at) error {
	for _, a := range all {
		if a.text == "" {
			continue
		}
		var err error
		if *a.into, err = instant(a.flag, a.text); err != nil {
			return err
		}
	}
	return nil
}

func (p *program) shiftsCommand() *cobra.Command {
	return inSpan(p, "shifts", "List who is on call when", (*client.Client).Shifts, []string{"FROM", "UNTIL", "ON CALL", "LAYER"}, func(s api.Shift) []cell {
		layer := plain(s.Layer)
		if s.Override {
			layer.colour = yellow
		}
		return []cell{plain(whenever(s.Start)), plain(whenever(s.End)), plain(s.Name), layer}
	})
}

func (p *program) gapsCommand() *cobra.Command {
	return inSpan(p, "gaps", "List when nobody is on call", (*client.Client).Gaps, []string{"FROM", "UNTIL", "ON CALL"}, func(g api.Gap) []cell {
		return []cell{plain(whenever(g.Start)), plain(whenever(g.End)), {text: "nobody", colour: red}}
	})
}

func (p *program) hoursCommand() *cobra.Command {
	return inSpan(p, "hours", "Count the hours of each person", (*client.Client).Hours, []string{"PERSON", "HOURS", "SHIFTS"}, func(h api.Hours) []cell {
		return []cell{plain(h.Name), plain(strconv.FormatFloat(h.Hours, 'f', 1, 64)), plain(strconv.Itoa(h.Shifts))}
	})
}

func (p *program) overrideCommand() *cobra.Command {
	var o api.NewOverride
	var start, end string
	cmd := &cobra.Command{
		Use:   "override SCHEDULE USER --for 8h",
		Short: "Put a person on call for a while",
		Long: "The person takes the place of whoever is on call in that time, or of one of them with --instead-of. Where nobody is on\n" +
			"call the gap stays one, unless --add is given. An override that is made later goes before one that was made earlier.",
		Example: "  tocsin schedules override primary bo --for 4h --reason \"ana is on a train\"\n" +
			"  tocsin schedules override primary bo --start 2026-01-10T09:00:00Z --end 2026-01-12T09:00:00Z --add",
		Args: cobra.ExactArgs(2),
		RunE: run(func(cmd *cobra.Command, args []string) error {
			if err := instants(at{"start", start, &o.Start}, at{"end", end, &o.End}); err != nil {
				return err
			}
			c, err := p.remote()
			if err != nil {
				return err
			}
			o.User = args[1]
			made, err := c.AddOverride(cmd.Context(), args[0], o)
			if err != nil {
				return err
			}
			return p.printOverride(made)
		}),
	}
	f := cmd.Flags()
	f.StringVar(&start, "start", "", "when it begins, e.g. 2026-01-05T09:00:00Z (default: now)")
	f.StringVar(&end, "end", "", "when it ends, e.g. 2026-01-05T17:00:00Z")
	f.StringVar(&o.For, "for", "", "how long it lasts, instead of --end, e.g. 30m, 2h, 1d")
	f.BoolVar(&o.Add, "add", false, "cover gaps as well")
	f.StringVar(&o.InsteadOf, "instead-of", "", "take the place of this person only, where several share a shift: a user's id")
	f.StringVar(&o.Reason, "reason", "", "why")
	f.StringVar(&o.By, "by", "", "whose word it is: a user's id (default: the token's name)")
	return cmd
}

// overrideColours is the colour of each state of an override.
var overrideColours = map[string]int{api.OverridePending: blue, api.OverrideActive: yellow}

func (p *program) overridesCommand() *cobra.Command {
	var q client.Query
	var ended bool
	cmd := &cobra.Command{
		Use:   "overrides SCHEDULE",
		Short: "List the overrides that are not over, newest first",
		Args:  cobra.ExactArgs(1),
		RunE: run(func(cmd *cobra.Command, args []string) error {
			c, err := p.remote()
			if err != nil {
				return err
			}
			l, err := c.Overrides(cmd.Context(), args[0], ended, q)
			if err != nil {
				return err
			}
			if p.json {
				return p.printJSON(l)
			}
			p.printOverrides(l.Items)
			p.more(l.NextCursor)
			return nil
		}),
	}
	cmd.Flags().BoolVar(&ended, "ended", false, "also those that are over")
	p.pageFlags(cmd, &q)
	return cmd
}

func (p *program) printOverrides(all []api.Override) {
	rows := make([][]cell, len(all))
	for i, o := range all {
		rows[i] = []cell{plain(o.ID), {text: o.State, colour: overrideColours[o.State]}, plain(when(o.Start)), plain(when(o.End)), plain(takes(o)), plain(o.Author), plain(oneLine(o.Reason, 60))}
	}
	p.table([]string{"OVERRIDE", "STATE", "FROM", "UNTIL", "ON CALL", "BY", "WHY"}, rows)
}

// takes is who takes whose place.
func takes(o api.Override) string {
	switch {
	case o.InsteadOf != "":
		return o.Name + " instead of " + o.InsteadOf
	case o.Add:
		return o.Name + ", gaps as well"
	}
	return o.Name
}

func (p *program) endOverrideCommand() *cobra.Command {
	var by string
	cmd := &cobra.Command{
		Use:   "end SCHEDULE OVERRIDE",
		Short: "End an override before its time",
		Long:  "One that has not begun comes to nothing. The two halves of a swap end together.",
		Args:  cobra.ExactArgs(2),
		RunE: run(func(cmd *cobra.Command, args []string) error {
			c, err := p.remote()
			if err != nil {
				return err
			}
			o, err := c.EndOverride(cmd.Context(), args[0], args[1], by)
			if err != nil {
				return err
			}
			return p.printOverride(o)
		}),
	}
	cmd.Flags().StringVar(&by, "by", "", "whose word it is: a user's id (default: the token's name)")
	return cmd
}

func (p *program) printOverride(o api.Override) error {
	if p.json {
		return p.printJSON(o)
	}
	p.facts(plain("override"), plain(o.ID), plain("schedule"), plain(o.Schedule), plain("on call"), plain(takes(o)), plain("state"), cell{text: o.State, colour: overrideColours[o.State]},
		plain("from"), plain(when(o.Start)), plain("until"), plain(when(o.End)), plain("why"), plain(oneLine(o.Reason, 200)), plain("by"), plain(o.Author), plain("ended by"), plain(o.EndedBy))
	return nil
}

func (p *program) swapCommand() *cobra.Command {
	var s api.NewSwap
	cmd := &cobra.Command{
		Use:     "swap SCHEDULE USER INSTANT OTHER INSTANT",
		Short:   "Let two people take each other's shift",
		Long:    "Each instant is a moment of the shift that the person before it gives away. Of a shift that has begun the rest changes hands.",
		Example: "  tocsin schedules swap primary ana 2026-01-07T12:00:00Z bo 2026-01-14T12:00:00Z --reason \"a wedding\"",
		Args:    cobra.ExactArgs(5),
		RunE: run(func(cmd *cobra.Command, args []string) error {
			s.User, s.With = args[1], args[3]
			for _, i := range []struct {
				text string
				into *time.Time
			}{{args[2], &s.At}, {args[4], &s.WithAt}} {
				t, err := time.Parse(time.RFC3339, i.text)
				if err != nil {
					return usagef("%q is no instant: write it as 2026-01-05T09:00:00Z or with an offset", i.text)
				}
				*i.into = t
			}
			c, err := p.remote()
			if err != nil {
				return err
			}
			l, err := c.Swap(cmd.Context(), args[0], s)
			if err != nil {
				return err
			}
			if p.json {
				return p.printJSON(l)
			}
			p.printOverrides(l.Items)
			return nil
		}),
	}
	cmd.Flags().StringVar(&s.Reason, "reason", "", "why")
	cmd.Flags().StringVar(&s.By, "by", "", "whose word it is: a user's id (default: the token's name)")
	return cmd
}
