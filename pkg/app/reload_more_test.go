package app

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/provider/slack/slacktest"
	"github.com/tocsin-oncall/tocsin/pkg/store/storetest"
)

// A mark is never newer than what was read: what changes while the file is read is taken by the next look.
func TestChangeDuringAReadIsAnotherChange(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "tocsin.yaml")
	put := func(path, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	secret := filepath.Join(dir, "token")
	put(secret, "xoxb-first")
	put(path, fmt.Sprintf(servedHead, "postgres://x/y")+fmt.Sprintf("notifiers: {a: {type: slack, token: \"${file:%s}\", channel: \"${CHANNEL}\"}}\nroutes: []\n", secret))
	reads := 0
	env := func(name string) (string, bool) { // asked while the file is read
		if name == "CHANNEL" {
			if reads++; reads == 2 {
				put(secret, "xoxb-second")
			}
			return "C0", true
		}
		return "", false
	}
	f, _, mark, err := load(path, env, nil)
	if err != nil || f.Notifiers["a"].Token == "" || reads != 2 {
		t.Fatalf("%+v, %v, read %d times", f, err, reads)
	}
	if mark == config.Fingerprint(path, f.SecretFiles) {
		t.Error("the change while it was read has no mark of its own")
	}
	if f, _, mark, err = load(path, env, f.SecretFiles); err != nil || f.Notifiers["a"].Token != "xoxb-second" || mark != config.Fingerprint(path, f.SecretFiles) {
		t.Errorf("the next look: %+v, %v", f, err)
	}
}

