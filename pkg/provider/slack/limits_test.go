package slack

import (
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	incidents "github.com/tocsin-oncall/tocsin/pkg/card"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/message"
	"github.com/tocsin-oncall/tocsin/pkg/provider/slack/slacktest"
)

// form is a rendered message as the wire has it.
func (r rendered) form(t interface{ Fatal(...any) }, edit bool) url.Values {
	v := url.Values{"text": {r.text}}
	put := func(name string, list any) {
		raw, err := json.Marshal(list)
		if err != nil {
			t.Fatal(err)
		}
		v.Set(name, string(raw))
	}
	switch {
	case r.plain && edit:
		v.Set("blocks", "[]")
		v.Set("attachments", "[]")
	case r.plain:
	case r.colour != "":
		put("attachments", []any{r.attachment()})
	default:
		put("blocks", r.blocks)
	}
	return v
}

var (
	linkForm = regexp.MustCompile(`<(?:https?://|mailto:)[^<>|]*\|[^<>|]*>`)
	entity   = regexp.MustCompile(`&(?:amp|lt|gt);`)
)

// checkShown says what must hold for a message in every form, whatever stands in it: Slack takes it, and what matters most is
// there to be seen. It returns all the words, as one text.
func checkShown(t interface {
	Fatal(...any)
	Fatalf(string, ...any)
}, m message.Message, form delivery.Form, key string, edit bool) string {
	r := render(m, form, key)
	wire := r.form(t, edit)
	if err := slacktest.Check(wire, edit); err != nil {
		t.Fatalf("form %q, edit %t: %v", form, edit, err)
	}
	all := wire.Get("text") + "\n" + wire.Get("blocks") + "\n" + wire.Get("attachments")
	if !utf8.ValidString(all) || strings.ContainsRune(r.text, 0) {
		t.Fatal("a text that is no text")
	}
	if rest := entity.ReplaceAllString(r.text, ""); strings.ContainsAny(rest, "<>&") {
		t.Fatalf("the text is not escaped: %.200q", rest)
	}
	words := r.text
	if !form.Plain {
		for _, b := range decode(t, r) {
			for _, o := range texts(t, b) {
				words += "\n" + o.Text
				if rest := entity.ReplaceAllString(linkForm.ReplaceAllString(o.Text, ""), ""); o.Type == "mrkdwn" && strings.ContainsAny(rest, "<>&") {
					t.Fatalf("markup that is not ours: %.200q", rest)
				}
			}
		}
	}
	buttons := map[string]bool{}
	for _, b := range decode(t, r) {
		for _, e := range b.Elements {
			if e.Type == "button" {
				buttons[e.ActionID] = true
			}
		}
	}
	for _, b := range m.Buttons {
		if ours := b.Action == "ack" || b.Action == "resolve"; ours && buttons[b.Action] == (form.Plain || form.NoButtons) {
			t.Fatalf("form %q, buttons %v", form, buttons)
		}
	}
	if m.State != message.Plain {
		title := escape(message.Fit(message.Line(m.Title), 100, message.CodePoints))
		head := strings.TrimSuffix(strings.TrimSuffix(title, "…"), "&")
		if strings.TrimSpace(head) == "" {
			head = "(no title)"
		}
		if !strings.HasPrefix(r.text, m.State.Sign()+" "+firstRunes(head, 50)) {
			t.Fatalf("the title %.80q is not at the head of %.200q", head, r.text)
		}
		if !strings.Contains(words, m.State.Word()) {
			t.Fatalf("the state is missing in %.200q", words)
		}
		if s := message.Fit(message.Line(m.Severity), 20, message.CodePoints); !strings.Contains(shown(words), strings.TrimSpace(strings.TrimSuffix(s, "…"))) {
			t.Fatalf("the severity %q is missing in %.200q", s, words)
		}
	}
	return words
}

func firstRunes(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return strings.TrimSuffix(string(r[:n]), "&")
	}
	return s
}

func texts(t interface{ Fatal(...any) }, b block) (out []textObject) {
	if b.Text != nil {
		out = append(out, *b.Text)
	}
	out = append(out, b.Fields...)
	for _, e := range b.Elements {
		if e.Type == "button" {
			var o textObject
			if err := json.Unmarshal(e.Text, &o); err != nil {
				t.Fatal(err)
			}
			out = append(out, o)
			continue
		}
		var s string
		if err := json.Unmarshal(e.Text, &s); err != nil {
			t.Fatal(err)
		}
		out = append(out, textObject{Type: e.Type, Text: s})
	}
	return out
}

