package intake

import (
	"encoding/json"
	"time"
)

// instant is a point in time of a message. What is absent, null or "" is the zero time.
type instant struct{ time.Time }

// timeError is a text that is no instant.
type timeError struct{ text string }

func (e *timeError) Error() string { return e.text + " is no instant" }

func (i *instant) UnmarshalJSON(b []byte) error {
	var s *string
	if err := json.Unmarshal(b, &s); err != nil {
		return &timeError{string(b[:min(len(b), 50)])}
	}
	if s == nil || *s == "" {
		i.Time = time.Time{}
		return nil
	}
	t, err := time.Parse(time.RFC3339, *s)
	if err != nil {
		return &timeError{(*s)[:min(len(*s), 50)]}
	}
	i.Time = t
	return nil
}
