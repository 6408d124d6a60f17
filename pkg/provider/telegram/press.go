package telegram

import (
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/tocsin-oncall/tocsin/pkg/provider"
)

// SecretHeader carries the secret that was given to setWebhook.
const SecretHeader = "X-Telegram-Bot-Api-Secret-Token"

// The ways in which a callback can be refused.
var (
	ErrSecret  = errors.New("the secret token is missing or does not match: check webhook_secret in the file")
	ErrNoPress = errors.New("the update is no press of a button")
)

// VerifySecret checks, in constant time, that the callback carries the notifier's webhook secret. A notifier without
// one accepts nothing.
func VerifySecret(header http.Header, secret string) error {
	got := header.Get(SecretHeader)
	if secret == "" || subtle.ConstantTimeCompare([]byte(got), []byte(secret)) != 1 {
		return ErrSecret
	}
	return nil
}

// Press is a press of a button, as the update tells it.
type Press struct {
	UpdateID   int64  // the same on every redelivery
	CallbackID string // what Whisper answers
	UserID     int64
	Username   string // without "@"; may be empty
	FirstName  string
	ChatID     int64
	MessageID  int
	Data       string // "ack:<incident>"
	Action     string // what stands before the colon
	Value      string // what stands after it
}

// ParseUpdate reads the body of a webhook callback, or one update of getUpdates. It returns ErrNoPress for updates of
// any other kind.
func ParseUpdate(body []byte) (Press, error) {
	var u struct {
		UpdateID int64 `json:"update_id"`
		Query    *struct {
			ID   string `json:"id"`
			From struct {
				ID        int64  `json:"id"`
				Username  string `json:"username"`
				FirstName string `json:"first_name"`
			} `json:"from"`
			Message struct {
				MessageID int `json:"message_id"`
				Chat      struct {
					ID int64 `json:"id"`
				} `json:"chat"`
			} `json:"message"`
			Data string `json:"data"`
		} `json:"callback_query"`
	}
	if err := json.Unmarshal(body, &u); err != nil {
		return Press{}, fmt.Errorf("the update is not what Telegram documents: %w", err)
	}
	if u.Query == nil || u.Query.Data == "" {
		return Press{UpdateID: u.UpdateID}, ErrNoPress
	}
	if u.Query.ID == "" || u.Query.From.ID == 0 {
		return Press{}, errors.New("the update does not say who pressed")
	}
	action, value, _ := strings.Cut(u.Query.Data, ":")
	return Press{
		UpdateID: u.UpdateID, CallbackID: u.Query.ID,
		UserID: u.Query.From.ID, Username: u.Query.From.Username, FirstName: u.Query.From.FirstName,
		ChatID: u.Query.Message.Chat.ID, MessageID: u.Query.Message.MessageID,
		Data: u.Query.Data, Action: action, Value: value,
	}, nil
}

// Heard reads an update of a bot: the press of a button, or a command. It returns ErrNoPress for everything else. The bot's number
// is part of the key, since two bots number their updates on their own, and the notifier's name is not: several may be one bot.
func Heard(token string, body []byte) (provider.Said, error) {
	bot, _, _ := strings.Cut(token, ":")
	key := func(id int64) string { return "telegram:" + bot + ":" + strconv.FormatInt(id, 10) }
	p, err := ParseUpdate(body)
	if err == nil {
		return provider.Said{
			Key: key(p.UpdateID), Action: p.Action, Value: p.Value, Account: strconv.FormatInt(p.UserID, 10), Name: called(p.Username, p.FirstName), To: p.CallbackID,
		}, nil
	}
	if !errors.Is(err, ErrNoPress) {
		return provider.Said{}, err
	}
	var u struct {
		UpdateID int64 `json:"update_id"`
		Message  struct {
			MessageID int `json:"message_id"`
			From      struct {
				ID        int64  `json:"id"`
				Bot       bool   `json:"is_bot"`
				Username  string `json:"username"`
				FirstName string `json:"first_name"`
			} `json:"from"`
			Chat struct {
				ID   int64  `json:"id"`
				Type string `json:"type"`
			} `json:"chat"`
			Text string `json:"text"`
		} `json:"message"`
	}
	if err := json.Unmarshal(body, &u); err != nil {
		return provider.Said{}, fmt.Errorf("the update is not what Telegram documents: %w", err)
	}
	m := u.Message
	written, isCommand := strings.CutPrefix(strings.TrimSpace(m.Text), "/")
	if !isCommand || m.From.ID == 0 || m.From.Bot {
		return provider.Said{}, ErrNoPress
	}
	word, text := provider.FirstWord(written)
	word, _, _ = strings.Cut(word, "@") // in a group: the bot that is meant
	return provider.Said{
		Key: key(u.UpdateID), Command: strings.ToLower(word), Text: text,
		Account: strconv.FormatInt(m.From.ID, 10), Name: called(m.From.Username, m.From.FirstName),
		To: fmt.Sprintf("%s%d/%d", messageTo, m.Chat.ID, m.MessageID), Alone: m.Chat.Type == "private",
	}, nil
}

// called is what people call an account.
func called(username, first string) string {
	if username != "" {
		return "@" + username
	}
	return first
}
