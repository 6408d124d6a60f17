package logfile

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
)

func newProvider(t *testing.T, path string) *Provider {
	t.Helper()
	p, err := New(config.Notifier{Name: "team-log", Type: "log", Path: path}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func call(payload string) provider.Call {
	return provider.Call{Operation: delivery.OpCreate, Key: "key-1", Payload: []byte(payload)}
}

func read(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestOneLineForEachPayload(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "alerts.jsonl")
	p := newProvider(t, path)
	for _, payload := range []string{"{\n  \"a\": \"x\\ny\"\n}\n", `{"b":1}`} {
		res := p.Do(t.Context(), call(payload))
		if res.Outcome != delivery.OutcomeSent || res.Evidence != delivery.Answered || res.Bytes == 0 {
			t.Fatalf("%+v", res)
		}
	}
	if got := read(t, path); got != "{\"a\":\"x\\ny\"}\n{\"b\":1}\n" {
		t.Errorf("%q", got)
	}
	other := filepath.Join(filepath.Dir(path), "other.jsonl")
	c := call(`{"c":1}`)
	c.Address = other
	if res := p.Do(t.Context(), c); res.Outcome != delivery.OutcomeSent || read(t, other) != "{\"c\":1}\n" {
		t.Errorf("%+v", res)
	}
}

func TestTornLineStaysAlone(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "alerts.jsonl")
	if err := os.WriteFile(path, []byte("{\"a\":1}\n{\"b\":"), 0o600); err != nil {
		t.Fatal(err)
	}
	if res := newProvider(t, path).Do(t.Context(), call(`{"c":1}`)); res.Outcome != delivery.OutcomeSent {
		t.Fatalf("%+v", res)
	}
	if got := read(t, path); got != "{\"a\":1}\n{\"b\":\n{\"c\":1}\n" {
		t.Errorf("%q", got)
	}
}

const (
	writers = 8
	lines   = 50
	helper  = "TOCSIN_LOGFILE_HELPER"
)

// payload is long enough that a line written in pieces would show.
func payload(who string, i int) string {
	return fmt.Sprintf(`{"who":%q,"i":%d,"pad":%q}`, who, i, strings.Repeat(who, 5000/len(who)))
}

// TestHelperProcess is the other process of the test below.
func TestHelperProcess(t *testing.T) { //nolint:paralleltest // it is no test of its own
	path := os.Getenv(helper)
	if path == "" {
		t.Skip("only as a child of TestManyWriters")
	}
	p := newProvider(t, path)
	for i := range lines {
		if res := p.Do(t.Context(), call(payload("child", i))); res.Outcome != delivery.OutcomeSent {
			t.Fatalf("%+v", res)
		}
	}
}

func TestManyWriters(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "alerts.jsonl")
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHelperProcess$")
	child.Env = append(os.Environ(), helper+"="+path)
	var out bytes.Buffer
	child.Stdout, child.Stderr = &out, &out
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	p := newProvider(t, path)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range lines {
				if res := p.Do(t.Context(), call(payload(fmt.Sprint("w", w), i))); res.Outcome != delivery.OutcomeSent {
					t.Errorf("%+v", res)
				}
			}
		})
	}
	wg.Wait()
	if err := child.Wait(); err != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	seen := map[string]bool{}
	for line := range strings.Lines(read(t, path)) {
		var v struct {
			Who string
			I   int
		}
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatalf("a broken line %.80q: %v", line, err)
		}
		seen[fmt.Sprint(v.Who, v.I)] = true
	}
	if len(seen) != (writers+1)*lines {
		t.Errorf("%d lines of %d", len(seen), (writers+1)*lines)
	}
}

func TestPlacesThatAreWrong(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "missing", "a.jsonl"): "destination:no_folder",
		filepath.Join(plain, "a.jsonl"):          "destination:no_folder",
		dir:                                      "destination:is_folder",
	} {
		res := newProvider(t, path).Do(t.Context(), call("{}"))
		if res.Outcome != delivery.OutcomeFailed || res.Evidence != delivery.NotSent || res.Fault != delivery.FaultDestination || res.Reason != want {
			t.Errorf("%s: %+v", path, res)
		}
		if res.Sentence == "" || !strings.Contains(res.Error, path) {
			t.Errorf("%s: sentence %q, error %q", path, res.Sentence, res.Error)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "missing")); !errors.Is(err, fs.ErrNotExist) {
		t.Error("the folder was made")
	}
}

// faulty is a file whose calls end as a test wants, the write perhaps having happened.
type faulty struct {
	locked
	short     int // bytes to write of what is asked; -1: all
	writeErr  error
	syncErr   error
	writeWait chan struct{}
}

func (f faulty) Write(b []byte) (int, error) {
	if f.writeWait != nil {
		<-f.writeWait
	}
	if f.short < 0 {
		return f.File.Write(b)
	}
	n, err := f.File.Write(b[:f.short])
	return n, errors.Join(err, f.writeErr)
}

func (f faulty) Sync() error { return errors.Join(f.File.Sync(), f.syncErr) }

