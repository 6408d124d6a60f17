package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func (p *program) usersCommand() *cobra.Command {
	return group("users", "Link chat accounts to people", p.usersLinkCommand())
}

func (p *program) usersLinkCommand() *cobra.Command {
	var user string
	cmd := &cobra.Command{
		Use:   "link CODE --user ID",
		Short: "Link the chat account that was shown the code to a user",
		Long: "Whoever presses a button in a chat without being known gets a link with a one-time code. Linking applies the\n" +
			"button that was pressed, too. A code can be used once, within 15 minutes.",
		Args: cobra.ExactArgs(1),
		RunE: run(func(cmd *cobra.Command, args []string) error {
			c, err := p.remote()
			if err != nil {
				return err
			}
			l, err := c.Link(cmd.Context(), user, args[0])
			if err != nil {
				return err
			}
			if p.json {
				return p.printJSON(l)
			}
			fmt.Fprintf(p.out, "The %s account %s is linked to %s.\n", l.Provider, printable(l.AccountID), printable(l.UserID))
			if l.Applied != "" {
				fmt.Fprintf(p.out, "The button that was pressed: %s\n", printable(l.Applied))
			}
			return nil
		}),
	}
	cmd.Flags().StringVar(&user, "user", "", "the user's id in the file (needed)")
	_ = cmd.MarkFlagRequired("user")
	return cmd
}
