package app

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tocsin-oncall/tocsin/pkg/store/storetest"
)

// served is one replica with a file that a test changes under it.
type served struct {
	t    *testing.T
	app  *App
	path string
	db   string
	base string
	dir  string
}

const servedHead = `
server: {listen: "127.0.0.1:0", metrics_listen: "127.0.0.1:0", public_url: "http://127.0.0.1:1"}
database: {url: %q}
`

// serveFile runs a replica with a file of these notifiers and routes until the test ends.
func serveFile(t *testing.T, db, rest string) *served {
	t.Helper()
	s := &served{t: t, db: db, dir: t.TempDir()}
	s.path = filepath.Join(s.dir, "tocsin.yaml")
	s.write(rest)
	a, err := New(t.Context(), Options{Path: s.path, Insecure: true})
	if err != nil {
		t.Fatal(err)
	}
	s.app = a
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	s.base = "http://" + a.Addr()
	eventually(t, "the replica is ready", func() bool { n, _ := status(t, s.base+"/readyz"); return n == http.StatusOK })
	return s
}

// write puts a new file in place of the old one, as a rename: nobody reads half of it.
func (s *served) write(rest string) {
	s.t.Helper()
	next := s.path + ".next"
	if err := os.WriteFile(next, fmt.Appendf(nil, servedHead+rest, s.db), 0o600); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(next, s.path); err != nil {
		s.t.Fatal(err)
	}
}

func (s *served) reload() {
	s.t.Helper()
	if err := s.app.Reload(s.t.Context(), true); err != nil {
		s.t.Fatal(err)
	}
}

func (s *served) metrics() string {
	s.t.Helper()
	resp, err := http.Get("http://" + s.app.MetricsAddr() + "/metrics")
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(text)
}

