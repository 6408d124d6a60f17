package scheduler

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/card"
	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/intake"
	"github.com/tocsin-oncall/tocsin/pkg/message"
	"github.com/tocsin-oncall/tocsin/pkg/oncall"
	"github.com/tocsin-oncall/tocsin/pkg/plan"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

const (
	reachAhead  = 7 * 24 * time.Hour // whoever is on call within it is looked at
	reachEvery  = 24 * time.Hour     // each way that is open
	reachBefore = time.Hour          // once more so long before a shift
	reachAgain  = 10 * time.Minute   // one that is closed, or that could not be looked at
	reachLease  = 2 * time.Minute    // how long one replica may take to look
	reachMost   = 10                 // looks of one step: the pace of the providers' own limits
	reachSoon   = 24 * time.Hour     // who can't be reached at all and is on call within it is more than a warning
)

// duty is somebody who is on call within days.
type duty struct {
	schedule, user string
	starts         time.Time // the first of their shifts; one that goes on: now
}

// Reachability looks whether those who are on call within days can be reached, without sending to them: each way once a day and
// before each shift. Who can't is told of while there is time, to the schedule's owner and as an alert, once, by one replica.
func (s *Scheduler) Reachability(ctx context.Context) (bool, error) {
	f := s.o.File()
	if len(f.Schedules) == 0 && s.reached == f.Checksum {
		return false, nil
	}
	mark := f.Checksum
	var look []store.Reach
	var duties []duty
	var accounts []plan.Account
	var now time.Time
	err := s.o.Store.InTx(ctx, func(tx *store.Tx) (err error) {
		look, duties, accounts, now = nil, nil, nil, tx.Now()
		newest, err := tx.NewestFile(ctx, Alive)
		if err != nil || newest != "" && newest != f.Checksum {
			mark = s.reached
			return err
		}
		linked, err := tx.Accounts(ctx)
		if err != nil {
			return err
		}
		for _, a := range linked {
			accounts = append(accounts, plan.Account{Provider: a.Provider, AccountID: a.AccountID, UserID: a.UserID})
		}
		over, err := overridden(ctx, tx, f, tx.Now())
		if err != nil {
			return err
		}
		duties = dutiesOf(over, now)
		look, err = s.listWays(ctx, tx, f, duties, accounts)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("look who is on call within days: %w", err)
	}
	for _, r := range look[:min(len(look), reachMost)] {
		if err := s.lookAt(ctx, f, r, accounts, duties, now); err != nil {
			return false, fmt.Errorf("look whether %s can be reached by %s: %w", r.User, r.Via, err)
		}
	}
	if mark == f.Checksum {
		if err := s.tellReach(ctx, f, duties); err != nil {
			return false, fmt.Errorf("tell who can't be reached: %w", err)
		}
	}
	s.reached = mark
	return len(look) > reachMost, nil
}

// dutiesOf are those who are on call within days, by schedule and person.
func dutiesOf(f *config.File, now time.Time) []duty {
	var all []duty
	add := func(sch oncall.Schedule) {
		for _, t := range plan.Turns(sch, now, now.Add(reachAhead)) {
			starts := t.Start
			if starts.Before(now) {
				starts = now
			}
			at := slices.IndexFunc(all, func(d duty) bool { return d.schedule == sch.ID && d.user == t.User })
			if at < 0 {
				all = append(all, duty{sch.ID, t.User, starts})
			} else if starts.Before(all[at].starts) {
				all[at].starts = starts
			}
		}
	}
	for _, sch := range f.Schedules {
		add(sch)
	}
	for _, sch := range plan.Layers(f) { // that are paged by themselves
		add(sch)
	}
	slices.SortFunc(all, func(a, b duty) int { return cmp.Or(cmp.Compare(a.schedule, b.schedule), cmp.Compare(a.user, b.user)) })
	return all
}

// waysOf are the notifiers by which a person is paged; one without a name where there are none.
func waysOf(f *config.File, user string) []string {
	var out []string
	u, _ := f.User(user)
	for _, c := range u.Contacts {
		if !slices.Contains(out, c.Via) {
			out = append(out, c.Via)
		}
	}
	if len(out) == 0 {
		return []string{""}
	}
	return out
}

// listWays brings the list of ways in line with who is on call, and gives those that are due. What the file and the linked
// accounts alone decide is decided now: whoever links an account is well a moment later.
func (s *Scheduler) listWays(ctx context.Context, tx *store.Tx, f *config.File, duties []duty, accounts []plan.Account) ([]store.Reach, error) {
	known, err := tx.ReachRows(ctx)
	if err != nil {
		return nil, err
	}
	type way struct{ user, via string }
	needed := map[way]bool{}
	var look []store.Reach
	for _, d := range duties {
		for _, via := range waysOf(f, d.user) {
			w := way{d.user, via}
			if needed[w] {
				continue
			}
			needed[w] = true
			at := slices.IndexFunc(known, func(r store.Reach) bool { return r.User == w.user && r.Via == w.via })
			if at < 0 {
				if err := tx.ListReach(ctx, w.user, w.via); err != nil {
					return nil, err
				}
				look = append(look, store.Reach{User: w.user, Via: w.via})
				continue
			}
			r := known[at]
			closed := nowhere(f, accounts, w.user, w.via, tx.Now())
			due := !r.DueAt.After(tx.Now())
			if !due && r.CheckedAt != nil && ((closed != nil) != r.Closed && (closed != nil || local(r.Reason)) || closed != nil && closed.Reason != r.Reason) {
				if err := tx.ReachSooner(ctx, w.user, w.via); err != nil {
					return nil, err
				}
				due = true
			}
			if due {
				look = append(look, r)
			}
		}
	}
	for _, r := range known {
		if !needed[way{r.User, r.Via}] {
			if err := tx.DropReach(ctx, r.User, r.Via); err != nil {
				return nil, err
			}
		}
	}
	return look, nil
}

// noContacts is the reason of somebody who has no way at all.
const noContacts = "no_contacts"

// local says that a reason is the file's or the accounts': it is gone as soon as these are mended.
func local(reason string) bool {
	return reason == noContacts || reason == plan.NoLinkedAccount || reason == plan.NotifierOff || reason == plan.NotifierRemoved || reason == plan.NoDestination
}

// nowhere says why a way leads nowhere, as far as that is known without asking anybody.
func nowhere(f *config.File, accounts []plan.Account, user, via string, now time.Time) *plan.Unreachable {
	if via == "" {
		return &plan.Unreachable{Reason: noContacts, Sentence: fmt.Sprintf("The file has no contacts for %s: add some.", user)}
	}
	_, err := plan.Resolve(f, accounts, via, "user:"+user, now)
	var u *plan.Unreachable
	if errors.As(err, &u) && u.LookUp {
		return nil // the chat is asked for the account
	}
	return u
}

// lookAt looks at one way and writes what was found. The provider is asked outside of any transaction.
func (s *Scheduler) lookAt(ctx context.Context, f *config.File, r store.Reach, accounts []plan.Account, duties []duty, now time.Time) error {
	mine := false
	if err := s.o.Store.InTx(ctx, func(tx *store.Tx) (err error) {
		mine, err = tx.ClaimReach(ctx, r.User, r.Via, reachLease)
		return err
	}); err != nil || !mine {
		return err
	}
	found := provider.Reach{}
	if u := nowhere(f, accounts, r.User, r.Via, now); u != nil {
		found = provider.Reach{Closed: true, Reason: u.Reason, Sentence: u.Sentence}
	} else if s.o.Provider != nil {
		if p, ok := s.o.Provider(r.Via); ok {
			found = s.ask(ctx, f, p, r, accounts, now)
		}
	}
	again := reachEvery
	for _, d := range duties { // once more before the next shift
		if left := d.starts.Add(-reachBefore).Sub(now); d.user == r.User && left > 0 {
			again = min(again, left)
		}
	}
	if found.Closed || found.Unknown {
		again = reachAgain
	}
	return s.o.Store.InTx(ctx, func(tx *store.Tx) error {
		n := store.Reach{User: r.User, Via: r.Via, Closed: found.Closed, Reason: found.Reason, Sentence: found.Sentence}
		if found.Unknown { // what was known stays
			n.Closed, n.Reason, n.Sentence = r.Closed, r.Reason, r.Sentence
		}
		return tx.PutReach(ctx, n, again)
	})
}

// ask asks a chat whether it reaches a person. One whose account is not linked is looked for by their e-mail address, as a page would,
// and linked, so that no page needs to ask.
func (s *Scheduler) ask(ctx context.Context, f *config.File, p provider.Provider, r store.Reach, accounts []plan.Account, now time.Time) provider.Reach {
	person, err := plan.Resolve(f, accounts, r.Via, "user:"+r.User, now)
	var nowhere *plan.Unreachable
	if errors.As(err, &nowhere) {
		linked, err := s.o.Find(ctx, r.Via, r.User)
		if err == nil && !linked {
			return provider.Reach{Closed: true, Reason: nowhere.Reason, Sentence: nowhere.Sentence}
		}
		var rows []store.Account
		if err == nil {
			rows, err = s.o.Store.Accounts(ctx)
		}
		for _, a := range rows {
			accounts = append(accounts, plan.Account{Provider: a.Provider, AccountID: a.AccountID, UserID: a.UserID})
		}
		if err == nil {
			person, err = plan.Resolve(f, accounts, r.Via, "user:"+r.User, now)
		}
		if err != nil {
			return provider.Reach{Unknown: true}
		}
	}
	if reacher, able := p.(provider.Reacher); able {
		return reacher.Reach(ctx, person.Address)
	}
	return provider.Reach{}
}

// tellReach raises an alert for everybody who can't be reached by one of their ways, and tells the schedule's owner. It is told anew when it
// becomes something else, and no more when all ways are open; the alert resolves by itself then.
func (s *Scheduler) tellReach(ctx context.Context, f *config.File, duties []duty) error {
	var raised []intake.Result
	err := s.o.Store.InTx(ctx, func(tx *store.Tx) error {
		raised = nil
		rows, err := tx.ReachRows(ctx)
		if err != nil {
			return err
		}
		told, err := tx.ReachToldRows(ctx)
		if err != nil {
			return err
		}
		for _, t := range told {
			gone := !slices.ContainsFunc(duties, func(d duty) bool { return d.schedule == t.Schedule && d.user == t.User })
			if gone || len(closedWays(rows, t.User)) == 0 {
				if err := tx.ForgetReach(ctx, t.Schedule, t.User); err != nil {
					return err
				}
			}
		}
		for _, d := range duties { // in one order on all replicas: these incidents are locked
			closed := closedWays(rows, d.user)
			if len(closed) == 0 {
				continue
			}
			self := unreachable(f, d, closed, len(waysOf(f, d.user)), tx.Now())
			first, err := tx.TellReach(ctx, store.ReachTold{Schedule: d.schedule, User: d.user, What: self.Criticality + " " + self.Labels["ways"]})
			if err != nil {
				return err
			}
			if !first {
				continue
			}
			r, err := s.o.Intake.SelfAlert(ctx, tx, self)
			if err != nil {
				return err
			}
			raised = append(raised, r)
			if err := s.tellOwner(ctx, tx, f, d.schedule, self); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.o.Intake.Committed(raised...)
	return nil
}

func closedWays(rows []store.Reach, user string) []store.Reach {
	return slices.DeleteFunc(slices.Clone(rows), func(r store.Reach) bool { return r.User != user || !r.Closed })
}

// unreachable is the self-alert about somebody who is on call soon and can't be reached.
func unreachable(f *config.File, d duty, closed []store.Reach, ways int, now time.Time) intake.Self {
	u, _ := f.User(d.user)
	name := cmp.Or(u.Name, d.user)
	var lines, names []string
	for _, r := range closed {
		names = append(names, cmp.Or(r.Via, "none"))
		lines = append(lines, strings.TrimSpace(r.Via+": "+r.Sentence))
	}
	how, criticality := "by "+strings.Join(names, ", "), "warning"
	if len(closed) >= ways {
		how = "at all"
		if d.starts.Sub(now) < reachSoon {
			criticality = "high"
		}
	}
	when := "is on call for " + d.schedule + " now"
	if d.starts.After(now) {
		sch, _ := f.Schedule(d.schedule)
		when = "is on call for " + d.schedule + " from " + d.starts.In(u.Zone(sch.Zone)).Format("Mon 2 Jan 15:04 MST")
	}
	labels := map[string]string{labelSchedule: d.schedule, "user": d.user, "ways": strings.Join(names, " ")}
	if sch, _ := f.Schedule(d.schedule); sch.Owner != "" {
		labels["owner"] = sch.Owner
	}
	return intake.Self{
		Kind: intake.SelfUnreachable, Criticality: criticality, About: d.schedule + ":" + d.user,
		Title: fmt.Sprintf("%s can't be reached %s, and %s", name, how, when),
		Text: strings.Join(lines, "\n") + "\nNothing was sent to them for this. `tocsin doctor --people` looks again; this alert resolves when it is mended, or when they are not on call within " +
			"seven days any more.",
		Labels: labels,
	}
}

// ownerLives is how long the owner's word is worth sending.
const ownerLives = 24 * time.Hour

// tellOwner tells the owner of a schedule, where that is a user who can be reached. Everybody else hears of it by the alert's routes.
func (s *Scheduler) tellOwner(ctx context.Context, tx *store.Tx, f *config.File, schedule string, self intake.Self) error {
	sch, _ := f.Schedule(schedule)
	owner, known := f.User(sch.Owner)
	if !known {
		return nil
	}
	linked, err := tx.Accounts(ctx)
	if err != nil {
		return err
	}
	accounts := make([]plan.Account, len(linked))
	for i, a := range linked {
		accounts[i] = plan.Account{Provider: a.Provider, AccountID: a.AccountID, UserID: a.UserID}
	}
	via, ok := plan.QuietWay(f, accounts, owner.ID, tx.Now())
	if !ok {
		return nil
	}
	body, err := json.Marshal(card.Snapshot{Title: self.Title, Text: self.Text, State: message.Plain})
	if err != nil {
		return err
	}
	n := store.NewDelivery{
		ID: store.NewID(), ContentID: store.NewID(), Kind: delivery.Notice, Notifier: via, Target: "user:" + owner.ID, Desired: 1, Lifetime: ownerLives, FromDue: true,
	}
	if owner.Quiet != nil {
		n.Delay = owner.Quiet.Over(tx.Now()).Sub(tx.Now())
	}
	if err := tx.PutContent(ctx, store.Content{ID: n.ContentID, Revision: 1, Body: body}); err != nil {
		return err
	}
	return tx.AddDeliveries(ctx, n)
}
