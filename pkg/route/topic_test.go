package route_test

import (
	"strings"
	"testing"
	"unicode"

	"github.com/tocsin-oncall/tocsin/pkg/route"
)

func TestWordsFromOutsideAreCleaned(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"DiskFull":       "diskfull",
		"node exporter":  "node_exporter",
		"a.b\tc\nd":      "a_b_c_d",
		"":               "none",
		"  ":             "none",
		" load ":         "load",
		"..":             "__",
		"Überlast":       "überlast",
		"_tocsin":        "_tocsin",
		"weird*#word":    "weird*#word",
		"nul\x00and\x7f": "nul_and_",
	} {
		if got := route.Word(in); got != want {
			t.Errorf("Word(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestTopicAlwaysHasFourWords(t *testing.T) {
	t.Parallel()
	if got, want := route.Topic("High CPU", "", "api.eu"), "alert.high_cpu.none.api_eu"; got != want {
		t.Errorf("Topic = %q, want %q", got, want)
	}
}

func FuzzTopicAlwaysHasFourWords(f *testing.F) {
	f.Add("a.b", " ", "\u2028x")
	f.Fuzz(func(t *testing.T, kind, criticality, job string) {
		topic := route.Topic(kind, criticality, job)
		ws := strings.Split(topic, ".")
		if len(ws) != 4 {
			t.Fatalf("%q has %d words", topic, len(ws))
		}
		for _, w := range ws {
			if w == "" || strings.ContainsFunc(w, unicode.IsSpace) {
				t.Fatalf("%q has the word %q", topic, w)
			}
			if route.Word(w) != w {
				t.Fatalf("cleaning %q twice gives %q", w, route.Word(w))
			}
		}
	})
}
