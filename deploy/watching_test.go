package deploy_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// public are the metrics whose names other programs rely on. A rule or panel may use no other.
var public = []string{
	"tocsin_attempts_total", "tocsin_attempt_seconds", "tocsin_deliveries_total", "tocsin_deliveries_waiting",
	"tocsin_oldest_due_seconds", "tocsin_page_seconds", "tocsin_unrouted_total", "tocsin_retries_total",
	"tocsin_gave_up_total", "tocsin_takeovers_total", "tocsin_fenced_writes_total", "tocsin_late_answers_total",
	"tocsin_reconciled_total", "tocsin_decisions_total", "tocsin_receipts_total", "tocsin_breaker_open",
	"tocsin_pauses", "tocsin_unlisted_codes_total", "tocsin_file_info", "tocsin_file_error", "tocsin_alerts_total",
	"tocsin_http_seconds", "tocsin_oncall_gaps", "tocsin_receiver", "tocsin_dead_letters", "tocsin_file_restart",
}

var (
	metricName = regexp.MustCompile(`\btocsin_[a-z_]+`)
	suffix     = regexp.MustCompile(`_(bucket|count|sum)$`)
)

type rules struct {
	Groups []struct {
		Rules []struct {
			Alert       string            `yaml:"alert"`
			Expr        string            `yaml:"expr"`
			Labels      map[string]string `yaml:"labels"`
			Annotations map[string]string `yaml:"annotations"`
		} `yaml:"rules"`
	} `yaml:"groups"`
}

// expressions are those of the alert rules and of the dashboard, by where they stand.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, group := range readRules(t).Groups {
		for _, r := range group.Rules {
			out["alert "+r.Alert] = r.Expr
		}
	}
	text, err := os.ReadFile("grafana/tocsin.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
		Templating struct {
			List []struct {
				Name  string
				Query any
			}
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	for _, p := range dashboard.Panels {
		for i, target := range p.Targets {
			out["panel "+p.Title+" "+strconv.Itoa(i)] = target.Expr
		}
	}
	if len(out) < 25 {
		t.Fatalf("only %d expressions found: the test reads the wrong places", len(out))
	}
	return out
}

func readRules(t *testing.T) (r rules) {
	t.Helper()
	text, err := os.ReadFile("prometheus/tocsin.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRulesAndDashboardUseMetricsThatTocsinHas(t *testing.T) {
	t.Parallel()
	made := metricsInCode(t)
	for where, expr := range expressions(t) {
		found := metricName.FindAllString(expr, -1)
		if len(found) == 0 {
			t.Errorf("%s asks no metric of tocsin: %s", where, expr)
		}
		for _, name := range found {
			name = suffix.ReplaceAllString(name, "")
			if !slices.Contains(public, name) {
				t.Errorf("%s uses %s, which is no public metric", where, name)
			}
			if !slices.Contains(made, name) {
				t.Errorf("%s uses %s, which no code makes", where, name)
			}
		}
	}
}

// metricsInCode lists what the code writes as a metric's name.
func metricsInCode(t *testing.T) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir("../pkg", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			if s, err := strconv.Unquote(lit.Value); err == nil && metricName.FindString(s) == s && s != "" {
				out = append(out, s)
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestEveryAlertSaysWhatToDo(t *testing.T) {
	t.Parallel()
	handbook, err := os.ReadFile("handbook/watching.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range readRules(t).Groups {
		for _, r := range group.Rules {
			if r.Labels["severity"] == "" || r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
				t.Errorf("%s lacks severity, summary or description", r.Alert)
			}
			if !strings.Contains(string(handbook), r.Alert) {
				t.Errorf("%s is not in the handbook", r.Alert)
			}
		}
	}
}

// Links of the handbook lead to what is there.
func TestHandbookLinks(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("handbook/*.md")
	if err != nil || len(pages) < 2 {
		t.Fatalf("pages of the handbook: %q (%v)", pages, err)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`\]\(([^)#:]+)\)`).FindAllSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join("handbook", string(m[1]))); err != nil {
				t.Errorf("%s: %v", page, err)
			}
		}
	}
}
