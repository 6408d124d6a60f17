package scheduler

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/intake"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// The pace of user groups. It is theirs alone: no page waits for it.
const (
	groupPause = 15 * time.Second // between two changes of one group
	groupRetry = time.Minute      // after a failure; doubles with each
	groupPatch = 10 * time.Minute // where only a person's hand helps
	groupWait  = time.Hour        // the longest
)

// Groups keeps user groups equal to who is on call. A group is called only where its members are to change, by one replica at a
// time; a failure is one alert, and is tried again by a pace of its own.
func (s *Scheduler) Groups(ctx context.Context) (bool, error) {
	f := s.o.File()
	if s.o.Provider == nil || len(f.UserGroups) == 0 && s.grouped == f.Checksum {
		return false, nil
	}
	mark := f.Checksum
	wanted := map[string][]string{}
	speaks := false
	err := s.o.Store.InTx(ctx, func(tx *store.Tx) error {
		newest, err := tx.NewestFile(ctx, Alive)
		if speaks = newest == "" || newest == f.Checksum; err != nil || !speaks {
			return err
		}
		if err := tx.DropGroups(ctx, inOrder(f.UserGroups)); err != nil {
			return err
		}
		over, err := overridden(ctx, tx, f, tx.Now())
		if err != nil {
			return err
		}
		linked, err := tx.Accounts(ctx)
		if err != nil {
			return err
		}
		wanted = map[string][]string{}
		for _, sch := range over.Schedules {
			g, has := f.UserGroups[sch.ID]
			if !has {
				continue
			}
			if err := tx.ListGroup(ctx, sch.ID, g.ID); err != nil {
				return err
			}
			// Nobody on call, or nobody with an account: a group can't be empty, and stays as it is.
			if shift, on := sch.At(tx.Now()); on {
				if members := groupMembers(over, linked, shift.Users); len(members) > 0 {
					wanted[sch.ID] = members
				}
			}
		}
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("look who belongs into user groups: %w", err)
	}
	if !speaks {
		return false, nil
	}
	s.grouped = mark
	for _, id := range inOrder(wanted) {
		if err := s.group(ctx, f, id, wanted[id]); err != nil {
			return false, fmt.Errorf("keep the user group of %s: %w", id, err)
		}
	}
	return false, nil
}

// groupMembers are the Slack accounts of people, in order: linked ones, else addresses in the file.
func groupMembers(f *config.File, linked []store.Account, users []string) []string {
	var out []string
	for _, id := range users {
		account := ""
		if u, ok := f.User(id); ok {
			for _, c := range u.Contacts {
				n := f.Notifiers[c.Via]
				if account == "" && n.Type == "slack" && n.Token != "" && (strings.HasPrefix(c.Address, "U") || strings.HasPrefix(c.Address, "W")) {
					account = c.Address
				}
			}
		}
		for _, a := range linked {
			if account == "" && a.Provider == "slack" && a.UserID == id {
				account = a.AccountID
			}
		}
		if account != "" && !slices.Contains(out, account) {
			out = append(out, account)
		}
	}
	slices.Sort(out)
	return out
}

func (s *Scheduler) group(ctx context.Context, f *config.File, schedule string, members []string) error {
	g := f.UserGroups[schedule]
	p, ok := s.o.Provider(g.Notifier)
	grouper, able := p.(provider.Grouper)
	if !ok || !able {
		return nil // the file's check refuses it
	}
	var attempt, tries int
	mine := false
	if err := s.o.Store.InTx(ctx, func(tx *store.Tx) (err error) {
		attempt, tries, mine, err = tx.ClaimGroup(ctx, schedule, members, f.Notifiers[g.Notifier].Timeout+groupRetry)
		return err
	}); err != nil || !mine {
		return err
	}
	res := grouper.SetGroup(ctx, g.ID, members)
	var raised intake.Result
	err := s.o.Store.InTx(context.WithoutCancel(ctx), func(tx *store.Tx) error {
		raised = intake.Result{}
		if res.Outcome == delivery.OutcomeSent {
			return tx.GroupAccepted(ctx, schedule, attempt, members, groupPause)
		}
		pause := min(groupRetry<<min(tries, 10), groupWait)
		if res.Fault == delivery.FaultDestination || res.Fault == delivery.FaultAccount || res.Fault == delivery.FaultPayload {
			pause = groupPatch
		}
		if err := tx.GroupFailed(ctx, schedule, attempt, res.Reason, max(pause, res.RetryAfter)); err != nil || tries > 0 {
			return err
		}
		var err error
		raised, err = s.o.Intake.SelfAlert(ctx, tx, groupStale(schedule, g, res))
		return err
	})
	s.o.Intake.Committed(raised)
	return err
}

// groupStale is the self-alert about a user group that could not be changed.
func groupStale(schedule string, g config.UserGroup, res delivery.Result) intake.Self {
	text := res.Sentence
	if text == "" {
		text = "Its provider did not take the change (" + res.Reason + ")."
	}
	return intake.Self{
		Kind: intake.SelfUserGroup, Criticality: "warning", About: schedule,
		Title:  fmt.Sprintf("The user group %s does not show who is on call for %s", g.ID, schedule),
		Text:   text + "\nPages are not concerned. It is tried again by itself, and this alert resolves when the group is right.",
		Labels: map[string]string{labelSchedule: schedule, labelNotifier: g.Notifier, labelReason: res.Reason},
	}
}
