package app

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/client"
	"github.com/tocsin-oncall/tocsin/pkg/provider/slack/slacktest"
	"github.com/tocsin-oncall/tocsin/pkg/provider/telegram/telegramtest"
	"github.com/tocsin-oncall/tocsin/pkg/store/storetest"
)

// ops is the simulated Telegram's group.
const ops = -1001000000001

// patience bounds every wait of these tests; none of them comes near it.
const patience = time.Minute

// startDev starts the development environment on free ports and a database of the test's own.
func startDev(t testing.TB) (*DevEnvironment, *client.Client) {
	t.Helper()
	return startDevAs(t, DevOptions{})
}

func startDevAs(t testing.TB, o DevOptions) (*DevEnvironment, *client.Client) {
	t.Helper()
	o.Dir, o.Database, o.AnyPorts = t.TempDir(), storetest.New(t), true
	e, err := StartDev(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Stop)
	c, err := client.New(e.URL(), e.Token)
	if err != nil {
		t.Fatal(err)
	}
	return e, c
}

func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// onCallPerson is the person whom the sample schedule pages now, with their chats' ids.
func onCallPerson(t testing.TB, c *client.Client) (slackID string, telegramID int64, name string) {
	t.Helper()
	l, err := c.OnCall(within(t), "primary", time.Time{})
	if err != nil || len(l.Items) != 1 || len(l.Items[0].Users) != 1 {
		t.Fatalf("on call: %+v, %v", l, err)
	}
	switch l.Items[0].Users[0].ID {
	case "ana":
		return "U0ANA", 501, "Ana Torres"
	case "bo":
		return "U0BO", 502, "Bo Lind"
	}
	t.Fatalf("on call is %+v", l.Items[0])
	return "", 0, ""
}

// slackCard is the first message of #ops that is no reply.
func slackCard(s *slacktest.Server) (slacktest.Message, bool) {
	for _, m := range s.Messages("C0OPS") {
		if m.ThreadTS == "" || m.ThreadTS == m.TS {
			return m, true
		}
	}
	return slacktest.Message{}, false
}

func holds(m slacktest.Message, text string) bool {
	return strings.Contains(m.Text, text) || bytes.Contains(m.Blocks, []byte(text)) || bytes.Contains(m.Attachments, []byte(text))
}

// What is printed is enough to look at all of it, the database included.
func TestDevTellsItsAddresses(t *testing.T) {
	t.Parallel()
	e, _ := startDev(t)
	var out bytes.Buffer
	e.print(DevOptions{Out: &out})
	for _, s := range []string{e.URL(), e.Slack.URL(), e.Telegram.URL(), "TOCSIN_TOKEN=" + e.Token, "psql '" + e.Database + "'"} {
		if !strings.Contains(out.String(), s) {
			t.Errorf("%s is not told:\n%s", s, &out)
		}
	}
}

// TestSampleStandsAndAcknowledges is the tour that `make run` offers: the sample's card, thread and page stand in both
// chats, and pressing Acknowledge in Slack turns the cards yellow and edits the pages.
func TestSampleStandsAndAcknowledges(t *testing.T) {
	t.Parallel()
	e, c := startDev(t)
	slackID, telegramID, name := onCallPerson(t, c)
	if err := e.SendSample(within(t)); err != nil {
		t.Fatal(err)
	}

	err := e.Slack.WaitFor(within(t), func(s *slacktest.Server) bool {
		m, ok := slackCard(s)
		return ok && holds(m, "🔴") && holds(m, "Disks of the database") && len(s.Replies("C0OPS", m.TS)) > 0 && len(s.Messages(slackID)) == 1
	})
	if err != nil {
		t.Fatalf("Slack: %v; channel %+v, page %+v", err, e.Slack.Messages("C0OPS"), e.Slack.Messages(slackID))
	}
	err = e.Telegram.WaitFor(within(t), func(s *telegramtest.Server) bool {
		ms := s.Messages(ops)
		return len(ms) >= 2 && strings.Contains(ms[0].Text, "🔴") && ms[1].ReplyTo == ms[0].ID && len(s.Messages(telegramID)) == 1
	})
	if err != nil {
		t.Fatalf("Telegram: %v; group %+v, page %+v", err, e.Telegram.Messages(ops), e.Telegram.Messages(telegramID))
	}
	card, _ := slackCard(e.Slack)
	if page := e.Slack.Messages(slackID)[0]; !holds(page, "Open the card") {
		t.Errorf("the page does not carry the card's link: %s %s %s", page.Text, page.Blocks, page.Attachments)
	}
	red := card.Colour()

	pressed := time.Now()
	a, err := e.Slack.Press(within(t), card.TS, "ack", slackID)
	if err != nil || a.Status != http.StatusOK {
		t.Fatalf("press: %+v, %v", a, err)
	}
	if took := time.Since(pressed); took > time.Second {
		t.Errorf("the callback was answered after %s", took)
	}
	err = e.Slack.WaitFor(within(t), func(s *slacktest.Server) bool {
		m, _ := slackCard(s)
		return holds(m, "🟡") && m.Colour() != red && len(m.Edits) == 1 && len(s.Messages(slackID)[0].Edits) == 1 && len(s.Ephemerals(slackID)) == 1
	})
	if err != nil {
		t.Fatalf("after the press: %v; %+v %+v %+v", err, e.Slack.Messages("C0OPS"), e.Slack.Messages(slackID), e.Slack.Ephemerals(""))
	}
	t.Logf("the card was yellow and the page edited %s after the press", time.Since(pressed))
	if page := e.Slack.Messages(slackID)[0]; !holds(page, name) {
		t.Errorf("the page does not say that %s acknowledged: %s", name, page.Attachments)
	}
	if got := e.Slack.Ephemerals(slackID)[0].Text; !strings.Contains(got, "You acknowledged it") {
		t.Errorf("the private answer is %q", got)
	}
	if err := e.Telegram.WaitFor(within(t), func(s *telegramtest.Server) bool {
		return strings.Contains(s.Messages(ops)[0].Text, "🟡") && len(s.Messages(telegramID)[0].Edits) == 1
	}); err != nil {
		t.Fatalf("Telegram after the press: %v; %+v", err, e.Telegram.Messages(ops))
	}
}

