package slacktest

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/provider/chattest"
)

// responseUses and responseLife bound a response_url, as Slack does.
const (
	responseUses = 5
	responseLife = 30 * time.Minute
)

type responseURL struct {
	channel, user, ts, thread string
	uses                      int
	made                      time.Time
}

// PressAnswer is what the receiver of a callback answered at once. Private answers arrive later, by response_url:
// see Ephemerals.
type PressAnswer struct {
	Status int
	Body   string
}

// Press presses a button as a person: it sends the signed block_actions callback to InteractionURL and returns the
// receiver's answer. The message must show the button now.
func (s *Server) Press(ctx context.Context, ts, actionID, userID string) (PressAnswer, error) {
	if s.opt.AppToken != "" {
		var payload obj
		var err error
		s.Write(func() { payload, err = s.callback(ts, actionID, userID) })
		if err != nil {
			return PressAnswer{}, err
		}
		return s.throughSocket(ctx, "interactive", payload)
	}
	r, err := s.PressRequest(ctx, ts, actionID, userID)
	if err != nil {
		return PressAnswer{}, err
	}
	return s.send(r)
}

// PressRequest is the callback of Press, not yet sent: to send it twice, late, or with a changed body.
func (s *Server) PressRequest(ctx context.Context, ts, actionID, userID string) (*http.Request, error) {
	var payload obj
	var target, secret string
	var err error
	s.Write(func() {
		target, secret = s.opt.InteractionURL, s.opt.SigningSecret
		payload, err = s.callback(ts, actionID, userID)
	})
	if err != nil {
		return nil, err
	}
	if target == "" {
		return nil, fmt.Errorf("slacktest: no InteractionURL: set Options.InteractionURL or call SetInteractionURL")
	}
	body, err := json.Marshal(payload)
	if err != nil {
		return nil, err
	}
	return signed(ctx, target, secret, url.Values{"payload": {string(body)}}.Encode(), s.Now())
}

// Command sends a slash command as a person, signed, to CommandURL, and returns the receiver's answer. A JSON answer
// with text is also shown privately in the channel.
func (s *Server) Command(ctx context.Context, channel, userID, command, text string) (PressAnswer, error) {
	var form url.Values
	var target, secret, resolved string
	var err error
	s.Write(func() {
		target, secret = s.opt.CommandURL, s.opt.SigningSecret
		u, c := s.user(userID), s.channel(s.resolved(channel))
		if u == nil || c == nil {
			err = fmt.Errorf("slacktest: no user %q or no channel %q", userID, channel)
			return
		}
		resolved = c.ID
		form = url.Values{"command": {command}, "text": {text}, "user_id": {u.ID}, "user_name": {u.Name}, "channel_id": {c.ID},
			"channel_name": {c.Name}, "team_id": {s.opt.TeamID}, "team_domain": {"simulated"}, "api_app_id": {s.opt.AppID},
			"trigger_id": {s.trigger()}, "response_url": {s.respond(c.ID, u.ID, "", "")}}
	})
	if err != nil {
		return PressAnswer{}, err
	}
	if s.opt.AppToken != "" {
		fields := obj{}
		for k := range form {
			fields[k] = form.Get(k)
		}
		return s.throughSocket(ctx, "slash_commands", fields)
	}
	if target == "" {
		return PressAnswer{}, fmt.Errorf("slacktest: no CommandURL: set Options.CommandURL or call SetCommandURL")
	}
	r, err := signed(ctx, target, secret, form.Encode(), s.Now())
	if err != nil {
		return PressAnswer{}, err
	}
	a, err := s.send(r)
	if err != nil || a.Status != http.StatusOK || strings.TrimSpace(a.Body) == "" {
		return a, err
	}
	private := struct {
		Text   string          `json:"text"`
		Blocks json.RawMessage `json:"blocks"`
	}{Text: a.Body}
	if strings.HasPrefix(strings.TrimSpace(a.Body), "{") {
		private.Text = ""
		_ = json.Unmarshal([]byte(a.Body), &private)
	}
	s.Write(func() {
		s.whisper(Ephemeral{Channel: resolved, User: userID, Text: private.Text, Blocks: private.Blocks})
	})
	return a, nil
}

// signed makes a request with Slack's signature: HMAC-SHA256 over "v0:timestamp:body".
func signed(ctx context.Context, target, secret, body string, now time.Time) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, target, strings.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("slacktest: callback URL: %w", err)
	}
	stamp := strconv.FormatInt(now.Unix(), 10)
	mac := hmac.New(sha256.New, []byte(secret))
	_, _ = io.WriteString(mac, "v0:"+stamp+":"+body)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("User-Agent", "Slackbot 1.0 (+https://api.slack.com/robots)")
	r.Header.Set("X-Slack-Request-Timestamp", stamp)
	r.Header.Set("X-Slack-Signature", "v0="+hex.EncodeToString(mac.Sum(nil)))
	return r, nil
}

