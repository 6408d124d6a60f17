package slack

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/provider/wire"
)

// ask calls a method of the Web API that makes nothing anybody counts on.
func (p *Provider) ask(ctx context.Context, method string, form url.Values) wire.Record {
	return p.askAs(ctx, p.token, method, form)
}

func (p *Provider) askAs(ctx context.Context, token, method string, form url.Values) wire.Record {
	body := form.Encode()
	u := *p.base
	u.Path, u.RawPath = u.Path+method, ""
	r := &http.Request{
		Method: http.MethodPost, URL: &u, Host: u.Host,
		Header: http.Header{
			"Content-Type": {"application/x-www-form-urlencoded"}, "User-Agent": {"tocsin"}, "Authorization": {"Bearer " + token},
		},
		Body:          io.NopCloser(strings.NewReader(body)),
		ContentLength: int64(len(body)),
	}
	return p.client.Do(r.WithContext(ctx))
}

// identity is who the token is, by auth.test.
type identity struct {
	team, teamID string
	user         string // the bot's name
	userID       string
	botID        string
}

// whoAmI asks who the token is. The answer of an earlier call will do: a token does not change hands.
func (p *Provider) whoAmI(ctx context.Context) (me identity, res delivery.Result, ok bool) {
	if known := p.me.Load(); known != nil {
		return *known, res, true
	}
	me, _, res, ok = p.authTest(ctx)
	return me, res, ok
}

// authTest asks who the token is, and what it may do.
func (p *Provider) authTest(ctx context.Context) (me identity, rec wire.Record, res delivery.Result, ok bool) {
	rec = p.ask(ctx, "auth.test", url.Values{})
	res, a, ok := judge(rec, opAuth, "")
	if !ok {
		return me, rec, res, false
	}
	me = identity{
		team: text(a.top["team"]), teamID: text(a.top["team_id"]),
		user: text(a.top["user"]), userID: text(a.top["user_id"]), botID: text(a.top["bot_id"]),
	}
	if me.userID == "" && me.botID == "" {
		return me, rec, rec.Doubt("no_identity", "Slack answered ok without saying whose the token is"), false
	}
	p.me.Store(&me)
	return me, rec, res, true
}

// scopes are what the token may do, as Slack says with every answer. False: it does not say.
func scopes(rec wire.Record) (map[string]bool, bool) {
	if _, ok := rec.Header["X-Oauth-Scopes"]; !ok {
		return nil, false
	}
	out := map[string]bool{}
	for s := range strings.SplitSeq(rec.Header.Get("X-Oauth-Scopes"), ",") {
		if s = strings.TrimSpace(s); s != "" {
			out[s] = true
		}
	}
	return out, true
}

// granted says that one of the scopes in needed, a list as Slack writes it, is there. The scopes of old apps, such as
// chat:write:bot, are part of the new ones.
func granted(has map[string]bool, needed string) bool {
	for s := range strings.SplitSeq(needed, ",") {
		s = strings.TrimSpace(s)
		short := strings.TrimSuffix(strings.TrimSuffix(s, ":bot"), ":user")
		if has[s] || has[short] {
			return true
		}
	}
	return false
}

// isPerson says that an address is a user, not a conversation.
func isPerson(address string) bool {
	return len(address) > 1 && (address[0] == 'U' || address[0] == 'W')
}

// openDirect finds the conversation with a person. Asking again finds the same one.
func (p *Provider) openDirect(ctx context.Context, user string) (channel string, res delivery.Result, ok bool) {
	rec := p.ask(ctx, "conversations.open", url.Values{"users": {user}})
	res, a, ok := judge(rec, opOpen, user)
	if !ok {
		return "", res, false
	}
	var c struct {
		ID string `json:"id"`
	}
	if json.Unmarshal(a.top["channel"], &c) != nil || c.ID == "" {
		return "", rec.Doubt("no_channel", "Slack answered ok without saying which conversation it opened"), false
	}
	return c.ID, res, true
}
