package pace_test

import (
	"flag"
	"os"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tocsin-oncall/tocsin/pkg/pace"
)

func TestMain(m *testing.M) {
	if err := flag.Set("rapid.nofailfile", "true"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// at are times after noon.
func at(after ...time.Duration) []time.Time {
	out := make([]time.Time, len(after))
	for i, d := range after {
		out[i] = noon.Add(d)
	}
	return out
}

const s = time.Second

func rules(r ...pace.Rule) pace.Bucket { return pace.Bucket{Key: "k", Rules: r} }

func TestEarliest(t *testing.T) {
	t.Parallel()
	once := pace.Rule{Count: 1, Per: s}
	group := pace.Rule{Count: 3, Per: 10 * s}
	for _, c := range []struct {
		name  string
		rules []pace.Rule
		begun []time.Time
		want  time.Time // zero: at once
	}{
		{"no rule", nil, at(0, 0, 0), time.Time{}},
		{"the zero rule", []pace.Rule{{}}, at(0, 0, 0), time.Time{}},
		{"a rule without a span", []pace.Rule{{Count: 1}}, at(0), time.Time{}},
		{"a rule without a count", []pace.Rule{{Per: s}}, at(0), time.Time{}},
		{"nothing has begun", []pace.Rule{once}, nil, time.Time{}},
		{"one a second", []pace.Rule{once}, at(0), noon.Add(s)},
		{"one a second, the last of several", []pace.Rule{once}, at(-9*s, 0, -5*s), noon.Add(s)},
		{"places are left", []pace.Rule{group}, at(0, s), time.Time{}},
		{"the third last counts", []pace.Rule{group}, at(0, s, 2*s), noon.Add(10 * s)},
		{"what is older than the third last does not count", []pace.Rule{group}, at(-99*s, 0, s, 2*s), noon.Add(10 * s)},
		{"of two rules the later one, here the narrow", []pace.Rule{once, group}, at(-20*s, 0), noon.Add(s)},
		{"of two rules the later one, here the wide", []pace.Rule{once, group}, at(0, s, 2*s), noon.Add(10 * s)},
		{"the same the other way round", []pace.Rule{group, once}, at(0, s, 2*s), noon.Add(10 * s)},
		{"a rule beside one that is none", []pace.Rule{{}, once}, at(0), noon.Add(s)},
	} {
		if got := rules(c.rules...).Earliest(c.begun); !got.Equal(c.want) {
			t.Errorf("%s: %s, not %s", c.name, got, c.want)
		}
	}
}

func TestGap(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rules []pace.Rule
		want  time.Duration
	}{
		{nil, 0},
		{[]pace.Rule{{}}, 0},
		{[]pace.Rule{{Count: 1, Per: s}}, s},
		{[]pace.Rule{{Count: 20, Per: 60 * s}}, 3 * s},
		{[]pace.Rule{{Count: 1, Per: s}, {Count: 20, Per: 60 * s}}, 3 * s},
		{[]pace.Rule{{Count: 20, Per: 60 * s}, {Count: 1, Per: s}, {}}, 3 * s},
	} {
		if got := rules(c.rules...).Gap(); got != c.want {
			t.Errorf("%v: %s, not %s", c.rules, got, c.want)
		}
	}
}

func TestLeaving(t *testing.T) {
	t.Parallel()
	b := rules(pace.Rule{Count: 30, Per: s}, pace.Rule{Count: 1, Per: 2 * s}, pace.Rule{Count: 2, Per: 3 * s}, pace.Rule{}, pace.Rule{Count: 1000, Per: s})
	want := []pace.Rule{{Count: 27, Per: s}, {Count: 1, Per: 2 * s}, {Count: 1, Per: 3 * s}, {}, {Count: 900, Per: s}}
	if got := b.Leaving(); !slices.Equal(got.Rules, want) || got.Key != "k" {
		t.Errorf("%+v", got)
	}
	if b.Rules[0].Count != 30 {
		t.Error("the bucket itself leaves room")
	}
}

// What Begin is given stays as it was: it may be the caller's memory of another decision.
func TestBeginChangesNoOther(t *testing.T) {
	t.Parallel()
	begun := at(2*s, 0, s)
	have := slices.Clone(begun[:2:3])
	if got := rules(pace.Rule{Count: 2, Per: s}).Begin(begun[:2:3], noon.Add(5*s)); !slices.Equal(got, at(2*s, 5*s)) {
		t.Errorf("%v", got)
	}
	if !slices.Equal(begun[:2], have) || !begun[2].Equal(noon.Add(s)) {
		t.Errorf("it wrote into what it was given: %v", begun)
	}
}

// allowed is the rule read word by word: with one more beginning at now, no span of Per that ends there holds more than
// Count of them. A span holds its beginning and not its end.
func allowed(rules []pace.Rule, begun []time.Time, now time.Time) bool {
	for _, r := range rules {
		if r.None() {
			continue
		}
		n := 1
		for _, b := range begun {
			if now.Sub(b) < r.Per {
				n++
			}
		}
		if n > r.Count {
			return false
		}
	}
	return true
}

// within says that no span anywhere holds more beginnings than a rule lets.
func within(rules []pace.Rule, begun []time.Time) bool {
	for _, r := range rules {
		for _, from := range begun {
			n := 0
			for _, b := range begun {
				if !b.Before(from) && b.Sub(from) < r.Per {
					n++
				}
			}
			if !r.None() && n > r.Count {
				return false
			}
		}
	}
	return true
}

func drawRules(t *rapid.T) []pace.Rule {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) pace.Rule {
		return pace.Rule{Count: rapid.IntRange(0, 5).Draw(t, "count"), Per: time.Duration(rapid.IntRange(0, 20).Draw(t, "per")) * s}
	}), 0, 3).Draw(t, "rules")
}

