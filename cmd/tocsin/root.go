package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/config"
)

// Exit codes.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2 // wrong usage, or a wrong file
)

// program is what all verbs share: where to read, write and look things up.
type program struct {
	in       io.Reader
	out, err io.Writer
	env      func(string) (string, bool)
	json     bool   // --json
	server   string // --server
	token    string // --token
}

// failure is an error with the exit code that it leads to. Errors that cobra itself finds are wrong usage.
type failure struct {
	code int
	err  error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// usagef is a mistake in how a verb was called.
func usagef(format string, args ...any) error {
	return &failure{code: exitUsage, err: fmt.Errorf(format, args...)}
}

// execute runs one command line and gives the exit code.
func execute(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer, env func(string) (string, bool)) int {
	p := &program{in: in, out: out, err: errOut, env: env}
	root := p.root()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errOut)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitDone
	}
	code := exitUsage
	var f *failure
	if errors.As(err, &f) {
		code = f.code
	}
	fmt.Fprintf(errOut, "tocsin: %s\n", printable(err.Error()))
	if f == nil {
		fmt.Fprintf(errOut, "See `%s --help`.\n", cmd.CommandPath())
	}
	return code
}

func (p *program) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "tocsin",
		Short: "An on-call pager",
		Long: "tocsin turns an alert into a message that the on-call engineer gets, and keeps turning until someone answers.\n\n" +
			"serve, dev, migrate, check and doctor work on this machine; the other verbs ask a server, named by --server and --token,\n" +
			"by TOCSIN_SERVER and TOCSIN_TOKEN, or by the file context.yaml in tocsin's folder of the user's configuration.\n\n" +
			"Exit codes: 0 done, 1 failed, 2 wrong usage or a wrong file.",
		Version:       version(),
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	flags := root.PersistentFlags()
	flags.BoolVar(&p.json, "json", false, "print JSON instead of a table")
	flags.StringVar(&p.server, "server", "", "address of the server, e.g. https://tocsin.example.com")
	flags.StringVar(&p.token, "token", "", "API token")
	root.AddCommand(p.serveCommand(), p.devCommand(), p.migrateCommand(), p.checkCommand(), p.doctorCommand(), p.alertCommand(), p.incidentsCommand(),
		p.deliveriesCommand(), p.decideCommand(), p.decisionsCommand(), p.eventsCommand(), p.notifiersCommand(), p.heartbeatsCommand(), p.oncallCommand(), p.schedulesCommand(),
		p.tokenCommand(), p.usersCommand(), p.silencesCommand(), p.explainCommand(), p.replicasCommand())
	strictCompletion(root)
	return root
}

// strictCompletion makes a shell that the completion does not know wrong usage; cobra's own command shows its help then
// and exits with 0.
func strictCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() == "completion" {
			c.Args = cobra.NoArgs
			c.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	}
}

// run makes a verb's work out of f: what goes wrong in it is a failure, not wrong usage, unless it says so.
func run(f func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		err := f(cmd, args)
		var have *failure
		if err == nil || errors.As(err, &have) {
			return err
		}
		var wrong config.Errors
		if errors.As(err, &wrong) {
			return &failure{code: exitUsage, err: err}
		}
		var p *api.Problem
		if errors.As(err, &p) && p.Type == api.ProblemInvalid {
			return &failure{code: exitUsage, err: err}
		}
		return &failure{code: exitFailed, err: err}
	}
}

// group is a verb that only holds others: called alone it is wrong usage.
func group(use, short string, verbs ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		return fmt.Errorf("%s needs one of its verbs", cmd.CommandPath())
	}}
	c.AddCommand(verbs...)
	return c
}

// version is what the Go tool chain noted in the binary.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 && v == "(devel)" {
			v = "devel-" + s.Value[:12]
		}
	}
	return v
}
