// Package pglocal starts a private Postgres for development and tests: one server process, its data in one folder,
// reachable on 127.0.0.1 only and with a random password, gone when its parent is gone. It is not for production.
//
// It uses installed binaries of version 14 or later where it finds them, otherwise it gets some: by apt as root on
// Debian, else by the embedded-postgres library. Postgres refuses to run as root, so root's server runs as the user
// postgres, or nobody where there is none.
package pglocal

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// superuser is the one role that a new server has.
const superuser = "postgres"

// How long each step may take. A start is long only after a crash with much to recover.
const (
	initLimit  = 60 * time.Second
	startLimit = 60 * time.Second
	stopLimit  = 20 * time.Second // then immediate shutdown
	quitLimit  = 5 * time.Second  // then kill
)

// Options says where a server lives and how it runs.
type Options struct {
	// Dir belongs to the server alone: its data, password and lock lie in it. It is made where it does not exist; the
	// data of an earlier start is used again. As root it must lie where other users may go, so not under /root.
	Dir string
	// Port on 127.0.0.1; 0 takes a free one.
	Port int
	// Fast gives up all durability for speed: for tests.
	Fast bool
	// Settings are further server settings, as in postgresql.conf. They win over those of Fast.
	Settings map[string]string
	// Log receives what Postgres says; nil drops it. The last of it is in errors all the same.
	Log io.Writer
	// Progress receives a line when Postgres has to be installed first, and what the installer says; nil: Log does.
	Progress io.Writer
}

// Server is a running Postgres.
type Server struct {
	dir      string
	port     int
	password string
	process  *process
	lock     *os.File
}

// Start starts a server and returns once it takes connections. ctx bounds the start, not the server's life: that ends
// by [Server.Stop], or with this process. Every error is one sentence that says what is missing and what to do.
func Start(ctx context.Context, o Options) (*Server, error) {
	if o.Dir == "" {
		return nil, errors.New("pglocal: Options.Dir is empty: name a folder for the server's data")
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("pglocal: folder %s: %w", o.Dir, err)
	}
	o.Dir = dir
	if o.Log == nil {
		o.Log = io.Discard
	}
	if o.Progress == nil {
		o.Progress = o.Log
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir, lock: lock}
	if err := s.start(ctx, o); err != nil {
		lock.Close()
		return nil, err
	}
	return s, nil
}

// URL is the address of one of the server's databases, with the superuser's name and password.
func (s *Server) URL(database string) string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(superuser, s.password),
		Host:     net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)),
		Path:     "/" + database,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// CreateDatabase makes a database where it does not exist yet.
