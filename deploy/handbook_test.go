package deploy_test

import (
	"bytes"
	"encoding/json"
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

	"github.com/goccy/go-yaml"
	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/server"
)

// page reads a page of the handbook.
func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("handbook", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// block is a fenced block of a page, without the indentation of a list around it.
type block struct {
	page, language, text string
	line                 int
}

var fence = regexp.MustCompile("^( *)```([a-z]*)$")

// blocks lists the fenced blocks of a page.
func blocks(name, text string) []block {
	var out []block
	var open *block
	indent := ""
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSuffix(line, "\n")
		m := fence.FindStringSubmatch(line)
		switch {
		case m != nil && open == nil:
			indent = m[1]
			open = &block{page: name, language: m[2], line: n + 1}
		case m != nil:
			out = append(out, *open)
			open = nil
		case open != nil:
			open.text += strings.TrimPrefix(line, indent) + "\n"
		}
	}
	return out
}

// code lists what stands in back quotes outside of fenced blocks.
func code(text string) []string {
	text = regexp.MustCompile("(?m)^ *```[a-z]*\n(?:.*\n)*?^ *```$").ReplaceAllString(text, "")
	var out []string
	for _, m := range regexp.MustCompile("`([^`\n]+)`").FindAllStringSubmatch(text, -1) {
		out = append(out, m[1])
	}
	return out
}

// table gives the cells of the rows of all tables whose heading begins with the given cell.
func table(text, heading string) [][]string {
	var out [][]string
	in := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			in = false
			continue
		}
		cells := strings.Split(strings.ReplaceAll(strings.Trim(line, "|"), `\|`, "\x00"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(strings.ReplaceAll(cells[i], "\x00", "|"))
		}
		switch {
		case in && strings.HasPrefix(cells[0], "---"):
		case in:
			out = append(out, cells)
		case cells[0] == heading:
			in = true
		}
	}
	return out
}

func TestEveryPageOfTheHandbookIsInItsContents(t *testing.T) {
	t.Parallel()
	contents := page(t, "README.md")
	pages, err := filepath.Glob("handbook/*.md")
	if err != nil || len(pages) < 10 {
		t.Fatalf("pages: %q (%v)", pages, err)
	}
	for _, p := range pages {
		if name := filepath.Base(p); name != "README.md" && !strings.Contains(contents, "- [") || !strings.Contains(contents, "("+name+")") && name != "README.md" {
			t.Errorf("%s is not in the contents", name)
		}
	}
}

