package slack

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	slackgo "github.com/slack-go/slack"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/message"
)

// Slack's limits, in characters, and what this package allows itself below them. Where Slack does not say whether it
// counts before or after escaping, or in which units, the larger count is taken: see cost.
const (
	maxText       = 4000 // top-level text: an edit refuses more, so a post may not have more either
	maxSection    = 3000
	maxFields     = 10
	maxFieldText  = 2000
	maxButtons    = 25
	maxButtonText = 75
	maxValue      = 2000
	maxActionID   = 255
	maxBlockID    = 255

	maxLinkLines = 3 // text objects full of links; what has no room in them is counted

	fieldText  = 300  // what a field may take: more is no short fact
	itemText   = 300  // what one item may take, so that a long one leaves room for the others
	smallText  = 300  // status and footer
	linkText   = 100  // a link's title
	linksText  = 2950 // the links in one text object
	maxAddress = 2350 // a link's address, so that its title has room beside it
	summary    = 600  // the headline in the fallback text
	plainStart = 2000 // a plain message's title
)

// The colours of a card's edge.
var colours = map[message.State]string{
	message.Open:         "#d92d20",
	message.Acknowledged: "#f5b301",
	message.Resolved:     "#12a150",
}

// rendered is a message in Slack's form.
//
// A card is its title as text, above one attachment with an edge in colour and the blocks inside. Slack shows the text
// of a message with attachments, so a header block would say the title a second time; and a notification shows the
// text alone. Any other message is blocks, of which the text is what notifications and old clients show.
type rendered struct {
	text    string
	colour  string
	blocks  []slackgo.Block
	buttons int  // which of the blocks holds the buttons, from 1; 0: none
	plain   bool // text alone
}

// MarkPrefix begins the block_id of a new message's first block; the effect key follows. It is a second mark by which the
// message can be found again, where its metadata is not kept.
const MarkPrefix = "d_"

// render builds a message within Slack's limits. Text of others goes out as plain_text, in which nothing is markup;
// mrkdwn, whose stars and underscores cannot be escaped, is kept for our own words and for links.
//
// The form leaves out what Slack refused before. key becomes the mark of the first block; empty: none.
func render(m message.Message, form delivery.Form, key string) rendered {
	if form.Plain {
		return rendered{text: plainText(m), plain: true}
	}
	if form.NoButtons {
		m.Buttons = nil
	}
	r := rendered{colour: colours[m.State]}
	text := m.Text
	if r.colour != "" {
		if status := m.Status(smallText, cost); status != "" {
			r.blocks = append(r.blocks, slackgo.NewContextBlock("", plain(status)))
		}
	} else {
		text = message.Fit(message.Line(m.Title), plainStart, cost)
		if m.Text != "" {
			text = strings.TrimPrefix(text+"\n"+m.Text, "\n")
		}
	}
	cut := message.Width(text, cost) > maxSection
	if text = strings.TrimSpace(message.Fit(text, maxSection, cost)); text != "" {
		r.blocks = append(r.blocks, slackgo.NewSectionBlock(plain(text), nil, nil))
	}
	left := 0
	if len(m.Fields) > 0 {
		shown := m.Fields[:min(len(m.Fields), maxFields)]
		left += len(m.Fields) - len(shown)
		r.blocks = append(r.blocks, slackgo.NewSectionBlock(nil, fields(shown), nil))
	}
	list, more := m.List(maxSection, itemText, cost)
	if list != "" {
		r.blocks = append(r.blocks, slackgo.NewSectionBlock(plain(list), nil, nil))
	}
	left += more
	if lines := linkLines(m, left, cut); len(lines) > 0 {
		var texts []slackgo.MixedElement
		for _, line := range lines {
			texts = append(texts, slackgo.NewTextBlockObject(slackgo.MarkdownType, line, false, false))
		}
		r.blocks = append(r.blocks, slackgo.NewContextBlock("", texts...))
	}
	if buttons := buttons(m.Buttons); len(buttons) > 0 {
		r.blocks = append(r.blocks, slackgo.NewActionBlock("", buttons...))
		r.buttons = len(r.blocks)
	}
	if footer := message.Fit(message.Line(m.Footer), smallText, cost); footer != "" {
		r.blocks = append(r.blocks, slackgo.NewContextBlock("", plain(footer)))
	}
	r.text = fallback(m, text)
	if len(r.blocks) == 0 {
		r.blocks = append(r.blocks, slackgo.NewSectionBlock(plain(m.Headline(summary, cost)), nil, nil))
	}
	if mark := MarkPrefix + key; key != "" && message.Width(mark, message.UTF16) <= maxBlockID {
		setBlockID(r.blocks[0], mark)
	}
	return r
}

// setBlockID marks a block, of those kinds with which render begins.
func setBlockID(b slackgo.Block, id string) {
	switch b := b.(type) {
	case *slackgo.SectionBlock:
		b.BlockID = id
	case *slackgo.ContextBlock:
		b.BlockID = id
	case *slackgo.ActionBlock:
		b.BlockID = id
	}
}

