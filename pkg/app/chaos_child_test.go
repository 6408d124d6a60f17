package app

import (
	"os/exec"
	"runtime"
)

// child is a process that ends with the test's own, however that ends.
type child struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it is gone; err is set then
	err  error
}

// startChild starts cmd. The kernel's "parent died" signal is tied to the thread that started the child, so that thread
// is kept for the child's whole life.
func startChild(cmd *exec.Cmd) (*child, error) {
	c := &child{cmd: cmd, done: make(chan struct{})}
	cmd.SysProcAttr = dieWithUs()
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this goroutine, after the child
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		c.err = cmd.Wait()
		close(c.done)
	}()
	return c, <-started
}
