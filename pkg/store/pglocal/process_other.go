//go:build !linux

package pglocal

import "syscall"

// endWithParent can do nothing here: only Linux tells a child of its parent's death. A server that is left over is
// found by the next start in the same folder.
func endWithParent(*syscall.SysProcAttr) {}
