package telegram

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	tgbotapi "github.com/go-telegram-bot-api/telegram-bot-api/v5"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
)

const (
	pollMost  = 50               // updates of one answer
	pollLong  = 20 * time.Second // at most: an answer that comes later would be cut by the bound of every call
	pollSpare = 2 * time.Second  // that the answer has to arrive in, once the wait is over
)

// Polled is what a poll has brought.
type Polled struct {
	Said    []provider.Said
	Next    int64    // the update to ask from next: asking so confirms all before it
	Skipped []string // why updates could not be read
}

// PollError says why a poll brought nothing.
type PollError struct {
	Webhook bool // a webhook is set, to which Telegram gives all updates
	Other   bool // another program polls with the same token
	Text    string
	Rest    time.Duration // Telegram asks for so much
}

func (e *PollError) Error() string { return e.Text }

// Poll waits for what people do, from an update on. An empty answer after some time is normal.
func (p *Provider) Poll(ctx context.Context, from int64) (Polled, error) {
	wait := max(time.Second, min(pollLong, p.client.Timeout()-pollSpare))
	rec, res := p.look(ctx, "getUpdates", tgbotapi.Params{
		"offset": strconv.FormatInt(from, 10), "limit": strconv.Itoa(pollMost), "timeout": strconv.Itoa(int(wait / time.Second)),
		"allowed_updates": `["callback_query","message"]`,
	})
	if res.Outcome != delivery.OutcomeSent {
		e := &PollError{Text: "telegram: " + res.Error, Rest: res.RetryAfter}
		switch { // what is said of a message that may have arrived is not about a question
		case res.Fault == delivery.FaultThrottled:
			e.Text = fmt.Sprintf("telegram: it wants to be asked less often, and is asked again after %s", res.RetryAfter.Round(time.Second))
		case rec.Status >= http.StatusInternalServerError:
			e.Text = fmt.Sprintf("telegram: the server answered %d", rec.Status)
		case res.Fault == delivery.FaultAccount && res.Sentence != "":
			e.Text += ": " + res.Sentence
		case rec.Status == http.StatusConflict:
			e.Webhook = strings.Contains(strings.ToLower(string(rec.Body)), "webhook is active")
			e.Other = !e.Webhook
			e.Text = "telegram: another program asks for updates with this bot's token: end it, or give it a bot of its own"
			if e.Webhook {
				e.Text = "telegram: a webhook is set for this bot, and Telegram gives updates in one way only: delete it (the handbook's page on Telegram, Polling), or use webhook_secret instead of poll"
			}
		}
		return Polled{}, e
	}
	var updates []json.RawMessage
	var top struct{ Result json.RawMessage }
	if err := errors.Join(json.Unmarshal(rec.Body, &top), json.Unmarshal(top.Result, &updates)); err != nil {
		return Polled{}, &PollError{Text: "telegram: the answer to getUpdates is no list of updates"}
	}
	got := Polled{Next: from}
	for _, raw := range updates {
		var u struct {
			UpdateID int64 `json:"update_id"`
		}
		if err := json.Unmarshal(raw, &u); err != nil || u.UpdateID == 0 {
			return Polled{}, &PollError{Text: "telegram: an update has no number"}
		}
		got.Next = max(got.Next, u.UpdateID+1)
		said, err := Heard(p.token, raw)
		switch {
		case err == nil:
			got.Said = append(got.Said, said)
		case !errors.Is(err, ErrNoPress):
			got.Skipped = append(got.Skipped, rec.Text(fmt.Sprintf("update %d: %s", u.UpdateID, err)))
		}
	}
	return got, nil
}
