package telegramtest

import (
	"strings"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/provider/chattest"
)

// Limit is how many messages and edits Telegram takes within any span of Per. The zero value is no limit.
type Limit struct {
	Most int
	Per  time.Duration
}

// Limits are those in force; the zero value is none. A call past one is answered 429 with retry_after, and the chat, or
// the bot, takes nothing until that is over.
type Limits struct {
	Chat  Limit         // to one chat
	Group Limit         // to one group, supergroup or channel, beside Chat
	Bot   Limit         // of the bot in all
	Early time.Duration // how much too early a call may come: clocks differ and networks jitter
}

// Usual are the limits that Telegram's questions and answers for bots name.
var Usual = Limits{Chat: Limit{1, time.Second}, Group: Limit{20, time.Minute}, Bot: Limit{30, time.Second}}

// Violation is a call that came although Telegram had said to wait, by a limit or by the fault "limited".
type Violation struct {
	At     time.Time
	Method string
	Chat   int64
	Until  time.Time // when the wait would have been over
}

// limiter is what the server remembers of the calls. Chat 0 is the bot as a whole.
type limiter struct {
	Limits
	taken      map[int64][]time.Time
	closed     map[int64]time.Time
	violations []Violation
}

// SetLimits puts limits in force, or none. What was told to wait so far stays, and counts where limits are in force.
func (s *Server) SetLimits(l Limits) { s.Write(func() { s.limits.Limits = l }) }

// Violations are the calls that did not wait, oldest first. They are noted whether limits are set or not.
func (s *Server) Violations() []Violation {
	var out []Violation
	s.Read(func() { out = append(out, s.limits.violations...) })
	return out
}

// paced says that a method counts: whatever makes or changes a message.
func paced(method string) bool {
	switch strings.ToLower(method) {
	case "sendmessage", "editmessagetext", "editmessagereplymarkup":
		return true
	}
	return false
}

// arrive notes a call that comes while its chat or the bot is closed.
func (s *Server) arrive(method string, chat int64) {
	s.Write(func() {
		if until := s.limits.until(chat); s.Now().Before(until) {
			s.limits.violations = append(s.limits.violations, Violation{s.Now(), method, chat, until})
		}
	})
}

func (l *limiter) until(chat int64) time.Time {
	if u := l.closed[0]; u.After(l.closed[chat]) {
		return u
	}
	return l.closed[chat]
}

// close tells whoever calls to wait, in whole seconds, and remembers it. The lock is held.
func (l *limiter) close(chat int64, now time.Time, wait time.Duration) int {
	seconds := max(int((wait+time.Second-1)/time.Second), 1)
	if until := now.Add(time.Duration(seconds) * time.Second); until.After(l.closed[chat]) {
		if l.closed == nil {
			l.closed = map[int64]time.Time{}
		}
		l.closed[chat] = until
	}
	return seconds
}

// told notes the wait that a fault asked for.
func (s *Server) told(chat int64, f chattest.Fault) {
	s.Write(func() { s.limits.close(chat, s.Now(), time.Duration(f.RetrySeconds(s.Now()))*time.Second) })
}

// limited runs a method within the limits. The lock is held.
func (s *Server) limited(method string, chat int64, run func() result) result {
	l, now := &s.limits, s.Now()
	if !paced(method) || l.Limits == (Limits{}) {
		return run()
	}
	if until := l.until(chat); now.Before(until) {
		return slow(l.close(chat, now, until.Sub(now)))
	}
	ch := s.chat(chat)
	group := ch != nil && ch.user == 0
	for _, b := range []struct {
		key int64
		Limit
		on bool
	}{{chat, l.Chat, ch != nil}, {chat, l.Group, group}, {0, l.Bot, true}} {
		if wait := l.wait(b.key, b.Limit, now); b.on && wait > 0 {
			return slow(l.close(b.key, now, wait))
		}
	}
	r := run()
	if r.code == 0 {
		l.take(chat, now)
		l.take(0, now)
	}
	return r
}

// wait is how long a call would have to wait for a limit; 0: not at all.
func (l *limiter) wait(key int64, b Limit, now time.Time) time.Duration {
	taken := l.taken[key]
	if b.Most <= 0 || len(taken) < b.Most {
		return 0
	}
	return taken[len(taken)-b.Most].Add(b.Per - l.Early).Sub(now)
}

// takenKept bounds what is remembered; no limit asks for more.
const takenKept = 1000

func (l *limiter) take(key int64, now time.Time) {
	if l.taken == nil {
		l.taken = map[int64][]time.Time{}
	}
	l.taken[key] = append(l.taken[key], now)
	if list := l.taken[key]; len(list) > takenKept {
		l.taken[key] = list[len(list)-takenKept:]
	}
}

// slow is a 429, with the wait in both places in which Telegram has it.
func slow(seconds int) result {
	return result{code: 429, description: "Too Many Requests: retry after " + itoa(seconds), parameters: obj{"retry_after": seconds}}
}
