package slack_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
	"github.com/tocsin-oncall/tocsin/pkg/provider/chattest"
	"github.com/tocsin-oncall/tocsin/pkg/provider/slack"
	"github.com/tocsin-oncall/tocsin/pkg/provider/slack/slacktest"
)

const signingSecret = "8f742231b10e8888abcd99edeadbeef5"

// examine checks what holds for all findings, and gives them by what was looked at.
func examine(t *testing.T, n config.Notifier, e provider.Examination) map[string]provider.Finding {
	t.Helper()
	n.Name, n.Type, n.Timeout = "ops-slack", "slack", 2*time.Second
	p, err := slack.New(n, nil)
	if err != nil {
		t.Fatal(err)
	}
	if e.Now == nil {
		e.Now = time.Now
	}
	by := map[string]provider.Finding{}
	for _, f := range p.Examine(t.Context(), e) {
		if _, twice := by[f.Check]; twice {
			t.Errorf("%s is found twice", f.Check)
		}
		by[f.Check] = f
		if f.Text == "" || (f.Level == provider.OK) != (f.Fix == "") {
			t.Errorf("%+v", f)
		}
		for _, secret := range []string{n.Token, n.SigningSecret, n.WebhookURL} {
			if secret != "" && strings.Contains(fmt.Sprint(f), secret) {
				t.Errorf("a secret stands in %+v", f)
			}
		}
	}
	return by
}

func levels(t *testing.T, by map[string]provider.Finding, want map[string]provider.Level) {
	t.Helper()
	for check, l := range want {
		if f, ok := by[check]; !ok || f.Level != l {
			t.Errorf("%s: want %s: %+v", check, l, f)
		}
	}
	for check, f := range by {
		if _, ok := want[check]; !ok && f.Level != provider.OK {
			t.Errorf("%+v", f)
		}
	}
}

