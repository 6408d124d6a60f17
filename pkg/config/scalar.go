package config

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
)

// raw is the text of a scalar as it is written, quotes removed, before ${NAME} is filled in. False where v is absent or
// no scalar, which is noted.
func (v value) raw() (string, bool) {
	switch n := v.node.(type) {
	case nil:
		return "", false
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	case *ast.BoolNode, *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, true // as written: 0123 stays 0123
	case *ast.NullNode:
		v.problem("give it one or remove the key", "%s has no value", v.name())
	default:
		v.problem("", "%s must be a single value, it is %s", v.name(), kindOf(v.node))
	}
	return "", false
}

// filled is the text of a scalar with ${NAME} filled in, which may be empty. False where there is none, or where it is
// wrong, which is noted.
func (v value) filled() (string, bool) {
	raw, ok := v.raw()
	if !ok {
		return "", false
	}
	text, missing := fill(raw, v.r.env, v.r.used)
	for _, m := range missing {
		v.problem(m.hint, "%s", m.message)
	}
	return text, len(missing) == 0
}

// text is filled, and the empty text is a mistake.
func (v value) text() (string, bool) {
	s, ok := v.filled()
	if ok && s == "" {
		hint := "give it a value or remove the key"
		if raw, _ := v.raw(); raw != "" {
			hint = "set the variable in " + raw
		}
		v.problem(hint, "%s is empty", v.name())
		return "", false
	}
	return s, ok
}

// str is the text of a key, or otherwise.
func (o *object) str(key, otherwise string) string {
	if s, ok := o.get(key).text(); ok {
		return s
	}
	return otherwise
}

// oneOf is the text of a key, which must be one of those allowed.
func (o *object) oneOf(key, otherwise string, allowed ...string) string {
	v := o.get(key)
	s, ok := v.text()
	if !ok {
		return otherwise
	}
	if !slices.Contains(allowed, s) {
		hint := suggest(s, allowed)
		if hint == "" {
			hint = "one of " + strings.Join(allowed, ", ")
		}
		v.problem(hint, "%s %q is unknown", key, s)
		return otherwise
	}
	return s
}

// boolean is true or false of a key; absent is false.
func (o *object) boolean(key string) bool {
	v := o.get(key)
	s, ok := v.text()
	if !ok {
		return false
	}
	switch s {
	case "true", "True", "TRUE":
		return true
	case "false", "False", "FALSE":
		return false
	}
	v.problem("write true or false", "%s is %q", key, s)
	return false
}

// whole is a whole number of a key within [least, most].
func (o *object) whole(key string, otherwise, least, most int) int {
	v := o.get(key)
	s, ok := v.text()
	if !ok {
		return otherwise
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		v.problem("", "%s must be a whole number, it is %q", key, s)
		return otherwise
	}
	if n < least || n > most {
		v.problem("", "%s is %d, it must be from %d to %d", key, n, least, most)
		return otherwise
	}
	return n
}

// duration is the duration of a key, at least so long.
func (o *object) duration(key string, otherwise, least time.Duration) time.Duration {
	v := o.get(key)
	s, ok := v.text()
	if !ok {
		return otherwise
	}
	d, err := ParseDuration(s)
	if err != nil {
		v.problem("write for example 500ms, 10s, 5m, 2h30m, 1d or 2w", "%s %q is no duration", key, s)
		return otherwise
	}
	if d < least {
		v.problem("", "%s is %s, it must be at least %s", key, s, least)
		return otherwise
	}
	return d
}

// strings are the texts of a list, without repeats. A single text counts as a list of one.
func (v value) strings() []value {
	if v.present() && !v.null() {
		if k := kindOf(v.node); k == "a text" || k == "a number" || k == "true or false" {
			return []value{v}
		}
	}
	return v.list()
}

// names are the texts of a key's list, each once.
func (o *object) names(key string) []string {
	var all []string
	for _, v := range o.get(key).strings() {
		if s, ok := v.text(); ok && !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return all
}

// dayUnits are the units that Go's durations lack. A day is 24 hours here: durations are spans of time, not of calendar.
var dayUnits = map[byte]time.Duration{'d': 24 * time.Hour, 'w': 7 * 24 * time.Hour}

// ParseDuration reads a duration of the file: a Go duration, which may begin with weeks and days, as in 2w, 1d12h, 90s.
// It is never negative.
func ParseDuration(s string) (time.Duration, error) {
	bad := &strconv.NumError{Func: "ParseDuration", Num: s, Err: strconv.ErrSyntax}
	var total time.Duration
	rest := s
	for i := 0; i < len(rest); i++ {
		unit, ok := dayUnits[rest[i]]
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(rest[:i], 10, 32)
		if err != nil || int64(n) > math.MaxInt64/int64(unit) {
			return 0, bad
		}
		if total += time.Duration(n) * unit; total < 0 {
			return 0, bad
		}
		if rest, i = rest[i+1:], -1; rest == "" {
			return total, nil
		}
	}
	d, err := time.ParseDuration(rest)
	if err != nil || d < 0 || total > math.MaxInt64-d {
		return 0, bad
	}
	return total + d, nil
}
