package message_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/tocsin-oncall/tocsin/pkg/message"
)

// torn says that a cut has taken an accent, a variant or the rest of an emoji away from its letter.
func torn(whole, kept string) bool {
	rest, ok := strings.CutPrefix(whole, kept)
	if !ok || rest == "" || kept == "" {
		return false
	}
	next, _ := utf8.DecodeRuneInString(rest)
	last, _ := utf8.DecodeLastRuneInString(kept)
	return last == '\u200d' || next == '\u200d' || unicode.Is(unicode.M, next) || next >= 0x1f3fb && next <= 0x1f3ff
}

// What people see as one character stays together, as long as one of them fits.
func TestCutsAreBetweenCharacters(t *testing.T) {
	t.Parallel()
	letter := rapid.SampledFrom([]string{"a", "e\u0301", "日", "😀", "👍🏽", "❤\ufe0f", "👩\u200d👧", "क्षि", " "})
	rapid.Check(t, func(t *rapid.T) {
		s := strings.Join(rapid.SliceOfN(letter, 0, 30).Draw(t, "letters"), "")
		limit := rapid.IntRange(12, 40).Draw(t, "limit")
		for name, cost := range map[string]message.Cost{"points": message.CodePoints, "utf16": message.UTF16} {
			got := message.Fit(s, limit, cost)
			if kept, cut := strings.CutSuffix(got, "…"); cut && torn(s, kept) {
				t.Fatalf("%s: %q was cut to %q", name, s, got)
			}
		}
	})
}

// The headline and the status of any message fit and are never torn markup: they are plain text, on one line.
func TestHeadlineAndStatusAlwaysFit(t *testing.T) {
	t.Parallel()
	text := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{strings.Repeat("x", 100_000), strings.Repeat("e\u0301", 50_000), strings.Repeat(" \n", 50_000), "\xff", "\x00", "\x1b \x07", strings.Repeat("\u0301", 1000)}))
	rapid.Check(t, func(t *rapid.T) {
		m := message.Message{
			State: rapid.SampledFrom([]message.State{message.Open, message.Acknowledged, message.Resolved, message.Plain}).Draw(t, "state"),
			Title: text.Draw(t, "title"), Severity: text.Draw(t, "severity"),
		}
		for _, limit := range []int{20, 150, 600} {
			head, status := m.Headline(limit, message.UTF16), m.Status(limit, message.UTF16)
			if message.Width(head, message.UTF16) > limit || message.Width(status, message.UTF16) > limit {
				t.Fatalf("%q, %q: more than %d", head, status, limit)
			}
			if strings.TrimSpace(head) == "" || strings.Contains(head+status, "\n") || !utf8.ValidString(head+status) {
				t.Fatalf("%q, %q", head, status)
			}
			if !strings.HasPrefix(head, m.State.Sign()) || !strings.HasPrefix(status, m.State.Word()) {
				t.Fatalf("%q, %q", head, status)
			}
		}
	})
}

func FuzzFit(f *testing.F) {
	f.Add("Disk full 😀", 5)
	f.Add("e\u0301e\u0301\xff\x00", 2)
	f.Add(strings.Repeat("👩\u200d👧", 40), 17)
	f.Fuzz(func(t *testing.T, s string, limit int) {
		limit %= 5000
		for name, cost := range map[string]message.Cost{"points": message.CodePoints, "utf16": message.UTF16} {
			got := message.Fit(s, limit, cost)
			if message.Width(got, cost) > max(limit, 0) || !utf8.ValidString(got) || strings.ContainsRune(got, 0) {
				t.Fatalf("%s: %q at %d became %q", name, s, limit, got)
			}
			if message.Fit(got, limit, cost) != got {
				t.Fatalf("%s: fitting %q twice changes it", name, got)
			}
		}
		if line := message.Line(s); strings.ContainsAny(line, "\n\t") || message.Line(line) != line {
			t.Fatalf("%q is no line", line)
		}
	})
}
