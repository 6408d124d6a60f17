package card_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tocsin-oncall/tocsin/pkg/card"
	"github.com/tocsin-oncall/tocsin/pkg/message"
)

// hard is text of the sort that breaks what handles it.
func hard() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.StringOf(rapid.RuneFrom([]rune("ab &<>*_`~|\n\t\x00é\u0301\u200d日😀🏽"))),
		rapid.SampledFrom([]string{
			"", " \n ", "\xff\xfe", strings.Repeat("x", 100_000), strings.Repeat("日本", 50_000), strings.Repeat("👩‍👩‍👧‍👦", 10_000), strings.Repeat("e\u0301", 50_000), "<!channel>", "*_~`",
		}),
	)
}

func drawSnapshot(t *rapid.T) card.Snapshot {
	s := card.Snapshot{
		IncidentID: "0198c2f0-0000-7000-8000-000000000001", Title: hard().Draw(t, "title"), Text: hard().Draw(t, "text"),
		State:       rapid.SampledFrom([]message.State{message.Open, message.Acknowledged, message.Resolved}).Draw(t, "state"),
		Criticality: hard().Draw(t, "criticality"), OpenedAt: opened, Labels: map[string]string{},
		Firing: rapid.SampledFrom([]int{0, 1, 14, 15, 16, 500}).Draw(t, "firing"), Resolved: rapid.IntRange(0, 3).Draw(t, "resolved"),
		Truncated: rapid.SampledFrom([]int{0, 0, 7}).Draw(t, "truncated"),
		Links:     []message.Link{{Title: hard().Draw(t, "link"), URL: "https://x.test/" + hard().Draw(t, "path")}, {Title: "Runbook", URL: "https://x.test/r"}},
	}
	if rapid.Bool().Draw(t, "answered") {
		s.AcknowledgedAt, s.AcknowledgedBy = at(time.Minute), hard().Draw(t, "by")
	}
	if rapid.Bool().Draw(t, "over") {
		s.ResolvedAt, s.ResolvedBy = at(time.Hour), hard().Draw(t, "ended by")
	}
	for range rapid.IntRange(0, 14).Draw(t, "labels") {
		s.Labels[hard().Draw(t, "name")] = hard().Draw(t, "value")
	}
	a := card.Alert{Title: hard().Draw(t, "alert"), Labels: map[string]string{"instance": hard().Draw(t, "instance")}}
	for range min(s.Firing+s.Resolved, card.MaxAlerts) {
		s.Alerts = append(s.Alerts, a)
	}
	return s
}

// Whatever stands in an incident, a card and a page say what it is, how bad, where it stands, where to read on, and can be
// pressed while there is something to press. What a message leaves out is counted.
func TestWhatMattersSurvives(t *testing.T) {
	t.Parallel()
	o := card.Options{PublicURL: "https://tocsin.example.com", Target: "schedule:primary"}
	const all, permalink = "https://tocsin.example.com/incidents/0198c2f0-0000-7000-8000-000000000001", "https://chat.example.com/p1"
	rapid.Check(t, func(t *rapid.T) {
		s := drawSnapshot(t)
		shown, page, notice := card.Card(s, o), card.Page(s, "Ana", permalink, o), card.Notice(s, o)
		pressable := map[message.State]string{message.Open: "ack resolve snooze escalate", message.Acknowledged: "resolve snooze escalate"}[s.State]
		for name, m := range map[string]message.Message{"card": shown, "page": page, "notice": notice} {
			if m.Title != s.Title || m.Severity != s.Criticality || m.State != s.State || m.MoreURL != all || m.Text == "" {
				t.Fatalf("%s: title %.40q, severity %.40q, state %q, more %q, text %.40q", name, m.Title, m.Severity, m.State, m.MoreURL, m.Text)
			}
			var actions []string
			for _, b := range m.Buttons {
				actions = append(actions, b.Action)
				if b.Value != s.IncidentID || b.Label == "" {
					t.Fatalf("%s: %+v", name, b)
				}
			}
			if got := strings.Join(actions, " "); got != pressable && name != "notice" || name == "notice" && got != "" {
				t.Fatalf("%s in %s: buttons %q", name, s.State, got)
			}
			if n := len(m.Links); n < 2 || m.Links[n-1] != s.Links[1] || m.Links[n-2] != s.Links[0] {
				t.Fatalf("%s: links %.200v", name, m.Links)
			}
			if len(m.Fields) > 10 || len(m.Items) > 15 || m.More < 0 {
				t.Fatalf("%s: %d fields, %d items, %d more", name, len(m.Fields), len(m.Items), m.More)
			}
			for _, i := range m.Items {
				if message.Width(i.Detail, message.CodePoints) > 200 {
					t.Fatalf("%s: a detail of %d characters", name, message.Width(i.Detail, message.CodePoints))
				}
			}
		}
		if page.Links[0].URL != permalink {
			t.Fatalf("the page's first link is %.80v", page.Links[0])
		}
		total := s.Firing + s.Resolved
		if sum := len(shown.Items) + shown.More; sum != total && (total > 1 || sum != 0) {
			t.Fatalf("%d items and %d more of %d alerts", len(shown.Items), shown.More, total)
		}
		if s.Truncated > 0 && !strings.Contains(shown.Text, "left 7 alerts out") {
			t.Fatalf("nobody is told what the source left out: %.200q", shown.Text)
		}
	})
}

func TestWithoutAPublicAddressThereIsNoPage(t *testing.T) {
	t.Parallel()
	for _, m := range []message.Message{card.Card(open(), card.Options{}), card.Page(open(), "Ana", "", card.Options{})} {
		if m.MoreURL != "" {
			t.Errorf("%q leads nowhere", m.MoreURL)
		}
	}
}

// A thread tells all of its entries, or how many it does not tell.
func TestRepliesCountWhatTheyLeaveOut(t *testing.T) {
	t.Parallel()
	for n := 2; n < 60; n++ {
		var entries []card.Entry
		for i := range n {
			entries = append(entries, card.Entry{Sequence: i, At: opened, Type: card.EntryAlertFiring, Text: fmt.Sprint("entry ", i)})
		}
		m := card.Replies(open(), entries, card.Options{})
		told, left := 0, 0
		for line := range strings.Lines(m.Text) {
			if rest, ok := strings.CutPrefix(line, "… and "); ok {
				if _, err := fmt.Sscanf(rest, "%d more", &left); err != nil {
					t.Fatal(err)
				}
				continue
			}
			told++
		}
		if told+left != n || !strings.Contains(m.Text, fmt.Sprint("entry ", n-1)) || !strings.Contains(m.Text, "entry 0") {
			t.Errorf("%d entries: %d told, %d left", n, told, left)
		}
	}
}
