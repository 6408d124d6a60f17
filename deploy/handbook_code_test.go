package deploy_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/pace"
)

// goFiles parses the code of a folder, without its tests.
func goFiles(t *testing.T, dirs ...string) map[string]*ast.File {
	t.Helper()
	out := map[string]*ast.File{}
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if d.IsDir() && (strings.HasSuffix(d.Name(), "test") || d.Name() == "testdata") {
				return fs.SkipDir // fakes and suites
			}
			if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return nil
			}
			f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			out[path] = f
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(out) < 5 {
		t.Fatalf("only %d files in %q", len(out), dirs)
	}
	return out
}

func literal(e ast.Expr) (string, bool) {
	l, ok := e.(*ast.BasicLit)
	if !ok || l.Kind != token.STRING {
		return "", false
	}
	s, err := strconv.Unquote(l.Value)
	return s, err == nil
}

// called is the name of the function or method that a call calls.
func called(c *ast.CallExpr) string {
	switch f := c.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

// Every key that pkg/config reads, and every one that it refuses, is on the page, and every warning.
func TestFilePageHasEveryKeyAndWarning(t *testing.T) {
	t.Parallel()
	reads := []string{"get", "str", "has", "duration", "whole", "oneOf", "boolean", "names", "address", "zone", "wallClock", "unsupported", "rate", "size", "expression", "entries"}
	keys := map[string]bool{"id": true, "api_url": true}
	warnings := 0
	for _, f := range goFiles(t, "../pkg/config") {
		ast.Inspect(f, func(n ast.Node) bool {
			c, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			name := called(c)
			if name == "warn" {
				warnings++
			}
			if !slices.Contains(reads, name) {
				return true
			}
			args := c.Args
			if name != "unsupported" {
				args = args[:min(len(args), 1)]
			}
			for _, a := range args {
				if s, ok := literal(a); ok {
					keys[s] = true
				}
			}
			return true
		})
	}
	if len(keys) < 60 {
		t.Fatalf("only %d keys found in the code: %v", len(keys), slices.Sorted(maps.Keys(keys)))
	}
	text := page(t, "file.md")
	words := map[string]bool{}
	for _, c := range code(text) {
		for _, w := range regexp.MustCompile(`[a-z_]+`).FindAllString(c, -1) {
			words[w] = true
		}
	}
	for _, h := range regexp.MustCompile(`(?m)^## (.+)$`).FindAllStringSubmatch(text, -1) {
		for _, w := range strings.Fields(h[1]) {
			words[w] = true
		}
	}
	for k := range keys {
		if !words[k] {
			t.Errorf("file.md does not name the key %s", k)
		}
	}
	if rows := table(text, "warning"); len(rows) != warnings {
		t.Errorf("file.md has %d warnings, the code %d", len(rows), warnings)
	}
}

// The defaults on the page are those of a file that says nothing.
func TestFilePageHasTheDefaults(t *testing.T) {
	t.Parallel()
	f, _, err := config.Parse("minimal", []byte(whole("sources:\n  am: {type: alertmanager, token: t}\nheartbeats:\n  hb: {every: 1h}\n")), fill)
	if err != nil {
		t.Fatal(err)
	}
	short := func(d fmt.Stringer) string {
		return regexp.MustCompile(`^(\d+[hm])0s$`).ReplaceAllString(regexp.MustCompile(`^(\d+h)0m0s$`).ReplaceAllString(d.String(), "$1"), "$1")
	}
	page := page(t, "file.md")
	rows := map[string]string{}
	for _, r := range table(page, "key") {
		if len(r) >= 3 {
			rows[strings.Trim(r[0], "`")] = r[2]
		}
	}
	n := f.Notifiers["ops-slack"]
	for key, want := range map[string]string{
		"server.listen":                    f.Server.Listen,
		"server.metrics_listen":            f.Server.MetricsListen,
		"database.max_connections":         strconv.Itoa(f.Database.MaxConnections),
		"worker.poll":                      short(f.Worker.Poll),
		"reload.grace":                     short(f.Reload.Grace),
		"notifiers.NAME.timeout":           short(n.Timeout),
		"notifiers.NAME.concurrency":       strconv.Itoa(n.Concurrency),
		"notifiers.NAME.retries.delay":     short(n.Retries.Delay),
		"notifiers.NAME.retries.max_delay": short(n.Retries.MaxDelay),
		"sources.NAME.reopen_after":        short(f.Sources["am"].ReopenAfter),
		"heartbeats.NAME.criticality":      f.Heartbeats["hb"].Criticality,
		"kinds.page.wait":                  short(f.Kinds[delivery.Page].Wait),
		"escalations.NAME.repeat":          strconv.Itoa(f.Escalations["default"].Repeat),
		"users[].contacts[].after":         short(f.Users[0].Contacts[0].After),
		"escalations.NAME.steps[].after":   short(f.Escalations["default"].Steps[0].After),
		"schedules[].layers[].name":        "layer N",
		"notifiers.NAME.off":               strconv.FormatBool(n.Off),
		"kinds.KIND.lifetime":              short(f.Kinds[delivery.Event].Lifetime),
		"server.shutdown_grace":            short(f.Server.ShutdownGrace - f.LongestTimeout()),
		"worker.lease":                     strconv.Itoa(int((f.Worker.Lease - f.LongestTimeout()).Seconds())) + "s",
	} {
		had, ok := rows[key]
		if !ok || !strings.Contains(had, want) {
			t.Errorf("file.md gives %q as the default of %s, the code %q", had, key, want)
		}
	}
	tg := f.Notifiers["ops-telegram"]
	for key, want := range map[string]string{
		"pace.destination": "slack, telegram `" + rate(t, tg.Pace.Destination) + "`; others `" + rate(t, f.Notifiers["audit"].Pace.Destination) + "`",
		"pace.group":       "telegram `" + rate(t, tg.Pace.Group) + "`",
		"pace.account":     "telegram `" + rate(t, tg.Pace.Account) + "`; others `" + rate(t, n.Pace.Account) + "`",
	} {
		if rows[key] != want {
			t.Errorf("file.md gives %q as the default of %s, the code %q", rows[key], key, want)
		}
	}
	if n.Pace.Destination != tg.Pace.Destination {
		t.Errorf("slack's destinations have the pace %v, and the page gives them telegram's, %v", n.Pace.Destination, tg.Pace.Destination)
	}
	if short(tg.Timeout) != "30s" || !strings.Contains(rows["notifiers.NAME.timeout"], "telegram `30s`") {
		t.Errorf("telegram's timeout is %s, and the page says %s", tg.Timeout, rows["notifiers.NAME.timeout"])
	}
	if short(f.Kinds[delivery.Notice].Lifetime) != "1h" || !strings.Contains(rows["kinds.KIND.lifetime"], "notice `1h`") {
		t.Errorf("a notice lives %s, and the page says %s", f.Kinds[delivery.Notice].Lifetime, rows["kinds.KIND.lifetime"])
	}
}

// rate writes a rule as the file does.
func rate(t *testing.T, r pace.Rule) string {
	t.Helper()
	if r.None() {
		return "off"
	}
	for _, per := range []string{"s", "m", "h", "d"} {
		text := fmt.Sprintf("%d/%s", r.Count, per)
		if back, err := config.ParseRate(text); err == nil && back == r {
			return text
		}
	}
	t.Fatalf("%+v has no usual unit", r)
	return ""
}

// What the page says of each state and decision is what pkg/delivery decides.
func TestDecisionsPageHasTheDecisions(t *testing.T) {
	t.Parallel()
	text := page(t, "decisions.md")
	said := map[string][]string{}
	for _, r := range table(text, "state") {
		if len(r) == 4 {
			said[strings.Trim(r[0], "`")] = r[1:]
		}
	}
	possible := func(d delivery.Delivery, a delivery.Action) bool {
		_, err := d.Decide(a)
		return err == nil
	}
	for _, s := range delivery.States {
		plain := delivery.Delivery{ID: uuid.New(), Kind: delivery.Card, State: s, Effect: 1, Desired: 1}
		doubt, made := plain, plain
		doubt.Doubt = &delivery.Doubt{Effect: 1, Key: plain.Key()}
		made.Reference = delivery.Reference{Channel: "C0", TS: "1.2"}
		want := make([]string, 3)
		for i, a := range []delivery.Action{delivery.AssumeDelivered, delivery.CancelIt, delivery.SendAgain} {
			switch {
			case possible(plain, a) && possible(made, a):
				want[i] = "yes"
			case possible(plain, a):
				want[i] = "yes, but for an edit"
			case possible(doubt, a):
				want[i] = "if in doubt"
			default:
				want[i] = "no"
			}
		}
		if !slices.Equal(said[string(s)], want) {
			t.Errorf("decisions.md says of %s %q, the code %q", s, said[string(s)], want)
		}
	}
	// Each refusal is explained.
	for path, f := range goFiles(t, "../pkg/delivery") {
		ast.Inspect(f, func(n ast.Node) bool {
			if c, ok := n.(*ast.CallExpr); ok && called(c) == "refuse" && len(c.Args) == 1 {
				if s, ok := literal(c.Args[0]); ok && !strings.Contains(text, s) && !strings.HasPrefix(s, "no such decision") {
					t.Errorf("decisions.md does not explain the refusal %q of %s", s, path)
				}
			}
			return true
		})
	}
}

var reasonForm = regexp.MustCompile(`^[a-z]+(_[a-z]+)*(:[a-z]+(_[a-z]+)*)?$`)

// reasonsInCode lists the reasons that stand in the code as they are: what is assigned to or given for a Reason, what
// the functions get that end or repeat a delivery or make a result, and what the two statements write that have one.
// Those that are put together (destination: and the provider's code) are left to the families.
func reasonsInCode(t *testing.T) map[string]string {
	t.Helper()
	takes := []string{
		"settle", "again", "stop", "give", "Cancel", "park", "GiveBack", "giveBack", "Unreachable", "Reject", "notCalled", "failed", "inDoubt", "Doubt", "sent", "done", "Queued",
	}
	out := map[string]string{}
	note := func(path string, e ast.Expr) {
		if s, ok := literal(e); ok && reasonForm.MatchString(s) {
			out[s] = path
		}
	}
	for path, f := range goFiles(t, "../pkg/delivery", "../pkg/plan", "../pkg/worker", "../pkg/provider", "../pkg/intake", "../pkg/scheduler", "../pkg/server") {
		if name := filepath.Base(path); name == "examine.go" || name == "live.go" {
			continue // findings have no reasons
		}
		provider := filepath.Base(filepath.Dir(path))
		ast.Inspect(f, func(n ast.Node) bool {
			switch v := n.(type) {
			case *ast.KeyValueExpr:
				if k, ok := v.Key.(*ast.Ident); ok && k.Name == "Reason" {
					note(path, v.Value)
				}
			case *ast.AssignStmt:
				for i, l := range v.Lhs {
					s, ok := l.(*ast.SelectorExpr)
					id, is := l.(*ast.Ident)
					if (ok && (s.Sel.Name == "Reason" || s.Sel.Name == "ended") || is && id.Name == "reason") && len(v.Rhs) == len(v.Lhs) {
						note(path, v.Rhs[i])
					}
				}
			case *ast.CallExpr:
				name := called(v)
				if !slices.Contains(takes, name) {
					return true
				}
				for i, a := range v.Args {
					if s, ok := literal(a); ok && name == "Doubt" && i == 0 && reasonForm.MatchString(s) {
						out[provider+":"+s] = path // its prefix is the provider's name
						continue
					}
					if name != "Doubt" {
						note(path, a)
					}
				}
			case *ast.FuncDecl:
				if v.Name.Name == "errorReason" || v.Name.Name == "readReason" {
					ast.Inspect(v, func(n ast.Node) bool {
						if r, ok := n.(*ast.ReturnStmt); ok {
							note(path, r.Results[0])
						}
						return true
					})
				}
			case *ast.ValueSpec: // pkg/plan's constants
				for _, e := range v.Values {
					if strings.Contains(path, "plan/resolve.go") && v.Names[0].Name != "TargetChannel" && v.Names[0].Name != "TargetURL" && v.Names[0].Name != "TargetLog" {
						note(path, e)
					}
				}
			}
			return true
		})
	}
	for _, path := range []string{"../sql/queries/attempt.sql"} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range []string{"takeover", "row_lost"} {
			if bytes.Contains(text, []byte("'"+word+"'")) {
				out[word] = path
			}
		}
	}
	return out
}

