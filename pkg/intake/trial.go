package intake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/card"
	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/message"
	"github.com/tocsin-oncall/tocsin/pkg/plan"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// trialLifetime is how long a trial is worth sending: whoever asked for it waits for it.
const trialLifetime = 10 * time.Minute

// trialText says to whoever finds the message what it is.
const trialText = "Nothing is wrong, and nobody needs to do anything: this message shows that messages arrive here."

// EventTrial is the type of the event that a trial sends to a webhook or a log: that of an examination's, so that a
// receiver has one to pass over.
const EventTrial = "tocsin.test"

// ErrNoNotifier is a trial of a notifier that the file does not have.
var ErrNoNotifier = errors.New("the file has no such notifier")

// ImpossibleError is a trial that would reach nobody. Nothing was made.
type ImpossibleError struct{ Reason, Sentence string }

func (e *ImpossibleError) Error() string { return e.Sentence }

// Trial makes one delivery through a notifier, with a content of its own, that goes the way of every other: it is claimed,
// paced, attempted and recorded as they are, and a dead one is loud. to is user:ID, schedule:ID or layer:ID/NAME for a notifier that
// sends to people, and empty for one with a place of its own. An *InputError means that to does not fit, an
// *ImpossibleError that it would reach nobody.
func (i *Intake) Trial(ctx context.Context, notifier, to string, by Actor) (uuid.UUID, error) {
	f := i.file()
	n, known := f.Notifiers[notifier]
	if !known {
		return uuid.Nil, ErrNoNotifier
	}
	target, err := trialTarget(f, n, to)
	if err != nil {
		return uuid.Nil, err
	}
	id := store.NewID()
	var due time.Time
	err = i.store.InTx(ctx, func(tx *store.Tx) error {
		due = tx.Now()
		stored, err := tx.Accounts(ctx)
		if err != nil {
			return fmt.Errorf("read the linked accounts: %w", err)
		}
		accounts := make([]plan.Account, len(stored))
		for k, a := range stored {
			accounts[k] = plan.Account{Provider: a.Provider, AccountID: a.AccountID, UserID: a.UserID}
		}
		overrides, err := tx.OverridesWithin(ctx, 0)
		if err != nil {
			return err
		}
		// The worker asks this again when it calls; asked here it can be said at once, and no dead delivery is made.
		if _, err := plan.Resolve(f.WithOverrides(overrides), accounts, notifier, target, due); err != nil {
			var u *plan.Unreachable
			if errors.As(err, &u) {
				return &ImpossibleError{Reason: u.Reason, Sentence: strings.TrimRight(strings.TrimSuffix(u.Sentence, "then send again."), " ,;") + "."}
			}
			return err
		}
		kind, body, err := trialContent(n, by, due)
		if err != nil {
			return err
		}
		content := store.NewID()
		if err := tx.PutContent(ctx, store.Content{ID: content, Revision: 1, Body: body}); err != nil {
			return fmt.Errorf("write the content of a test: %w", err)
		}
		if err := tx.AddDeliveries(ctx, store.NewDelivery{ID: id, ContentID: content, Kind: kind, Notifier: notifier, Target: target, Desired: 1, Lifetime: trialLifetime}); err != nil {
			return err
		}
		return tx.Audit(ctx, by.ID, "notifier_test", notifier, to)
	})
	if err != nil {
		return uuid.Nil, err
	}
	i.wake(due)
	return id, nil
}

// trialTarget is what a trial is for.
func trialTarget(f *config.File, n config.Notifier, to string) (string, error) {
	kind, id, _ := strings.Cut(to, ":")
	switch {
	case n.Direct() && to == "":
		return "", &InputError{Field: "to", Message: "this notifier sends to people: say to whom, as user:ID, schedule:ID or layer:ID/NAME"}
	case n.Direct() && (kind != "user" && kind != "schedule" && kind != "layer" || id == ""):
		return "", &InputError{Field: "to", Message: "say user:ID, schedule:ID or layer:ID/NAME"}
	case n.Direct() && kind == "layer":
		of, layer, _ := strings.Cut(id, "/")
		s, _ := f.Schedule(of)
		if _, ok := s.Layer(layer); !ok || strings.Contains(layer, "/") {
			return "", &InputError{Field: "to", Message: fmt.Sprintf("the file has no schedule %s with a layer %q", of, layer)}
		}
		return to, nil
	case n.Direct():
		_, user := f.User(id)
		_, schedule := f.Schedule(id)
		if kind == "user" && !user || kind == "schedule" && !schedule {
			return "", &InputError{Field: "to", Message: "the file has no " + kind + " " + id}
		}
		return to, nil
	case to != "":
		return "", &InputError{Field: "to", Message: "this notifier has a place of its own: leave it out"}
	case n.Type == "webhook" || n.WebhookURL != "":
		return plan.TargetURL, nil
	case n.Type == "log":
		return plan.TargetLog, nil
	}
	return plan.TargetChannel, nil
}

// trialContent is what a trial shows: a notice for a chat, an event for what takes JSON.
func trialContent(n config.Notifier, by Actor, at time.Time) (delivery.Kind, []byte, error) {
	title := fmt.Sprintf("Test of the notifier %s, asked for by %s", n.Name, by.Name)
	kind, content := delivery.Notice, any(card.Snapshot{Title: title, Text: trialText, State: message.Plain})
	if n.Type == "webhook" || n.Type == "log" {
		kind, content = delivery.Event, trialEvent{Type: EventTrial, Timestamp: at.UTC(), Data: trialData{Notifier: n.Name, Title: title, Text: trialText}}
	}
	body, err := json.Marshal(content)
	if err != nil {
		return "", nil, fmt.Errorf("write the content of a test: %w", err)
	}
	return kind, body, nil
}

type trialEvent struct {
	Type      string    `json:"type"`
	Timestamp time.Time `json:"timestamp"`
	Data      trialData `json:"data"`
}

type trialData struct {
	Notifier string `json:"notifier"`
	Title    string `json:"title"`
	Text     string `json:"text"`
}
