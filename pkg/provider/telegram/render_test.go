package telegram

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/message"
	"github.com/tocsin-oncall/tocsin/pkg/provider/telegram/telegramtest"
)

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

func TestWhatCannotBeSeenHasWords(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"", " ", "\u200b", "\u2800", "\u202e\u202d", "\ufeff\u200d"} {
		text, keyboard := render(message.Message{Title: s, Links: []message.Link{{Title: s, URL: "https://tocsin.test/1"}}, Buttons: []message.Button{{Action: "ack", Label: s, Value: "1"}}}, delivery.Form{})
		if text != `<b>(no title)</b>`+"\n\n"+`<a href="https://tocsin.test/1">tocsin.test</a>` || keyboard != `{"inline_keyboard":[[{"text":"ack","callback_data":"ack:1"}]]}` {
			t.Errorf("%q: %s %s", s, text, keyboard)
		}
	}
}

func TestPlain(t *testing.T) {
	t.Parallel()
	text, keyboard := render(message.Message{Title: "Acknowledged by <Ana> & \"Bo\""}, delivery.Form{})
	if text != `<b>Acknowledged by &lt;Ana&gt; &amp; "Bo"</b>` || keyboard != "" {
		t.Errorf("%s %s", text, keyboard)
	}
}

// hard are texts that break messages: markup, surrogate pairs, joiners, combining marks, other directions, controls.
var hard = []string{
	"", "Disk full on db1", " \n ", "\xff\xfe\xf0\x9f", "\x00\x01\x1b[31m", "&lt;b&gt;$", "</b></a>", `<a href="http://evil.test">`, "a_b*c[d](e)`f`~g|h", "$1 $$ ${x}",
	"é", "e\u0301\u0302\u0323", "日本語のアラート", "👨‍👩‍👧‍👦🏳️‍🌈👍🏽", "\u202eevil\u202c", "\u200b\u200d\ufeff", "\u2800", "\u202e", "a\u030a\u0333\u033f", "🔴 🟡 🟢",
	strings.Repeat("&", 5000), strings.Repeat("😀", 5000), strings.Repeat("e\u0301", 3000),
}

// huge are texts as long as a sender may make them.
var huge = []string{
	strings.Repeat("x", 100_000), strings.Repeat("&", 100_000), strings.Repeat("<b>", 40_000), strings.Repeat("😀", 25_000),
	strings.Repeat("e\u0301", 30_000), strings.Repeat("日本", 20_000), strings.Repeat("a\n", 50_000), strings.Repeat(`"`, 100_000),
}

func drawText() *rapid.Generator[string] {
	return rapid.OneOf(rapid.StringOf(rapid.RuneFrom([]rune("a &<>\"'$\n\t\x00é日😀\u0301\u200d"))), rapid.SampledFrom(hard), rapid.String())
}

const incident = "https://tocsin.test/incidents/1?a=1&b=2"

func drawMessage(t *rapid.T) message.Message {
	text := drawText()
	m := message.Message{
		State:    rapid.SampledFrom([]message.State{message.Open, message.Acknowledged, message.Resolved, message.Plain}).Draw(t, "state"),
		Severity: rapid.SampledFrom([]string{"", "critical", "high"}).Draw(t, "severity"), Title: text.Draw(t, "title"), Text: text.Draw(t, "text"), Footer: text.Draw(t, "footer"),
		More:    rapid.SampledFrom([]int{0, 1, 1_000_000}).Draw(t, "more"),
		MoreURL: rapid.SampledFrom([]string{"", incident, "not an address", "https://x.test/" + strings.Repeat("y", 3000)}).Draw(t, "more_url"),
		Links:   []message.Link{{Title: "Incident", URL: incident}},
		Buttons: []message.Button{{Action: "ack", Label: text.Draw(t, "label"), Value: "0198c0de-0000-7000-8000-000000000001"}, {Action: "resolve", Value: strings.Repeat("v", rapid.IntRange(0, 80).Draw(t, "value"))}},
	}
	for range rapid.IntRange(0, 14).Draw(t, "fields") {
		m.Fields = append(m.Fields, message.Field{Name: text.Draw(t, "name"), Value: text.Draw(t, "value")})
	}
	item := message.Item{Title: text.Draw(t, "item"), Detail: text.Draw(t, "detail")}
	for range rapid.SampledFrom([]int{0, 1, 35, 500}).Draw(t, "items") {
		m.Items = append(m.Items, item)
	}
	for range rapid.IntRange(0, 12).Draw(t, "links") {
		to := rapid.SampledFrom([]string{"https://x.test/", "ftp://x.test/", "/only/a/path", "https://x.test/\u0301😀?"}).Draw(t, "to")
		m.Links = append(m.Links, message.Link{Title: text.Draw(t, "link"), URL: to + url.PathEscape(strings.Repeat("&", rapid.SampledFrom([]int{0, 10, 500, 3000}).Draw(t, "path"))) + "&$"})
	}
	return m
}

