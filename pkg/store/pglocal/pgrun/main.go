// Pgrun runs a command beside a throw-away Postgres: `pgrun [-durable] -- go test ./...`. The command finds the
// server's address in TOCSIN_TEST_DATABASE_URL; its exit code becomes pgrun's. Where the variable is set already,
// that server is used and none is started.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/tocsin-oncall/tocsin/pkg/store/pglocal"
)

const variable = "TOCSIN_TEST_DATABASE_URL"

func main() {
	durable := flag.Bool("durable", false, "keep every commit on a real disk, as production does: for measurements")
	flag.Parse()
	code, err := run(*durable, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "pgrun:", err)
	}
	os.Exit(code)
}

func run(durable bool, args []string) (int, error) {
	if len(args) == 0 {
		return 2, errors.New("no command: pgrun [-durable] -- COMMAND [ARGUMENT...]")
	}
	// A Ctrl-C reaches the command by itself, through the terminal; a signal to us alone is passed on. Either way we
	// live on until the command has ended, and then end the server.
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	env := os.Environ()
	if os.Getenv(variable) == "" {
		server, dir, err := start(ctx, durable)
		if err != nil {
			return 1, err
		}
		defer os.RemoveAll(dir)
		defer server.Stop()
		env = append(env, variable+"="+server.URL("postgres"))
	}

	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = env, os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	go func() {
		for s := range signals {
			if s != syscall.SIGINT {
				_ = cmd.Process.Signal(s)
			}
		}
	}()
	err := cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() > 0 {
		return exit.ExitCode(), nil
	}
	if err != nil {
		return 1, err
	}
	return 0, nil
}

// start starts the server: in memory and without durability, or on the disk of the temporary files with all of it.
func start(ctx context.Context, durable bool) (*pglocal.Server, string, error) {
	var (
		dir string
		err error
	)
	if durable {
		dir, err = os.MkdirTemp("", "tocsin-pg-durable-")
	} else {
		dir, err = pglocal.Scratch()
	}
	if err != nil {
		return nil, "", err
	}
	o := pglocal.Options{Dir: dir, Fast: !durable, Progress: os.Stderr}
	if durable {
		o.Settings = map[string]string{"shared_buffers": "512MB", "max_wal_size": "4GB", "max_connections": "400"}
	}
	server, err := pglocal.Start(ctx, o)
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, "", err
	}
	return server, dir, nil
}
