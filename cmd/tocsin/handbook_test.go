package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var updateHandbook = flag.Bool("update", false, "rewrite the handbook's page of commands")

const commandsPage = "../../deploy/handbook/commands.md"

// The handbook's page of commands is what the commands say of themselves.
func TestHandbookHasEveryCommand(t *testing.T) {
	t.Parallel()
	page := commandsText()
	if *updateHandbook {
		if err := os.WriteFile(commandsPage, []byte(page), 0o644); err != nil { //nolint:gosec // a page for everybody
			t.Fatal(err)
		}
	}
	had, err := os.ReadFile(commandsPage)
	if err != nil {
		t.Fatal(err)
	}
	if string(had) != page {
		t.Errorf("%s is not what the commands say of themselves: run `go test ./cmd/tocsin -run Handbook -update`", commandsPage)
	}
}

const commandsHead = `# Commands

This page is made from the program: ` + "`tocsin COMMAND --help`" + ` says the same.

Commands with ` + "`--config`" + `, and ` + "`check` and `dev`" + `, work on this machine. The others ask a server over HTTP. Which one, and with which token, they
take from the flags, else from the environment, else from the file ` + "`tocsin/context.yaml`" + ` in the user's configuration folder (` + "`~/.config`" + ` on Linux):

` + "```yaml" + `
server: https://tocsin.example.com
token: "..."
` + "```" + `

A token is only taken from where the server is named, or from a place that goes before it.

| exit code | |
|---|---|
| 0 | done |
| 1 | failed: refused by the state, not found, not reachable |
| 2 | wrong usage, a wrong file, or a request that the server calls wrong |

| environment variable | |
|---|---|
| ` + "`TOCSIN_SERVER`, `TOCSIN_TOKEN`" + ` | server and token |
| ` + "`TOCSIN_DATABASE_URL`" + ` | used instead of ` + "`database.url`" + ` of the file |
| ` + "`NO_COLOR`" + ` | no colours. There are none either where the output is no terminal |

With every command: ` + "`--json`" + ` prints JSON instead of a table, ` + "`--server`" + ` and ` + "`--token`" + ` name the server, ` + "`--help`" + ` explains the command.
`

// The expectations that the handbook shows are met by the file that it shows.
func TestHandbookExpectationsAreMet(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, from := range map[string]string{"tocsin.yaml": "file.md", "expectations.yaml": "explain.md"} {
		text, err := os.ReadFile(filepath.Join("../../deploy/handbook", from))
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(text), "```yaml\n")
		block, _, _ := strings.Cut(rest, "\n```")
		if err := os.WriteFile(filepath.Join(dir, name), []byte(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out, errs strings.Builder
	code := execute(t.Context(), []string{"check", filepath.Join(dir, "tocsin.yaml"), "--test", filepath.Join(dir, "expectations.yaml")}, strings.NewReader(""), &out, &errs, func(name string) (string, bool) {
		switch name {
		case "TOCSIN_DATABASE_URL":
			return "postgres://tocsin@127.0.0.1/tocsin", true
		case "ALERTMANAGER_TOKEN_SHA256":
			return strings.Repeat("0123456789abcdef", 4), true
		}
		return "some-value", true
	})
	if code != exitDone || out.String() != "2 of 2 expectations are met.\n" {
		t.Errorf("exit code %d\n%s%s", code, &out, &errs)
	}
}

// The file of expectations that comes with the file to start from is met by it, with the environment that the handbook shows.
func TestShippedExpectationsAreMet(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../deploy/handbook/explain.md")
	if err != nil {
		t.Fatal(err)
	}
	env := map[string]string{}
	for line := range strings.Lines(string(page)) {
		if words, ok := strings.CutPrefix(strings.TrimSpace(line), "export "); ok {
			for _, w := range strings.Fields(words) {
				name, value, _ := strings.Cut(w, "=")
				env[name] = value
			}
		}
	}
	var out, errs strings.Builder
	code := execute(t.Context(), []string{"check", "../../deploy/tocsin.yaml", "--test", "../../deploy/expectations.yaml"}, strings.NewReader(""), &out, &errs, func(name string) (string, bool) {
		v, ok := env[name]
		return v, ok
	})
	if code != exitDone || out.String() != "6 of 6 expectations are met.\n" {
		t.Errorf("exit code %d\n%s%s", code, &out, &errs)
	}
}

// commandsText writes the page.
func commandsText() string {
	p := &program{in: strings.NewReader(""), out: io.Discard, err: io.Discard, env: func(string) (string, bool) { return "", false }}
	root := p.root()
	root.InitDefaultCompletionCmd()
	var b strings.Builder
	b.WriteString(commandsHead)
	describe(&b, root)
	return b.String()
}

func describe(b *strings.Builder, c *cobra.Command) {
	for _, sub := range c.Commands() {
		if sub.Name() == "help" || sub.Hidden {
			continue
		}
		if sub.HasAvailableSubCommands() && sub.Name() != "completion" {
			describe(b, sub)
			continue
		}
		use := strings.TrimSuffix(sub.Use, " [flags]")
		fmt.Fprintf(b, "\n## %s\n%s.\n\n```\n%s %s\n```\n", strings.TrimPrefix(sub.CommandPath(), "tocsin "), sub.Short, c.CommandPath(), use)
		if sub.Name() == "completion" {
			fmt.Fprintf(b, "\nFor bash, fish, powershell and zsh. `tocsin completion bash --help` says where to put it.\n")
			continue
		}
		if sub.Long != "" {
			fmt.Fprintf(b, "\n%s\n", prose(sub.Long))
		}
		if sub.Example != "" {
			fmt.Fprintf(b, "\n```sh\n%s\n```\n", unindent(sub.Example))
		}
		first := true
		sub.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Name == "help" || f.Hidden || c.Root().PersistentFlags().Lookup(f.Name) != nil {
				return
			}
			if first {
				b.WriteString("\n| flag | |\n|---|---|\n")
				first = false
			}
			fmt.Fprintf(b, "| `--%s`%s | %s%s |\n", f.Name, valueName(f), f.Usage, defaultOf(f))
		})
	}
}

// prose keeps paragraphs and puts lists, which are indented in the help, into blocks of their own.
func prose(s string) string {
	var out []string
	block := false
	for line := range strings.SplitSeq(strings.TrimSpace(s), "\n") {
		if indented := strings.HasPrefix(line, "  "); indented != block {
			if block = indented; block {
				out = append(out, "\n```")
			} else {
				out = append(out, "```\n")
			}
		}
		out = append(out, line)
	}
	if block {
		out = append(out, "```")
	}
	return strings.Join(out, "\n")
}

func unindent(s string) string {
	var out []string
	for line := range strings.SplitSeq(s, "\n") {
		out = append(out, strings.TrimPrefix(line, "  "))
	}
	return strings.Join(out, "\n")
}

func valueName(f *pflag.Flag) string {
	switch f.Value.Type() {
	case "bool":
		return ""
	case "int":
		return " N"
	case "stringSlice":
		return " A,B"
	case "stringToString":
		return " NAME=VALUE"
	}
	return " TEXT"
}

func defaultOf(f *pflag.Flag) string {
	switch f.DefValue {
	case "", "false", "[]":
		return ""
	}
	return fmt.Sprintf(" (default %s)", f.DefValue)
}
