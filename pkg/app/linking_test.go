package app

import (
	"strings"
	"testing"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/client"
	"github.com/tocsin-oncall/tocsin/pkg/provider/slack/slacktest"
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
	l, err := c.Deliveries(within(t), client.Query{Incident: a.IncidentID, State: "dead"})
	if err != nil || len(l.Items) != 0 {
		t.Errorf("died: %+v, %v", l.Items, err)
	}
}
