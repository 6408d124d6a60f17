package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
)

// minimal is a file with nothing but what must be there; tests add to it.
const minimal = "server: {public_url: \"https://tocsin.example.com\"}\n"

func parse(t *testing.T, text string) *config.File {
	t.Helper()
	f, _, err := config.Parse("tocsin.yaml", []byte(text), environment)
	if err != nil {
		t.Fatalf("%v\nin\n%s", err, text)
	}
	return f
}

func problems(t *testing.T, text string) config.Errors {
	t.Helper()
	_, _, err := config.Parse("tocsin.yaml", []byte(text), environment)
	var all config.Errors
	if !errors.As(err, &all) {
		t.Fatalf("no problems, but %v, in\n%s", err, text)
	}
	return all
}

func TestTheSampleFileLoads(t *testing.T) {
	t.Parallel()
	f, set, err := config.Load("testdata/good/sample.yaml", environment)
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Warnings) != 0 {
		t.Errorf("warnings: %q", f.Warnings)
	}
	ops := f.Notifiers["ops-slack"]
	if ops.Name != "ops-slack" || ops.Token != "xoxb-1234567890" || ops.Channel != "C0123" || !ops.Cards() || ops.Concurrency != 4 {
		t.Errorf("ops-slack: %+v", ops)
	}
	if want := (delivery.Retries{Delay: 10 * time.Second, MaxDelay: 10 * time.Minute}); ops.Retries != want {
		t.Errorf("retries without a count: %+v", ops.Retries)
	}
	if r := f.Notifiers["hook-slack"].Retries; !r.Capped || r.Count != 5 {
		t.Errorf("retries with a count: %+v", r)
	}
	if dm := f.Notifiers["slack-dm"]; !dm.Direct() || dm.Timeout != 10*time.Second || dm.Retries != delivery.DefaultRetries {
		t.Errorf("slack-dm: %+v", dm)
	}
	if f.Notifiers["telegram-dm"].Timeout != 30*time.Second || f.LongestTimeout() != 30*time.Second {
		t.Errorf("Telegram's timeout: %+v", f.Notifiers["telegram-dm"])
	}
	if f.Worker.Lease != 90*time.Second || f.Worker.Poll != time.Second || f.Server.ShutdownGrace != 40*time.Second || f.Reload.Grace != 15*time.Minute {
		t.Errorf("derived: %+v %+v %+v", f.Worker, f.Server, f.Reload)
	}
	e := f.Escalations["default"]
	if e.Repeat != 3 || e.Every != 10*time.Minute || len(e.Steps) != 2 || e.Steps[1].After != 10*time.Minute || e.Steps[1].Notify[0] != "ops-slack" {
		t.Errorf("escalation: %+v", e)
	}
	s, ok := f.Schedule("primary")
	if !ok {
		t.Fatal("no schedule primary")
	}
	shift, ok := s.At(time.Date(2026, 1, 13, 12, 0, 0, 0, time.UTC))
	if !ok || shift.Users[0] != "bo" || shift.Start.Format("2006-01-02 15:04 -0700") != "2026-01-12 09:00 +0100" {
		t.Errorf("on call: %+v", shift)
	}
	if u, ok := f.User("ana"); !ok || u.TimeZone != "Europe/Madrid" || u.Contacts[1].After != 2*time.Minute {
		t.Errorf("ana: %+v", u)
	}
	if _, ok := f.User("nobody"); ok {
		t.Error("there is a user nobody")
	}
	if len(f.Routes) != 4 || f.Routes[2].Labels["team"] != "db" || f.Routes[1].Match.String() != "alert.failed.#" || f.Routes[0].Line != 22 {
		t.Errorf("routes: %+v", f.Routes)
	}
	if len(f.Kinds) != len(delivery.Kinds) || f.Kinds[delivery.Page] != delivery.DefaultPolicy(delivery.Page) {
		t.Errorf("kinds: %+v", f.Kinds)
	}
	if f.Database.URL != "postgres://tocsin:hunter22@db/tocsin" || f.Database.ListenURL != f.Database.URL {
		t.Errorf("database: %+v", f.Database)
	}
	if got := set.String("Post https://hooks.slack.com/services/T0/B0/abcdefghijklmnop with xoxb-1234567890 and hunter22"); got != "Post ${SLACK_URL} with ${SLACK_TOKEN} and ${TOCSIN_DATABASE_URL}" {
		t.Errorf("redacted: %s", got)
	}
}

