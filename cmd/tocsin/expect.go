package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/intake"
	"github.com/tocsin-oncall/tocsin/pkg/plan"
	"github.com/tocsin-oncall/tocsin/pkg/route"
)

// expectations is a file of `tocsin check --test`.
type expectations struct {
	Tests []expectation `yaml:"tests"`
}

// expectation is an alert, or a payload, and what should become of it.
type expectation struct {
	Name        string            `yaml:"name"`
	Kind        string            `yaml:"kind"`
	Criticality string            `yaml:"criticality"`
	Job         string            `yaml:"job"`
	Labels      map[string]string `yaml:"labels"`
	Notify      []string          `yaml:"notify"`
	Payload     any               `yaml:"payload"`      // a body as the source sends it
	PayloadFile string            `yaml:"payload_file"` // beside the file
	Source      string            `yaml:"source"`
	At          string            `yaml:"at"`
	Expect      expected          `yaml:"expect"`
}

// expected is what should become of it. What is left out may be anything.
type expected struct {
	Notifiers *names `yaml:"notifiers"`
	People    *names `yaml:"people"`
	Later     *names `yaml:"later"`
	Silent    *bool  `yaml:"silent"`
}

// names are a list that must be met exactly, in any order, or `contains:` with some that must be among them.
type names struct {
	exactly  []string
	contains []string
	only     bool
}

// UnmarshalYAML reads both forms.
func (n *names) UnmarshalYAML(node ast.Node) error {
	if node.Type() == ast.MappingType || node.Type() == ast.MappingValueType {
		var some struct {
			Contains []string `yaml:"contains"`
		}
		if err := yaml.NodeToValue(node, &some, yaml.Strict()); err != nil {
			return err
		}
		n.contains = some.Contains
		return nil
	}
	n.only = true
	if node.Type() == ast.StringType { // one name may be written as the name
		n.exactly = []string{""}
		return yaml.NodeToValue(node, &n.exactly[0])
	}
	return yaml.NodeToValue(node, &n.exactly)
}

// differs says in what the names differ from what was expected; nothing where they don't.
// known says whether the file has such a name.
func (n *names) differs(what string, got []string, known func(string) bool) []string {
	if n == nil {
		return nil
	}
	var out []string
	for _, w := range slices.Concat(n.exactly, n.contains) {
		switch {
		case slices.Contains(got, w):
		case !known(w):
			out = append(out, fmt.Sprintf("- %s: %s, which is not in the file", what, w))
		default:
			out = append(out, fmt.Sprintf("- %s: %s", what, w))
		}
	}
	for _, g := range got {
		if n.only && !slices.Contains(n.exactly, g) {
			out = append(out, fmt.Sprintf("+ %s: %s", what, g))
		}
	}
	return out
}

// readExpectations reads and checks a file of expectations.
func readExpectations(path string) ([]expectation, error) {
	text, err := os.ReadFile(path) //nolint:gosec // the operator names the file
	if err != nil {
		return nil, usagef("%w", err)
	}
	var all expectations
	if err := yaml.UnmarshalWithOptions(text, &all, yaml.Strict()); err != nil {
		return nil, usagef("%s: %s", path, yaml.FormatError(err, false, true))
	}
	if len(all.Tests) == 0 {
		return nil, usagef("%s holds no tests: write tests: [{kind: disk_full, criticality: critical, job: db, expect: {people: [ana]}}]", path)
	}
	var wrong []error
	for i, x := range all.Tests {
		at := fmt.Sprintf("%s: test %d", path, i+1)
		if x.Name != "" {
			at += " (" + x.Name + ")"
		}
		ways := 0
		for _, given := range []bool{x.Kind != "", x.Payload != nil, x.PayloadFile != ""} {
			if given {
				ways++
			}
		}
		switch {
		case ways != 1:
			wrong = append(wrong, fmt.Errorf("%s: give one of kind, payload and payload_file", at))
		case x.Kind != "" && x.Source != "":
			wrong = append(wrong, fmt.Errorf("%s: source says what sent a payload, and there is none: remove it", at))
		case x.Kind == "" && (x.Criticality != "" || x.Job != "" || x.Labels != nil || x.Notify != nil):
			wrong = append(wrong, fmt.Errorf("%s: criticality, job, labels and notify stand in the payload: remove them here", at))
		}
		if x.Expect == (expected{}) {
			wrong = append(wrong, fmt.Errorf("%s expects nothing: add notifiers, people, later or silent under expect", at))
		}
	}
	if len(wrong) > 0 {
		return nil, usagef("%w", errors.Join(wrong...))
	}
	return all.Tests, nil
}

