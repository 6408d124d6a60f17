package pglocal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// lockDir makes the folder and takes its lock, which the kernel gives back when this process ends, however it ends.
func lockDir(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("folder for Postgres: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("folder for Postgres: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("folder %s is in use by another tocsin: stop that one, or choose another folder", dir)
	}
	return f, nil
}

// madeBy returns the major version of Postgres that made the data, 0 where there is none yet.
func madeBy(data string) (int, error) {
	b, err := os.ReadFile(filepath.Join(data, "PG_VERSION"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("version of the Postgres data: %w", err)
	}
	major, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0, fmt.Errorf("folder %s holds no Postgres data of a version known here (PG_VERSION is %q): remove it to start afresh",
			data, strings.TrimSpace(string(b)))
	}
	return major, nil
}

// initData makes the data folder. It is made under another name and renamed when complete, so that a crash half-way
// leaves nothing that looks like data.
func initData(ctx context.Context, bins binaries, who user, data string, o Options) error {
	part, pwfile := data+".new", filepath.Join(o.Dir, "pwfile")
	if err := os.RemoveAll(part); err != nil {
		return fmt.Errorf("clear a half-made data folder: %w", err)
	}
	if err := os.Mkdir(part, 0o700); err != nil {
		return fmt.Errorf("data folder for Postgres: %w", err)
	}
	if err := who.own(part); err != nil {
		return err
	}
	password := newPassword()
	if err := os.WriteFile(filepath.Join(o.Dir, "password"), []byte(password), 0o600); err != nil {
		return fmt.Errorf("password of the superuser: %w", err)
	}
	if err := os.WriteFile(pwfile, []byte(password+"\n"), 0o600); err != nil {
		return fmt.Errorf("password of the superuser: %w", err)
	}
	defer os.Remove(pwfile)
	if err := who.own(pwfile); err != nil {
		return err
	}

	// md5 costs a test's every connection a few milliseconds less than scram does, on either side.
	auth := "scram-sha-256"
	if o.Fast && bins.major < 19 {
		auth = "md5"
	}
	args := []string{"-D", part, "-U", superuser, "--pwfile=" + pwfile, "-A", auth, "--encoding=UTF8", "--locale=" + locale()}
	if o.Fast {
		args = append(args, "--no-sync")
	}
	p, err := spawn(who, part, o.Log, bins.path("initdb"), args...)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, initLimit, fmt.Errorf("it took longer than %s", initLimit))
	defer cancel()
	select {
	case <-p.done:
	case <-ctx.Done():
		p.stop()
		return fmt.Errorf("initdb in %s: %w", part, context.Cause(ctx))
	}
	if p.err != nil {
		return fmt.Errorf("initdb in %s: %w: %s", part, p.err, p.tail.explain())
	}
	if err := os.Rename(part, data); err != nil {
		return fmt.Errorf("data folder for Postgres: %w", err)
	}
	return nil
}

// locale sorts by code point and knows UTF-8, where the system has such a locale.
func locale() string {
	if runtime.GOOS == "linux" {
		return "C.UTF-8"
	}
	return "C"
}

func readPassword(dir string) (string, error) {
	b, err := os.ReadFile(filepath.Join(dir, "password"))
	if err != nil {
		return "", fmt.Errorf("folder %s holds data but not its password: %w: remove the folder to start afresh", dir, err)
	}
	return string(b), nil
}

// clearStale deals with the postmaster.pid of an earlier server. We hold the folder's lock, so its parent is gone and
// the server itself is ending or dead: a living one gets time to end, a dead one's file is removed, since Postgres
// would take any process that has got that number meanwhile for a server.
func clearStale(ctx context.Context, data string) error {
	file := filepath.Join(data, "postmaster.pid")
	ctx, cancel := context.WithTimeout(ctx, stopLimit)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		b, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("is an earlier Postgres still there: %w", err)
		}
		first, _, _ := strings.Cut(string(b), "\n")
		pid, err := strconv.Atoi(strings.TrimSpace(first))
		if err != nil || !serves(pid, data) {
			if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("remove a dead server's pid file: %w", err)
			}
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("another Postgres (pid %d) runs in %s: stop it with `kill -INT %d`, or choose another folder", pid, data, pid)
		case <-tick.C:
		}
	}
}

// serves says whether the process lives and works in the data folder, as every Postgres does. Where that can't be
// told, living is enough. A process that we may not signal is someone else's, not the server of an earlier start.
func serves(pid int, data string) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	cwd, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "cwd"))
	if err != nil {
		return true
	}
	here, err := filepath.EvalSymlinks(data)
	return err != nil || cwd == here
}
