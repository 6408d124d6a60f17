package slacktest

import (
	"encoding/json"
	"fmt"
	"html/template"
	"regexp"
	"strings"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/provider/chattest"
)

// messageView is a message as the page draws it.
type messageView struct {
	TS, Anchor, Who, ID, Initials string
	Bot                           bool
	At                            time.Time
	Text                          template.HTML
	Blocks                        []blockView
	Attachments                   []attachmentView
	Edits                         []versionView
	Reactions                     []reactionView
	Replies                       []messageView // newest few, shown below the parent
	ReplyCount                    int
	LastReply                     time.Time
	Private                       bool // only visible to the person as whom the page is seen
	Broadcast                     bool
	ThreadURL, Link               string
	As, Back                      string // who presses, where the form comes back
	Key                           string
}

type versionView struct {
	Text        template.HTML
	Blocks      []blockView
	Attachments []attachmentView
	Until       time.Time
}

type reactionView struct {
	Sign  string
	Count int
}

type attachmentView struct {
	Colour string // "#rrggbb"
	Blocks []blockView
	Title  string
	Link   string
	Text   template.HTML
	Fields []fieldView
	Footer string
}

type fieldView struct {
	Title string
	Value template.HTML
}

type blockView struct {
	Kind      string // header, section, fields, context, actions, divider, image, markdown, other
	Text      template.HTML
	Title     string
	Fields    []template.HTML
	Elements  []elementView
	Accessory *elementView
}

type elementView struct {
	Kind   string // button, image, text, other
	Label  string
	Text   template.HTML
	Action string
	Style  string
	URL    string
}

var colourForm = regexp.MustCompile(`^#?[0-9a-fA-F]{6}$|^#?[0-9a-fA-F]{3}$`)

// colour is an attachment colour as SVG takes it; Slack's three names, or hex.
func colour(raw any) string {
	s, _ := raw.(string)
	switch s {
	case "good":
		return "#2eb886"
	case "warning":
		return "#daa038"
	case "danger":
		return "#a30200"
	}
	if !colourForm.MatchString(s) {
		return "#b5b5bb"
	}
	return "#" + strings.TrimPrefix(s, "#")
}

func str(m map[string]any, key string) string {
	s, _ := m[key].(string)
	return s
}

func list(m map[string]any, key string) (out []map[string]any) {
	all, _ := m[key].([]any)
	for _, v := range all {
		if o, ok := v.(map[string]any); ok {
			out = append(out, o)
		}
	}
	return out
}

func object(m map[string]any, key string) map[string]any {
	o, _ := m[key].(map[string]any)
	return o
}

// textObject renders a plain_text or mrkdwn object.
func textObject(o map[string]any, who names) template.HTML {
	if o["type"] == "mrkdwn" {
		return mrkdwn(str(o, "text"), who)
	}
	return template.HTML(template.HTMLEscapeString(plainText(str(o, "text"))))
}

func blockViews(blocks []map[string]any, who names) []blockView {
	var out []blockView
	for _, b := range blocks {
		v := blockView{Kind: str(b, "type")}
		switch v.Kind {
		case "header":
			v.Title = plainText(str(object(b, "text"), "text"))
		case "section":
			if t := object(b, "text"); t != nil {
				v.Text = textObject(t, who)
			}
			for _, f := range list(b, "fields") {
				v.Fields = append(v.Fields, textObject(f, who))
			}
			if a := object(b, "accessory"); a != nil {
				e := elementOf(a, who)
				v.Accessory = &e
			}
		case "context", "actions":
			for _, e := range list(b, "elements") {
				v.Elements = append(v.Elements, elementOf(e, who))
			}
		case "markdown":
			v.Text = mrkdwn(str(b, "text"), who)
		case "image":
			v.Title = str(b, "alt_text")
		case "divider":
		default:
			v.Title, v.Kind = v.Kind, "other"
		}
		out = append(out, v)
	}
	return out
}

func elementOf(e map[string]any, who names) elementView {
	switch v := (elementView{Kind: str(e, "type")}); v.Kind {
	case "button":
		v.Label, v.Action = plainText(str(object(e, "text"), "text")), str(e, "action_id")
		v.Style, v.URL = str(e, "style"), chattest.SafeURL(str(e, "url"))
		return v
	case "image": // not loaded: nothing may leave the machine
		v.Label = str(e, "alt_text")
		return v
	case "mrkdwn", "plain_text":
		v.Kind, v.Text = "text", textObject(e, who)
		return v
	default:
		v.Label, v.Kind = v.Kind, "other"
		return v
	}
}

func attachmentViews(raw json.RawMessage, who names) []attachmentView {
	var out []attachmentView
	for _, a := range parseList(raw) {
		v := attachmentView{Colour: colour(a["color"]), Blocks: blockViews(list(a, "blocks"), who), Title: plainText(str(a, "title")),
			Link: chattest.SafeURL(str(a, "title_link")), Text: mrkdwn(str(a, "text"), who), Footer: plainText(str(a, "footer"))}
		if pre := str(a, "pretext"); pre != "" {
			v.Text = mrkdwn(pre+"\n"+str(a, "text"), who)
		}
		for _, f := range list(a, "fields") {
			v.Fields = append(v.Fields, fieldView{plainText(str(f, "title")), mrkdwn(fmt.Sprint(f["value"]), who)})
		}
		if v.Blocks == nil && v.Title == "" && v.Text == "" && v.Fields == nil {
			v.Text = mrkdwn(str(a, "fallback"), who)
		}
		out = append(out, v)
	}
	return out
}

// draw turns a stored message into its view. With blocks the text is only the notification, as in Slack.
func draw(m Message, who names) messageView {
	v := messageView{TS: m.TS, Anchor: "m" + strings.ReplaceAll(m.TS, ".", ""), ID: m.User, Who: who(m.User), At: m.At, Key: m.Key, Broadcast: m.Broadcast}
	if m.Username != "" {
		v.Who = m.Username
	}
	v.Text, v.Blocks, v.Attachments = body(m.Text, m.Blocks, m.Attachments, who)
	for _, e := range m.Edits {
		old := versionView{Until: e.Until}
		old.Text, old.Blocks, old.Attachments = body(e.Text, e.Blocks, e.Attachments, who)
		v.Edits = append(v.Edits, old)
	}
	for _, r := range m.Reactions {
		sign := emoji[r.Name]
		if sign == "" {
			sign = ":" + r.Name + ":"
		}
		v.Reactions = append(v.Reactions, reactionView{sign, len(r.Users)})
	}
	return v
}

func body(text string, blocks, attachments json.RawMessage, who names) (template.HTML, []blockView, []attachmentView) {
	b := blockViews(parseList(blocks), who)
	if b != nil {
		return "", b, attachmentViews(attachments, who)
	}
	return mrkdwn(text, who), nil, attachmentViews(attachments, who)
}
