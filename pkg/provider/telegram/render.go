package telegram

import (
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/message"
)

// Telegram's limits, and what the parts of a message may take of them. Characters are code points after the entities
// were parsed, so markup does not count; the raw text has a limit of its own in bytes.
const (
	maxText     = 4096
	maxRaw      = 32768
	maxCallback = 64 // bytes
	maxButtons  = 8
	maxLabel    = 64

	headText   = 256
	statusText = 120
	footerText = 250
	fieldName  = 60
	fieldText  = 250
	maxFields  = 10
	itemText   = 250
	linkTitle  = 80
	maxLinks   = 8
	maxURL     = 2000 // bytes of one address
	urlBytes   = 6000 // bytes of all of them
	plainURLs  = 1200 // code points of all of them where they stand in the text
)

// cost counts code points.
func cost(r rune) int { return message.CodePoints(r) }

// part is a piece of the message as it is written: its markup, and what it counts after parsing.
type part struct {
	plain bool // no markup: the text as it is
	html  string
	width int
}

func (p *part) text(s string) {
	p.width += message.Width(s, cost)
	if !p.plain {
		s = escaper.Replace(s)
	}
	p.html += s
}

// tagged is text between the tags of an element without attributes.
func (p *part) tagged(name, s string) {
	if p.plain {
		p.text(s)
		return
	}
	p.html += "<" + name + ">"
	p.text(s)
	p.html += "</" + name + ">"
}

// link is text that leads to an address. Without markup the address stands beside it.
func (p *part) link(s, address string) {
	if p.plain {
		p.text(s + ": " + address)
		return
	}
	p.html += `<a href="` + attributeEscaper.Replace(address) + `">`
	p.text(s)
	p.html += "</a>"
}

// render makes the text and the keyboard, "" for none. Everything is cut before it is marked up. The parts that must
// survive are made first; the text, the fields and the alerts share what is left.
func render(m message.Message, f delivery.Form) (text, keyboard string) {
	if invisible(m.Title) {
		m.Title = "" // which the headline says in words
	}
	empty := part{plain: f.Plain}
	head, foot, facts, body, list := empty, empty, empty, empty, empty
	head.tagged("b", m.Headline(headText, cost))
	if status := m.Status(statusText, cost); status != "" {
		head.text("\n" + status)
	}
	all := address(m.MoreURL)
	links := linkLine(empty, m.Links, all)
	if footer := message.Fit(message.Line(m.Footer), footerText, cost); footer != "" {
		foot.tagged("i", footer)
	}
	const separators, more = 16, 24 // blank lines between the parts, and "and 123456 more"
	room := maxText - head.width - links.width - foot.width - separators - more
	if f.Plain {
		room -= message.Width(all, cost) + 2
	}

	shown := m.Fields[:min(len(m.Fields), maxFields)]
	left := len(m.Fields) - len(shown)
	for _, f := range shown {
		name, value := message.Fit(message.Line(f.Name), fieldName, cost), message.Fit(message.Line(f.Value), fieldText, cost)
		if message.Width(name, cost)+message.Width(value, cost)+3+facts.width > room/3 {
			left++
			continue
		}
		if facts.width > 0 {
			facts.text("\n")
		}
		facts.tagged("b", name)
		facts.text(": " + value)
	}
	room -= facts.width
	bodyRoom := room
	if len(m.Items) > 0 {
		bodyRoom = room / 2 // the alerts must not be pushed out by a long description
	}
	if t := strings.TrimSpace(message.Fit(m.Text, bodyRoom, cost)); t != "" {
		body.text(t)
	}
	lines, unseen := m.List(room-body.width, itemText, cost)
	list.text(lines)
	if left += unseen; left > 0 {
		if lines != "" {
			list.text("\n")
		}
		if all != "" {
			list.link(message.More(left), all)
		} else {
			list.text(message.More(left))
		}
	}
	var b strings.Builder
	for _, p := range []part{head, body, facts, list, links, foot} {
		if p.html == "" {
			continue
		}
		if b.Len() > 0 {
			b.WriteString("\n\n")
		}
		b.WriteString(p.html)
	}
	if f.Plain || f.NoButtons {
		return b.String(), ""
	}
	return b.String(), buttons(m.Buttons)
}

// invisible says that nothing of a text can be seen. Telegram takes a message of such text for an empty one.
func invisible(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool {
		return unicode.IsGraphic(r) && !unicode.IsSpace(r) && !unicode.Is(unicode.Zs, r) && !strings.ContainsRune("\u2800\ufffc\u030a\u0333\u033f", r)
	})
}

// address is an address that Telegram makes a link of; "" where it would not, or where it is too long to be one.
func address(raw string) string {
	u, err := url.Parse(strings.TrimSpace(raw))
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return ""
	}
	if s := u.String(); utf8.ValidString(s) && len(attributeEscaper.Replace(s)) <= maxURL {
		return s
	}
	return ""
}

// linkLine gives the links on one line. An address cannot be cut. What cannot be a link is named all the same, and leads
// to where all of it can be seen.
func linkLine(p part, links []message.Link, all string) part {
	bytes, unseen := 0, 0
	for i, l := range links {
		if i >= maxLinks {
			unseen = len(links) - i
			break
		}
		title, to := message.Fit(message.Line(l.Title), linkTitle, cost), address(l.URL)
		size := len(attributeEscaper.Replace(to))
		limit := urlBytes
		if p.plain {
			size, limit = message.Width(to, cost), plainURLs
		}
		if invisible(title) {
			title = host(to)
		}
		if p.width > 0 {
			p.text(" · ")
		}
		switch {
		case to != "" && bytes+size <= limit:
			bytes += size
			p.link(title, to)
		case all != "" && !p.plain:
			p.link(title+" (its address is in the incident)", all)
		case all != "":
			p.text(title + " (its address is in the incident)")
		default:
			p.text(title + " (its address cannot be shown here)")
		}
	}
	if unseen > 0 {
		more := "and " + strconv.Itoa(unseen) + " more links"
		p.text(" · ")
		if all != "" && !p.plain {
			p.link(more, all)
		} else {
			p.text(more)
		}
	}
	return p
}

// host is what a link without a title is called.
func host(address string) string {
	if u, err := url.Parse(address); err == nil {
		if h := message.Fit(u.Host, linkTitle, cost); h != "" {
			return h
		}
	}
	return "Link"
}

// inRow is how many buttons stand side by side: on a phone, more would be cut.
const inRow = 2

// buttons makes the inline keyboard's JSON. What a press carries is "action:value"; a button for which that is too
// long is left out, since a cut one would do something else.
func buttons(in []message.Button) string {
	type button struct {
		Text string `json:"text"`
		Data string `json:"callback_data"`
	}
	var row []button
	for _, b := range in {
		data := b.Action + ":" + b.Value
		label := message.Fit(message.Line(b.Label), maxLabel, message.UTF16)
		if b.Action == "" || len(data) > maxCallback || !utf8.ValidString(data) || len(row) == maxButtons {
			continue
		}
		if invisible(label) {
			label = b.Action
		}
		row = append(row, button{label, data})
	}
	if len(row) == 0 {
		return ""
	}
	raw, err := json.Marshal(map[string]any{"inline_keyboard": slices.Collect(slices.Chunk(row, inRow))})
	if err != nil {
		return "" // strings always marshal
	}
	return string(raw)
}

var (
	escaper          = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")
	attributeEscaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;")
)
