package chattest

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Effect is what a request did to the chat.
type Effect string

// The effects. None means that nothing was made or changed, whatever the answer said.
const (
	None    Effect = ""
	Created Effect = "created"
	Changed Effect = "changed"
	Deleted Effect = "deleted"
)

// Request is one request as it was received and what became of it. The effect and the answer are noted separately:
// with a fault a request may have an effect and no answer, or an answer that denies the effect.
type Request struct {
	Sequence int       `json:"sequence"` // from 1, in order of arrival
	At       time.Time `json:"at"`
	Method   string    `json:"method"` // API method as the provider spells it; "webhook", "response_url", "(unknown)"
	HTTP     string    `json:"http"`   // HTTP method
	Path     string    `json:"path"`
	Body     string    `json:"body"` // raw, as received

	Params  map[string]string `json:"params"`
	Channel string            `json:"channel,omitempty"` // as sent: channel, user or chat id
	TS      string            `json:"ts,omitempty"`      // message that the request names: Slack ts, Telegram message_id
	Text    string            `json:"text,omitempty"`
	Key     string            `json:"effect_key,omitempty"`

	Effect Effect `json:"effect,omitempty"`
	Object string `json:"object,omitempty"` // "channel/ts" or "chat/message_id" of what was made or changed

	Fault   Kind `json:"fault,omitempty"`
	FaultID int  `json:"fault_id,omitempty"`

	Done     bool      `json:"done"` // the chat has finished with it; false while it hangs
	Finished time.Time `json:"finished,omitzero"`
	Status   int       `json:"status"`         // HTTP status sent; 0 = no answer left
	Answer   string    `json:"answer"`         // body that was sent, or was meant to be sent where a fault cut or dropped it
	Left     bool      `json:"left,omitempty"` // the client was gone before the answer
}

// OK says that a full answer with effect or data left, without any fault.
func (r Request) OK() bool { return r.Done && r.Fault == "" && r.Status == http.StatusOK }

// Filter chooses requests.
type Filter func(Request) bool

// ByMethod chooses requests of one API method; case does not matter.
func ByMethod(method string) Filter {
	return func(r Request) bool { return strings.EqualFold(r.Method, method) }
}

// ByChannel chooses requests that name one channel or chat.
func ByChannel(channel string) Filter { return func(r Request) bool { return r.Channel == channel } }

// ByKey chooses requests with one effect key.
func ByKey(key string) Filter { return func(r Request) bool { return r.Key == key } }

// WithEffect chooses requests that made or changed something.
func WithEffect() Filter { return func(r Request) bool { return r.Effect != None } }

// Ledger is a copy of every request received so far that passes all filters, oldest first. It is safe to keep.
func (c *Core) Ledger(filters ...Filter) []Request {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]Request, 0, len(c.ledger))
	for _, r := range c.ledger {
		if !slices.ContainsFunc(filters, func(f Filter) bool { return !f(*r) }) {
			out = append(out, *r)
		}
	}
	return out
}

// Requests counts what was received since the start, also what the ledger no longer keeps.
func (c *Core) Requests() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dropped + len(c.ledger)
}

// Recent is the newest n requests, newest first, for the page.
func (c *Core) Recent(n int) []Request {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]Request, 0, n)
	for i := len(c.ledger) - 1; i >= 0 && len(out) < n; i-- {
		out = append(out, *c.ledger[i])
	}
	return out
}

// record appends a request. The lock is held.
func (c *Core) record(r *Request) {
	r.Sequence = c.dropped + len(c.ledger) + 1
	r.At = c.now()
	if len(c.ledger) >= ledgerKept {
		half := ledgerKept / 2
		c.ledger = append([]*Request(nil), c.ledger[half:]...)
		c.dropped += half
	}
	c.ledger = append(c.ledger, r)
}

// serveLedger writes the ledger as JSON. Each value in secrets is masked: the raw ledger is for tests in the same
// process, the JSON may be pasted into a report.
func (c *Core) serveLedger(w http.ResponseWriter, r *http.Request, secrets []string) {
	var filters []Filter
	q := r.URL.Query()
	if m := q.Get("method"); m != "" {
		filters = append(filters, ByMethod(m))
	}
	if ch := q.Get("channel"); ch != "" {
		filters = append(filters, ByChannel(ch))
	}
	if k := q.Get("effect_key"); k != "" {
		filters = append(filters, ByKey(k))
	}
	if q.Get("effect") != "" {
		filters = append(filters, WithEffect())
	}
	body, err := json.MarshalIndent(map[string]any{"items": c.Ledger(filters...)}, "", "  ")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(Mask(string(body), secrets...)))
}

// Mask replaces each secret in s by "(token)".
func Mask(s string, secrets ...string) string {
	for _, secret := range secrets {
		if secret != "" {
			s = strings.ReplaceAll(s, secret, "(token)")
		}
	}
	return s
}
