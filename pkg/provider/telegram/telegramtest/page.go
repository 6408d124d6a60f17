package telegramtest

import (
	"cmp"
	"embed"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/provider/chattest"
)

//go:embed assets
var assets embed.FS

// shownMost is how many messages of a chat the page draws.
const shownMost = 100

// page draws the chats and takes what people do there.
type page struct {
	s   *Server
	t   *template.Template
	mux http.Handler
}

// view is the body of a page.
type view struct {
	*chattest.Frame
	Chat     Chat
	Kind     string
	Private  bool
	Trouble  string // why the bot cannot write here
	Messages []messageView
	Earlier  int
	As       string
}

// messageView is a message as the page draws it.
type messageView struct {
	ID, Anchor, Who string
	From            string
	Bot, Mine       bool
	At              time.Time
	Text            template.HTML
	Topic           string
	ReplyAnchor     string
	ReplyWho        string
	ReplyText       string
	Rows            [][]buttonView
	Edits           []versionView
	Answer          bool // a private answer to a press
	Alert           bool
	Chat, As, Back  string
	Start           bool   // of an answer: it opens the bot's chat, where Start hands in the code
	Code            string //
}

type buttonView struct{ Label, Data, URL string }

type versionView struct {
	Text  template.HTML
	Until time.Time
}

func newPage(s *Server) *page {
	p := &page{s: s, t: template.Must(chattest.Templates(nil).ParseFS(assets, "assets/*.html"))}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", p.show)
	mux.HandleFunc("POST /page/press", p.press)
	mux.HandleFunc("POST /page/say", p.say)
	mux.HandleFunc("GET /assets/", func(w http.ResponseWriter, r *http.Request) { chattest.Asset(w, r, assets) })
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if !s.ServeTools(w, r, s.opt.Token) {
			http.NotFound(w, r)
		}
	})
	p.mux = chattest.SameOrigin(mux)
	return p
}

func (p *page) ServeHTTP(w http.ResponseWriter, r *http.Request) { p.mux.ServeHTTP(w, r) }

func (p *page) show(w http.ResponseWriter, r *http.Request) {
	f := p.s.NewFrame(r, "Telegram", "/assets/telegram.css", p.s.opt.Token)
	f.Space, f.Method = "@"+p.s.opt.BotUsername, Methods
	v := &view{Frame: f}
	q := r.URL.Query()
	p.s.Read(func() { p.fill(v, q) })
	f.Title, f.Body = v.Chat.Title, v
	chattest.Render(w, p.t, f)
}

// fill gathers what the page shows. The lock is held.
func (p *page) fill(v *view, q url.Values) {
	s := p.s
	as := int64(0)
	if len(s.users) > 0 {
		as = s.users[0].ID
	}
	if u := s.user(id64(q.Get("as"))); u != nil {
		as = u.ID
	}
	v.As = text64(as)
	for _, u := range s.users {
		v.People = append(v.People, chattest.Person{ID: text64(u.ID), Name: u.name(), Current: u.ID == as, URL: v.Link("as", text64(u.ID))})
	}
	current := s.chat(id64(q.Get("c")))
	if current == nil && len(s.chats) > 0 {
		current = s.chats[0]
	}
	if current == nil {
		return
	}
	v.Chat, v.Private, v.Kind = *current, current.user != 0, current.Type
	v.Trouble = s.trouble(current)
	groups, private := chattest.Group{Title: "Groups"}, chattest.Group{Title: "Private chats of the bot"}
	for _, c := range s.chats {
		item := chattest.Item{Sign: "👥", Label: c.Title, URL: v.Link("c", text64(c.ID), "view", ""), Current: c == current && v.View == "chat", Count: s.alive(c.ID)}
		if c.user != 0 {
			item.Sign = "👤"
			private.Items = append(private.Items, item)
		} else {
			groups.Items = append(groups.Items, item)
		}
		v.Places = append(v.Places, chattest.Place{ID: text64(c.ID), Name: c.Title + " " + text64(c.ID)})
	}
	for _, g := range []chattest.Group{groups, private} {
		if len(g.Items) > 0 {
			v.Groups = append(v.Groups, g)
		}
	}
	if v.View == "chat" {
		p.messages(v, current, as)
	}
}

