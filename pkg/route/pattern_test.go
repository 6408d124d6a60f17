package route_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tocsin-oncall/tocsin/pkg/route"
)

func parse(t interface{ Fatalf(string, ...any) }, s string) route.Pattern {
	p, err := route.ParsePattern(s)
	if err != nil {
		t.Fatalf("ParsePattern(%q): %v", s, err)
	}
	return p
}

// Case A1.
func TestPatternTakesTopics(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, topic string
		want           bool
	}{
		{"alert.failed.#", "alert.failed.critical.load", true},
		{"alert.*.critical.load", "alert.failed.critical.load", true},
		{"alert.*.critical", "alert.failed.critical.load", false},
		{"alert.#", "alert", true},
		{"alert.#", "alert.a.b.c.d", true},
		{"alert.#", "alerts", false},
		{"alert.#", "x.alert", false},
		{"#.load", "alert.failed.critical.load", true},
		{"#.load", "load", true},
		{"#.load", "load.x", false},
		{"#.load", "download", false},
		{"alert.#.load", "alert.load", true},
		{"alert.#.load", "alert.failed.critical.load", true},
		{"alert.#.load", "alert.load.load", true},
		{"alert.#.load", "alert.load.x", false},
		{"a.#.b.#.c", "a.b.c", true},
		{"a.#.b.#.c", "a.x.b.y.z.c", true},
		{"a.#.b.#.c", "a.c.b", false},
		{"a.#.b.#.c", "a.b.b.c.c", true},
		{"a.#.b.#.c", "a.x.c", false},
		{"#", "alert.failed.critical.load", true},
		{"#", "", true},
		{"#.#", "", true},
		{"*", "", false},
		{"#.*", "", false},
		{"#.*", "a", true},
		{"*.#", "a.b", true},
		{"#.*.#", "a", true},
		{"*.*", "a", false},
		{"*.*", "a.b.c", false},
		{"#.*.*", "a", false},
		{"alert.*.*._tocsin", "alert.delivery_rejected.critical._tocsin", true},
		{"alert.*.*._tocsin", "alert.failed.critical.load", false},
		{"alert.*.critical.#", "alert.failed.critical.load", true},
		{"alert.*.critical.#", "alert.failed.critical", true},
		{"Alert.#", "alert.x", true},
	} {
		if got := parse(t, c.pattern).Match(c.topic); got != c.want {
			t.Errorf("%q takes %q: got %v, want %v", c.pattern, c.topic, got, c.want)
		}
	}
}

func TestZeroPatternTakesNothing(t *testing.T) {
	t.Parallel()
	for _, topic := range []string{"", "alert", "alert.a.b.c"} {
		if (route.Pattern{}).Match(topic) {
			t.Errorf("the zero pattern takes %q", topic)
		}
	}
}

func TestBadPatternsAreRefusedWithTheWordThatIsWrong(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[string]string{
		"":               "is empty",
		"alert..load":    "word 2",
		"alert.":         "word 2",
		".alert":         "word 1",
		"alert.fail*":    "whole words",
		"alert.##":       "whole words",
		"alert.a b.c":    `write "a_b"`,
		"alert.a\tb":     `write "a_b"`,
		"alert. load":    `write "load"`,
		"alert.*.crit#.": "word 3",
	} {
		_, err := route.ParsePattern(pattern)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParsePattern(%q) = %v, want an error with %q", pattern, err, want)
		}
	}
}

func TestPatternIsShownAsWritten(t *testing.T) {
	t.Parallel()
	if got := parse(t, "Alert.*.#").String(); got != "Alert.*.#" {
		t.Errorf("String() = %q", got)
	}
}

// A pattern with many # against a long topic that almost matches is what makes a backtracking matcher explode. The work
// is counted by time only loosely: the explosive matcher would not end within the age of the universe.
func TestThousandWordTopicAgainstManyWildcardsStaysLinear(t *testing.T) {
	t.Parallel()
	topic := strings.Repeat("a.", 999) + "b"
	pattern := parse(t, strings.Repeat("#.a.", 200)+"#.c")
	if pattern.Match(topic) {
		t.Error("a topic without the last word was taken")
	}
	if !parse(t, strings.Repeat("#.a.", 200)+"#.b").Match(topic) {
		t.Error("a topic with the last word was not taken")
	}
}

func TestMatchAllocatesNothing(t *testing.T) { // AllocsPerRun forbids t.Parallel
	pattern, topic := parse(t, "alert.#.load.*"), "alert.failed.critical.load.x"
	if n := testing.AllocsPerRun(10, func() { pattern.Match(topic) }); n != 0 {
		t.Errorf("Match allocates %v times", n)
	}
}

func BenchmarkThousandWordTopicManyWildcards(b *testing.B) {
	topic := strings.Repeat("a.", 999) + "b"
	pattern, err := route.ParsePattern(strings.Repeat("#.a.", 200) + "#.c")
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		pattern.Match(topic)
	}
}

// oracle is the definition of a match, written as plainly as possible.
func oracle(pattern, topic []string) bool {
	switch {
	case len(pattern) == 0:
		return len(topic) == 0
	case pattern[0] == "#":
		return oracle(pattern[1:], topic) || len(topic) > 0 && oracle(pattern, topic[1:])
	case len(topic) == 0:
		return false
	}
	return (pattern[0] == "*" || pattern[0] == topic[0]) && oracle(pattern[1:], topic[1:])
}

func words(topic string) []string {
	if topic == "" {
		return nil
	}
	return strings.Split(topic, ".")
}

func TestMatchAgreesWithItsDefinition(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		pattern := strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "ab", "*", "#", "#"}), 1, 8).Draw(t, "pattern"), ".")
		topic := strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "ab"}), 0, 9).Draw(t, "topic"), ".")
		if got, want := parse(t, pattern).Match(topic), oracle(words(pattern), words(topic)); got != want {
			t.Fatalf("%q takes %q: got %v, want %v", pattern, topic, got, want)
		}
	})
}

func FuzzPattern(f *testing.F) {
	f.Add("a.#.b.*", "a.x.b.c")
	f.Add("#.#.#", "")
	f.Add("alert..x", "a..b")
	f.Fuzz(func(t *testing.T, pattern, topic string) {
		p, err := route.ParsePattern(pattern)
		if err != nil {
			return
		}
		if again := parse(t, p.String()); again.Match(topic) != p.Match(topic) {
			t.Fatalf("%q does not read back as itself", pattern)
		}
		ws := strings.Split(strings.ToLower(pattern), ".")
		if len(ws) > 6 || len(topic) > 40 || slices.Contains(words(topic), "") {
			return // the oracle is exponential
		}
		if got, want := p.Match(topic), oracle(ws, words(topic)); got != want {
			t.Fatalf("%q takes %q: got %v, want %v", pattern, topic, got, want)
		}
	})
}
