package api

import "time"

// Notifier is a way out of the file, and whether messages go out through it at this moment.
type Notifier struct {
	Name    string   `json:"name"`
	Type    string   `json:"type" doc:"slack, telegram, webhook, log."`
	Direct  bool     `json:"direct" doc:"It sends to people, not to a place of its own."`
	Off     bool     `json:"off"`
	Account string   `json:"account" doc:"A name for its credentials that tells nothing of them: notifiers with the same ones share pace, pauses and breaker."`
	State   string   `json:"state" doc:"ok; paused: some destinations rest; broken: the credentials are refused; off."`
	Breaker *Breaker `json:"breaker,omitempty" doc:"Only while it is open."`
	Pauses  []Pause  `json:"pauses" doc:"Destinations that rest."`
	Waiting int      `json:"waiting" doc:"Its deliveries that wait for a worker, counted up to a hundred thousand of all."`
}

// States of notifiers.
const (
	NotifierOK     = "ok"
	NotifierPaused = "paused"
	NotifierBroken = "broken"
	NotifierOff    = "off"
)

// Breaker is open while a provider refuses an account's credentials: nothing is sent with them, and a question without any
// effect is asked now and then.
type Breaker struct {
	Code        string     `json:"code" doc:"The provider's own."`
	Reason      string     `json:"reason"`
	Sentence    string     `json:"sentence"`
	Since       time.Time  `json:"since"`
	NextProbeAt *time.Time `json:"next_probe_at,omitempty"`
}

// Pause is a destination that rests until an instant, since it, or the provider, asked for it.
type Pause struct {
	Destination string    `json:"destination" doc:"As attempts name it."`
	Reason      string    `json:"reason"`
	Sentence    string    `json:"sentence"`
	Until       time.Time `json:"until"`
}

// Trial is the body of POST /v1/notifiers/{name}/test. It may be left out.
type Trial struct {
	To string `json:"to,omitempty" maxLength:"300" doc:"Only for a notifier that sends to people: user:ID, schedule:ID or layer:ID/NAME." example:"user:ana"`
}

// Tried is the answer to POST /v1/notifiers/{name}/test.
type Tried struct {
	DeliveryID string `json:"delivery_id" doc:"It goes the way of every delivery: ask for it to see what became of it."`
}
