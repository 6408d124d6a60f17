// Package pkg_test holds the tests of the tree as a whole: which package may know which, and what the floors of pure
// decisions must not touch.
package pkg_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/tocsin-oncall/tocsin/"

// floors lists every package by the floor it stands on, from the ground up. A package may import what stands on a
// lower floor; on its own floor only what sameFloor names. A new package must be given a floor here.
var floors = []struct {
	name     string
	packages []string
}{
	{"0: decisions, without clock, context, SQL, HTTP, log or randomness", []string{
		"pkg/delivery", "pkg/card", "pkg/route", "pkg/oncall", "pkg/message", "pkg/pace", "pkg/extract",
	}},
	{"1: pure composition, the file, wire types, secrets", []string{
		"pkg/plan", "pkg/config", "pkg/api", "pkg/redact", "sql",
	}},
	{"2, ground: what effects share", []string{
		"pkg/nettest",
		"pkg/provider", "pkg/provider/wire", "pkg/provider/chattest", "pkg/store/internal/query", "pkg/store/pglocal",
	}},
	{"2: one effect each, its fake beside it", []string{
		"pkg/store", "pkg/client", "pkg/ical",
		"pkg/provider/slack", "pkg/provider/telegram", "pkg/provider/webhook", "pkg/provider/logfile",
		"pkg/provider/slack/slacktest", "pkg/provider/telegram/telegramtest",
	}},
	{"2, roof: what only tests and tools use", []string{
		"pkg/store/storetest", "pkg/store/pglocal/pgrun", "pkg/provider/providertest",
	}},
	{"3: claim and call, due work, alerts in", []string{"pkg/worker", "pkg/scheduler", "pkg/intake"}},
	{"4: API, callbacks, operator pages", []string{"pkg/server", "pkg/console"}},
	{"5: wires one instance", []string{"pkg/app"}},
	{"6: the binary", []string{"cmd/tocsin"}},
}

// notYet are packages of the design that this tree does not have so far.
var notYet = []string{"pkg/console"}

// sameFloor allows imports within one floor, and says why each can't make a circle of knowledge.
var sameFloor = map[[2]string]string{
	{"pkg/card", "pkg/message"}:     "a card is a message; message knows nobody",
	{"pkg/config", "pkg/redact"}:    "the values that ${NAME} was filled with are the secrets; redact knows nobody",
	{"pkg/scheduler", "pkg/intake"}: "a dead delivery raises an alert, which comes in like any other; intake knows no scheduler",
	{"pkg/plan", "pkg/config"}:      "a plan is what the file says about one alert; the file knows no plan",
}

// Imports that floor 0 must not have, by path or by a path's beginning.
var impure = []string{
	"context", "net", "database/sql", "os", "io", "syscall", "log", "math/rand", "crypto/rand", "unsafe",
	"github.com/jackc/", "go.uber.org/zap", "github.com/prometheus/",
}

// Calls that read a clock, wait, or draw lots, which floor 0 and plan must not make.
var impureCalls = map[string][]string{
	"time":                   {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker", "LoadLocation"},
	"github.com/google/uuid": {"New", "NewString", "NewRandom", "NewUUID", "NewV6", "NewV7", "NewV7FromReader"},
}

// owners say which packages alone may import a library: everyone else speaks to the owner.
var owners = map[string][]string{
	"github.com/jackc/pgx/":           {"pkg/store"},
	"github.com/pressly/goose/":       {"pkg/store"},
	"github.com/fergusstrange/":       {"pkg/store/pglocal"},
	module + "pkg/store/internal/":    {"pkg/store"},
	module + "pkg/store/pglocal":      {"pkg/store/pglocal", "pkg/store/storetest", "pkg/app"},
	"github.com/expr-lang/":           {"pkg/extract"},
	"github.com/slack-go/":            {"pkg/provider/slack"},
	"github.com/gorilla/websocket":    {"pkg/provider/slack"},
	"github.com/go-telegram-bot-api/": {"pkg/provider/telegram"},
	"github.com/spf13/cobra":          {"cmd/tocsin"},
}

// source is one parsed file.
type source struct {
	pkg, path string
	test      bool
	file      *ast.File
	fset      *token.FileSet
}

func (s source) imports() []string {
	var out []string
	for _, i := range s.file.Imports {
		p, _ := strconv.Unquote(i.Path.Value) // the parser has accepted it
		out = append(out, p)
	}
	return out
}

// ours turns an import path into a folder of this repository; "" for other people's.
func ours(imported string) string {
	if in, ok := strings.CutPrefix(imported, module); ok {
		return in
	}
	return ""
}

// sources parses every Go file of the tree, whatever its build tags.
func sources(t *testing.T) []source {
	t.Helper()
	const root = ".."
	var out []source
	fset := token.NewFileSet()
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || d.Name() == "bin" || len(d.Name()) > 2 && strings.ContainsRune("._", rune(d.Name()[0]))) {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") {
			return nil
		}
		f, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		out = append(out, source{pkg: path.Dir(rel), path: rel, test: strings.HasSuffix(rel, "_test.go"), file: f, fset: fset})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 50 {
		t.Fatalf("only %d Go files found: the test looks in the wrong place", len(out))
	}
	return out
}

