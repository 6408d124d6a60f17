package pglocal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	osuser "os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// user is whom Postgres runs as: someone else where we are root, ourselves (the zero value) otherwise.
type user struct {
	name     string
	uid, gid uint32
}

// runAs chooses the user. Data made by one user stays with that user, also when another one has come since.
func runAs(data string) (user, error) {
	if os.Geteuid() != 0 {
		return user{}, nil
	}
	if fi, err := os.Stat(data); err == nil {
		if st, ok := fi.Sys().(*syscall.Stat_t); ok && st.Uid != 0 {
			return user{name: "uid " + strconv.Itoa(int(st.Uid)), uid: st.Uid, gid: st.Gid}, nil
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return user{}, fmt.Errorf("data folder for Postgres: %w", err)
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := osuser.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err1 == nil && err2 == nil && uid != 0 {
			return user{name: name, uid: uint32(uid), gid: uint32(gid)}, nil
		}
	}
	return user{}, errors.New("Postgres does not run as root, and there is neither a user postgres nor nobody to run it as: `useradd --system postgres`")
}

func (u user) other() bool { return u.uid != 0 }

// own gives a file or folder to the user.
func (u user) own(path string) error {
	if !u.other() {
		return nil
	}
	if err := os.Chown(path, int(u.uid), int(u.gid)); err != nil {
		return fmt.Errorf("give %s to user %s: %w", path, u.name, err)
	}
	return nil
}

// canReach opens the server's own folder for passing through, and says which folder above it is closed to the user.
func (u user) canReach(dir string) error {
	if !u.other() {
		return nil
	}
	path, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return fmt.Errorf("folder for Postgres: %w", err)
	}
	fi, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("folder for Postgres: %w", err)
	}
	if err := os.Chmod(path, fi.Mode().Perm()|0o111); err != nil {
		return fmt.Errorf("open the folder for Postgres to user %s: %w", u.name, err)
	}
	for at := path; ; at = filepath.Dir(at) {
		fi, err := os.Stat(at)
		if err != nil {
			return fmt.Errorf("folder for Postgres: %w", err)
		}
		need := fs.FileMode(0o001)
		if st, ok := fi.Sys().(*syscall.Stat_t); ok {
			switch {
			case st.Uid == u.uid:
				need = 0o100
			case st.Gid == u.gid:
				need = 0o010
			}
		}
		if fi.Mode().Perm()&need == 0 {
			return fmt.Errorf("Postgres does not run as root, and folder %s is closed to user %s, whom it runs as: choose a folder elsewhere, as /var/lib/tocsin-dev or /tmp/tocsin",
				at, u.name)
		}
		if at == filepath.Dir(at) {
			return nil
		}
	}
}
