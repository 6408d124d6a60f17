package slacktest

import (
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
)

func (s *Server) conversationsOpen(c *call) obj {
	if id := c.get("channel"); id != "" {
		ch := s.channel(id)
		if ch == nil {
			return failure("channel_not_found")
		}
		return obj{"ok": true, "no_op": true, "already_open": true, "channel": obj{"id": ch.ID}}
	}
	users := strings.FieldsFunc(c.get("users"), func(r rune) bool { return r == ',' || r == ' ' })
	if len(users) == 0 {
		return failure("users_list_not_supplied")
	}
	if len(users) > 1 {
		return failure("invalid_user_combination")
	}
	u := s.user(users[0])
	switch {
	case u == nil:
		return failure("user_not_found")
	case u.Deactivated:
		return failure("user_disabled")
	case u.ID == s.opt.BotUserID:
		return failure("invalid_user_combination")
	}
	ch, already := s.open(u)
	o := obj{"ok": true, "channel": obj{"id": ch.ID}}
	if already {
		o["no_op"], o["already_open"] = true, true
	}
	if c.flag("return_im") {
		o["channel"] = s.described(ch)
	}
	return o
}

func (s *Server) described(c *Channel) obj {
	if c.user != "" {
		return obj{"id": c.ID, "is_im": true, "user": c.user, "is_archived": false, "created": 1700000000, "priority": 0}
	}
	return obj{"id": c.ID, "name": c.Name, "name_normalized": c.Name, "is_channel": !c.Private, "is_group": c.Private,
		"is_im": false, "is_mpim": false, "is_private": c.Private, "is_archived": c.Archived, "is_member": !c.NotMember,
		"is_general": false, "created": 1700000000, "creator": s.opt.BotUserID, "num_members": len(s.users),
		"topic": obj{"value": c.Topic, "creator": "", "last_set": 0}, "purpose": obj{"value": "", "creator": "", "last_set": 0}}
}

func (s *Server) conversationsInfo(c *call) obj {
	ch := s.channel(c.get("channel"))
	if ch == nil || ch.Private && ch.NotMember {
		return failure("channel_not_found")
	}
	return obj{"ok": true, "channel": s.described(ch)}
}

func (s *Server) conversationsJoin(c *call) obj {
	ch := s.channel(c.get("channel"))
	switch {
	case ch == nil, ch.Private && ch.NotMember:
		return failure("channel_not_found")
	case ch.user != "" || ch.Private:
		return failure("method_not_supported_for_channel_type")
	case ch.Archived:
		return failure("is_archived")
	}
	o := obj{"ok": true}
	if !ch.NotMember {
		o["warning"] = "already_in_channel"
		o["response_metadata"] = obj{"warnings": []string{"already_in_channel"}}
	}
	ch.NotMember = false
	o["channel"] = s.described(ch)
	return o
}

func (s *Server) conversationsList(c *call) obj {
	types := first(c.get("types"), "public_channel")
	var all []obj
	for _, ch := range s.channels {
		kind := "public_channel"
		if ch.user != "" {
			kind = "im"
		} else if ch.Private {
			kind = "private_channel"
		}
		if slices.Contains(strings.Split(types, ","), kind) && !(ch.Archived && c.flag("exclude_archived")) && !(ch.Private && ch.NotMember) {
			all = append(all, s.described(ch))
		}
	}
	page, next, ok := paged(all, c, 100)
	if !ok {
		return failure("invalid_cursor")
	}
	return obj{"ok": true, "channels": page, "response_metadata": obj{"next_cursor": next}}
}

// readable resolves the channel of a look-up: reading needs membership, whatever posting needs.
func (s *Server) readable(c *call) (*Channel, string) {
	ch := s.channel(c.get("channel"))
	switch {
	case ch == nil, ch.Private && ch.NotMember:
		return nil, "channel_not_found"
	case ch.NotMember:
		return nil, "not_in_channel"
	}
	return ch, ""
}

func (s *Server) history(c *call) obj {
	ch, code := s.readable(c)
	if code != "" {
		return failure(code)
	}
	in, ok := window(c)
	if !ok {
		return failure("invalid_ts_oldest")
	}
	var all []obj
	for _, m := range slices.Backward(s.messages[ch.ID]) {
		if !m.Deleted && (m.ThreadTS == "" || m.Broadcast) && in(m.seq) {
			all = append(all, s.shown(m, c.flag("include_all_metadata")))
		}
	}
	return s.listed(all, c)
}

