package slacktest

import (
	"html"
	"html/template"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tocsin-oncall/tocsin/pkg/provider/chattest"
)

// names resolves ids in mentions for the page.
type names func(id string) string

// mrkdwn renders Slack's markup. Every piece of text is escaped here, and the only tags are the ones written below,
// so whatever a message holds stays text.
func mrkdwn(src string, who names) template.HTML {
	var b strings.Builder
	for i, part := range strings.Split(src, "```") {
		if i%2 == 1 && strings.Count(src, "```") > i { // closed fence
			b.WriteString("<pre>" + plain(strings.Trim(part, "\n")) + "</pre>")
			continue
		}
		if i%2 == 1 {
			part = "```" + part
		}
		quoted(&b, part, who)
	}
	return template.HTML(b.String())
}

// quoted gathers lines that begin with ">" into block quotes.
func quoted(b *strings.Builder, src string, who names) {
	var quote []string
	flush := func() {
		if quote != nil {
			b.WriteString("<blockquote>" + inline(strings.Join(quote, "\n"), who) + "</blockquote>")
			quote = nil
		}
	}
	var rest []string
	text := func() {
		if rest != nil {
			b.WriteString(inline(strings.Join(rest, "\n"), who))
			rest = nil
		}
	}
	for line := range strings.SplitSeq(src, "\n") {
		body, ok := strings.CutPrefix(line, "&gt;")
		if !ok {
			body, ok = strings.CutPrefix(line, ">")
		}
		if ok {
			text()
			quote = append(quote, strings.TrimPrefix(body, " "))
			continue
		}
		flush()
		rest = append(rest, line)
	}
	flush()
	text()
}

var marks = map[rune]string{'*': "strong", '_': "em", '~': "s"}

// inline renders everything that fits into a line.
func inline(src string, who names) string {
	var b strings.Builder
	prev := ' '
	for i := 0; i < len(src); {
		r, n := utf8.DecodeRuneInString(src[i:])
		rest := src[i+n:]
		switch {
		case r == '<':
			if end := strings.IndexByte(rest, '>'); end > 0 && !strings.ContainsAny(rest[:end], "<\n") {
				b.WriteString(reference(rest[:end], who))
				i, prev = i+n+end+1, 'x'
				continue
			}
		case r == '`':
			if end := strings.IndexAny(rest, "`\n"); end > 0 && rest[end] == '`' {
				b.WriteString("<code>" + plain(rest[:end]) + "</code>")
				i, prev = i+n+end+1, '`'
				continue
			}
		case marks[r] != "" && !word(prev):
			if end := closing(rest, r); end > 0 {
				b.WriteString("<" + marks[r] + ">" + inline(rest[:end], who) + "</" + marks[r] + ">")
				i, prev = i+n+end+1, r
				continue
			}
		case r == ':':
			if m := shortcode.FindString(src[i:]); m != "" && emoji[strings.Trim(m, ":")] != "" {
				b.WriteString(emoji[strings.Trim(m, ":")])
				i, prev = i+len(m), ':'
				continue
			}
		case r == '&':
			if e := entity.FindString(src[i:]); e != "" {
				b.WriteString(e)
				i, prev = i+len(e), ';'
				continue
			}
		}
		b.WriteString(html.EscapeString(string(r)))
		i, prev = i+n, r
	}
	return b.String()
}

var (
	shortcode = regexp.MustCompile(`^:[a-z0-9_+\-]+:`)
	entity    = regexp.MustCompile(`^&(?:amp|lt|gt);`)
)

func word(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }

// markMost bounds the search for the end of a marked piece: a text of nothing but marks must not hold up the page.
const markMost = 1000

// closing finds the end of a marked piece: on the same line, not after a blank, not inside a word.
func closing(s string, mark rune) int {
	if s == "" || s[0] == ' ' || s[0] == byte(mark) {
		return -1
	}
	for i, r := range s {
		if r == '\n' || i > markMost {
			return -1
		}
		if r == mark && i > 0 && s[i-1] != ' ' {
			if next, _ := utf8.DecodeRuneInString(s[i+1:]); i+1 == len(s) || !word(next) {
				return i
			}
		}
	}
	return -1
}