// trouble says in a few words why the bot cannot write into a chat.
func (s *Server) trouble(c *Chat) string {
	if u := s.user(c.user); u != nil {
		switch {
		case u.Blocked:
			return "has blocked the bot"
		case u.NeverStarted:
			return "has never started the bot"
		case u.Deactivated:
			return "is deactivated"
		}
	}
	switch {
	case c.Kicked:
		return "the bot was removed"
	case c.MigratedTo != 0:
		return "upgraded to " + text64(c.MigratedTo)
	case c.ReadOnly:
		return "the bot may not write"
	}
	return ""
}

func (s *Server) alive(chat int64) (n int) {
	for _, m := range s.messages[chat] {
		if !m.Deleted {
			n++
		}
	}
	return n
}

func (s *Server) nameOf(id int64) string {
	if u := s.user(id); u != nil {
		return u.name()
	}
	return "tocsin"
}

func (p *page) messages(v *view, c *Chat, as int64) {
	s := p.s
	all := slices.DeleteFunc(slices.Clone(s.messages[c.ID]), func(m *Message) bool { return m.Deleted })
	v.Earlier = max(len(all)-shownMost, 0)
	for _, m := range all[v.Earlier:] {
		d := messageView{ID: strconv.Itoa(m.ID), Anchor: fmt.Sprintf("m%d", m.ID), Who: s.nameOf(m.From), From: text64(m.From), Bot: m.From == s.opt.BotID,
			Mine: m.From == as, At: m.At, Text: rendered(m.Text, m.Entities), Chat: text64(c.ID), As: v.As, Back: v.Here()}
		if i := slices.IndexFunc(c.Topics, func(t Topic) bool { return t.ID == m.Thread }); i >= 0 {
			d.Topic = c.Topics[i].Name
		}
		if r := s.message(c.ID, m.ReplyTo); r != nil {
			d.ReplyAnchor, d.ReplyWho, d.ReplyText = fmt.Sprintf("m%d", r.ID), s.nameOf(r.From), begin(r.Text)
			if r.Deleted {
				d.ReplyText = "deleted message"
			}
		}
		for _, row := range m.Keyboard {
			var out []buttonView
			for _, b := range row {
				out = append(out, buttonView{b.Text, b.Data, chattest.SafeURL(b.URL)})
			}
			d.Rows = append(d.Rows, out)
		}
		for _, e := range m.Edits {
			d.Edits = append(d.Edits, versionView{rendered(e.Text, e.Entities), e.Until})
		}
		v.Messages = append(v.Messages, d)
	}
	for i, a := range s.answers[max(len(s.answers)-shownMost, 0):] {
		code, start := s.startCode(a.URL)
		if a.Chat == c.ID && a.User == as && (a.Text != "" || start) {
			v.Messages = append(v.Messages, messageView{Anchor: fmt.Sprintf("a%d", i), Answer: true, Alert: a.Alert, At: a.At,
				Text: rendered(a.Text, nil), Start: start, Code: code, As: v.As, Back: v.Link("c", v.As)})
		}
	}
	slices.SortStableFunc(v.Messages, func(a, b messageView) int { return cmp.Compare(a.At.UnixNano(), b.At.UnixNano()) })
}

func begin(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	if r := []rune(s); len(r) > 80 {
		s = string(r[:80]) + "…"
	}
	return s
}

func text64(n int64) string { return strconv.FormatInt(n, 10) }

func (p *page) press(w http.ResponseWriter, r *http.Request) {
	id, _ := strconv.Atoi(r.FormValue("message"))
	a, err := p.s.Press(r.Context(), id64(r.FormValue("chat")), id, r.FormValue("action"), id64(r.FormValue("as")))
	note := ""
	switch {
	case err != nil:
	case a.Queued:
		note = "No webhook is set: the press waits for getUpdates."
	case a.Status < 200 || a.Status > 299:
		note = fmt.Sprintf("The receiver answered the press with %d %s", a.Status, strings.TrimSpace(a.Body))
	}
	chattest.Back(w, r, note, err)
}

func (p *page) say(w http.ResponseWriter, r *http.Request) {
	text := strings.TrimSpace(r.FormValue("text"))
	if text == "" {
		chattest.Back(w, r, "", nil)
		return
	}
	if _, link := p.s.startCode(text); link { // as Telegram does with a link to a bot, and Start pressed at once
		_, err := p.s.Open(r.Context(), id64(r.FormValue("as")), text)
		chattest.Back(w, r, "Start was pressed in the private chat with the bot.", err)
		return
	}
	_, err := p.s.Say(r.Context(), id64(r.FormValue("chat")), id64(r.FormValue("as")), text)
	chattest.Back(w, r, "", err)
}