func (s *Server) send(r *http.Request) (PressAnswer, error) {
	resp, err := s.opt.Client.Do(r)
	if err != nil {
		return PressAnswer{}, fmt.Errorf("slacktest: send the callback: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return PressAnswer{Status: resp.StatusCode, Body: string(body)}, err
}

// button is a button that a message shows.
type button struct {
	element    map[string]any
	blockID    string
	attachment int // 0: in the message itself
}

// buttons lists the buttons of a message, those of its attachments included.
func buttons(m *Message) []button {
	out := blockButtons(parseList(m.Blocks), 0)
	for i, a := range parseList(m.Attachments) {
		raw, _ := json.Marshal(a["blocks"])
		out = append(out, blockButtons(parseList(raw), i+1)...)
	}
	return out
}

func blockButtons(blocks []map[string]any, attachment int) (out []button) {
	for _, b := range blocks {
		id, _ := b["block_id"].(string)
		list, _ := b["elements"].([]any)
		if a, ok := b["accessory"]; ok {
			list = append(list, a)
		}
		for _, e := range list {
			if m, ok := e.(map[string]any); ok && m["type"] == "button" {
				out = append(out, button{m, id, attachment})
			}
		}
	}
	return out
}

// callback is the block_actions payload. The lock is held.
func (s *Server) callback(ts, actionID, userID string) (obj, error) {
	m, u := s.byTS[ts], s.user(userID)
	if m == nil || m.Deleted || u == nil {
		return nil, fmt.Errorf("slacktest: press: no message %q or no user %q", ts, userID)
	}
	var hit *button
	for _, b := range buttons(m) {
		if b.element["action_id"] == actionID {
			hit = &b
			break
		}
	}
	if hit == nil {
		return nil, fmt.Errorf("slacktest: press: message %s shows no button with action_id %q", ts, actionID)
	}
	c := s.channel(m.Channel)
	thread := m.ThreadTS
	now := s.Now().UnixMicro()
	action := obj{"type": "button", "action_id": actionID, "block_id": hit.blockID, "text": hit.element["text"], "action_ts": stamp(now)}
	for _, k := range []string{"value", "style", "url"} {
		if v, ok := hit.element[k]; ok {
			action[k] = v
		}
	}
	container := obj{"type": "message", "message_ts": ts, "channel_id": c.ID, "is_ephemeral": false}
	if hit.attachment > 0 {
		container["type"], container["attachment_id"], container["is_app_unfurl"] = "message_attachment", hit.attachment, false
	}
	if thread != "" {
		container["thread_ts"] = thread
	}
	name := c.Name
	if c.user != "" {
		name = "directmessage"
	}
	return obj{
		"type": "block_actions", "api_app_id": s.opt.AppID, "token": "simulated-verification-token",
		"user":      obj{"id": u.ID, "username": u.Name, "name": u.Name, "team_id": s.opt.TeamID},
		"team":      obj{"id": s.opt.TeamID, "domain": "simulated"},
		"channel":   obj{"id": c.ID, "name": name},
		"container": container, "message": s.shown(m, true), "trigger_id": s.trigger(),
		"enterprise": nil, "is_enterprise_install": false, "state": obj{"values": obj{}},
		"response_url": s.respond(c.ID, u.ID, ts, thread), "actions": []obj{action},
	}, nil
}

func (s *Server) trigger() string {
	s.triggers++
	return fmt.Sprintf("%d.%d.simulated", s.Now().UnixMilli(), s.triggers)
}

// respond makes a response_url. The lock is held, so the base comes without it.
func (s *Server) respond(channel, user, ts, thread string) string {
	id := fmt.Sprintf("r%06d", len(s.responses)+1)
	s.responses[id] = &responseURL{channel: channel, user: user, ts: ts, thread: thread, made: s.Now()}
	return s.BaseLocked() + "/response/" + id
}

func (s *Server) whisper(e Ephemeral) {
	s.lastTS = max(s.lastTS+1, s.Now().UnixMicro())
	e.TS, e.At = stamp(s.lastTS), s.Now()
	s.ephemerals = append(s.ephemerals, e)
}

// serveResponseURL takes the answers to a press: at most five within half an hour.
func (s *Server) serveResponseURL(w http.ResponseWriter, r *http.Request) {
	c, raw, problem := read(r)
	s.Serve(w, r, chattest.Exchange{
		Request: chattest.Request{Method: "response_url", Body: raw, Params: c.params, Text: c.get("text"), TS: r.PathValue("id")},
		Act: func(q *chattest.Request) chattest.Reply {
			c.req = q
			return s.responded(&c, r.PathValue("id"), problem)
		},
		Refuse: func(f chattest.Fault) chattest.Reply { return s.refuse("response_url", f) },
	})
}

func (s *Server) responded(c *call, id, problem string) chattest.Reply {
	fail := func(status int, code string) chattest.Reply {
		reply := answer(failure(code))
		reply.Status = status
		return reply
	}
	to := s.responses[id]
	switch {
	case problem != "" || !c.json:
		return fail(http.StatusInternalServerError, "invalid_payload")
	case to == nil || s.Now().Sub(to.made) > responseLife:
		return fail(http.StatusNotFound, "expired_url")
	case to.uses >= responseUses:
		return fail(http.StatusNotFound, "used_url")
	}
	to.uses++
	c.req.Channel = to.channel
	m := s.byTS[to.ts]
	switch {
	case c.flag("delete_original") && m != nil:
		m.Deleted = true
		c.object(chattest.Deleted, m)
		return answer(obj{"ok": true})
	case c.flag("replace_original") && m != nil:
		c.params["channel"], c.params["ts"] = m.Channel, m.TS
		if o := s.update(c); o["ok"] != true {
			return fail(http.StatusBadRequest, o["error"].(string))
		}
		return answer(obj{"ok": true})
	}
	n, bad := content(c, false)
	if bad != nil {
		return fail(http.StatusBadRequest, bad["error"].(string))
	}
	if c.get("response_type") == "in_channel" {
		n.Channel, n.User, n.ThreadTS = to.channel, s.opt.BotUserID, to.thread
		c.object(chattest.Created, s.store(&n))
		return answer(obj{"ok": true})
	}
	s.whisper(Ephemeral{Channel: to.channel, User: to.user, AfterTS: to.ts, ThreadTS: to.thread, Text: n.Text, Blocks: n.Blocks, Attachments: n.Attachments})
	c.req.Effect, c.req.Object = chattest.Created, to.channel+"/"+s.ephemerals[len(s.ephemerals)-1].TS
	return answer(obj{"ok": true})
}