// reference renders what stands between < and >: a link, a mention, a channel, a special.
func reference(s string, who names) string {
	target, label, labelled := strings.Cut(s, "|")
	show := func(sign, fallback string) string {
		if labelled && label != "" {
			return `<span class="mention">` + sign + plain(label) + `</span>`
		}
		return `<span class="mention">` + sign + plain(fallback) + `</span>`
	}
	switch {
	case strings.HasPrefix(target, "@"):
		return show("@", who(target[1:]))
	case strings.HasPrefix(target, "#"):
		return show("#", strings.TrimPrefix(who(target[1:]), "#"))
	case strings.HasPrefix(target, "!date^"):
		return plain(label)
	case strings.HasPrefix(target, "!"):
		return show("@", strings.TrimPrefix(strings.SplitN(target[1:], "^", 2)[0], "subteam"))
	}
	if !labelled || label == "" {
		label = target
	}
	href := chattest.SafeURL(html.UnescapeString(target))
	if href == "" {
		return "&lt;" + plain(s) + "&gt;"
	}
	return `<a href="` + html.EscapeString(href) + `" rel="noopener noreferrer" target="_blank">` + plain(label) + `</a>`
}

// plain escapes text in which Slack's own three entities stand for themselves, and turns shortcodes into emoji.
func plain(s string) string {
	s = strings.NewReplacer("&lt;", "<", "&gt;", ">", "&amp;", "&").Replace(s)
	return html.EscapeString(s)
}

// plainText is a plain_text object: shortcodes, no markup.
func plainText(s string) string {
	return anyShortcode.ReplaceAllStringFunc(s, func(m string) string {
		if e := emoji[strings.Trim(m, ":")]; e != "" {
			return e
		}
		return m
	})
}

var anyShortcode = regexp.MustCompile(`:[a-z0-9_+\-]+:`)

// emoji are the shortcodes that alerts use; others stay as they are written.
var emoji = map[string]string{
	"red_circle": "🔴", "large_yellow_circle": "🟡", "large_green_circle": "🟢", "large_blue_circle": "🔵", "large_orange_circle": "🟠",
	"white_circle": "⚪", "black_circle": "⚫", "white_check_mark": "✅", "heavy_check_mark": "✔️", "x": "❌", "warning": "⚠️", "rotating_light": "🚨",
	"fire": "🔥", "bell": "🔔", "no_bell": "🔕", "eyes": "👀", "zzz": "💤", "hourglass": "⌛", "hourglass_flowing_sand": "⏳", "alarm_clock": "⏰",
	"phone": "☎️", "telephone_receiver": "📞", "calling": "📲", "pager": "📟", "loudspeaker": "📢", "mega": "📣", "link": "🔗", "memo": "📝",
	"book": "📖", "books": "📚", "mag": "🔍", "wrench": "🔧", "hammer_and_wrench": "🛠️", "gear": "⚙️", "lock": "🔒", "key": "🔑",
	"chart_with_upwards_trend": "📈", "chart_with_downwards_trend": "📉", "bar_chart": "📊", "computer": "💻", "floppy_disk": "💾", "cloud": "☁️", "zap": "⚡",
	"boom": "💥", "bug": "🐛", "skull": "💀", "ghost": "👻", "tada": "🎉", "rocket": "🚀", "construction": "🚧", "no_entry": "⛔", "octagonal_sign": "🛑",
	"+1": "👍", "-1": "👎", "thumbsup": "👍", "thumbsdown": "👎", "wave": "👋", "pray": "🙏", "raised_hands": "🙌", "clap": "👏", "muscle": "💪",
	"heart": "❤️", "star": "⭐", "sparkles": "✨", "question": "❓", "exclamation": "❗", "information_source": "ℹ️", "arrow_up": "⬆️", "arrow_down": "⬇️",
	"arrow_right": "➡️", "arrows_counterclockwise": "🔄", "repeat": "🔁", "smile": "😄", "thinking_face": "🤔", "sob": "😭", "calendar": "📆", "clock1": "🕐",
	"busts_in_silhouette": "👥", "bust_in_silhouette": "👤", "point_right": "👉", "mute": "🔇", "speech_balloon": "💬", "robot_face": "🤖",
}
