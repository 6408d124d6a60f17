package chattest

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Kind is a way in which a chat fails.
type Kind string

// The kinds. "The effect" is the message made or changed; where a kind does not say, Happens decides.
const (
	Refuse  Kind = "refuse"  // nobody listens: connections are refused before a byte can be written. The whole chat
	Reset   Kind = "reset"   // the connection is reset, nothing is answered; no effect unless Happens
	Drop    Kind = "drop"    // the effect happens, then the connection is reset
	Hang    Kind = "hang"    // no answer until the client leaves or the fault is cleared (then the true answer)
	Slow    Kind = "slow"    // the effect happens, the body leaves one byte per Interval
	Limited Kind = "limited" // 429 with RetryAfter
	Error   Kind = "error"   // 5xx: Status, Body; HTML unless JSON
	Code    Kind = "code"    // the provider's own refusal: Slack ok:false with Code, Telegram Status and Code as description
	Revoked Kind = "revoked" // the token is revoked
	Cut     Kind = "cut"     // the effect happens, the body breaks off in the middle
	Answer  Kind = "answer"  // Status, Header and Body exactly as given; no effect unless Happens
)

// Kinds lists every kind in the order of the page.
var Kinds = []Kind{Refuse, Reset, Drop, Hang, Slow, Limited, Error, Code, Revoked, Cut, Answer}

// Fault is one rule. The first rule that fits a request is applied to it. Rules with a probability are shares of one draw for
// each request: of two with 0.1 and 0.2 that fit, the first strikes a tenth of all requests and the second a fifth.
type Fault struct {
	ID          int               `json:"id"`          // given by SetFault
	Kind        Kind              `json:"kind"`        //
	Method      string            `json:"method"`      // API method, case does not matter; "" or "*" = every
	Channel     string            `json:"channel"`     // channel or chat id as the request names it; "" = every
	Probability float64           `json:"probability"` // 0..1, a share of the draw; 0 means 1
	Count       int               `json:"count"`       // how often it strikes; 0 = until cleared
	Happens     bool              `json:"happens"`     // the effect takes place all the same
	Status      int               `json:"status"`      // Error: 500 by default; Code (Telegram): 400; Answer: 200
	Code        string            `json:"code"`        // Code: "channel_not_found"; Telegram: "Bad Request: chat not found"
	RetryAfter  string            `json:"retry_after"` // Limited: the header as it is sent, seconds or an HTTP date; "" = "1", "-" = none
	JSON        bool              `json:"json"`        // Error: the provider's JSON body in place of HTML
	Body        string            `json:"body"`        // Error, Answer: the body itself
	Header      map[string]string `json:"header,omitempty"`
	Interval    Duration          `json:"interval"` // Slow: per byte; 0 means 20 ms
	For         Duration          `json:"for"`      // it clears itself after this time; 0 = until cleared
	Struck      int               `json:"struck"`   // how often it has struck so far
}

// Duration is a time.Duration that JSON writes as text, "20ms".
type Duration time.Duration

// MarshalText writes the duration as Go does.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads a Go duration.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	*d = Duration(v)
	return err
}

// check says what is wrong with a fault.
func (f Fault) check() error {
	switch {
	case !slices.Contains(Kinds, f.Kind):
		return fmt.Errorf("fault: unknown kind %q; one of %v", f.Kind, Kinds)
	case !(f.Probability >= 0 && f.Probability <= 1):
		return fmt.Errorf("fault: probability %v is not between 0 and 1", f.Probability)
	case f.Count < 0:
		return fmt.Errorf("fault: count %d is negative; 0 means until cleared", f.Count)
	case f.Kind == Code && f.Code == "":
		return errors.New("fault: kind code needs a code, such as channel_not_found")
	case f.Status != 0 && (f.Status < 200 || f.Status > 599):
		return fmt.Errorf("fault: status %d is not between 200 and 599", f.Status)
	case f.Interval < 0 || f.For < 0:
		return errors.New("fault: interval and for must not be negative")
	case f.Kind == Refuse && (f.Method != "" && f.Method != "*" || f.Channel != "" || f.Count != 0 ||
		f.Probability != 0 && f.Probability != 1):
		return errors.New("fault: refuse closes the listener, so it is for the whole chat, until cleared or For is over; " +
			"use reset for one method, channel or number of requests")
	}
	return nil
}

