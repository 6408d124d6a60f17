package delivery_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
)

var update = flag.Bool("update", false, "rewrite the golden files under testdata from what the code does")

// golden compares a text with its file. A change of the decisions is reviewed as the diff of these files.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want, have := strings.Split(string(b), "\n"), strings.Split(got, "\n")
	for i := range max(len(want), len(have)) {
		w, h := line(want, i), line(have, i)
		if w != h {
			t.Fatalf("%s:%d: the decisions have changed; look at the diff after `go test ./pkg/delivery -update`\n file %q\n code %q", path, i+1, w, h)
		}
	}
}

func line(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "(nothing)"
}

// dim is one input of a decision with all its values.
type dim struct {
	name   string
	values []string
}

// point is one combination of values, by the names of their dims.
type point map[string]string

// table walks every combination of dims and writes a line for each different decision. Values that lead to the same
// stand on one line, joined by "|"; "*" is all of them. So no combination is left out, and a person can read it. A dim
// with one value only gets no column, and a combination without a decision no line.
func table(dims []dim, decide func(point) string) string {
	at := point{}
	var walk func(rest []dim) [][]string
	walk = func(rest []dim) [][]string {
		if len(rest) == 0 {
			if d := decide(at); d != "" {
				return [][]string{{d}}
			}
			return nil
		}
		d := rest[0]
		type group struct {
			values []string
			lines  [][]string
		}
		var groups []*group
		for _, v := range d.values {
			at[d.name] = v
			lines := walk(rest[1:])
			i := slices.IndexFunc(groups, func(g *group) bool { return slices.EqualFunc(g.lines, lines, slices.Equal) })
			if i < 0 {
				i, groups = len(groups), append(groups, &group{lines: lines})
			}
			groups[i].values = append(groups[i].values, v)
		}
		var out [][]string
		for _, g := range groups {
			name := strings.Join(g.values, "|")
			if len(g.values) == len(d.values) {
				name = "*"
			}
			for _, l := range g.lines {
				if len(d.values) > 1 {
					l = append([]string{name}, l...)
				}
				out = append(out, l)
			}
		}
		return out
	}
	lines := walk(dims)
	head := make([]string, 0, len(dims)+1)
	for _, d := range dims {
		if len(d.values) > 1 {
			head = append(head, d.name)
		}
	}
	return columns(append([][]string{append(head, "decision")}, lines...))
}

// columns sets cells below each other.
func columns(lines [][]string) string {
	width := make([]int, len(lines[0]))
	for _, l := range lines {
		for i, c := range l {
			width[i] = max(width[i], len(c))
		}
	}
	var b strings.Builder
	for _, l := range lines {
		var out strings.Builder
		for i, c := range l {
			fmt.Fprintf(&out, "%-*s", width[i]+2, c)
		}
		b.WriteString(strings.TrimRight(out.String(), " ") + "\n")
	}
	return b.String()
}

// byKind writes one section for all kinds that decide alike, in the order of the kinds.
func byKind(intro string, section func(delivery.Kind) string) string {
	type group struct {
		kinds []string
		text  string
	}
	var groups []*group
next:
	for _, k := range delivery.Kinds {
		text := section(k)
		for _, g := range groups {
			if g.text == text {
				g.kinds = append(g.kinds, string(k))
				continue next
			}
		}
		groups = append(groups, &group{[]string{string(k)}, text})
	}
	var b strings.Builder
	b.WriteString("# " + strings.ReplaceAll(strings.TrimSpace(intro), "\n", "\n# ") + "\n")
	for _, g := range groups {
		fmt.Fprintf(&b, "\n## %s\n%s", strings.Join(g.kinds, ", "), g.text)
	}
	return b.String()
}

// tell writes what a step changes on the delivery that it was decided on.
func tell(s delivery.Step) string {
	d, c := s.From(), s.Change()
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	switch {
	case c.Notes():
		add("note")
	case d.Stop != nil && c.State == d.Stop.State && c.Reason == d.Stop.Reason:
		add("-> as noted")
	default:
		add("-> %s", c.State)
		if c.Reason != "" {
			add("%s", c.Reason)
		}
	}
	if c.Next == delivery.NextIn {
		switch {
		case c.Delay == 0:
			add("now")
		case c.Jitter:
			add("in %s~", c.Delay)
		default:
			add("in %s", c.Delay)
		}
	}
	if !c.Notes() && c.Next == delivery.NextKeep {
		add("keeps its lease")
	}
	number := func(name string, was, is int) {
		switch {
		case was == is:
		case is == was+1 && (name == "effect" || name == "tries" || name == "denials"):
			add("%s+1", name)
		default:
			add("%s=%d", name, is)
		}
	}
	number("effect", d.Effect, c.Effect)
	if !c.Notes() && c.Tries == 0 && c.State == delivery.Sent {
		add("tries=0") // whatever they were: written always, so that it takes no line of its own
	} else {
		number("tries", d.Tries, c.Tries)
	}
	if c.State != delivery.Sent {
		number("denials", d.Denials, c.Denials)
	}
	if c.Form != d.Form && c.State != delivery.Sent {
		add("form=%q", c.Form)
	}
	if c.Queue != "" {
		add("in its queue")
	}
	if c.Overdue && !d.Overdue {
		add("overdue")
	}
	number("desired", d.Desired, c.Desired)
	number("applied", d.Applied, c.Applied)
	switch {
	case d.Reference == c.Reference:
	case c.Reference.IsZero():
		add("no reference")
	default:
		add("reference")
	}
	switch {
	case d.Doubt == c.Doubt:
	case c.Doubt == nil:
		add("doubt lifted")
	case d.Doubt == nil || d.Doubt.Key != c.Doubt.Key:
		add("doubt(rev %d)", c.Doubt.Revision)
	case *d.Doubt != *c.Doubt:
		add("doubt(rev %d since the first)", c.Doubt.Revision)
	}
	if c.Stop != nil && d.Stop == nil {
		add("stop=%s", c.Stop.Reason)
	}
	if c.Sentence != "" {
		add("says")
	}
	return strings.Join(out, " ")
}

func goldenFiles(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir("testdata")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if !e.IsDir() { // rapid keeps what it found beside them
			names = append(names, e.Name())
		}
	}
	return names
}