func (s *Server) CreateDatabase(ctx context.Context, name string) error {
	conn, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		return fmt.Errorf("create database %s: %w", name, err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var there bool
	if err := conn.QueryRow(ctx, "select exists (select from pg_database where datname = $1)", name).Scan(&there); err != nil {
		return fmt.Errorf("create database %s: %w", name, err)
	}
	if there {
		return nil
	}
	if _, err := conn.Exec(ctx, "create database "+pgx.Identifier{name}.Sanitize()); err != nil {
		return fmt.Errorf("create database %s: %w", name, err)
	}
	return nil
}

// DropDatabase removes a database with its open sessions, where it exists.
func (s *Server) DropDatabase(ctx context.Context, name string) error {
	conn, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		return fmt.Errorf("drop database %s: %w", name, err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, "drop database if exists "+pgx.Identifier{name}.Sanitize()+" with (force)"); err != nil {
		return fmt.Errorf("drop database %s: %w", name, err)
	}
	return nil
}

// Done is closed when the server has ended, by Stop or by itself.
func (s *Server) Done() <-chan struct{} { return s.process.done }

// Pid is the process id of the server: for tests that freeze or kill it.
func (s *Server) Pid() int { return s.process.cmd.Process.Pid }

// Stop ends the server: open sessions are cut, data is written out. It returns when the process is gone, after 25 s at
// the latest, and may be called again.
func (s *Server) Stop() {
	s.process.stop()
	s.lock.Close()
}

// DevDir is where the development server keeps its data: /var/lib/tocsin-dev as root, whose own folders are closed to
// the user that Postgres then runs as; the user's cache folder otherwise.
func DevDir() (string, error) {
	if os.Geteuid() == 0 {
		return "/var/lib/tocsin-dev", nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no folder for the development data: %w: set HOME or XDG_CACHE_HOME", err)
	}
	return filepath.Join(cache, "tocsin", "dev"), nil
}

func (s *Server) start(ctx context.Context, o Options) error {
	data := filepath.Join(o.Dir, "data")
	made, err := madeBy(data)
	if err != nil {
		return err
	}
	bins, err := findBinaries(ctx, made, o)
	if err != nil {
		return err
	}
	who, err := runAs(data)
	if err != nil {
		return err
	}
	if err := who.canReach(o.Dir); err != nil {
		return err
	}
	if made == 0 {
		if err := initData(ctx, bins, who, data, o); err != nil {
			return err
		}
	}
	if s.password, err = readPassword(o.Dir); err != nil {
		return err
	}
	if err := clearStale(ctx, data); err != nil {
		return err
	}

	// A free port can be taken by someone else between the asking and Postgres' own bind: then the next one.
	for try := 1; ; try++ {
		if s.port = o.Port; s.port == 0 {
			if s.port, err = freePort(); err != nil {
				return err
			}
		}
		err := s.launch(ctx, bins, who, data, o)
		if err == nil {
			return nil
		}
		if o.Port != 0 || try == 5 || !strings.Contains(s.process.tail.String(), "could not bind") {
			return err
		}
	}
}

// launch starts the server process and waits until it takes connections.
func (s *Server) launch(ctx context.Context, bins binaries, who user, data string, o Options) error {
	p, err := spawn(who, data, o.Log, bins.path("postgres"), serverArgs(data, s.port, o)...)
	if err != nil {
		return err
	}
	s.process = p
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("it took no connection within %s", startLimit))
	defer cancel()
	// A try ends with the server: the port may be another program's, which takes the connection and says nothing.
	try, end := context.WithCancel(ctx)
	defer end()
	go func() {
		select {
		case <-p.done:
			end()
		case <-try.Done():
		}
	}()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		var conn *pgx.Conn
		if conn, err = pgx.Connect(try, s.URL("postgres")); err == nil {
			conn.Close(ctx)
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("postgres in %s ended while starting: %s", o.Dir, p.tail.explain())
		case <-ctx.Done():
			p.stop()
			return fmt.Errorf("postgres in %s did not start: %w (last try: %w): %s", o.Dir, context.Cause(ctx), err, p.tail.explain())
		case <-tick.C:
		}
	}
}

// serverArgs are the command line of the server. No Unix socket: Debian's default folder for it belongs to one user,
// and a long path would not fit into a socket's address.
func serverArgs(data string, port int, o Options) []string {
	set := map[string]string{
		"listen_addresses":        "127.0.0.1",
		"port":                    strconv.Itoa(port),
		"unix_socket_directories": "",
		"timezone":                "UTC",
		"log_timezone":            "UTC",
		"max_connections":         "200",
		"log_min_messages":        "warning",
		"ssl":                     "off",
	}
	if o.Fast {
		for k, v := range map[string]string{
			"fsync":              "off",
			"synchronous_commit": "off",
			"full_page_writes":   "off",
			"wal_level":          "minimal",
			"max_wal_senders":    "0",
			"max_wal_size":       "512MB",
			"max_connections":    "400",
			"shared_buffers":     "128MB",
			"checkpoint_timeout": "30min",
			"jit":                "off",
		} {
			set[k] = v
		}
	}
	for k, v := range o.Settings {
		set[k] = v
	}
	args := []string{"-D", data}
	for k, v := range set {
		args = append(args, "-c", k+"="+v)
	}
	return args
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("no free port on 127.0.0.1 for Postgres: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func newPassword() string {
	b := make([]byte, 16)
	rand.Read(b)
	return hex.EncodeToString(b)
}
