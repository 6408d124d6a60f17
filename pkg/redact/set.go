// Package redact keeps secrets out of everything that is written down: before an error, a header, a body, a log line or
// a row is stored, each value that came from ${NAME} is put back as ${NAME}.
//
// Redact first and cut to length afterwards. A text that was cut in the middle of a secret is recognised only where at
// least half of the secret is left.
package redact

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// minLength is the shortest value, in bytes, that is replaced inside other text. A shorter one ("on", "443") stands in
// countless innocent words and numbers, replacing it would make every text unreadable and tell the reader the value by
// the holes; it is too short to be a secret anyway. It is still replaced where it is the whole text.
const minLength = 4

// Set knows the secrets of one file. It is immutable and safe for use by many goroutines. A nil *Set changes nothing.
type Set struct {
	forms   []form            // longest first
	byFirst [256][]int        // forms by the first byte of their text
	whole   map[string]string // value -> name: replaced where it is the whole text
	names   map[string]bool
}

// form is one text that gives a secret away.
type form struct {
	text  string
	units []string // text cut into characters, the units of escaping
	name  string
}

// New makes the set of the given secrets, NAME -> value. Empty values are no secrets.
func New(values map[string]string) *Set {
	s := &Set{whole: map[string]string{}, names: map[string]bool{}}
	known := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		value := values[name]
		if value == "" {
			continue
		}
		s.names[name] = true
		if _, ok := s.whole[value]; !ok {
			s.whole[value] = name
		}
		for _, text := range forms(value) {
			if !known[text] {
				known[text] = true
				s.forms = append(s.forms, form{text: text, units: characters(text), name: name})
			}
		}
	}
	s.order()
	return s
}

// With is the set of the secrets of both: after a reload an answer to an earlier call can still hold an old one.
func (s *Set) With(o *Set) *Set {
	if s == nil || o == nil {
		if s == nil {
			return o
		}
		return s
	}
	u := &Set{whole: maps.Clone(o.whole), names: maps.Clone(o.names), forms: slices.Clone(o.forms)}
	known := map[string]bool{}
	for _, f := range u.forms {
		known[f.text] = true
	}
	for value, name := range s.whole {
		if _, ok := u.whole[value]; !ok {
			u.whole[value] = name
		}
	}
	for name := range s.names {
		u.names[name] = true
	}
	for _, f := range s.forms {
		if !known[f.text] {
			u.forms = append(u.forms, f)
		}
	}
	u.order()
	return u
}

// order brings the forms into the order in which they are tried.
func (s *Set) order() {
	slices.SortStableFunc(s.forms, func(a, b form) int { return cmp.Compare(len(b.text), len(a.text)) })
	for i, f := range s.forms {
		s.byFirst[f.text[0]] = append(s.byFirst[f.text[0]], i)
	}
}

// Bytes is String for bytes. The slice itself comes back when it holds no secret.
func (s *Set) Bytes(text []byte) []byte {
	if s == nil || len(text) == 0 {
		return text
	}
	before := string(text)
	if after := s.String(before); after != before {
		return []byte(after)
	}
	return text
}

// String is text with ${NAME} in place of each secret: of the value as it is, with any of its characters escaped for a
// URL, JSON, Go, or HTML, and in base64, alone or within a longer base64 text. Of a value that is a URL, its path with the
// query, long parts of these and its password count as secrets too, since errors and redirects show URLs in pieces. Where
// secrets overlap, all that they cover goes. Redacting twice is the same as once.
func (s *Set) String(text string) string {
	if s == nil || text == "" {
		return text
	}
	if name, ok := s.whole[text]; ok {
		return "${" + name + "}"
	}
	var out strings.Builder
	done := 0 // text before this offset is in out
	for i := 0; i < len(text); {
		if n := s.placeholder(text[i:]); n > 0 {
			i += n
			continue
		}
		end, name := s.longest(text, i)
		if end == 0 {
			i++
			continue
		}
		out.WriteString(text[done:i])
		out.WriteString("${" + name + "}")
		// A secret that begins within this one and goes on behind it must not leave its tail.
		for i++; i < end; i++ {
			if further, other := s.longest(text, i); further > end {
				end = further
				if other != name {
					out.WriteString("${" + other + "}")
					name = other
				}
			}
		}
		done = end
		i = end
	}
	if done == 0 {
		return text
	}
	out.WriteString(text[done:])
	return out.String()
}

// placeholder is the length of the ${NAME} of this set at the head of text, or 0.
func (s *Set) placeholder(text string) int {
	if !strings.HasPrefix(text, "${") {
		return 0
	}
	end := strings.IndexByte(text, '}')
	if end < 0 || !s.names[text[2:end]] {
		return 0
	}
	return end + 1
}

// longest is the end of the longest secret that begins at the offset at, and its name; 0 where none does. Of two that
// end together, one that is there as a whole goes before one that the text's end cuts off.
func (s *Set) longest(text string, at int) (end int, name string) {
	whole := false
	try := func(f *form) {
		e, w := f.match(text, at)
		if e > end || e == end && w && !whole {
			end, name, whole = e, f.name, w
		}
	}
	for _, i := range s.byFirst[text[at]] {
		try(&s.forms[i])
	}
	if strings.IndexByte(escapeStarts, text[at]) >= 0 {
		for i := range s.forms {
			try(&s.forms[i])
		}
	}
	return end, name
}
