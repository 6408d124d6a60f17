package intake

import (
	"encoding/json"
	"time"
)

// instant is a point in time of a message. What is absent, null or "" is the zero time. What is no instant does not make
// the message unreadable: [instant.read] says so, where it is known which field it is.
type instant struct {
	at    time.Time
	wrong bool
}

func (i *instant) UnmarshalJSON(b []byte) error {
	var s *string
	err := json.Unmarshal(b, &s)
	*i = instant{wrong: err != nil}
	if err == nil && s != nil && *s != "" {
		i.at, err = time.Parse(time.RFC3339, *s)
		i.wrong = err != nil
	}
	return nil
}

// read gives the instant of a field.
func (i instant) read(field string) (time.Time, *InputError) {
	if i.wrong {
		return time.Time{}, &InputError{field, "it is no instant, RFC 3339 such as 2026-01-05T09:00:00Z"}
	}
	return i.at, nil
}
