package plan

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/card"
	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
)

// Paging is what one step of an escalation makes now.
type Paging struct {
	Pages   []Delivery // one per way to each person; a dead one where a way or a person can't be reached
	Lines   []string   // for the timeline: who is paged, why and how
	Missing []string   // for the timeline: who can't be, and why
	Asleep  []string   // for the timeline: who is left alone, and until when
	// Rests is set where nobody else can be reached than people in their quiet hours: the first end of these. The step
	// makes nothing before.
	Rests   time.Time
	Reached bool // somebody is paged, or the step pages nobody at all: else the next step's time has come
}

// Pages says whom a step pages at an instant. wait is how long a page may wait for the incident's card; zero where
// there is none, or none to wait for.
func Pages(f *config.File, accounts []Account, targets []string, criticality string, wait time.Duration, now time.Time) Paging {
	p := Paging{Reached: len(targets) == 0}
	var wakes time.Time
	done := map[string]bool{} // user and notifier: somebody named twice is paged once
	for _, target := range targets {
		kind, id, _ := strings.Cut(target, ":")
		who, err := people(f, kind, id, now)
		if err != nil {
			p.miss(Delivery{Kind: delivery.Page, Notifier: likely(f, kind, id), Target: target, Dead: dead(err)})
			continue
		}
		for i, u := range who {
			if until := asleep(u, criticality, now); !until.IsZero() {
				if wakes.IsZero() || until.Before(wakes) {
					wakes = until
				}
				if line := card.QuietText(u.Name, until); !slices.Contains(p.Asleep, line) {
					p.Asleep = append(p.Asleep, line)
				}
				continue
			}
			name := target
			if i > 0 {
				name = fmt.Sprintf("%s/%d", target, i+1)
			}
			p.person(f, accounts, u, name, Why(kind, id), HighUrgency(criticality), wait, now, done)
		}
	}
	if !wakes.IsZero() && !p.Reached {
		return Paging{Asleep: p.Asleep, Rests: wakes}
	}
	return p
}

// asleep is the end of a person's quiet hours, where they leave the person alone now: only by what is not urgent.
func asleep(u config.User, criticality string, now time.Time) time.Time {
	if u.Quiet == nil || HighUrgency(criticality) || !u.Quiet.Active(now) {
		return time.Time{}
	}
	return u.Quiet.Over(now)
}

// Awake is a file in which nobody has quiet hours: for what a person asks for by hand.
func Awake(f *config.File) *config.File {
	awake := *f
	awake.Users = slices.Clone(f.Users)
	for i := range awake.Users {
		awake.Users[i].Quiet = nil
	}
	return &awake
}

// person adds the ways to one person. When a way is closed, the next one that is open takes its time.
func (p *Paging) person(f *config.File, accounts []Account, u config.User, target, why string, high bool, wait time.Duration, now time.Time, done map[string]bool) {
	name := u.Name
	if name == "" {
		name = u.ID
	}
	var ways []string
	listed := false
	closed := time.Duration(-1) // when the first closed way would have been tried
	for _, c := range u.Contacts {
		if c.Urgency == "high" && !high || c.Urgency == "low" && high {
			continue
		}
		listed = true
		at := u.ID + "\x00" + c.Via
		if done[at] {
			continue
		}
		done[at] = true
		d := Delivery{Kind: delivery.Page, Notifier: c.Via, Target: target, Delay: c.After, Lifetime: f.Kinds[delivery.Page].Lifetime}
		if _, err := Resolve(f, accounts, c.Via, target, now); err != nil && !LookedUp(err) {
			d.Dead, d.Delay = dead(err), 0
			p.miss(d)
			if closed < 0 {
				closed = c.After
			}
			continue
		}
		if closed >= 0 {
			d.Delay, closed = min(d.Delay, closed), -1
		}
		way := c.Via
		if d.Delay > 0 {
			way += " in " + card.Duration(d.Delay)
		} else {
			d.Wait = wait
		}
		ways = append(ways, way)
		p.Pages = append(p.Pages, d)
	}
	switch {
	case len(ways) > 0:
		p.Reached = true
		p.Lines = append(p.Lines, card.PagingText(name, why, ways))
	case !listed:
		urgency := "low"
		if high {
			urgency = "high"
		}
		p.miss(Delivery{Kind: delivery.Page, Notifier: direct(f), Target: target, Dead: &Dead{
			State: delivery.Unreachable, Reason: NoLinkedAccount,
			Sentence: fmt.Sprintf("%s has no contact for %s urgency in the file: add one under contacts, then send again.", name, urgency),
		}})
	}
}

// LookedUp says that the one who makes the call looks for the account first: the page is not dead yet.
func LookedUp(err error) bool {
	var u *Unreachable
	return errors.As(err, &u) && u.LookUp
}

// miss adds a page that is dead as it is made.
func (p *Paging) miss(d Delivery) {
	p.Pages = append(p.Pages, d)
	if d.Dead != nil && !slices.Contains(p.Missing, d.Dead.Sentence) {
		p.Missing = append(p.Missing, d.Dead.Sentence)
	}
}

// Why is the reason that the timeline gives for paging somebody.
func Why(kind, id string) string {
	switch kind {
	case "schedule":
		return id
	case "layer":
		of, layer, _ := strings.Cut(id, "/")
		return of + ", layer " + layer
	}
	return "by name"
}

// likely is the notifier by which a page for nobody would most likely have gone, so that it can be sent again once
// somebody is on call: a contact of the schedule's people.
func likely(f *config.File, kind, id string) string {
	of, only, _ := strings.Cut(id, "/")
	if s, ok := schedule(f, of); ok && kind != "user" {
		for _, layer := range slices.Backward(s.Layers) {
			turns := layer.Users
			for _, t := range layer.Turns {
				turns = append(turns, t.Users)
			}
			if only != "" && layer.Name != only {
				continue
			}
			for _, name := range slices.Concat(turns...) {
				if u, ok := user(f, name); ok && len(u.Contacts) > 0 {
					return u.Contacts[0].Via
				}
			}
		}
	}
	return direct(f)
}

// direct is the first notifier by name that sends to people; empty where the file has none.
func direct(f *config.File) string {
	name := ""
	for n, v := range f.Notifiers {
		if v.Direct() && (name == "" || n < name) {
			name = n
		}
	}
	return name
}
