package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/client"
)

func (p *program) notifiersCommand() *cobra.Command {
	return group("notifiers", "See the ways out and test them", p.notifiersListCommand(), p.notifiersTestCommand())
}

// notifierColours is the colour of each state of a notifier.
var notifierColours = map[string]int{api.NotifierOK: green, api.NotifierPaused: yellow, api.NotifierBroken: red, api.NotifierOff: blue}

func (p *program) notifiersListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the ways out, with what holds them up",
		Long: "Lists the notifiers of the server's file. Those with the same account have the same credentials: they share pace,\n" +
			"pauses and breaker.",
		Args: cobra.NoArgs,
		RunE: run(func(cmd *cobra.Command, _ []string) error {
			c, err := p.remote()
			if err != nil {
				return err
			}
			l, err := c.Notifiers(cmd.Context())
			if err != nil {
				return err
			}
			if p.json {
				return p.printJSON(l)
			}
			p.printNotifiers(l.Items)
			return nil
		}),
	}
}

func (p *program) printNotifiers(all []api.Notifier) {
	rows := make([][]cell, len(all))
	for i, n := range all {
		whom := "its own place"
		if n.Direct {
			whom = "people"
		}
		rows[i] = []cell{plain(n.Name), plain(n.Type), plain(whom), {text: n.State, colour: notifierColours[n.State]}, plain(strconv.Itoa(n.Waiting)), plain(n.Account)}
	}
	p.table([]string{"NOTIFIER", "TYPE", "FOR", "STATE", "WAITING", "ACCOUNT"}, rows)
	for _, n := range all {
		if b := n.Breaker; b != nil {
			p.line()
			p.facts(plain(n.Name), cell{text: "broken since " + when(b.Since), colour: red}, plain("reason"), plain(b.Reason), plain(""), plain(b.Sentence), plain("next question"), plain(whenever(b.NextProbeAt)))
		}
		for _, r := range n.Pauses {
			p.line()
			p.facts(plain(n.Name), cell{text: r.Destination + " rests until " + when(r.Until), colour: yellow}, plain("reason"), plain(r.Reason), plain(""), plain(r.Sentence))
		}
	}
}

// Between two looks at a delivery that is waited for.
const lookAgain = 300 * time.Millisecond

func (p *program) notifiersTestCommand() *cobra.Command {
	var t api.Trial
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "test NAME [--to user:ID]",
		Short: "Send a test through a notifier and show what became of it",
		Long: "Makes a delivery that goes the way of every other, with the same credentials, address, pace and queue, and waits\n" +
			"for its outcome. The message says that it is a test and who asked for it. Exit code 0: it was sent. When the wait\n" +
			"is over first, the delivery goes on by itself for 10 minutes.",
		Example: "  tocsin notifiers test ops-slack\n  tocsin notifiers test slack-dm --to user:ana",
		Args:    cobra.ExactArgs(1),
		RunE: run(func(cmd *cobra.Command, args []string) error {
			if wait < 0 {
				return usagef("--wait %s is negative", wait)
			}
			c, err := p.remote()
			if err != nil {
				return err
			}
			tried, err := c.TestNotifier(cmd.Context(), args[0], t)
			if err != nil {
				return err
			}
			d, err := settled(cmd.Context(), c, tried.DeliveryID, wait)
			if err != nil {
				return fmt.Errorf("the test was sent off as the delivery %s, and then: %w", tried.DeliveryID, err)
			}
			if p.json {
				if err := p.printJSON(d); err != nil {
					return err
				}
			} else {
				p.printDelivery(d)
			}
			switch {
			case d.State == "sent":
				return nil
			case d.SettledAt == nil && wait == 0:
				return nil // it was not to be waited for
			case d.SettledAt == nil:
				return fmt.Errorf("it is not sent after %s; see `tocsin deliveries show %s`", wait, d.ID)
			}
			return fmt.Errorf("it was not sent: %s, %s", d.State, d.Reason)
		}),
	}
	cmd.Flags().StringVar(&t.To, "to", "", "for a notifier that sends to people: user:ID, schedule:ID or layer:ID/NAME")
	cmd.Flags().DurationVar(&wait, "wait", 30*time.Second, "how long to wait for the outcome; 0: not at all")
	return cmd
}

// settled looks at a delivery until it is settled or the wait is over.
func settled(ctx context.Context, c *client.Client, id string, wait time.Duration) (api.Delivery, error) {
	over := time.After(wait)
	for {
		d, err := c.Delivery(ctx, id)
		if err != nil || d.SettledAt != nil {
			return d, err
		}
		select {
		case <-ctx.Done():
			return d, ctx.Err()
		case <-over:
			return d, nil
		case <-time.After(lookAgain):
		}
	}
}
