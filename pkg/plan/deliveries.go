package plan

import (
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
)

// Delivery is a delivery to be made. Delay counts from its creation; Wait is a page's longest wait for the card.
type Delivery struct {
	ID       uuid.UUID // zero: whoever writes it makes one
	Kind     delivery.Kind
	Notifier string
	Target   string
	Delay    time.Duration
	Wait     time.Duration
	Lifetime time.Duration // 0: none of its own
	Reason   string        // why it is there, where that is not plain
	Dead     *Dead         // settled as it is made
}

// Dead says why a delivery is settled as it is made.
type Dead struct {
	State    delivery.State
	Reason   string
	Sentence string
}

// Change is what happened to an incident.
type Change string

// The changes that ways out without cards are told of.
const (
	Opened       Change = "opened"
	Acknowledged Change = "acknowledged"
	Resolved     Change = "resolved"
)

// noticeLifetime is how long a notice about an incident is worth sending. That of the kind is for notices about shifts.
const noticeLifetime = 24 * time.Hour

// ForNotifier is what one notifier gets for a change of an incident: the card with its thread once, when the notifier
// joins; a notice per opened and resolved; an event per change. Nil: nothing. A thread directly follows its card.
func ForNotifier(f *config.File, notifier string, c Change) []Delivery {
	n, ok := f.Notifiers[notifier]
	if !ok {
		return nil
	}
	var out []Delivery
	switch {
	case n.Cards() && c == Opened:
		out = []Delivery{
			{Kind: delivery.Card, Notifier: notifier, Target: TargetChannel, Lifetime: f.Kinds[delivery.Card].Lifetime},
			{Kind: delivery.Thread, Notifier: notifier, Target: TargetChannel, Lifetime: f.Kinds[delivery.Thread].Lifetime},
		}
	case n.Cards():
		return nil // the card's revision tells it
	case n.Type == "slack" && n.WebhookURL != "" && c != Acknowledged:
		out = []Delivery{{Kind: delivery.Notice, Notifier: notifier, Target: TargetURL, Lifetime: max(noticeLifetime, f.Kinds[delivery.Notice].Lifetime)}}
	case n.Type == "webhook" && !n.Hears(config.HearsIncident):
		return nil // the file's check refuses it in a route
	case n.Type == "webhook":
		out = []Delivery{{Kind: delivery.Event, Notifier: notifier, Target: TargetURL, Lifetime: f.Kinds[delivery.Event].Lifetime}}
	case n.Type == "log":
		out = []Delivery{{Kind: delivery.Event, Notifier: notifier, Target: TargetLog, Lifetime: f.Kinds[delivery.Event].Lifetime}}
	case n.Direct() && c == Opened:
		// The file's check and intake refuse it; a reload between the two must still leave a trace.
		_, err := place(n, TargetChannel)
		out = []Delivery{{Kind: delivery.Notice, Notifier: notifier, Target: TargetChannel, Dead: dead(err)}}
	}
	if n.Off {
		for i := range out {
			if out[i].Dead = dead(off(notifier)); out[i].Kind == delivery.Thread {
				// Not a death of its own: sending its card again takes it up.
				out[i].Dead = &Dead{State: delivery.Canceled, Reason: "card_dead", Sentence: "Its card could not be sent."}
			}
		}
	}
	return out
}

// dead turns an error of Resolve into the death of a delivery.
func dead(err error) *Dead {
	var u *Unreachable
	if !errors.As(err, &u) {
		return nil
	}
	return &Dead{State: delivery.Unreachable, Reason: u.Reason, Sentence: u.Sentence}
}
