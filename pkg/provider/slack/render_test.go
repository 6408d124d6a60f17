package slack

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"pgregory.net/rapid"

	slackgo "github.com/slack-go/slack"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/message"
)

// text is a text object as it goes out.
type textObject struct {
	Type, Text string
}

// block is what is looked at of a block as it goes out.
type block struct {
	Type     string
	Text     *textObject
	Fields   []textObject
	Elements []struct {
		Type     string
		Text     json.RawMessage
		ActionID string `json:"action_id"`
		Value    string
		Style    string
	}
}

func decode(t interface{ Fatal(...any) }, r rendered) []block {
	raw, err := json.Marshal(slackgo.Blocks{BlockSet: r.blocks})
	if err != nil {
		t.Fatal(err)
	}
	var blocks []block
	if err := json.Unmarshal(raw, &blocks); err != nil {
		t.Fatal(err)
	}
	return blocks
}

func units(s string) int { return len(utf16.Encode([]rune(s))) }

// shown is what a person sees of a text object's text.
func shown(s string) string {
	return strings.NewReplacer("&lt;", "<", "&gt;", ">", "&amp;", "&").Replace(s)
}

func TestCardIsOneAttachmentInColour(t *testing.T) {
	t.Parallel()
	for state, sign := range map[message.State]string{message.Open: "🔴", message.Acknowledged: "🟡", message.Resolved: "🟢"} {
		m := card()
		m.State = state
		r := render(m, delivery.Form{}, "key-1")
		a := r.attachment()
		if a.Color == "" || a.Color != colours[state] || a.Fallback != r.text {
			t.Errorf("%s: %+v", state, a)
		}
		if !strings.HasPrefix(r.text, sign+" Disk full on db1") {
			t.Errorf("%s: text %q", state, r.text)
		}
		var kinds []string
		blocks := decode(t, r)
		for _, b := range blocks {
			kinds = append(kinds, b.Type)
		}
		if got := strings.Join(kinds, " "); got != "context section section section context actions context" {
			t.Errorf("%s: blocks %s", state, got)
		}
		raw, err := json.Marshal(blocks)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{state.Word() + " · critical", "Open since 10:00", "*team*\\ndb", "path\\na_b*c[", "🔴 db1 — disk=sda\\n🟢 db2", "and 3 more", "repeat: an earlier"} {
			if !strings.Contains(strings.ReplaceAll(string(raw), `\u003c`, "<"), want) {
				t.Errorf("%s: %q is missing in %s", state, want, raw)
			}
		}
	}
}

// A label must look as it is; stars and underscores are markup in mrkdwn and cannot be escaped there.
func TestTextOfOthersIsNeverMarkup(t *testing.T) {
	t.Parallel()
	m := card()
	m.Title, m.Text = "*a* <!channel> & <no value>", "`x` _y_ ~z~ <@U1>"
	m.Fields = []message.Field{{Name: "re", Value: "a_b*c["}, {Name: "plain", Value: "<v>"}}
	m.Items = []message.Item{{Title: "<!here>", Detail: "*"}}
	r := render(m, delivery.Form{}, "key-1")
	if !strings.HasPrefix(r.text, "🔴 *a* &lt;!channel&gt; &amp; &lt;no value&gt; (") {
		t.Errorf("text %q", r.text)
	}
	for _, b := range decode(t, r) {
		all := b.Fields
		if b.Text != nil {
			all = append(all, *b.Text)
		}
		for _, o := range all {
			if o.Type == "mrkdwn" && strings.ContainsAny(o.Text, "<>") {
				t.Errorf("%s is not escaped", o.Text)
			}
			if o.Type == "plain_text" && strings.Contains(o.Text, "&lt;") {
				t.Errorf("%s would be shown so", o.Text)
			}
			if o.Type == "mrkdwn" && strings.ContainsAny(strings.ReplaceAll(o.Text, "*plain*", ""), "*_~`") {
				t.Errorf("%s is markup", o.Text)
			}
		}
	}
}

func TestLinksCannotBeMentions(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"https://x.test/a?b=1&c=<2>|3": "https://x.test/a?b=1&amp;c=%3C2%3E%7C3",
		"mailto:ops@x.test":            "mailto:ops@x.test",
		"!channel":                     "", "@U1": "", "#C1": "", "javascript:alert(1)": "", "": "", "https://": "",
		"https://x.test/" + strings.Repeat("a", 3000): "",
	} {
		if got, ok := address(raw); ok != (want != "") || ok && got != want {
			t.Errorf("%q: %q, %v", raw, got, ok)
		}
	}
}