// Callers come when they like, and go when Earliest lets them. The bucket, which forgets, lets exactly those go that one
// who remembers everything lets go: never one too many in any span, and never one waits for whom there is a slot.
func TestCallsThatComeAtAnyTime(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := rules(drawRules(t)...)
		var all, kept []time.Time
		now := noon
		for _, pause := range rapid.SliceOfN(rapid.IntRange(0, 8), 1, 60).Draw(t, "pauses") {
			now = now.Add(time.Duration(pause) * s / 2)
			if go1, want := !b.Earliest(kept).After(now), allowed(b.Rules, all, now); go1 != want {
				t.Fatalf("at %s a call may begin: %v, by the rules %v: %v", now.Sub(noon), go1, b.Rules, want)
			} else if !go1 {
				continue
			}
			all, kept = append(all, now), b.Begin(kept, now)
		}
		if !within(b.Rules, all) {
			t.Fatalf("more than the rules let: %v", all)
		}
	})
}

// A queue that always has somebody waiting goes as fast as the rules let: each goes at the very moment that Earliest names,
// which is the first at which the rules let it, and with one rule the whole queue takes as long as arithmetic says.
func TestQueueThatNeverEnds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := rules(drawRules(t)...)
		var all, kept []time.Time
		now := noon
		calls := rapid.IntRange(1, 40).Draw(t, "calls")
		for range calls {
			if at := b.Earliest(kept); at.After(now) {
				if allowed(b.Rules, all, at.Add(-1)) {
					t.Fatalf("it waits until %s although it may begin before", at.Sub(noon))
				}
				now = at
			}
			if !allowed(b.Rules, all, now) {
				t.Fatalf("one too many at %s", now.Sub(noon))
			}
			all, kept = append(all, now), b.Begin(kept, now)
		}
		most := 0
		for _, r := range b.Rules {
			if r.None() {
				continue
			}
			most = max(most, r.Count)
			if took, want := now.Sub(noon), time.Duration((calls-1)/r.Count)*r.Per; took < want || took > want && len(b.Rules) == 1 {
				t.Fatalf("%d calls took %s, by the rule %v alone it is %s", calls, took, r, want)
			}
		}
		if len(kept) > most {
			t.Fatalf("%d times are kept, the rules count %d", len(kept), most)
		}
	})
}

// The database returns the times in whatever order they were written, and clocks of replicas play no part: only the set of
// times counts.
func TestOrderOfTimesDoesNotMatter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := rules(drawRules(t)...)
		begun := at(rapid.SliceOfN(rapid.Custom(func(t *rapid.T) time.Duration { return time.Duration(rapid.IntRange(-30, 30).Draw(t, "at")) * s }), 0, 12).Draw(t, "begun")...)
		mixed := rapid.Permutation(begun).Draw(t, "mixed")
		if x, y := b.Earliest(begun), b.Earliest(mixed); !x.Equal(y) {
			t.Fatalf("%s and %s", x, y)
		}
		now := noon.Add(time.Duration(rapid.IntRange(-30, 30).Draw(t, "now")) * s)
		x, y := b.Begin(begun, now), b.Begin(mixed, now)
		if !slices.EqualFunc(x, y, time.Time.Equal) {
			t.Fatalf("%v and %v", x, y)
		}
		// What was forgotten plays no part in any later answer.
		if all := append(slices.Clone(begun), now); !b.Earliest(x).Equal(b.Earliest(all)) {
			t.Fatalf("%s with what is kept, %s with all", b.Earliest(x), b.Earliest(all))
		}
	})
}
