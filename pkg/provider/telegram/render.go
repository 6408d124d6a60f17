package telegram

import (
	"encoding/json"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/tocsin-oncall/tocsin/pkg/message"
)

// Telegram's limits, and what the parts of a message may take of them. Characters are code points after the entities
// were parsed, so markup does not count; the raw text has a limit of its own in bytes.
const (
	maxText     = 4096
	maxRaw      = 32768
	maxCallback = 64 // bytes
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
)

// cost counts code points.
func cost(r rune) int { return message.CodePoints(r) }

// part is a piece of the message: its markup, and what it counts after parsing.
type part struct {
	html  string
	width int
}

func (p *part) add(markup string, text string) {
	p.html += strings.Replace(markup, "$", escape(text), 1)
	p.width += message.Width(text, cost)
}

// render makes the HTML text and the keyboard, "" for none. Everything is cut before it is marked up. The parts that
// must survive are made first; the text, the fields and the alerts share what is left.
func render(m message.Message) (html, keyboard string) {
	var head, foot part
	head.add("<b>$</b>", m.Headline(headText, cost))
	if status := m.Status(statusText, cost); status != "" {
		head.add("$", "\n"+status)
	}
	links := linkLine(m.Links)
	if footer := message.Fit(message.Line(m.Footer), footerText, cost); footer != "" {
		foot.add("<i>$</i>", footer)
	}
	const separators, more = 16, 24 // blank lines between the parts, and "and 123456 more"
	room := maxText - head.width - links.width - foot.width - separators - more

	shown := m.Fields[:min(len(m.Fields), maxFields)]
	left := len(m.Fields) - len(shown)
	var facts part
	for _, f := range shown {
		name, value := message.Fit(message.Line(f.Name), fieldName, cost), message.Fit(message.Line(f.Value), fieldText, cost)
		if message.Width(name, cost)+message.Width(value, cost)+3+facts.width > room/3 {
			left++
			continue
		}
		if facts.width > 0 {
			facts.add("$", "\n")
		}
		facts.add("<b>$</b>", name)
		facts.add("$", ": "+value)
	}
	room -= facts.width
	textRoom := room
	if len(m.Items) > 0 {
		textRoom = room / 2 // the alerts must not be pushed out by a long description
	}
	var text, list part
	if t := strings.TrimSpace(message.Fit(m.Text, textRoom, cost)); t != "" {
		text.add("$", t)
	}
	lines, unseen := m.List(room-text.width, itemText, cost)
	list.add("$", lines)
	if left += unseen; left > 0 {
		if lines != "" {
			list.add("$", "\n")
		}
		list.add("$", message.More(left))
	}
	var b strings.Builder
	for _, p := range []part{head, text, facts, list, links, foot} {
		if p.html == "" {
			continue
		}
		if b.Len() > 0 {
			b.WriteString("\n\n")
		}
		b.WriteString(p.html)
	}
	return b.String(), buttons(m.Buttons)
}

// linkLine gives the links on one line. An address cannot be cut, so one that is too long is left out.
func linkLine(links []message.Link) part {
	var p part
	bytes := 0
	for i, n := 0, 0; i < len(links) && n < maxLinks; i++ {
		u, err := url.Parse(strings.TrimSpace(links[i].URL))
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			continue
		}
		address := escapeAttribute(u.String())
		if len(address) > maxURL || bytes+len(address) > urlBytes {
			continue
		}
		bytes += len(address)
		title := message.Fit(message.Line(links[i].Title), linkTitle, cost)
		if title == "" {
			title = u.Host
		}
		if n > 0 {
			p.add("$", " · ")
		}
		p.add(`<a href="`+strings.ReplaceAll(address, "$", "%24")+`">$</a>`, title)
		n++
	}
	return p
}

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
		if b.Action == "" || len(data) > maxCallback || !utf8.ValidString(data) || len(row) == 8 {
			continue
		}
		if label == "" {
			label = b.Action
		}
		row = append(row, button{label, data})
	}
	if len(row) == 0 {
		return ""
	}
	raw, err := json.Marshal(map[string]any{"inline_keyboard": [][]button{row}})
	if err != nil {
		return "" // strings always marshal
	}
	return string(raw)
}

var (
	escaper          = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")
	attributeEscaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;")
)

func escape(s string) string { return escaper.Replace(s) }

func escapeAttribute(s string) string { return attributeEscaper.Replace(s) }
