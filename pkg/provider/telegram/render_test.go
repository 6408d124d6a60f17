package telegram

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"html"
	"io"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/message"
)

var tag = regexp.MustCompile(`</?[a-z]+(?: href="[^"<>]*")?>`)

// parsed is what Telegram shows of an HTML text, and an error where it would refuse it. The tags are few and always
// closed, so an XML decoder can say whether they are well formed.
func parsed(text string) (string, error) {
	d := xml.NewDecoder(strings.NewReader("<all>" + strings.ReplaceAll(text, "\r", "") + "</all>"))
	for {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return "", err
		}
		if s, ok := tok.(xml.StartElement); ok && s.Name.Local != "all" && s.Name.Local != "b" && s.Name.Local != "i" && s.Name.Local != "a" {
			return "", fmt.Errorf("unsupported start tag %q", s.Name.Local)
		}
	}
	return html.UnescapeString(tag.ReplaceAllString(text, "")), nil
}

func TestCard(t *testing.T) {
	t.Parallel()
	text, keyboard := render(card(), delivery.Form{})
	const want = "<b>🔴 Disk full on db1</b>\nOpen · critical\n\nOpen since 10:00\nline two\n\n<b>team</b>: db\n<b>re</b>: a_b*c[\n\n" +
		"🔴 db1 — disk=sda\n🟢 db2\nand 3 more\n\n" +
		`<a href="https://tocsin.test/i/1?a=1&amp;b=&quot;2&quot;">Incident</a>` + "\n\n<i>repeat: an earlier attempt may have arrived</i>"
	if text != want {
		t.Errorf("%s\nwant\n%s", text, want)
	}
	if keyboard != `{"inline_keyboard":[[{"text":"Acknowledge","callback_data":"ack:0198c0de-0000-7000-8000-000000000001"}]]}` {
		t.Error(keyboard)
	}
}

func TestPlain(t *testing.T) {
	t.Parallel()
	text, keyboard := render(message.Message{Title: "Acknowledged by <Ana> & \"Bo\""}, delivery.Form{})
	if text != `<b>Acknowledged by &lt;Ana&gt; &amp; "Bo"</b>` || keyboard != "" {
		t.Errorf("%s %s", text, keyboard)
	}
}

func drawMessage(t *rapid.T) message.Message {
	hard := rapid.OneOf(
		rapid.StringOf(rapid.RuneFrom([]rune("a &<>\"'$\n\t\x00é日😀👨‍👩‍👧"))),
		rapid.SampledFrom([]string{"", strings.Repeat("x", 100_000), strings.Repeat("&", 5000), strings.Repeat("😀", 5000), strings.Repeat("日本", 3000), "\xff\xfe", " \n ", "&lt;b&gt;$"}),
	)
	m := message.Message{
		State:    rapid.SampledFrom([]message.State{message.Open, message.Acknowledged, message.Resolved, message.Plain}).Draw(t, "state"),
		Severity: hard.Draw(t, "severity"), Title: hard.Draw(t, "title"), Text: hard.Draw(t, "text"), Footer: hard.Draw(t, "footer"),
		More:    rapid.IntRange(0, 1000).Draw(t, "more"),
		Links:   []message.Link{{Title: "Incident", URL: "https://tocsin.test/incidents/1?a=1&b=2"}},
		Buttons: []message.Button{{Action: "ack", Label: hard.Draw(t, "label"), Value: "0198c0de-0000-7000-8000-000000000001"}, {Action: "resolve", Value: strings.Repeat("v", rapid.IntRange(0, 80).Draw(t, "value"))}},
	}
	for range rapid.IntRange(0, 14).Draw(t, "fields") {
		m.Fields = append(m.Fields, message.Field{Name: hard.Draw(t, "name"), Value: hard.Draw(t, "value")})
	}
	item := message.Item{Title: hard.Draw(t, "item"), Detail: hard.Draw(t, "detail")}
	for range rapid.SampledFrom([]int{0, 1, 35, 500}).Draw(t, "items") {
		m.Items = append(m.Items, item)
	}
	for range rapid.IntRange(0, 30).Draw(t, "links") {
		m.Links = append(m.Links, message.Link{Title: hard.Draw(t, "link"), URL: "https://x.test/" + url.PathEscape(strings.Repeat("&", rapid.IntRange(0, 3000).Draw(t, "path"))) + "&$"})
	}
	return m
}

func TestRenderKeepsTelegramsLimits(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := drawMessage(t)
		text, keyboard := render(m, delivery.Form{})
		shown, err := parsed(text)
		if err != nil {
			t.Fatalf("can't parse entities: %v in %.300q", err, text)
		}
		if n := utf8.RuneCountInString(shown); n == 0 || n > 4096 || len(text) > 32768 || !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
			t.Fatalf("%d code points, %d bytes", n, len(text))
		}
		// What must survive whatever else is in the message.
		if !strings.Contains(text, `<a href="https://tocsin.test/incidents/1?a=1&amp;b=2">Incident</a>`) {
			t.Fatalf("the link is lost in %.300q", text)
		}
		if m.State != message.Plain && (!strings.HasPrefix(shown, m.State.Sign()+" ") || !strings.Contains(shown, m.State.Word())) {
			t.Fatalf("it begins with %.80q", shown)
		}
		if len(m.Items) > 0 || m.More > 0 {
			lines := strings.Count(text, "\n🔴 ")
			if lines < len(m.Items) && !strings.Contains(text, " more") {
				t.Fatalf("%d of %d alerts and no word of the rest", lines, len(m.Items))
			}
		}
		var k struct {
			Keyboard [][]struct {
				Text string
				Data string `json:"callback_data"`
			} `json:"inline_keyboard"`
		}
		if err := json.Unmarshal([]byte(keyboard), &k); err != nil {
			t.Fatal(err)
		}
		for i, b := range k.Keyboard[0] {
			if len(b.Data) < 1 || len(b.Data) > 64 || b.Text == "" || utf8.RuneCountInString(b.Text) > 64 {
				t.Fatalf("button %+v", b)
			}
			if i == 0 && b.Data != "ack:"+m.Buttons[0].Value {
				t.Fatalf("the button carries %q", b.Data)
			}
		}
	})
}

func TestDescribe(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"Bad Request: chat not found": "chat not found",
		"Forbidden: bot was kicked":   "bot was kicked",
		"MESSAGE_NOT_MODIFIED":        "message_not_modified",
		"":                            "",
	} {
		if got := describe(in); got != want {
			t.Errorf("%q: %q", in, got)
		}
	}
}