// buttonsAt is the place of the buttons in Slack's words, a JSON pointer; empty where there are none.
func (r rendered) buttonsAt() string {
	switch {
	case r.buttons == 0:
		return ""
	case r.colour == "":
		return fmt.Sprintf("/blocks/%d", r.buttons-1)
	}
	return fmt.Sprintf("/attachments/0/blocks/%d", r.buttons-1)
}

// plainText is the whole message as text alone: all the words, and the links as they are. What must survive stands first,
// as far as it fits, and the rest is cut.
func plainText(m message.Message) string {
	head := m.Headline(summary, cost)
	if status := m.Status(smallText, cost); status != "" {
		head += " (" + status + ")"
	}
	list, left := m.List(maxText/4, itemText, cost)
	var tail []string
	if left > 0 {
		tail = append(tail, message.More(left))
	}
	room := maxText/2 - message.Width(head, cost)
	links := 0
	for _, l := range append(slices.Clone(m.Links), message.Link{Title: "Incident", URL: m.MoreURL}) {
		if _, ok := webAddress(l.URL); !ok {
			continue
		}
		line := message.Fit(message.Line(l.Title), linkText, cost) + ": " + strings.TrimSpace(l.URL)
		if w := message.Width(line, cost) + 1; w <= room {
			room -= w
			tail = append(tail, line)
			links++
		}
	}
	if n := len(m.Links) - links; n > 0 {
		tail = append(tail, moreLinks(n))
	}
	if footer := message.Fit(message.Line(m.Footer), smallText, cost); footer != "" {
		tail = append(tail, footer)
	}
	var facts []string
	for _, f := range m.Fields[:min(len(m.Fields), maxFields)] {
		facts = append(facts, message.Fit(message.Line(f.Name)+": "+message.Line(f.Value), fieldText/3, cost))
	}
	end := strings.Join(tail, "\n")
	middle := strings.Join(slices.DeleteFunc([]string{m.Text, strings.Join(facts, "\n"), list}, func(s string) bool { return strings.TrimSpace(s) == "" }), "\n")
	space := maxText - message.Width(head, cost) - message.Width(end, cost) - 2
	text := head
	if middle = strings.TrimSpace(message.Fit(middle, space, cost)); middle != "" {
		text += "\n" + middle
	}
	if end != "" {
		text += "\n" + end
	}
	return escape(message.Fit(text, maxText, cost))
}

// fallback is the text: the headline with state and severity for a card, all the words for a plain message. It is
// escaped and never empty.
func fallback(m message.Message, plainText string) string {
	if m.State == message.Plain {
		if plainText == "" {
			plainText = m.Headline(summary, cost)
		}
		if footer := message.Line(m.Footer); footer != "" {
			plainText = message.Fit(plainText, maxText-smallText, cost) + "\n" + message.Fit(footer, smallText-10, cost)
		}
		return escape(message.Fit(plainText, maxText, cost))
	}
	text := m.Headline(summary, cost)
	if status := m.Status(smallText, cost); status != "" {
		text += " (" + status + ")"
	}
	return escape(message.Fit(text, maxText, cost))
}

func fields(in []message.Field) []*slackgo.TextBlockObject {
	out := make([]*slackgo.TextBlockObject, 0, len(in))
	for _, f := range in {
		name := message.Fit(message.Line(f.Name), fieldText/3, cost)
		value := message.Fit(message.Line(f.Value), fieldText, cost)
		if name == "" && value == "" {
			name = "-" // an empty field is refused, and with it the message
		}
		if strings.ContainsAny(name+value, "*_~`") {
			// These cannot be escaped in mrkdwn; a label must be shown as it is, so it loses the bold name instead.
			out = append(out, plain(name+"\n"+value))
			continue
		}
		out = append(out, slackgo.NewTextBlockObject(slackgo.MarkdownType, "*"+escape(name)+"*\n"+escape(value), false, true))
	}
	return out
}

// linkLines says how many things are not shown, with a link to where they are, and gives the links, in few texts of at most
// linksText. A link that cannot be shown is still named, and leads to where all of it is, if there is such a place.
func linkLines(m message.Message, left int, cut bool) []string {
	all, hasAll := address(m.MoreURL)
	to := func(words string) string {
		if hasAll {
			return "<" + all + "|" + words + ">"
		}
		return words
	}
	var lines []string
	used := 0
	add := func(part string, most int) bool {
		w := message.Width(part, message.UTF16)
		if len(lines) > 0 && used+3+w <= linksText {
			lines[len(lines)-1] += " · " + part
			used += 3 + w
			return true
		}
		if len(lines) == most {
			return false
		}
		lines, used = append(lines, part), w
		return true
	}
	if left > 0 {
		add(to(message.More(left)), maxLinkLines)
	}
	if cut && hasAll {
		add(to("the whole text"), maxLinkLines)
	}
	for i, l := range m.Links {
		title := strings.ReplaceAll(message.Fit(message.Line(l.Title), linkText, cost), "|", "¦") // what ends the address
		if title == "" {
			title = "Link"
		}
		address, ok := address(l.URL)
		part := "<" + address + "|" + escape(title) + ">"
		if _, web := webAddress(l.URL); !web {
			part = escape(unmarked.Replace(title)) + " (not a web address)"
		} else if !ok {
			part = to(escape(unmarked.Replace(title)) + " (link too long to show)")
		}
		if !add(part, maxLinkLines) {
			add(to(moreLinks(len(m.Links)-i)), maxLinkLines+1)
			break
		}
	}
	return lines
}