func TestExamineToken(t *testing.T) {
	t.Parallel()
	const ok, warn, bad = provider.OK, provider.Warn, provider.Bad
	all := "chat:write channels:read groups:read channels:history groups:history im:history im:write"
	for _, c := range []struct {
		name   string
		set    func(*slacktest.Server)
		n      func(*config.Notifier)
		e      provider.Examination
		levels map[string]provider.Level
		texts  map[string]string // check -> in its text or its fix
	}{
		{name: "all is well", levels: map[string]provider.Level{"token": ok, "token kind": ok, "scopes": ok, "clock": ok, "signing secret": ok, "callbacks": ok, "channel C0OPS": ok, "look-ups": ok},
			texts: map[string]string{"token": "@tocsin of Simulated (T0SIM)", "callbacks": "https://tocsin.test/slack/interactions", "channel C0OPS": "ops"}},
		{name: "a revoked token", set: func(s *slacktest.Server) { s.SetRevoked(true) }, levels: map[string]provider.Level{"token": bad}, texts: map[string]string{"token": "reinstall"}},
		{name: "Slack is out of reach", n: func(n *config.Notifier) { n.APIURL = "http://127.0.0.1:1/api/" }, levels: map[string]provider.Level{"token": bad}, texts: map[string]string{"token": "network"}},
		{name: "nothing but the right to post", set: func(s *slacktest.Server) { s.SetScopes("chat:write") }, levels: map[string]provider.Level{"scopes": ok, "channel C0OPS": warn, "look-ups": warn},
			texts: map[string]string{"channel C0OPS": "channels:read", "look-ups": "channels:history"}},
		{name: "no right to post", set: func(s *slacktest.Server) { s.SetScopes("channels:read", "channels:history") }, levels: map[string]provider.Level{"scopes": bad}, texts: map[string]string{"scopes": "chat:write"}},
		{name: "a slow clock", e: provider.Examination{Now: func() time.Time { return time.Now().Add(-40 * time.Second) }}, levels: map[string]provider.Level{"clock": warn}},
		{name: "a wrong clock", e: provider.Examination{Now: func() time.Time { return time.Now().Add(6 * time.Minute) }}, levels: map[string]provider.Level{"clock": bad}, texts: map[string]string{"clock": "NTP"}},
		{name: "no signing secret", n: func(n *config.Notifier) { n.SigningSecret = "" }, levels: map[string]provider.Level{"signing secret": warn}},
		{name: "something else as a signing secret", n: func(n *config.Notifier) { n.SigningSecret = "xoxb-something" }, levels: map[string]provider.Level{"signing secret": warn}},
		{name: "no public address", e: provider.Examination{PublicURL: "-"}, levels: map[string]provider.Level{"callbacks": warn}},
		{name: "an address without encryption", e: provider.Examination{PublicURL: "http://tocsin.test"}, levels: map[string]provider.Level{"callbacks": warn}},
		{name: "a channel that is not there", n: func(n *config.Notifier) { n.Channel = "C0NONE" }, levels: map[string]provider.Level{"channel C0NONE": bad, "look-ups": warn}},
		{name: "a channel by its name", n: func(n *config.Notifier) { n.Channel = "#ops" }, levels: map[string]provider.Level{"channel #ops": warn, "look-ups": warn}},
		{name: "an archived channel", n: func(n *config.Notifier) { n.Channel = "C0OLD" }, levels: map[string]provider.Level{"channel C0OLD": bad}},
		{name: "a channel without the bot", n: func(n *config.Notifier) { n.Channel = "C0OUT" }, levels: map[string]provider.Level{"channel C0OUT": bad, "look-ups": warn}, texts: map[string]string{"channel C0OUT": "invite @tocsin to #out"}},
		{name: "a public channel without the bot, which may post all the same", n: func(n *config.Notifier) { n.Channel = "C0OUT" },
			set:    func(s *slacktest.Server) { s.SetScopes(strings.Fields(all + " chat:write.public")...) },
			levels: map[string]provider.Level{"channel C0OUT": warn, "look-ups": warn}},
		{name: "one person", n: func(n *config.Notifier) { n.Channel = "U0ANA" }, levels: map[string]provider.Level{"channel U0ANA": ok, "look-ups": ok}},
		{name: "people", n: func(n *config.Notifier) { n.Channel = "" }, set: func(s *slacktest.Server) { s.SetScopes("chat:write") },
			levels: map[string]provider.Level{"scope im:write": warn, "scope im:history": warn, "scope users:read.email": warn}},
		{name: "Socket Mode", n: func(n *config.Notifier) { n.AppToken, n.SigningSecret = "xapp-314159", "" }, levels: map[string]provider.Level{"Socket Mode": ok}},
		{name: "Socket Mode with another token", n: func(n *config.Notifier) { n.AppToken = "xapp-271828" }, levels: map[string]provider.Level{"Socket Mode": warn},
			texts: map[string]string{"Socket Mode": "connections:write"}},
		{name: "people, with all rights", n: func(n *config.Notifier) { n.Channel = "" }, e: provider.Examination{Live: true}, levels: map[string]provider.Level{"scopes": ok, "live test": ok},
			texts: map[string]string{"live test": "not made"}},
		{name: "a proxy that hides the scopes", set: func(s *slacktest.Server) {
			s.MustFault(chattest.Fault{Kind: chattest.Answer, Method: "auth.test", Body: `{"ok":true,"user_id":"U0TOCSIN","team":"x"}`})
		}, levels: map[string]provider.Level{"scopes": warn}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := slacktest.Start(t, slacktest.Options{Token: "xoxb-314159", AppToken: "xapp-314159", Channels: []slacktest.Channel{
				{ID: "C0OPS", Name: "ops"}, {ID: "C0OLD", Name: "old", Archived: true}, {ID: "C0OUT", Name: "out", NotMember: true},
			}})
			n := config.Notifier{Token: "xoxb-314159", APIURL: s.APIURL(), Channel: "C0OPS", SigningSecret: signingSecret}
			if c.set != nil {
				c.set(s)
			}
			if c.n != nil {
				c.n(&n)
			}
			switch c.e.PublicURL {
			case "":
				c.e.PublicURL = "https://tocsin.test"
			case "-":
				c.e.PublicURL = ""
			}
			by := examine(t, n, c.e)
			levels(t, by, c.levels)
			for check, want := range c.texts {
				if f := by[check]; !strings.Contains(f.Text+" "+f.Fix, want) {
					t.Errorf("%s: %q is not in %+v", check, want, f)
				}
			}
			if n := len(s.Ledger(chattest.WithEffect())); n != 0 {
				t.Errorf("%d effects of a look", n)
			}
		})
	}
}

func TestExamineTokenKinds(t *testing.T) {
	t.Parallel()
	for token, want := range map[string]provider.Level{
		"xoxb-1": provider.OK, "xoxp-1": provider.Warn, "xapp-1-A1": provider.Bad, "xoxe.xoxb-1": provider.Warn, "hush-hush": provider.Warn,
	} {
		s := slacktest.Start(t, slacktest.Options{Token: token})
		by := examine(t, config.Notifier{Token: token, APIURL: s.APIURL(), Channel: "C0OPS", SigningSecret: signingSecret}, provider.Examination{PublicURL: "https://tocsin.test"})
		if by["token kind"].Level != want {
			t.Errorf("%s: %+v", token, by["token kind"])
		}
	}
}

