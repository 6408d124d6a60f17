package deploy_test

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/tocsin-oncall/tocsin/pkg/config"
)

func fileSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(config.Schema()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("tocsin.schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("tocsin.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// fits says what an editor with the schema would mark in a file.
func fits(t *testing.T, s *jsonschema.Schema, text string) error {
	t.Helper()
	var v any
	if err := yaml.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(doc)
}

// Whatever the handbook shows and the loader takes, an editor with the schema marks nothing in.
func TestSchemaTakesTheFilesOfTheHandbook(t *testing.T) {
	t.Parallel()
	s := fileSchema(t)
	tried := 0
	for _, name := range []string{"file.md", "slack.md", "telegram.md"} {
		for _, b := range blocks(name, page(t, name)) {
			if b.language != "yaml" {
				continue
			}
			tried++
			if err := fits(t, s, whole(b.text)); err != nil {
				t.Errorf("the block at line %d of %s: %v", b.line, name, err)
			}
		}
	}
	for _, name := range []string{"tocsin.yaml", "../pkg/config/testdata/good/sample.yaml"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := fits(t, s, string(text)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if tried < 10 {
		t.Errorf("only %d blocks found", tried)
	}
}

// What an editor is there for: mistakes that people make, marked while they write.
func TestSchemaMarksMistakes(t *testing.T) {
	t.Parallel()
	s := fileSchema(t)
	for name, text := range map[string]string{
		"an unknown section":          "serverr: {}",
		"an unknown key":              "server: {public_url: x, lisen: x}",
		"no public_url":               "server: {}",
		"a type that is none":         "server: {public_url: x}\nnotifiers: {a: {type: pigeon}}",
		"a key of another type":       "server: {public_url: x}\nnotifiers: {a: {type: slack, token: t, chat_id: 1}}",
		"a duration without a unit":   "server: {public_url: x, shutdown_grace: 10}",
		"a number out of bounds":      "server: {public_url: x}\ndatabase: {max_connections: 1}",
		"a route that matches no way": "server: {public_url: x}\nroutes: [{notify: [a]}]",
		"a pace of another type":      "server: {public_url: x}\nnotifiers: {a: {type: slack, token: t, pace: {group: 1/s}}}",
	} {
		if err := fits(t, s, text); err == nil {
			t.Errorf("%s is not marked", name)
		}
	}
	for name, text := range map[string]string{
		"a variable for a number": "server: {public_url: x}\ndatabase: {max_connections: \"${CONNECTIONS}\"}",
		"a place for anchors":     "x-all: {a: b}\nserver: {public_url: x}",
		"a name for a list":       "server: {public_url: x}\nroutes: [{match: \"#\", notify: ops}]",
		"no pace":                 "server: {public_url: x}\nnotifiers: {a: {type: log, path: /x, pace: off}}",
	} {
		if err := fits(t, s, text); err != nil {
			t.Errorf("%s is marked: %v", name, err)
		}
	}
}