// A second presser, on the other chat, is told who was first, and nothing changes.
func TestSecondPresserIsToldWhoWasFirst(t *testing.T) {
	t.Parallel()
	e, c := startDev(t)
	_, telegramID, name := onCallPerson(t, c)
	if err := e.SendSample(within(t)); err != nil {
		t.Fatal(err)
	}
	if err := e.Telegram.WaitFor(within(t), func(s *telegramtest.Server) bool { return len(s.Messages(telegramID)) == 1 }); err != nil {
		t.Fatal(err)
	}
	page := e.Telegram.Messages(telegramID)[0]
	first, err := e.Telegram.Press(within(t), telegramID, page.ID, "ack", telegramID)
	if err != nil || first.Status != http.StatusOK {
		t.Fatalf("press: %+v, %v", first, err)
	}
	if err := e.Telegram.WaitFor(within(t), func(s *telegramtest.Server) bool {
		return len(s.Answers(telegramID)) == 1 && strings.Contains(s.Messages(ops)[0].Text, "🟡") && len(s.Messages(telegramID)[0].Edits) == 1
	}); err != nil {
		t.Fatalf("%v: %+v", err, e.Telegram.Answers(0))
	}
	if got := e.Telegram.Answers(telegramID)[0].Text; !strings.Contains(got, "You acknowledged it") {
		t.Errorf("the first is told %q", got)
	}
	// Telegram brings the first press again, and Cho answers by the API.
	if again, err := e.Telegram.Redeliver(within(t), first.UpdateID); err != nil || again.Status != http.StatusOK {
		t.Fatalf("redelivery: %+v, %v", again, err)
	}
	l, err := c.Incidents(within(t), client.Query{})
	if err != nil || len(l.Items) != 1 {
		t.Fatalf("incidents: %+v, %v", l, err)
	}
	inc, err := c.Acknowledge(within(t), l.Items[0].ID, api.IncidentAction{By: "cho"})
	if err != nil || inc.AcknowledgedBy != name {
		t.Errorf("acknowledged by %q, %v; want %s, who was first", inc.AcknowledgedBy, err, name)
	}
	acks := 0
	for _, ev := range inc.Timeline {
		if ev.Type == "acknowledged" {
			acks++
		}
	}
	if acks != 1 {
		t.Errorf("%d acknowledgements in the timeline, want 1: %+v", acks, inc.Timeline)
	}
}

// Someone whom nobody knows presses: nothing changes until the account is linked, and then that press is applied.
func TestUnknownPresserIsLinked(t *testing.T) {
	t.Parallel()
	e, c := startDev(t)
	if err := e.SendSample(within(t)); err != nil {
		t.Fatal(err)
	}
	if err := e.Slack.WaitFor(within(t), func(s *slacktest.Server) bool { _, ok := slackCard(s); return ok }); err != nil {
		t.Fatal(err)
	}
	card, _ := slackCard(e.Slack)
	if a, err := e.Slack.Press(within(t), card.TS, "ack", "U0DEE"); err != nil || a.Status != http.StatusOK {
		t.Fatalf("press: %+v, %v", a, err)
	}
	if err := e.Slack.WaitFor(within(t), func(s *slacktest.Server) bool { return len(s.Ephemerals("U0DEE")) == 1 }); err != nil {
		t.Fatal(err)
	}
	answer := e.Slack.Ephemerals("U0DEE")[0].Text
	_, rest, ok := strings.Cut(answer, e.URL()+"/link/")
	if !ok {
		t.Fatalf("the private answer has no link: %q", answer)
	}
	code, _, _ := strings.Cut(rest, ">") // Slack writes a link in angle brackets
	l, err := c.Incidents(within(t), client.Query{})
	if err != nil || len(l.Items) != 1 || l.Items[0].State != "open" {
		t.Fatalf("the press of an unknown account was applied: %+v, %v", l, err)
	}
	page := fetch(t, e.URL()+"/link/"+code, http.StatusOK)
	for _, want := range []string{"U0DEE", "tocsin users link " + code} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q: %s", want, page)
		}
	}

	linked, err := c.Link(within(t), "dee", code)
	if err != nil || linked.AccountID != "U0DEE" || !strings.Contains(linked.Applied, "You acknowledged it") {
		t.Fatalf("link: %+v, %v", linked, err)
	}
	inc, err := c.Incident(within(t), l.Items[0].ID)
	if err != nil || inc.State != "acknowledged" || inc.AcknowledgedBy != "Dee Okafor" {
		t.Errorf("after linking: %+v, %v", inc, err)
	}
	if _, err := c.Link(within(t), "dee", code); err == nil {
		t.Error("the code could be used twice")
	}
	fetch(t, e.URL()+"/link/"+code, http.StatusNotFound)
}

func fetch(t testing.TB, url string, want int) string {
	t.Helper()
	req, err := http.NewRequestWithContext(within(t), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(resp.Body); err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != want {
		t.Fatalf("GET %s: %s: %s", url, resp.Status, b.String())
	}
	return b.String()
}
