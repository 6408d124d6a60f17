package pglocal_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tocsin-oncall/tocsin/pkg/store/pglocal"
)

// scratch is a folder for a server, in a place where the server's user may go.
func scratch(t *testing.T) string {
	t.Helper()
	dir, err := pglocal.Scratch()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func start(t *testing.T, o pglocal.Options) *pglocal.Server {
	t.Helper()
	s, err := pglocal.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

// ask returns the one text that a query answers.
func ask(t *testing.T, url, query string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	var s string
	if err := conn.QueryRow(t.Context(), query).Scan(&s); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return s
}

func TestServerKeepsItsDataAcrossStarts(t *testing.T) {
	t.Parallel()
	dir := scratch(t)
	s := start(t, pglocal.Options{Dir: dir, Fast: true, Settings: map[string]string{"work_mem": "7MB"}})
	for range 2 { // the second time it is there already
		if err := s.CreateDatabase(t.Context(), "tocsin"); err != nil {
			t.Fatal(err)
		}
	}
	for query, want := range map[string]string{
		"show work_mem":                "7MB",
		"show timezone":                "UTC",
		"show fsync":                   "off",
		"show listen_addresses":        "127.0.0.1",
		"show unix_socket_directories": "",
		"select ('a' < 'B')::text":     "false", // by code point
	} {
		if got := ask(t, s.URL("tocsin"), query); got != want {
			t.Errorf("%s is %q, want %q", query, got, want)
		}
	}
	s.Stop()
	s.Stop() // once more does no harm
	select {
	case <-s.Done():
	default:
		t.Error("Done is open after Stop")
	}

	again := start(t, pglocal.Options{Dir: dir})
	if got := ask(t, again.URL("tocsin"), "select current_database()::text"); got != "tocsin" {
		t.Errorf("after a second start the database is %q", got)
	}
	if got := ask(t, again.URL("tocsin"), "show fsync"); got != "on" {
		t.Errorf("fsync is %q without Fast", got)
	}
}

func TestWrongPasswordIsRefused(t *testing.T) {
	t.Parallel()
	s := start(t, pglocal.Options{Dir: scratch(t), Fast: true})
	config, err := pgx.ParseConfig(s.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	config.Password = "postgres"
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err == nil {
		conn.Close(t.Context())
		t.Fatal("another password opens the server")
	}
	if !strings.Contains(err.Error(), "password authentication failed") {
		t.Errorf("refused with %v", err)
	}
}

func TestFolderInUseIsRefused(t *testing.T) {
	t.Parallel()
	dir := scratch(t)
	start(t, pglocal.Options{Dir: dir, Fast: true})
	_, err := pglocal.Start(t.Context(), pglocal.Options{Dir: dir})
	if err == nil || !strings.Contains(err.Error(), "is in use by another tocsin") {
		t.Errorf("a second server in one folder: %v", err)
	}
}

func TestTakenPortIsNamed(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = pglocal.Start(t.Context(), pglocal.Options{Dir: scratch(t), Fast: true, Port: l.Addr().(*net.TCPAddr).Port})
	if err == nil || !strings.Contains(err.Error(), "could not create any TCP/IP sockets") {
		t.Errorf("a taken port: %v", err)
	}
}

func TestCrashedServerStartsAgain(t *testing.T) {
	t.Parallel()
	dir := scratch(t)
	s := start(t, pglocal.Options{Dir: dir, Fast: true})
	if err := s.CreateDatabase(t.Context(), "kept"); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(s.Pid(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-s.Done()
	s.Stop()

	// The dead server's number now belongs to someone who lives: this test.
	pidFile := filepath.Join(dir, "data", "postmaster.pid")
	old, err := os.ReadFile(pidFile)
	if err != nil {
		t.Fatalf("the kill left no pid file: %v", err)
	}
	_, rest, _ := strings.Cut(string(old), "\n")
	if err := os.WriteFile(pidFile, []byte(strconv.Itoa(os.Getppid())+"\n"+rest), 0o600); err != nil {
		t.Fatal(err)
	}
	again := start(t, pglocal.Options{Dir: dir, Fast: true})
	if got := ask(t, again.URL("kept"), "select current_database()::text"); got != "kept" {
		t.Errorf("after the crash the database is %q", got)
	}
}

func TestDataOfAnotherVersionIsRefused(t *testing.T) {
	t.Parallel()
	dir := scratch(t)
	data := filepath.Join(dir, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	for content, want := range map[string]string{
		"9\n":   "was made by Postgres 9, and only",
		"new\n": "holds no Postgres data of a version known here",
	} {
		if err := os.WriteFile(filepath.Join(data, "PG_VERSION"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := pglocal.Start(t.Context(), pglocal.Options{Dir: dir})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "remove") {
			t.Errorf("data of version %q: %v", content, err)
		}
	}
}

func TestBinariesOfTheEnvironmentAloneCount(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TOCSIN_PG_BIN", dir)
	_, err := pglocal.Start(t.Context(), pglocal.Options{Dir: scratch(t)})
	if err == nil || !strings.Contains(err.Error(), "TOCSIN_PG_BIN is "+dir) {
		t.Errorf("an empty TOCSIN_PG_BIN: %v", err)
	}

	old := "#!/bin/sh\necho 'postgres (PostgreSQL) 13.9'\n"
	for _, name := range []string{"postgres", "initdb"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(old), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	_, err = pglocal.Start(t.Context(), pglocal.Options{Dir: scratch(t)})
	if err == nil || !strings.Contains(err.Error(), "version 14 or later") {
		t.Errorf("Postgres 13: %v", err)
	}
}

func TestClosedFolderIsNamed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	closed := filepath.Join(dir, "closed")
	if err := os.Mkdir(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	s, err := pglocal.Start(t.Context(), pglocal.Options{Dir: filepath.Join(closed, "pg"), Fast: true})
	if os.Geteuid() != 0 {
		if err != nil {
			t.Fatalf("our own folder is not closed to us: %v", err)
		}
		s.Stop()
		return
	}
	if err == nil {
		s.Stop()
		t.Fatal("root's server started in a folder that is closed to its user")
	}
	if !strings.Contains(err.Error(), "is closed to user") {
		t.Errorf("a closed folder: %v", err)
	}
}

func TestStartGivesUpWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := pglocal.Start(ctx, pglocal.Options{Dir: scratch(t), Fast: true})
	if err == nil || !strings.Contains(err.Error(), "context canceled") {
		t.Errorf("start with a context that is over: %v", err)
	}
}

// TestHelperParent is not a test of its own: as a child of the next test it starts a server, says its pid and waits
// to be killed.
func TestHelperParent(t *testing.T) {
	dir := os.Getenv("PGLOCAL_TEST_PARENT")
	if dir == "" {
		return
	}
	s, err := pglocal.Start(context.Background(), pglocal.Options{Dir: dir, Fast: true})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("pid", s.Pid())
	<-s.Done()
}

func TestServerEndsWithAKilledParent(t *testing.T) {
	t.Parallel()
	dir := scratch(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	parent := exec.Command(exe, "-test.run=^TestHelperParent$", "-test.v")
	parent.Env = append(os.Environ(), "PGLOCAL_TEST_PARENT="+dir)
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = parent.Process.Kill() }()
	pid := 0
	for lines := bufio.NewScanner(out); pid == 0 && lines.Scan(); {
		if s, ok := strings.CutPrefix(lines.Text(), "pid "); ok {
			if pid, err = strconv.Atoi(s); err != nil {
				t.Fatal(err)
			}
		}
	}
	if pid == 0 {
		t.Fatal("the child started no server")
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()

	// The next start in the same folder waits for the orphan to end, and needs no help.
	s := start(t, pglocal.Options{Dir: dir, Fast: true})
	if s.Pid() == pid {
		t.Error("the same process again")
	}
	if err := syscall.Kill(pid, 0); err == nil && !zombie(pid) {
		t.Errorf("the server %d lives on without its parent", pid)
	}
}

// zombie says whether a process is dead and only not yet collected, as happens where no init collects orphans.
func zombie(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && strings.Contains(string(b), ") Z ")
}
