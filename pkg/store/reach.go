package store

import (
	"context"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/store/internal/query"
)

// Reach is what is known of one way to a person.
type Reach struct {
	User, Via        string    // no way: the person has none
	DueAt            time.Time // when it is looked at next
	CheckedAt        *time.Time
	Closed           bool
	Since            *time.Time
	Reason, Sentence string
}

// ReachRows is what is known of the ways to people, by person and way.
func (tx *Tx) ReachRows(ctx context.Context) ([]Reach, error) {
	rows, err := tx.q.ReachRows(ctx)
	if err != nil {
		return nil, err
	}
	return convert(rows, func(r query.Reach) (Reach, error) {
		return Reach{User: r.UserID, Via: r.Via, DueAt: r.DueAt, CheckedAt: r.CheckedAt, Closed: r.Closed, Since: r.Since, Reason: r.Reason, Sentence: r.Sentence}, nil
	})
}

// ListReach notes a way that is to be looked at; one that is known stays as it is.
func (tx *Tx) ListReach(ctx context.Context, user, via string) error {
	return tx.q.ListReach(ctx, user, via)
}

// DropReach forgets a way that nobody needs any more.
func (tx *Tx) DropReach(ctx context.Context, user, via string) error {
	return tx.q.DropReach(ctx, user, via)
}

// ClaimReach takes a way that is due to look at it, for a time. False: it is not due, or another replica has it.
func (tx *Tx) ClaimReach(ctx context.Context, user, via string, lease time.Duration) (bool, error) {
	n, err := tx.q.ClaimReach(ctx, lease, user, via)
	return n == 1, err
}

// PutReach writes what was found about a way, and after how long it is looked at again.
func (tx *Tx) PutReach(ctx context.Context, r Reach, again time.Duration) error {
	return tx.q.PutReach(ctx, query.PutReachParams{Again: again, Closed: r.Closed, Reason: r.Reason, Sentence: r.Sentence, UserID: r.User, Via: r.Via})
}

// ReachSooner has a way looked at now.
func (tx *Tx) ReachSooner(ctx context.Context, user, via string) error {
	return tx.q.ReachSooner(ctx, user, via)
}

// ReachTold is a person of whom it was told that they can't be reached.
type ReachTold struct{ Schedule, User, What string }

// ReachToldRows are all of them.
func (tx *Tx) ReachToldRows(ctx context.Context) ([]ReachTold, error) {
	rows, err := tx.q.ReachToldRows(ctx)
	if err != nil {
		return nil, err
	}
	return convert(rows, func(r query.ReachTold) (ReachTold, error) { return ReachTold{r.Schedule, r.UserID, r.What}, nil })
}

// TellReach notes that it is told of a person. False: the same was told before.
func (tx *Tx) TellReach(ctx context.Context, t ReachTold) (bool, error) {
	n, err := tx.q.TellReach(ctx, t.Schedule, t.User, t.What)
	return n == 1, err
}

// ForgetReach notes that a person can be reached again.
func (tx *Tx) ForgetReach(ctx context.Context, schedule, user string) error {
	return tx.q.ForgetReach(ctx, schedule, user)
}

// ReachIsTold says whether a person counts as not to be reached.
func (tx *Tx) ReachIsTold(ctx context.Context, schedule, user string) (bool, error) {
	return tx.q.ReachTold(ctx, schedule, user)
}

// ListGroup notes which user group a schedule keeps.
func (tx *Tx) ListGroup(ctx context.Context, schedule, group string) error {
	return tx.q.ListGroup(ctx, schedule, group)
}

// DropGroups forgets the groups of all schedules but the given ones.
func (tx *Tx) DropGroups(ctx context.Context, schedules []string) error {
	return tx.q.DropGroups(ctx, schedules)
}

// ClaimGroup takes a group whose members are not the given ones, for a time. It gives the number of this attempt, which its
// answer names, and how many failed before. False: there is nothing to do, or not yet, or another replica does it.
func (tx *Tx) ClaimGroup(ctx context.Context, schedule string, members []string, lease time.Duration) (attempt, tries int, ok bool, err error) {
	rows, err := tx.q.ClaimGroup(ctx, lease, schedule, members)
	if err != nil || len(rows) == 0 {
		return 0, 0, false, err
	}
	return rows[0].Attempt, rows[0].Tries, true, nil
}

// GroupAccepted notes the members that the chat has accepted, and how long the group rests.
func (tx *Tx) GroupAccepted(ctx context.Context, schedule string, attempt int, members []string, pause time.Duration) error {
	return tx.q.GroupAccepted(ctx, query.GroupAcceptedParams{Members: members, Pause: pause, Schedule: schedule, Attempt: attempt})
}

// GroupFailed notes why the chat did not, and when it is tried again.
func (tx *Tx) GroupFailed(ctx context.Context, schedule string, attempt int, why string, pause time.Duration) error {
	return tx.q.GroupFailed(ctx, query.GroupFailedParams{Error: why, Pause: pause, Schedule: schedule, Attempt: attempt})
}

// GroupFails says whether the last attempt at a schedule's group failed.
func (tx *Tx) GroupFails(ctx context.Context, schedule string) (bool, error) {
	return tx.q.GroupFails(ctx, schedule)
}