// certain says that the rule strikes whatever fits it.
func (f Fault) certain() bool { return f.Probability == 0 || f.Probability == 1 }

// replaces says that a rule takes an older one's place: it is of the same kind, method and channel. Rules that are both left to
// chance stand side by side where they do different things, so that 500 and 503 can be mixed.
func (f Fault) replaces(o *Fault) bool {
	return o.Kind == f.Kind && strings.EqualFold(o.Method, f.Method) && o.Channel == f.Channel &&
		(f.certain() || o.certain() || o.Status == f.Status && o.Happens == f.Happens && o.Code == f.Code)
}

// SetFault adds a rule and returns its id. A rule of the same kind, method and channel is replaced; see replaces.
func (c *Core) SetFault(f Fault) (int, error) {
	if err := f.check(); err != nil {
		return 0, err
	}
	if f.Method == "*" {
		f.Method = ""
	}
	c.mu.Lock()
	if f.Kind == Refuse && c.gate == nil {
		c.mu.Unlock()
		return 0, errors.New("fault: refuse needs a listener of the chat's own (Start or Listen); this handler is mounted in another server")
	}
	c.faultID++
	f.ID, f.Struck = c.faultID, 0
	c.faults = slices.DeleteFunc(c.faults, f.replaces)
	c.faults = append(c.faults, &f)
	gate := c.gate
	c.wake()
	c.mu.Unlock()
	if f.For > 0 {
		time.AfterFunc(time.Duration(f.For), func() { c.ClearFault(f.ID) })
	}
	if f.Kind == Refuse {
		return f.ID, gate.refuse()
	}
	return f.ID, nil
}

// MustFault is SetFault for tests: a wrong fault is a mistake in the test, so it panics.
func (c *Core) MustFault(f Fault) int {
	id, err := c.SetFault(f)
	if err != nil {
		panic(err)
	}
	return id
}

// ClearFault removes one rule; requests that hang by it go on. It returns whether there was one.
func (c *Core) ClearFault(id int) bool { return c.clear(func(f *Fault) bool { return f.ID == id }) }

// ClearFaults removes all rules.
func (c *Core) ClearFaults() { c.clear(func(*Fault) bool { return true }) }

func (c *Core) clear(which func(*Fault) bool) bool {
	c.mu.Lock()
	n, admit := len(c.faults), false
	c.faults = slices.DeleteFunc(c.faults, func(f *Fault) bool {
		gone := which(f)
		admit = admit || gone && f.Kind == Refuse
		return gone
	})
	gone := len(c.faults) < n
	gate := c.gate
	c.wake()
	c.mu.Unlock()
	if admit {
		gate.admit()
	}
	return gone
}

// Faults is a copy of the rules that stand, in the order in which they are tried.
func (c *Core) Faults() []Fault {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]Fault, len(c.faults))
	for i, f := range c.faults {
		out[i] = *f
	}
	return out
}

// chance is the next number of a request's stream. Each method and channel has one of its own, so that requests that come in
// another order the next time are struck all the same. The lock is held.
func (c *Core) chance(r *Request) float64 {
	key := strings.ToLower(r.Method) + "\x00" + r.Channel
	rng := c.chances[key]
	if rng == nil {
		h := fnv.New64a()
		_, _ = h.Write([]byte(key)) // a hash never fails
		rng = rand.New(rand.NewPCG(c.seed, h.Sum64()))
		c.chances[key] = rng
	}
	return rng.Float64()
}

