package route

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Matcher is a condition on one label, as Alertmanager writes them: team="db", env!="dev", job=~"load.*", zone!~"a|b".
// A regular expression must take the whole value; an absent label counts as the empty string. The zero Matcher takes
// every alert.
type Matcher struct {
	name, op, value string
	re              *regexp.Regexp
}

// Name is the label's name.
func (m Matcher) Name() string { return m.name }

// Match says whether the labels fulfil the condition.
func (m Matcher) Match(labels map[string]string) bool {
	v := labels[m.name]
	switch m.op {
	case "!=":
		return v != m.value
	case "=~":
		return m.re.MatchString(v)
	case "!~":
		return !m.re.MatchString(v)
	}
	return v == m.value
}

// String is the matcher in its full form, the value quoted. It reads back as the same matcher.
func (m Matcher) String() string {
	name := m.name
	if !bareName(name) {
		name = quote(name)
	}
	return name + m.op + quote(m.value)
}

// ParseMatcher reads one matcher. The value may be quoted or bare; the name may be quoted where it is not an identifier.
func ParseMatcher(s string) (Matcher, error) {
	ms, err := ParseMatchers(s)
	if err != nil {
		return Matcher{}, err
	}
	if len(ms) != 1 {
		return Matcher{}, fmt.Errorf("%q holds %d matchers where one is wanted", s, len(ms))
	}
	return ms[0], nil
}

// ParseMatchers reads matchers with commas between them, with or without braces around: {team="db",env!~"dev.*"}. All
// must be fulfilled. An empty list is an error, since it would take everything.
func ParseMatchers(s string) ([]Matcher, error) {
	if !utf8.ValidString(s) {
		return nil, fmt.Errorf("the matcher %q is not valid UTF-8", s)
	}
	rest := strings.TrimSpace(s)
	if strings.HasPrefix(rest, "{") {
		if !strings.HasSuffix(rest, "}") || len(rest) < 2 {
			return nil, fmt.Errorf("the matcher %q opens a brace and does not close it", s)
		}
		rest = strings.TrimSpace(rest[1 : len(rest)-1])
	}
	if rest == "" {
		return nil, fmt.Errorf(`the matcher is empty; write for example team="db"`)
	}
	var all []Matcher
	for rest != "" {
		m, after, err := parseOne(rest)
		if err != nil {
			return nil, fmt.Errorf("in the matcher %q: %w", s, err)
		}
		all = append(all, m)
		rest = after
	}
	return all, nil
}

// parseOne reads the matcher at the head of s and gives what follows its comma.
func parseOne(s string) (Matcher, string, error) {
	var m Matcher
	var err error
	if strings.HasPrefix(s, `"`) {
		if m.name, s, err = unquote(s); err != nil {
			return m, "", err
		}
	} else {
		end := strings.IndexFunc(s, func(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune("=!~,", r) })
		if end < 0 {
			end = len(s)
		}
		if m.name, s = s[:end], s[end:]; strings.ContainsAny(m.name, "{}\\\"'`") {
			return m, "", fmt.Errorf("%q is not a label's name; put the name in double quotes if it really is", m.name)
		}
	}
	if m.name == "" {
		return m, "", fmt.Errorf("the label's name is missing before the operator")
	}
	s = strings.TrimLeftFunc(s, unicode.IsSpace)
	for _, op := range []string{"=~", "!~", "!=", "="} {
		if strings.HasPrefix(s, op) {
			m.op = op
			break
		}
	}
	if m.op == "" {
		return m, "", fmt.Errorf("one of = != =~ !~ is wanted after %s", m.name)
	}
	s = strings.TrimLeftFunc(s[len(m.op):], unicode.IsSpace)
	if m.op == "=" && strings.HasPrefix(s, "=") {
		return m, "", fmt.Errorf("== is no operator; write =")
	}
	if strings.HasPrefix(s, `"`) {
		if m.value, s, err = unquote(s); err != nil {
			return m, "", err
		}
		s = strings.TrimLeftFunc(s, unicode.IsSpace)
		if s != "" && s[0] != ',' {
			return m, "", fmt.Errorf("%q follows the value; a comma or the end is wanted", s)
		}
		s = strings.TrimPrefix(s, ",")
	} else {
		m.value, s, _ = strings.Cut(s, ",")
		m.value = strings.TrimRightFunc(m.value, unicode.IsSpace)
		if strings.ContainsAny(m.value, "\"'`") {
			return m, "", fmt.Errorf(`the value %s has a quotation mark inside; put the whole value in double quotes`, m.value)
		}
	}
	if m.op == "=~" || m.op == "!~" {
		if err := m.compile(); err != nil {
			return m, "", err
		}
	}
	return m, strings.TrimSpace(s), nil
}

// compile anchors the expression. The bare value is compiled first: a value like `a)|(b` would otherwise close the
// anchoring group and match anywhere.
func (m *Matcher) compile() error {
	if _, err := regexp.Compile(m.value); err != nil {
		return fmt.Errorf("the regular expression %q is wrong: %w", m.value, err)
	}
	re, err := regexp.Compile("^(?:" + m.value + ")$")
	if err != nil {
		return fmt.Errorf("the regular expression %q is wrong: %w", m.value, err)
	}
	m.re = re
	return nil
}

// bareName says that a label's name needs no quotes.
func bareName(s string) bool {
	for i, r := range s {
		letter := r == '_' || r == ':' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		if !letter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return s != ""
}

// unquote reads the double-quoted string at the head of s and gives what follows. Only \" \\ and \n are escapes; any
// other backslash stays as it is, so that "\d+" is the expression it looks like.
func unquote(s string) (value, rest string, err error) {
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return b.String(), s[i+1:], nil
		case c == '\\' && i+1 < len(s) && (s[i+1] == '"' || s[i+1] == '\\'):
			i++
			b.WriteByte(s[i])
		case c == '\\' && i+1 < len(s) && s[i+1] == 'n':
			i++
			b.WriteByte('\n')
		default:
			b.WriteByte(c)
		}
	}
	return "", "", fmt.Errorf("the quoted text %s is not closed", strconv.Quote(s))
}

// quote is the inverse of unquote.
func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(s) + `"`
}
