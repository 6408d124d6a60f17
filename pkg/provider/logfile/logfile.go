// Package logfile appends events to a file, one JSON object a line, and says sent only when the disk has them.
package logfile

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
	"github.com/tocsin-oncall/tocsin/pkg/provider/wire"
)

// DefaultTimeout bounds a call where the notifier sets none.
const DefaultTimeout = 10 * time.Second

// maxStuck is how many writers may hang in the kernel, each with a thread of its own. A process that has ten thousand
// threads ends, and a disk that hangs for a night must not bring that about.
const maxStuck = 16

// file is what is needed of an open file; tests put faults behind it.
type file interface {
	Write([]byte) (int, error)
	ReadAt([]byte, int64) (int, error)
	Stat() (fs.FileInfo, error)
	Lock()
	Unlock()
	Sync() error
	Close() error
}

// Provider appends to one path. It is safe for use by many goroutines, and beside other processes that append to the
// same file: each line is one write to the end. The file is opened for every line, so it may be rotated at any time.
type Provider struct {
	path    string
	timeout time.Duration
	clean   wire.Redactor
	open    func(path string) (file, error)
	stuck   atomic.Int32 // writers that were given up and have not come back yet
}

var (
	_ provider.Provider = (*Provider)(nil)
	_ provider.Examiner = (*Provider)(nil)
)

// New makes a provider of a notifier with a path. red may be nil.
func New(n config.Notifier, red wire.Redactor) (*Provider, error) {
	if n.Path == "" {
		return nil, fmt.Errorf("notifier %s: log needs path", n.Name)
	}
	p := &Provider{path: n.Path, timeout: n.Timeout, clean: wire.Hide(red), open: openAppend}
	if p.timeout <= 0 {
		p.timeout = DefaultTimeout
	}
	return p, nil
}

// locked is a file that writers take in turn. The lock is for them alone: a line is one write in any case, but whoever
// looks whether the file ends with a line's end must not see a line that is just being written. Where a file system
// has no locks there is none.
type locked struct{ *os.File }

// Lock waits for the other writers. It may wait for long; Do is not kept by it.
func (l locked) Lock() { l.flock(syscall.LOCK_EX) }

// Unlock lets the next writer write; closing would do it too, but only after the disk has answered.
func (l locked) Unlock() { l.flock(syscall.LOCK_UN) }

func (l locked) flock(how int) {
	raw, err := l.SyscallConn() // Fd would make a pipe blocking
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		for errors.Is(syscall.Flock(int(fd), how), syscall.EINTR) {
		}
	})
}

func openAppend(path string) (file, error) {
	// O_NONBLOCK, so that a pipe that nobody reads is an error and no wait without end; files do not mind it. Reading
	// is for the last byte; what can only be written is opened so.
	const flags = os.O_APPEND | os.O_CREATE | syscall.O_NONBLOCK | syscall.O_CLOEXEC
	f, err := os.OpenFile(path, flags|os.O_RDWR, 0o640)
	if errors.Is(err, fs.ErrPermission) {
		f, err = os.OpenFile(path, flags|os.O_WRONLY, 0o640)
	}
	if err != nil {
		return nil, err
	}
	return locked{f}, nil
}

// Do appends the payload to the address, or to the notifier's path where the call has none. Only creates are possible.
func (p *Provider) Do(ctx context.Context, c provider.Call) delivery.Result {
	began := time.Now()
	res := p.do(ctx, c)
	res.Duration = time.Since(began)
	res.Error, res.Sentence = p.clean.String(res.Error), p.clean.String(res.Sentence)
	return res
}

