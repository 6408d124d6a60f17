package main

import (
	"github.com/spf13/cobra"

	"github.com/tocsin-oncall/tocsin/pkg/api"
)

// decisions are the words of the command line for the actions of the API.
var decisions = map[string]string{
	"assume-delivered": api.ActionAssumeDelivered,
	"cancel":           api.ActionCancel,
	"send-again":       api.ActionSendAgain,
}

func (p *program) decideCommand() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "decide ID assume-delivered|cancel|send-again --reason REASON",
		Short: "Decide what becomes of a dead delivery",
		Long: "Gives your word on a delivery that waits for it:\n" +
			"  assume-delivered  it may have arrived and you know that it did; only where an attempt is in doubt\n" +
			"  cancel            it is no longer wanted; also on a pending one\n" +
			"  send-again        send it anew, with the address resolved anew",
		Args:      cobra.ExactArgs(2),
		ValidArgs: []string{"assume-delivered", "cancel", "send-again"},
		RunE: run(func(cmd *cobra.Command, args []string) error {
			action, ok := decisions[args[1]]
			if !ok {
				return usagef("%q is no decision: use assume-delivered, cancel or send-again", args[1])
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
	cmd.Flags().StringVar(&reason, "reason", "", "why; it is kept in the delivery's history (needed)")
	_ = cmd.MarkFlagRequired("reason")
	return cmd
}
