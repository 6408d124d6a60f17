package slacktest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/tocsin-oncall/tocsin/pkg/provider/chattest"
)

// bodyLimit bounds a request body: Slack's own limits lie far below.
const bodyLimit = 4 << 20

// call is one API call with its parameters as text; lists and objects in a JSON body are kept as JSON.
type call struct {
	params map[string]string
	json   bool
	token  string
	host   string
	req    *chattest.Request
}

func (c *call) get(name string) string { return c.params[name] }
func (c *call) has(name string) bool   { _, ok := c.params[name]; return ok }
func (c *call) flag(name string) bool  { v := c.params[name]; return v == "1" || v == "true" }
func (c *call) object(e chattest.Effect, m *Message) {
	c.req.Effect, c.req.Object = e, m.Channel+"/"+m.TS
}

// obj is a JSON object of an answer.
type obj map[string]any

// failure is ok:false with a code; the messages become response_metadata.messages.
func failure(code string, messages ...string) obj {
	o := obj{"ok": false, "error": code}
	if len(messages) > 0 {
		o["response_metadata"] = obj{"messages": messages}
	}
	return o
}

// read takes a request apart. A body shorter than announced is what Slack calls request_timeout.
func read(r *http.Request) (c call, raw string, problem string) {
	c = call{params: map[string]string{}, host: r.Host}
	body, err := io.ReadAll(io.LimitReader(r.Body, bodyLimit))
	raw = string(body)
	if err != nil {
		return c, raw, "request_timeout"
	}
	for k, v := range r.URL.Query() {
		c.params[k] = v[0]
	}
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case kind == "application/json":
		c.json = true
		if len(bytes.TrimSpace(body)) > 0 {
			fields := map[string]json.RawMessage{}
			if json.Unmarshal(body, &fields) != nil {
				problem = "invalid_json"
			}
			for k, v := range fields {
				var text string
				if json.Unmarshal(v, &text) == nil && string(v) != "null" {
					c.params[k] = text
				} else if string(v) != "null" {
					c.params[k] = string(v)
				}
			}
		}
	case kind == "multipart/form-data":
		r.Body = io.NopCloser(bytes.NewReader(body))
		if r.ParseMultipartForm(bodyLimit) != nil {
			problem = "invalid_form_data"
			break
		}
		for k, v := range r.PostForm {
			c.params[k] = v[0]
		}
	case kind == "application/x-www-form-urlencoded":
		form, err := url.ParseQuery(raw)
		if err != nil {
			problem = "invalid_form_data"
		}
		for k, v := range form {
			c.params[k] = v[0]
		}
	case len(body) > 0:
		problem = "invalid_post_type"
	}
	c.token = c.params["token"]
	if t, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		c.token = t
	}
	delete(c.params, "token")
	return c, raw, problem
}

// methods are the API methods that the workspace knows. Each runs under the lock.
var methods = map[string]func(*Server, *call) obj{
	"api.test":              func(*Server, *call) obj { return obj{"ok": true} },
	"auth.test":             (*Server).authTest,
	"apps.connections.open": (*Server).connectionsOpen,
	"chat.postMessage":      (*Server).postMessage,
	"chat.postEphemeral":    (*Server).postEphemeral,
	"chat.update":           (*Server).update,
	"chat.delete":           (*Server).deleteMessage,
	"chat.getPermalink":     (*Server).getPermalink,
	"conversations.open":    (*Server).conversationsOpen,
	"conversations.info":    (*Server).conversationsInfo,
	"conversations.list":    (*Server).conversationsList,
	"conversations.join":    (*Server).conversationsJoin,
	"conversations.history": (*Server).history,
	"conversations.replies": (*Server).replies,
	"users.lookupByEmail":   (*Server).lookupByEmail,
	"users.info":            (*Server).usersInfo,

	"usergroups.users.update": (*Server).usergroupsUsersUpdate,
	"reactions.add":           (*Server).reactionsAdd,
	"reactions.remove":        (*Server).reactionsRemove,
}

