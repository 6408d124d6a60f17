package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
	"github.com/tocsin-oncall/tocsin/pkg/redact"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// DoctorOptions say what to examine.
type DoctorOptions struct {
	Path   string                      // the file
	Env    func(string) (string, bool) // where ${NAME} is looked up; nil: the process's environment
	Live   bool                        // also post, find, edit and delete a message in each notifier's own place
	People bool                        // a line for each way to reach each person, not only for those that lead nowhere
	HTTP   *http.Client                // asks public_url; nil: one of its own

	make func(config.Notifier, *redact.Set) (provider.Provider, error) // tests; nil: the real ones
	now  func() time.Time                                              // tests; nil: this machine's clock
}

// Check is one thing that was looked at. No secret of the file is in its texts.
type Check struct {
	About string         `json:"about"` // file, public_url, database, stored, people, calendars, or a notifier's name
	Check string         `json:"check"` // what was looked at, in two or three words
	Level provider.Level `json:"level"` // ok, warn, bad
	Text  string         `json:"text"`  // what was found
	Fix   string         `json:"fix,omitempty"`
}

// Diagnosis is all that an examination found, in the order in which one would read it.
type Diagnosis struct {
	OK       bool    `json:"ok"` // nothing is bad
	Bad      int     `json:"bad"`
	Warnings int     `json:"warnings"`
	Checks   []Check `json:"checks"`
}

// Bounds of an examination.
const (
	examineTimeout     = 20 * time.Second // of one notifier
	examineLiveTimeout = 60 * time.Second // the same with messages
	examineAtOnce      = 4
	publicTimeout      = 5 * time.Second
	listenTimeout      = 3 * time.Second // more than a ring needs on any machine that could run tocsin
	storedTimeout      = 15 * time.Second
)

// doctor is one examination.
type doctor struct {
	DoctorOptions
	file    *config.File
	secrets *redact.Set
}

// Doctor examines the file, the database, the notifiers and what is stored, and says of each what is wrong and how to mend
// it. It changes nothing and sends nothing, unless Live is set. A wrong file ends it: the mistakes are in the diagnosis,
// and the error is a [config.Errors].
func Doctor(ctx context.Context, o DoctorOptions) (Diagnosis, error) {
	if o.Env == nil {
		o.Env = os.LookupEnv
	}
	if o.HTTP == nil {
		o.HTTP = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	if o.now == nil {
		o.now = time.Now
	}
	f, secrets, err := config.Load(o.Path, o.Env)
	var wrong config.Errors
	if errors.As(err, &wrong) {
		return diagnosis(secrets, mistakes(wrong)), err
	}
	if err != nil {
		return Diagnosis{}, err
	}
	if o.make == nil {
		o.make = func(n config.Notifier, secrets *redact.Set) (provider.Provider, error) {
			return makeProvider(f, n, secrets)
		}
	}
	d := &doctor{DoctorOptions: o, file: f, secrets: secrets}
	var public, database, stored, notifiers []Check
	var all sync.WaitGroup
	all.Go(func() { public = d.aboutPublicURL(ctx) })
	all.Go(func() { database, stored = d.aboutDatabase(ctx) })
	all.Go(func() { notifiers = d.aboutNotifiers(ctx) })
	all.Wait()
	return diagnosis(secrets, slices.Concat(d.aboutFile(), public, database, notifiers, stored)), nil
}

// diagnosis counts, and takes the secrets out of everything that was found, whoever found it.
func diagnosis(secrets *redact.Set, checks []Check) Diagnosis {
	d := Diagnosis{Checks: []Check{}}
	for _, c := range checks {
		switch c.Level {
		case provider.Bad:
			d.Bad++
		case provider.Warn:
			d.Warnings++
		}
		c.Check, c.Text, c.Fix = secrets.String(c.Check), secrets.String(c.Text), secrets.String(c.Fix)
		d.Checks = append(d.Checks, c)
	}
	d.OK = d.Bad == 0
	return d
}

func ok(about, check, format string, args ...any) Check {
	return Check{About: about, Check: check, Level: provider.OK, Text: fmt.Sprintf(format, args...)}
}

func warn(about, check, fix, format string, args ...any) Check {
	return Check{About: about, Check: check, Level: provider.Warn, Text: fmt.Sprintf(format, args...), Fix: fix}
}

func bad(about, check, fix, format string, args ...any) Check {
	return Check{About: about, Check: check, Level: provider.Bad, Text: fmt.Sprintf(format, args...), Fix: fix}
}

const aboutFile = "file"

// mistakes are the checks of a file that is wrong.
func mistakes(wrong config.Errors) []Check {
	all := make([]Check, 0, len(wrong))
	for _, p := range wrong {
		where := "contents"
		if p.Line > 0 {
			where = fmt.Sprintf("line %d:%d", p.Line, p.Column)
		}
		all = append(all, bad(aboutFile, where, p.Hint, "%s", p.Message))
	}
	return all
}

func (d *doctor) aboutFile() []Check {
	f := d.file
	all := []Check{ok(aboutFile, "contents", "%s is good: %s", d.Path, strings.Join([]string{
		count(len(f.Users), "user"), count(len(f.Schedules), "schedule"), count(len(f.Notifiers), "notifier"), count(len(f.Routes), "route"),
	}, ", "))}
	for _, w := range f.Warnings {
		all = append(all, warn(aboutFile, "warning", "the handbook's page on the file says what it means", "%s", w))
	}
	return all
}

// aboutNotifiers examines every notifier through its provider, several at the same time, each within its own bound.
func (d *doctor) aboutNotifiers(ctx context.Context) []Check {
	names := slices.Sorted(maps.Keys(d.file.Notifiers))
	found := make([][]Check, len(names))
	places := make(chan struct{}, examineAtOnce)
	var all sync.WaitGroup
	for i, name := range names {
		all.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			found[i] = d.aboutNotifier(ctx, d.file.Notifiers[name])
		})
	}
	all.Wait()
	return slices.Concat(found...)
}

