package slacktest

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/tocsin-oncall/tocsin/pkg/provider/chattest"
)

// hookStatus are the statuses with which hooks.slack.com refuses; what is not listed is a 400.
var hookStatus = map[string]int{
	"action_prohibited": 403, "posting_to_general_channel_denied": 403, "invalid_token": 403, "team_disabled": 403,
	"channel_not_found": 404, "no_service": 404, "no_service_id": 404, "no_active_hooks": 404, "no_team": 404,
	"channel_is_archived": 410, "rollup_error": 500,
}

// hookText is an answer of an incoming webhook: plain text, not JSON.
func hookText(code string) chattest.Reply {
	status := hookStatus[code]
	if status == 0 {
		status = http.StatusBadRequest
	}
	if code == "ok" {
		status = http.StatusOK
	}
	return chattest.Reply{Status: status, Type: "text/html", Body: []byte(code)}
}

// serveWebhook is an incoming webhook: one channel per URL, no reference comes back.
func (s *Server) serveWebhook(w http.ResponseWriter, r *http.Request) {
	c, raw, problem := read(r)
	i := slices.IndexFunc(s.opt.Webhooks, func(h Webhook) bool { return h.Path == r.URL.Path })
	if form, err := url.ParseQuery(raw); !c.json && err == nil && form.Has("payload") {
		raw = form.Get("payload")
	}
	var body struct {
		Text        string          `json:"text"`
		Blocks      json.RawMessage `json:"blocks"`
		Attachments json.RawMessage `json:"attachments"`
	}
	if json.Unmarshal([]byte(raw), &body) != nil || !strings.HasPrefix(strings.TrimSpace(raw), "{") {
		problem = "invalid_payload"
	} else if problem == "invalid_post_type" {
		problem = "" // the hook takes JSON under any content type
	}
	q := chattest.Request{Method: "webhook", Body: raw, Params: c.params, Text: body.Text}
	if i >= 0 {
		q.Channel = s.opt.Webhooks[i].Channel
	}
	s.Serve(w, r, chattest.Exchange{
		Request: q,
		Act: func(q *chattest.Request) chattest.Reply {
			if i < 0 {
				return hookText("no_service")
			}
			if r.Method != http.MethodPost || problem != "" {
				return hookText("invalid_payload")
			}
			return s.hook(q, body.Text, body.Blocks, body.Attachments)
		},
		Refuse: func(f chattest.Fault) chattest.Reply { return s.refuse("webhook", f) },
	})
}

func (s *Server) hook(q *chattest.Request, text string, blocks, attachments json.RawMessage) chattest.Reply {
	c := s.channel(q.Channel)
	switch {
	case c == nil:
		return hookText("channel_not_found")
	case c.Archived:
		return hookText("channel_is_archived")
	}
	if wait := s.limit("webhook", c.ID, q); wait > 0 {
		return tooMany(true, wait)
	}
	args := &call{params: map[string]string{"text": text, "blocks": unnull(blocks), "attachments": unnull(attachments)}}
	m, fail := content(args, false)
	if fail != nil {
		return hookText(fail["error"].(string))
	}
	m.Channel, m.User, m.webhook = c.ID, s.opt.BotUserID, true
	stored := s.store(&m)
	q.Effect, q.Object = chattest.Created, c.ID+"/"+stored.TS
	return hookText("ok")
}

func unnull(raw json.RawMessage) string {
	if string(raw) == "null" {
		return ""
	}
	return string(raw)
}