// floorOf tells each package's floor by number and name.
func floorOf() (map[string]int, map[string]string) {
	number, name := map[string]int{}, map[string]string{}
	for n, f := range floors {
		for _, p := range f.packages {
			number[p], name[p] = n, f.name
		}
	}
	return number, name
}

func TestImportsOnlyGoDown(t *testing.T) {
	t.Parallel()
	number, name := floorOf()
	seen, used := map[string]bool{}, map[[2]string]bool{}
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		seen[s.pkg] = true
		if _, ok := number[s.pkg]; !ok {
			t.Errorf("%s: package %s has no floor: give it one in floors", s.path, s.pkg)
			continue
		}
		for _, i := range s.imports() {
			to := ours(i)
			if to == "" {
				continue
			}
			pair := [2]string{s.pkg, to}
			switch below, ok := number[to]; {
			case !ok:
				t.Errorf("%s imports %s, which has no floor", s.path, to)
			case below < number[s.pkg]:
			case below == number[s.pkg] && sameFloor[pair] != "":
				used[pair] = true
			default:
				t.Errorf("%s (floor %q) imports %s (floor %q): imports only go down", s.path, name[s.pkg], to, name[to])
			}
		}
	}
	for p := range number {
		if !seen[p] && !slices.Contains(notYet, p) {
			t.Errorf("floors names %s, which is not there", p)
		}
	}
	for pair := range sameFloor {
		if !used[pair] {
			t.Errorf("sameFloor allows %s -> %s, which nothing needs any more: remove it", pair[0], pair[1])
		}
	}
}

func TestDecisionsArePure(t *testing.T) {
	t.Parallel()
	pure := append(slices.Clone(floors[0].packages), "pkg/plan")
	for _, s := range sources(t) {
		if s.test || !slices.Contains(pure, s.pkg) {
			continue
		}
		names := map[string]string{} // how the file calls a package -> its path
		for _, spec := range s.file.Imports {
			p, _ := strconv.Unquote(spec.Path.Value)
			local := path.Base(p)
			if spec.Name != nil {
				local = spec.Name.Name
			}
			names[local] = p
			for _, bad := range impure {
				if p == bad || strings.HasPrefix(p, strings.TrimSuffix(bad, "/")+"/") && p != "net/url" && p != "net/netip" {
					t.Errorf("%s imports %s: decisions have no clock, context, SQL, HTTP, log or randomness", s.path, p)
				}
			}
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if x, ok := sel.X.(*ast.Ident); ok && slices.Contains(impureCalls[names[x.Name]], sel.Sel.Name) {
				t.Errorf("%s: %s.%s: time and chance are arguments here", s.fset.Position(n.Pos()), x.Name, sel.Sel.Name)
			}
			return true
		})
	}
}

func TestLibrariesHaveOwners(t *testing.T) {
	t.Parallel()
	used := map[string]bool{}
	for _, s := range sources(t) {
		for _, i := range s.imports() {
			for lib, who := range owners {
				if !strings.HasPrefix(i, lib) {
					continue
				}
				used[lib] = true
				within := slices.ContainsFunc(who, func(o string) bool { return s.pkg == o || strings.HasPrefix(s.pkg, o+"/") })
				if !within && !s.test {
					t.Errorf("%s imports %s, which belongs to %s", s.path, i, strings.Join(who, ", "))
				}
			}
		}
	}
	for _, lib := range slices.Sorted(maps.Keys(owners)) {
		if !used[lib] {
			t.Errorf("owners names %s, which nobody imports: remove it", lib)
		}
	}
}

