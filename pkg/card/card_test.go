package card_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tocsin-oncall/tocsin/pkg/card"
	"github.com/tocsin-oncall/tocsin/pkg/message"
)

var update = flag.Bool("update", false, "write the golden files anew")

var opened = time.Date(2026, 11, 29, 2, 14, 5, 0, time.UTC)

func at(d time.Duration) *time.Time {
	t := opened.Add(d)
	return &t
}

// open is an incident of one alert.
func open() card.Snapshot {
	return card.Snapshot{
		IncidentID: "0198c2f0-0000-7000-8000-000000000001", Key: "k", Topic: "alert.disk_full.critical.db", Title: "Disk of db-1 is full",
		Text: "95 % used, full in 20 min", State: message.Open, Criticality: "critical", Revision: 1, Count: 1, Firing: 1, OpenedAt: opened,
		Labels: map[string]string{"job": "db", "instance": "db-1"},
		Alerts: []card.Alert{{Fingerprint: "a", Status: "firing", Title: "Disk of db-1 is full", Labels: map[string]string{"job": "db", "instance": "db-1"}, StartsAt: opened}},
		Links:  []message.Link{{Title: "Runbook", URL: "https://example.com/runbook"}},
	}
}

// group is an incident of many alerts.
func group(n int) card.Snapshot {
	s := open()
	s.Title, s.Text, s.Firing, s.Resolved, s.Alerts = "DiskFull (cluster=a)", "", n-1, 1, nil
	s.Labels = map[string]string{"cluster": "a"}
	for i := range min(n, card.MaxAlerts) {
		a := card.Alert{Status: "firing", Title: "disk full", Labels: map[string]string{"cluster": "a", "instance": fmt.Sprintf("db-%02d", i)}, StartsAt: opened}
		if i == n-1 {
			a.Status = "resolved"
		}
		s.Alerts = append(s.Alerts, a)
	}
	return s
}

func acknowledged(s card.Snapshot) card.Snapshot {
	s.State, s.AcknowledgedBy, s.AcknowledgedAt, s.Revision = message.Acknowledged, "Ana Torres", at(4*time.Minute), s.Revision+1
	return s
}

func resolved(s card.Snapshot, by string) card.Snapshot {
	s.State, s.ResolvedBy, s.ResolvedAt, s.Revision = message.Resolved, by, at(32*time.Minute+5*time.Second), s.Revision+1
	if !strings.HasPrefix(by, "source:") {
		return s
	}
	s.Resolved += s.Firing
	s.Firing = 0
	return s
}

// draw writes a message as text, everything of it.
func draw(m message.Message) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", strings.TrimSpace(m.State.Sign()+" "+m.Title))
	if m.Severity != "" {
		fmt.Fprintf(&b, "severity %s\n", m.Severity)
	}
	for l := range strings.Lines(m.Text) {
		b.WriteString("| " + strings.TrimSuffix(l, "\n") + "\n")
	}
	for _, f := range m.Fields {
		fmt.Fprintf(&b, "field %s: %s\n", f.Name, f.Value)
	}
	for _, i := range m.Items {
		fmt.Fprintf(&b, "item resolved=%t %s (%s)\n", i.Resolved, i.Title, i.Detail)
	}
	if m.More > 0 {
		fmt.Fprintf(&b, "and %d more\n", m.More)
	}
	for _, l := range m.Links {
		fmt.Fprintf(&b, "link %s <%s>\n", l.Title, l.URL)
	}
	for _, v := range m.Buttons {
		fmt.Fprintf(&b, "button %s %q %s %s\n", v.Action, v.Label, v.Style, v.Value)
	}
	if m.Footer != "" {
		fmt.Fprintf(&b, "footer %s\n", m.Footer)
	}
	return b.String()
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got; go test ./pkg/card -update writes it anew):\n%s", file, diff)
	}
}

