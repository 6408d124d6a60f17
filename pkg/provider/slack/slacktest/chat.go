package slacktest

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tocsin-oncall/tocsin/pkg/provider/chattest"
)

// textKept is where chat.postMessage cuts the text; updateMost is where chat.update refuses it.
const (
	textKept   = 40_000
	updateMost = 4_000
)

func (s *Server) authTest(c *call) obj {
	return obj{"ok": true, "url": s.teamURL(c.host), "team": s.opt.TeamName, "user": "tocsin", "team_id": s.opt.TeamID,
		"user_id": s.opt.BotUserID, "bot_id": s.opt.BotID, "is_enterprise_install": false}
}

// teamURL begins permalinks. The lock is held.
func (s *Server) teamURL(host string) string {
	if s.opt.TeamURL != "" {
		return strings.TrimSuffix(s.opt.TeamURL, "/") + "/"
	}
	return "http://" + host + "/"
}

// destination resolves the channel of a post and says why it cannot be posted to.
func (s *Server) destination(id string) (*Channel, string) {
	if u := s.user(id); u != nil {
		if u.Deactivated {
			return nil, "user_disabled"
		}
		c, _ := s.open(u)
		return c, ""
	}
	c := s.channel(id)
	switch {
	case c == nil && strings.HasPrefix(id, "U"):
		return nil, "user_not_found"
	case c == nil, c.Private && c.NotMember:
		return nil, "channel_not_found"
	case c.Archived:
		return nil, "is_archived"
	case c.NotMember && !slices.Contains(s.opt.Scopes, publicWrite):
		return nil, "not_in_channel"
	}
	return c, ""
}

// content checks text, blocks, attachments and metadata of a post or an update; omitted ones stay nil.
func content(c *call, update bool) (m Message, fail obj) {
	m.Text = c.get("text")
	var problems []string
	if c.get("blocks") != "" {
		m.Blocks, problems = checkBlocks([]byte(c.get("blocks")), "/blocks")
		if m.Blocks == nil && problems == nil {
			return m, failure("invalid_blocks_format")
		}
		if problems != nil {
			o := failure("invalid_blocks", prefixed(problems)...)
			o["errors"] = problems
			return m, o
		}
	}
	if c.get("attachments") != "" {
		var code string
		m.Attachments, code, problems = checkAttachments([]byte(c.get("attachments")))
		if code != "" {
			o := failure(code, prefixed(problems)...)
			if problems != nil {
				o["errors"] = problems
			}
			return m, o
		}
	}
	if raw := c.get("metadata"); raw != "" {
		code, problem := checkMetadata([]byte(raw))
		if code != "" {
			return m, failure(code, prefixed(problem)...)
		}
		m.Metadata, m.Key = json.RawMessage(raw), effectKey([]byte(raw))
	}
	if n := utf8.RuneCountInString(m.Text); update && n > updateMost {
		return m, failure("msg_too_long")
	} else if n > textKept {
		m.Text = string([]rune(m.Text)[:textKept])
	}
	if strings.TrimSpace(m.Text) == "" && empty(m.Blocks) && empty(m.Attachments) && !update {
		return m, failure("no_text")
	}
	return m, nil
}

func prefixed(problems []string) []string {
	out := make([]string, len(problems))
	for i, p := range problems {
		out[i] = "[ERROR] " + p
	}
	return out
}

func empty(list json.RawMessage) bool { return len(parseList(list)) == 0 }

func (s *Server) postMessage(c *call) obj {
	if c.get("channel") == "" {
		return failure("invalid_arguments", "[ERROR] missing required field: channel")
	}
	ch, code := s.destination(c.get("channel"))
	if code != "" {
		return failure(code)
	}
	m, fail := content(c, false)
	if fail != nil {
		return fail
	}
	m.Channel, m.User, m.Username = ch.ID, s.opt.BotUserID, c.get("username")
	if s.rules.dropMetadata {
		m.Metadata = nil
	}
	// A reply to a parent that is gone, or to something that is no parent, lands in the channel, and Slack says ok.
	if p := s.byTS[c.get("thread_ts")]; p != nil && p.Channel == ch.ID && !p.Deleted && (p.ThreadTS == "" || p.ThreadTS == p.TS) {
		m.ThreadTS, m.Broadcast = p.TS, c.flag("reply_broadcast")
	}
	stored := s.store(&m)
	c.object(chattest.Created, stored)
	if s.rules.dropBlockIDs {
		stored.renameBlocks()
	}
	o := obj{"ok": true, "channel": ch.ID, "ts": stored.TS, "message": s.shown(stored, true)}
	if c.get("text") == "" {
		o["warning"] = "missing_text_in_message"
		o["response_metadata"] = obj{"warnings": []string{"missing_text_in_message"}}
	}
	return o
}

func (s *Server) postEphemeral(c *call) obj {
	ch, code := s.destination(c.get("channel"))
	if code != "" {
		return failure(code)
	}
	if s.user(c.get("user")) == nil {
		return failure("user_not_in_channel")
	}
	m, fail := content(c, false)
	if fail != nil {
		return fail
	}
	s.lastTS = max(s.lastTS+1, s.Now().UnixMicro())
	e := Ephemeral{Channel: ch.ID, User: c.get("user"), TS: stamp(s.lastTS), ThreadTS: c.get("thread_ts"), Text: m.Text,
		Blocks: m.Blocks, Attachments: m.Attachments, At: s.Now()}
	s.ephemerals = append(s.ephemerals, e)
	c.req.Effect, c.req.Object = chattest.Created, ch.ID+"/"+e.TS
	return obj{"ok": true, "message_ts": e.TS}
}

// own finds a message that the bot may change. A user id is no channel here, as in Slack.
func (s *Server) own(c *call, cannot string) (*Message, obj) {
	if s.channel(c.get("channel")) == nil {
		return nil, failure("channel_not_found")
	}
	m := s.byTS[c.get("ts")]
	if m == nil || m.Channel != c.get("channel") || m.Deleted {
		return nil, failure("message_not_found")
	}
	if m.User != s.opt.BotUserID || m.webhook {
		return nil, failure(cannot)
	}
	return m, nil
}

func (s *Server) update(c *call) obj {
	m, fail := s.own(c, "cant_update_message")
	if fail != nil {
		return fail
	}
	n, fail := content(c, true)
	if fail != nil {
		return fail
	}
	if !c.has("text") && !c.has("blocks") && !c.has("attachments") {
		return failure("no_text")
	}
	next := *m
	switch {
	case c.has("blocks"): // an empty list removes them too
		next.Blocks = n.Blocks
	case c.has("text"): // text without blocks removes the blocks
		next.Blocks = nil
	}
	if c.has("text") {
		next.Text = n.Text
	}
	if c.has("attachments") { // omitted ones are kept
		next.Attachments = n.Attachments
	}
	if strings.TrimSpace(next.Text) == "" && empty(next.Blocks) && empty(next.Attachments) {
		return failure("no_text")
	}
	if n.Metadata != nil {
		next.Metadata, next.Key = n.Metadata, n.Key
	}
	next.Edits = append(next.Edits, Version{Text: m.Text, Blocks: m.Blocks, Attachments: m.Attachments, Until: s.Now()})
	next.EditedAt = s.Now()
	*m = next
	c.req.Key = first(c.req.Key, m.Key)
	c.object(chattest.Changed, m)
	return obj{"ok": true, "channel": m.Channel, "ts": m.TS, "text": m.Text, "message": s.shown(m, true)}
}

func (s *Server) deleteMessage(c *call) obj {
	m, fail := s.own(c, "cant_delete_message")
	if fail != nil {
		return fail
	}
	m.Deleted = true
	c.object(chattest.Deleted, m)
	return obj{"ok": true, "channel": m.Channel, "ts": m.TS}
}

func (s *Server) getPermalink(c *call) obj {
	if s.channel(c.get("channel")) == nil {
		return failure("channel_not_found")
	}
	m := s.byTS[c.get("message_ts")]
	if m == nil || m.Channel != c.get("channel") || m.Deleted {
		return failure("message_not_found")
	}
	return obj{"ok": true, "channel": m.Channel, "permalink": s.permalink(m, c.host)}
}

// permalink has Slack's form, so that the page of the simulated workspace can follow it.
func (s *Server) permalink(m *Message, host string) string {
	link := s.teamURL(host) + "archives/" + m.Channel + "/p" + strings.ReplaceAll(m.TS, ".", "")
	if m.ThreadTS != "" && m.ThreadTS != m.TS {
		link += "?" + url.Values{"thread_ts": {m.ThreadTS}, "cid": {m.Channel}}.Encode()
	}
	return link
}

