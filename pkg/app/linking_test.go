package app

import (
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/client"
	"github.com/tocsin-oncall/tocsin/pkg/provider/slack/slacktest"
	"github.com/tocsin-oncall/tocsin/pkg/provider/telegram/telegramtest"
)

// Nobody has linked Dee, whose e-mail address is in the file: the first page to her finds her, and is kept as a linked account.
func TestAPageFindsItsPersonByEmail(t *testing.T) {
	t.Parallel()
	e, c := startDev(t)
	a, err := c.SendAlert(within(t), api.Alert{Kind: "test", Criticality: "critical", Job: "web", Title: "Somebody must look"}, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Reassign(within(t), a.IncidentID, api.ReassignIncident{To: "dee"}); err != nil {
		t.Fatal(err)
	}
	if err := e.Slack.WaitFor(within(t), func(s *slacktest.Server) bool { return len(s.Messages("U0DEE")) == 1 }); err != nil {
		t.Fatal(err)
	}
	if text := e.Slack.Messages("U0DEE")[0].Text; !strings.Contains(text, "Somebody must look") {
		t.Error(text)
	}
	users, err := c.Users(within(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range users.Items {
		if u.ID == "dee" && (len(u.Accounts) != 1 || u.Accounts[0].AccountID != "U0DEE" || u.Accounts[0].LinkedBy != "e-mail" || u.Contacts[0].Address != "linked") {
			t.Errorf("%+v", u)
		}
	}
	l, err := c.Deliveries(within(t), client.Query{Incident: a.IncidentID, State: "dead", Notifier: "slack-dm"})
	if err != nil || len(l.Items) != 0 {
		t.Errorf("died: %+v, %v", l.Items, err)
	}
}

var (
	linkCommand = regexp.MustCompile(`tocsin users link ([A-Z2-7]+) <span>--user`)
	startForm   = regexp.MustCompile(`name="text" value="/start ([A-Z2-7]+)"`)
)

// codeOn opens the page that a chat told the address of, and gives the code in the command that it shows.
func codeOn(t *testing.T, e *DevEnvironment, text string) string {
	t.Helper()
	link := regexp.MustCompile(regexp.QuoteMeta(e.URL()) + `/link/[A-Z2-7]+`).FindString(text)
	if link == "" {
		t.Fatalf("no link is told: %.500s", text)
	}
	code := linkCommand.FindStringSubmatch(fetch(t, link, http.StatusOK))
	if code == nil {
		t.Fatal("the page shows no command")
	}
	return code[1]
}

// post does on a simulated chat's page what a person does there.
func post(t *testing.T, address string, form url.Values) {
	t.Helper()
	resp, err := http.PostForm(address, form)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", address, resp.Status)
	}
}

// A new person is linked in both chats, from nothing, by what the pages say; what she pressed is applied then.
func TestANewPersonIsLinkedByWhatThePagesSay(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]DevOptions{"over HTTP": {}, "fetched": {Fetch: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, c := startDevAs(t, o)
			if o.Fetch {
				if err := e.Slack.WaitFor(within(t), func(s *slacktest.Server) bool { return s.Sockets() == 2 }); err != nil {
					t.Fatal(err)
				}
			}
			one, ts, _ := fired(t, e, c, "For Slack")
			post(t, e.Slack.URL()+"/page/press", url.Values{"ts": {ts}, "action": {"ack"}, "as": {"U0DEE"}, "back": {"/"}})
			if err := e.Slack.WaitFor(within(t), func(s *slacktest.Server) bool { return len(s.Ephemerals("U0DEE")) == 1 }); err != nil {
				t.Fatal(err)
			}
			linked, err := c.Link(within(t), "dee", codeOn(t, e, fetch(t, e.Slack.URL()+"/?c=C0OPS&as=U0DEE", http.StatusOK)))
			if err != nil || linked.AccountID != "U0DEE" {
				t.Fatalf("%+v, %v", linked, err)
			}
			if inc := becomes(t, c, one, "acknowledged"); inc.AcknowledgedBy != "Dee Okafor" {
				t.Errorf("%+v", inc)
			}

			// Whoever pressed is told there, since somebody else may have run the command.
			if err := e.Slack.WaitFor(within(t), func(s *slacktest.Server) bool {
				all := s.Ephemerals("U0DEE")
				return strings.Contains(all[len(all)-1].Text, "linked to Dee Okafor (dee). The button that you pressed before: You acknowledged it.")
			}); err != nil {
				t.Error(err)
			}

			two, _, id := fired(t, e, c, "For Telegram")
			post(t, e.Telegram.URL()+"/page/press", url.Values{"chat": {"-1001000000001"}, "message": {strconv.Itoa(id)}, "action": {"resolve"}, "as": {"504"}, "back": {"/"}})
			if err := e.Telegram.WaitFor(within(t), func(s *telegramtest.Server) bool { return len(s.Answers(504)) == 1 }); err != nil {
				t.Fatal(err)
			}
			start := startForm.FindStringSubmatch(fetch(t, e.Telegram.URL()+"/?c=-1001000000001&as=504", http.StatusOK))
			if start == nil {
				t.Fatal("the press led to no Start")
			}
			post(t, e.Telegram.URL()+"/page/say", url.Values{"chat": {"504"}, "as": {"504"}, "text": {"/start " + start[1]}, "back": {"/"}})
			if err := e.Telegram.WaitFor(within(t), func(s *telegramtest.Server) bool { return len(s.Messages(504)) == 2 }); err != nil {
				t.Fatal(err)
			}
			if linked, err = c.Link(within(t), "dee", codeOn(t, e, fetch(t, e.Telegram.URL()+"/?c=504&as=504", http.StatusOK))); err != nil || linked.AccountID != "504" {
				t.Fatalf("%+v, %v", linked, err)
			}
			if inc := becomes(t, c, two, "resolved"); inc.ResolvedBy != "Dee Okafor" {
				t.Errorf("%+v", inc)
			}
			if err := e.Telegram.WaitFor(within(t), func(s *telegramtest.Server) bool {
				all := s.Messages(504)
				return strings.Contains(all[len(all)-1].Text, "linked to Dee Okafor (dee). The button that you pressed before: You resolved it.")
			}); err != nil {
				t.Error(err)
			}
			// The other way round, without any press: a code from the command line.
			if _, err := c.Unlink(within(t), "dee", api.UnlinkAccount{Provider: "telegram"}); err != nil {
				t.Fatal(err)
			}
			in, err := c.Invite(within(t), "dee")
			if err != nil || in.Invitation == nil || len(in.Invitation.Telegram) != 1 {
				t.Fatalf("%+v, %v", in, err)
			}
			if _, err := e.Telegram.Open(within(t), 504, in.Invitation.Telegram[0]); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Unlink(within(t), "dee", api.UnlinkAccount{Provider: "slack"}); err != nil {
				t.Fatal(err)
			}
			if in, err = c.Invite(within(t), "dee"); err != nil {
				t.Fatal(err)
			}
			post(t, e.Slack.URL()+"/page/say", url.Values{"channel": {"C0OPS"}, "as": {"U0DEE"}, "text": {in.Invitation.Slack}, "back": {"/"}})
			if err := e.Slack.WaitFor(within(t), func(s *slacktest.Server) bool {
				all := s.Ephemerals("U0DEE")
				return strings.Contains(all[len(all)-1].Text, "linked to Dee Okafor (dee).\nYou can write:")
			}); err != nil {
				t.Error(err)
			}
			if err := e.Telegram.WaitFor(within(t), func(s *telegramtest.Server) bool {
				all := s.Messages(504)
				return strings.Contains(all[len(all)-1].Text, "linked to Dee Okafor")
			}); err != nil {
				t.Fatal(err)
			}
		})
	}
}