// drawMessage makes messages of the sort that breaks renderers.
func drawMessage(t *rapid.T) message.Message {
	hard := rapid.OneOf(
		rapid.StringOf(rapid.RuneFrom([]rune("a &<>\"'*_`~|\n\t\x00é日😀👨‍👩‍👧"))),
		rapid.SampledFrom([]string{"", strings.Repeat("x", 100_000), strings.Repeat("&", 5000), strings.Repeat("😀", 5000), strings.Repeat("日本", 3000), "\xff\xfe", " \n "}),
	)
	m := message.Message{
		State:    rapid.SampledFrom([]message.State{message.Open, message.Acknowledged, message.Resolved, message.Plain}).Draw(t, "state"),
		Severity: hard.Draw(t, "severity"),
		Title:    hard.Draw(t, "title"),
		Text:     hard.Draw(t, "text"),
		More:     rapid.IntRange(0, 1000).Draw(t, "more"),
		Footer:   hard.Draw(t, "footer"),
		Links:    []message.Link{{Title: "Incident", URL: "https://tocsin.test/incidents/1?a=1&b=2"}},
		Buttons:  []message.Button{{Action: "ack", Label: hard.Draw(t, "label"), Value: "incident-1"}, {Action: "resolve", Label: "Resolve", Value: "incident-1", Style: "danger"}},
	}
	for range rapid.IntRange(0, 14).Draw(t, "fields") {
		m.Fields = append(m.Fields, message.Field{Name: hard.Draw(t, "name"), Value: hard.Draw(t, "value")})
	}
	item := message.Item{Title: hard.Draw(t, "item"), Detail: hard.Draw(t, "detail")}
	for range rapid.SampledFrom([]int{0, 1, 35, 500}).Draw(t, "items") {
		m.Items = append(m.Items, item)
	}
	for range rapid.IntRange(0, 30).Draw(t, "links") {
		m.Links = append(m.Links, message.Link{Title: hard.Draw(t, "link"), URL: "https://x.test/" + url.PathEscape(rapid.StringN(0, 200, 2000).Draw(t, "path"))})
	}
	for i := range rapid.IntRange(0, 30).Draw(t, "buttons") {
		m.Buttons = append(m.Buttons, message.Button{Action: fmt.Sprint("more", i%7), Label: "More", Value: strings.Repeat("v", rapid.IntRange(0, 3000).Draw(t, "len"))})
	}
	return m
}

func TestRenderKeepsSlacksLimits(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := drawMessage(t)
		r := render(m, delivery.Form{}, "key-1")
		blocks := decode(t, r)
		within := func(what, s string, least, most int) {
			if n := units(s); n < least || n > most || !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
				t.Fatalf("%s has %d units of at most %d: %.80q", what, n, most, s)
			}
		}
		within("text", r.text, 1, 4000)
		if len(blocks) == 0 || len(blocks) > 50 {
			t.Fatalf("%d blocks", len(blocks))
		}
		actions, link := map[string]bool{}, false
		for _, b := range blocks {
			switch b.Type {
			case "section":
				if b.Text != nil {
					within("section", b.Text.Text, 1, 3000)
				} else if len(b.Fields) == 0 || len(b.Fields) > 10 {
					t.Fatalf("%d fields", len(b.Fields))
				}
				for _, f := range b.Fields {
					within("field", f.Text, 1, 2000)
				}
			case "context", "actions":
				if len(b.Elements) == 0 || b.Type == "context" && len(b.Elements) > 10 || len(b.Elements) > 25 {
					t.Fatalf("%d elements in %s", len(b.Elements), b.Type)
				}
			default:
				t.Fatalf("a block %s", b.Type)
			}
			for _, e := range b.Elements {
				if e.Type != "button" {
					var s string
					if err := json.Unmarshal(e.Text, &s); err != nil {
						t.Fatal(err)
					}
					within("context", s, 1, 3000)
					link = link || strings.Contains(s, "<https://tocsin.test/incidents/1?a=1&amp;b=2|Incident>")
					continue
				}
				var o textObject
				if err := json.Unmarshal(e.Text, &o); err != nil {
					t.Fatal(err)
				}
				within("button", o.Text, 1, 75)
				within("value", e.Value, 0, 2000)
				if actions[e.ActionID] {
					t.Fatalf("two buttons %s", e.ActionID)
				}
				actions[e.ActionID] = true
			}
		}
		// What must survive whatever else is in the message.
		if !actions["ack"] || !actions["resolve"] || !link {
			t.Fatalf("buttons %v, link %v", actions, link)
		}
		if m.State != message.Plain {
			head, status, _ := strings.Cut(shown(r.text), " ("+m.State.Word())
			if !strings.HasPrefix(head, m.State.Sign()+" ") || status == "" {
				t.Fatalf("text %.200q", r.text)
			}
			title := m.Headline(1<<20, message.CodePoints)
			if cut := strings.TrimSuffix(head, "…"); !strings.HasPrefix(title, cut) || len(cut) < min(len(title), 100) {
				t.Fatalf("%.80q of the title %.80q", head, title)
			}
		}
		if _, err := json.Marshal(r.attachment()); err != nil {
			t.Fatal(err)
		}
	})
}

// Many alerts, each of them long: all are counted.
func TestLeftOutIsCounted(t *testing.T) {
	t.Parallel()
	m := card()
	m.Items, m.More = nil, 7
	for i := range 500 {
		m.Items = append(m.Items, message.Item{Title: fmt.Sprintf("alert %d %s", i, strings.Repeat("y", 400))})
	}
	list, left := m.List(maxSection, itemText, cost)
	if shown := strings.Count(list, "\n") + 1; shown+left != 507 || shown < 9 {
		t.Fatalf("%d shown, %d left", shown, left)
	}
	raw, err := json.Marshal(decode(t, render(m, delivery.Form{}, "key-1")))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(raw), message.More(left)) {
		t.Errorf("%q is missing", message.More(left))
	}
}

func TestLongFirstLinkSurvives(t *testing.T) {
	t.Parallel()
	m := card()
	m.Links = []message.Link{{Title: strings.Repeat("&", 500), URL: "https://x.test/" + strings.Repeat("a", 2300)}, m.Links[0]}
	lines := linkLines(m, 12, false)
	if len(lines) != 1 || !strings.HasPrefix(lines[0], "and 12 more · <https://x.test/aaa") || units(lines[0]) > maxSection {
		t.Errorf("%.60q", lines)
	}
}
