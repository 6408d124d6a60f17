package pglocal

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is one child: initdb or the server.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	err  error         // how it ended; read after done
	tail *tail
}

// spawn starts a child that ends with us. The kernel's "parent died" signal is tied to the thread that started the
// child, not to the process, so that thread is kept for the child's whole life.
func spawn(who user, dir string, log io.Writer, path string, args ...string) (*process, error) {
	p := &process{done: make(chan struct{}), tail: &tail{next: log}}
	p.cmd = exec.Command(path, args...)
	p.cmd.Dir = dir
	p.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TZ=UTC", "LC_ALL=" + locale()}
	if lib := os.Getenv("LD_LIBRARY_PATH"); lib != "" {
		p.cmd.Env = append(p.cmd.Env, "LD_LIBRARY_PATH="+lib)
	}
	p.cmd.Stdout, p.cmd.Stderr = p.tail, p.tail
	p.cmd.WaitDelay = 2 * time.Second // a left-over backend can hold the pipe open
	// A process group of its own: Ctrl-C in a terminal goes to the whole group, and Postgres is to end last.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if who.other() {
		p.cmd.SysProcAttr.Credential = &syscall.Credential{Uid: who.uid, Gid: who.gid, Groups: []uint32{}}
	}
	endWithParent(p.cmd.SysProcAttr)

	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this goroutine, after the child
		err := p.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	return p, nil
}

// stop ends the process: fast shutdown, then immediate, then kill.
func (p *process) stop() {
	for _, step := range []struct {
		signal syscall.Signal
		wait   time.Duration
	}{{syscall.SIGINT, stopLimit}, {syscall.SIGQUIT, quitLimit}, {syscall.SIGKILL, quitLimit}} {
		select {
		case <-p.done:
			return
		default:
		}
		// The error says that it has ended meanwhile, which done will say too.
		_ = p.cmd.Process.Signal(step.signal)
		timer := time.NewTimer(step.wait)
		select {
		case <-p.done:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// tail passes on what a child says and keeps the last of it for errors.
type tail struct {
	mu   sync.Mutex
	last []byte
	next io.Writer
}

const tailSize = 4096

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = append(t.last, b...)
	if len(t.last) > tailSize {
		t.last = append(t.last[:0], t.last[len(t.last)-tailSize:]...)
	}
	// A log that can't be written must not block or end the server.
	_, _ = t.next.Write(b)
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.last)
}

// complaint is how Postgres, initdb and apt begin their errors.
var complaint = regexp.MustCompile(`(FATAL|PANIC|error): |^E: `)

// explain is the first complaint in what the child said, else its last lines, on one line.
func (t *tail) explain() string {
	lines := strings.Split(strings.TrimSpace(t.String()), "\n")
	for i, l := range lines {
		if complaint.MatchString(l) {
			return strings.Join(lines[i:min(i+3, len(lines))], " | ")
		}
	}
	return strings.Join(lines[max(0, len(lines)-3):], " | ")
}
