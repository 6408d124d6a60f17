package telegramtest

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestEntities(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		src, text string
		want      []Entity
	}{
		{"plain & simple", "plain & simple", nil},
		{"&lt;a&gt; &amp;amp; &quot;q&quot; &#128293; &#x1F525; &nbsp;", `<a> &amp; "q" 🔥 🔥 &nbsp;`, nil},
		{"🔥<b>x</b>", "🔥x", []Entity{{Type: "bold", Offset: 2, Length: 1}}},
		{"<B>a<i>b</I></b>", "ab", []Entity{{Type: "bold", Offset: 0, Length: 2}, {Type: "italic", Offset: 1, Length: 1}}},
		{`<a href='http://x.example/?a=1&amp;b'>l</a>`, "l", []Entity{{Type: "text_link", Length: 1, URL: "http://x.example/?a=1&b"}}},
		{`<a href="http://localhost/">l</a>`, "l", nil},
		{`<span class="tg-spoiler">s</span><tg-spoiler>t</tg-spoiler>`, "st", []Entity{{Type: "spoiler", Length: 1}, {Type: "spoiler", Offset: 1, Length: 1}}},
		{`<pre><code class="language-go">x</code></pre>`, "x", []Entity{{Type: "code", Length: 1, Language: "go"}, {Type: "pre", Length: 1}}},
		{"<blockquote expandable>q</blockquote><b></b>", "q", []Entity{{Type: "expandable_blockquote", Length: 1}}},
		{"  <b> in </b> ", "in", []Entity{{Type: "bold", Length: 2}}},
		{"a\tb\r\x01<b>\u202ec\u030a</b><i>\u202d</i>😀<u>d</u>", "a b c😀d", []Entity{{Type: "bold", Offset: 4, Length: 1}, {Type: "underline", Offset: 7, Length: 1}}},
	} {
		text, entities, err := parseHTML(c.src)
		text, entities = trimmed(cleaned(text, entities))
		same := len(entities) == len(c.want)
		for i := range c.want {
			same = same && entities[i] == c.want[i]
		}
		if err != nil || text != c.text || !same {
			t.Errorf("%s: %q %+v %v, want %q %+v", c.src, text, entities, err, c.text, c.want)
		}
	}
	for src, want := range map[string]string{
		"<b": "Unclosed start tag at byte offset 0", "x</b>": "Unexpected end tag at byte offset 1", "<b></b": "Unclosed end tag at byte offset 3",
		"<a href=\"x>": "Unclosed start tag at byte offset 0", "<p>x</p>": `Unsupported start tag "p" at byte offset 0`,
		"<span>x</span>": `Tag "span" must have class "tg-spoiler" at byte offset 0`, "<b =x>": "Empty attribute name in the tag at byte offset 0", "\xff": "Strings must be encoded in UTF-8",
	} {
		if _, _, err := parseHTML(src); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", src, err, want)
		}
	}
}

// ours are the only tags that the page may draw in a text.
var ours = regexp.MustCompile(`</?(strong|em|u|s|code|pre|blockquote|span|a)>|<span class="(spoiler" tabindex="0|mention)">|<a href="(https?://|mailto:)[^"<>]*" rel="noopener noreferrer" target="_blank">`)

func FuzzTextIsNeverMarkup(f *testing.F) {
	for _, s := range []string{"<b>x</b>", `<a href="javascript:alert(1)">x</a>`, `<a href='http://a.example/"onclick=x'>&lt;script&gt;</a>`, "https://a.example/?q=<i>1</i>", "<pre>a<b>c</b></pre>", "🔥<i>🔥</i>", "http://a.example/\"x"} {
		f.Add(s, 1, 3)
	}
	f.Fuzz(func(t *testing.T, src string, offset, length int) {
		text, entities, err := parseHTML(src)
		if err != nil {
			text = strings.ToValidUTF8(src, "?")
		}
		// An entity as a caller may send it raw: anywhere, overlapping, beyond the end.
		entities = append(entities, Entity{Type: "bold", Offset: offset % 1000, Length: length % 1000}, Entity{Type: "text_link", Offset: length % 7, Length: 4, URL: src}, Entity{Type: src, Length: 2})
		out := string(rendered(text, entities))
		if !utf8.ValidString(out) {
			t.Errorf("not UTF-8: %q", out)
		}
		rest := ours.ReplaceAllString(out, "")
		if strings.ContainsAny(rest, "<>\"'") {
			t.Errorf("%q draws markup that is not ours: %q", src, rest)
		}
		var open []string
		for _, m := range regexp.MustCompile(`<(/?)([a-z]+)`).FindAllStringSubmatch(out, -1) {
			if m[1] == "" {
				open = append(open, m[2])
				continue
			}
			if len(open) == 0 || open[len(open)-1] != m[2] {
				t.Fatalf("%q is not well nested: %s", src, out)
			}
			open = open[:len(open)-1]
		}
		if len(open) != 0 {
			t.Errorf("%q leaves %v open: %s", src, open, out)
		}
	})
}