// unmarked takes out what would be markup outside a link.
var unmarked = strings.NewReplacer("*", "", "_", "", "~", "", "`", "")

// moreLinks says how many links have no room.
func moreLinks(n int) string {
	if n == 1 {
		return "and 1 more link"
	}
	return fmt.Sprintf("and %d more links", n)
}

// webAddress makes a URL fit to stand between angle brackets. Only web and mail addresses pass: Slack gives a meaning of
// its own to what begins with "!", "@" or "#".
func webAddress(raw string) (string, bool) {
	u, err := url.Parse(strings.TrimSpace(raw))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "mailto" || u.Scheme != "mailto" && u.Host == "" {
		return "", false
	}
	return strings.NewReplacer("<", "%3C", ">", "%3E", "|", "%7C", "&", "&amp;", " ", "%20", "\n", "", "\r", "", "\t", "").Replace(u.String()), true
}

// address is webAddress as far as it is short enough to be shown.
func address(raw string) (string, bool) {
	s, ok := webAddress(raw)
	return s, ok && message.Width(s, message.UTF16) <= maxAddress
}

// buttons makes the buttons. One whose value or action id is too long is left out, as a cut one would do something
// else; a repeated action id would get the whole message refused.
func buttons(in []message.Button) []slackgo.BlockElement {
	var out []slackgo.BlockElement
	seen := map[string]bool{}
	for _, b := range in {
		if len(out) == maxButtons || b.Action == "" || seen[b.Action] ||
			message.Width(b.Action, message.UTF16) > maxActionID || message.Width(b.Value, cost) > maxValue {
			continue
		}
		seen[b.Action] = true
		label := message.Fit(message.Line(b.Label), maxButtonText, cost)
		if label == "" {
			label = message.Fit(message.Line(b.Action), maxButtonText, cost)
		}
		if strings.TrimSpace(label) == "" {
			label = "Press" // Slack refuses a button without words, and with it the message
		}
		e := slackgo.NewButtonBlockElement(b.Action, b.Value, plain(label))
		switch b.Style {
		case "primary":
			e.WithStyle(slackgo.StylePrimary)
		case "danger":
			e.WithStyle(slackgo.StyleDanger)
		}
		out = append(out, e)
	}
	return out
}

// plain is text in which nothing is markup, ":smile:" included. It is not escaped: there is nothing to escape from,
// and an entity would be shown as it is written.
func plain(s string) *slackgo.TextBlockObject {
	return slackgo.NewTextBlockObject(slackgo.PlainTextType, s, false, false)
}

// cost is the most that a rune can count for: its UTF-16 units, or the length of its escape.
func cost(r rune) int {
	switch r {
	case '&':
		return len("&amp;")
	case '<', '>':
		return len("&lt;")
	}
	return message.UTF16(r)
}

var escaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// escape escapes Slack's three control characters. Text is fitted before, never after.
func escape(s string) string { return escaper.Replace(s) }

// options are the message options of slack-go for a post or an edit. Unfurled links would push a card off the screen.
//
// An edit that leaves attachments out keeps the old ones, so that those which are not wanted any more are emptied.
func (r rendered) options(edit bool) []slackgo.MsgOption {
	opts := []slackgo.MsgOption{
		slackgo.MsgOptionText(r.text, false),
		slackgo.MsgOptionDisableLinkUnfurl(), slackgo.MsgOptionDisableMediaUnfurl(),
	}
	switch {
	case r.plain && edit:
		return append(opts, slackgo.MsgOptionBlocks(), slackgo.MsgOptionAttachments([]slackgo.Attachment{}...))
	case r.plain:
		return append(opts, slackgo.MsgOptionDisableMarkdown())
	case r.colour != "":
		return append(opts, slackgo.MsgOptionAttachments(r.attachment()))
	case edit:
		opts = append(opts, slackgo.MsgOptionAttachments([]slackgo.Attachment{}...))
	}
	return append(opts, slackgo.MsgOptionBlocks(r.blocks...))
}

func (r rendered) attachment() slackgo.Attachment {
	return slackgo.Attachment{Color: r.colour, Fallback: r.text, Blocks: slackgo.Blocks{BlockSet: r.blocks}}
}
