package redact

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// escapeStarts are the bytes that can begin an escaped character: URL, URL query's blank, JSON and Go, HTML; and the
// first byte of the character that stands for bytes that are not UTF-8.
const escapeStarts = "%+\\&\xef"

// minCut is the least that must be left of a secret at the end of a text that was cut there.
const minCut = 8

// characters cuts text into its characters; a byte that is not UTF-8 is one of its own.
func characters(text string) []string {
	var all []string
	for text != "" {
		_, n := utf8.DecodeRuneInString(text)
		all = append(all, text[:n])
		text = text[n:]
	}
	return all
}

// match is the end of the form in text from the offset at, each character as it is or escaped in whatever way; 0 where
// it is not there. A form that the end of text cuts off matches too while enough of it is left; then whole is false.
//
// Some characters are their own escape sign (a % may stand for itself or begin %25), so all readings are followed side
// by side. There are never more of them than offsets.
func (f *form) match(text string, at int) (end int, whole bool) {
	var room [3][8]int // nothing is allocated while the readings are few
	here, next, ends := append(room[0][:0], at), room[1][:0], room[2][:0]
	read := 0 // bytes of the form
	for _, c := range f.units {
		next = next[:0]
		for _, i := range here {
			if i == len(text) {
				if read >= minCut && 2*read >= len(f.text) {
					return i, false
				}
				continue
			}
			ends = readings(ends[:0], text, i, c)
			for _, end := range ends {
				if !slices.Contains(next, end) {
					next = append(next, end)
				}
			}
		}
		if len(next) == 0 {
			return 0, false
		}
		here, next = next, here
		read += len(c)
	}
	return slices.Max(here), true
}

// readings appends where the character c ends that stands at the offset at, for each way to read it.
func readings(ends []int, text string, at int, c string) []int {
	rest := text[at:]
	if strings.HasPrefix(rest, c) {
		ends = append(ends, at+len(c))
	}
	r, _ := utf8.DecodeRuneInString(c)
	switch rest[0] {
	case '+':
		if c == " " {
			ends = append(ends, at+1)
		}
	case '%':
		ends = percent(ends, text, at, c)
		if c == " " {
			ends = percent(ends, text, at, "+") // a query within a query
		}
	case '\\':
		if n := backslash(rest, c, r); n > 0 {
			ends = append(ends, at+n)
		}
		for n := 2; c == `\` && n <= 8 && strings.HasPrefix(rest, `\\\\\\\\`[:n]); n *= 2 {
			ends = append(ends, at+n)
		}
	case '&':
		if n := entity(rest, r); n > 0 {
			ends = append(ends, at+n)
		}
	case 0xef:
		if r == utf8.RuneError && len(c) == 1 && strings.HasPrefix(rest, "\uFFFD") {
			ends = append(ends, at+3)
		}
	}
	return ends
}

// percent appends where c ends in percent-encoding at the offset at, encoded once (%2F) or several times over (%252F).
func percent(ends []int, text string, at int, c string) []int {
	n := at
	for i := range len(c) {
		if n == len(text) || text[n] != '%' {
			return ends
		}
		for n++; ; n += 2 {
			if n+2 > len(text) {
				return ends
			}
			if hex(text[n:n+2]) == int(c[i]) {
				if i == len(c)-1 {
					ends = append(ends, n+2) // of a % there may be longer readings
				}
				if c[i] != '%' {
					n += 2
					break
				}
			}
			if text[n:n+2] != "25" {
				return ends
			}
		}
	}
	return ends
}

// backslash is the length of c as an escape of JSON or Go at the head of s. Text that was quoted several times over has
// several backslashes. (The backslash itself, doubled, is the caller's: it has several readings.)
func backslash(s, c string, r rune) int {
	n := len(s) - len(strings.TrimLeft(s, `\`))
	tail := s[n:]
	if tail == "" {
		return 0
	}
	number := func(mark byte, digits int) int {
		if tail[0] != mark || len(tail) < 1+digits {
			return -1
		}
		return hex(tail[1 : 1+digits])
	}
	switch {
	case len(c) == 1 && strings.IndexByte("\n\t\r\b\f\v\a", c[0]) >= 0 && tail[0] == "ntrbfva"[strings.IndexByte("\n\t\r\b\f\v\a", c[0])]:
		return n + 1
	case (c == "/" || c == `"` || c == "'") && tail[0] == c[0]:
		return n + 1
	case number('u', 4) == int(r):
		return n + 5
	case number('U', 8) == int(r):
		return n + 9
	case len(c) == 1 && number('x', 2) == int(c[0]):
		return n + 3
	}
	if high, low := utf16.EncodeRune(r); high != utf8.RuneError && number('u', 4) == int(high) {
		if pair := strings.TrimLeft(tail[5:], `\`); len(pair) >= 5 && pair[0] == 'u' && hex(pair[1:5]) == int(low) {
			return len(s) - len(pair) + 5
		}
	}
	return 0
}

// entity is the length of r as an HTML entity at the head of s.
func entity(s string, r rune) int {
	body, _, ok := strings.Cut(s[1:min(len(s), 12)], ";")
	if !ok {
		return 0
	}
	value := int64(-1)
	switch {
	case strings.HasPrefix(body, "#x"), strings.HasPrefix(body, "#X"):
		value, _ = strconv.ParseInt(body[2:], 16, 32)
	case strings.HasPrefix(body, "#"):
		value, _ = strconv.ParseInt(body[1:], 10, 32)
	default:
		if i := slices.Index([]string{"amp", "lt", "gt", "quot", "apos"}, body); i >= 0 {
			value = int64(`&<>"'`[i])
		}
	}
	if value != int64(r) {
		return 0
	}
	return len(body) + 2
}

// hex is the number that s is in hexadecimal digits, or -1.
func hex(s string) int {
	v, err := strconv.ParseUint(s, 16, 32)
	if err != nil {
		return -1
	}
	return int(v)
}
