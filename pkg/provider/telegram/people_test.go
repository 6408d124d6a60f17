package telegram_test

import (
	"testing"

	"github.com/tocsin-oncall/tocsin/pkg/provider/chattest"
	"github.com/tocsin-oncall/tocsin/pkg/provider/telegram/telegramtest"
)

// Whether the bot has a chat with a person is known before a page is sent, and nothing is sent for it. That somebody has blocked the bot
// since is known where Telegram says so.
func TestReach(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, address   string
		fault           chattest.Fault
		closed, unknown bool
		reason          string
	}{
		{"somebody", "501", chattest.Fault{}, false, false, ""},
		{"nobody", "999999", chattest.Fault{}, true, false, "destination:chat_not_found"},
		{"somebody who blocked the bot", "501", chattest.Fault{Kind: chattest.Code, Status: 403, Code: "Forbidden: bot was blocked by the user"}, true, false, "destination:blocked"},
		{"somebody who is gone", "501", chattest.Fault{Kind: chattest.Code, Status: 403, Code: "Forbidden: user is deactivated"}, true, false, "destination:user_deactivated"},
		{"the token is revoked", "501", chattest.Fault{Kind: chattest.Revoked}, false, true, ""},
		{"too often", "501", chattest.Fault{Kind: chattest.Limited, RetryAfter: "5"}, false, true, ""},
		{"no answer", "501", chattest.Fault{Kind: chattest.Reset}, false, true, ""},
	} {
		s, p := start(t, telegramtest.Options{})
		if c.fault.Kind != "" {
			c.fault.Method = "getChat"
			s.MustFault(c.fault)
		}
		if r := p.Reach(t.Context(), c.address); r.Closed != c.closed || r.Unknown != c.unknown || r.Reason != c.reason || c.closed != (r.Sentence != "") {
			t.Errorf("%s: %+v", c.name, r)
		}
		for _, e := range s.Ledger() {
			if e.Effect != chattest.None {
				t.Errorf("%s: %s had an effect", c.name, e.Method)
			}
		}
	}
}
