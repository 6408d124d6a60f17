package telegramtest

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tocsin-oncall/tocsin/pkg/provider/chattest"
)

// Telegram's limits: code points after parsing, raw bytes, bytes of callback data, buttons of a keyboard.
const (
	textMost    = 4096
	rawMost     = 32768
	dataMost    = 64
	buttonsMost = 100
)

func itoa(n int) string { return strconv.Itoa(n) }

func (s *Server) getMe(*call) result {
	o := s.sender(s.opt.BotID)
	o["can_join_groups"], o["can_read_all_group_messages"], o["supports_inline_queries"] = true, false, false
	return ok(o)
}

func (s *Server) getChat(c *call) result {
	ch, r := s.reachable(c)
	if r.code != 0 {
		return r
	}
	o := s.describe(ch)
	if ch.user == 0 {
		o["permissions"] = obj{"can_send_messages": true}
	}
	return ok(o)
}

// getChatMember tells what somebody may do in a chat; of the bot, whether it may write.
func (s *Server) getChatMember(c *call) result {
	ch, r := s.reachable(c)
	if r.code != 0 {
		return r
	}
	id := id64(c.get("user_id"))
	if id != s.opt.BotID && s.user(id) == nil {
		return bad("user not found")
	}
	o := obj{"user": s.sender(id), "status": "member"}
	if id == s.opt.BotID {
		switch {
		case ch.Type == "channel":
			o["status"], o["can_post_messages"], o["can_edit_messages"] = "administrator", !ch.ReadOnly, !ch.ReadOnly
		case ch.ReadOnly:
			o["status"], o["is_member"], o["can_send_messages"] = "restricted", true, false
		}
	}
	return ok(o)
}

// reachable finds the chat of a call and says why the bot cannot write there.
func (s *Server) reachable(c *call) (*Chat, result) {
	if c.get("chat_id") == "" {
		return nil, bad("chat_id is empty")
	}
	ch := s.chat(id64(c.get("chat_id")))
	if ch == nil {
		return nil, bad("chat not found")
	}
	if u := s.user(ch.user); u != nil {
		switch {
		case u.NeverStarted:
			return nil, bad("chat not found")
		case u.Deactivated:
			return nil, forbidden("user is deactivated")
		case u.Blocked:
			return nil, forbidden("bot was blocked by the user")
		}
	}
	switch {
	case ch.MigratedTo != 0:
		r := bad("group chat was upgraded to a supergroup chat")
		r.parameters = obj{"migrate_to_chat_id": ch.MigratedTo}
		return nil, r
	case ch.Kicked:
		return nil, forbidden("bot was kicked from the " + ch.Type + " chat")
	}
	return ch, result{}
}

// formatted reads text, parse_mode and entities of a call.
func formatted(c *call) (string, []Entity, result) {
	text := c.get("text")
	var entities []Entity
	if len(text) > rawMost {
		return "", nil, bad("text is too long")
	}
	switch mode := strings.ToLower(c.get("parse_mode")); mode {
	case "":
		if raw := c.get("entities"); raw != "" && !decode(raw, &entities) {
			return "", nil, bad("can't parse MessageEntity: JSON array expected")
		}
	case "html":
		var err error
		if text, entities, err = parseHTML(text); err != nil {
			return "", nil, bad("can't parse entities: " + err.Error())
		}
	default:
		return "", nil, bad("unsupported parse_mode") // the Markdown modes are not simulated
	}
	if !utf8.ValidString(text) {
		return "", nil, bad("strings must be encoded in UTF-8")
	}
	text, entities = trimmed(cleaned(text, entities))
	switch n := utf8.RuneCountInString(text); {
	case invisible(text):
		return "", nil, bad("message text is empty")
	case n > textMost:
		return "", nil, bad("message is too long")
	}
	return text, entities, result{}
}

// Preview is what a message with this text, parse_mode and reply_markup would show, or the words with which Telegram
// would refuse it. Its limits are enforced.
func Preview(text, parseMode, replyMarkup string) (Message, error) {
	var m Message
	var r result
	m.Text, m.Entities, r = formatted(&call{params: map[string]string{"text": text, "parse_mode": parseMode}})
	if r.code == 0 {
		m.Keyboard, r = keyboard(replyMarkup)
	}
	if r.code != 0 {
		return Message{}, errors.New(r.description)
	}
	return m, nil
}

// keyboard reads reply_markup.
func keyboard(raw string) ([][]Button, result) {
	if raw == "" {
		return nil, result{}
	}
	var markup struct {
		Rows [][]struct {
			Button
			WebApp, SwitchInlineQuery any
		} `json:"inline_keyboard"`
	}
	if !decode(raw, &markup) {
		return nil, bad("can't parse reply keyboard markup JSON object")
	}
	var rows [][]Button
	n := 0
	for _, row := range markup.Rows {
		var out []Button
		for _, b := range row {
			switch {
			case invisible(b.Text):
				return nil, bad("can't parse inline keyboard button: Field \"text\" must be of type String")
			case b.Data == "" && b.URL == "":
				return nil, bad("can't parse inline keyboard button: Text buttons are unallowed in the inline keyboard")
			case len(b.Data) > dataMost:
				return nil, bad("BUTTON_DATA_INVALID")
			case b.URL != "" && !linkable(b.URL):
				return nil, bad(fmt.Sprintf("inline keyboard button URL '%s' is invalid: Wrong HTTP URL", b.URL))
			}
			n++
			out = append(out, b.Button)
		}
		if len(out) > 0 {
			rows = append(rows, out)
		}
	}
	if n > buttonsMost {
		return nil, bad("reply markup is too long")
	}
	return rows, result{}
}

// linkable says that Telegram takes a URL: http, https or tg, and a host with a dot in it. "localhost" is refused,
// an IP address is not.
func linkable(raw string) bool {
	if !strings.Contains(raw, "://") {
		raw = "http://" + raw
	}
	u, err := url.Parse(raw)
	if err != nil {
		return false
	}
	if u.Scheme == "tg" || u.Scheme == "ton" {
		return u.Host != ""
	}
	if u.Scheme != "http" && u.Scheme != "https" {
		return false
	}
	if _, err := netip.ParseAddr(u.Hostname()); err == nil {
		return true
	}
	host := strings.Trim(u.Hostname(), ".")
	return strings.Contains(host, ".") && !strings.ContainsAny(host, " <>\"'")
}

func (s *Server) sendMessage(c *call) result {
	ch, r := s.reachable(c)
	if r.code != 0 {
		return r
	}
	if ch.ReadOnly {
		if ch.Type == "channel" {
			return bad("need administrator rights in the channel chat")
		}
		return bad("not enough rights to send text messages to the chat")
	}
	m := Message{Chat: ch.ID, From: s.opt.BotID}
	if m.Text, m.Entities, r = formatted(c); r.code != 0 {
		return r
	}
	if m.Keyboard, r = keyboard(c.get("reply_markup")); r.code != 0 {
		return r
	}
	if m.Thread, r = topic(ch, c.get("message_thread_id")); r.code != 0 {
		return r
	}
	if m.ReplyTo, r = s.replyTo(ch, c); r.code != 0 {
		return r
	}
	stored := s.store(&m)
	s.note(c, chattest.Created, stored)
	return ok(s.shown(stored, true))
}

func topic(ch *Chat, raw string) (int, result) {
	if raw == "" || raw == "0" {
		return 0, result{}
	}
	id, _ := strconv.Atoi(raw)
	i := slices.IndexFunc(ch.Topics, func(t Topic) bool { return t.ID == id })
	switch {
	case i < 0:
		return 0, bad("message thread not found")
	case ch.Topics[i].Closed:
		return 0, bad("TOPIC_CLOSED")
	}
	return id, result{}
}

// replyTo reads reply_parameters, or the older reply_to_message_id.
func (s *Server) replyTo(ch *Chat, c *call) (int, result) {
	var p struct {
		ID      int  `json:"message_id"`
		Without bool `json:"allow_sending_without_reply"`
	}
	if raw := c.get("reply_parameters"); raw != "" {
		if !decode(raw, &p) {
			return 0, bad("can't parse reply parameters JSON object")
		}
	} else {
		p.ID, _ = strconv.Atoi(c.get("reply_to_message_id"))
		p.Without = c.flag("allow_sending_without_reply")
	}
	if p.ID == 0 {
		return 0, result{}
	}
	if m := s.message(ch.ID, p.ID); m == nil || m.Deleted {
		if p.Without {
			return 0, result{}
		}
		return 0, bad("message to be replied not found")
	}
	return p.ID, result{}
}

func (s *Server) note(c *call, e chattest.Effect, m *Message) {
	c.req.Effect, c.req.Object = e, fmt.Sprintf("%d/%d", m.Chat, m.ID)
	c.req.TS = itoa(m.ID)
}

// editable finds the bot's own message that a call names.
func (s *Server) editable(c *call, verb string) (*Message, result) {
	ch, r := s.reachable(c)
	if r.code != 0 {
		return nil, r
	}
	id, err := strconv.Atoi(c.get("message_id"))
	if err != nil {
		return nil, bad("message identifier is not specified")
	}
	m := s.message(ch.ID, id)
	if m == nil || m.Deleted {
		return nil, bad("message to " + verb + " not found")
	}
	if m.From != s.opt.BotID {
		return nil, bad("message can't be " + map[string]string{"edit": "edited", "delete": "deleted"}[verb])
	}
	return m, result{}
}

const notModified = "message is not modified: specified new message content and reply markup are exactly the same as a current content and reply markup of the message"

func (s *Server) editMessageText(c *call) result {
	m, r := s.editable(c, "edit")
	if r.code != 0 {
		return r
	}
	text, entities, r := formatted(c)
	if r.code != 0 {
		return r
	}
	rows, r := keyboard(c.get("reply_markup"))
	if r.code != 0 {
		return r
	}
	return s.edit(c, m, text, entities, rows)
}

func (s *Server) editMessageReplyMarkup(c *call) result {
	m, r := s.editable(c, "edit")
	if r.code != 0 {
		return r
	}
	rows, r := keyboard(c.get("reply_markup"))
	if r.code != 0 {
		return r
	}
	return s.edit(c, m, m.Text, m.Entities, rows)
}

// edit replaces content and keyboard; a keyboard left out is taken away.
func (s *Server) edit(c *call, m *Message, text string, entities []Entity, rows [][]Button) result {
	same := text == m.Text && (len(entities) == 0 && len(m.Entities) == 0 || reflect.DeepEqual(entities, m.Entities)) &&
		(len(rows) == 0 && len(m.Keyboard) == 0 || reflect.DeepEqual(rows, m.Keyboard))
	if same {
		return bad(notModified)
	}
	m.Edits = append(m.Edits, Version{Text: m.Text, Entities: m.Entities, Keyboard: m.Keyboard, Until: s.Now()})
	m.Text, m.Entities, m.Keyboard, m.EditedAt = text, entities, rows, s.Now()
	s.note(c, chattest.Changed, m)
	return ok(s.shown(m, true))
}

func (s *Server) deleteMessage(c *call) result {
	m, r := s.editable(c, "delete")
	if r.code != 0 {
		return r
	}
	m.Deleted = true
	s.note(c, chattest.Deleted, m)
	return ok(true)
}
