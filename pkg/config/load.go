package config

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/oncall"
	"github.com/tocsin-oncall/tocsin/pkg/redact"
)

// Load reads and checks the file at path. Env is the environment, [os.LookupEnv]. See [Parse].
func Load(path string, env func(string) (string, bool)) (*File, *redact.Set, error) {
	text, err := read(path)
	if err != nil {
		return nil, redact.New(nil), Errors{{File: path, Message: err.Error()}}
	}
	return Parse(path, text, env)
}

// read gives at most one byte more than Parse takes, whatever lies at path.
func read(path string) ([]byte, error) {
	f, err := os.Open(path) //nolint:gosec // the operator names the file
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return io.ReadAll(io.LimitReader(f, MaxSize+1))
}

// Fingerprint tells one state of the file and the secrets' files that it names from another. What can't be read counts as a
// state too. It is cheap: nothing is parsed.
func Fingerprint(path string, secrets []string) string {
	sum := sha256.New()
	for _, p := range append([]string{path}, secrets...) {
		text, err := read(p)
		_, _ = fmt.Fprintf(sum, "%s %d %v ", p, len(text), err != nil) // a hash takes everything
		_, _ = sum.Write(text)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// Parse checks the text of a file. Name is what problems call it. The error, if any, is of type [Errors] and holds every
// mistake at once; then there is no File. The set holds each value that came out of the environment, and is there in
// any case; problems and warnings are redacted with it.
func Parse(name string, text []byte, env func(string) (string, bool)) (*File, *redact.Set, error) {
	root, problems := document(name, text)
	if problems != nil {
		return nil, redact.New(nil), problems
	}
	if root == nil {
		return nil, redact.New(nil), Errors{{File: name, Line: 1, Column: 1, Message: "the file is empty", Hint: "README.md shows one to begin with"}}
	}
	sum := sha256.Sum256(text)
	l := &loader{reader: newReader(name, root, env), file: &File{Checksum: hex.EncodeToString(sum[:])[:12], imports: &imports{of: map[string]imported{}}}}
	l.read(l.reader.child(root, "").object())
	set := redact.New(l.reader.used)
	if problems := l.reader.problems; len(problems) > 0 {
		for i := range problems {
			problems[i].Message, problems[i].Hint = set.String(problems[i].Message), set.String(problems[i].Hint)
		}
		return nil, set, problems.sorted()
	}
	for _, name := range keys(l.reader.used) {
		if path, ok := strings.CutPrefix(name, secretFile); ok {
			l.file.SecretFiles = append(l.file.SecretFiles, path)
		}
	}
	l.warnings()
	for i, w := range l.file.Warnings {
		l.file.Warnings[i] = set.String(w)
	}
	return l.file, set, nil
}

// loader builds the file out of what the reader reads.
type loader struct {
	reader *reader
	file   *File
	places []ref // uses of a notifier as a place, which one that only sends to people is not
}

// read goes through the sections. Notifiers come first, since timeouts decide on leases.
func (l *loader) read(root *object) {
	if root == nil {
		if len(l.reader.problems) == 0 {
			l.reader.problems = Errors{{File: l.reader.file, Line: 1, Column: 1, Message: "the file must be a mapping with sections such as server, notifiers and routes"}}
		}
		return
	}
	l.notifiers(root)
	l.server(root)
	l.database(root)
	l.worker(root)
	l.users(root)
	l.schedules(root)
	l.escalations(root)
	l.routes(root)
	l.sources(root)
	l.heartbeats(root)
	l.kinds(root)
	l.retention(root)
	root.unsupported("limits")
	root.done(nil)
	l.resolve()
}

// resolve checks that each name that is used is defined.
func (l *loader) resolve() {
	for _, r := range l.reader.refs {
		known := l.reader.defined[r.kind]
		if slices.Contains(known, r.name) {
			continue
		}
		hint := suggest(r.name, known)
		if hint == "" {
			hint = fmt.Sprintf("define it under %ss", r.kind)
		}
		r.at.problem(hint, "no %s %q is in the file", r.kind, r.name)
	}
	for _, p := range l.places {
		if n, ok := l.file.Notifiers[p.name]; ok && n.Type == "webhook" && !n.Hears(HearsIncident) {
			p.at.problem("add incident to its events, or name another notifier", "the notifier %s does not take events of incidents", p.name)
		}
		if n := l.file.Notifiers[p.name]; n.Direct() && (n.Token != "" || n.Type == "telegram") {
			what := map[string]string{"slack": "channel", "telegram": "chat_id"}[n.Type]
			p.at.problem("give it a "+what+", or page people through it by an escalation", "the notifier %s sends to people only: it has no %s", p.name, what)
		}
	}
}

// warn notes what is allowed and perhaps not meant.
func (l *loader) warn(format string, args ...any) {
	l.file.Warnings = append(l.file.Warnings, fmt.Sprintf(format, args...))
}

// warnings looks at the whole file, which has no mistakes.
func (l *loader) warnings() {
	l.warnSelf()
	l.warnSources()
	l.warnCalendars()
	l.warnAddresses()
	warned := map[string]bool{}
	for _, name := range keys(l.file.Escalations) {
		for _, id := range l.file.paged(l.file.Escalations[name]) {
			if u, _ := l.file.User(id); len(u.Contacts) == 0 && !warned[id] {
				warned[id] = true
				l.warn("the escalation %s pages %s, who has no contacts: add contacts: [{via: NOTIFIER}]", name, id)
			}
		}
	}
}

// warnAddresses tells of people who share an account of a chat.
func (l *loader) warnAddresses() {
	first := map[string]string{}
	for _, u := range l.file.Users {
		for _, c := range u.Contacts {
			n := l.file.Notifiers[c.Via]
			if c.Address == "" || n.Type != "slack" && n.Type != "telegram" {
				continue
			}
			at := n.Type + " account " + c.Address
			if other, shared := first[at]; shared && other != u.ID {
				l.warn("the %s is that of %s and of %s: a button that is pressed there counts as pressed by %s", at, other, u.ID, other)
			} else if !shared {
				first[at] = u.ID
			}
		}
	}
}

// paged are all whom an escalation can page.
func (f *File) paged(e Escalation) []string {
	var all []string
	for _, s := range e.Steps {
		for _, target := range s.Page {
			switch kind, id, _ := strings.Cut(target, ":"); kind {
			case aSchedule:
				all = append(all, f.people(id, "")...)
			case aLayer:
				schedule, layer, _ := strings.Cut(id, "/")
				all = append(all, f.people(schedule, layer)...)
			default:
				all = append(all, id)
			}
		}
	}
	return all
}

// User finds a person by id.
func (f *File) User(id string) (User, bool) {
	i := slices.IndexFunc(f.Users, func(u User) bool { return u.ID == id })
	if i < 0 {
		return User{}, false
	}
	return f.Users[i], true
}

// Schedule finds a schedule by id.
func (f *File) Schedule(id string) (oncall.Schedule, bool) {
	i := slices.IndexFunc(f.Schedules, func(s oncall.Schedule) bool { return s.ID == id })
	if i < 0 {
		return oncall.Schedule{}, false
	}
	return f.Schedules[i], true
}

// LongestTimeout is the longest that a call through any notifier may take; 10 seconds where there is no notifier.
func (f *File) LongestTimeout() time.Duration {
	longest := time.Duration(0)
	for _, n := range f.Notifiers {
		longest = max(longest, n.Timeout)
	}
	if longest == 0 {
		return defaultTimeout
	}
	return longest
}
