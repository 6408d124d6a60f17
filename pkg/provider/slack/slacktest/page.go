package slacktest

import (
	"cmp"
	"embed"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/tocsin-oncall/tocsin/pkg/provider/chattest"
)

//go:embed assets
var assets embed.FS

// shownMost is how many messages of a channel the page draws, previewMost how many replies below their parent.
const (
	shownMost   = 100
	previewMost = 3
)

// page draws the workspace and takes what people do there.
type page struct {
	s   *Server
	t   *template.Template
	mux http.Handler
}

// view is the body of a page.
type view struct {
	*chattest.Frame
	Channel  Channel
	Direct   bool
	Sign     string
	Messages []messageView
	Earlier  int
	Thread   []messageView
	ThreadTS string
	Close    string
	As       string
	Commands bool
}

func newPage(s *Server) *page {
	// pair hands a part of a message and the message itself to one template; without a message its buttons are dead.
	pair := func(part any, m any) map[string]any { return map[string]any{"Part": part, "Message": m} }
	p := &page{s: s, t: template.Must(chattest.Templates(template.FuncMap{"pair": pair}).ParseFS(assets, "assets/*.html"))}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", p.show)
	mux.HandleFunc("GET /archives/{channel}/{message}", p.permalink)
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
	f := p.s.NewFrame(r, "Slack", "/assets/slack.css", p.s.Options().Token)
	f.Space, f.Method = p.s.opt.TeamName, Methods
	v := &view{Frame: f}
	q := r.URL.Query()
	p.s.Read(func() { p.fill(v, q) })
	f.Title, f.Body = v.Sign+v.Channel.Name, v
	chattest.Render(w, p.t, f)
}

// fill gathers what the page shows. The lock is held; messages are copied.
func (p *page) fill(v *view, q url.Values) {
	s := p.s
	var people []*User
	for _, u := range s.users {
		if u.ID != s.opt.BotUserID {
			people = append(people, u)
		}
	}
	if len(people) > 0 {
		v.As = people[0].ID
	}
	if s.user(q.Get("as")) != nil {
		v.As = q.Get("as")
	}
	for _, u := range people {
		v.People = append(v.People, chattest.Person{ID: u.ID, Name: first(u.RealName, u.Name), Current: u.ID == v.As, URL: v.Link("as", u.ID)})
	}
	current := s.channel(s.resolved(q.Get("c")))
	if current == nil && len(s.channels) > 0 {
		current = s.channels[0]
	}
	if current == nil {
		return
	}
	v.Channel, v.Direct, v.Sign = *current, current.user != "", sign(current)
	v.Commands = s.opt.CommandURL != "" || s.opt.AppToken != ""
	who := s.names()
	channels, direct := chattest.Group{Title: "Channels"}, chattest.Group{Title: "Direct messages of tocsin"}
	for _, c := range s.channels {
		item := chattest.Item{Sign: sign(c), Label: c.Name, URL: v.Link("c", c.ID, "thread", "", "view", "", "at", ""), Current: c == current && v.View == "chat", Count: s.alive(c.ID)}
		if c.user != "" {
			item.Label = who(c.user)
			direct.Items = append(direct.Items, item)
		} else {
			channels.Items = append(channels.Items, item)
		}
		v.Places = append(v.Places, chattest.Place{ID: c.ID, Name: sign(c) + item.Label})
	}
	for _, u := range people { // a fault may be bound to the user id that a post names
		v.Places = append(v.Places, chattest.Place{ID: u.ID, Name: u.ID + " " + first(u.RealName, u.Name)})
	}
	v.Groups = append(v.Groups, channels)
	if len(direct.Items) > 0 {
		v.Groups = append(v.Groups, direct)
	}
	if v.Direct {
		v.Channel.Name = who(current.user)
	}
	if v.View == "chat" {
		p.messages(v, q, who)
	}
}

func sign(c *Channel) string {
	switch {
	case c.user != "":
		return "@"
	case c.Private:
		return "🔒"
	}
	return "#"
}

func (s *Server) alive(channel string) (n int) {
	for _, m := range s.messages[channel] {
		if !m.Deleted {
			n++
		}
	}
	return n
}

// names resolves ids of people and channels. The lock is held while it is used.
func (s *Server) names() names {
	return func(id string) string {
		if u := s.user(id); u != nil {
			return first(u.RealName, u.Name)
		}
		if c := s.channel(id); c != nil {
			return c.Name
		}
		return id
	}
}

