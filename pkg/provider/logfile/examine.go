package logfile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
)

// What is left on the disk is worth a word below a twentieth of it, unless that is still more than plentiful; below
// scarce it is nearly nothing.
const (
	plentiful = 1 << 30
	scarce    = 1 << 20
)

// findings gathers what was found.
type findings []provider.Finding

func (f *findings) ok(check, format string, args ...any) {
	*f = append(*f, provider.Finding{Check: check, Level: provider.OK, Text: fmt.Sprintf(format, args...)})
}

func (f *findings) add(l provider.Level, check, fix, format string, args ...any) {
	*f = append(*f, provider.Finding{Check: check, Level: l, Text: fmt.Sprintf(format, args...), Fix: fix})
}

// Examine looks at the file, its folder and the disk under them. Nothing is written unless e.Live is set, and no file is
// made: one that is not there yet is made by the first line.
func (p *Provider) Examine(ctx context.Context, e provider.Examination) []provider.Finding {
	if e.Now == nil {
		e.Now = time.Now
	}
	// A disk that hangs must not keep the one who asks. Whoever waits for it ends with it.
	found := make(chan findings, 1)
	go func() { found <- p.look() }()
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	select {
	case f := <-found:
		if e.Live && f[len(f)-1].Level != provider.Bad {
			p.live(ctx, &f, e.Now())
		}
		return f
	case <-ctx.Done():
		var f findings
		f.add(provider.Bad, "disk", "look at the disk under "+p.path, "it does not answer")
		return f
	}
}

// look examines without writing. The last finding is Bad where a line could not be written.
func (p *Provider) look() (f findings) {
	folder := filepath.Dir(p.path)
	if info, err := os.Stat(folder); err != nil || !info.IsDir() {
		if err == nil {
			err = fmt.Errorf("%s is no folder", folder)
		}
		f.add(provider.Bad, "folder", "make the folder "+folder+", or change path in the file", "%s", p.clean.String(err.Error()))
		return f
	}
	f.ok("folder", "%s is there", folder)
	if free, all, ok := space(folder); ok {
		p.space(&f, free, all)
	}
	p.file(&f, folder)
	return f
}

func (p *Provider) space(f *findings, free, all uint64) {
	const check = "space"
	fix := "make room on the disk under " + p.path + ", or let the file be rotated"
	switch {
	case free < scarce:
		f.add(provider.Bad, check, fix, "%s left of %s", size(free), size(all))
	case free < all/20 && free < plentiful:
		f.add(provider.Warn, check, fix, "%s left of %s", size(free), size(all))
	default:
		f.ok(check, "%s left of %s", size(free), size(all))
	}
}

// size is a number of bytes for people.
func size(n uint64) string {
	for _, u := range []struct {
		name string
		of   uint64
	}{{"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}} {
		if n >= u.of {
			return fmt.Sprintf("%.1f %s", float64(n)/float64(u.of), u.name)
		}
	}
	return fmt.Sprintf("%d B", n)
}

// file opens the file for appending, as a send would, and closes it again. One that is not there yet is not made: whether
// the folder takes a new file is seen from its permissions.
func (p *Provider) file(f *findings, folder string) {
	const check = "file"
	info, err := os.Stat(p.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := writable(folder); err != nil {
			f.add(provider.Bad, check, "let tocsin write to "+folder, "%s is not there, and cannot be made: %s", p.path, p.clean.String(err.Error()))
			return
		}
		f.ok(check, "%s is not there yet; the first line makes it", p.path)
		return
	case err == nil:
		var opened file
		if opened, err = p.open(p.path); err == nil {
			err = opened.Close()
		}
	}
	if err != nil {
		res := classify(p.path, err, "open")
		f.add(provider.Bad, check, res.Sentence, "%s", p.clean.String(res.Error))
		return
	}
	if !info.Mode().IsRegular() {
		f.ok(check, "%s can be written to; it is no regular file, so that nothing shows whether its lines are kept", p.path)
		return
	}
	f.ok(check, "%s can be appended to; it has %s", p.path, size(uint64(max(info.Size(), 0))))
}

// live appends a line as a send would.
func (p *Provider) live(ctx context.Context, f *findings, at time.Time) {
	const check = "live test"
	payload, err := json.Marshal(map[string]any{
		"type": "tocsin.test", "timestamp": at.UTC().Format(time.RFC3339), "data": map[string]string{"text": "A test of tocsin doctor. Nothing is wrong."},
	})
	if err != nil {
		return // strings always marshal
	}
	res := p.Do(ctx, provider.Call{Operation: delivery.OpCreate, Payload: payload})
	if res.Outcome != delivery.OutcomeSent {
		fix := res.Sentence
		if fix == "" {
			fix = "look at the disk under " + p.path
		}
		f.add(provider.Bad, check, fix, "%s", res.Error)
		return
	}
	f.ok(check, "a line of %d bytes is on the disk after %s", res.Bytes, res.Duration.Round(time.Microsecond))
}
