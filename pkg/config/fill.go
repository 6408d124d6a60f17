package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// lack is a ${NAME} that cannot be filled in.
type lack struct{ message, hint string }

// fill puts the environment's values in place of each ${NAME} of one scalar and notes them in used. It happens after
// the YAML is parsed and once only: a value that looks like YAML, or like ${OTHER}, stays the text it is. `$${` stands for
// a plain `${`.
func fill(raw string, env func(string) (string, bool), used map[string]string) (string, []lack) {
	var out strings.Builder
	var lacks []lack
	for {
		i := strings.Index(raw, "${")
		if i < 0 {
			out.WriteString(raw)
			return out.String(), lacks
		}
		if i > 0 && raw[i-1] == '$' {
			out.WriteString(raw[:i-1] + "${")
			raw = raw[i+2:]
			continue
		}
		out.WriteString(raw[:i])
		name, rest, closed := strings.Cut(raw[i+2:], "}")
		if !closed || !variable(name) && !strings.HasPrefix(name, secretFile) {
			lacks = append(lacks, lack{
				message: fmt.Sprintf("${%s is not a variable", name),
				hint:    "write ${NAME} with letters, digits and _, ${file:/run/secrets/name}, or $${ for a plain ${",
			})
			out.WriteString("${")
			raw = raw[i+2:]
			continue
		}
		if path, ok := strings.CutPrefix(name, secretFile); ok {
			v, err := readSecret(path)
			if err != nil {
				lacks = append(lacks, lack{message: fmt.Sprintf("the secret's file %s", err), hint: "mount it, or correct the path"})
			} else {
				used[name] = v
				out.WriteString(v)
			}
			raw = rest
			continue
		}
		if v, ok := env(name); ok {
			used[name] = v
			out.WriteString(v)
		} else {
			lacks = append(lacks, lack{message: fmt.Sprintf("the environment variable %s is not set", name), hint: "set it where tocsin starts"})
		}
		raw = rest
	}
}

// secretFile begins a name whose value is what a file holds, as secrets are mounted.
const secretFile = "file:"

// maxSecret bounds a secret's file, in bytes.
const maxSecret = 64 << 10

// readSecret reads a secret's file without the line ends at its end, which editors and tools add.
func readSecret(path string) (string, error) {
	if !filepath.IsAbs(path) {
		return "", fmt.Errorf("%s is not named by an absolute path", path)
	}
	f, err := os.Open(path) //nolint:gosec // the operator names the file
	if err != nil {
		return "", fmt.Errorf("%s can't be opened: %w", path, errors.Unwrap(err))
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("%s can't be read: %w", path, errors.Unwrap(err))
	case len(b) > maxSecret:
		return "", fmt.Errorf("%s is larger than %d bytes", path, maxSecret)
	}
	return strings.TrimRight(string(b), "\r\n"), nil
}

// variable says that s is a name that the environment can have.
func variable(s string) bool {
	for i, r := range s {
		letter := r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		if !letter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return s != ""
}