// messages draws the newest roots of the channel, or those around the one that a link names, and the open thread.
func (p *page) messages(v *view, q url.Values, who names) {
	s := p.s
	var roots []*Message
	threads := map[string][]*Message{}
	for _, m := range s.messages[v.Channel.ID] {
		if m.Deleted {
			continue
		}
		if m.ThreadTS != "" {
			threads[m.ThreadTS] = append(threads[m.ThreadTS], m)
		}
		if m.ThreadTS == "" || m.Broadcast {
			roots = append(roots, m)
		}
	}
	end := len(roots)
	if at := q.Get("at"); at != "" {
		if i := slices.IndexFunc(roots, func(m *Message) bool { return m.TS == at }); i >= 0 && i < end-shownMost {
			end = i + shownMost/2
		}
	}
	v.Earlier = max(end-shownMost, 0)
	for _, m := range roots[v.Earlier:end] {
		d := p.draw(v, m, who)
		if replies := threads[m.TS]; len(replies) > 0 {
			d.ReplyCount, d.LastReply = len(replies), replies[len(replies)-1].At
			for _, r := range replies[max(len(replies)-previewMost, 0):] {
				d.Replies = append(d.Replies, p.draw(v, r, who))
			}
		}
		v.Messages = append(v.Messages, d)
	}
	thread := s.byTS[q.Get("thread")]
	if thread != nil && thread.Channel == v.Channel.ID && !thread.Deleted {
		v.ThreadTS = thread.TS
		v.Close = v.Link("thread", "", "at", "")
		v.Thread = append(v.Thread, p.draw(v, thread, who))
		replies := threads[thread.TS]
		for _, r := range replies[max(len(replies)-shownMost, 0):] {
			v.Thread = append(v.Thread, p.draw(v, r, who))
		}
	}
	for _, e := range s.ephemerals[max(len(s.ephemerals)-shownMost, 0):] {
		if e.Channel != v.Channel.ID || e.User != v.As {
			continue
		}
		d := draw(Message{Channel: e.Channel, TS: e.TS, User: s.opt.BotUserID, Text: e.Text, Blocks: e.Blocks, Attachments: e.Attachments, At: e.At}, who)
		d.Bot, d.Private = true, true
		d.Who = who(s.opt.BotUserID)
		if e.ThreadTS != "" && e.ThreadTS == v.ThreadTS {
			v.Thread = append(v.Thread, d)
		} else {
			v.Messages = append(v.Messages, d)
		}
	}
	order := func(a, b messageView) int { return cmp.Compare(a.TS, b.TS) } // one width, so text order is time order
	slices.SortStableFunc(v.Messages, order)
	slices.SortStableFunc(v.Thread, order)
}

func (p *page) draw(v *view, m *Message, who names) messageView {
	d := draw(*m, who)
	d.Bot = m.User == p.s.opt.BotUserID
	d.As, d.Back = v.As, v.Here()
	d.ThreadURL = v.Link("thread", first(m.ThreadTS, m.TS), "c", m.Channel)
	d.Link = "/archives/" + m.Channel + "/p" + strings.ReplaceAll(m.TS, ".", "")
	return d
}

// permalink opens a message by the address that chat.getPermalink gave.
func (p *page) permalink(w http.ResponseWriter, r *http.Request) {
	var target string
	digits := strings.TrimPrefix(r.PathValue("message"), "p")
	p.s.Read(func() {
		if len(digits) <= 6 {
			return
		}
		ts := digits[:len(digits)-6] + "." + digits[len(digits)-6:]
		m := p.s.byTS[ts]
		if m == nil || m.Channel != r.PathValue("channel") {
			return
		}
		q := url.Values{"c": {m.Channel}, "at": {first(m.ThreadTS, m.TS)}}
		if m.ThreadTS != "" {
			q.Set("thread", m.ThreadTS)
		}
		if c := p.s.channel(m.Channel); c.user != "" {
			q.Set("as", c.user)
		}
		target = "/?" + q.Encode() + "#m" + digits
	})
	if target == "" {
		http.Error(w, "There is no such message in this simulated workspace; it may have been restarted since.", http.StatusNotFound)
		return
	}
	http.Redirect(w, r, target, http.StatusFound)
}

func (p *page) press(w http.ResponseWriter, r *http.Request) {
	a, err := p.s.Press(r.Context(), r.FormValue("ts"), r.FormValue("action"), r.FormValue("as"))
	note := ""
	if err == nil && a.Status != http.StatusOK {
		note = "The receiver answered the press with " + http.StatusText(a.Status) + " " + strings.TrimSpace(a.Body)
	}
	chattest.Back(w, r, note, err)
}

// say writes as a person; a text that begins with "/" is a slash command.
func (p *page) say(w http.ResponseWriter, r *http.Request) {
	text := strings.TrimSpace(r.FormValue("text"))
	if text == "" {
		chattest.Back(w, r, "", nil)
		return
	}
	if command, rest, _ := strings.Cut(text, " "); strings.HasPrefix(text, "/") {
		_, err := p.s.Command(r.Context(), r.FormValue("channel"), r.FormValue("as"), command, rest)
		chattest.Back(w, r, "", err)
		return
	}
	_, err := p.s.Say(r.FormValue("channel"), r.FormValue("as"), text)
	chattest.Back(w, r, "", err)
}