// draw picks the rule for a request and counts it down. The lock is held.
func (c *Core) draw(r *Request) *Fault {
	drawn, share := -1.0, 0.0
	for i, f := range c.faults {
		if f.Kind == Refuse || f.Method != "" && !strings.EqualFold(f.Method, r.Method) ||
			f.Channel != "" && f.Channel != r.Channel {
			continue
		}
		if !f.certain() {
			if drawn < 0 {
				drawn = c.chance(r)
			}
			from := share
			if share += f.Probability; drawn < from || drawn >= share {
				continue
			}
		}
		f.Struck++
		hit := *f
		// A hang with a count stays in the table while it holds requests, or nothing could release them.
		if f.Count > 0 && f.Struck >= f.Count && f.Kind != Hang {
			c.faults = slices.Delete(c.faults, i, i+1)
		} else if f.Count > 0 && f.Struck > f.Count {
			f.Struck--
			continue
		}
		return &hit
	}
	return nil
}

// standing says whether a rule is still in the table.
func (c *Core) standing(id int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.faults, func(f *Fault) bool { return f.ID == id })
}

// refuseFor bounds a refusal that is set through the very port that refuses: nobody could clear it there.
const refuseFor = Duration(30 * time.Second)

// serveFaults is the faults over HTTP: GET lists, POST adds (JSON, or the page's form), DELETE clears one or all.
func (c *Core) serveFaults(w http.ResponseWriter, r *http.Request) {
	id, _ := strconv.Atoi(strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/faults"), "/"))
	form := strings.HasPrefix(r.Header.Get("Content-Type"), "application/x-www-form-urlencoded")
	switch {
	case r.Method == http.MethodDelete || r.Method == http.MethodPost && r.FormValue("clear") != "":
		if r.FormValue("clear") != "" {
			id, _ = strconv.Atoi(r.FormValue("clear")) // "all" is 0
		}
		if id != 0 {
			c.ClearFault(id)
		} else {
			c.ClearFaults()
		}
	case r.Method == http.MethodPost:
		f, err := readFault(r, form)
		if f.Kind == Refuse && f.For == 0 && c.throughGate(r) {
			f.For = refuseFor
		}
		if err == nil {
			_, err = c.SetFault(f)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusUnprocessableEntity)
			return
		}
	case r.Method != http.MethodGet:
		w.Header().Set("Allow", "GET, POST, DELETE")
		http.Error(w, "faults: GET lists, POST adds, DELETE clears", http.StatusMethodNotAllowed)
		return
	}
	if form && r.Header.Get("X-Requested-With") == "" {
		http.Redirect(w, r, "/?view=faults", http.StatusSeeOther)
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"items": c.Faults()})
}

func readFault(r *http.Request, form bool) (f Fault, err error) {
	if !form {
		d := json.NewDecoder(http.MaxBytesReader(nil, r.Body, 1<<20))
		d.DisallowUnknownFields()
		if err := d.Decode(&f); err != nil {
			return f, fmt.Errorf("fault: the body is no fault: %w", err)
		}
		return f, nil
	}
	number := func(name string, set func(string) error) {
		if v := strings.TrimSpace(r.FormValue(name)); v != "" && err == nil {
			if e := set(v); e != nil {
				err = fmt.Errorf("fault: %s %q: %w", name, v, e)
			}
		}
	}
	f = Fault{
		Kind: Kind(r.FormValue("kind")), Method: r.FormValue("method"), Channel: strings.TrimSpace(r.FormValue("channel")),
		Happens: r.FormValue("happens") != "", Code: strings.TrimSpace(r.FormValue("code")), JSON: r.FormValue("json") != "",
		RetryAfter: strings.TrimSpace(r.FormValue("retry_after")), Body: r.FormValue("body"),
	}
	number("probability", func(v string) (e error) { f.Probability, e = strconv.ParseFloat(v, 64); return })
	number("count", func(v string) (e error) { f.Count, e = strconv.Atoi(v); return })
	number("status", func(v string) (e error) { f.Status, e = strconv.Atoi(v); return })
	number("interval", func(v string) error { return f.Interval.UnmarshalText([]byte(v)) })
	number("for", func(v string) error { return f.For.UnmarshalText([]byte(v)) })
	return f, err
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}
