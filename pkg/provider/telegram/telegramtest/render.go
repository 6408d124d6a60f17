package telegramtest

import (
	"cmp"
	"html"
	"html/template"
	"regexp"
	"slices"
	"strings"
	"unicode/utf16"

	"github.com/tocsin-oncall/tocsin/pkg/provider/chattest"
)

// elements are the tags in which the page draws the entities. Entities that are not here show as plain text.
var elements = map[string][2]string{
	"bold": {"<strong>", "</strong>"}, "italic": {"<em>", "</em>"}, "underline": {"<u>", "</u>"}, "strikethrough": {"<s>", "</s>"},
	"spoiler": {`<span class="spoiler" tabindex="0">`, "</span>"}, "code": {"<code>", "</code>"}, "pre": {"<pre>", "</pre>"},
	"blockquote": {"<blockquote>", "</blockquote>"}, "expandable_blockquote": {"<blockquote>", "</blockquote>"},
	"bot_command": {`<span class="mention">`, "</span>"}, "mention": {`<span class="mention">`, "</span>"},
}

// shownEntity is an entity on its way through the text.
type shownEntity struct {
	end         int
	start, stop string
	link        bool
}

// rendered draws a text with its entities. All text is escaped here and the only tags are ours; entities that
// overlap, which raw `entities` may, are closed and opened again, so the result is always well formed.
func rendered(text string, entities []Entity) template.HTML {
	coded := utf16.Encode([]rune(text))
	sorted := slices.SortedStableFunc(slices.Values(entities), func(a, b Entity) int {
		return cmp.Or(cmp.Compare(a.Offset, b.Offset), cmp.Compare(b.Length, a.Length))
	})
	cuts := []int{0, len(coded)}
	for _, e := range sorted {
		cuts = append(cuts, clamp(e.Offset, len(coded)), clamp(e.Offset+e.Length, len(coded)))
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)

	var b strings.Builder
	var open []shownEntity
	for i, at := range cuts {
		open = closeAt(&b, open, at)
		for _, e := range sorted {
			end := clamp(e.Offset+e.Length, len(coded))
			if clamp(e.Offset, len(coded)) != at || end <= at {
				continue
			}
			s := shownEntity{end: end, start: elements[e.Type][0], stop: elements[e.Type][1]}
			if href := chattest.SafeURL(e.URL); e.Type == "text_link" && href != "" {
				s.start, s.stop, s.link = `<a href="`+html.EscapeString(href)+`" rel="noopener noreferrer" target="_blank">`, "</a>", true
			}
			b.WriteString(s.start)
			open = append(open, s)
		}
		if i+1 < len(cuts) {
			piece := string(utf16.Decode(coded[at:cuts[i+1]]))
			if slices.ContainsFunc(open, func(s shownEntity) bool {
				return s.link || strings.HasPrefix(s.start, "<code") || strings.HasPrefix(s.start, "<pre")
			}) {
				b.WriteString(html.EscapeString(piece))
			} else {
				linked(&b, piece)
			}
		}
	}
	return template.HTML(b.String())
}

// closeAt ends the entities that are over, and opens those again that only stood inside.
func closeAt(b *strings.Builder, open []shownEntity, at int) []shownEntity {
	first := slices.IndexFunc(open, func(s shownEntity) bool { return s.end <= at })
	if first < 0 {
		return open
	}
	for _, s := range slices.Backward(open[first:]) {
		b.WriteString(s.stop)
	}
	left := slices.DeleteFunc(slices.Clone(open[first:]), func(s shownEntity) bool { return s.end <= at })
	for _, s := range left {
		b.WriteString(s.start)
	}
	return append(slices.Clone(open[:first]), left...)
}

var bareURL = regexp.MustCompile(`https?://[^\s<>"]*[^\s<>".,;:!?)\]']`)

// linked escapes text and turns bare addresses into links, as Telegram does by itself.
func linked(b *strings.Builder, s string) {
	for s != "" {
		at := bareURL.FindStringIndex(s)
		if at == nil {
			break
		}
		b.WriteString(html.EscapeString(s[:at[0]]))
		shown := s[at[0]:at[1]]
		if href := chattest.SafeURL(shown); href != "" {
			b.WriteString(`<a href="` + html.EscapeString(href) + `" rel="noopener noreferrer" target="_blank">` + html.EscapeString(shown) + `</a>`)
		} else {
			b.WriteString(html.EscapeString(shown))
		}
		s = s[at[1]:]
	}
	b.WriteString(html.EscapeString(s))
}

func clamp(n, most int) int { return max(0, min(n, most)) }
