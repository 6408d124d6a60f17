package plan

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/oncall"
)

// Targets of notifiers that have a place of their own. "schedule:ID", "layer:ID/NAME" and "user:ID" are the others; "schedule:ID/2" and
// "layer:ID/NAME/2" are the second of several people on one shift. Neither ids nor names of layers that are paged have a slash.
const (
	TargetChannel = "channel"
	TargetURL     = "url"
	TargetLog     = "log"
)

// Account is a chat account that is linked to a person.
type Account struct {
	Provider  string // slack, telegram
	AccountID string
	UserID    string
}

// Person is whom a target means at one moment, and where to reach them. Places have an address only.
type Person struct {
	UserID  string
	Name    string
	Address string
	After   time.Duration // how long after a page began this way to the person is to be tried
}

// Unreachable says why a target can't be reached now. Reason is from the closed list; Sentence tells how to mend it.
type Unreachable struct {
	Reason   string
	Sentence string
	UserID   string // whose account is missing: it may have been linked a moment ago
	LookUp   bool   // and may be found by the person's e-mail address
}

func (u *Unreachable) Error() string { return u.Reason + ": " + u.Sentence }

// The reasons for which there is nowhere to send.
const (
	NobodyOnCall    = "nobody_on_call"
	NoLinkedAccount = "no_linked_account"
	NotifierOff     = "notifier_off"
	NotifierRemoved = "notifier_removed"
	NoDestination   = "destination:none"
)

// Resolve says who a target means now and where to reach them through a notifier. A failure is always an *Unreachable.
func Resolve(f *config.File, accounts []Account, notifier, target string, now time.Time) (Person, error) {
	n, ok := f.Notifiers[notifier]
	switch {
	case !ok:
		return Person{}, &Unreachable{Reason: NotifierRemoved, Sentence: fmt.Sprintf("The file has no notifier %q: put it back, then send again.", notifier)}
	case n.Off:
		return Person{}, off(notifier)
	}
	kind, id, personal := strings.Cut(target, ":")
	if !personal {
		return place(n, target)
	}
	users, err := people(f, kind, id, now)
	if err != nil {
		return Person{}, err
	}
	return reach(n, users[0], accounts)
}

// LooksUp says that a person who has no linked account may be found by their e-mail address, when a page needs it.
func LooksUp(n config.Notifier, u config.User) bool {
	return n.Type == "slack" && n.Token != "" && u.Email != ""
}

// Sentence is what a person should do about an error of Resolve.
func Sentence(err error) string {
	var u *Unreachable
	if errors.As(err, &u) {
		return u.Sentence
	}
	return err.Error()
}

func off(notifier string) *Unreachable {
	return &Unreachable{Reason: NotifierOff, Sentence: fmt.Sprintf("The notifier %s is off: remove `off: true` from it, then send again.", notifier)}
}

// place is the notifier's own destination.
func place(n config.Notifier, target string) (Person, error) {
	address := ""
	switch n.Type {
	case "slack":
		if address = n.Channel; n.WebhookURL != "" {
			address = n.WebhookURL
		}
	case "telegram":
		address = n.ChatID
	case "webhook":
		address = n.URL
	case "log":
		address = n.Path
	}
	if address == "" {
		return Person{}, &Unreachable{Reason: NoDestination, Sentence: fmt.Sprintf("The notifier %s has no %s of its own: give it one, or let an escalation page people through it.", n.Name, target)}
	}
	return Person{Address: address}, nil
}

