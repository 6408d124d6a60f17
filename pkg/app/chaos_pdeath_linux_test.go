package app

import "syscall"

// dieWithUs ends a child when the test's process is gone, however that ends: a replica that was frozen then would stay
// for ever.
func dieWithUs() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
