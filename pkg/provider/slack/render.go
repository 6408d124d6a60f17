package slack

import (
	"net/url"
	"strings"

	slackgo "github.com/slack-go/slack"

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
	maxURL        = 3000

	fieldText  = 300  // what a field may take: more is no short fact
	itemText   = 300  // what one item may take, so that a long one leaves room for the others
	smallText  = 300  // status and footer
	linkText   = 100  // a link's title
	linksText  = 2950 // all links together
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
	text       string
	colour     string
	blocks     []slackgo.Block
	hasButtons bool
}

// render builds a message within Slack's limits. Text of others goes out as plain_text, in which nothing is markup;
// mrkdwn, whose stars and underscores cannot be escaped, is kept for our own words and for links.
func render(m message.Message) rendered {
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
	if line := linkLine(m.Links, left); line != "" {
		r.blocks = append(r.blocks, slackgo.NewContextBlock("", slackgo.NewTextBlockObject(slackgo.MarkdownType, line, false, false)))
	}
	if buttons := buttons(m.Buttons); len(buttons) > 0 {
		r.hasButtons = true
		r.blocks = append(r.blocks, slackgo.NewActionBlock("", buttons...))
	}
	if footer := message.Fit(message.Line(m.Footer), smallText, cost); footer != "" {
		r.blocks = append(r.blocks, slackgo.NewContextBlock("", plain(footer)))
	}
	r.text = fallback(m, text)
	if len(r.blocks) == 0 {
		r.blocks = append(r.blocks, slackgo.NewSectionBlock(plain(m.Headline(summary, cost)), nil, nil))
	}
	return r
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

// linkLine says how many things are not shown, and gives the links. The first link is where they are.
func linkLine(links []message.Link, left int) string {
	var parts []string
	used, shown := 0, 0
	if left > 0 {
		parts = append(parts, message.More(left))
	}
	for _, l := range links {
		address, ok := address(l.URL)
		if !ok {
			continue
		}
		title := message.Fit(message.Line(l.Title), linkText, cost)
		if title == "" {
			title = "Link"
		}
		part := "<" + address + "|" + escape(title) + ">"
		used += message.Width(part, message.UTF16) + 3
		if used > linksText && shown > 0 {
			break // the first always fits
		}
		shown++
		parts = append(parts, part)
	}
	return strings.Join(parts, " · ")
}

// address makes a URL fit to stand between angle brackets. Only web and mail addresses pass: Slack gives a meaning of
// its own to what begins with "!", "@" or "#".
func address(raw string) (string, bool) {
	u, err := url.Parse(strings.TrimSpace(raw))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "mailto" || u.Scheme != "mailto" && u.Host == "" {
		return "", false
	}
	s := strings.NewReplacer("<", "%3C", ">", "%3E", "|", "%7C", "&", "&amp;", " ", "%20", "\n", "", "\r", "", "\t", "").Replace(u.String())
	return s, message.Width(s, message.UTF16) <= maxURL-600 // room for a title within one text object
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
			label = message.Fit(b.Action, maxButtonText, cost)
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
func (r rendered) options() []slackgo.MsgOption {
	opts := []slackgo.MsgOption{
		slackgo.MsgOptionText(r.text, false),
		slackgo.MsgOptionDisableLinkUnfurl(), slackgo.MsgOptionDisableMediaUnfurl(),
	}
	if r.colour == "" {
		return append(opts, slackgo.MsgOptionBlocks(r.blocks...))
	}
	return append(opts, slackgo.MsgOptionAttachments(r.attachment()))
}

func (r rendered) attachment() slackgo.Attachment {
	return slackgo.Attachment{Color: r.colour, Fallback: r.text, Blocks: slackgo.Blocks{BlockSet: r.blocks}}
}
