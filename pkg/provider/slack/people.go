package slack

import (
	"context"
	"encoding/json"
	"net/url"
	"strings"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
)

// Reach looks whether a person's account is there and active and whether a conversation with them can be opened. A scope that
// the app lacks leaves that part out: a page may go out without it.
func (p *Provider) Reach(ctx context.Context, address string) provider.Reach {
	if p.token == "" || !isPerson(address) {
		return provider.Reach{} // a webhook or a channel: nothing is known of a person
	}
	ctx, cancel := context.WithTimeout(ctx, p.notifier.Timeout)
	defer cancel()
	rec := p.ask(ctx, "users.info", url.Values{"user": {address}})
	res, a, ok := judge(rec, opPerson, address)
	if ok {
		var u struct {
			Deleted bool `json:"deleted"`
			Bot     bool `json:"is_bot"`
		}
		_ = json.Unmarshal(a.top["user"], &u) // without it the conversation tells
		switch {
		case u.Deleted:
			return closed(rec.Clean, "user_disabled", address)
		case u.Bot:
			return closed(rec.Clean, "user_is_bot", address)
		}
	} else if res.Code != missingScope {
		return provider.ReachOf(res)
	}
	if _, res, ok = p.openDirect(ctx, address); ok || res.Code == missingScope {
		return provider.Reach{}
	}
	return provider.ReachOf(res)
}

// closed is a way that Slack would refuse with a code.
func closed(clean func(delivery.Result) delivery.Result, code, address string) provider.Reach {
	r, _ := classify(opOpen, code)
	return provider.ReachOf(clean(r.apply(delivery.Result{Evidence: delivery.Answered}, opOpen, code, address, "")))
}

// SetGroup makes people the members of a user group.
func (p *Provider) SetGroup(ctx context.Context, group string, members []string) delivery.Result {
	ctx, cancel := context.WithTimeout(ctx, p.notifier.Timeout)
	defer cancel()
	rec := p.ask(ctx, "usergroups.users.update", url.Values{"usergroup": {group}, "users": {strings.Join(members, ",")}})
	res, _, ok := judge(rec, opGroup, group)
	if ok {
		res.Outcome = delivery.OutcomeSent
	}
	return rec.Clean(res)
}
