package telegramtest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Entity is one formatted piece of a text. Offset and Length count UTF-16 code units, as Telegram does.
type Entity struct {
	Type     string `json:"type"`
	Offset   int    `json:"offset"`
	Length   int    `json:"length"`
	URL      string `json:"url,omitempty"`
	Language string `json:"language,omitempty"`
	Emoji    string `json:"custom_emoji_id,omitempty"`
}

// tags are Telegram's tags with the entity each one makes.
var tags = map[string]string{
	"a": "text_link", "b": "bold", "strong": "bold", "i": "italic", "em": "italic", "u": "underline", "ins": "underline",
	"s": "strikethrough", "strike": "strikethrough", "del": "strikethrough", "span": "spoiler", "tg-spoiler": "spoiler",
	"tg-emoji": "custom_emoji", "tg-time": "date_time", "code": "code", "pre": "pre", "blockquote": "blockquote",
}

// opened is a start tag that waits for its end.
type opened struct {
	tag    string
	entity Entity
}

// parser reads Telegram's HTML. Positions in errors are byte offsets into the source, as Telegram reports them.
type parser struct {
	src      string
	at       int
	out      strings.Builder
	units    int // UTF-16 code units written
	open     []opened
	entities []Entity
}

// parseHTML turns HTML into text and entities, or fails with what Telegram says after "can't parse entities: ", in its
// own words and capitals.
func parseHTML(src string) (string, []Entity, error) {
	if !utf8.ValidString(src) {
		return "", nil, fmt.Errorf("Strings must be encoded in UTF-8")
	}
	p := &parser{src: src}
	for p.at < len(src) {
		var err error
		switch src[p.at] {
		case '&':
			p.reference()
		case '<':
			if strings.HasPrefix(src[p.at:], "</") {
				err = p.end()
			} else {
				err = p.start()
			}
		default:
			r, n := utf8.DecodeRuneInString(src[p.at:])
			p.write(r)
			p.at += n
		}
		if err != nil {
			return "", nil, err
		}
	}
	if n := len(p.open); n > 0 {
		return "", nil, fmt.Errorf("Can't find end tag corresponding to start tag %q", p.open[n-1].tag)
	}
	slices.SortStableFunc(p.entities, func(a, b Entity) int {
		if a.Offset != b.Offset {
			return a.Offset - b.Offset
		}
		return b.Length - a.Length
	})
	return p.out.String(), p.entities, nil
}

func (p *parser) write(r rune) {
	p.out.WriteRune(r)
	p.units += utf16.RuneLen(r)
}

// reference reads &lt; &gt; &amp; &quot; and numeric references; anything else is a plain "&".
func (p *parser) reference() {
	r, n := reference(p.src[p.at:])
	p.write(r)
	p.at += n
}

func reference(s string) (rune, int) {
	for name, r := range map[string]rune{"&lt": '<', "&gt": '>', "&amp": '&', "&quot": '"'} {
		if rest, ok := strings.CutPrefix(s, name); ok && (rest == "" || !letter(rest[0])) {
			n := len(name)
			if strings.HasPrefix(rest, ";") {
				n++
			}
			return r, n
		}
	}
	if digits, ok := strings.CutPrefix(s, "&#"); ok {
		base, skip := 10, 2
		if strings.HasPrefix(digits, "x") {
			base, skip, digits = 16, 3, digits[1:]
		}
		end := strings.IndexFunc(digits, func(r rune) bool { return !strings.ContainsRune("0123456789abcdefABCDEF"[:min(base+base/16*6, 22)], r) })
		if end < 0 {
			end = len(digits)
		}
		if v, err := strconv.ParseInt(digits[:end], base, 32); err == nil && v > 0 && utf8.ValidRune(rune(v)) {
			n := skip + end
			if strings.HasPrefix(digits[end:], ";") {
				n++
			}
			return rune(v), n
		}
	}
	return '&', 1
}

func letter(b byte) bool { return b|0x20 >= 'a' && b|0x20 <= 'z' }

func blank(b byte) bool { return b == ' ' || b == '\t' || b == '\r' || b == '\n' }

func (p *parser) start() error {
	begin := p.at
	p.at++
	from := p.at
	for p.at < len(p.src) && !blank(p.src[p.at]) && p.src[p.at] != '>' {
		p.at++
	}
	if p.at >= len(p.src) {
		return fmt.Errorf("Unclosed start tag at byte offset %d", begin)
	}
	tag := strings.ToLower(p.src[from:p.at])
	kind, ok := tags[tag]
	if !ok {
		return fmt.Errorf("Unsupported start tag %q at byte offset %d", tag, begin)
	}
	attributes, err := p.attributes(begin)
	if err != nil {
		return err
	}
	e := Entity{Type: kind, Offset: p.units}
	switch tag {
	case "a":
		e.URL = attributes["href"]
	case "span":
		if attributes["class"] != "tg-spoiler" {
			return fmt.Errorf("Tag \"span\" must have class \"tg-spoiler\" at byte offset %d", begin)
		}
	case "tg-emoji":
		e.Emoji = attributes["emoji-id"]
	case "code":
		e.Language, _ = strings.CutPrefix(attributes["class"], "language-")
	case "blockquote":
		if _, ok := attributes["expandable"]; ok {
			e.Type = "expandable_blockquote"
		}
	}
	p.open = append(p.open, opened{tag, e})
	return nil
}

