package message

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
)

// Cost is how much of a provider's limit one rune uses up. Escaping is part of it: text is cut first and marked up
// after, since a cut through markup is refused as a whole.
type Cost func(rune) int

// CodePoints counts runes.
func CodePoints(rune) int { return 1 }

// UTF16 counts UTF-16 units: two for an emoji.
func UTF16(r rune) int { return max(utf16.RuneLen(r), 1) }

const ellipsis = '…'

// Width is the cost of a whole text.
func Width(s string, cost Cost) int {
	n := 0
	for _, r := range s {
		n += cost(r)
	}
	return n
}

// Fit cuts a text so that it costs at most limit, with an ellipsis where something was left out. It cuts between what
// people see as characters, so that an accent or the second half of an emoji is not torn off, unless a single one is too
// long. Broken UTF-8 becomes U+FFFD; control characters other than line break and tab are left out, since providers refuse
// or drop them.
func Fit(s string, limit int, cost Cost) string {
	var b strings.Builder
	b.Grow(min(len(s), 4*max(limit, 0)))
	used, dots := 0, cost(ellipsis)
	room, whole := 0, 0 // what may stay if an ellipsis must follow: up to a rune, up to a character
	var last rune
	for _, r := range s {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			continue
		}
		if !joins(last, r) && room == b.Len() {
			whole = room
		}
		c := cost(r)
		if used+c > limit {
			if dots > limit {
				return ""
			}
			if whole > 0 {
				room = whole
			}
			return strings.TrimRightFunc(b.String()[:room], unicode.IsSpace) + string(ellipsis)
		}
		used += c
		b.WriteRune(r)
		if used+dots <= limit {
			room = b.Len()
		}
		last = r
	}
	return b.String()
}

const joiner = '\u200d'

// joins says that people see b as a part of the character that ends in a: an accent, a variant, a skin colour, or what a
// joiner ties to it. It is the greater part of Unicode's rules for grapheme clusters, not all of them.
func joins(a, b rune) bool {
	return a == joiner || b == joiner || unicode.Is(unicode.M, b) || b >= 0x1f3fb && b <= 0x1f3ff
}

// Line makes one line of a text: every run of white space is one blank.
func Line(s string) string {
	// Only the head of a huge text can be seen; splitting all of it would cost as much as it is long.
	const enough = 64 << 10
	if len(s) > enough {
		s = strings.ToValidUTF8(s[:enough], "")
	}
	return strings.Join(strings.Fields(s), " ")
}

// Word is the state in words, for people; empty for Plain.
func (s State) Word() string {
	switch s {
	case Open:
		return "Open"
	case Acknowledged:
		return "Acknowledged"
	case Resolved:
		return "Resolved"
	}
	return ""
}

// Headline is the title on one line with the state's sign at its head. It is never empty.
func (m Message) Headline(limit int, cost Cost) string {
	sign := m.State.Sign()
	if sign != "" {
		sign += " "
	}
	limit -= Width(sign, cost)
	title := Fit(Line(m.Title), limit, cost)
	if strings.TrimSpace(title) == "" { // of control characters nothing is left either
		title = Fit("(no title)", limit, cost)
	}
	return sign + title
}

// Status is the state and the severity in words: "Open · critical". Empty when there is neither.
func (m Message) Status(limit int, cost Cost) string {
	parts := make([]string, 0, 2)
	if w := m.State.Word(); w != "" {
		parts = append(parts, w)
	}
	if s := Line(m.Severity); s != "" {
		parts = append(parts, s)
	}
	return Fit(strings.Join(parts, " · "), limit, cost)
}

// More says how many things are not shown: "and 3 more".
func More(n int) string { return fmt.Sprintf("and %d more", n) }

// Line is an item on one line, with its own sign at its head.
func (i Item) Line() string {
	sign := Open.Sign()
	if i.Resolved {
		sign = Resolved.Sign()
	}
	line := sign + " " + Line(i.Title)
	if d := Line(i.Detail); d != "" {
		line += " — " + d
	}
	return line
}

// List puts the items under one another, each on a line that costs at most each, as far as limit allows. left is how
// many are not shown, those that the message itself left out included.
func (m Message) List(limit, each int, cost Cost) (text string, left int) {
	var b strings.Builder
	used, shown, newline := 0, 0, cost('\n')
	for _, item := range m.Items {
		line := Fit(item.Line(), min(each, limit), cost)
		c := Width(line, cost)
		if shown > 0 {
			c += newline
		}
		if used+c > limit || line == "" {
			break
		}
		if shown > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(line)
		used += c
		shown++
	}
	return b.String(), len(m.Items) - shown + max(m.More, 0)
}
