package logfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
)

// Every row of the table, met while opening and while writing.
func TestEveryRow(t *testing.T) {
	t.Parallel()
	for i, r := range rows {
		for _, doing := range []string{"open", "write"} {
			path := filepath.Join(t.TempDir(), "a.jsonl")
			p := newProvider(t, path)
			p.open = func(path string) (file, error) {
				if doing == "open" {
					return nil, &fs.PathError{Op: "open", Path: path, Err: r.is}
				}
				f, err := os.Create(path)
				return faulty{locked: locked{f}, writeErr: &fs.PathError{Op: "write", Path: path, Err: r.is}}, err
			}
			res := p.Do(t.Context(), call(`{"a":1}`))
			reason := "log:" + doing
			if r.fault == delivery.FaultDestination {
				reason = "destination:" + r.slug
			}
			if res.Outcome != delivery.OutcomeFailed || res.Evidence != delivery.NotSent || res.Fault != r.fault || res.Reason != reason || res.Code != r.slug || res.Unlisted || res.RetryAfter != 0 {
				t.Errorf("row %d, %s: %+v", i, doing, res)
			}
			if res.Sentence == "" || strings.ContainsAny(res.Sentence, "{}") || !strings.Contains(res.Error, path) {
				t.Errorf("row %d, %s: %q, %q", i, doing, res.Sentence, res.Error)
			}
		}
	}
	res := classify("/x", errors.New("brand new"), "open")
	if res.Fault != delivery.FaultTransient || res.Reason != "log:open" || !res.Unlisted || res.Sentence == "" {
		t.Errorf("%+v", res)
	}
}

// examine examines a path and checks what holds for every finding.
func examine(t *testing.T, p *Provider, e provider.Examination) map[string]provider.Finding {
	t.Helper()
	all := map[string]provider.Finding{}
	for _, f := range p.Examine(t.Context(), e) {
		all[f.Check] = f
		if (f.Level == provider.OK) != (f.Fix == "") || f.Text == "" {
			t.Errorf("%+v", f)
		}
	}
	return all
}

func has(t *testing.T, all map[string]provider.Finding, check string, level provider.Level, words string) {
	t.Helper()
	if f, ok := all[check]; !ok || f.Level != level || !strings.Contains(f.Text+" | "+f.Fix, words) {
		t.Errorf("%s, %q: %+v; all: %+v", check, words, f, all)
	}
}

func TestExamine(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	path := filepath.Join(folder, "alerts.jsonl")
	p := newProvider(t, path)

	all := examine(t, p, provider.Examination{})
	has(t, all, "folder", provider.OK, folder)
	has(t, all, "space", provider.OK, "left of")
	has(t, all, "file", provider.OK, "not there yet")
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an examination makes a file: %v", err)
	}
	has(t, examine(t, p, provider.Examination{Live: true}), "live test", provider.OK, "on the disk")
	if got := read(t, path); strings.Count(got, "\n") != 1 || !strings.Contains(got, `"type":"tocsin.test"`) {
		t.Errorf("%q", got)
	}
	before := read(t, path)
	has(t, examine(t, p, provider.Examination{}), "file", provider.OK, "can be appended to; it has")
	if read(t, path) != before {
		t.Error("an examination writes")
	}

	has(t, examine(t, newProvider(t, folder), provider.Examination{Live: true}), "file", provider.Bad, "is a folder")
	has(t, examine(t, newProvider(t, filepath.Join(folder, "no", "a")), provider.Examination{}), "folder", provider.Bad, "make the folder")
	has(t, examine(t, newProvider(t, filepath.Join(path, "a")), provider.Examination{}), "folder", provider.Bad, "is no folder")
	has(t, examine(t, newProvider(t, os.DevNull), provider.Examination{}), "file", provider.OK, "no regular file")
}

func TestExamineWithoutPermission(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 {
		t.Skip("root may do everything")
	}
	folder := t.TempDir()
	path := filepath.Join(folder, "a.jsonl")
	if err := os.WriteFile(path, nil, 0o400); err != nil {
		t.Fatal(err)
	}
	has(t, examine(t, newProvider(t, path), provider.Examination{Live: true}), "file", provider.Bad, "let tocsin write to "+path)
	if err := os.Chmod(folder, 0o500); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(folder, 0o700) }) // or it could not be removed
	has(t, examine(t, newProvider(t, filepath.Join(folder, "b")), provider.Examination{}), "file", provider.Bad, "let tocsin write to "+folder)
}

func TestExamineFindsAFaultyDisk(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.jsonl")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p := newProvider(t, path)
	p.open = func(path string) (file, error) {
		return nil, &fs.PathError{Op: "open", Path: path, Err: syscall.EROFS}
	}
	has(t, examine(t, p, provider.Examination{}), "file", provider.Bad, "let tocsin write")
	p.open = func(path string) (file, error) {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		return faulty{locked: locked{f}, writeErr: syscall.ENOSPC}, err
	}
	has(t, examine(t, p, provider.Examination{Live: true}), "live test", provider.Bad, "make room")
}

func TestExamineOfAHangingDiskEnds(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.jsonl")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		p := newProvider(t, path)
		p.open = func(path string) (file, error) { <-release; return openAppend(path) }
		has(t, examine(t, p, provider.Examination{Live: true}), "disk", provider.Bad, "does not answer")
		close(release)
		synctest.Wait()
	})
}

func TestSpace(t *testing.T) {
	t.Parallel()
	p := newProvider(t, "/var/log/a.jsonl")
	for _, c := range []struct {
		free, all uint64
		level     provider.Level
		words     string
	}{
		{900e9, 1000e9, provider.OK, "900.0 GB left of 1000.0 GB"},
		{20e9, 1000e9, provider.OK, "20.0 GB"}, // little of it, and plenty
		{40e6, 1000e6, provider.Warn, "make room on the disk under /var/log/a.jsonl"},
		{60e6, 1000e6, provider.OK, "60.0 MB"},
		{999e3, 1000e6, provider.Bad, "999.0 kB"},
		{0, 10, provider.Bad, "0 B left of 10 B"},
	} {
		var f findings
		p.space(&f, c.free, c.all)
		has(t, map[string]provider.Finding{"space": f[0]}, "space", c.level, c.words)
	}
	if got := fmt.Sprint(size(1), " ", size(1500)); got != "1 B 1.5 kB" {
		t.Error(got)
	}
}