func (p *Provider) do(ctx context.Context, c provider.Call) delivery.Result {
	if c.Operation != delivery.OpCreate {
		return failed(delivery.NotCalled, delivery.FaultPayload, "payload:operation", "a log can neither edit nor reply", nil)
	}
	var line bytes.Buffer
	if err := json.Compact(&line, c.Payload); err != nil {
		return failed(delivery.NotCalled, delivery.FaultPayload, "payload:json", "the payload is not JSON", err)
	}
	line.WriteByte('\n')
	path := c.Address
	if path == "" {
		path = p.path
	}
	ctx, cancel := context.WithTimeoutCause(ctx, p.timeout, fmt.Errorf("send timed out after %s", p.timeout))
	defer cancel()
	if n := p.stuck.Load(); n >= maxStuck {
		return failed(delivery.NotSent, delivery.FaultTransient, "log:hangs", "the disk under "+path+" does not answer: look at it",
			fmt.Errorf("%d earlier writes to %s still hang", n, path))
	}
	// A disk that hangs cannot be told to stop. The write goes on without us, but only if it had begun.
	var turn, end atomic.Int32
	done := make(chan delivery.Result, 1)
	go func() {
		done <- p.append(path, line.Bytes(), &turn)
		if !end.CompareAndSwap(running, returned) {
			p.stuck.Add(-1)
		}
	}()
	select {
	case res := <-done:
		return res
	case <-ctx.Done():
		p.stuck.Add(1)
		if !end.CompareAndSwap(running, left) {
			p.stuck.Add(-1) // it came back at this very moment
		}
		err := context.Cause(ctx)
		reason := "timeout"
		if errors.Is(err, context.Canceled) {
			reason = "shutdown"
		}
		if turn.CompareAndSwap(waiting, abandoned) {
			res := failed(delivery.NotSent, delivery.FaultTransient, reason, "", nil)
			res.Error = err.Error()
			return res
		}
		return delivery.Result{
			Outcome: delivery.OutcomeUnknown, Evidence: delivery.PossiblySent, Reason: reason, Error: err.Error(),
			Sentence: "the disk under " + path + " does not answer: the line may have been written",
		}
	}
}

// Whose turn it is: nobody's, the writer's, or nobody's ever again.
const (
	waiting int32 = iota
	writing
	abandoned
)

// How the writer and who waits for it part.
const (
	running  int32 = iota
	returned       // the writer came first
	left           // nobody waits any more
)

// append writes the line with one call and waits for the disk.
func (p *Provider) append(path string, line []byte, turn *atomic.Int32) delivery.Result {
	f, err := p.open(path)
	if err != nil {
		return classify(path, err, "open")
	}
	defer f.Close() //nolint:errcheck // what matters is synced before
	f.Lock()
	info, err := f.Stat()
	if err != nil {
		return classify(path, err, "stat")
	}
	if torn(f, info) {
		// An earlier write broke off, on a full disk for one. A line of its own keeps this one readable.
		line = append([]byte{'\n'}, line...)
	}
	if !turn.CompareAndSwap(waiting, writing) {
		return failed(delivery.NotSent, delivery.FaultTransient, "timeout", "", errors.New("given up before the write"))
	}
	n, err := f.Write(line)
	f.Unlock()
	if n == 0 && err != nil {
		return classify(path, err, "write")
	}
	if n < len(line) {
		return inDoubt(path, n, "log:short_write", fmt.Errorf("%d of %d bytes were written to %s: %w", n, len(line), path, err))
	}
	if err := f.Sync(); err != nil && (info.Mode().IsRegular() || !errors.Is(err, syscall.EINVAL)) {
		return inDoubt(path, n, "log:sync", fmt.Errorf("sync %s: %w", path, err))
	}
	if info.Size() == 0 && info.Mode().IsRegular() {
		// The file may be new: its name must reach the disk too.
		if err := syncFolder(filepath.Dir(path)); err != nil {
			return inDoubt(path, n, "log:sync", fmt.Errorf("sync the folder of %s: %w", path, err))
		}
	}
	return delivery.Result{Outcome: delivery.OutcomeSent, Evidence: delivery.Answered, Bytes: int64(n)}
}

// torn says that a regular file does not end with a line's end.
func torn(f file, info fs.FileInfo) bool {
	if !info.Mode().IsRegular() || info.Size() == 0 {
		return false
	}
	var last [1]byte
	n, err := f.ReadAt(last[:], info.Size()-1)
	return n == 1 && (err == nil) && last[0] != '\n'
}