func TestReasonsPageHasEveryReason(t *testing.T) {
	t.Parallel()
	text := page(t, "reasons.md")
	listed := map[string]bool{} // without a colon: the closed list
	all := map[string]bool{}
	for _, r := range table(text, "reason") {
		for _, c := range code(r[0]) {
			if all[c] {
				t.Errorf("reasons.md has two rows for %q", c)
			}
			all[c] = true
			if !strings.Contains(c, ":") {
				listed[c] = true
			}
		}
	}
	made := reasonsInCode(t)
	if len(made) < 30 {
		t.Fatalf("only %d reasons found in the code: %v", len(made), slices.Sorted(maps.Keys(made)))
	}
	for reason, path := range made {
		general := "PROVIDER:" + reason[strings.Index(reason, ":")+1:]
		if !all[reason] && !all[general] {
			t.Errorf("%s can give the reason %q, which is not in reasons.md", path, reason)
		}
	}
	for reason := range listed {
		if made[reason] == "" {
			t.Errorf("reasons.md lists %q, which no code gives", reason)
		}
	}
	for _, family := range []string{"account:CODE", "destination:CODE", "payload:CODE", "PROVIDER:CODE"} {
		if !all[family] {
			t.Errorf("reasons.md lacks the family %s", family)
		}
	}
}