// check says in what an expectation is not met by a file.
func (x expectation) check(f *config.File, dir string) ([]string, error) {
	at := time.Now()
	if x.At != "" {
		var err error
		if at, err = time.Parse(time.RFC3339, x.At); err != nil {
			return nil, fmt.Errorf("at %q is no instant: write it as \"2026-01-05T09:00:00Z\" or with an offset", x.At)
		}
	}
	alerts, err := x.alerts(f, dir)
	if err != nil {
		return nil, err
	}
	// Whose chat accounts are linked stands in the database. Here everybody counts as linked: what is tested is the file.
	var linked []plan.Account
	for _, u := range f.Users {
		for _, provider := range []string{"slack", "telegram"} {
			linked = append(linked, plan.Account{Provider: provider, AccountID: u.ID, UserID: u.ID})
		}
	}
	e := plan.Explain(f, plan.Question{Alerts: alerts, At: at, Accounts: linked})
	now, later := e.AtOnce()
	notifier := func(name string) bool { _, ok := f.Notifiers[name]; return ok }
	user := func(id string) bool { _, ok := f.User(id); return ok }
	out := slices.Concat(x.Expect.Notifiers.differs("notifiers", e.Notifiers, notifier), x.Expect.People.differs("people", now, user), x.Expect.Later.differs("later", later, user))
	if want := x.Expect.Silent; want != nil && *want != e.Silent() {
		out = append(out, fmt.Sprintf("- silent: %t", *want), fmt.Sprintf("+ silent: %t", e.Silent()))
	}
	if len(out) > 0 {
		for _, a := range e.Alerts {
			for _, r := range a.Routes {
				if r.Matched || r.Rests {
					out = append(out, fmt.Sprintf("  line %d, route %s: %s", r.Line, r.Match, r.Why))
				}
			}
		}
	}
	return out, nil
}

func (x expectation) alerts(f *config.File, dir string) ([]plan.Alert, error) {
	var body []byte
	var err error
	switch {
	case x.PayloadFile != "":
		body, err = os.ReadFile(filepath.Join(dir, x.PayloadFile))
	case x.Payload != nil:
		body, err = json.Marshal(x.Payload)
	default:
		a := plan.Alert{Kind: x.Kind, Criticality: x.Criticality, Job: x.Job, Labels: x.Labels, Notify: x.Notify, Firing: true}
		if route.Word(x.Job) == plan.SelfJob {
			return []plan.Alert{a}, nil // not taken from outside, and worth a test all the same
		}
		return intake.Checked(f, intake.Group{Alerts: []plan.Alert{a}})
	}
	if err != nil {
		return nil, err
	}
	return intake.Payload(f, x.Source, body)
}

// tested is the result of one expectation, as check --test --json prints it.
type tested struct {
	Name string   `json:"name"`
	OK   bool     `json:"ok"`
	Diff []string `json:"diff"`
}

// testFile checks a good file against a file of expectations.
func (p *program) testFile(f *config.File, path string) error {
	all, err := readExpectations(path)
	if err != nil {
		return err
	}
	results := []tested{}
	var wrong []error
	failed := 0
	for i, x := range all {
		r := tested{Name: x.Name, Diff: []string{}}
		if r.Name == "" {
			r.Name = fmt.Sprintf("test %d", i+1)
		}
		diff, err := x.check(f, filepath.Dir(path))
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %s: %w", path, r.Name, err))
			continue
		}
		r.OK, r.Diff = len(diff) == 0, append(r.Diff, diff...)
		if !r.OK {
			failed++
		}
		results = append(results, r)
	}
	if len(wrong) > 0 {
		return usagef("%w", errors.Join(wrong...))
	}
	if p.json {
		if err := p.printJSON(results); err != nil {
			return err
		}
	} else {
		for _, r := range results {
			if !r.OK {
				fmt.Fprintf(p.out, "FAIL %s\n", printable(r.Name))
				for _, d := range r.Diff {
					fmt.Fprintf(p.out, "     %s\n", printable(d))
				}
			}
		}
		fmt.Fprintf(p.out, "%d of %d expectations are met.\n", len(results)-failed, len(results))
	}
	if failed > 0 {
		return errors.New("the file does not do what is expected of it: - is missing, + is too much")
	}
	return nil
}
