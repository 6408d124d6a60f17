package pglocal

import "syscall"

// endWithParent has the kernel send the child a fast shutdown when we are gone, also by kill -9.
func endWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGINT }
