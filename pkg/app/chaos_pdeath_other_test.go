//go:build !linux

package app

import "syscall"

// dieWithUs has no means here: the test's cleanup ends its children.
func dieWithUs() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }
