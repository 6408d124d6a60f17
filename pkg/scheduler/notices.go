package scheduler

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/card"
	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/message"
	"github.com/tocsin-oncall/tocsin/pkg/oncall"
	"github.com/tocsin-oncall/tocsin/pkg/plan"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

const (
	// noticeAhead is how long before its time a notice about a shift is made. Its row waits in the database, so an outage makes it
	// late or lets it expire, and a change of the schedule withdraws it.
	noticeAhead = 24 * time.Hour
	// noticeLives is how long a notice is worth sending at most.
	noticeLives = time.Hour
)

// Notices tells people of their shifts, each notice once for each shift and person. What the schedules say is compared with what
// was made: what is missing is made, what is not said any more is withdrawn, and who was told that a shift has started is not told
// again when its edges move. Replicas with the newest file do this, one at a time.
func (s *Scheduler) Notices(ctx context.Context) (bool, error) {
	f := s.o.File()
	if len(f.Schedules) == 0 && s.noticed == f.Checksum {
		return false, nil // what an earlier file left is withdrawn
	}
	mark := f.Checksum
	err := s.o.Store.InTx(ctx, func(tx *store.Tx) error {
		if mine, err := tx.LockNotices(ctx); err != nil || !mine {
			return err
		}
		newest, err := tx.NewestFile(ctx, Alive)
		if err != nil || newest != "" && newest != f.Checksum {
			return err
		}
		now, lives := tx.Now(), min(noticeLives, cmp.Or(f.Kinds[delivery.Notice].Lifetime, noticeLives))
		f, err := overridden(ctx, tx, f, now.Add(-3*lives))
		if err != nil {
			return err
		}
		linked, err := tx.Accounts(ctx)
		if err != nil {
			return fmt.Errorf("read the linked accounts: %w", err)
		}
		n := notices{tx: tx, f: f, now: now, lives: lives}
		for _, a := range linked {
			n.accounts = append(n.accounts, plan.Account{Provider: a.Provider, AccountID: a.AccountID, UserID: a.UserID})
		}
		if n.made, err = tx.ShiftNotices(ctx, now.Add(-lives)); err != nil {
			return fmt.Errorf("read the notices about shifts: %w", err)
		}
		// Deliveries are locked by id, as a worker's batch does.
		slices.SortFunc(n.made, func(a, b store.ShiftNotice) int { return bytes.Compare(a.DeliveryID[:], b.DeliveryID[:]) })
		return n.update(ctx)
	})
	if err != nil {
		return false, fmt.Errorf("tell people of their shifts: %w", err)
	}
	s.noticed = mark
	return false, nil
}

// notices is one comparison.
type notices struct {
	tx       *store.Tx
	f        *config.File
	accounts []plan.Account
	now      time.Time
	lives    time.Duration
	made     []store.ShiftNotice
}

