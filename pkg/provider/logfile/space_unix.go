//go:build linux || darwin

package logfile

import (
	"io/fs"
	"syscall"
)

// space is how many bytes are left for tocsin on the disk of a folder, and of how many.
func space(folder string) (free, all uint64, ok bool) {
	var s syscall.Statfs_t
	if syscall.Statfs(folder, &s) != nil || s.Bsize <= 0 {
		return 0, 0, false
	}
	return s.Bavail * uint64(s.Bsize), s.Blocks * uint64(s.Bsize), s.Blocks > 0
}

// writable says why no file can be made in a folder.
func writable(folder string) error {
	const writeAndSearch = 0x2 | 0x1 // W_OK and X_OK
	if err := syscall.Access(folder, writeAndSearch); err != nil {
		return &fs.PathError{Op: "access", Path: folder, Err: err}
	}
	return nil
}
