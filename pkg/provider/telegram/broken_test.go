package telegram_test

import (
	"testing"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
	"github.com/tocsin-oncall/tocsin/pkg/provider/chattest"
	"github.com/tocsin-oncall/tocsin/pkg/provider/telegram/telegramtest"
)

// The second of two equal edits is refused as "not modified". When that answer breaks off nobody can read it: it is
// unknown, and no fault of the address, or the card would stay as it is for good.
func TestRefusalThatBreaksOffIsUnknown(t *testing.T) {
	t.Parallel()
	s, p := start(t, telegramtest.Options{})
	made := p.Do(t.Context(), provider.Call{Operation: delivery.OpCreate, Address: "-1001000000001", Key: "key-1", Message: openCard()})
	edit := provider.Call{Operation: delivery.OpEdit, Key: "key-1", Reference: made.Reference, Message: openCard()}
	s.MustFault(chattest.Fault{Kind: chattest.Cut, Count: 1})
	if res := p.Do(t.Context(), edit); res.Outcome != delivery.OutcomeUnknown || res.Fault != delivery.FaultNone || res.Reason != "reset" || res.HTTPStatus != 400 {
		t.Errorf("a refusal that broke off: %+v", res)
	}
	if res := p.Do(t.Context(), edit); res.Outcome != delivery.OutcomeSent {
		t.Errorf("the same read whole: %+v", res)
	}
}
