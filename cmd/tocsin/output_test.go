package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestTableAlignsWhatIsWide(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := &program{out: &out, env: func(string) (string, bool) { return "", false }}
	p.table([]string{"A", "B"}, [][]cell{{plain("短い"), plain("x")}, {plain("abcdef"), state("open")}, {plain(""), plain("y")}})
	if got, want := out.String(), "A       B\n短い    x\nabcdef  open\n-       y\n"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// An alert's title comes from outside and must not steer the terminal of the one who reads it.
func TestTerminalIsNotSteered(t *testing.T) {
	t.Parallel()
	evil := "\x1b]0;owned\x07\x1b[2J\u009b31m\u202etitle\r\nnext"
	if got := printable(evil); strings.ContainsAny(got, "\x1b\x07\u009b\u202e\r") {
		t.Errorf("%q passed as %q", evil, got)
	}
	if got := oneLine("a\tb\nc "+strings.Repeat("x", 50), 10); got != "a b c xxx…" {
		t.Errorf("got %q", got)
	}
}
