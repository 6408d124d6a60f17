package slack_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/provider/slack"
	"github.com/tocsin-oncall/tocsin/pkg/provider/slack/slacktest"
)

func toPeople(t *testing.T, s *slacktest.Server) *slack.Provider {
	t.Helper()
	p, err := slack.New(config.Notifier{Name: "slack-dm", Token: s.Options().Token, APIURL: s.APIURL(), Timeout: 2 * time.Second}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Whether a person can be reached is known before a page is sent, and nothing is sent for it.
func TestReach(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, address string
		set           func(s *slacktest.Server)
		closed        bool
		unknown       bool
		reason        string
	}{
		{"somebody", "U0ANA", nil, false, false, ""},
		{"nobody", "U0NOBODY", nil, true, false, "destination:user_not_found"},
		{"somebody who left", "U0ANA", func(s *slacktest.Server) { s.SetUser(slacktest.User{ID: "U0ANA", Deactivated: true}) }, true, false, "destination:user_disabled"},
		{"somebody who left, without the scope to see it", "U0ANA", func(s *slacktest.Server) {
			s.SetUser(slacktest.User{ID: "U0ANA", Deactivated: true})
			s.SetScopes("chat:write", "im:write")
		}, true, false, "destination:user_disabled"},
		{"no scope to look", "U0ANA", func(s *slacktest.Server) { s.SetScopes("chat:write") }, false, false, ""},
		{"the token is revoked", "U0ANA", func(s *slacktest.Server) { s.SetRevoked(true) }, false, true, ""},
	} {
		s := slacktest.Start(t, slacktest.Options{})
		if c.set != nil {
			c.set(s)
		}
		p := toPeople(t, s)
		r := p.Reach(t.Context(), c.address)
		if r.Closed != c.closed || r.Unknown != c.unknown || r.Reason != c.reason || c.closed && !strings.Contains(r.Sentence, c.address) {
			t.Errorf("%s: %+v", c.name, r)
		}
		for _, ch := range []string{"U0ANA", "C0OPS"} {
			if n := len(s.Messages(ch)); n > 0 {
				t.Errorf("%s: %d messages were sent", c.name, n)
			}
		}
	}
}

func TestUserGroup(t *testing.T) {
	t.Parallel()
	s := slacktest.Start(t, slacktest.Options{})
	s.SetGroup("S0ONCALL", "U0DEE")
	p := toPeople(t, s)
	for range 2 {
		if r := p.SetGroup(t.Context(), "S0ONCALL", []string{"U0ANA", "U0BO"}); r.Outcome != delivery.OutcomeSent {
			t.Fatalf("%+v", r)
		}
	}
	if diff := cmp.Diff([]string{"U0ANA", "U0BO"}, s.Group("S0ONCALL")); diff != "" {
		t.Error(diff)
	}
	for _, c := range []struct {
		group   string
		members []string
		scopes  []string
		fault   delivery.Fault
		says    string
	}{
		{"S0GONE", []string{"U0ANA"}, nil, delivery.FaultDestination, "S0GONE does not exist"},
		{"S0ONCALL", []string{"U0NOBODY"}, nil, delivery.FaultDestination, "link another account"},
		{"S0ONCALL", []string{"U0ANA"}, []string{"chat:write"}, delivery.FaultAccount, "usergroups:write"},
	} {
		if c.scopes != nil {
			s.SetScopes(c.scopes...)
		}
		if r := p.SetGroup(t.Context(), c.group, c.members); r.Outcome != delivery.OutcomeFailed || r.Fault != c.fault || !strings.Contains(r.Sentence, c.says) {
			t.Errorf("%s: %+v", c.group, r)
		}
	}
}