// forms are those that change how a message looks.
var forms = []delivery.Form{{}, {NoButtons: true}, {Plain: true}}

// All that is hard at once, in every form, is taken by Slack and says what matters.
func TestHardMessagesInEveryForm(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := drawMessage(t)
		m.MoreURL = rapid.SampledFrom([]string{"", "https://tocsin.test/incidents/1", "javascript:alert(1)", "https://x.test/" + strings.Repeat("y", 3000)}).Draw(t, "more url")
		if rapid.Bool().Draw(t, "a long link") {
			m.Links = append(m.Links, message.Link{Title: "Graph", URL: "https://x.test/?q=" + strings.Repeat("%20", 1500)})
		}
		for _, form := range forms {
			for _, edit := range []bool{false, true} {
				words := checkShown(t, m, form, "0198c2f0-0000-7000-8000-000000000001:1", edit)
				link := "<https://tocsin.test/incidents/1?a=1&amp;b=2|Incident>"
				if form.Plain {
					link = "Incident: https://tocsin.test/incidents/1?a=1&amp;b=2"
				}
				if !strings.Contains(words, link) {
					t.Fatalf("form %q: the first link is missing in %.300q", form, words)
				}
			}
		}
	})
}

// What is not shown is counted, and the count leads to where all of it is.
func TestMoreIsALink(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ url, want string }{
		{"https://tocsin.test/incidents/1", "<https://tocsin.test/incidents/1|and 3 more>"},
		{"", "and 3 more"},
		{"javascript:alert(1)", "and 3 more"},
		{"https://x.test/" + strings.Repeat("y", 3000), "and 3 more"},
	} {
		m := drawn()
		m.MoreURL = c.url
		lines := linkLines(m, 3, false)
		if !strings.HasPrefix(lines[0], c.want+" · ") {
			t.Errorf("%.40q: %q", c.url, lines)
		}
	}
}

// drawn is a plain card for tests of one thing.
func drawn() message.Message {
	return message.Message{State: message.Open, Title: "Disk full", Links: []message.Link{{Title: "Runbook", URL: "https://x.test/r"}}}
}

// A link that cannot be shown is named all the same.
func TestNoLinkVanishes(t *testing.T) {
	t.Parallel()
	long := message.Link{Title: "Graph of *a*", URL: "https://x.test/" + strings.Repeat("a", 2900)}
	m := drawn()
	m.Links = append(m.Links, long, message.Link{Title: "Odd <one>", URL: "javascript:alert(1)"}, message.Link{URL: "!channel"})
	check := func(want ...string) {
		t.Helper()
		all := strings.Join(linkLines(m, 0, false), "\n")
		for _, w := range want {
			if !strings.Contains(all, w) {
				t.Errorf("%q is missing in %q", w, all)
			}
		}
	}
	check("<https://x.test/r|Runbook>", "Graph of a (link too long to show)", "Odd &lt;one&gt; (not a web address)", "Link (not a web address)")
	m.MoreURL = "https://tocsin.test/incidents/1"
	check("<https://tocsin.test/incidents/1|Graph of a (link too long to show)>")
	// So many that no room is left: they are counted.
	for i := range 200 {
		m.Links = append(m.Links, message.Link{Title: fmt.Sprint("Link ", i), URL: "https://x.test/" + strings.Repeat("b", 100)})
	}
	lines := linkLines(m, 7, true)
	shown := strings.Count(strings.Join(lines, " · "), " · ") + 1 - 3 // "and 7 more", "the whole text" and the count itself
	if last := lines[len(lines)-1]; len(lines) > maxLinkLines+1 || !strings.Contains(last, fmt.Sprintf("|and %d more links>", len(m.Links)-shown)) {
		t.Errorf("%d lines, %d links shown of %d: %q", len(lines), shown, len(m.Links), last)
	}
	if text := plainText(m); !strings.Contains(text, "more links") || !strings.Contains(text, "Incident: https://tocsin.test/incidents/1") {
		t.Errorf("%q", text)
	}
}

// A long text is cut, and the rest of it is one press away.
func TestCutTextLeadsToTheWhole(t *testing.T) {
	t.Parallel()
	m := drawn()
	m.Text, m.MoreURL = strings.Repeat("word ", 1000), "https://tocsin.test/incidents/1"
	if words := checkShown(t, m, delivery.Form{}, "k", false); !strings.Contains(words, "<https://tocsin.test/incidents/1|the whole text>") || !strings.Contains(words, "…") {
		t.Errorf("%q", words)
	}
	m.Text = "short"
	if words := checkShown(t, m, delivery.Form{}, "k", false); strings.Contains(words, "the whole text") {
		t.Errorf("%q", words)
	}
}