// Every fault twice: "failed", and "failed but it happened".
func TestFaults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		openErr error
		file    faulty
		outcome delivery.Outcome
		fault   delivery.Fault
		reason  string
		want    string
	}{
		{name: "too many open files", openErr: syscall.EMFILE, outcome: delivery.OutcomeFailed, fault: delivery.FaultTransient, reason: "log:open"},
		{name: "read-only disk", openErr: syscall.EROFS, outcome: delivery.OutcomeFailed, fault: delivery.FaultDestination, reason: "destination:no_permission"},
		{name: "disk full before", file: faulty{short: 0, writeErr: syscall.ENOSPC}, outcome: delivery.OutcomeFailed, fault: delivery.FaultTransient, reason: "log:write"},
		{name: "disk full within", file: faulty{short: 4, writeErr: syscall.ENOSPC}, outcome: delivery.OutcomeUnknown, reason: "log:short_write", want: `{"a"`},
		{name: "sync fails", file: faulty{short: -1, syncErr: syscall.EIO}, outcome: delivery.OutcomeUnknown, reason: "log:sync", want: "{\"a\":1}\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "a.jsonl")
			p := newProvider(t, path)
			p.open = func(path string) (file, error) {
				if c.openErr != nil {
					return nil, &fs.PathError{Op: "open", Path: path, Err: c.openErr}
				}
				f, err := os.Create(path)
				c.file.locked = locked{f}
				return c.file, err
			}
			res := p.Do(t.Context(), call(`{"a":1}`))
			if res.Outcome != c.outcome || res.Fault != c.fault || res.Reason != c.reason || res.Error == "" {
				t.Errorf("%+v", res)
			}
			evidence := delivery.NotSent
			if c.outcome == delivery.OutcomeUnknown {
				evidence = delivery.PossiblySent
			}
			if res.Evidence != evidence || res.Bytes != int64(len(c.want)) {
				t.Errorf("evidence %q, %d bytes", res.Evidence, res.Bytes)
			}
			if c.openErr == nil && read(t, path) != c.want {
				t.Errorf("the file holds %q", read(t, path))
			}
		})
	}
}

// A disk that hangs, in false time: whether the write had begun decides.
func TestHangingDisk(t *testing.T) {
	t.Parallel()
	for _, begun := range []bool{true, false} {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			p := newProvider(t, filepath.Join(dir, "a.jsonl"))
			p.open = func(path string) (file, error) {
				if !begun {
					<-release
				}
				f, err := os.Create(path)
				return faulty{locked: locked{f}, short: -1, writeWait: release}, err
			}
			began := time.Now()
			res := p.Do(t.Context(), call(`{"a":1}`))
			if took := time.Since(began); took != DefaultTimeout || res.Error != "send timed out after 10s" || res.Reason != "timeout" {
				t.Errorf("after %s: %+v", took, res)
			}
			want := delivery.OutcomeFailed
			if begun {
				want = delivery.OutcomeUnknown
			}
			if res.Outcome != want {
				t.Errorf("begun %v: %s", begun, res.Outcome)
			}
			close(release)
			synctest.Wait()
			if got := read(t, filepath.Join(dir, "a.jsonl")); (got != "") != begun {
				t.Errorf("begun %v: the file holds %q", begun, got)
			}
		})
	}
}

// A disk that hangs for long holds a bounded number of writers, however many calls are made; once it answers, all is well.
func TestHangingDiskHoldsFewWriters(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		p := newProvider(t, filepath.Join(dir, "a.jsonl"))
		var opened atomic.Int64
		p.open = func(path string) (file, error) {
			opened.Add(1)
			<-release
			return openAppend(path)
		}
		for range 3 * maxStuck {
			if res := p.Do(t.Context(), call(`{"a":1}`)); res.Outcome != delivery.OutcomeFailed || res.Evidence != delivery.NotSent || res.Fault != delivery.FaultTransient {
				t.Fatalf("%+v", res)
			}
		}
		if n := opened.Load(); n != maxStuck {
			t.Errorf("%d writers hang", n)
		}
		if res := p.Do(t.Context(), call(`{"a":1}`)); res.Reason != "log:hangs" || res.Error == "" || res.Sentence == "" {
			t.Errorf("%+v", res)
		}
		close(release)
		synctest.Wait()
		if n := p.stuck.Load(); n != 0 {
			t.Errorf("%d writers are still counted", n)
		}
		if res := p.Do(t.Context(), call(`{"a":1}`)); res.Outcome != delivery.OutcomeSent {
			t.Errorf("%+v", res)
		}
	})
	if got := read(t, filepath.Join(dir, "a.jsonl")); got != "{\"a\":1}\n" {
		t.Errorf("the file holds %q", got)
	}
}

func TestCallsThatCannotBeMade(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.jsonl")
	p := newProvider(t, path)
	edit := call("{}")
	edit.Operation = delivery.OpEdit
	for name, c := range map[string]provider.Call{"edit": edit, "no JSON": call("{"), "empty": call("")} {
		if res := p.Do(t.Context(), c); res.Outcome != delivery.OutcomeFailed || res.Evidence != delivery.NotCalled || res.Fault != delivery.FaultPayload || res.Error == "" {
			t.Errorf("%s: %+v", name, res)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if res := p.Do(ctx, call("{}")); res.Outcome == delivery.OutcomeSent && read(t, path) == "" {
		t.Errorf("%+v", res)
	}
	if _, err := New(config.Notifier{Name: "team-log"}, nil); err == nil || !strings.Contains(err.Error(), "notifier team-log") {
		t.Error(err)
	}
}

func TestPipeThatNobodyReads(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Skip(err)
	}
	r, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if res := newProvider(t, path).Do(t.Context(), call(`{"a":1}`)); res.Outcome != delivery.OutcomeSent {
		t.Fatalf("%+v", res)
	}
	got := make([]byte, 8)
	if _, err := r.Read(got); err != nil || string(got) != "{\"a\":1}\n" {
		t.Errorf("%q, %v", got, err)
	}
}
