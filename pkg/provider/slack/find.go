package slack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
)

// Find asks for the member with an e-mail address. Deactivated members and apps are nobody, and so is everybody where the app lacks the scope.
func (p *Provider) Find(ctx context.Context, email string) (string, error) {
	if p.hook != "" || email == "" {
		return "", nil
	}
	res, a, ok := judge(p.ask(ctx, "users.lookupByEmail", url.Values{"email": {email}}), opPerson, email)
	switch {
	case !ok && (res.Fault == delivery.FaultDestination || res.Code == missingScope):
		return "", nil // nobody has it, or the app may not ask: accounts are linked one by one
	case !ok:
		return "", errors.New("slack: " + orElse(res.Error, res.Reason))
	}
	var u struct {
		ID      string `json:"id"`
		Deleted bool   `json:"deleted"`
		Bot     bool   `json:"is_bot"`
	}
	if err := json.Unmarshal(a.top["user"], &u); err != nil || u.ID == "" {
		return "", fmt.Errorf("slack: it answered ok without saying whose the address is")
	}
	if u.Deleted || u.Bot {
		return "", nil
	}
	return u.ID, nil
}
