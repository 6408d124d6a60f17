package slack

import (
	"context"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
)

const (
	missingScope  = "missing_scope"
	unknownMethod = "unknown_method"
)

// Probe asks auth.test, which has no effect. Its ok mends only the faults with which it would be refused itself; of a missing
// scope the list of scopes tells that comes with the answer.
func (p *Provider) Probe(ctx context.Context, code string) delivery.Result {
	if p.token == "" {
		return delivery.Result{Outcome: delivery.OutcomeUnknown, Evidence: delivery.NotCalled, Reason: "slack:no_token"}
	}
	_, rec, res, ok := p.authTest(ctx)
	switch {
	case !ok && res.Code == unknownMethod: // a server that only speaks like Slack
		return rec.Doubt("not_proven", "the server does not know auth.test")
	case !ok:
		return res
	}
	r, listed := classify(opPost, code)
	if code == missingScope {
		needed := "chat:write"
		if n := p.needed.Load(); n != nil && *n != "" {
			needed = *n
		}
		has, told := scopes(rec)
		switch {
		case !told:
		case granted(has, needed):
			res.Outcome = delivery.OutcomeSent
			return rec.Clean(res)
		default:
			return rec.Clean(r.apply(res, opPost, code, "", needed))
		}
	}
	if listed && r.tested {
		res.Outcome = delivery.OutcomeSent
		return rec.Clean(res)
	}
	return rec.Doubt("not_proven", "the token is valid, which does not show whether "+code+" is mended")
}