// check renders a message in a form and says what Telegram, as telegramtest knows it, would not take or not show.
func check(m message.Message, f delivery.Form) error {
	text, keyboard := render(m, f)
	mode := "HTML"
	if f.Plain {
		mode = ""
	}
	if !utf8.ValidString(text) || strings.ContainsRune(text, 0) || len(text) > maxRaw {
		return fmt.Errorf("%d bytes, valid %v", len(text), utf8.ValidString(text))
	}
	shown, err := telegramtest.Preview(text, mode, keyboard)
	if err != nil {
		return fmt.Errorf("%w, for %.300q", err, text)
	}
	if m.State != message.Plain && (!strings.HasPrefix(shown.Text, m.State.Sign()+" ") || !strings.Contains(shown.Text, "\n"+m.State.Word())) {
		return fmt.Errorf("sign and state are lost in %.300q", shown.Text)
	}
	if m.Severity != "" && !strings.Contains(shown.Text, m.Severity) {
		return fmt.Errorf("the severity is lost in %.300q", shown.Text)
	}
	if err := checkLinks(m, f, shown); err != nil {
		return err
	}
	if lines := strings.Count(shown.Text, "🔴 "); lines < len(m.Items) && !strings.Contains(shown.Text, " more") {
		return fmt.Errorf("%d of %d alerts and no word of the rest", lines, len(m.Items))
	}
	if f.Plain || f.NoButtons {
		if len(shown.Keyboard) != 0 || f.Plain && len(shown.Entities) != 0 {
			return fmt.Errorf("%q has %+v, %+v", f, shown.Keyboard, shown.Entities)
		}
		return nil
	}
	if len(m.Buttons) == 0 {
		return nil
	}
	if b := shown.Keyboard[0][0]; b.Data != m.Buttons[0].Action+":"+m.Buttons[0].Value || b.Text == "" {
		return fmt.Errorf("the button is %+v", b)
	}
	return nil
}

// checkLinks says which link has vanished without a word.
func checkLinks(m message.Message, f delivery.Form, shown telegramtest.Message) error {
	if len(m.Links) == 0 {
		return nil
	}
	leads := func(to string) bool {
		return strings.Contains(shown.Text, to) || slices.ContainsFunc(shown.Entities, func(e telegramtest.Entity) bool { return e.URL == to })
	}
	if !leads(m.Links[0].URL) {
		return fmt.Errorf("the link is lost in %.300q", shown.Text)
	}
	for _, l := range m.Links[1:min(len(m.Links), maxLinks)] {
		title := message.Fit(message.Line(l.Title), linkTitle, cost)
		want, err := telegramtest.Preview(title, "", "")
		if err == nil && !invisible(title) && !strings.Contains(shown.Text, want.Text) {
			return fmt.Errorf("of the link %q there is nothing in %.300q", title, shown.Text)
		}
	}
	if n := len(m.Links) - maxLinks; n > 0 && !strings.Contains(shown.Text, fmt.Sprintf("and %d more links", n)) {
		return fmt.Errorf("%d links vanish", n)
	}
	return nil
}

var forms = []delivery.Form{{}, {NoButtons: true}, {Plain: true}}

