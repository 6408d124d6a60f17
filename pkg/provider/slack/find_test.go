package slack_test

import (
	"testing"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/provider/chattest"
	"github.com/tocsin-oncall/tocsin/pkg/provider/slack"
	"github.com/tocsin-oncall/tocsin/pkg/provider/slack/slacktest"
)

func TestFindByEmail(t *testing.T) {
	t.Parallel()
	s := slacktest.Start(t, slacktest.Options{Users: []slacktest.User{
		{ID: "U0ANA", Name: "ana", Email: "ana@example.com"}, {ID: "U0OLD", Name: "old", Email: "old@example.com", Deactivated: true},
	}})
	p, err := slack.New(config.Notifier{Name: "slack-dm", Type: "slack", Token: s.Options().Token, APIURL: s.APIURL()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for email, want := range map[string]string{"ana@example.com": "U0ANA", "old@example.com": "", "nobody@example.com": "", "": ""} {
		if id, err := p.Find(t.Context(), email); err != nil || id != want {
			t.Errorf("%q: %q, %v", email, id, err)
		}
	}
	// Without the scope everybody is nobody: asking again would not help.
	s.MustFault(chattest.Fault{Kind: chattest.Code, Method: "users.lookupByEmail", Code: "missing_scope", Count: 1})
	if id, err := p.Find(t.Context(), "ana@example.com"); err != nil || id != "" {
		t.Errorf("without the scope: %q, %v", id, err)
	}
	// An outage is no "nobody": it is asked again.
	s.MustFault(chattest.Fault{Kind: chattest.Error, Method: "users.lookupByEmail", Status: 500})
	if id, err := p.Find(t.Context(), "ana@example.com"); err == nil {
		t.Errorf("a failed look-up found %q", id)
	}
}
