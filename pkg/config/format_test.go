package config_test

import (
	"os"
	"strings"
	"testing"
)

func TestFilesAsOtherEditorsAndProgramsWriteThem(t *testing.T) {
	t.Parallel()
	sample, err := os.ReadFile("testdata/good/sample.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"Windows line ends":      strings.ReplaceAll(string(sample), "\n", "\r\n"),
		"byte order mark":        "\uFEFF" + string(sample),
		"document marks":         "%YAML 1.2\n---\n" + string(sample) + "...\n",
		"comments all over":      "# a\n\n" + strings.ReplaceAll(string(sample), "\nroutes:", "\n\n# b\nroutes: # c") + "\n# d\n",
		"no line end at the end": strings.TrimSpace(string(sample)),
		"JSON": `{"server": {"public_url": "https://tocsin.example.com"}, "notifiers": {"a": {"type": "log", "path": "/x"},
			"b": {"type": "log", "path": "/y"}}, "routes": [{"match": "#", "notify": ["a", "b"], "labels": {"team": "db"}}]}`,
		"block style": minimal + `
notifiers:
  a:
    type: log
    path: >-
      /var/log/x
routes:
- match: "#"
  labels:
    team: db
  matchers:
  - team="db"
  - env!~"dev.*"
  - |-
    pair="a,b"
  notify:
  - a
`,
		"a single notifier and matcher as plain text": minimal + "notifiers: {a: {type: log, path: /x}}\nroutes: [{match: \"#\", notify: a, matchers: 'team=\"db\"'}]\n",
		"sections without content":                    minimal + "users:\nschedules:\nroutes: # later\nnotifiers: {}\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := parse(t, text)
			if len(f.Routes) > 0 && f.Routes[0].Notify == nil {
				t.Errorf("routes: %+v", f.Routes)
			}
			if f.Server.PublicURL != "https://tocsin.example.com" {
				t.Errorf("public_url: %q", f.Server.PublicURL)
			}
		})
	}
}

func TestLinesAreRightInEachFormat(t *testing.T) {
	t.Parallel()
	text := minimal + "users:\n  - id: ana\n    emale: x\n\n# c\nkinds:\n\n  pgae: {}\n"
	for name, text := range map[string]string{"Unix": text, "Windows": strings.ReplaceAll(text, "\n", "\r\n")} {
		all := problems(t, text)
		if len(all) != 2 || all[0].Line != 4 || all[0].Column != 5 || all[1].Line != 9 || all[1].Column != 3 {
			t.Errorf("%s: %v", name, all)
		}
	}
}

// Each text that goes over several lines stands before a wrong key, whose line must still be right.
func TestLinesAreRightBehindTextsOfSeveralLines(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"literal":                "x-a: |\n  one\n\n  two\n\n",
		"literal, kept":          "x-a: |+\n  one\n\n\n",
		"literal, comment":       "x-a: | # c\n  one\n",
		"folded":                 "x-a: >-\n  one\n  two\n\n  three\n",
		"plain":                  "x-a: one\n  two\n\n  three\n",
		"double quotes":          "x-a: \"one\n  two\n\n  three\"\n",
		"double quotes, escaped": "x-a: \"one\\\n  two\"\n",
		"single quotes":          "x-a: 'one\n\n  two'\n",
		"flow":                   "x-a: {a: [1,\n   2,\n\n  3], # c\n b: 4}\n",
		"quotes in a flow":       "x-a: [\"a\n  b\",\n  'c\n  d', e\n  f]\n",
		"list":                   "x-a:\n- a\n\n- b # c\n# d\n-\n  c: 1\n",
		"comments":               "# a\n\n\n   # b\n",
		"blank lines":            "\n   \n\n",
		"anchors and tags":       "x-a: &a\n  b: !t\n    c: 1\nx-b: *a\n",
		"long key":               "? x-a\n: b\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text = minimal + text + "wrong: 1\n"
			all := problems(t, text)
			if want := strings.Count(text, "\n"); len(all) != 1 || all[0].Line != want || all[0].Column != 1 {
				t.Errorf("want one problem in line %d, got\n%v\nin\n%s", want, all, text)
			}
		})
	}
}
