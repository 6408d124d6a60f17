package telegramtest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/tocsin-oncall/tocsin/pkg/provider/chattest"
)

const bodyLimit = 4 << 20

// call is one API call with its parameters as text.
type call struct {
	params map[string]string
	req    *chattest.Request
	stale  bool // getUpdates: another poller came
}

func (c *call) get(name string) string { return c.params[name] }
func (c *call) flag(name string) bool {
	v := strings.ToLower(c.params[name])
	return v == "true" || v == "1" || v == "yes"
}

// result is the outcome of a method: a value, or an error with Telegram's code and description.
type result struct {
	value       any
	code        int
	description string
	parameters  obj
}

func ok(v any) result { return result{value: v} }

func bad(description string) result {
	return result{code: 400, description: "Bad Request: " + description}
}

func forbidden(description string) result {
	return result{code: 403, description: "Forbidden: " + description}
}

// methods are the API methods that the bot knows, by lower-case name. Each runs under the lock.
var methods = map[string]func(*Server, *call) result{
	"getme":                  (*Server).getMe,
	"getchat":                (*Server).getChat,
	"getchatmember":          (*Server).getChatMember,
	"sendmessage":            (*Server).sendMessage,
	"editmessagetext":        (*Server).editMessageText,
	"editmessagereplymarkup": (*Server).editMessageReplyMarkup,
	"deletemessage":          (*Server).deleteMessage,
	"answercallbackquery":    (*Server).answerCallbackQuery,
	"setwebhook":             (*Server).setWebhook,
	"getwebhookinfo":         (*Server).getWebhookInfo,
	"deletewebhook":          (*Server).deleteWebhook,
	"getupdates":             (*Server).getUpdates,
}

// Methods are the same names as Telegram spells them, for the ledger and the fault panel.
var Methods = []string{"sendMessage", "editMessageText", "editMessageReplyMarkup", "deleteMessage", "answerCallbackQuery",
	"getMe", "getChat", "getChatMember", "setWebhook", "getWebhookInfo", "deleteWebhook", "getUpdates"}

// route tells API calls from the page. A path that begins as a bot's but is none is a 404 in the API's form.
func (s *Server) route(w http.ResponseWriter, r *http.Request) {
	rest, isBot := strings.CutPrefix(r.URL.Path, "/bot")
	if !isBot {
		s.page.ServeHTTP(w, r)
		return
	}
	token, name, _ := strings.Cut(rest, "/")
	c, raw, problem := read(r)
	run, known := methods[strings.ToLower(name)]
	shown := name
	if i := slices.IndexFunc(Methods, func(m string) bool { return strings.EqualFold(m, name) }); i >= 0 {
		shown = Methods[i]
	}
	chat := id64(c.get("chat_id"))
	x := chattest.Exchange{
		Request: chattest.Request{Method: shown, Body: raw, Params: c.params, Channel: c.get("chat_id"), TS: c.get("message_id"), Text: c.get("text")},
		Act: func(q *chattest.Request) chattest.Reply {
			c.req = q
			switch {
			case !wellFormed(token) || name == "" || strings.Contains(name, "/"):
				return answer(result{code: 404, description: "Not Found"})
			case token != s.opt.Token:
				return answer(result{code: 401, description: "Unauthorized"})
			case !known:
				return answer(result{code: 404, description: "Not Found: method not found"})
			case problem != "":
				return answer(bad(problem))
			}
			return answer(s.limited(shown, chat, func() result { return run(s, &c) }))
		},
		Refuse: func(f chattest.Fault) chattest.Reply {
			if f.Kind == chattest.Limited {
				s.told(chat, f)
			}
			return s.refuse(f)
		},
	}
	if paced(shown) {
		s.arrive(shown, chat)
	}
	if shown == "getUpdates" && token == s.opt.Token {
		turn := s.turn()
		x.Wait = func(ctx context.Context) { s.await(ctx, &c, turn) }
	}
	s.Serve(w, r, x)
}

// wellFormed says that a token has the shape of one: digits, a colon, and more.
func wellFormed(token string) bool {
	number, secret, found := strings.Cut(token, ":")
	return found && number != "" && secret != "" && strings.Trim(number, "0123456789") == ""
}

// read takes a request apart: query, form, multipart and JSON, as the Bot API accepts them.
func read(r *http.Request) (c call, raw, problem string) {
	c = call{params: map[string]string{}}
	for k, v := range r.URL.Query() {
		c.params[k] = v[0]
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, bodyLimit))
	raw = string(body)
	if err != nil {
		return c, raw, "unexpected end of the request body"
	}
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch kind {
	case "application/json":
		fields := map[string]json.RawMessage{}
		if len(bytes.TrimSpace(body)) > 0 && json.Unmarshal(body, &fields) != nil {
			problem = "can't parse request body: JSON object expected"
		}
		for k, v := range fields {
			var text string
			if json.Unmarshal(v, &text) != nil {
				text = string(v)
			}
			c.params[k] = text
		}
	case "multipart/form-data":
		r.Body = io.NopCloser(bytes.NewReader(body))
		if r.ParseMultipartForm(bodyLimit) != nil {
			problem = "can't parse multipart body"
			break
		}
		for k, v := range r.PostForm {
			c.params[k] = v[0]
		}
	case "application/x-www-form-urlencoded":
		form, _ := url.ParseQuery(raw)
		for k, v := range form {
			c.params[k] = v[0]
		}
	}
	return c, raw, problem
}

// answer writes a result in the API's form; the HTTP status is the error code.
func answer(r result) chattest.Reply {
	o, status := obj{"ok": true, "result": r.value}, http.StatusOK
	if r.code != 0 {
		status = r.code
		o = obj{"ok": false, "error_code": r.code, "description": r.description}
		if r.parameters != nil {
			o["parameters"] = r.parameters
		}
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(o) // only maps, slices, strings and numbers
	reply := chattest.Reply{Status: status, Type: "application/json", Body: bytes.TrimSpace(b.Bytes())}
	if n, ok := r.parameters["retry_after"].(int); ok {
		reply.Header = map[string]string{"Retry-After": itoa(n)}
	}
	return reply
}

// refuse is Telegram's own form of the faults.
func (s *Server) refuse(f chattest.Fault) chattest.Reply {
	switch f.Kind {
	case chattest.Limited:
		reply := answer(slow(f.RetrySeconds(s.Now())))
		reply.Header = nil // the fault says what the header has
		return reply
	case chattest.Error:
		r := result{code: 500, description: "Internal Server Error: restart"}
		if f.Status != 0 && f.Status != 500 {
			r = result{code: f.Status, description: http.StatusText(f.Status)}
		}
		return answer(r)
	case chattest.Revoked:
		return answer(result{code: 401, description: "Unauthorized"})
	}
	r := result{code: 400, description: f.Code}
	if strings.HasPrefix(f.Code, "Forbidden") {
		r.code = 403
	}
	if f.Status != 0 {
		r.code = f.Status
	}
	return answer(r)
}
