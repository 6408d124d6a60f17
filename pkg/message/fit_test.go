package message_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/tocsin-oncall/tocsin/pkg/message"
)

func TestFit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in    string
		limit int
		cost  message.Cost
		want  string
	}{
		{"abc", 3, message.CodePoints, "abc"},
		{"abcd", 3, message.CodePoints, "ab…"},
		{"ab cd", 4, message.CodePoints, "ab…"},
		{"日本語です", 3, message.CodePoints, "日本…"},
		{"😀😀😀", 5, message.UTF16, "😀😀…"},
		{"😀😀", 4, message.UTF16, "😀😀"},
		{"a\x00b\x1bc\n", 9, message.CodePoints, "abc\n"},
		{"a\xffb", 9, message.CodePoints, "a\uFFFDb"},
		{"abe\u0301e\u0301", 4, message.CodePoints, "ab…"},                            // an accent is not torn off
		{"abe\u0301de", 5, message.CodePoints, "abe\u0301…"},                          // and not its letter from it
		{"a👨\u200d👩\u200d👧 bc", 5, message.CodePoints, "a…"},                          // a family stays together
		{"👍🏽👍🏽", 3, message.CodePoints, "👍🏽…"},                                        // so does a hand of some colour
		{"ab❤\ufe0fcd", 4, message.CodePoints, "ab…"},                                 // and a red heart
		{"e" + strings.Repeat("\u0301", 50), 4, message.CodePoints, "e\u0301\u0301…"}, // unless there is no end to it
		{"abc", 0, message.CodePoints, ""},
		{"", 0, message.CodePoints, ""},
	} {
		if got := message.Fit(c.in, c.limit, c.cost); got != c.want {
			t.Errorf("Fit(%q, %d) = %q, want %q", c.in, c.limit, got, c.want)
		}
	}
}

func TestFitKeepsWithinEveryLimit(t *testing.T) {
	t.Parallel()
	escaped := func(r rune) int {
		if r == '&' {
			return 5
		}
		return message.UTF16(r)
	}
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringOf(rapid.RuneFrom([]rune("a &😀日\n\t\x00é\u0301\u200d🏽\ufe0f"))).Draw(t, "s")
		limit := rapid.IntRange(0, 40).Draw(t, "limit")
		for name, cost := range map[string]message.Cost{"points": message.CodePoints, "utf16": message.UTF16, "escaped": escaped} {
			got := message.Fit(s, limit, cost)
			if message.Width(got, cost) > limit {
				t.Fatalf("%s: %q is wider than %d", name, got, limit)
			}
			if !utf8.ValidString(got) {
				t.Fatalf("%s: %q was cut inside a rune", name, got)
			}
			clean := strings.ReplaceAll(s, "\x00", "")
			if !strings.HasPrefix(clean, strings.TrimSuffix(got, "…")) {
				t.Fatalf("%s: %q does not begin %q", name, got, clean)
			}
			if message.Width(clean, cost) <= limit && got != clean {
				t.Fatalf("%s: %q fits in %d and became %q", name, clean, limit, got)
			}
		}
	})
}

func TestHeadlineBeginsWithTheSign(t *testing.T) {
	t.Parallel()
	for state, sign := range map[message.State]string{message.Open: "🔴 ", message.Acknowledged: "🟡 ", message.Resolved: "🟢 ", message.Plain: ""} {
		m := message.Message{State: state, Title: "Disk\nfull " + strings.Repeat("x", 2000)}
		got := m.Headline(150, message.UTF16)
		if !strings.HasPrefix(got, sign+"Disk full") || message.Width(got, message.UTF16) > 150 || !strings.HasSuffix(got, "…") {
			t.Errorf("%q: %q", state, got)
		}
		if got := (message.Message{State: state}).Headline(150, message.UTF16); got != sign+"(no title)" {
			t.Errorf("%q without a title: %q", state, got)
		}
	}
}

func TestListCountsWhatItLeavesOut(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := message.Message{More: rapid.IntRange(0, 9).Draw(t, "more")}
		for range rapid.IntRange(0, 60).Draw(t, "items") {
			m.Items = append(m.Items, message.Item{
				Resolved: rapid.Bool().Draw(t, "resolved"),
				Title:    rapid.String().Draw(t, "title"),
				Detail:   rapid.String().Draw(t, "detail"),
			})
		}
		limit := rapid.IntRange(0, 500).Draw(t, "limit")
		text, left := m.List(limit, 80, message.CodePoints)
		if message.Width(text, message.CodePoints) > limit {
			t.Fatalf("%d runes where %d fit", message.Width(text, message.CodePoints), limit)
		}
		shown := 0
		if text != "" {
			shown = strings.Count(text, "\n") + 1
		}
		if shown+left != len(m.Items)+m.More {
			t.Fatalf("%d shown, %d left out, of %d", shown, left, len(m.Items)+m.More)
		}
	})
}

func TestStatus(t *testing.T) {
	t.Parallel()
	if got := (message.Message{State: message.Acknowledged, Severity: "critical"}).Status(99, message.UTF16); got != "Acknowledged · critical" {
		t.Error(got)
	}
	if got := (message.Message{}).Status(99, message.UTF16); got != "" {
		t.Error(got)
	}
}