// Every code by which a provider says that the account or the destination is wrong, to whatever operation, is explained
// where the provider is.
func TestProviderPagesExplainTheirCodes(t *testing.T) {
	t.Parallel()
	for file, name := range map[string]string{"../pkg/provider/slack/codes.go": "slack.md", "../pkg/provider/telegram/codes.go": "telegram.md"} {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		words := code(page(t, name))
		found := map[string]bool{}
		is := func(e ast.Expr) bool {
			id, ok := e.(*ast.Ident)
			return ok && slices.Contains([]string{"account", "destination", "acct", "dest"}, id.Name)
		}
		verdict := func(row *ast.CompositeLit) bool { // {verdict: account, ...}
			return slices.ContainsFunc(row.Elts, func(e ast.Expr) bool {
				kv, ok := e.(*ast.KeyValueExpr)
				if !ok {
					return false
				}
				key, ok := kv.Key.(*ast.Ident)
				return ok && key.Name == "verdict" && is(kv.Value)
			})
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch v := n.(type) {
			case *ast.KeyValueExpr: // Slack: code -> {verdict: ..., sentence: ...}
				row, ok := v.Value.(*ast.CompositeLit)
				if key, is := literal(v.Key); ok && is && verdict(row) {
					found[key] = true
				}
			case *ast.CompositeLit: // Telegram: {code, prefix, slug, verdicts of the four operations, part, sentence}
				if len(v.Elts) == 9 && slices.ContainsFunc(v.Elts[3:7], is) {
					if slug, ok := literal(v.Elts[2]); ok {
						found[slug] = true
					}
				}
			}
			return true
		})
		for slug := range found {
			if !slices.Contains(words, slug) {
				t.Errorf("%s does not explain %s", name, slug)
			}
		}
		if len(found) < 15 {
			t.Errorf("only %d codes found in %s: the test reads the wrong thing", len(found), file)
		}
	}
}
