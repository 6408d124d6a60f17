package config

import (
	"fmt"
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
		if !closed || !variable(name) {
			lacks = append(lacks, lack{
				message: fmt.Sprintf("${%s is not a variable", name),
				hint:    "write ${NAME} with letters, digits and _, or $${ for a plain ${",
			})
			out.WriteString("${")
			raw = raw[i+2:]
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
