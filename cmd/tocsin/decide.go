package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tocsin-oncall/tocsin/pkg/api"
)

// decisions are the words of the command line for the actions of the API.
var decisions = map[string]string{
	"assume-delivered": api.ActionAssumeDelivered,
	"cancel":           api.ActionCancel,
	"send-again":       api.ActionSendAgain,
}

// decideMany is what `decide --all` is told by flags.
type decideMany struct {
	all, yes      bool
	before, after string
	request       api.DecideMany
}

func (p *program) decideCommand() *cobra.Command {
	var reason string
	var many decideMany
	cmd := &cobra.Command{
		Use:   "decide {ID | --all} assume-delivered|cancel|send-again --reason REASON",
		Short: "Decide what becomes of a dead delivery, or of many",
		Long: "Gives your word on a delivery that waits for it:\n" +
			"  assume-delivered  it may have arrived and you know that it did; only where an attempt is in doubt\n" +
			"  cancel            it is no longer wanted; also on a pending one\n" +
			"  send-again        send it anew, with the address resolved anew\n\n" +
			"With --all it is your word on all dead deliveries that the filter finds: --dry-run counts them, --yes does it. The set is\n" +
			"fixed at that moment and worked off by the server; `tocsin decisions show ID` tells how far it is.",
		Example: "  tocsin decide ID send-again --reason \"invited the bot\"\n" +
			"  tocsin decide --all --state dead --notifier ops-slack send-again --reason \"token renewed\" --dry-run",
		Args:      cobra.RangeArgs(1, 2),
		ValidArgs: []string{"assume-delivered", "cancel", "send-again"},
		RunE: run(func(cmd *cobra.Command, args []string) error {
			if many.all != (len(args) == 1) {
				return usagef("give one delivery's ID and the decision, or --all and the decision")
			}
			word := args[len(args)-1]
			action, ok := decisions[word]
			if !ok {
				return usagef("%q is no decision: use assume-delivered, cancel or send-again", word)
			}
			if many.all {
				many.request.Action, many.request.Reason = action, reason
				return p.decideAll(cmd, &many)
			}
			if flag := onlyWithAll(cmd); flag != "" {
				return usagef("--%s belongs to --all", flag)
			}
			c, err := p.remote()
			if err != nil {
				return err
			}
			d, err := c.Decide(cmd.Context(), args[0], api.Decide{Action: action, Reason: reason})
			if err != nil {
				return err
			}
			if p.json {
				return p.printJSON(d)
			}
			p.printDelivery(d)
			return nil
		}),
	}
	f := cmd.Flags()
	f.StringVar(&reason, "reason", "", "why; it is kept in the delivery's history (needed)")
	_ = cmd.MarkFlagRequired("reason")
	f.BoolVar(&many.all, "all", false, "decide on all dead deliveries that the flags below find")
	filter := &many.request.Filter
	f.StringVar(&filter.State, "state", "dead", "with --all: a dead state, or dead for all of them")
	f.StringVar(&filter.Notifier, "notifier", "", "with --all: only those through this notifier")
	f.StringVar(&filter.Kind, "kind", "", "with --all: page, card, thread, notice, event or bulk")
	f.StringVar(&filter.Reason, "died-of", "", "with --all: only those with this reason of their own, e.g. slack:channel_not_found")
	f.StringVar(&filter.Incident, "incident", "", "with --all: only those of this incident")
	f.StringVar(&many.after, "after", "", "with --all: only those that died at or after this instant (RFC 3339)")
	f.StringVar(&many.before, "before", "", "with --all: only those that died before this instant (RFC 3339)")
	f.IntVar(&many.request.PerSecond, "per-second", 0, "with --all: how many at most in a second (server's default: 20)")
	f.BoolVar(&many.request.DryRun, "dry-run", false, "with --all: only count")
	f.BoolVar(&many.yes, "yes", false, "with --all: do it")
	return cmd
}

// onlyWithAll names a flag that was given and means nothing for one delivery.
func onlyWithAll(cmd *cobra.Command) string {
	for _, name := range []string{"state", "notifier", "kind", "died-of", "incident", "after", "before", "per-second", "dry-run", "yes"} {
		if cmd.Flags().Changed(name) {
			return name
		}
	}
	return ""
}

func (p *program) decideAll(cmd *cobra.Command, many *decideMany) error {
	if many.request.DryRun == many.yes {
		return usagef("say --dry-run to count, or --yes to do it")
	}
	for _, bound := range []struct {
		text string
		into **time.Time
	}{{many.after, &many.request.Filter.After}, {many.before, &many.request.Filter.Before}} {
		if bound.text == "" {
			continue
		}
		at, err := time.Parse(time.RFC3339, bound.text)
		if err != nil {
			return usagef("%q is no instant: write it as 2026-01-31T08:00:00Z", bound.text)
		}
		*bound.into = &at
	}
	c, err := p.remote()
	if err != nil {
		return err
	}
	r, err := c.DecideMany(cmd.Context(), many.request)
	if err != nil {
		return err
	}
	if p.json {
		return p.printJSON(r)
	}
	p.printRun(r)
	return nil
}

// printRun prints a decision on many: what its set is, what became of it, and why some were left alone.
func (p *program) printRun(r api.DecisionRun) {
	progress := fmt.Sprintf("%d of %d decided, %d left alone", r.Applied, r.Total, r.Skipped)
	if r.DryRun {
		progress = fmt.Sprintf("%d found, of which it is not possible on %d; nothing was changed", r.Total, r.Refused)
	}
	canceled := ""
	if r.CanceledBy != "" {
		canceled = r.CanceledBy
	}
	p.facts(
		plain("run"), plain(r.ID), plain("state"), state(r.State), plain("action"), plain(r.Action), plain("reason"), plain(oneLine(r.Reason, 100)),
		plain("by"), plain(r.By), plain("made"), plain(whenever(r.MadeAt)), plain("ended"), plain(whenever(r.EndedAt)), plain("canceled by"), plain(canceled),
		plain("deliveries"), plain(progress),
	)
	if len(r.Counts) > 0 {
		p.line()
		rows := make([][]cell, len(r.Counts))
		for i, c := range r.Counts {
			rows[i] = []cell{plain(c.Notifier), plain(c.Reason), state(c.State), plain(fmt.Sprint(c.Count)), plain(fmt.Sprint(c.Applied)), plain(fmt.Sprint(c.Skipped + c.Refused)), plain(c.Why)}
		}
		p.table([]string{"NOTIFIER", "REASON", "STATE", "COUNT", "DECIDED", "LEFT ALONE", ""}, rows)
	}
	if len(r.Skips) > 0 {
		p.line()
		rows := make([][]cell, len(r.Skips))
		for i, s := range r.Skips {
			rows[i] = []cell{plain(s.Why), plain(fmt.Sprint(s.Count))}
		}
		p.table([]string{"LEFT ALONE SINCE", "COUNT"}, rows)
	}
}