func syncFolder(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) {
		return err
	}
	return nil
}

// row is what an error means that came before a byte was written. {path} and {folder} stand for the file's.
type row struct {
	is       error
	slug     string
	fault    delivery.Fault
	sentence string
}

const makeRoom = "the disk under {path} is full: make room; it is tried again by itself"

// rows are the errors of Unix. A place that is wrong is for a person to mend; a machine that is short of something gets
// over it. They are searched in order.
var rows = []row{
	{fs.ErrNotExist, "no_folder", delivery.FaultDestination, "make the folder {folder}, or change path in the file, then send again"},
	{syscall.ENOTDIR, "no_folder", delivery.FaultDestination, "make the folder {folder}, or change path in the file, then send again"},
	{fs.ErrPermission, "no_permission", delivery.FaultDestination, "let tocsin write to {path}, then send again"},
	{syscall.EROFS, "no_permission", delivery.FaultDestination, "let tocsin write to {path}, then send again"},
	{syscall.EISDIR, "is_folder", delivery.FaultDestination, "{path} is a folder: path in the file must name a file in it"},
	{syscall.ENAMETOOLONG, "bad_path", delivery.FaultDestination, "{path} is too long a name: change path in the file, then send again"},
	{syscall.ELOOP, "bad_path", delivery.FaultDestination, "the links at {path} lead in a circle: change path in the file, then send again"},
	{syscall.ENXIO, "no_reader", delivery.FaultTransient, "nobody reads the pipe {path}: start what reads it"},
	{syscall.EPIPE, "no_reader", delivery.FaultTransient, "nobody reads the pipe {path} any more: start what reads it"},
	{syscall.EAGAIN, "no_reader", delivery.FaultTransient, "the pipe {path} is full: see to what reads it"},
	{syscall.ENOSPC, "disk_full", delivery.FaultTransient, makeRoom},
	{syscall.EDQUOT, "disk_full", delivery.FaultTransient, makeRoom},
	{syscall.EFBIG, "file_full", delivery.FaultTransient, "{path} is as large as a file may be: rotate it"},
	{syscall.EMFILE, "too_many_files", delivery.FaultTransient, "tocsin has too many files open: raise its limit of open files"},
	{syscall.ENFILE, "too_many_files", delivery.FaultTransient, "this machine has too many files open"},
	{syscall.EIO, "disk_error", delivery.FaultTransient, "the disk under {path} has errors: look at it"},
}

// classify says what an error means where nothing was written. doing is what was tried: open, stat, write.
func classify(path string, err error, doing string) delivery.Result {
	r := row{err, doing, delivery.FaultTransient, "look at the disk under {path}"}
	i := slices.IndexFunc(rows, func(r row) bool { return errors.Is(err, r.is) })
	if i >= 0 {
		r = rows[i]
	}
	words := strings.NewReplacer("{path}", path, "{folder}", filepath.Dir(path))
	res := failed(delivery.NotSent, r.fault, "log:"+doing, words.Replace(r.sentence), fmt.Errorf("%s %s: %w", doing, path, err))
	if r.fault == delivery.FaultDestination {
		res.Reason = "destination:" + r.slug
	}
	res.Code, res.Unlisted = r.slug, i < 0
	return res
}

func failed(e delivery.Evidence, f delivery.Fault, reason, sentence string, err error) delivery.Result {
	res := delivery.Result{Outcome: delivery.OutcomeFailed, Evidence: e, Fault: f, Reason: reason, Sentence: sentence, Error: sentence}
	if err != nil {
		res.Error = err.Error()
	}
	return res
}

func inDoubt(path string, n int, reason string, err error) delivery.Result {
	return delivery.Result{
		Outcome: delivery.OutcomeUnknown, Evidence: delivery.PossiblySent, Reason: reason, Bytes: int64(n), Error: err.Error(),
		Sentence: "the line may be missing from " + path + " or be there in part: look at the disk",
	}
}
