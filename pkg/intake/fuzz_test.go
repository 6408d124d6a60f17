package intake_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/intake"
)

// What is read can be stored, whatever it holds: else the database would refuse it each time that it is sent again.
func TestWhatIsReadCanBeStored(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(f *config.File) { withSources(t, f) })
	long := strings.Repeat("\u00e9", 20_000)
	odd := `\u0000\ud800\u202e` + "\xff" + `"` // closes a string
	for n, c := range []struct{ source, body string }{
		{"am-west", `{"groupKey": "` + odd + `, "truncatedAlerts": 9223372036854775807, "commonAnnotations": {"summary": "` + odd + `}, "alerts": [{"status": "firing", "fingerprint": "` + odd + `,
			"labels": {"alertname": "` + odd + `, "a\u0000": "` + odd + `, "": "x"}, "annotations": {"description": "` + odd + `}, "generatorURL": "http://a/` + odd + `, "startsAt": "9999-12-31T23:59:59Z"}]}`},
		{"am-west", `{"receiver": "` + long + `", "alerts": [{"status": "firing", "labels": {"alertname": "` + long + `", "` + long + `": "` + long + `"}, "annotations": {"summary": "` + long + `"}, "startsAt": "0000-01-01T00:00:00Z"},
			{"status": "resolved", "labels": {}, "endsAt": "0001-01-01T00:00:00Z"}]}`},
		{"prom", `[{"labels": {"cluster": "` + odd + `, "alertname": ""}, "startsAt": "0001-01-01T00:00:00Z", "endsAt": "9999-12-31T23:59:59+23:59"}, {"labels": {"a": "` + long + `"}, "endsAt": "2200-01-01T00:00:00Z", "generatorURL": "::"}]`},
		{"many", `{"items": [{"name": "` + odd + `, "id": 1e308, "since": -1e15, "until": 1e14, "labels": {"` + odd + `: {"` + odd + `: []}}, "links": ["http://` + odd + `]}]}`},
		{"own", `{"kind": "` + odd + `, "title": "` + odd + `, "labels": {"a": "` + odd + `}}`},
	} {
		m := w.read(c.source, c.body)
		if len(m.Wrong) > 0 || len(m.Groups) == 0 {
			t.Errorf("%d: %v", n, m.Wrong)
			continue
		}
		for range 2 {
			if _, err := w.acceptAll(m); err != nil {
				t.Errorf("%d: %v", n, err)
			}
		}
	}
}

// fuzzSource checks that whatever a source sends is read or refused.
func fuzzSource(f *testing.F, source string, seeds ...string) {
	for _, s := range append(seeds, `{}`, `[]`, `null`, `[{"labels":{"a":"b"}}]`, `{"alerts":[null]}`) {
		f.Add([]byte(s))
	}
	file, _, err := config.Parse("f", []byte(sourcesFile), func(string) (string, bool) { return "", false })
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		m, err := intake.Read(file, file.Sources[source], body)
		var wrong *intake.InputError
		if err != nil && (!errors.As(err, &wrong) || wrong.Field == "" || wrong.Message == "") {
			t.Fatalf("%v", err)
		}
		n := 0
		for _, g := range m.Groups {
			if g.Source != source || g.Key == "" {
				t.Fatalf("%+v", g)
			}
			n += len(g.Alerts)
		}
		if n != m.Alerts {
			t.Fatalf("%d alerts in the groups, %d are told", n, m.Alerts)
		}
	})
}

func FuzzAlertmanager(f *testing.F) { fuzzSource(f, "am-east", grafana) }
func FuzzGrafana(f *testing.F)      { fuzzSource(f, "graf", grafana) }
func FuzzPrometheus(f *testing.F) {
	fuzzSource(f, "prom", `[{"labels":{"alertname":"a","cluster":"c"},"annotations":{"summary":"s"},"startsAt":"2026-01-05T09:00:00Z","endsAt":"2026-01-05T09:00:00.5+01:00","generatorURL":"http://p"}]`)
}
func FuzzGeneric(f *testing.F) {
	fuzzSource(f, "many", `{"items":[{"name":"One","id":1,"active":true,"since":1796000000,"labels":{"a":{"b":1}},"links":["https://a"]}]}`)
}
func FuzzNative(f *testing.F) {
	fuzzSource(f, "own", `{"kind":"a","status":"firing","labels":{"a":"b"},"links":[{"url":"https://a"}]}`)
}