func (d *doctor) aboutNotifier(ctx context.Context, n config.Notifier) []Check {
	if n.Off {
		return []Check{warn(n.Name, "switch", "remove off: true and restart, if it should send again", "it is off: what is for it dies as unreachable, notifier_off; nothing else was looked at")}
	}
	p, err := d.make(n, d.secrets)
	if err != nil {
		return []Check{bad(n.Name, "set-up", "mend its settings in the file", "%s", err)}
	}
	examiner, able := p.(provider.Examiner)
	if !able {
		return []Check{ok(n.Name, n.Type, "nothing can be checked about a notifier of this type")}
	}
	bound := examineTimeout
	if d.Live {
		bound = examineLiveTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	found := make(chan []Check, 1)
	go func() {
		defer func() {
			if r := recover(); r != nil {
				found <- []Check{bad(n.Name, n.Type, "please report it", "the examination broke off by a fault of tocsin: %v", r)}
			}
		}()
		var all []Check
		for _, f := range examiner.Examine(ctx, provider.Examination{PublicURL: d.file.Server.PublicURL, Now: d.now, Live: d.Live}) {
			all = append(all, Check{About: n.Name, Check: f.Check, Level: f.Level, Text: f.Text, Fix: advice(f.Fix)})
		}
		if len(all) == 0 {
			all = []Check{ok(n.Name, n.Type, "nothing was found")}
		}
		found <- all
	}()
	select {
	case all := <-found:
		return all
	case <-ctx.Done():
		// What was found in its time counts, even where both came at once.
		select {
		case all := <-found:
			return all
		default:
			return []Check{bad(n.Name, n.Type, "look at the network between here and the provider", "the examination was not over within %s", bound)}
		}
	}
}

// count writes a number of things.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// openToLook opens the database with as few connections as can be.
func (d *doctor) openToLook(ctx context.Context) (*store.Store, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	return store.Open(ctx, d.file.Database.URL, store.Options{MaxConnections: 2})
}
