package telegram

import (
	"errors"
	"net/http"
	"testing"
)

func TestVerifySecret(t *testing.T) {
	t.Parallel()
	h := http.Header{}
	if err := VerifySecret(h, ""); !errors.Is(err, ErrSecret) {
		t.Errorf("no secret at all: %v", err)
	}
	h.Set("X-Telegram-Bot-Api-Secret-Token", "right")
	for secret, want := range map[string]error{"right": nil, "wrong": ErrSecret, "": ErrSecret, "right ": ErrSecret} {
		if err := VerifySecret(h, secret); !errors.Is(err, want) {
			t.Errorf("%q: %v", secret, err)
		}
	}
}

func TestParseUpdate(t *testing.T) {
	t.Parallel()
	got, err := ParseUpdate([]byte(`{"update_id":7,"callback_query":{"id":"99","from":{"id":42,"is_bot":false,"first_name":"Ana","username":"ana_t"},
		"message":{"message_id":55,"chat":{"id":-1001234567890,"type":"supergroup"},"date":1},"chat_instance":"x","data":"ack:0198c0de:1"}}`))
	want := Press{UpdateID: 7, CallbackID: "99", UserID: 42, Username: "ana_t", FirstName: "Ana", ChatID: -1001234567890, MessageID: 55, Data: "ack:0198c0de:1", Action: "ack", Value: "0198c0de:1"}
	if err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	for name, c := range map[string]struct {
		body    string
		noPress bool
	}{
		"message": {`{"update_id":8,"message":{"text":"/start"}}`, true},
		"no data": {`{"update_id":8,"callback_query":{"id":"1","from":{"id":1}}}`, true},
		"no user": {`{"update_id":8,"callback_query":{"id":"1","data":"ack:1"}}`, false},
		"no JSON": {`hello`, false},
	} {
		p, err := ParseUpdate([]byte(c.body))
		if err == nil || errors.Is(err, ErrNoPress) != c.noPress {
			t.Errorf("%s: %v", name, err)
		}
		if c.noPress && p.UpdateID != 8 {
			t.Errorf("%s: the update's id is lost", name)
		}
	}
}
