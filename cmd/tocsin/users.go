package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tocsin-oncall/tocsin/pkg/api"
)

func (p *program) usersCommand() *cobra.Command {
	return group("users", "See people, and link their chat accounts", p.usersListCommand(), p.usersLinkCommand(), p.usersUnlinkCommand())
}

func (p *program) usersListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List people with their ways and linked accounts",
		Args:  cobra.NoArgs,
		RunE: run(func(cmd *cobra.Command, _ []string) error {
			c, err := p.remote()
			if err != nil {
				return err
			}
			l, err := c.Users(cmd.Context())
			if err != nil {
				return err
			}
			if p.json {
				return p.printJSON(l)
			}
			rows := make([][]cell, len(l.Items))
			var troubles []string
			for i, u := range l.Items {
				var ways, accounts []string
				for _, w := range u.Contacts {
					way := w.Via + " (" + map[string]string{"file": "address in the file", "linked": "linked", "email": "by e-mail", "none": "not linked"}[w.Address] + ")"
					if w.After != "" {
						way += " after " + w.After
					}
					ways = append(ways, way)
					if w.Trouble != "" {
						troubles = append(troubles, u.ID+": "+w.Trouble)
					}
				}
				for _, a := range u.Accounts {
					accounts = append(accounts, a.Provider+" "+a.AccountID)
				}
				rows[i] = []cell{plain(u.ID), plain(oneLine(u.Name, 40)), plain(strings.Join(ways, ", ")), plain(oneLine(strings.Join(accounts, ", "), 80))}
			}
			p.table([]string{"USER", "NAME", "WAYS", "LINKED ACCOUNTS"}, rows)
			for _, t := range troubles {
				fmt.Fprintln(p.out, printable(t))
			}
			return nil
		}),
	}
}

func (p *program) usersLinkCommand() *cobra.Command {
	var user string
	cmd := &cobra.Command{
		Use:   "link [CODE] --user ID",
		Short: "Link a chat account to a user",
		Long: "Without a code: makes one, and says how its user hands it in from Slack and Telegram.\n" +
			"With the code that a chat account was shown when it pressed a button or wrote to tocsin: links that account, and applies\n" +
			"the button that was pressed. A code can be used once, within 15 minutes.",
		Args: cobra.MaximumNArgs(1),
		RunE: run(func(cmd *cobra.Command, args []string) error {
			c, err := p.remote()
			if err != nil {
				return err
			}
			if len(args) == 0 {
				l, err := c.Invite(cmd.Context(), user)
				if err != nil {
					return err
				}
				if p.json {
					return p.printJSON(l)
				}
				p.printInvitation(l)
				return nil
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

func (p *program) printInvitation(l api.Linked) {
	in := l.Invitation
	fmt.Fprintf(p.out, "Let %s do one of these before %s. It works once.\n", printable(l.UserID), when(in.ExpiresAt))
	for _, link := range in.Telegram {
		fmt.Fprintf(p.out, "  Telegram   open %s and press Start\n", printable(link))
	}
	if len(in.Telegram) > 0 {
		fmt.Fprintf(p.out, "             or write to the bot: /start %s\n", printable(in.Code))
	}
	if in.Slack != "" {
		fmt.Fprintf(p.out, "  Slack      write %s in any conversation\n", printable(in.Slack))
	}
	if in.Slack == "" && len(in.Telegram) == 0 {
		fmt.Fprintf(p.out, "  The file has no Slack app and no bot that answers. The code: %s\n", printable(in.Code))
	}
}

func (p *program) usersUnlinkCommand() *cobra.Command {
	var u api.UnlinkAccount
	cmd := &cobra.Command{
		Use:   "unlink USER --provider slack",
		Short: "Take a chat account away from a user",
		Long:  "Nobody is reached by it any more, and its presses are nobody's. An address in the file stays.",
		Args:  cobra.ExactArgs(1),
		RunE: run(func(cmd *cobra.Command, args []string) error {
			c, err := p.remote()
			if err != nil {
				return err
			}
			user, err := c.Unlink(cmd.Context(), args[0], u)
			if err != nil {
				return err
			}
			if p.json {
				return p.printJSON(user)
			}
			fmt.Fprintf(p.out, "The %s account of %s is unlinked.\n", u.Provider, printable(args[0]))
			return nil
		}),
	}
	cmd.Flags().StringVar(&u.Provider, "provider", "", "slack or telegram (needed)")
	cmd.Flags().StringVar(&u.AccountID, "account", "", "the chat's id of the account (default: all of them)")
	_ = cmd.MarkFlagRequired("provider")
	return cmd
}
