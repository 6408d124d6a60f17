package extract_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/extract"
)

const message = `{"alert": {"name": "Disk", "id": 1234567890123456789, "huge": 123456789012345678901, "load": 0.5, "ok": false, "tags": ["a", "b"], "meta": {"env": "prod"}}}`

func TestExpressions(t *testing.T) {
	t.Parallel()
	body, err := extract.Decode([]byte(message))
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		`body.alert.name`:                             "Disk",
		`body.alert.id`:                               "1234567890123456789",
		`body.alert.huge`:                             "123456789012345678901",
		`body.alert.load * 100`:                       "50",
		`body.alert.missing`:                          "",
		`body.alert.missing ?? "none"`:                "none",
		`body.missing?.deep`:                          "",
		`body.alert.ok ? "resolved" : "firing"`:       "firing",
		`join(body.alert.tags, "/")`:                  "a/b",
		`body.alert.meta["env"]`:                      "prod",
		`find(body.alert.tags, # startsWith "b")`:     "b",
		`lower(body.alert.name) + "-" + "x"`:          "disk-x",
		`body.alert.name in ["Disk"] ? "yes" : "no"`:  "yes",
		`body.alert.name matches "^D" ? "yes" : "no"`: "yes",
	} {
		e, err := extract.Compile(text, extract.Body)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got, err := e.Text(extract.Input{extract.Body: body}); err != nil || got != want {
			t.Errorf("%s gives %q (%v), want %q", text, got, err, want)
		}
	}
}

func TestWrongExpressions(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`body.`:                                "at character",
		`labels.x`:                             "unknown name labels",
		`nosuch(body)`:                         "unknown name nosuch",
		`now()`:                                "unknown name now",
		`reduce(1..40, #acc + #acc, "x")`:      "reduce",
		`1 + "a"`:                              "mismatched types",
		`map(body, map(#, #))`:                 "a loop within a loop",
		strings.Repeat("body.a + ", 600) + "1": "maximum",
	} {
		_, err := extract.Compile(text, extract.Body)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.40s: %v, want %q", text, err, want)
		}
	}
	for _, text := range []string{`body.a.b.c`, `body + 1`, `body[5]`, `1..100000000`, `body`} {
		e, err := extract.Compile(text, extract.Body)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got, err := e.Text(extract.Input{extract.Body: map[string]any{}}); err == nil {
			t.Errorf("%s gives %q", text, got)
		}
	}
}

func TestTemplates(t *testing.T) {
	t.Parallel()
	in := extract.Input{extract.Labels: map[string]any{"severity": "critical", "team": "db"}}
	for text, want := range map[string]string{
		`payments`:                                  "payments",
		`{labels.severity}`:                         "critical",
		`{labels.team}-{labels.severity}`:           "db-critical",
		`x{labels.none}y`:                           "xy",
		`{labels.none ?? "warning"}`:                "warning",
		`{ {"critical": "high"}[labels.severity] }`: "high",
		`{labels.none ?? "}"}`:                      "}",
	} {
		tmpl, err := extract.ParseTemplate(text, extract.Labels)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got, err := tmpl.Text(in); err != nil || got != want {
			t.Errorf("%s gives %q (%v), want %q", text, got, err, want)
		}
	}
	for _, text := range []string{`{labels.a`, `a}`, `{}`, `{body.x}`, `{"`} {
		if _, err := extract.ParseTemplate(text, extract.Labels); err == nil {
			t.Errorf("%s was taken", text)
		}
	}
}

func TestInstants(t *testing.T) {
	t.Parallel()
	want := time.Date(2026, 1, 5, 9, 0, 0, 0, time.UTC)
	for _, v := range []any{"2026-01-05T09:00:00Z", "2026-01-05T10:00:00+01:00", int(want.Unix()), int(want.UnixMilli()), float64(want.Unix()), "1767603600"} {
		if got, err := extract.Instant(v); err != nil || !got.Equal(want) {
			t.Errorf("%v is %v (%v)", v, got, err)
		}
	}
	for _, v := range []any{"yesterday", []any{}, true} {
		if _, err := extract.Instant(v); err == nil {
			t.Errorf("%v was taken", v)
		}
	}
}

// Whatever stands in a file as an expression, and whatever a source sends, is an answer or an error.
func FuzzExpression(f *testing.F) {
	for _, e := range []string{`body.a`, `map(body.list, #.name)`, `{body.a}`, `1..3`, `body?.a ?? "x"`, `"{" + body`} {
		f.Add(e, message)
	}
	f.Fuzz(func(t *testing.T, text, body string) {
		v, err := extract.Decode([]byte(body))
		if err != nil {
			return
		}
		in := extract.Input{extract.Body: v}
		if e, err := extract.Compile(text, extract.Body); err == nil {
			_, _ = e.Text(in)
		}
		if tmpl, err := extract.ParseTemplate(text, extract.Body); err == nil {
			_, _ = tmpl.Text(in)
		}
	})
}