// Cards, notices, pages and replies as tocsin makes them, of an incident in which everything is too long.
func TestIncidentsOfEverySize(t *testing.T) {
	t.Parallel()
	hard := []string{
		"Disk full", "", strings.Repeat("x", 100_000), strings.Repeat("日本語", 30_000), strings.Repeat("👩‍👩‍👧‍👦", 20_000), strings.Repeat("e\u0301", 40_000),
		strings.Repeat("<!channel>&*_~`", 5_000), "a\x00\x1b[31mb\r\n\tc", "\xff\xfe", strings.Repeat("\u202e", 3_000), "🇪🇸🇸🇪👍🏽❤️",
	}
	at := time.Date(2026, 11, 29, 2, 14, 5, 0, time.UTC)
	o := incidents.Options{PublicURL: "https://tocsin.example.com", Target: "schedule:primary", Repeat: true}
	for i, word := range hard {
		for _, alerts := range []int{1, 500} {
			s := incidents.Snapshot{
				IncidentID: "0198c2f0-0000-7000-8000-000000000001", Title: word, Text: word, Criticality: "critical", Firing: alerts, OpenedAt: at,
				AcknowledgedAt: &at, AcknowledgedBy: word, ResolvedAt: &at, ResolvedBy: word, Labels: map[string]string{},
				Links: []message.Link{{Title: word, URL: "https://x.test/" + url.PathEscape(firstRunes(word, 900))}, {Title: "Runbook", URL: "https://x.test/r"}},
			}
			for n := range min(alerts, incidents.MaxAlerts) {
				s.Labels[fmt.Sprint("label_", n)] = word
				s.Alerts = append(s.Alerts, incidents.Alert{Title: word, Status: "firing", Labels: map[string]string{"instance": word + fmt.Sprint(n)}})
			}
			var entries []incidents.Entry
			for n := range alerts {
				entries = append(entries, incidents.Entry{Sequence: n, At: at, Type: incidents.EntryAlertFiring, Text: word})
			}
			for _, state := range []message.State{message.Open, message.Acknowledged, message.Resolved} {
				s.State = state
				for name, m := range map[string]message.Message{
					"card": incidents.Card(s, o), "notice": incidents.Notice(s, o), "replies": incidents.Replies(s, entries, o),
					"page": incidents.Page(s, word, "https://acme.slack.com/archives/C0123/p1700000000000100", o),
				} {
					for _, form := range forms {
						words := checkShown(t, m, form, "k", false)
						if name == "page" && !strings.Contains(words, "https://acme.slack.com/archives/C0123/p1700000000000100") {
							t.Errorf("word %d, %d alerts, %s in form %q: the card's link is missing", i, alerts, state, form)
						}
						if name == "card" && alerts > 15 && !strings.Contains(words, " more") {
							t.Errorf("word %d, %d alerts, %s in form %q: the rest is not counted", i, alerts, state, form)
						}
					}
				}
			}
		}
	}
}

func FuzzRender(f *testing.F) {
	f.Add("Disk full", "critical", "95 % used", "team", "https://x.test/r", 3)
	f.Add("<!channel> & *b*", "👍🏽", strings.Repeat("e\u0301", 3000), "a_b", "javascript:alert(1)", 500)
	f.Add("\x00", "\xff", "\n\n", "", "https://x.test/"+strings.Repeat("%20", 900), 0)
	f.Add("\x00", "\x1b", "\x00", "\x00", "\x00", 1) // nothing but control characters, which are left out
	f.Fuzz(func(t *testing.T, title, severity, text, label, link string, n int) {
		m := message.Message{
			State: message.Open, Severity: severity, Title: title, Text: text, Footer: label, More: n, MoreURL: link,
			Fields:  []message.Field{{Name: label, Value: text}, {Name: text, Value: label}},
			Links:   []message.Link{{Title: title, URL: link}, {Title: label, URL: text}},
			Buttons: []message.Button{{Action: "ack", Label: label, Value: "incident-1"}, {Action: label, Label: title, Value: text}, {Action: "resolve", Label: title, Value: "incident-1"}},
		}
		for range min(max(n, 0), 500) {
			m.Items = append(m.Items, message.Item{Title: title, Detail: label})
		}
		for _, state := range []message.State{message.Open, message.Plain} {
			m.State = state
			for _, form := range forms {
				checkShown(t, m, form, label, false)
				checkShown(t, m, form, "", true)
			}
		}
	})
}
