package main

import (
	"errors"
	"os/exec"
	"regexp"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/tocsin-oncall/tocsin/pkg/app"
	"github.com/tocsin-oncall/tocsin/pkg/store/storetest"
)

func TestMain(m *testing.M) {
	testscript.Main(runner{m}, map[string]func(){"tocsin": main})
}

// runner lets storetest stop the server that it started for these tests.
type runner struct{ m *testing.M }

func (r runner) Run() int { return storetest.Main(r.m) }

// TestScripts runs the real program. Scripts that need a database ask for one with "database" and find its address
// in $DATABASE; those that need a server start one with "environment" and find it in $SERVER and $TOKEN.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(e *testscript.Env) error {
			e.Setenv("HOME", e.WorkDir)
			e.Setenv("XDG_CONFIG_HOME", e.WorkDir+"/.config")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"database":    databaseCommand(t),
			"environment": environmentCommand(t),
			"capture":     capture,
			"exits":       exits,
		},
	})
}

// databaseCommand makes the database of a script: "database migrated|bare".
func databaseCommand(t *testing.T) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, _ bool, args []string) {
		if len(args) != 1 {
			ts.Fatalf("database migrated|bare")
		}
		url := ""
		switch args[0] {
		case "migrated":
			url = storetest.New(t)
		case "bare":
			url = storetest.NewEmpty(t)
		}
		ts.Setenv("DATABASE", url)
	}
}

// environmentCommand starts a development environment for a script.
func environmentCommand(t *testing.T) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, _ bool, _ []string) {
		e, err := app.StartDev(t.Context(), app.DevOptions{Dir: t.TempDir(), Database: storetest.New(t), AnyPorts: true})
		ts.Check(err)
		ts.Defer(e.Stop)
		ts.Setenv("SERVER", e.URL())
		ts.Setenv("TOKEN", e.Token)
	}
}

// capture keeps the first group that a regular expression finds in a file or stdout: "capture NAME FILE REGEXP".
func capture(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 3 {
		ts.Fatalf("capture NAME FILE REGEXP")
	}
	found := firstGroup(args[2], ts.ReadFile(args[1]))
	if found == "" {
		ts.Fatalf("%s holds nothing like %s", args[1], args[2])
	}
	ts.Setenv(args[0], found)
}

// exits runs a program that must end with an exit code: "exits CODE PROGRAM ARGUMENT...".
func exits(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("exits CODE PROGRAM ARGUMENT...")
	}
	err := ts.Exec(args[1], args[2:]...)
	code := 0
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		code = ended.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

func firstGroup(pattern, text string) string {
	m := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if len(m) < 2 {
		return ""
	}
	return m[1]
}