// A file that an editor takes away for a moment, or has written half of, is not taken, and nobody is told of it.
func TestHalfAFileIsNotTaken(t *testing.T) {
	t.Parallel()
	s := &served{t: t, db: storetest.New(t), path: filepath.Join(t.TempDir(), "tocsin.yaml")}
	s.write(logTo("first", "/dev/null"))
	var err error
	if s.app, err = New(t.Context(), Options{Path: s.path, Insecure: true}); err != nil { // it does not run: only the test looks
		t.Fatal(err)
	}
	t.Cleanup(s.app.close)
	before := s.app.file()
	whole, err := os.ReadFile(s.path)
	if err != nil {
		t.Fatal(err)
	}
	look := func() {
		t.Helper()
		if !s.app.changing() {
			if err := s.app.Reload(t.Context(), false); err != nil {
				t.Fatal(err)
			}
		}
	}
	// A look between each of an editor's steps; half of it would be a good file.
	put := func(text string) {
		if err := os.WriteFile(s.path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		look()
	}
	if err := os.Remove(s.path); err != nil {
		t.Fatal(err)
	}
	look()
	next := strings.ReplaceAll(string(whole), "first", "second")
	put("")
	put(next[:strings.Index(next, "routes:")])
	put(next)
	if s.app.file() != before || s.app.fileError() != "" {
		t.Errorf("in force is %s, and %q is wrong", s.app.file().Checksum, s.app.fileError())
	}
	look()
	if _, ok := s.app.file().Notifiers["second"]; !ok || s.app.fileError() != "" {
		t.Errorf("the whole file is not in force: %q", s.app.fileError())
	}
}

// A file of secrets that comes later than the file that names it is found without another change of the file.
func TestSecretThatComesLater(t *testing.T) {
	t.Parallel()
	s := serveFile(t, storetest.New(t), logTo("first", "/dev/null"))
	secret := filepath.Join(t.TempDir(), "token")
	s.write(fmt.Sprintf("notifiers: {ops: {type: slack, token: \"${file:%s}\", channel: C0}}\nroutes: [{match: \"#\", notify: [ops]}]\n", secret))
	s.reload()
	if s.app.fileError() == "" {
		t.Fatal("the missing secret is no mistake")
	}
	if err := os.WriteFile(secret, []byte("xoxb-came-later\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the file is in force", func() bool {
		return s.app.file().Notifiers["ops"].Token == "xoxb-came-later" && s.app.fileError() == ""
	})
}

// The alert about a wrong file is raised also where the database did not take it at first.
func TestWrongFileIsToldOnceTheDatabaseTakesIt(t *testing.T) {
	t.Parallel()
	s := serveFile(t, storetest.New(t), logTo("first", "/dev/null"))
	conn, err := pgx.Connect(t.Context(), s.db)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	if _, err := conn.Exec(t.Context(), `create function no() returns trigger language plpgsql as $$ begin raise exception 'no'; end $$;
		create trigger no before insert on incident for each row execute function no()`); err != nil {
		t.Fatal(err)
	}
	s.write("notifiers: [")
	if err := s.app.Reload(t.Context(), true); err == nil {
		t.Error("the database takes no alert, and that is no error")
	}
	if _, err := conn.Exec(t.Context(), "drop trigger no on incident"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the alert is raised", func() bool {
		return one[bool](t, s.db, "select count(*) = 1 from incident where key like '_tocsin:reload_failed:%'")
	})
}

// What only a restart takes is said, as long as it differs from what runs.
func TestWhatNeedsARestartIsSaid(t *testing.T) {
	t.Parallel()
	s := serveFile(t, storetest.New(t), logTo("first", "/dev/null"))
	for _, step := range []struct {
		rest string
		want string
	}{
		{logTo("second", "/dev/null"), "tocsin_file_restart 0"},
		{logTo("second", "/dev/null") + "#elsewhere", "tocsin_file_restart 1"},
		{logTo("third", "/dev/null") + "#elsewhere", "tocsin_file_restart 1"},
		{logTo("first", "/dev/null"), "tocsin_file_restart 0"},
	} {
		s.write(step.rest)
		if strings.HasSuffix(step.rest, "#elsewhere") {
			text, err := os.ReadFile(s.path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(s.path, []byte(strings.Replace(string(text), `listen: "127.0.0.1:0"`, `listen: "127.0.0.1:1"`, 1)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s.reload()
		if !strings.Contains(s.metrics(), "\n"+step.want+"\n") {
			t.Errorf("after %q the metrics do not say %s", step.rest, step.want)
		}
	}
	other := *s.app.file()
	other.Database.URL, other.Database.MaxConnections, other.Server.MetricsListen = "postgres://other", 99, "127.0.0.1:2"
	if got := fmt.Sprint(afterRestart(s.app.file(), &other)); got != "[database.max_connections database.url server.metrics_listen]" {
		t.Error(got)
	}
}

// A token that a new file replaces ends the wait for the old one at once, and the alert about it as soon as no replica has the old file.
func TestNewTokenEndsTheWaitForTheOldOne(t *testing.T) {
	t.Parallel()
	slack := slacktest.Start(t, slacktest.Options{})
	rest := func(token string) string {
		return fmt.Sprintf("notifiers: {ops: {type: slack, token: %q, channel: C0OPS, api_url: %q}, aside: {type: log, path: /dev/null}}\nroutes: [{match: \"alert.k.#\", notify: [ops]}, {match: \"alert.*.*._tocsin\", notify: [aside]}]\n", token, slack.APIURL())
	}
	s := serveFile(t, storetest.New(t), rest("xoxb-revoked-long-ago"))
	s.fire("a")
	const alert = "select count(*) = 1 from incident where key like '_tocsin:notifier_broken:%' and state "
	eventually(t, "the account is in trouble", func() bool { return one[bool](t, s.db, alert+"= 'open'") })
	s.write(rest(slack.Options().Token))
	s.reload()
	eventually(t, "the card is sent", func() bool {
		return one[bool](t, s.db, "select count(*) = 1 from delivery where kind = 'card' and state = 'sent'")
	})
	storetest.MoveClock(t, s.db, time.Minute) // what other replicas may have found is left for half a minute
	comes(t, s.db, "the alert about the old token is over", alert+"= 'resolved'")
}

// A webhook's secrets are exchanged by reloads: with both in the file each call carries both signatures.
func TestSecretsAreExchangedByReloads(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var signatures []string
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		signatures = append(signatures, r.Header.Get("Webhook-Signature"))
	}))
	t.Cleanup(hook.Close)
	rest := func(secrets string) string {
		return fmt.Sprintf("notifiers: {hook: {type: webhook, url: %q, secrets: %s}}\nroutes: [{match: \"alert.k.#\", notify: [hook]}]\n", hook.URL, secrets)
	}
	s := serveFile(t, storetest.New(t), rest(`["old-secret-of-the-hook"]`))
	for i, secrets := range []string{"", `["new-secret-of-the-hook", "old-secret-of-the-hook"]`, `["new-secret-of-the-hook"]`} {
		if secrets != "" {
			s.write(rest(secrets))
			s.reload()
		}
		s.fire(fmt.Sprint(i))
		eventually(t, "it is sent", func() bool { mu.Lock(); defer mu.Unlock(); return len(signatures) == i+1 })
	}
	mu.Lock()
	defer mu.Unlock()
	for i, want := range []int{1, 2, 1} {
		if n := len(strings.Fields(signatures[i])); n != want {
			t.Errorf("call %d has %d signatures: %s", i, n, signatures[i])
		}
	}
}