func TestRenderKeepsTelegramsLimits(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := drawMessage(t)
		for _, f := range forms {
			if err := check(m, f); err != nil {
				t.Fatalf("%q: %v", f, err)
			}
		}
	})
}

// Every part as large as it can be, all of them at once.
func TestRenderOfEverythingAtItsLargest(t *testing.T) {
	t.Parallel()
	for _, s := range append(slices.Clone(hard), huge...) {
		m := message.Message{State: message.Open, Severity: "critical", Title: s, Text: s, Footer: s, More: 1_000_000, MoreURL: incident, Links: []message.Link{{Title: "Incident", URL: incident}}}
		for range 500 {
			m.Items = append(m.Items, message.Item{Title: s, Detail: s})
			m.Fields = append(m.Fields, message.Field{Name: s, Value: s})
			m.Links = append(m.Links, message.Link{Title: s, URL: "https://x.test/?q=" + url.QueryEscape(strings.Repeat("&", 500))})
		}
		m.Buttons = []message.Button{{Action: "ack", Label: s, Value: "0198c0de-0000-7000-8000-000000000001"}}
		for _, f := range []delivery.Form{{}, {Plain: true}} {
			if err := check(m, f); err != nil {
				t.Errorf("%.20q, %q: %v", s, f, err)
			}
		}
	}
}

func FuzzRender(f *testing.F) {
	for _, s := range hard {
		f.Add(s, "name", s, 3)
		f.Add("title", s, "text", 500)
	}
	f.Fuzz(func(t *testing.T, title, field, text string, n int) {
		n = max(n, 0) % 600
		m := message.Message{State: message.Open, Severity: "critical", Title: title, Text: text, Footer: field, MoreURL: incident, Links: []message.Link{{Title: "Incident", URL: incident}, {Title: field, URL: "https://x.test/" + text}}}
		for range n {
			m.Items = append(m.Items, message.Item{Title: field, Detail: title})
			m.Fields = append(m.Fields, message.Field{Name: field, Value: text})
		}
		m.Buttons = []message.Button{{Action: "ack", Label: field, Value: "0198c0de-0000-7000-8000-000000000001"}}
		for _, form := range forms {
			if err := check(m, form); err != nil {
				t.Errorf("%q: %v", form, err)
			}
		}
	})
}

func TestLinksThatCannotBeShownAreNamed(t *testing.T) {
	t.Parallel()
	long := "https://x.test/" + strings.Repeat("y", 3000)
	m := message.Message{Title: "a", More: 2, Links: []message.Link{{Title: "Incident", URL: incident}, {Title: "Runbook", URL: long}, {Title: "Share", URL: "ftp://x.test/f"}}}
	for _, c := range []struct{ more, want, plain string }{
		{incident,
			`<b>a</b>` + "\n\n" + `<a href="https://tocsin.test/incidents/1?a=1&amp;b=2">and 2 more</a>` + "\n\n" + `<a href="https://tocsin.test/incidents/1?a=1&amp;b=2">Incident</a> · <a href="https://tocsin.test/incidents/1?a=1&amp;b=2">Runbook (its address is in the incident)</a> · <a href="https://tocsin.test/incidents/1?a=1&amp;b=2">Share (its address is in the incident)</a>`,
			"a\n\nand 2 more: " + incident + "\n\nIncident: " + incident + " · Runbook (its address is in the incident) · Share (its address is in the incident)"},
		{"",
			`<b>a</b>` + "\n\nand 2 more\n\n" + `<a href="https://tocsin.test/incidents/1?a=1&amp;b=2">Incident</a> · Runbook (its address cannot be shown here) · Share (its address cannot be shown here)`,
			"a\n\nand 2 more\n\nIncident: " + incident + " · Runbook (its address cannot be shown here) · Share (its address cannot be shown here)"},
	} {
		m.MoreURL = c.more
		if got, _ := render(m, delivery.Form{}); got != c.want {
			t.Errorf("%s\nwant\n%s", got, c.want)
		}
		if got, _ := render(m, delivery.Form{Plain: true}); got != c.plain {
			t.Errorf("%s\nwant\n%s", got, c.plain)
		}
	}
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
