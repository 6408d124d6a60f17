package slacktest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/provider/chattest"
)

// publicWrite is the scope for posting into public channels without membership.
const publicWrite = "chat:write.public"

// allScopes are the scopes that the methods here ask for.
var allScopes = []string{
	"chat:write", "channels:read", "groups:read", "im:read", "mpim:read", "channels:history", "groups:history", "im:history",
	"mpim:history", "channels:join", "im:write", "users:read", "users:read.email", "usergroups:write", "reactions:write",
}

// rules are what the workspace does beyond the ordinary. All are off in a new one.
type rules struct {
	revoked      bool
	dropMetadata bool
	dropBlockIDs bool
	historyPage  int

	perSecond  int
	rest       time.Duration
	posted     map[string][]time.Time // by channel, within the last second
	until      map[string]time.Time   // by channel: it is limited so long
	violations []Violation
}

// Violation is a post that came while its channel was limited, before Retry-After was over.
type Violation struct {
	Method, Channel, Key string
	At, Until            time.Time
}

func (v Violation) String() string {
	return fmt.Sprintf("%s to %s (%s), %s before Retry-After was over", v.Method, v.Channel, v.Key, v.Until.Sub(v.At))
}

// SetScopes says what the token may do from now on.
func (s *Server) SetScopes(scopes ...string) { s.Write(func() { s.opt.Scopes = slices.Clone(scopes) }) }

// SetRevoked takes the token away, or gives it back.
func (s *Server) SetRevoked(revoked bool) { s.Write(func() { s.rules.revoked = revoked }) }

// SetHistoryPage bounds the messages on a page of a history, whatever the call asks for: 15 is what Slack gives to apps
// that are sold outside its marketplace. 0: no bound of its own.
func (s *Server) SetHistoryPage(most int) { s.Write(func() { s.rules.historyPage = most }) }

// SetDropMetadata makes the workspace ignore the metadata of new messages, with ok.
func (s *Server) SetDropMetadata(drop bool) { s.Write(func() { s.rules.dropMetadata = drop }) }

// SetDropBlockIDs makes the workspace give blocks ids of its own, whatever the call says.
func (s *Server) SetDropBlockIDs(drop bool) { s.Write(func() { s.rules.dropBlockIDs = drop }) }

// SetPostLimit makes the workspace take at most so many posts a second into one channel, webhooks included. What is above
// gets a 429 with Retry-After, and while that lasts every further post to the channel is refused too and counted as a
// violation. rest is rounded up to whole seconds, at least one. perSecond 0: no limit, as in a new workspace.
func (s *Server) SetPostLimit(perSecond int, rest time.Duration) {
	s.Write(func() {
		s.rules.perSecond, s.rules.rest = perSecond, max(rest, time.Second)
		s.rules.posted, s.rules.until = map[string][]time.Time{}, map[string]time.Time{}
	})
}

// Violations are the posts that did not wait until Retry-After was over, oldest first.
func (s *Server) Violations() (out []Violation) {
	s.Read(func() { out = slices.Clone(s.rules.violations) })
	return out
}

// The functions below need the lock.

// limit counts a post and returns how long its sender must wait; 0: it may go on.
func (s *Server) limit(method, channel string, q *chattest.Request) time.Duration {
	r := &s.rules
	if r.perSecond <= 0 || method != "chat.postMessage" && method != "webhook" {
		return 0
	}
	now := s.Now()
	if until := r.until[channel]; now.Before(until) {
		r.violations = append(r.violations, Violation{Method: method, Channel: channel, Key: q.Key, At: now, Until: until})
		return until.Sub(now)
	}
	r.posted[channel] = slices.DeleteFunc(r.posted[channel], func(t time.Time) bool { return now.Sub(t) >= time.Second })
	if len(r.posted[channel]) >= r.perSecond {
		r.until[channel] = now.Add(wholeSeconds(r.rest))
		return r.until[channel].Sub(now)
	}
	r.posted[channel] = append(r.posted[channel], now)
	return 0
}

func wholeSeconds(d time.Duration) time.Duration { return (d + time.Second - 1).Truncate(time.Second) }

// tooMany is a 429 in Slack's own form.
func tooMany(webhook bool, wait time.Duration) chattest.Reply {
	seconds := int(wholeSeconds(wait) / time.Second)
	reply := answer(failure("ratelimited"))
	if webhook {
		reply = answer(obj{"retry_after": seconds, "ok": false, "error": "rate_limited"})
	}
	reply.Status = http.StatusTooManyRequests
	reply.Header = map[string]string{"Retry-After": strconv.Itoa(seconds)}
	return reply
}

// needed are the scopes of which a method needs one; none: it needs no scope.
func (s *Server) needed(method string, c *call) []string {
	of := func(public, private, direct string) []string {
		ch := s.channel(c.get("channel"))
		switch {
		case ch != nil && ch.user != "" || strings.HasPrefix(c.get("channel"), "D"):
			return []string{direct}
		case ch != nil && ch.Private:
			return []string{private}
		}
		return []string{public}
	}
	switch method {
	case "chat.postMessage", "chat.update", "chat.delete", "chat.postEphemeral":
		return []string{"chat:write"}
	case "conversations.open":
		return []string{"im:write"}
	case "conversations.info":
		return of("channels:read", "groups:read", "im:read")
	case "conversations.list":
		return []string{"channels:read", "groups:read", "im:read", "mpim:read"}
	case "conversations.join":
		return []string{"channels:join"}
	case "conversations.history", "conversations.replies":
		return of("channels:history", "groups:history", "im:history")
	case "users.info":
		return []string{"users:read"}
	case "usergroups.users.update":
		return []string{"usergroups:write"}
	case "users.lookupByEmail":
		return []string{"users:read.email"}
	case "reactions.add", "reactions.remove":
		return []string{"reactions:write"}
	}
	return nil
}

func (s *Server) may(needed []string) bool {
	return len(needed) == 0 || slices.ContainsFunc(needed, func(n string) bool { return slices.Contains(s.opt.Scopes, n) })
}

func (s *Server) missing(needed []string) obj {
	o := failure(missingScope)
	o["needed"], o["provided"] = strings.Join(needed, ","), strings.Join(s.opt.Scopes, ",")
	return o
}

const missingScope = "missing_scope"

// renameBlocks gives every block an id of the workspace's own.
func (m *Message) renameBlocks() {
	rename := func(blocks []map[string]any) {
		for i, b := range blocks {
			b["block_id"] = fmt.Sprintf("s%04x", i)
		}
	}
	if blocks := parseList(m.Blocks); blocks != nil {
		rename(blocks)
		m.Blocks, _ = json.Marshal(blocks)
	}
	if list := parseList(m.Attachments); list != nil {
		for _, a := range list {
			raw, _ := json.Marshal(a["blocks"])
			blocks := parseList(raw)
			rename(blocks)
			a["blocks"] = blocks
		}
		m.Attachments, _ = json.Marshal(list)
	}
}
