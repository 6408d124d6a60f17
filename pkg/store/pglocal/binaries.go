package pglocal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// oldest is the oldest major version that tocsin's SQL runs on.
const oldest = 14

// binaries is a folder with postgres and initdb of one version.
type binaries struct {
	dir   string
	major int
}

func (b binaries) path(name string) string { return filepath.Join(b.dir, name) }

// findBinaries finds or gets binaries: those of version want where data of that version exists (want is not 0), the
// first found otherwise.
func findBinaries(ctx context.Context, want int, o Options) (binaries, error) {
	found := lookAround(ctx)
	if ctx.Err() != nil { // what it asked may have been cut off: that says nothing about what is here
		return binaries{}, fmt.Errorf("look for Postgres: %w", context.Cause(ctx))
	}
	b, err := choose(found, want, filepath.Join(o.Dir, "data"))
	if err == nil || want != 0 && len(found) > 0 {
		return b, err
	}
	if dir := os.Getenv("TOCSIN_PG_BIN"); dir != "" {
		return binaries{}, fmt.Errorf("TOCSIN_PG_BIN is %s, and there is no postgres and initdb of version %d or later in it", dir, oldest)
	}
	if why := install(ctx, o.Progress); why != nil {
		return binaries{}, fmt.Errorf("no Postgres %d or later: %w", oldest, why)
	}
	return choose(lookAround(ctx), want, filepath.Join(o.Dir, "data"))
}

// choose picks from what was found, in its order.
func choose(found []binaries, want int, data string) (binaries, error) {
	var majors []string
	for _, b := range found {
		if want == 0 || b.major == want {
			return b, nil
		}
		majors = append(majors, strconv.Itoa(b.major))
	}
	if want == 0 || len(found) == 0 {
		return binaries{}, fmt.Errorf("no Postgres %d or later was found: install it, or set TOCSIN_PG_BIN to the folder of postgres and initdb", oldest)
	}
	return binaries{}, fmt.Errorf("%s was made by Postgres %d, and only %s is here: install Postgres %d, or remove the folder to start afresh",
		data, want, strings.Join(majors, ", "), want)
}

// lookAround lists the usable binaries, in the order in which they are preferred: TOCSIN_PG_BIN alone where it is
// set; else PATH, pg_config's, Debian's from the newest down, and those that embedded-postgres left earlier.
func lookAround(ctx context.Context) []binaries {
	var dirs []string
	if dir := os.Getenv("TOCSIN_PG_BIN"); dir != "" {
		dirs = []string{dir}
	} else {
		if p, err := exec.LookPath("postgres"); err == nil {
			// Postgres finds its share folder from where it really lies.
			if target, err := filepath.EvalSymlinks(p); err == nil {
				dirs = append(dirs, filepath.Dir(target))
			}
		}
		if out, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output(); err == nil {
			dirs = append(dirs, strings.TrimSpace(string(out)))
		}
		debian, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
		slices.SortFunc(debian, func(a, b string) int { return majorOf(b) - majorOf(a) })
		dirs = append(dirs, debian...)
		if dir, err := embeddedDir(); err == nil {
			dirs = append(dirs, filepath.Join(dir, "bin"))
		}
	}
	var found []binaries
	seen := map[string]bool{}
	for _, dir := range dirs {
		if seen[dir] {
			continue
		}
		seen[dir] = true
		b := binaries{dir: dir}
		if !b.complete() {
			continue
		}
		if major, err := b.version(ctx); err == nil && major >= oldest {
			b.major = major
			found = append(found, b)
		}
	}
	return found
}

// majorOf reads the version from /usr/lib/postgresql/15/bin.
func majorOf(dir string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(dir)))
	return n
}

// complete says whether both programs are there.
func (b binaries) complete() bool {
	for _, name := range []string{"postgres", "initdb"} {
		if _, err := exec.LookPath(b.path(name)); err != nil {
			return false
		}
	}
	return true
}

var versionLine = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

func (b binaries) version(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, b.path("postgres"), "--version").Output()
	if err != nil {
		return 0, fmt.Errorf("version of %s: %w", b.path("postgres"), err)
	}
	m := versionLine.FindSubmatch(out)
	if m == nil {
		return 0, errors.New("no version in " + strconv.Quote(string(out)))
	}
	return strconv.Atoi(string(m[1]))
}