func (s *Server) reactionsAdd(c *call) obj {
	m, fail := s.reactable(c)
	if fail != nil {
		return fail
	}
	name := strings.Trim(c.get("name"), ":")
	i := slices.IndexFunc(m.Reactions, func(r Reaction) bool { return r.Name == name })
	if i < 0 {
		m.Reactions = append(m.Reactions, Reaction{Name: name})
		i = len(m.Reactions) - 1
	}
	if slices.Contains(m.Reactions[i].Users, s.opt.BotUserID) {
		return failure("already_reacted")
	}
	m.Reactions[i].Users = append(slices.Clone(m.Reactions[i].Users), s.opt.BotUserID)
	c.object(chattest.Changed, m)
	return obj{"ok": true}
}

func (s *Server) reactionsRemove(c *call) obj {
	m, fail := s.reactable(c)
	if fail != nil {
		return fail
	}
	name := strings.Trim(c.get("name"), ":")
	i := slices.IndexFunc(m.Reactions, func(r Reaction) bool { return r.Name == name && slices.Contains(r.Users, s.opt.BotUserID) })
	if i < 0 {
		return failure("no_reaction")
	}
	left := slices.DeleteFunc(slices.Clone(m.Reactions[i].Users), func(u string) bool { return u == s.opt.BotUserID })
	m.Reactions = slices.Clone(m.Reactions)
	m.Reactions[i].Users = left
	m.Reactions = slices.DeleteFunc(m.Reactions, func(r Reaction) bool { return len(r.Users) == 0 })
	c.object(chattest.Changed, m)
	return obj{"ok": true}
}

func (s *Server) reactable(c *call) (*Message, obj) {
	if c.get("name") == "" {
		return nil, failure("invalid_name")
	}
	if s.channel(c.get("channel")) == nil {
		return nil, failure("channel_not_found")
	}
	m := s.byTS[c.get("timestamp")]
	if m == nil || m.Channel != c.get("channel") || m.Deleted {
		return nil, failure("message_not_found")
	}
	return m, nil
}

// shown is a message as the API gives it. Without all metadata only the event type comes back.
func (s *Server) shown(m *Message, metadata bool) obj {
	o := obj{"type": "message", "ts": m.TS, "user": m.User, "text": m.Text, "team": s.opt.TeamID}
	if m.User == s.opt.BotUserID {
		o["bot_id"], o["app_id"] = s.opt.BotID, s.opt.AppID
		o["bot_profile"] = obj{"id": s.opt.BotID, "app_id": s.opt.AppID, "name": "tocsin", "deleted": false, "team_id": s.opt.TeamID}
	}
	if m.BotID != "" {
		o["bot_id"], o["app_id"] = m.BotID, "A"+strings.TrimPrefix(m.BotID, "B")
		delete(o, "bot_profile")
	}
	if m.webhook {
		delete(o, "user")
		o["subtype"] = "bot_message"
	}
	if m.Username != "" {
		o["username"] = m.Username
	}
	if !empty(m.Blocks) {
		o["blocks"] = m.Blocks
	}
	if !empty(m.Attachments) {
		o["attachments"] = m.Attachments
	}
	if m.ThreadTS != "" {
		o["thread_ts"] = m.ThreadTS
		if p := s.byTS[m.ThreadTS]; p != nil {
			o["parent_user_id"] = p.User
		}
		if m.Broadcast {
			o["subtype"] = "thread_broadcast"
		}
	} else if n, latest := s.replyCount(m); n > 0 {
		o["thread_ts"], o["reply_count"], o["latest_reply"], o["reply_users_count"] = m.TS, n, latest, 1
		o["reply_users"] = []string{s.opt.BotUserID}
	}
	if !m.EditedAt.IsZero() {
		o["edited"] = obj{"user": m.User, "ts": fmt.Sprintf("%d.000000", m.EditedAt.Unix())}
	}
	if len(m.Reactions) > 0 {
		var list []obj
		for _, r := range m.Reactions {
			list = append(list, obj{"name": r.Name, "users": r.Users, "count": len(r.Users)})
		}
		o["reactions"] = list
	}
	if m.Metadata != nil {
		if metadata {
			o["metadata"] = m.Metadata
		} else {
			var t struct {
				Type string `json:"event_type"`
			}
			_ = json.Unmarshal(m.Metadata, &t)
			o["metadata"] = obj{"event_type": t.Type}
		}
	}
	return o
}

func (s *Server) replyCount(p *Message) (n int, latest string) {
	for _, m := range s.messages[p.Channel] {
		if m.ThreadTS == p.TS && !m.Deleted {
			n, latest = n+1, m.TS
		}
	}
	return n, latest
}