func TestWhatPeopleSee(t *testing.T) {
	t.Parallel()
	o := card.Options{PublicURL: "https://tocsin.example.com", Target: "schedule:primary"}
	repeat := o
	repeat.Repeat = true
	truncated := group(3)
	truncated.Truncated = 7
	entries := []card.Entry{
		{Sequence: 1, At: opened, Type: card.EntryOpened, Text: card.OpenedText("Disk of db-1 is full", "critical", 1)},
		{Sequence: 2, At: opened, Type: card.EntryPaged, Text: card.PagingText("Ana Torres", "primary", []string{"slack-dm", "telegram-dm in 2 min"})},
		{Sequence: 3, At: *at(4 * time.Minute), Type: card.EntryAcknowledged, Text: card.AcknowledgedText("Ana Torres", 4*time.Minute, "on it")},
		{Sequence: 4, At: *at(32 * time.Minute), Type: card.EntryResolved, Text: card.ResolvedText("", 32*time.Minute, "")},
	}
	var many []card.Entry
	for i := range 30 {
		many = append(many, card.Entry{Sequence: i + 1, At: *at(time.Duration(i) * time.Minute), Type: card.EntryAlertFiring, Text: fmt.Sprintf("Alert firing: %d", i+1)})
	}
	var b strings.Builder
	for _, c := range []struct {
		name string
		m    message.Message
	}{
		{"card: one alert, open", card.Card(open(), o)},
		{"card: one alert, acknowledged", card.Card(acknowledged(open()), o)},
		{"card: resolved by its source", card.Card(resolved(acknowledged(open()), "source:alertmanager"), o)},
		{"card: first made when it is over", card.Card(resolved(open(), "source:native"), o)},
		{"card: resolved by a person while it fires", card.Card(resolved(acknowledged(open()), "Bo"), o)},
		{"card: four alerts", card.Card(group(4), o)},
		{"card: 120 alerts", card.Card(group(120), o)},
		{"card: the source left alerts out", card.Card(truncated, o)},
		{"card: repeat after doubt", card.Card(open(), repeat)},
		{"notice", card.Notice(open(), o)},
		{"page", card.Page(open(), "Ana Torres", "https://chat.example.com/p1", o)},
		{"page: no card, by name, repeated", card.Page(open(), "Cho", "", card.Options{Target: "user:cho", Repeat: true})},
		{"page: second of a shift", card.Page(open(), "Bo", "", card.Options{Target: "schedule:primary/2"})},
		{"page: acknowledged", card.Page(acknowledged(open()), "Ana Torres", "https://chat.example.com/p1", o)},
		{"page: resolved", card.Page(resolved(acknowledged(open()), "Bo"), "Ana Torres", "https://chat.example.com/p1", o)},
		{"thread: one", card.Replies(open(), entries[:1], o)},
		{"thread: acknowledged", card.Replies(open(), entries[2:3], o)},
		{"thread: closing", card.Replies(resolved(open(), "source:native"), entries[3:], o)},
		{"thread: digest that closes, repeated", card.Replies(resolved(open(), "source:native"), entries, repeat)},
		{"thread: digest of 30", card.Replies(open(), many, o)},
		{"thread: a type of a newer replica without text", card.Replies(open(), []card.Entry{{Type: "snoozed_again"}}, o)},
	} {
		fmt.Fprintf(&b, "== %s\n%s\n", c.name, draw(c.m))
	}
	golden(t, "testdata/messages.golden", b.String())
}

func TestEventHasTheContractsNames(t *testing.T) {
	t.Parallel()
	s := resolved(acknowledged(open()), "Bo")
	typ, when := card.EventOf(s)
	var indented strings.Builder
	e := json.NewEncoder(&indented)
	e.SetIndent("", "  ")
	if err := e.Encode(json.RawMessage(card.Event(s, typ, when))); err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/event.golden", indented.String())
	if again := card.Event(s, typ, when); string(again) != string(card.Event(s, typ, when)) {
		t.Error("the same event has different bytes")
	}
}

func TestEventOfFollowsTheState(t *testing.T) {
	t.Parallel()
	for want, s := range map[string]card.Snapshot{
		"incident.opened": open(), "incident.acknowledged": acknowledged(open()), "incident.resolved": resolved(acknowledged(open()), "Bo"),
	} {
		typ, when := card.EventOf(s)
		if typ != want {
			t.Errorf("type of %s: %s, want %s", s.State, typ, want)
		}
		if want == "incident.resolved" && !when.Equal(*s.ResolvedAt) || want == "incident.opened" && !when.Equal(opened) {
			t.Errorf("%s happened at %s", typ, when)
		}
	}
}

func TestDurations(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-time.Second: "less than a second", 0: "less than a second", 59 * time.Second: "59 s", time.Minute: "1 min", 61 * time.Second: "1 min 1 s",
		time.Hour: "1 h", 90 * time.Minute: "1 h 30 min", 49 * time.Hour: "2 d 1 h",
	} {
		if got := card.Duration(d); got != want {
			t.Errorf("Duration(%s) = %q, want %q", d, got, want)
		}
	}
}