func TestVariablesAreFilledInValuesOnly(t *testing.T) {
	t.Parallel()
	env := func(name string) (string, bool) {
		if name == "EVIL" {
			return "x\", off: true}\n  other: {type: log, path: \"/y ${SECRET}", true
		}
		return environment(name)
	}
	f, set, err := config.Parse("tocsin.yaml", []byte(minimal+`notifiers:
  a: {type: log, path: "/var/${NAME}/${NAME}.${EVIL}"}
  b: {type: webhook, url: "https://h/$${NAME}/$NAME/$$/${NAME}", headers: {X-A: "${EMPTY}"}}
  c: {type: log, path: /x, concurrency: "${NUMBER}"}
`), func(name string) (string, bool) {
		if name == "NUMBER" {
			return "7", true
		}
		return env(name)
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Notifiers) != 3 || f.Notifiers["a"].Off {
		t.Errorf("a value of the environment became YAML: %+v", f.Notifiers)
	}
	if got := f.Notifiers["a"].Path; got != "/var/ops/ops.x\", off: true}\n  other: {type: log, path: \"/y ${SECRET}" {
		t.Errorf("path: %q", got)
	}
	if got := f.Notifiers["b"].URL; got != "https://h/${NAME}/$NAME/$$/ops" {
		t.Errorf("url: %q", got)
	}
	if v, ok := f.Notifiers["b"].Headers["X-A"]; !ok || v != "" {
		t.Errorf("headers: %v", f.Notifiers["b"].Headers)
	}
	if f.Notifiers["c"].Concurrency != 7 {
		t.Errorf("concurrency: %d", f.Notifiers["c"].Concurrency)
	}
	if got := set.String("s3cr3t-value"); got != "s3cr3t-value" {
		t.Errorf("a variable that the file does not use is a secret of it: %s", got)
	}
}

func TestTheChecksumIsOfTheTextUnfilled(t *testing.T) {
	t.Parallel()
	text := []byte(minimal + "notifiers: {a: {type: log, path: \"${NAME}\"}}\n")
	sums := map[string]bool{}
	for _, value := range []string{"/x", "/y"} {
		f, _, err := config.Parse("f", text, func(name string) (string, bool) {
			if name == "NAME" {
				return value, true
			}
			return environment(name)
		})
		if err != nil {
			t.Fatal(err)
		}
		sums[f.Checksum] = true
	}
	sums[parse(t, minimal).Checksum] = true
	if len(sums) != 2 || len(slices.Collect(mapKeys(sums))[0]) != 12 {
		t.Errorf("checksums: %v", sums)
	}
}

func mapKeys(m map[string]bool) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func TestTheEnvironmentOverridesTheDatabase(t *testing.T) {
	t.Parallel()
	f := parse(t, minimal+"database: {url: \"postgres://file/x\"}\n")
	if f.Database.URL != "postgres://tocsin:hunter22@db/tocsin" {
		t.Errorf("url: %s", f.Database.URL)
	}
	f = parse(t, minimal+"database: {url: \"${NOT_SET_ANYWHERE}\", listen_url: \"host=direct dbname=x\"}\n")
	if f.Database.ListenURL != "host=direct dbname=x" || f.Database.MaxConnections != 20 {
		t.Errorf("database: %+v", f.Database)
	}
	f, _, err := config.Parse("f", []byte(minimal+"database: {url: \"postgres://file/x\"}\n"), withoutDatabase)
	if err != nil || f.Database.URL != "postgres://file/x" {
		t.Errorf("%+v, %v", f, err)
	}
}

func TestEverySettingArrives(t *testing.T) {
	t.Parallel()
	f := parse(t, `
x-retries: &r {count: 0, delay: 10m}
server:
  listen: 127.0.0.1:8080
  metrics_listen: 127.0.0.1:0
  public_url: http://localhost:8080/tocsin/
  shutdown_grace: 1m
  tokens: [{name: ci, hash: "sha256:`+strings.Repeat("AB", 32)+`", scopes: [ingest, read, ingest]}]
worker: {lease: 2m, poll: 250ms}
reload: {grace: 1h}
retention: 2w
users: [{id: ana, name: Ana, role: admin, contacts: [{via: dm, address: U1, urgency: high}]}, {id: bo, contacts: [{via: dm}]}]
schedules:
  - {id: s, name: Primary, time_zone: Asia/Kolkata, owner: ana, layers: [{name: main, users: [[ana, bo], bo], every: 12 hours, start: "2026-01-05", end: 2027-01-05T09:00}]}
escalations: {e: {repeat: 1, every: 1h, steps: [{page: ["schedule:s", "user:ana"]}]}}
notifiers:
  dm: {type: slack, token: t, signing_secret: s, api_url: "http://127.0.0.1:1/api", off: false}
  tg: {type: telegram, token: t, chat_id: -1001234, message_thread_id: 7, webhook_secret: abc, api_url: "http://127.0.0.1:2/", retries: *r}
  hook: {type: webhook, url: "http://10.0.0.1/x", secrets: [a, b], headers: {x-team: db}, timeout: 1m, concurrency: 8, off: true, retries: {max_delay: 1s}}
routes:
  - {match: "#", matchers: ['team="db", env!~"dev.*"'], labels: {n: 5, b: true, empty: ""}, notify: [tg, hook, tg], group_by: [job, env]}
sources: {am: {type: alertmanager, token: x, group_by: [alertname], reopen_after: 1d}}
kinds: {page: {wait: 2s, lifetime: 1w2d3h}, call: {on_unknown: retry}}
`)
	if f.Server.PublicURL != "http://localhost:8080/tocsin" || f.Server.ShutdownGrace != time.Minute || f.Server.Listen != "127.0.0.1:8080" {
		t.Errorf("server: %+v", f.Server)
	}
	if tk := f.Server.Tokens[0]; tk.Hash != "sha256:"+strings.Repeat("ab", 32) || len(tk.Scopes) != 2 {
		t.Errorf("token: %+v", tk)
	}
	if f.Worker.Lease != 2*time.Minute || f.Worker.Poll != 250*time.Millisecond || f.Reload.Grace != time.Hour {
		t.Errorf("%+v %+v", f.Worker, f.Reload)
	}
	s, _ := f.Schedule("s")
	if l := s.Layers[0]; l.Name != "main" || len(l.Users) != 2 || len(l.Users[0]) != 2 || l.Every.String() != "12 hours" || l.End.Hour() != 9 {
		t.Errorf("layer: %+v", l)
	}
	if e := f.Escalations["e"]; e.Every != time.Hour || len(e.Steps[0].Page) != 2 {
		t.Errorf("escalation: %+v", e)
	}
	dm, tg, hook := f.Notifiers["dm"], f.Notifiers["tg"], f.Notifiers["hook"]
	if dm.APIURL != "http://127.0.0.1:1/api/" || dm.SigningSecret != "s" {
		t.Errorf("slack: %+v", dm)
	}
	if tg.ChatID != "-1001234" || tg.MessageThreadID != 7 || tg.APIURL != "http://127.0.0.1:2" {
		t.Errorf("telegram: %+v", tg)
	}
	if r := tg.Retries; !r.Capped || r.Count != 0 || r.Delay != 10*time.Minute || r.MaxDelay != 10*time.Minute {
		t.Errorf("a delay above the default max_delay raises it: %+v", r)
	}
	if r := hook.Retries; r.Capped || r.Delay != time.Second || r.MaxDelay != time.Second {
		t.Errorf("a max_delay below the default delay lowers it: %+v", r)
	}
	if !hook.Off || hook.Timeout != time.Minute || hook.Concurrency != 8 || len(hook.Secrets) != 2 || hook.Headers["X-Team"] != "db" {
		t.Errorf("webhook: %+v", hook)
	}
	r := f.Routes[0]
	if len(r.Matchers) != 2 || !r.Matchers[1].Match(map[string]string{"env": "prod"}) || r.Labels["n"] != "5" || r.Labels["b"] != "true" || len(r.Labels) != 3 || len(r.Notify) != 2 || len(r.GroupBy) != 2 {
		t.Errorf("route: %+v", r)
	}
	if src := f.Sources["am"]; src.ReopenAfter != 24*time.Hour || src.Token != "x" {
		t.Errorf("source: %+v", src)
	}
	if p := f.Kinds[delivery.Page]; p.Wait != 2*time.Second || p.Lifetime != 9*24*time.Hour+3*time.Hour || p.OnUnknown != delivery.Retry {
		t.Errorf("page: %+v", p)
	}
	if f.Kinds[delivery.Call].OnUnknown != delivery.Retry {
		t.Errorf("call: %+v", f.Kinds[delivery.Call])
	}
}

// Rule 12: check warns where nobody would hear of tocsin's own troubles.
func TestWarnings(t *testing.T) {
	t.Parallel()
	const log = "notifiers: {a: {type: log, path: /x}, b: {type: log, path: /y}, a2: {type: log, path: /x}, off: {type: log, path: /z, off: true}, c: {type: telegram, token: \"1:a\"}, d: {type: telegram, token: \"1:a\"}}\n"
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"no route takes self-alerts":          {log + `routes: [{match: "alert.failed.#", notify: [a]}]`, []string{"no route takes alert.*.*._tocsin"}},
		"a condition on labels does not":      {log + `routes: [{match: "#", labels: {team: db}, notify: [a, b]}]`, []string{"no route takes alert.*.*._tocsin"}},
		"only some are taken":                 {log + `routes: [{match: "alert.*.critical.#", notify: [a, b]}]`, []string{"56 of 70 kinds of self-alerts are taken by no route, for example alert.delivery_rejected.high._tocsin"}},
		"only one notifier":                   {log + `routes: [{match: "#", notify: [a]}]`, []string{"self-alerts go out through a only"}},
		"two with the same credentials":       {log + `routes: [{match: "#", notify: [a, a2]}]`, []string{"self-alerts go out through a, a2 only"}},
		"one of two is off":                   {log + `routes: [{match: "#", notify: [a, off]}]`, []string{"self-alerts go out through a only"}},
		"all are off":                         {log + `routes: [{match: "#", notify: [off]}]`, []string{"reach no notifier that is on"}},
		"two notifiers":                       {log + `routes: [{match: "#", notify: [a]}, {match: "alert.*.*._tocsin", notify: [b]}]`, nil},
		"the second by an escalation":         {log + `escalations: {e: {steps: [{notify: [b]}]}}` + "\n" + `routes: [{match: "#", notify: [a], escalate: e}]`, nil},
		"the second by a contact":             {log + `users: [{id: ana, contacts: [{via: b}]}]` + "\n" + `escalations: {e: {steps: [{page: ["user:ana"]}]}}` + "\n" + `routes: [{match: "#", notify: [a], escalate: e}]`, nil},
		"somebody paged without a contact":    {log + `users: [{id: ana}]` + "\n" + `escalations: {e: {steps: [{page: ["user:ana"]}]}}` + "\n" + `routes: [{match: "#", notify: [a, b], escalate: e}]`, []string{"pages ana, who has no contacts"}},
		"two people with one account":         {log + `users: [{id: ana, contacts: [{via: c, address: "7"}, {via: d, address: "7", after: 1m}]}, {id: bo, contacts: [{via: c, address: "7"}]}]` + "\n" + `routes: [{match: "#", notify: [a, b]}]`, []string{"the telegram account 7 is that of ana and of bo"}},
		"a stop shorter than a call":          {`server: {public_url: "https://x.example.com", shutdown_grace: 5s}` + "\n" + log + `routes: [{match: "#", notify: [a, b]}]`, []string{"shutdown_grace 5s is shorter"}},
		"plain http on a public host":         {`server: {public_url: "http://tocsin.example.com"}` + "\n" + log + `routes: [{match: "#", notify: [a, b]}]`, []string{"plain http"}},
		"plain http on a private host is not": {`server: {public_url: "http://10.0.0.7:8080"}` + "\n" + log + `routes: [{match: "#", notify: [a, b]}]`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := c.text
			if !strings.Contains(text, "public_url") {
				text = minimal + text
			}
			got := parse(t, text).Warnings
			if len(got) != len(c.want) {
				t.Fatalf("warnings: %q", got)
			}
			for i := range got {
				if !strings.Contains(got[i], c.want[i]) {
					t.Errorf("%q does not hold %q", got[i], c.want[i])
				}
			}
		})
	}
}

