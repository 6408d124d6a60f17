package route_test

import (
	"strings"
	"testing"

	"github.com/tocsin-oncall/tocsin/pkg/route"
)

func TestMatchersReadAsAlertmanagerWritesThem(t *testing.T) {
	t.Parallel()
	labels := map[string]string{"team": "db", "env": "dev-2", "msg": "a \"b\"\nc\\d", "host.name": "h1", "pair": "a,b"}
	for s, want := range map[string]bool{
		`team="db"`:             true,
		`team=db`:               true,
		` team = db `:           true,
		`team = "db"`:           true,
		`team!="db"`:            false,
		`team="d"`:              false,
		`team=~"d"`:             false, // anchored
		`team=~"d."`:            true,
		`team=~d.`:              true,
		`team=~"x|db"`:          true,
		`team=~"x|d"`:           false,
		`env!~"dev.*"`:          false,
		`env!~"prod.*"`:         true,
		`env=~"dev-\d"`:         true,
		`env=~"dev-\\d"`:        true,
		`absent=""`:             true,
		`absent=`:               true,
		`absent!=""`:            false,
		`absent=~".*"`:          true,
		`absent=~".+"`:          false,
		`absent!~".+"`:          true,
		`msg="a \"b\"\nc\\d"`:   true,
		`"host.name"="h1"`:      true,
		`host.name=h1`:          true,
		`pair="a,b"`:            true,
		`{team="db"}`:           true,
		`team="db",`:            true,
		`team=~"(?i)DB"`:        true,
		`team=~"^db$"`:          true,
		`env=~"dev-2|"`:         true,
		`team="db" , `:          true,
		`team=a=b`:              false,
		`team=~"prod|staging|"`: false,
	} {
		m, err := route.ParseMatcher(s)
		if err != nil {
			t.Errorf("ParseMatcher(%q): %v", s, err)
			continue
		}
		if got := m.Match(labels); got != want {
			t.Errorf("%s matches: got %v, want %v", s, got, want)
		}
	}
}

func TestSeveralMatchersInOneText(t *testing.T) {
	t.Parallel()
	ms, err := route.ParseMatchers(`{team="db", env!~"dev,.*",x=1}`)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range ms {
		got = append(got, m.String())
	}
	if s := strings.Join(got, " "); s != `team="db" env!~"dev,.*" x="1"` {
		t.Errorf("got %s", s)
	}
	if ms[0].Name() != "team" {
		t.Errorf("Name() = %q", ms[0].Name())
	}
}

func TestBadMatchersAreRefused(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]string{
		``:                 "empty",
		`{}`:               "empty",
		`{team="db"`:       "does not close",
		`{`:                "does not close",
		`team`:             "is wanted after team",
		`="db"`:            "name is missing",
		`team=="db"`:       "== is no operator",
		`team="db`:         "not closed",
		`"team="db"`:       "is wanted after",
		`team="db"x`:       "follows the value",
		`team=d"b`:         "quotation mark",
		`team='db'`:        "quotation mark",
		`team=~"("`:        "regular expression",
		`team=~"a)|(b"`:    "regular expression",
		`a b="c"`:          "is wanted after a",
		`a{b="c"`:          "not a label's name",
		"team=\"\xff\"":    "UTF-8",
		`a="1",,b="2"`:     "name is missing",
		`""="x"`:           "name is missing",
		`team="db",env`:    "is wanted after env",
		`a="1",b="2"`:      "2 matchers",
		`team>"db"`:        "not a label's name",
		`team=~"a{1,1001}`: "not closed",
	} {
		_, err := route.ParseMatcher(s)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseMatcher(%q) = %v, want an error with %q", s, err, want)
		}
	}
}

func TestZeroMatcherTakesEveryAlert(t *testing.T) {
	t.Parallel()
	if !(route.Matcher{}).Match(map[string]string{"a": "b"}) {
		t.Error("the zero matcher refuses")
	}
}

func FuzzMatcherReadsBackAsItself(f *testing.F) {
	for _, s := range []string{`team="db"`, `a=~"x|y"`, `"a b"!="c\n"`, `{x!~y}`, `a=\`, `a="\\\""`} {
		f.Add(s, "db")
	}
	f.Fuzz(func(t *testing.T, s, value string) {
		m, err := route.ParseMatcher(s)
		if err != nil {
			return
		}
		again, err := route.ParseMatcher(m.String())
		if err != nil {
			t.Fatalf("%q is written as %q, which does not read: %v", s, m, err)
		}
		labels := map[string]string{m.Name(): value}
		if again.String() != m.String() || again.Match(labels) != m.Match(labels) {
			t.Fatalf("%q reads back as %q", m, again)
		}
	})
}