// Whatever sameFloor may allow one day: a provider never knows another one, nor its fake.
func TestProvidersDoNotKnowEachOther(t *testing.T) {
	t.Parallel()
	dialect := func(p string) string {
		rest, ok := strings.CutPrefix(p, "pkg/provider/")
		first, _, _ := strings.Cut(rest, "/")
		if !ok || slices.Contains([]string{"wire", "chattest", "providertest"}, first) {
			return ""
		}
		return first
	}
	for _, s := range sources(t) {
		for _, i := range s.imports() {
			if from, to := dialect(s.pkg), dialect(ours(i)); from != "" && to != "" && from != to {
				t.Errorf("%s imports %s: %s must not know %s", s.path, i, from, to)
			}
		}
	}
}

// Fakes serve tests and `tocsin dev`, test helpers tests alone: no other code of ours may need them.
func TestFakesStayOutOfProduction(t *testing.T) {
	t.Parallel()
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		for _, i := range s.imports() {
			to := ours(i)
			helper := strings.HasSuffix(to, "test")
			if !helper || strings.HasSuffix(s.pkg, "test") {
				continue
			}
			if s.pkg == "pkg/app" && (strings.HasSuffix(to, "/slacktest") || strings.HasSuffix(to, "/telegramtest") || strings.HasSuffix(to, "/chattest")) {
				continue // the dev environment
			}
			t.Errorf("%s imports %s: only tests and the dev environment may", s.path, to)
		}
	}
}

// statement recognizes SQL by a verb at the head and the word that must follow it somewhere.
var statement = regexp.MustCompile(`(?is)^\s*(select\b.*\bfrom\b|select\s+(set_config|pg_|now\(\))|insert\s+into\b|update\s+\w+\s+set\b|delete\s+from\b|` +
	`with\s+\w+\s+as\s*\(|(create|alter|drop)\s+(table|index|view|database|schema|role|function)\b|truncate\s+\w+|notify\s+\w+,)`)

func TestAllSQLIsInOnePlace(t *testing.T) {
	t.Parallel()
	for _, s := range sources(t) {
		if s.test || s.pkg == "pkg/store" || strings.HasPrefix(s.pkg, "pkg/store/") || s.pkg == "sql" {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			if text, err := strconv.Unquote(lit.Value); err == nil && statement.MatchString(text) {
				t.Errorf("%s: SQL outside sql/ and pkg/store: %.60q", s.fset.Position(n.Pos()), text)
			}
			return true
		})
	}
}

func TestStatementTellsSQLFromEnglish(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"select id from delivery where state = 'pending'": true,
		"\n  WITH due AS (select 1) select 2":             true,
		"insert into alert values ($1)":                   true,
		"update delivery set state = $1":                  true,
		"delete from alert":                               true,
		"create table x (id int)":                         true,
		"select a user":                                   false,
		"update the file, then reload":                    false,
		"with 3 attempts":                                 false,
		"listen on %s: %w":                                false,
		"delete it from the list":                         false,
	} {
		if got := statement.MatchString(text); got != want {
			t.Errorf("%q: taken for SQL %t, want %t", text, got, want)
		}
	}
}

// The drawing of the floors in words, for people who change it: no package stands twice, none on two floors.
func TestFloorsNameEachPackageOnce(t *testing.T) {
	t.Parallel()
	var all []string
	for _, f := range floors {
		all = append(all, f.packages...)
	}
	slices.Sort(all)
	if n := len(all); n != len(slices.Compact(slices.Clone(all))) {
		t.Errorf("a package stands twice in floors: %q", all)
	}
	number, _ := floorOf()
	for pair := range sameFloor {
		if number[pair[0]] != number[pair[1]] {
			t.Errorf("sameFloor names %s and %s, which are on different floors", pair[0], pair[1])
		}
	}
}
