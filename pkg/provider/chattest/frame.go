package chattest

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"net/url"
	"strings"
	"time"
)

//go:embed assets
var assets embed.FS

// Frame is one page of a simulated chat: what surrounds the chat itself, and the views that all chats share.
type Frame struct {
	Name   string // "Slack"
	Style  string // style sheet beside the shared one, "/assets/slack.css"
	Title  string
	View   string // "chat", "faults" or "ledger"
	Space  string // name of the workspace or bot
	Note   string // what the last action of a form led to
	People []Person
	Groups []Group
	Faults []Fault
	Kinds  []Kind
	Method []string
	Places []Place
	Ledger []Entry
	Only   string // ledger filter
	Total  int    // requests received
	Body   any    // the chat's own
	q      url.Values
}

// Person is one of those as whom a page may be seen.
type Person struct {
	ID, Name string
	Current  bool
	URL      string
}

// Initials are at most two letters for a face.
func (p Person) Initials() string { return Initials(p.Name) }

// Hue is a colour class of the person, the same on every page.
func (p Person) Hue() string { return Hue(p.ID) }

// Group is a part of the side bar.
type Group struct {
	Title string
	Items []Item
}

// Item is a link in the side bar.
type Item struct {
	Sign, Label, URL string
	Current          bool
	Count            int
}

// Place is a channel or chat that a fault can be bound to.
type Place struct{ ID, Name string }

// Entry is a ledger row as the page shows it, secrets masked.
type Entry struct {
	Request
	Clock string
	What  string // effect key and beginning of the text
}

// Class sorts an entry for its colour and the filter: faulty, refused, effect, or nothing of these.
func (e Entry) Class() string {
	switch {
	case e.Fault != "":
		return "faulty"
	case e.Status >= 400 || strings.Contains(e.Answer, `"ok":false`):
		return "refused"
	case e.Effect != None:
		return "effect"
	}
	return ""
}

// NewFrame fills what comes from the core and the query.
func (c *Core) NewFrame(r *http.Request, name, style string, secrets ...string) *Frame {
	q := r.URL.Query()
	f := &Frame{Name: name, Style: style, View: q.Get("view"), Note: q.Get("note"), Kinds: Kinds, Only: q.Get("only"), q: q}
	switch f.View {
	case "faults", "ledger":
	default:
		f.View = "chat"
	}
	f.Faults, f.Total = c.Faults(), c.Requests()
	if f.View == "ledger" {
		for _, e := range c.Recent(ledgerShown * 5) {
			row := Entry{Request: e, Clock: e.At.Format("15:04:05.000")}
			if f.Only != "" && row.Class() != f.Only || len(f.Ledger) >= ledgerShown {
				continue
			}
			row.Body, row.Answer = Mask(clip(e.Body), secrets...), Mask(clip(e.Answer), secrets...)
			row.What = strings.TrimSpace(e.Key + " " + line(e.Text, 60))
			f.Ledger = append(f.Ledger, row)
		}
	}
	return f
}

// ledgerShown is how many requests the page lists; /ledger.json has all.
const ledgerShown = 100

// line is the beginning of the first line of s, at most n characters.
func line(s string, n int) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	if r := []rune(s); len(r) > n {
		return string(r[:n]) + "…"
	}
	return s
}

func clip(s string) string {
	if len(s) > 20_000 {
		return strings.ToValidUTF8(s[:20_000], "") + " …"
	}
	return s
}

// Link is the address of this page with some parameters changed; an empty value removes one.
func (f *Frame) Link(pairs ...string) string {
	q := url.Values{}
	for k, v := range f.q {
		if k != "note" {
			q[k] = v
		}
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		if q.Set(pairs[i], pairs[i+1]); pairs[i+1] == "" {
			q.Del(pairs[i])
		}
	}
	return "/?" + q.Encode()
}

// Here is the address of this page, for forms that come back.
func (f *Frame) Here() string { return f.Link() }

// Templates is the shared frame, ready to take a "body" template of the chat.
func Templates(funcs template.FuncMap) *template.Template {
	t := template.New("frame").Funcs(template.FuncMap{
		"hue": Hue, "initials": Initials, "clock": func(t time.Time) string { return t.Format("15:04") },
		"full": func(t time.Time) string { return t.Format("Mon 2 Jan 2006, 15:04:05") },
		"iso":  func(t time.Time) string { return t.Format(time.RFC3339) },
	}).Funcs(funcs)
	return template.Must(t.ParseFS(assets, "assets/*.html"))
}

// Render writes a page. Nothing is written before the whole page is made, so an error is a clean 500.
func Render(w http.ResponseWriter, t *template.Template, f *Frame) {
	var b bytes.Buffer
	if err := t.ExecuteTemplate(&b, "frame", f); err != nil {
		http.Error(w, "page: "+err.Error(), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	// No inline script or style and nothing from elsewhere: even a message that slipped through could not act.
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	_, _ = w.Write(b.Bytes())
}

// Asset serves /assets/: the shared files, then those of more.
func Asset(w http.ResponseWriter, r *http.Request, more fs.FS) {
	name := strings.TrimPrefix(r.URL.Path, "/")
	for _, from := range []fs.FS{assets, more} {
		if _, err := fs.Stat(from, name); err == nil && !strings.HasSuffix(name, ".html") {
			w.Header().Set("Cache-Control", "no-cache")
			http.ServeFileFS(w, r, from, name)
			return
		}
	}
	http.NotFound(w, r)
}

// Back ends a form of the page: JSON for the script, a redirect with the note for a browser without it.
func Back(w http.ResponseWriter, r *http.Request, note string, err error) {
	status := http.StatusOK
	if err != nil {
		note, status = err.Error(), http.StatusUnprocessableEntity
	}
	if r.Header.Get("X-Requested-With") != "" {
		writeJSON(w, status, map[string]string{"note": note})
		return
	}
	back, perr := url.Parse(r.FormValue("back"))
	// Only a place on this page: the field comes from outside.
	if perr != nil || back.Host != "" || back.Scheme != "" || back.Path != "/" {
		back = &url.URL{Path: "/"}
	}
	q := back.Query()
	if q.Del("note"); note != "" {
		q.Set("note", note)
	}
	back.RawQuery = q.Encode()
	http.Redirect(w, r, back.String(), http.StatusSeeOther)
}

// SameOrigin refuses forms that another site sends.
func SameOrigin(h http.Handler) http.Handler { return http.NewCrossOriginProtection().Handler(h) }

// Hue is one of eight colour classes, chosen by id.
func Hue(id string) string {
	n := 0
	for _, b := range []byte(id) {
		n = n*31 + int(b)
	}
	return fmt.Sprintf("hue%d", ((n%8)+8)%8)
}

// Initials are the first letters of the first and the last word.
func Initials(name string) string {
	words := strings.Fields(name)
	out := ""
	for i, w := range words {
		if i == 0 || i == len(words)-1 {
			out += strings.ToUpper(string([]rune(w)[:1]))
		}
	}
	return out
}

// SafeURL lets through addresses that can do nothing but be opened.
func SafeURL(raw string) string {
	u, err := url.Parse(strings.TrimSpace(raw))
	if err != nil {
		return ""
	}
	switch strings.ToLower(u.Scheme) {
	case "http", "https":
		if u.Host == "" {
			return ""
		}
		return u.String()
	case "mailto":
		return u.String()
	}
	return ""
}
