package deploy_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tocsin-oncall/tocsin/pkg/config"
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
		{"audit:", `  audit: {type: webhook, url: "https://receiver.example.com/hook"}`},
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
	for _, name := range []string{"file.md", "slack.md", "telegram.md", "sources.md", "heartbeats.md"} {
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