// update brings what is made in line with what the schedules say.
func (n *notices) update(ctx context.Context) error {
	var wanted []plan.Notice
	schedules := map[string]oncall.Schedule{}
	for _, s := range n.f.Schedules {
		schedules[s.ID] = s
		wanted = append(wanted, plan.ShiftNotices(n.f, s, n.now.Add(-n.lives), n.now.Add(noticeAhead), n.lives)...)
	}
	// First what goes: a shift that moved takes its notice along.
	for i, m := range n.made {
		if m.Withdrawn || !m.Due.After(n.now.Add(-n.lives)) || slices.ContainsFunc(wanted, func(w plan.Notice) bool { return same(m, w) }) {
			continue
		}
		gone, err := n.withdraw(ctx, m)
		if err != nil {
			return err
		}
		n.made[i].Withdrawn = gone
	}
	for _, w := range wanted {
		s := schedules[w.Schedule]
		at := slices.IndexFunc(n.made, func(m store.ShiftNotice) bool { return same(m, w) && !m.Withdrawn })
		var err error
		switch {
		case at >= 0 && w.Due.After(n.now) && !sameEnd(n.made[at].End, w.End): // the shift ends at another time: the words change
			m := n.made[at]
			m.Start, m.End = w.Start, w.End
			err = n.write(ctx, w, s, m)
		case at >= 0, slices.ContainsFunc(n.made, func(m store.ShiftNotice) bool { return n.told(m, w, s) }):
		default:
			err = n.make(ctx, w, s)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// same says that a notice was made for what is wanted.
func same(m store.ShiftNotice, w plan.Notice) bool {
	return m.Schedule == w.Schedule && m.User == w.User && m.What == w.What && near(m.At, w.At) && near(m.Due, w.Due)
}

// near compares instants as the database keeps them.
func near(a, b time.Time) bool {
	return a.Truncate(time.Microsecond).Equal(b.Truncate(time.Microsecond))
}

func sameEnd(a, b time.Time) bool { return a.IsZero() && b.IsZero() || near(a, b) }

// sameShift is how long after a notice the shift that it told of is known again when the schedule puts its edges elsewhere.
const sameShift = 24 * time.Hour

// told says that the person was told the same of the same shift before its edges moved: the moment that it told of lies in the
// shift that is wanted; or, where the schedule has the person off at that moment by now, the shift is what became of the one told of.
func (n *notices) told(m store.ShiftNotice, w plan.Notice, s oncall.Schedule) bool {
	if m.Withdrawn || m.Due.After(n.now) || m.Schedule != w.Schedule || m.User != w.User || m.What != w.What {
		return false
	}
	if w.Overlaps(m.At, m.At.Add(1)) {
		return true
	}
	shift, _ := s.At(m.At)
	end := m.Due.Add(sameShift)
	if !m.End.IsZero() && m.End.Before(end) {
		end = m.End
	}
	return !slices.Contains(shift.Users, m.User) && w.Overlaps(m.Start, end)
}

// withdraw cancels a notice that is not out. False: it is, or is on its way.
func (n *notices) withdraw(ctx context.Context, m store.ShiftNotice) (bool, error) {
	d, err := n.tx.Delivery(ctx, m.DeliveryID)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read a notice: %w", err)
	}
	step, ok := d.Withdraw()
	if !ok {
		return false, nil
	}
	if err := n.tx.Apply(ctx, step); err != nil {
		return false, fmt.Errorf("withdraw a notice: %w", err)
	}
	return true, n.tx.WithdrawShiftNotice(ctx, m.DeliveryID)
}

// make makes a notice with its delivery. Nobody to send to: nothing is made, and it is
// looked at again as long as it would be worth sending; that the person can't be reached is told elsewhere.
func (n *notices) make(ctx context.Context, w plan.Notice, s oncall.Schedule) error {
	via, ok := plan.QuietWay(n.f, n.accounts, w.User, n.now)
	if !ok {
		return nil
	}
	m := store.ShiftNotice{Schedule: w.Schedule, User: w.User, What: w.What, At: w.At, Start: w.Start, End: w.End, Due: w.Due, DeliveryID: store.NewID(), ContentID: store.NewID()}
	if err := n.write(ctx, w, s, m); err != nil {
		return err
	}
	delay := w.Due.Sub(n.now)
	return n.tx.AddDeliveries(ctx, store.NewDelivery{
		ID: m.DeliveryID, ContentID: m.ContentID, Kind: delivery.Notice, Notifier: via, Target: "user:" + w.User, Desired: 1,
		Delay: max(delay, 0), Lifetime: n.lives + min(delay, 0), FromDue: true,
	})
}

// write writes a notice and its words.
func (n *notices) write(ctx context.Context, w plan.Notice, s oncall.Schedule, m store.ShiftNotice) error {
	title, text := w.Told(n.f, s)
	body, err := json.Marshal(card.Snapshot{Title: title, Text: text, State: message.Plain})
	if err != nil {
		return fmt.Errorf("write the words of a notice: %w", err)
	}
	if err := n.tx.PutContent(ctx, store.Content{ID: m.ContentID, Revision: 1, Body: body}); err != nil {
		return fmt.Errorf("write the words of a notice: %w", err)
	}
	if err := n.tx.PutShiftNotice(ctx, m); err != nil {
		return fmt.Errorf("note a notice: %w", err)
	}
	return nil
}

// overridden is the file with the overrides of its schedules from a time on.
func overridden(ctx context.Context, tx *store.Tx, f *config.File, from time.Time) (*config.File, error) {
	all, err := tx.OverridesFrom(ctx, from)
	if err != nil {
		return nil, fmt.Errorf("read the overrides: %w", err)
	}
	return f.WithOverrides(all), nil
}
