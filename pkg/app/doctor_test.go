package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
	"github.com/tocsin-oncall/tocsin/pkg/redact"
	"github.com/tocsin-oncall/tocsin/pkg/store/storetest"
)

// examined is a provider whose examination is a function.
type examined func(context.Context, provider.Examination) []provider.Finding

func (examined) Do(context.Context, provider.Call) delivery.Result {
	panic("an examination calls nothing")
}

func (e examined) Examine(ctx context.Context, x provider.Examination) []provider.Finding {
	return e(ctx, x)
}

// silent can't be examined.
type silent struct{}

func (silent) Do(context.Context, provider.Call) delivery.Result {
	panic("an examination calls nothing")
}

// patient is what a doctor is asked to look at in a test.
type patient struct {
	t    *testing.T
	file string // what follows server and database
	url  string // of the database; empty: one of its own, migrated
	env  map[string]string
	o    DoctorOptions
}

// here answers as tocsin does.
func here(t *testing.T) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" {
			_, _ = w.Write([]byte("ok\n"))
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func (p *patient) examine() (Diagnosis, error) {
	p.t.Helper()
	if p.url == "" {
		p.url = storetest.New(p.t)
	}
	text := p.file
	if !strings.Contains(text, "server:") {
		text = "server: {public_url: \"" + here(p.t) + "\"}\n" + text
	}
	text += "\ndatabase: {url: \"${DB}\"}\n"
	p.o.Path = filepath.Join(p.t.TempDir(), "tocsin.yaml")
	if err := os.WriteFile(p.o.Path, []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
	p.o.Env = func(name string) (string, bool) {
		if name == "DB" {
			return p.url, true
		}
		v, ok := p.env[name]
		return v, ok
	}
	return Doctor(p.t.Context(), p.o)
}

// find gives the only check of the name, or fails.
func find(t *testing.T, d Diagnosis, about, check string) Check {
	t.Helper()
	var found []Check
	for _, c := range d.Checks {
		if c.About == about && c.Check == check {
			found = append(found, c)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d checks of %s, %s in\n%s", len(found), about, check, lines(d))
	}
	return found[0]
}

func lines(d Diagnosis) string {
	var b strings.Builder
	for _, c := range d.Checks {
		fmt.Fprintf(&b, "%s | %s | %s | %s | %s\n", c.Level, c.About, c.Check, c.Text, c.Fix)
	}
	return b.String()
}

const twoSlacks = `
notifiers:
  ops: {type: slack, token: "${TOKEN}", channel: C0}
  other: {type: slack, token: "${TOKEN}", channel: C1}
routes: [{match: "#", notify: [ops, other]}]
`

func TestDoctorExaminesEveryNotifier(t *testing.T) {
	t.Parallel()
	const secret = "xoxb-very-secret"
	now := time.Date(2026, 1, 5, 9, 0, 0, 0, time.UTC)
	p := &patient{t: t, env: map[string]string{"TOKEN": secret}}
	p.file = strings.Replace(twoSlacks, "routes:", `  off: {type: slack, token: "${TOKEN}", channel: C2, off: true}
  broken: {type: webhook, url: "https://h/x"}
  hangs: {type: webhook, url: "https://h/y"}
  panics: {type: webhook, url: "https://h/z"}
  mute: {type: log, path: /x}
  nothing: {type: log, path: /y}
routes:`, 1)
	p.o.now = func() time.Time { return now }
	p.o.make = func(n config.Notifier, _ *redact.Set) (provider.Provider, error) {
		switch n.Name {
		case "off":
			t.Error("a notifier that is off was looked at")
		case "broken":
			return nil, errors.New("its secret " + secret + " is none")
		case "panics":
			return examined(func(context.Context, provider.Examination) []provider.Finding { panic("at " + secret) }), nil
		case "hangs":
			return examined(func(ctx context.Context, _ provider.Examination) []provider.Finding {
				deadline, bounded := ctx.Deadline()
				if left := time.Until(deadline); !bounded || left > examineTimeout {
					return []provider.Finding{{Check: "bound", Level: provider.Bad, Text: "there is none"}}
				}
				return []provider.Finding{{Check: "bound", Level: provider.OK, Text: "there is one"}}
			}), nil
		case "mute":
			return silent{}, nil
		case "nothing":
			return examined(func(context.Context, provider.Examination) []provider.Finding { return nil }), nil
		}
		return examined(func(_ context.Context, x provider.Examination) []provider.Finding {
			if x.Live || !x.Now().Equal(now) || !strings.HasPrefix(x.PublicURL, "http://127.0.0.1") {
				t.Errorf("%s was asked to examine %+v", n.Name, x)
			}
			return []provider.Finding{
				{Check: "token", Level: provider.OK, Text: "good"},
				{Check: "channel " + n.Channel, Level: provider.Bad, Text: "the token " + n.Token + " does not see it", Fix: "invite @tocsin; not with " + n.Token},
				{Check: "scopes", Level: provider.Warn, Text: "one is missing"},
			}
		}), nil
	}
	d, err := p.examine()
	if err != nil {
		t.Fatal(err)
	}
	if text := lines(d); strings.Contains(text, secret) {
		t.Errorf("a secret is shown:\n%s", text)
	}
	for _, want := range []Check{
		{"ops", "token", provider.OK, "good", ""},
		{"ops", "channel C0", provider.Bad, "the token ${TOKEN} does not see it", "invite @tocsin; not with ${TOKEN}"},
		{"other", "channel C1", provider.Bad, "the token ${TOKEN} does not see it", "invite @tocsin; not with ${TOKEN}"},
		{"other", "scopes", provider.Warn, "one is missing", ""},
		{"broken", "set-up", provider.Bad, "its secret ${TOKEN} is none", "mend its settings in the file"},
		{"panics", "webhook", provider.Bad, "the examination broke off by a fault of tocsin: at ${TOKEN}", "please report it"},
		{"hangs", "bound", provider.OK, "there is one", ""},
		{"mute", "log", provider.OK, "nothing can be checked about a notifier of this type", ""},
		{"nothing", "log", provider.OK, "nothing was found", ""},
	} {
		if got := find(t, d, want.About, want.Check); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	if c := find(t, d, "off", "switch"); c.Level != provider.Warn || !strings.Contains(c.Text, "notifier_off") {
		t.Errorf("a notifier that is off: %+v", c)
	}
	bad, warnings := 0, 0
	for _, c := range d.Checks {
		switch c.Level {
		case provider.Bad:
			bad++
		case provider.Warn:
			warnings++
		}
	}
	if d.OK || d.Bad != bad || d.Warnings != warnings || bad < 4 {
		t.Errorf("the summary says %d bad, %d warnings, and there are %d and %d", d.Bad, d.Warnings, bad, warnings)
	}
	var back Diagnosis
	raw, err := json.Marshal(d)
	if err != nil || json.Unmarshal(raw, &back) != nil || len(back.Checks) != len(d.Checks) {
		t.Errorf("as JSON: %v", err)
	}
}

// An examination that does not come back ends by its bound, and the others are seen all the same.
func TestDoctorOutlivesAnExaminationThatHangs(t *testing.T) {
	t.Parallel()
	stuck := make(chan struct{})
	t.Cleanup(func() { close(stuck) })
	f, secrets, err := config.Parse("f", []byte("server: {public_url: \"http://127.0.0.1\"}\ndatabase: {url: postgres://h/x}\n"+twoSlacks), func(n string) (string, bool) { return "xoxb-token", n == "TOKEN" })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	d := &doctor{file: f, secrets: secrets, DoctorOptions: DoctorOptions{now: time.Now, make: func(n config.Notifier, _ *redact.Set) (provider.Provider, error) {
		return examined(func(context.Context, provider.Examination) []provider.Finding {
			if n.Name == "ops" {
				cancel()
				<-stuck
			}
			return []provider.Finding{{Check: "token", Level: provider.OK, Text: "good"}}
		}), nil
	}}}
	if got := d.aboutNotifier(ctx, f.Notifiers["ops"]); len(got) != 1 || got[0].Level != provider.Bad || !strings.Contains(got[0].Text, "not over within 20s") {
		t.Errorf("%+v", got)
	}
	if got := d.aboutNotifier(t.Context(), f.Notifiers["other"]); len(got) != 1 || got[0].Level != provider.OK {
		t.Errorf("%+v", got)
	}
}

func TestDoctorIsToldOfLive(t *testing.T) {
	t.Parallel()
	p := &patient{t: t, file: "notifiers: {ops: {type: log, path: /x}}\nroutes: [{match: \"#\", notify: [ops]}]"}
	p.o.Live = true
	p.o.make = func(config.Notifier, *redact.Set) (provider.Provider, error) {
		return examined(func(_ context.Context, x provider.Examination) []provider.Finding {
			return []provider.Finding{{Check: "live", Level: provider.OK, Text: fmt.Sprint(x.Live)}}
		}), nil
	}
	d, err := p.examine()
	if err != nil || find(t, d, "ops", "live").Text != "true" {
		t.Errorf("%v\n%s", err, lines(d))
	}
}

func TestDoctorOfAWrongFile(t *testing.T) {
	t.Parallel()
	p := &patient{t: t, file: "notifiers: {ops: {type: slak}}\nroutes: [{match: \"#\", notify: [opps]}]"}
	p.o.make = func(config.Notifier, *redact.Set) (provider.Provider, error) {
		t.Error("a notifier of a wrong file was looked at")
		return silent{}, nil
	}
	d, err := p.examine()
	var wrong config.Errors
	if !errors.As(err, &wrong) || d.OK || d.Bad != len(wrong) || len(d.Checks) != len(wrong) || len(wrong) < 2 {
		t.Fatalf("%v\n%s", err, lines(d))
	}
	if c := d.Checks[0]; c.About != "file" || !strings.HasPrefix(c.Check, "line 2:") || c.Fix == "" {
		t.Errorf("%+v", c)
	}
	p.o.Path = filepath.Join(t.TempDir(), "none.yaml")
	if d, err := Doctor(t.Context(), p.o); !errors.As(err, &wrong) || d.OK || len(d.Checks) != 1 || d.Checks[0].Check != "contents" {
		t.Errorf("a file that is not there: %v\n%s", err, lines(d))
	}
}

const quiet = `notifiers: {log: {type: log, path: /x}}
routes: [{match: "#", notify: [log]}]
`

// known takes everything for good that the file names.
func known(config.Notifier, *redact.Set) (provider.Provider, error) { return silent{}, nil }

func TestDoctorOfTheDatabase(t *testing.T) {
	t.Parallel()
	admin := func(t *testing.T, url string, statements ...string) {
		t.Helper()
		conn, err := pgx.Connect(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(t.Context())
		for _, q := range statements {
			if _, err := conn.Exec(t.Context(), q); err != nil {
				t.Fatalf("%s: %v", q, err)
			}
		}
	}
	for name, c := range map[string]struct {
		url         func(t *testing.T) string
		check       string
		level       provider.Level
		text, fix   string
		nothingElse bool // about what is stored
	}{
		"unreachable": {url: func(*testing.T) string { return "postgres://u:passw0rd@127.0.0.1:1/x" },
			check: "connection", level: provider.Bad, text: "does not answer", fix: "database.url", nothingElse: true},
		"empty": {url: func(t *testing.T) string { return storetest.NewEmpty(t) },
			check: "schema", level: provider.Bad, text: "no tables yet", fix: "tocsin migrate --config ", nothingElse: true},
		"older": {url: func(t *testing.T) string {
			url := storetest.New(t)
			admin(t, url, "delete from goose_db_version where version_id > 1")
			return url
		}, check: "schema", level: provider.Bad, text: "it is version 1, and this binary needs", fix: "tocsin migrate --config ", nothingElse: true},
		"newer": {url: func(t *testing.T) string {
			url := storetest.New(t)
			admin(t, url, "insert into goose_db_version (version_id, is_applied) values (9999, true)")
			return url
		}, check: "schema", level: provider.Bad, text: "newer than this binary knows", fix: "newer binary", nothingElse: true},
		"clock": {url: func(t *testing.T) string {
			url := storetest.New(t)
			storetest.MoveClock(t, url, -90*time.Second)
			return url
		}, check: "clock", level: provider.Warn, text: "1m30s behind this machine's", fix: "NTP"},
		"read-only": {url: func(t *testing.T) string {
			url := storetest.New(t)
			name := one[string](t, url, "select current_database()")
			admin(t, url, "alter database "+pgx.Identifier{name}.Sanitize()+" set default_transaction_read_only = on")
			return url
		}, check: "writes", level: provider.Bad, text: "read-only", fix: "default_transaction_read_only"},
		"superuser":  {url: migrated, check: "role", level: provider.Warn, text: "is a superuser", fix: "make a role"},
		"up to date": {url: migrated, check: "schema", level: provider.OK, text: "up to date"},
		"rights":     {url: migrated, check: "rights", level: provider.OK, text: "read and write all tables"},
		"wake-up":    {url: migrated, check: "wake-up", level: provider.OK, text: "LISTEN and NOTIFY work"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &patient{t: t, file: quiet, url: c.url(t)}
			p.o.make = known
			d, err := p.examine()
			if err != nil {
				t.Fatal(err)
			}
			got := find(t, d, "database", c.check)
			if got.Level != c.level || !strings.Contains(got.Text, c.text) || !strings.Contains(got.Fix, c.fix) || (got.Fix == "") != (c.level == provider.OK) {
				t.Errorf("%+v", got)
			}
			if text := lines(d); strings.Contains(text, "passw0rd") {
				t.Errorf("a password is shown:\n%s", text)
			}
			for _, k := range d.Checks {
				if k.About == "stored" && c.nothingElse {
					t.Errorf("something is said of what is stored: %+v", k)
				}
			}
		})
	}
}

func TestDoctorOfThePublicURL(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer http.HandlerFunc // nil: nobody listens
		level  provider.Level
		text   string
	}{
		"tocsin":    {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) }, provider.OK, "is tocsin"},
		"another":   {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>Welcome")) }, provider.Warn, "not as tocsin does"},
		"a gateway": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }, provider.Warn, "answers 502"},
		"a log-in":  {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/login", http.StatusFound) }, provider.Warn, "leads elsewhere (302)"},
		"nobody":    {nil, provider.Warn, "does not answer from here"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := httptest.NewServer(c.answer)
			defer srv.Close()
			if c.answer == nil {
				srv.Close()
			}
			p := &patient{t: t, url: "postgres://u@127.0.0.1:1/x", env: map[string]string{"TOKEN": "xoxb-token"}, file: "server: {public_url: \"" + srv.URL + "\"}\n" +
				`notifiers: {ops: {type: slack, token: "${TOKEN}", channel: C0, signing_secret: "${TOKEN}"}}
routes: [{match: "#", notify: [ops]}]`}
			p.o.make = known
			d, err := p.examine()
			if err != nil {
				t.Fatal(err)
			}
			if got := find(t, d, "public_url", "answer"); got.Level != c.level || !strings.Contains(got.Text, c.text) {
				t.Errorf("%+v", got)
			}
			// 127.0.0.1 is no address that Slack could send a button's press to.
			if got := find(t, d, "public_url", "address"); got.Level != provider.Warn || !strings.Contains(got.Text, "buttons of ops") {
				t.Errorf("%+v", got)
			}
		})
	}
}