// Links to a heading of another page lead to a heading that is there.
func TestHandbookLinksToHeadings(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("handbook/*.md")
	if err != nil {
		t.Fatal(err)
	}
	drop := regexp.MustCompile(`[^a-z0-9 _-]`)
	headings := map[string][]string{}
	for _, p := range pages {
		name := filepath.Base(p)
		for _, m := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(page(t, name), -1) {
			headings[name] = append(headings[name], strings.ReplaceAll(drop.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
		}
	}
	found := 0
	for _, p := range pages {
		for _, m := range regexp.MustCompile(`\]\(([a-z-]+\.md)?#([^)]+)\)`).FindAllStringSubmatch(page(t, filepath.Base(p)), -1) {
			found++
			if m[1] == "" {
				m[1] = filepath.Base(p)
			}
			if !slices.Contains(headings[m[1]], m[2]) {
				t.Errorf("%s links to %s#%s, and that page has %q", p, m[1], m[2], headings[m[1]])
			}
		}
	}
	if found < 10 {
		t.Errorf("only %d links to headings found: the test reads the wrong thing", found)
	}
}

// base is what a block of the handbook is put into when it shows only a part of a file. A name that the block defines
// itself is left out.
var base = map[string][][2]string{ // section -> name, line
	"server":   {{"", "  public_url: https://tocsin.example.com"}},
	"database": {{"", `  url: "${TOCSIN_DATABASE_URL}"`}},
	"users": {
		{"id: ana", "  - {id: ana, contacts: [{via: slack-dm}]}"},
		{"id: bo", "  - {id: bo, contacts: [{via: slack-dm}]}"},
		{"id: cho", "  - {id: cho, contacts: [{via: telegram-dm}]}"},
	},
	"schedules":   {{"id: primary", "  - {id: primary, time_zone: UTC, layers: [{users: [ana]}]}"}},
	"escalations": {{"default:", `  default: {steps: [{page: ["schedule:primary"]}]}`}},
	"notifiers": {
		{"ops-slack:", "  ops-slack: {type: slack, token: xoxb-1, channel: C0123456789}"},
		{"slack-dm:", "  slack-dm: {type: slack, token: xoxb-1}"},
		{"ops-telegram:", `  ops-telegram: {type: telegram, token: "1:a", chat_id: "-1001234567890"}`},
		{"telegram-dm:", `  telegram-dm: {type: telegram, token: "1:a"}`},
	},
}

// whole completes a block to a file, its own text unchanged.
func whole(text string) string {
	var out strings.Builder
	sections := regexp.MustCompile(`(?m)^[a-z]+:`)
	have := map[string]bool{}
	at := sections.FindAllStringIndex(text, -1)
	for i, span := range at {
		name := strings.TrimSuffix(text[span[0]:span[1]], ":")
		have[name] = true
		end := len(text)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		body := text[span[0]:end]
		out.WriteString(strings.TrimRight(body, "\n") + "\n")
		if strings.HasPrefix(body, name+":\n") { // in block style: lines can be added
			for _, b := range base[name] {
				if b[0] != "" && !strings.Contains(body, b[0]) {
					out.WriteString(b[1] + "\n")
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(base)) {
		if !have[name] {
			out.WriteString(name + ":\n")
			for _, b := range base[name] {
				out.WriteString(b[1] + "\n")
			}
		}
	}
	return out.String()
}

// fill gives every variable that a page names.
func fill(name string) (string, bool) {
	switch {
	case strings.HasSuffix(name, "DATABASE_URL"):
		return "postgres://tocsin@127.0.0.1/tocsin", true
	case strings.HasSuffix(name, "SHA256"):
		return strings.Repeat("0123456789abcdef", 4), true
	case strings.HasSuffix(name, "_URL"):
		return "https://receiver.example.com/hook", true
	}
	return "some-" + strings.ToLower(strings.ReplaceAll(name, "_", "-")), true
}

func TestYAMLOfTheHandbookIsGood(t *testing.T) {
	t.Parallel()
	tried := 0
	for _, name := range []string{"file.md", "slack.md", "telegram.md"} {
		for _, b := range blocks(name, page(t, name)) {
			if b.language != "yaml" {
				continue
			}
			tried++
			text := whole(b.text)
			if _, _, err := config.Parse(name, []byte(text), fill); err != nil {
				t.Errorf("the block at line %d of %s is wrong:\n%v\nin\n%s", b.line, name, err, text)
			}
		}
	}
	if tried < 10 {
		t.Errorf("only %d blocks found", tried)
	}
	first := blocks("file.md", page(t, "file.md"))[1]
	f, _, err := config.Parse("file.md", []byte(first.text), fill)
	if err != nil || len(f.Warnings) > 0 {
		t.Errorf("the page's first file is not whole by itself, or check warns of it: %v, %q", err, f.Warnings)
	}
}

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
	reads := []string{"get", "str", "has", "duration", "whole", "oneOf", "boolean", "names", "address", "zone", "wallClock", "unsupported"}
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
	f, _, err := config.Parse("minimal", []byte(whole("sources:\n  am: {type: alertmanager, token: t}\n")), fill)
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
	if short(f.Notifiers["ops-telegram"].Timeout) != "30s" || !strings.Contains(rows["notifiers.NAME.timeout"], "telegram `30s`") {
		t.Errorf("telegram's timeout is %s, and the page says %s", f.Notifiers["ops-telegram"].Timeout, rows["notifiers.NAME.timeout"])
	}
	if short(f.Kinds[delivery.Notice].Lifetime) != "1h" || !strings.Contains(rows["kinds.KIND.lifetime"], "notice `1h`") {
		t.Errorf("a notice lives %s, and the page says %s", f.Kinds[delivery.Notice].Lifetime, rows["kinds.KIND.lifetime"])
	}
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
		"settle", "again", "stop", "give", "Cancel", "park", "GiveBack", "giveBack", "Unreachable", "Reject", "notCalled", "failed", "inDoubt", "Doubt", "sent",
	}
	out := map[string]string{}
	note := func(path string, e ast.Expr) {
		if s, ok := literal(e); ok && reasonForm.MatchString(s) {
			out[s] = path
		}
	}
	for path, f := range goFiles(t, "../pkg/delivery", "../pkg/plan", "../pkg/worker", "../pkg/provider", "../pkg/intake", "../pkg/scheduler", "../pkg/server") {
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
					if (ok && s.Sel.Name == "Reason" || is && id.Name == "reason") && len(v.Rhs) == len(v.Lhs) {
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

// Every code by which a provider says that the account or the destination is wrong is explained where the provider is.
func TestProviderPagesExplainTheirCodes(t *testing.T) {
	t.Parallel()
	for file, name := range map[string]string{"../pkg/provider/slack/codes.go": "slack.md", "../pkg/provider/telegram/codes.go": "telegram.md"} {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		words := code(page(t, name))
		found := 0
		check := func(slug string) {
			found++
			if !slices.Contains(words, slug) {
				t.Errorf("%s does not explain %s", name, slug)
			}
		}
		is := func(e ast.Expr) bool {
			id, ok := e.(*ast.Ident)
			return ok && (id.Name == "account" || id.Name == "destination")
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch v := n.(type) {
			case *ast.KeyValueExpr: // Slack: code -> {verdict, sentence}
				row, ok := v.Value.(*ast.CompositeLit)
				if key, is2 := literal(v.Key); ok && is2 && len(row.Elts) == 2 && is(row.Elts[0]) {
					check(key)
				}
			case *ast.CompositeLit: // Telegram: {code, prefix, slug, verdict, sentence}
				if len(v.Elts) == 5 && is(v.Elts[3]) {
					if slug, ok := literal(v.Elts[2]); ok {
						check(slug)
					}
				}
			}
			return true
		})
		if found < 15 {
			t.Errorf("only %d codes found in %s: the test reads the wrong thing", found, file)
		}
	}
}

func TestAPIPageHasEveryEndpoint(t *testing.T) {
	t.Parallel()
	text := page(t, "api.md")
	raw, err := server.New(server.Options{File: func() *config.File { return &config.File{} }}).OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Paths map[string]map[string]struct{ Description string }
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{} // endpoint -> scope
	for path, methods := range doc.Paths {
		for method, op := range methods {
			m := regexp.MustCompile(`the scope ([a-z]+)\.`).FindStringSubmatch(op.Description)
			if m == nil {
				t.Fatalf("%s %s does not say which scope it needs: %q", method, path, op.Description)
			}
			want[strings.ToUpper(method)+" "+path] = m[1]
		}
	}
	if len(want) < 10 {
		t.Fatalf("only %d endpoints", len(want))
	}
	said := map[string]string{}
	for _, r := range table(text, "") {
		if len(r) == 3 && strings.Contains(r[0], " /v1/") {
			said[strings.Trim(r[0], "`")] = r[1]
		}
	}
	if !maps.Equal(said, want) {
		t.Errorf("api.md lists %v, the server has %v", said, want)
	}
}

func TestAPIPageHasEveryProblem(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("../pkg/api/problem.go")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for _, m := range regexp.MustCompile(`problemPrefix \+ "([a-z-]+)" +// (\d+)`).FindAllStringSubmatch(string(source), -1) {
		want[m[1]] = m[2]
	}
	said := map[string]string{}
	for _, r := range table(page(t, "api.md"), "type `urn:tocsin:problem:…`") {
		said[strings.Trim(r[0], "`")] = r[1]
	}
	if len(want) < 10 || !maps.Equal(said, want) {
		t.Errorf("api.md has the problems %v, the code %v", said, want)
	}
}

// The bodies in the examples fit the wire types, and each example asks an endpoint that is there.
func TestExamplesFitTheAPI(t *testing.T) {
	t.Parallel()
	fits := map[string]func() any{
		"/v1/alerts$":             func() any { return &api.Alert{} },
		"/(acknowledge|resolve)$": func() any { return &api.IncidentAction{} },
		"/decision$":              func() any { return &api.Decide{} },
		"/v1/users/[^/]+/link$":   func() any { return &api.LinkAccount{} },
		"/v1/tokens$":             func() any { return &api.NewToken{} },
		"/v1/alertmanager$":       func() any { return &map[string]any{} },
	}
	example := regexp.MustCompile(`(?s)(/v1/[^"\s?]+)[^\n]*?(?:\\\n[^\n]*?)?--json '(.*?)'`)
	tried := 0
	for _, name := range []string{"api.md", "alertmanager.md"} {
		for _, b := range blocks(name, page(t, name)) {
			for _, m := range example.FindAllStringSubmatch(b.text, -1) {
				path, body := m[1], m[2]
				var into any
				for pattern, empty := range fits {
					if regexp.MustCompile(pattern).MatchString(path) {
						into = empty()
					}
				}
				if into == nil {
					t.Errorf("%s: no wire type is known for %s", name, path)
					continue
				}
				tried++
				d := json.NewDecoder(strings.NewReader(body))
				d.DisallowUnknownFields()
				if err := d.Decode(into); err != nil {
					t.Errorf("%s: the body for %s does not fit: %v\n%s", name, path, err, body)
				}
			}
		}
	}
	if tried < 8 {
		t.Errorf("only %d examples with a body found", tried)
	}
}

func TestSlackManifestAsksForWhatIsUsed(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("slack/manifest.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var m struct {
		Features struct {
			Home struct {
				Messages bool `yaml:"messages_tab_enabled"`
			} `yaml:"app_home"`
			Bot struct {
				Name string `yaml:"display_name"`
			} `yaml:"bot_user"`
		} `yaml:"features"`
		OAuth struct {
			Scopes struct {
				Bot []string `yaml:"bot"`
			} `yaml:"scopes"`
		} `yaml:"oauth_config"`
		Settings struct {
			Interactivity struct {
				On  bool   `yaml:"is_enabled"`
				URL string `yaml:"request_url"`
			} `yaml:"interactivity"`
			Socket   bool `yaml:"socket_mode_enabled"`
			Rotation bool `yaml:"token_rotation_enabled"`
		} `yaml:"settings"`
	}
	if err := yaml.Unmarshal(raw, &m); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(m.OAuth.Scopes.Bot, []string{"chat:write"}) {
		t.Errorf("scopes are %q", m.OAuth.Scopes.Bot)
	}
	if s := m.Settings; !s.Interactivity.On || s.Interactivity.URL != sample(t).Server.PublicURL+"/slack/interactions" || s.Socket || s.Rotation {
		t.Errorf("settings are %+v", s)
	}
	if !m.Features.Home.Messages || m.Features.Bot.Name != "tocsin" {
		t.Errorf("features are %+v", m.Features)
	}
	// What the provider calls needs no other scope: a method that is new in the code is to be looked up.
	text, err := os.ReadFile("../pkg/provider/slack/slack.go")
	if err != nil {
		t.Fatal(err)
	}
	known := []string{"UpdateMessageContext", "PostMessageContext", "PostEphemeralContext", "GetPermalinkContext"}
	for _, c := range regexp.MustCompile(`\bapi\.([A-Z][A-Za-z]+)\(`).FindAllSubmatch(text, -1) {
		if !slices.Contains(known, string(c[1])) {
			t.Errorf("the Slack provider calls %s: does the manifest have its scope?", c[1])
		}
	}
}

func TestAlertmanagerReceiver(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("alertmanager/alertmanager.yml")
	if err != nil {
		t.Fatal(err)
	}
	var f struct {
		Route struct {
			Receiver string   `yaml:"receiver"`
			GroupBy  []string `yaml:"group_by"`
		} `yaml:"route"`
		Receivers []struct {
			Name  string `yaml:"name"`
			Hooks []struct {
				URL      string `yaml:"url"`
				Resolved bool   `yaml:"send_resolved"`
				Most     int    `yaml:"max_alerts"`
				HTTP     struct {
					Authorization struct {
						Type string `yaml:"type"`
						File string `yaml:"credentials_file"`
					} `yaml:"authorization"`
				} `yaml:"http_config"`
			} `yaml:"webhook_configs"`
		} `yaml:"receivers"`
	}
	if err := yaml.UnmarshalWithOptions(raw, &f); err != nil {
		t.Fatal(err)
	}
	if len(f.Receivers) != 1 || f.Receivers[0].Name != f.Route.Receiver || len(f.Receivers[0].Hooks) != 1 {
		t.Fatalf("receivers: %+v", f.Receivers)
	}
	h := f.Receivers[0].Hooks[0]
	if h.URL != sample(t).Server.PublicURL+"/v1/alertmanager" || !h.Resolved || h.Most != 0 || h.HTTP.Authorization.Type != "Bearer" || h.HTTP.Authorization.File == "" {
		t.Errorf("the receiver is %+v", h)
	}
	if !strings.Contains(page(t, "alertmanager.md"), h.HTTP.Authorization.File) || slices.Contains(f.Route.GroupBy, "...") {
		t.Error("the page and the receiver do not name the same token file, or every alert is a group of its own")
	}
}