// Posted, found, looked at, edited and deleted: the channel is as it was.
func TestLiveExamination(t *testing.T) {
	t.Parallel()
	const ok, warn, bad = provider.OK, provider.Warn, provider.Bad
	for _, c := range []struct {
		name   string
		set    func(*slacktest.Server)
		levels map[string]provider.Level
		left   int
	}{
		{"all is well", func(*slacktest.Server) {}, map[string]provider.Level{"live test: post": ok, "live test: find": ok, "live test: marks": ok, "live test: edit": ok, "live test: delete": ok}, 0},
		{"no metadata", func(s *slacktest.Server) { s.SetDropMetadata(true) }, map[string]provider.Level{"live test: find": ok, "live test: marks": warn}, 0},
		{"no block ids", func(s *slacktest.Server) { s.SetDropBlockIDs(true) }, map[string]provider.Level{"live test: find": ok, "live test: marks": ok}, 0},
		{"no marks", func(s *slacktest.Server) { s.SetDropMetadata(true); s.SetDropBlockIDs(true) }, map[string]provider.Level{"live test: find": warn, "live test: edit": ok, "live test: delete": ok}, 0},
		{"no look-ups", func(s *slacktest.Server) { s.SetScopes("chat:write", "channels:read") }, map[string]provider.Level{"look-ups": warn, "live test: find": warn, "live test: edit": ok, "live test: delete": ok}, 0},
		{"the answer is lost", func(s *slacktest.Server) {
			s.MustFault(chattest.Fault{Kind: chattest.Drop, Method: "chat.postMessage", Count: 1})
		}, map[string]provider.Level{"live test: post": warn, "live test: find": ok, "live test: delete": ok}, 0},
		{"the post is refused", func(s *slacktest.Server) {
			s.MustFault(chattest.Fault{Kind: chattest.Code, Code: "restricted_action", Method: "chat.postMessage"})
		}, map[string]provider.Level{"live test: post": bad}, 0},
		{"the post is lost", func(s *slacktest.Server) {
			s.MustFault(chattest.Fault{Kind: chattest.Reset, Method: "chat.postMessage"})
		}, map[string]provider.Level{"live test: post": bad}, 0},
		{"no edits", func(s *slacktest.Server) {
			s.MustFault(chattest.Fault{Kind: chattest.Code, Code: "edit_window_closed", Method: "chat.update"})
		}, map[string]provider.Level{"live test: edit": bad, "live test: delete": ok}, 0},
		{"no deletion", func(s *slacktest.Server) {
			s.MustFault(chattest.Fault{Kind: chattest.Code, Code: "compliance_exports_prevent_deletion", Method: "chat.delete"})
		}, map[string]provider.Level{"live test: delete": warn}, 1},
		{"somebody was faster", func(s *slacktest.Server) {
			s.MustFault(chattest.Fault{Kind: chattest.Code, Code: "message_not_found", Method: "chat.delete", Happens: true})
		}, map[string]provider.Level{"live test: delete": ok}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := slacktest.Start(t, slacktest.Options{Token: "xoxb-314159"})
			c.set(s)
			by := examine(t, config.Notifier{Token: "xoxb-314159", APIURL: s.APIURL(), Channel: "C0OPS", SigningSecret: signingSecret}, provider.Examination{PublicURL: "https://tocsin.test", Live: true})
			levels(t, by, c.levels)
			if m := s.Messages("C0OPS"); len(m) != c.left {
				t.Errorf("%+v", m)
			}
		})
	}
}

func TestExamineWebhook(t *testing.T) {
	t.Parallel()
	const ok, warn, bad = provider.OK, provider.Warn, provider.Bad
	s := slacktest.Start(t, slacktest.Options{})
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	for url, want := range map[string]map[string]provider.Level{
		s.WebhookURL():                  {"webhook URL": warn, "connection": ok}, // no encryption
		closed.URL + "/services/T/B/x":  {"webhook URL": warn, "connection": bad},
		"https://no-such-name.invalid/": {"webhook URL": ok, "connection": bad},
	} {
		for _, live := range []bool{false, true} {
			by := examine(t, config.Notifier{WebhookURL: url}, provider.Examination{Live: live})
			levels(t, by, want)
			if _, said := by["live test"]; said != (live && want["connection"] == ok) {
				t.Errorf("%s: %+v", url, by)
			}
		}
	}
	if n := len(s.Ledger(chattest.ByMethod("webhook"))); n != 0 {
		t.Errorf("the webhook was called %d times", n)
	}
}
