package pglocal

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// scratchRoom is what a folder in memory must have free to take a test server: a container's default of 64 MB is not
// enough.
const scratchRoom = 1 << 30

// Scratch makes a folder for a throw-away server: in memory where there is room, else among the temporary files. The
// caller removes it after [Server.Stop]. Folders that killed runs left behind are removed on the way.
func Scratch() (string, error) {
	var first error
	for _, base := range []string{"/dev/shm", os.TempDir(), "/tmp"} {
		if base == "/dev/shm" && !roomy(base) {
			continue
		}
		sweep(base)
		dir, err := os.MkdirTemp(base, scratchPrefix)
		if err == nil {
			if who, err1 := runAs(dir); err1 != nil {
				err = err1
			} else if err = who.canReach(dir); err == nil {
				return dir, nil
			}
			_ = os.Remove(dir)
		}
		if first == nil {
			first = err
		}
	}
	return "", fmt.Errorf("no folder for a test server: %w", first)
}

const scratchPrefix = "tocsin-pg-"

// sweep removes the folders of servers whose parent was killed: nobody holds their lock, and they are not just being
// made.
func sweep(base string) {
	dirs, _ := filepath.Glob(filepath.Join(base, scratchPrefix+"*"))
	for _, dir := range dirs {
		fi, err := os.Lstat(dir)
		if err != nil || !fi.IsDir() || time.Since(fi.ModTime()) < time.Minute {
			continue
		}
		if st, ok := fi.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Geteuid() {
			continue
		}
		lock, err := lockDir(dir)
		if err != nil {
			continue
		}
		// What can't be removed is tried again by the next run.
		_ = os.RemoveAll(dir)
		_ = lock.Close()
	}
}

// roomy says whether we can write into the folder and it has scratchRoom to spare.
func roomy(dir string) bool {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil || fs.Bavail*uint64(fs.Bsize) < scratchRoom {
		return false
	}
	probe, err := os.MkdirTemp(dir, "tocsin-probe-")
	if err != nil {
		return false
	}
	return os.Remove(probe) == nil
}
