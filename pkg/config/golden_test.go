package config_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tocsin-oncall/tocsin/pkg/config"
)

var update = flag.Bool("update", false, "rewrite the golden files under testdata")

// environment is what ${NAME} is filled from in tests.
func environment(name string) (string, bool) {
	v, ok := map[string]string{
		config.DatabaseVariable: "postgres://tocsin:hunter22@db/tocsin",
		"SLACK_TOKEN":           "xoxb-1234567890",
		"SLACK_URL":             "https://hooks.slack.com/services/T0/B0/abcdefghijklmnop",
		"TELEGRAM_TOKEN":        "123456:ABC-DEF",
		"HOOK_SECRET":           "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
		"SECRET":                "s3cr3t-value",
		"EMPTY":                 "",
		"NAME":                  "ops",
	}[name]
	return v, ok
}

func withoutDatabase(name string) (string, bool) {
	if name == config.DatabaseVariable {
		return "", false
	}
	return environment(name)
}

// Case A15: one file per kind of mistake; all mistakes of a file are reported at once, with line and column.
func TestEachMistakeIsReportedWithItsPlaceAndHowToMendIt(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) < 30 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			env := environment
			if strings.Contains(string(text), "#env: none") {
				env = withoutDatabase
			}
			f, set, err := config.Parse(filepath.Base(file), text, env)
			if set == nil {
				t.Fatal("no set of secrets")
			}
			if err == nil {
				t.Fatalf("the file was taken: %+v", f)
			}
			if f != nil {
				t.Error("there is a file besides the error")
			}
			got := err.Error() + "\n"
			if strings.Contains(got, "s3cr3t") {
				t.Errorf("a secret is in the message: %s", got)
			}
			golden := strings.TrimSuffix(file, ".yaml") + ".golden"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got\n%swant\n%s", got, want)
			}
		})
	}
}