func TestProblemsCarryTheirPath(t *testing.T) {
	t.Parallel()
	all := problems(t, minimal+"notifiers: {a: {type: log, path: /x, retries: {delay: x}}}\nroutes:\n  - {match: \"#\", notify: [b]}\n")
	if len(all) != 2 || all[0].Path != "notifiers.a.retries.delay" || all[1].Path != "routes[0].notify[0]" || all[1].Line != 4 || all[1].Column != 27 {
		t.Errorf("%+v", all)
	}
}

func TestAFileThatCannotBeReadIsAProblemOfTheFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "none.yaml")
	_, set, err := config.Load(path, environment)
	if err == nil || set == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("%v", err)
	}
	if err := os.WriteFile(path, make([]byte, config.MaxSize+10), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err = config.Load(path, environment); err == nil || !strings.Contains(err.Error(), "at most 1048576") {
		t.Errorf("%v", err)
	}
}

// Each of these takes the YAML parser minutes or gigabytes if it is let.
func TestHostileFilesAreRefusedAtOnce(t *testing.T) {
	t.Parallel()
	nested := "x0: &x0 [a]\n"
	for i := 1; i < 30; i++ {
		ref := "*x" + string(rune('0'+(i-1)/10)) + string(rune('0'+(i-1)%10))
		if i == 1 {
			ref = "*x0"
		}
		name := "x" + string(rune('0'+i/10)) + string(rune('0'+i%10))
		nested += "x-" + name + ": &" + name + " [" + strings.Repeat(ref+", ", 9) + ref + "]\n"
	}
	for name, text := range map[string]string{
		"brackets":             strings.Repeat("[", 100_000),
		"braces":               strings.Repeat("{a: ", 50_000),
		"dashes":               strings.Repeat("- ", 100_000),
		"question marks":       strings.Repeat("? ", 100_000),
		"tags":                 strings.Repeat("!a ", 50_000) + "x",
		"aliases":              strings.Repeat("*a ", 50_000),
		"colons":               strings.Repeat(": ", 100_000),
		"keys":                 strings.Repeat("a: b\n", 60_000),
		"aliases of aliases":   minimal + nested + "users: *x29\n",
		"a list of long lists": minimal + "x-l: &l [" + strings.Repeat("{id: a}, ", 1000) + "]\nusers: []\nschedules: [{id: s, time_zone: UTC, layers: [{users: [" + strings.Repeat("*l, ", 1000) + "]}]}]\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := config.Parse("f", []byte(text), environment)
			if err == nil {
				t.Fatal("it was taken")
			}
			if len(err.Error()) > 100_000 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
		})
	}
}

func FuzzParseNeverPanics(f *testing.F) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range append(files, "testdata/good/sample.yaml") {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		file, set, err := config.Parse("f", text, environment)
		if (err == nil) != (file != nil) || set == nil {
			t.Fatalf("file %v, set %v, error %v", file, set, err)
		}
		var all config.Errors
		if err != nil && (!errors.As(err, &all) || len(all) == 0 || err.Error() == "") {
			t.Fatalf("an error of another kind: %#v", err)
		}
		for i, p := range all {
			if i > 0 && p.Line < all[i-1].Line {
				t.Fatalf("not in order: %v", all)
			}
		}
	})
}