// Methods are the API methods that the workspace knows, for the fault panel; "webhook" and "response_url" stand for
// the addresses outside /api/.
var Methods = []string{
	"chat.postMessage", "chat.update", "chat.delete", "chat.getPermalink", "chat.postEphemeral", "auth.test",
	"conversations.open", "conversations.info", "conversations.list", "conversations.join", "conversations.history",
	"conversations.replies", "users.lookupByEmail", "users.info", "usergroups.users.update", "reactions.add", "reactions.remove", "api.test",
	"apps.connections.open", "webhook", "response_url",
}

func (s *Server) serveAPI(w http.ResponseWriter, r *http.Request) {
	c, raw, problem := read(r)
	method := r.PathValue("method")
	run, known := methods[method]
	s.Serve(w, r, chattest.Exchange{
		Request: chattest.Request{
			Method: method, Body: raw, Params: c.params, Channel: first(c.get("channel"), c.get("users"), c.get("user")),
			TS: first(c.get("ts"), c.get("message_ts"), c.get("timestamp"), c.get("thread_ts")), Text: c.get("text"), Key: effectKey([]byte(c.get("metadata"))),
		},
		Act: func(q *chattest.Request) chattest.Reply {
			c.req = q
			switch {
			case problem != "":
				return answer(failure(problem))
			case c.token == "":
				return answer(failure("not_authed"))
			case method == "apps.connections.open" && (s.opt.AppToken == "" || c.token != s.opt.AppToken):
				return answer(failure("invalid_auth"))
			case method == "apps.connections.open":
				return answer(run(s, &c))
			case c.token != s.opt.Token:
				return answer(failure("invalid_auth"))
			case s.rules.revoked:
				return answer(failure("token_revoked"))
			case !known:
				return answer(obj{"ok": false, "error": "unknown_method", "req_method": method})
			}
			needed := s.needed(method, &c)
			reply := answer(s.missing(needed))
			if s.may(needed) {
				if wait := s.limit(method, s.resolved(c.get("channel")), q); wait > 0 {
					return tooMany(false, wait)
				}
				reply = answer(run(s, &c))
			}
			reply.Header = map[string]string{"X-Oauth-Scopes": strings.Join(s.opt.Scopes, ","), "X-Accepted-Oauth-Scopes": strings.Join(needed, ",")}
			return reply
		},
		Refuse: func(f chattest.Fault) chattest.Reply { return s.refuse(method, f) },
	})
}

// refuse is Slack's own form of the faults.
func (s *Server) refuse(method string, f chattest.Fault) chattest.Reply {
	var reply chattest.Reply
	switch f.Kind {
	case chattest.Limited:
		reply = answer(obj{"ok": false, "error": "ratelimited"})
		if method == "webhook" {
			reply = answer(obj{"retry_after": f.RetrySeconds(s.Now()), "ok": false, "error": "rate_limited"})
		}
		reply.Status = http.StatusTooManyRequests
	case chattest.Error:
		reply = answer(failure("internal_error"))
		reply.Status = http.StatusInternalServerError
		if f.Status != 0 {
			reply.Status = f.Status
		}
		if reply.Status == http.StatusServiceUnavailable {
			reply.Body, _ = json.Marshal(failure("service_unavailable"))
		}
	case chattest.Revoked:
		reply = answer(failure("token_revoked"))
		if method == "webhook" {
			reply = hookText("invalid_token")
		}
	default:
		o := failure(f.Code)
		if f.Code == missingScope {
			o["needed"], o["provided"] = "chat:write", "identify"
		}
		reply = answer(o)
		if method == "webhook" {
			reply = hookText(f.Code)
		}
		if f.Status != 0 {
			reply.Status = f.Status
		}
	}
	return reply
}

func answer(o obj) chattest.Reply {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(o); err != nil {
		return chattest.Reply{Status: http.StatusInternalServerError, Body: fmt.Appendf(nil, `{"ok":false,"error":"internal_error","detail":%q}`, err)}
	}
	return chattest.Reply{Status: http.StatusOK, Body: bytes.TrimSpace(b.Bytes())}
}

func effectKey(metadata []byte) string {
	var m struct {
		Payload map[string]any `json:"event_payload"`
	}
	if json.Unmarshal(metadata, &m) != nil {
		return ""
	}
	key, _ := m.Payload["effect_key"].(string)
	return key
}

func first(v ...string) string {
	for _, s := range v {
		if s != "" {
			return s
		}
	}
	return ""
}

func number(s string, fallback int) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		return fallback
	}
	return n
}