// fire sends an alert and returns the status.
func (s *served) fire(job string) int {
	resp, err := http.Post(s.base+"/v1/alerts", "application/json", strings.NewReader(fmt.Sprintf(`{"kind": "k", "criticality": "high", "job": %q, "title": "t"}`, job)))
	if err != nil {
		s.t.Error(err)
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

func logTo(name, path string) string {
	return fmt.Sprintf("notifiers: {%s: {type: log, path: %q}}\nroutes: [{match: \"#\", notify: [%s]}]\n", name, path, name)
}

// A changed file is taken by itself, also where only a link leads elsewhere, as a mounted ConfigMap changes.
func TestChangedFileIsTaken(t *testing.T) {
	t.Parallel()
	s := serveFile(t, storetest.New(t), logTo("first", "/dev/null"))
	data := func(name, rest string) {
		dir := filepath.Join(s.dir, name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "tocsin.yaml"), fmt.Appendf(nil, servedHead+rest, s.db), 0o600); err != nil {
			t.Fatal(err)
		}
		link := filepath.Join(s.dir, "..data.next")
		if err := os.Symlink(name, link); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(link, filepath.Join(s.dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	knows := func(name string) {
		t.Helper()
		eventually(t, name+" is known", func() bool { _, ok := s.app.file().Notifiers[name]; return ok })
	}
	data("..1", logTo("second", "/dev/null"))
	if err := os.Remove(s.path); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("..data/tocsin.yaml", s.path); err != nil {
		t.Fatal(err)
	}
	knows("second")
	data("..2", logTo("third", "/dev/null"))
	knows("third")
	eventually(t, "the database knows it", func() bool {
		return one[bool](t, s.db, "select notifiers = '{third}' and checksum = '"+s.app.file().Checksum+"' and file_error = '' from replica")
	})
	if m := s.metrics(); strings.Count(m, "\ntocsin_file_info{") != 1 || !strings.Contains(m, `tocsin_file_info{checksum="`+s.app.file().Checksum+`"} 1`) {
		t.Errorf("the metrics do not name one file:\n%s", m)
	}
}

// A secret that lies in a file of its own is read from it, kept out of sight, and a change of it is a change of the file.
func TestSecretOfAFileIsTakenWhenItChanges(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "token")
	put := func(v string) {
		if err := os.WriteFile(secret, []byte(v+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("xoxb-the-first-secret")
	s := serveFile(t, storetest.New(t), fmt.Sprintf("notifiers: {ops: {type: slack, token: \"${file:%s}\", channel: C0}}\nroutes: [{match: \"#\", notify: [ops]}]\n", secret))
	if got := s.app.file().Notifiers["ops"].Token; got != "xoxb-the-first-secret" {
		t.Errorf("the token is %q", got)
	}
	put("xoxb-the-second-secret")
	eventually(t, "the second secret is in force", func() bool { return s.app.file().Notifiers["ops"].Token == "xoxb-the-second-secret" })
	said := s.app.redacted("xoxb-the-first-secret and xoxb-the-second-secret")
	if strings.Contains(said, "xoxb") || !strings.Contains(said, "${file:") {
		t.Errorf("it says %q", said)
	}
}

// A wrong file changes nothing and is told: metric, row, log line and one alert, which resolves when the file is right again.
func TestWrongFileIsToldAndTheOldOneKept(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "out")
	s := serveFile(t, storetest.New(t), logTo("first", out))
	before := s.app.file()
	s.write("notifiers: {first: {type: lgo, path: /x}}\n")
	s.reload()
	s.reload() // asked again: still wrong, and no second alert
	if s.app.file() != before {
		t.Error("the wrong file is in force")
	}
	if !strings.Contains(s.metrics(), "\ntocsin_file_error 1\n") {
		t.Error("tocsin_file_error is not 1")
	}
	const told = "select count(*) = 1 from incident where key like '_tocsin:reload_failed:%' and state "
	if !one[bool](t, s.db, "select file_error like '%lgo%' and checksum = '"+before.Checksum+"' from replica") || !one[bool](t, s.db, told+"= 'open'") {
		t.Error("the database does not tell of it")
	}
	if got := s.fire("a"); got != http.StatusAccepted {
		t.Errorf("an alert meanwhile: %d", got)
	}
	s.write(logTo("first", out) + "# mended\n")
	s.reload()
	if s.app.file() == before || !strings.Contains(s.metrics(), "\ntocsin_file_error 0\n") {
		t.Error("the mended file is not in force")
	}
	eventually(t, "the alert is over", func() bool { return one[bool](t, s.db, told+"= 'resolved'") })
}

// A wrong file that is taken back is no fault any more, though nothing new comes into force.
func TestWrongFileThatIsTakenBack(t *testing.T) {
	t.Parallel()
	s := serveFile(t, storetest.New(t), logTo("first", "/dev/null"))
	s.write("notifiers: [")
	if err := s.app.Reload(t.Context(), false); err != nil || s.app.fileError() == "" {
		t.Fatalf("%q, %v", s.app.fileError(), err)
	}
	s.write(logTo("first", "/dev/null"))
	if err := s.app.Reload(t.Context(), false); err != nil || s.app.fileError() != "" {
		t.Errorf("%q, %v", s.app.fileError(), err)
	}
}

// A cap that a new file lowers ends what is above it at once, without waiting for its next try; a raised one lets it go on.
func TestLoweredCapHoldsAtOnce(t *testing.T) {
	t.Parallel()
	hook := func(count int) string {
		return fmt.Sprintf("notifiers: {hook: {type: webhook, url: \"http://127.0.0.1:1/\", retries: {count: %d, delay: 1ms, max_delay: 1h}}}\nroutes: [{match: \"#\", notify: [hook]}]\n", count)
	}
	s := serveFile(t, storetest.New(t), hook(50))
	if got := s.fire("a"); got != http.StatusAccepted {
		t.Fatal(got)
	}
	const where = "from delivery where notifier = 'hook' and kind = 'event'"
	eventually(t, "it has been tried often", func() bool { return one[bool](t, s.db, "select tries >= 12 "+where) })
	s.write(hook(60))
	s.reload()
	if !one[bool](t, s.db, "select state = 'pending' "+where) {
		t.Error("a raised cap has ended it")
	}
	s.write(hook(2))
	s.reload()
	eventually(t, "it is exhausted", func() bool {
		return one[bool](t, s.db, "select state = 'exhausted' and reason = 'retries_used_up' "+where)
	})
}
