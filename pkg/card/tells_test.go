package card_test

import (
	"testing"

	"github.com/tocsin-oncall/tocsin/pkg/card"
)

func TestAnEscalationTellsTheChannelsItNames(t *testing.T) {
	t.Parallel()
	e := card.Entry{Type: card.EntryNotified, Text: card.NotifiedText([]string{"ops-slack", "ops"})}
	for name, want := range map[string]bool{"ops-slack": true, "ops": true, "ops-sla": false, "slack": false, "": false} {
		if got := card.Tells(e, name); got != want {
			t.Errorf("%q is told: %t, not %t", name, got, want)
		}
	}
	// Words of somebody else that look like ours are no order to shout.
	if card.Tells(card.Entry{Type: card.EntryAcknowledged, Text: e.Text}, "ops") {
		t.Error("an acknowledgement told a channel")
	}
}