// people are those whom "schedule:ID", "layer:ID/NAME" or "user:ID" means now: at least one.
func people(f *config.File, kind, id string, now time.Time) ([]config.User, error) {
	switch kind {
	case "user":
		if u, ok := user(f, id); ok {
			return []config.User{u}, nil
		}
		return nil, &Unreachable{Reason: NoLinkedAccount, Sentence: fmt.Sprintf("The file has no user %q any more: name somebody else in the escalation, then send again.", id)}
	case "schedule", "layer":
		name, place, several := strings.Cut(id, "/")
		s, ok := schedule(f, name)
		if !ok {
			return nil, &Unreachable{Reason: NobodyOnCall, Sentence: fmt.Sprintf("The file has no schedule %q any more: put it back, then send again.", name)}
		}
		nobody := fmt.Sprintf("Nobody is on call for %s now: put somebody on call with `tocsin schedules override %s USER --for 2h --add`, or add a layer that covers this time; then send again.", name, name)
		if kind == "layer" {
			var layer string
			layer, place, several = strings.Cut(place, "/")
			if s, ok = s.Layer(layer); !ok {
				return nil, &Unreachable{Reason: NobodyOnCall, Sentence: fmt.Sprintf("The schedule %s has no layer %q any more: put it back, then send again.", name, layer)}
			}
			nobody = fmt.Sprintf("Nobody is on call in the layer %s of %s now: let the layer cover this time, or page schedule:%s as well; then send again.", layer, name, name)
		}
		var out []config.User
		if shift, ok := s.At(now); ok {
			for _, id := range shift.Users {
				if u, ok := user(f, id); ok {
					out = append(out, u)
				}
			}
		}
		if len(out) == 0 {
			return nil, &Unreachable{Reason: NobodyOnCall, Sentence: nobody}
		}
		if several {
			// The shift may have become smaller since: a second message to someone is better than one to nobody.
			k, err := strconv.Atoi(place)
			if err != nil || k < 1 {
				k = 1
			}
			return out[(k-1)%len(out):][:1], nil
		}
		return out, nil
	}
	return nil, &Unreachable{Reason: NoDestination, Sentence: fmt.Sprintf("%s:%s is neither a schedule, nor a layer of one, nor a user.", kind, id)}
}

// reach finds a person's address with a notifier: the contact's own, else the linked account.
func reach(n config.Notifier, u config.User, accounts []Account) (Person, error) {
	p := Person{UserID: u.ID, Name: u.Name}
	if p.Name == "" {
		p.Name = u.ID
	}
	for _, c := range u.Contacts {
		if c.Via != n.Name {
			continue
		}
		if p.After == 0 {
			p.After = c.After
		}
		if c.Address != "" {
			p.Address = c.Address
			return p, nil
		}
	}
	switch n.Type {
	case "webhook", "log":
		here, err := place(n, TargetURL)
		p.Address = here.Address
		return p, err
	case "slack":
		if n.WebhookURL != "" {
			p.Address = n.WebhookURL
			return p, nil
		}
	}
	for _, a := range accounts {
		if a.Provider == n.Type && a.UserID == u.ID {
			p.Address = a.AccountID
			return p, nil
		}
	}
	return p, &Unreachable{
		Reason: NoLinkedAccount, UserID: u.ID, LookUp: LooksUp(n, u),
		Sentence: fmt.Sprintf("No %s account is linked to %s: `tocsin users link --user %s` says how, or put an address on their contact via %s.", n.Type, p.Name, u.ID, n.Name),
	}
}

func user(f *config.File, id string) (config.User, bool) {
	for _, u := range f.Users {
		if u.ID == id {
			return u, true
		}
	}
	return config.User{}, false
}

func schedule(f *config.File, id string) (oncall.Schedule, bool) {
	for _, s := range f.Schedules {
		if s.ID == id {
			return s, true
		}
	}
	return oncall.Schedule{}, false
}

// Layers are the layers that some escalation pages by themselves, each as a schedule of its own, in order.
func Layers(f *config.File) []oncall.Schedule {
	var all []oncall.Schedule
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(f.Escalations)) {
		for _, step := range f.Escalations[name].Steps {
			for _, target := range step.Page {
				id, ok := strings.CutPrefix(target, "layer:")
				if !ok || seen[id] {
					continue
				}
				seen[id] = true
				of, layer, _ := strings.Cut(id, "/")
				if s, ok := schedule(f, of); ok {
					if s, ok = s.Layer(layer); ok {
						all = append(all, s)
					}
				}
			}
		}
	}
	return all
}
