package pglocal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	embedded "github.com/fergusstrange/embedded-postgres"
)

// installLimit bounds the download and unpacking of Postgres.
const installLimit = 8 * time.Minute

// install gets binaries onto the machine: by apt as root, by the embedded-postgres library as anyone else. The error
// ends a sentence that began with what is missing.
func install(ctx context.Context, log io.Writer) error {
	ctx, cancel := context.WithTimeoutCause(ctx, installLimit, fmt.Errorf("it took longer than %s", installLimit))
	defer cancel()
	if os.Geteuid() != 0 {
		if err := installEmbedded(ctx, log); err != nil {
			return fmt.Errorf("as root, `apt-get install postgresql` brings it (embedded-postgres could not be had: %w)", err)
		}
		return nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return errors.New("install it with your system's package manager, or set TOCSIN_PG_BIN to the folder of postgres and initdb")
	}
	return installApt(ctx, log)
}

// installApt installs Debian's postgresql without the cluster that it would make and start by itself.
func installApt(ctx context.Context, log io.Writer) error {
	const conf = "/etc/postgresql-common/createcluster.conf"
	if _, err := os.Stat(conf); errors.Is(err, os.ErrNotExist) {
		if err := os.MkdirAll(filepath.Dir(conf), 0o755); err != nil {
			return fmt.Errorf("keep apt from starting a server of its own: %w", err)
		}
		if err := os.WriteFile(conf, []byte("create_main_cluster = false\n"), 0o644); err != nil {
			return fmt.Errorf("keep apt from starting a server of its own: %w", err)
		}
	}
	fmt.Fprintln(log, "installing Postgres: apt-get install postgresql")
	var err error
	for _, args := range [][]string{
		{"-qq", "update"},
		{"-qq", "-y", "--no-install-recommends", "-o", "Dpkg::Options::=--force-confold", "install", "postgresql"},
	} {
		var said bytes.Buffer
		cmd := exec.CommandContext(ctx, "apt-get", args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		cmd.Stdout, cmd.Stderr = io.MultiWriter(log, &said), io.MultiWriter(log, &said)
		cmd.WaitDelay = 5 * time.Second
		if err = cmd.Run(); err != nil {
			t := tail{last: said.Bytes()}
			err = fmt.Errorf("`apt-get install postgresql` would bring it, and failed: %w: %s", err, t.explain())
		}
	}
	// A failed update is no failure: the lists that are there may do.
	return err
}

// embeddedDir is where the library's binaries are kept.
func embeddedDir() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(cache, "tocsin", "postgres"), nil
}

// installEmbedded has the library download and unpack its binaries, which it does only in starting a server: a
// throw-away one, stopped at once. Ours then runs on the same binaries.
func installEmbedded(ctx context.Context, log io.Writer) error {
	dir, err := embeddedDir()
	if err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "tocsin-embedded-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	port, err := freePort()
	if err != nil {
		return err
	}
	fmt.Fprintln(log, "downloading Postgres with embedded-postgres")
	pg := embedded.NewDatabase(embedded.DefaultConfig().
		Port(uint32(port)).
		Password(newPassword()).
		CachePath(filepath.Join(scratch, "cache")).
		RuntimePath(filepath.Join(scratch, "run")).
		DataPath(filepath.Join(scratch, "data")).
		BinariesPath(dir).
		StartTimeout(time.Minute).
		Logger(log))
	done := make(chan error, 1)
	go func() {
		err := pg.Start()
		if err == nil {
			err = pg.Stop()
		}
		done <- err
	}()
	// The library takes no context: at the limit it is left behind, and the caller ends with the error.
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
