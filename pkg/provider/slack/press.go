package slack

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/provider"
)

// MaxSkew is how far a callback's timestamp may be from now.
const MaxSkew = 5 * time.Minute

// The ways in which a callback can be refused.
var (
	ErrSignature = errors.New("the signature is missing or does not match: check signing_secret in the file")
	ErrStale     = errors.New("the timestamp is missing or more than five minutes off: a replay, or a wrong clock")
	ErrNoPress   = errors.New("the callback is no press of a button")
)

// VerifySignature checks that Slack signed the callback: over the raw body, as it came, and no older than MaxSkew.
// It returns ErrStale or ErrSignature. A notifier without a signing secret accepts nothing.
func VerifySignature(secret string, header http.Header, body []byte, now time.Time) error {
	stamp := header.Get("X-Slack-Request-Timestamp")
	at, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil {
		return ErrStale
	}
	if skew := now.Sub(time.Unix(at, 0)); skew > MaxSkew || skew < -MaxSkew {
		return ErrStale
	}
	got, err := hex.DecodeString(strings.TrimPrefix(header.Get("X-Slack-Signature"), "v0="))
	if err != nil || secret == "" {
		return ErrSignature
	}
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte("v0:" + stamp + ":")) // a hash never fails
	mac.Write(body)
	if !hmac.Equal(got, mac.Sum(nil)) {
		return ErrSignature
	}
	return nil
}

// Press is a press of a button, as the callback tells it.
type Press struct {
	Action      string // the button's action id
	Value       string // the button's value
	UserID      string
	UserName    string
	TeamID      string
	Channel     string
	MessageTS   string
	ActionTS    string // with MessageTS, Action and UserID it tells one press from another
	ResponseURL string // where Whisper answers
	TriggerID   string
}

// ParseInteraction reads the body of an interactivity callback. The payload is taken from the body only: the query is
// not signed. It returns ErrNoPress for interactions that are not the press of a button.
func ParseInteraction(body []byte) (Press, error) {
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return Press{}, fmt.Errorf("the callback's body is no form: %w", err)
	}
	if !form.Has("payload") {
		return Press{}, errors.New("the callback's body has no field payload")
	}
	return parsePayload([]byte(form.Get("payload")))
}

// parsePayload reads the payload of an interaction, however it comes.
func parsePayload(body []byte) (Press, error) {
	var p struct {
		Type string `json:"type"`
		User struct {
			ID       string `json:"id"`
			Name     string `json:"name"`
			Username string `json:"username"`
		} `json:"user"`
		Team    struct{ ID string } `json:"team"`
		Channel struct{ ID string } `json:"channel"`
		Message struct {
			TS string `json:"ts"`
		} `json:"message"`
		Container struct {
			MessageTS string `json:"message_ts"`
			ChannelID string `json:"channel_id"`
		} `json:"container"`
		Actions []struct {
			Type     string `json:"type"`
			ActionID string `json:"action_id"`
			Value    string `json:"value"`
			ActionTS string `json:"action_ts"`
		} `json:"actions"`
		ResponseURL string `json:"response_url"`
		TriggerID   string `json:"trigger_id"`
	}
	if err := json.Unmarshal(body, &p); err != nil {
		return Press{}, fmt.Errorf("the callback's payload is not what Slack documents: %w", err)
	}
	if p.Type != "block_actions" || len(p.Actions) == 0 || p.Actions[0].ActionID == "" {
		return Press{}, fmt.Errorf("%w: it is of type %q", ErrNoPress, p.Type)
	}
	if p.User.ID == "" {
		return Press{}, errors.New("the callback does not say who pressed")
	}
	press := Press{
		Action: p.Actions[0].ActionID, Value: unescaper.Replace(p.Actions[0].Value), ActionTS: p.Actions[0].ActionTS,
		UserID: p.User.ID, UserName: p.User.Name, TeamID: p.Team.ID,
		Channel: p.Channel.ID, MessageTS: p.Message.TS, ResponseURL: p.ResponseURL, TriggerID: p.TriggerID,
	}
	if press.UserName == "" {
		press.UserName = p.User.Username
	}
	if press.Channel == "" {
		press.Channel = p.Container.ChannelID
	}
	if press.MessageTS == "" {
		press.MessageTS = p.Container.MessageTS
	}
	return press, nil
}

// Said is the press in the words of all chats.
func (p Press) Said() provider.Said {
	s := provider.Said{
		Key:    "slack:" + p.Channel + ":" + p.MessageTS + ":" + p.Action + ":" + p.ActionTS + ":" + p.UserID,
		Action: p.Action, Value: p.Value, Account: p.UserID, Name: p.UserName, To: p.ResponseURL,
	}
	if s.To == "" {
		s.To = EphemeralTo(p.Channel, p.UserID)
	}
	return s
}

// ParseCommand reads the body of a slash command's callback. What was written after "/tocsin" begins with the command.
func ParseCommand(body []byte) (provider.Said, error) {
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return provider.Said{}, fmt.Errorf("the callback's body is no form: %w", err)
	}
	return command(form.Get)
}

// command is a slash command by its fields.
func command(get func(string) string) (provider.Said, error) {
	if get("command") == "" || get("user_id") == "" || get("trigger_id") == "" {
		return provider.Said{}, errors.New("the callback does not say which command was written, or by whom")
	}
	word, text := provider.FirstWord(get("text"))
	s := provider.Said{
		Key: "slack:command:" + get("trigger_id"), Command: strings.ToLower(word), Text: strings.TrimSpace(unescaper.Replace(text)),
		Account: get("user_id"), Name: get("user_name"), To: get("response_url"),
		Alone: true, // only they see the command and the answer, wherever it was written
	}
	if s.Command == "" {
		s.Command = "help"
	}
	if s.To == "" {
		s.To = EphemeralTo(get("channel_id"), get("user_id"))
	}
	return s, nil
}

// unescaper undoes what Slack does to a value on its way through a message.
var unescaper = strings.NewReplacer("&lt;", "<", "&gt;", ">", "&amp;", "&")
