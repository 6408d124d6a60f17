package config

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
)

// everything is a file in which each mapping that the loader knows stands. Notifiers are called by their type, so that the
// test knows whose keys are asked for.
const everything = `
server: {public_url: "https://tocsin.example.com", tokens: [{name: a, hash: "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", scopes: [read]}]}
database: {url: "postgres://tocsin@db/tocsin"}
worker: {}
reload: {}
users: [{id: ana, contacts: [{via: telegram, address: "7"}]}]
schedules: [{id: primary, time_zone: UTC, layers: [{users: [ana], active: {days: [mon]}}]}]
escalations: {default: {steps: [{page: ["user:ana"]}]}}
notifiers:
  slack: {type: slack, token: t, channel: C1, retries: {count: 1}, pace: {account: 1/s}}
  telegram: {type: telegram, token: t, retries: {count: 1}, pace: {account: 1/s}}
  webhook: {type: webhook, url: "https://receiver.example.com", secret: s, headers: {}, retries: {count: 1}, pace: {account: 1/s}}
  log: {type: log, path: /tmp/x, retries: {count: 1}, pace: {account: 1/s}}
routes: [{match: "#", notify: [slack], labels: {}, active: {days: [mon], hours: "09:00-17:00", time_zone: UTC}}]
sources: {hook: {type: generic, token: s, topic: {kind: a}, fields: {title: body.title, labels: {a: body.a}, links: {b: body.b}}}}
heartbeats: {h: {every: 5m}}
kinds: {KINDS}
`

// The table of the schema and the loader know the same keys at the same places.
func TestSchemaHasTheLoadersKeys(t *testing.T) {
	t.Parallel()
	var kinds []string
	for _, k := range delivery.Kinds {
		kinds = append(kinds, string(k)+": {lifetime: 1h}")
	}
	src := strings.Replace(everything, "KINDS", strings.Join(kinds, ", "), 1)
	root, problems := document("everything", []byte(src))
	if problems != nil {
		t.Fatal(problems)
	}
	asked := map[string]bool{}
	table := fileShape()
	known := map[string]bool{}
	table.walk("", "", func(path string) { known[path] = true })
	l := &loader{reader: newReader("everything", root, func(string) (string, bool) { return "", false }), file: &File{}}
	l.reader.asking = func(path, key string) {
		at, open := table.place(path)
		switch {
		case !open:
			t.Errorf("the loader reads %s, which is not in the table", path)
		case at != "": // the keys of a map are names
			asked[at+"."+key] = true
		case path == "":
			asked["."+key] = true
		}
	}
	l.read(l.reader.child(root, "").object())
	if len(l.reader.problems) > 0 {
		t.Fatalf("the file is not good:\n%v", l.reader.problems)
	}
	for _, k := range slices.Sorted(maps.Keys(asked)) {
		if !known[k] {
			t.Errorf("the loader asks for %s, and the schema lacks it", k)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(known)) {
		if !asked[k] {
			t.Errorf("the schema has %s, and the loader does not ask for it (or the file of this test lacks its mapping)", k)
		}
	}
	if len(asked) < 90 {
		t.Errorf("only %d keys: the test looks at the wrong thing", len(asked))
	}
}

// walk calls f with the path of each key below s; a name in a map is *, or the type of what it names.
func (s shape) walk(path, typ string, f func(string)) {
	switch s.sort {
	case "list":
		s.of.walk(path, "", f)
	case "map":
		if s.of.types == nil {
			s.of.walk(path+".*", "", f)
		}
		for t := range s.of.types {
			s.of.walk(path+"."+t, t, f)
		}
	case "object", "off":
		for k, child := range s.keys {
			f(path + "." + k)
			child.walk(path+"."+k, "", f)
		}
		for _, n := range s.types[typ] {
			f(path + "." + n.key)
			n.shape.walk(path+"."+n.key, "", f)
		}
	}
}

// place is how walk calls a path of the loader; "" where the keys are names of the file's own. False: it is not in the table.
func (s shape) place(path string) (string, bool) {
	out, typ := "", ""
	if path == "" {
		return "", true
	}
	for _, word := range strings.Split(regexp.MustCompile(`\[\d+\]`).ReplaceAllString(path, ""), ".") {
		for s.sort == "list" {
			s = *s.of
		}
		switch s.sort {
		case "map", "entries":
			s = *s.of
			if typ = ""; s.types != nil {
				typ = word
				out += "." + word
			} else {
				out += ".*"
			}
			continue
		case "object", "off":
			next, ok := s.keys[word]
			for _, n := range s.types[typ] {
				if n.key == word {
					next, ok = n.shape, true
				}
			}
			if !ok {
				return fmt.Sprintf("%s.%s", out, word), false
			}
			s, out = next, out+"."+word
			continue
		}
		return out, false
	}
	for s.sort == "list" {
		s = *s.of
	}
	if s.sort == "map" || s.sort == "entries" {
		return "", true
	}
	return out, true
}
