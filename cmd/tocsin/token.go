package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

func (p *program) tokenCommand() *cobra.Command {
	return group("token", "Make and revoke API tokens", p.tokenCreateCommand(), p.tokenListCommand(), p.tokenRevokeCommand())
}

// localActor is who the audit trail names where the database was written to directly.
const localActor = "command-line"

func (p *program) tokenCreateCommand() *cobra.Command {
	var path string
	var scopes []string
	cmd := &cobra.Command{
		Use:   "create NAME --scopes SCOPE,...",
		Short: "Make an API token and print it, once",
		Long: "Makes a token and prints it on the output; only its hash is kept. With --config it writes straight to the\n" +
			"database, which works before the first serve; otherwise a server is asked, with a token of the scope admin.\n\n" +
			"Scopes: calendar (read calendars; its token may stand in their address), ingest (send alerts), read, operate\n" +
			"(acknowledge, resolve, decide; includes read), admin (everything).",
		Example: "  tocsin token create alertmanager --scopes ingest --config tocsin.yaml",
		Args:    cobra.ExactArgs(1),
		RunE: run(func(cmd *cobra.Command, args []string) error {
			made := api.MadeToken{Name: args[0], Scopes: scopes}
			for _, s := range scopes {
				if !slices.Contains(api.Scopes, s) {
					return usagef("%q is no scope: use %s", s, strings.Join(api.Scopes, ", "))
				}
			}
			if !nameable(args[0]) {
				return usagef("%q can't be a token's name: use up to 100 letters, digits, dots, hyphens and underscores", args[0])
			}
			if path == "" {
				c, err := p.remote()
				if err != nil {
					return err
				}
				if made, err = c.CreateToken(cmd.Context(), api.NewToken{Name: args[0], Scopes: scopes}); err != nil {
					return err
				}
			} else {
				err := p.withStore(cmd.Context(), path, func(ctx context.Context, s *store.Store) error {
					text, hash := store.MakeToken()
					made.Token = text
					if err := s.AddToken(ctx, store.Token{Name: made.Name, Hash: hash, Scopes: made.Scopes}); err != nil {
						return err
					}
					return s.InTx(ctx, func(tx *store.Tx) error {
						return tx.Audit(ctx, localActor, "token_created", made.Name, strings.Join(made.Scopes, ","))
					})
				})
				if err != nil {
					return err
				}
			}
			if p.json {
				return p.printJSON(made)
			}
			fmt.Fprintln(p.out, made.Token)
			fmt.Fprintf(p.err, "The token %s may %s. It is shown this once: keep it now.\n", made.Name, strings.Join(made.Scopes, ", "))
			return nil
		}),
	}
	cmd.Flags().StringVar(&path, "config", "", "write straight to the database of this file")
	cmd.Flags().StringSliceVar(&scopes, "scopes", nil, strings.Join(api.Scopes, ", ")+" (needed)")
	_ = cmd.MarkFlagRequired("scopes")
	_ = cmd.MarkFlagFilename("config", "yaml", "yml")
	return cmd
}

func (p *program) tokenListCommand() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the API tokens of the database",
		Args:  cobra.NoArgs,
		RunE: run(func(cmd *cobra.Command, _ []string) error {
			var l api.List[api.Token]
			if path != "" {
				err := p.withStore(cmd.Context(), path, func(ctx context.Context, s *store.Store) (err error) {
					l.Items, err = s.ListTokens(ctx)
					return err
				})
				if err != nil {
					return err
				}
			} else {
				c, err := p.remote()
				if err != nil {
					return err
				}
				if l, err = c.Tokens(cmd.Context()); err != nil {
					return err
				}
			}
			if p.json {
				return p.printJSON(l)
			}
			rows := make([][]cell, len(l.Items))
			for i, t := range l.Items {
				s := cell{text: "live", colour: green}
				if t.RevokedAt != nil {
					s = cell{text: "revoked", colour: red}
				}
				rows[i] = []cell{plain(t.Name), plain(strings.Join(t.Scopes, ",")), s, plain(when(t.CreatedAt)), plain(whenever(t.RevokedAt))}
			}
			p.table([]string{"TOKEN", "SCOPES", "STATE", "CREATED", "REVOKED"}, rows)
			return nil
		}),
	}
	cmd.Flags().StringVar(&path, "config", "", "read straight from the database of this file")
	_ = cmd.MarkFlagFilename("config", "yaml", "yml")
	return cmd
}

func (p *program) tokenRevokeCommand() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "revoke NAME",
		Short: "End an API token; replicas stop taking it within seconds",
		Args:  cobra.ExactArgs(1),
		RunE: run(func(cmd *cobra.Command, args []string) error {
			if err := p.revoke(cmd.Context(), path, args[0]); err != nil {
				return err
			}
			if p.json {
				return p.printJSON(revokedToken{Name: args[0], Revoked: true})
			}
			fmt.Fprintf(p.out, "The token %s is revoked.\n", printable(args[0]))
			return nil
		}),
	}
	cmd.Flags().StringVar(&path, "config", "", "write straight to the database of this file")
	_ = cmd.MarkFlagFilename("config", "yaml", "yml")
	return cmd
}

// revokedToken is the word on a token that was ended.
type revokedToken struct {
	Name    string `json:"name"`
	Revoked bool   `json:"revoked"`
}

// revoke ends a token, in the database of a file or by asking a server.
func (p *program) revoke(ctx context.Context, path, name string) error {
	if path == "" {
		c, err := p.remote()
		if err != nil {
			return err
		}
		return c.RevokeToken(ctx, name)
	}
	return p.withStore(ctx, path, func(ctx context.Context, s *store.Store) error {
		if err := s.RevokeToken(ctx, name); err != nil {
			return fmt.Errorf("token %s: %w", name, err)
		}
		return s.InTx(ctx, func(tx *store.Tx) error { return tx.Audit(ctx, localActor, "token_revoked", name, "") })
	})
}

// withStore works on the database of a file.
func (p *program) withStore(ctx context.Context, path string, work func(context.Context, *store.Store) error) error {
	f, _, err := config.Load(path, p.env)
	if err != nil {
		return err
	}
	s, err := store.Open(ctx, f.Database.URL, store.Options{MaxConnections: 2})
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.CheckSchema(ctx); err != nil {
		return err
	}
	return work(ctx, s)
}

// nameable is the same rule as the API's for names of tokens.
func nameable(name string) bool {
	if name == "" || len(name) > 100 {
		return false
	}
	return !strings.ContainsFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '-' || r == '_')
	})
}
