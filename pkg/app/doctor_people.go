package app

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/plan"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

const (
	peopleTimeout = 60 * time.Second   // of looking at all of them
	peopleAhead   = 7 * 24 * time.Hour // who is on call within it is said
)

// wayTo is one way to one person, as it is examined.
type wayTo struct {
	user config.User
	via  string
	soon bool // the person is on call within days
	said *Check
}

// judgePeople says which ways to people lead nowhere. With People each way is looked at where it leads, without anything being
// sent, and it is said who is on call within days.
func (d *doctor) judgePeople(ctx context.Context, f *config.File, linked []store.Account) []Check {
	accounts := make([]plan.Account, len(linked))
	for i, a := range linked {
		accounts[i] = plan.Account{Provider: a.Provider, AccountID: a.AccountID, UserID: a.UserID}
	}
	soon := map[string]bool{}
	if d.People {
		for _, s := range f.Schedules {
			for _, t := range plan.Turns(s, d.now(), d.now().Add(peopleAhead)) {
				soon[t.User] = true
			}
		}
	}
	var ways []*wayTo
	for _, u := range f.Users {
		if soon[u.ID] && len(u.Contacts) == 0 {
			ways = append(ways, &wayTo{user: u, soon: true})
		}
		for _, c := range u.Contacts {
			ways = append(ways, &wayTo{user: u, via: c.Via, soon: soon[u.ID]})
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), peopleTimeout)
	defer cancel()
	places := make(chan struct{}, examineAtOnce)
	var all sync.WaitGroup
	for _, w := range ways {
		all.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			w.said = d.judgeWay(ctx, f, accounts, w)
		})
	}
	all.Wait()
	var said []Check
	for _, w := range ways {
		if w.said != nil {
			said = append(said, *w.said)
		}
	}
	if len(said) == 0 && len(ways) > 0 {
		said = append(said, ok(aboutPeople, "contacts", "all of %s", count(len(ways), "way")+" to people "+lead(len(ways))+" somewhere"))
	}
	return said
}

// judgeWay says what is wrong with one way; with People, also that nothing is.
func (d *doctor) judgeWay(ctx context.Context, f *config.File, accounts []plan.Account, w *wayTo) *Check {
	say := func(c Check) *Check { return &c }
	when, check := "", w.user.ID+" "+w.via
	if w.soon {
		when = "; on call within seven days"
	}
	if w.via == "" {
		return say(bad(aboutPeople, w.user.ID, "add contacts: [{via: NOTIFIER}] to the user in the file", "%s has no contacts%s", w.user.ID, when))
	}
	person, err := plan.Resolve(f, accounts, w.via, "user:"+w.user.ID, d.now())
	var nowhere *plan.Unreachable
	switch {
	case errors.As(err, &nowhere) && nowhere.LookUp && d.People:
		return say(ok(aboutPeople, check, "not linked; looked up by the e-mail address when a page needs it%s", when))
	case errors.As(err, &nowhere) && nowhere.LookUp:
		return nil
	case errors.As(err, &nowhere):
		return say(warn(aboutPeople, check, advice(nowhere.Sentence), "a page to %s this way would be unreachable, %s%s", w.user.ID, nowhere.Reason, when))
	}
	if !d.People {
		return nil
	}
	p, err := d.make(f.Notifiers[w.via], d.secrets)
	reacher, able := p.(provider.Reacher)
	if err != nil || !able {
		return say(ok(aboutPeople, check, "has an address%s", when))
	}
	switch r := reacher.Reach(ctx, person.Address); {
	case r.Closed:
		return say(warn(aboutPeople, check, advice(r.Sentence), "a page to %s this way would not arrive, %s%s", w.user.ID, r.Reason, when))
	case r.Unknown:
		return say(warn(aboutPeople, check, "look at the notifier's own lines, then examine it again", "it could not be looked at whether a page would arrive%s", when))
	}
	return say(ok(aboutPeople, check, "has an address, and a page would arrive as far as can be seen without sending one%s", when))
}