func (s *Server) replies(c *call) obj {
	ch, code := s.readable(c)
	if code != "" {
		return failure(code)
	}
	p := s.byTS[c.get("ts")]
	if p == nil || p.Channel != ch.ID || p.Deleted {
		return failure("thread_not_found")
	}
	if p.ThreadTS != "" {
		p = s.byTS[p.ThreadTS]
	}
	in, ok := window(c)
	if !ok {
		return failure("invalid_ts_oldest")
	}
	all := []obj{s.shown(p, c.flag("include_all_metadata"))} // the parent always leads
	for _, m := range s.messages[ch.ID] {
		if !m.Deleted && m.ThreadTS == p.TS && in(m.seq) {
			all = append(all, s.shown(m, c.flag("include_all_metadata")))
		}
	}
	return s.listed(all, c)
}

func (s *Server) listed(all []obj, c *call) obj {
	if most := s.rules.historyPage; most > 0 && number(c.get("limit"), 100) > most {
		c.params["limit"] = strconv.Itoa(most)
	}
	page, next, ok := paged(all, c, 100)
	if !ok {
		return failure("invalid_cursor")
	}
	o := obj{"ok": true, "messages": page, "has_more": next != "", "pin_count": 0}
	if next != "" {
		o["response_metadata"] = obj{"next_cursor": next}
	}
	return o
}

// window is the time filter of oldest, latest and inclusive.
func window(c *call) (func(int64) bool, bool) {
	oldest, ok1 := micro(c.get("oldest"))
	latest, ok2 := micro(c.get("latest"))
	inclusive := c.flag("inclusive")
	return func(seq int64) bool {
		if c.get("oldest") != "" && (seq < oldest || seq == oldest && !inclusive) {
			return false
		}
		return c.get("latest") == "" || latest == 0 || seq < latest || seq == latest && inclusive
	}, ok1 && ok2
}

func micro(ts string) (int64, bool) {
	if ts == "" {
		return 0, true
	}
	sec, frac, _ := strings.Cut(ts, ".")
	n, err := strconv.ParseInt(sec, 10, 64)
	if err != nil || len(frac) > 6 {
		return 0, false
	}
	f, err := strconv.ParseInt((frac + "000000")[:6], 10, 64)
	return n*1e6 + f, err == nil
}

// paged cuts one page out of a list; the cursor names the first element of the next one.
func paged(all []obj, c *call, fallback int) (page []obj, next string, ok bool) {
	start := 0
	if cur := c.get("cursor"); cur != "" {
		raw, err := base64.StdEncoding.DecodeString(cur)
		n, err2 := strconv.Atoi(strings.TrimPrefix(string(raw), "next:"))
		if err != nil || err2 != nil || n < 0 || n > len(all) {
			return nil, "", false
		}
		start = n
	}
	limit := number(c.get("limit"), fallback)
	if limit <= 0 || limit > 1000 {
		limit = min(max(limit, fallback), 1000)
	}
	end := min(start+limit, len(all))
	if end < len(all) {
		next = base64.StdEncoding.EncodeToString([]byte("next:" + strconv.Itoa(end)))
	}
	return append([]obj{}, all[start:end]...), next, true
}

func (s *Server) lookupByEmail(c *call) obj {
	for _, u := range s.users {
		if u.Email != "" && strings.EqualFold(u.Email, c.get("email")) && !u.Deactivated {
			return obj{"ok": true, "user": s.person(u)}
		}
	}
	return failure("users_not_found")
}

func (s *Server) usersInfo(c *call) obj {
	u := s.user(c.get("user"))
	if u == nil {
		return failure("user_not_found")
	}
	return obj{"ok": true, "user": s.person(u)}
}

func (s *Server) person(u *User) obj {
	return obj{"id": u.ID, "team_id": s.opt.TeamID, "name": u.Name, "real_name": first(u.RealName, u.Name), "deleted": u.Deactivated,
		"is_bot": u.ID == s.opt.BotUserID, "tz": u.TimeZone,
		"profile": obj{"real_name": first(u.RealName, u.Name), "display_name": u.Name, "email": u.Email}}
}