// attributes reads up to and past the ">" of a start tag.
func (p *parser) attributes(begin int) (map[string]string, error) {
	out := map[string]string{}
	unclosed := fmt.Errorf("Unclosed start tag at byte offset %d", begin)
	for {
		for p.at < len(p.src) && blank(p.src[p.at]) {
			p.at++
		}
		if p.at >= len(p.src) {
			return nil, unclosed
		}
		if p.src[p.at] == '>' {
			p.at++
			return out, nil
		}
		from := p.at
		for p.at < len(p.src) && !blank(p.src[p.at]) && p.src[p.at] != '=' && p.src[p.at] != '>' {
			p.at++
		}
		name := strings.ToLower(p.src[from:p.at])
		if name == "" {
			return nil, fmt.Errorf("Empty attribute name in the tag at byte offset %d", begin)
		}
		if p.at >= len(p.src) {
			return nil, unclosed
		}
		if p.src[p.at] != '=' {
			out[name] = ""
			continue
		}
		p.at++
		value, ok := p.value()
		if !ok {
			return nil, unclosed
		}
		out[name] = value
	}
}

func (p *parser) value() (string, bool) {
	if p.at >= len(p.src) {
		return "", false
	}
	quote := p.src[p.at]
	var b strings.Builder
	if quote != '"' && quote != '\'' {
		from := p.at
		for p.at < len(p.src) && !blank(p.src[p.at]) && p.src[p.at] != '>' {
			p.at++
		}
		return p.src[from:p.at], p.at < len(p.src)
	}
	for p.at++; p.at < len(p.src); {
		switch c := p.src[p.at]; c {
		case quote:
			p.at++
			return b.String(), true
		case '&':
			r, n := reference(p.src[p.at:])
			b.WriteRune(r)
			p.at += n
		default:
			b.WriteByte(c)
			p.at++
		}
	}
	return "", false
}

func (p *parser) end() error {
	begin := p.at
	end := strings.IndexByte(p.src[p.at:], '>')
	if end < 0 {
		return fmt.Errorf("Unclosed end tag at byte offset %d", begin)
	}
	tag := strings.ToLower(strings.TrimSpace(p.src[p.at+2 : p.at+end]))
	p.at += end + 1
	n := len(p.open)
	if n == 0 {
		return fmt.Errorf("Unexpected end tag at byte offset %d", begin)
	}
	top := p.open[n-1]
	if tag != "" && tag != top.tag {
		return fmt.Errorf("Unmatched end tag at byte offset %d, expected \"</%s>\", found \"</%s>\"", begin, top.tag, tag)
	}
	p.open = p.open[:n-1]
	e := top.entity
	e.Length = p.units - e.Offset
	if e.Length == 0 || e.Type == "text_link" && !linkable(e.URL) {
		return nil // Telegram drops an empty entity, and a link that it does not like, without a word
	}
	p.entities = append(p.entities, e)
	return nil
}

// cleaned changes a text as TDLib does before it sends it: control characters become blanks, and line separators, marks
// of direction and three combining lines, with which people have broken others' screens, are left out. Entities move along.
func cleaned(text string, entities []Entity) (string, []Entity) {
	var b strings.Builder
	at := make([]int, 0, len(text)+1) // where each code unit of the old text stands in the new one
	n := 0
	for _, r := range text {
		for range utf16.RuneLen(r) {
			at = append(at, n)
		}
		switch {
		case r == '\r', 0x2028 <= r && r <= 0x202e, r == 0x30a, r == 0x333, r == 0x33f:
			continue
		case r < ' ' && r != '\n':
			r = ' '
		}
		b.WriteRune(r)
		n += utf16.RuneLen(r)
	}
	at = append(at, n)
	var out []Entity
	for _, e := range entities {
		from, to := at[clamp(e.Offset, len(at)-1)], at[clamp(e.Offset+e.Length, len(at)-1)]
		if from < to {
			e.Offset, e.Length = from, to-from
			out = append(out, e)
		}
	}
	return b.String(), out
}

// invisible says that nothing of a text can be seen, for which Telegram takes it as empty.
func invisible(text string) bool {
	return strings.TrimFunc(text, func(r rune) bool {
		return unicode.IsSpace(r) || unicode.Is(unicode.Zs, r) || 0x200b <= r && r <= 0x200f || 0xe0000 <= r && r <= 0xe007f ||
			strings.ContainsRune("\u180e\u2800\ufeff\ufffc", r)
	}) == ""
}

// trimmed cuts blanks off both ends and moves the entities along.
func trimmed(text string, entities []Entity) (string, []Entity) {
	kept := strings.TrimRight(text, " \n\t\r")
	left := len(kept) - len(strings.TrimLeft(kept, " \n\t\r"))
	cut, length := units(kept[:left]), units(kept[left:])
	var out []Entity
	for _, e := range entities {
		from, to := max(e.Offset-cut, 0), min(e.Offset+e.Length-cut, length)
		if from < to {
			e.Offset, e.Length = from, to-from
			out = append(out, e)
		}
	}
	return kept[left:], out
}

func units(s string) (n int) {
	for _, r := range s {
		n += utf16.RuneLen(r)
	}
	return n
}
