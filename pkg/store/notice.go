package store

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/store/internal/query"
)

// ShiftNotice is a notice about a shift that was made.
type ShiftNotice struct {
	Schedule, User, What string
	At                   time.Time // the start or end that it tells of
	Start, End           time.Time // of the person's turn; zero: since ever, for ever
	Due                  time.Time
	DeliveryID           uuid.UUID
	ContentID            uuid.UUID
	Withdrawn            bool
}

// LockNotices lets one transaction at a time work on the notices about shifts. False: another one does.
func (tx *Tx) LockNotices(ctx context.Context) (bool, error) { return tx.q.TryLockNotices(ctx) }

// ShiftNotices are those that are due after a time, told or not, and those of turns that go on then.
func (tx *Tx) ShiftNotices(ctx context.Context, after time.Time) ([]ShiftNotice, error) {
	rows, err := tx.q.ShiftNotices(ctx, after)
	if err != nil {
		return nil, err
	}
	return convert(rows, func(r query.ShiftNotice) (ShiftNotice, error) {
		return ShiftNotice{
			Schedule: r.Schedule, User: r.UserID, What: r.What, At: r.At, Start: deref(r.StartsAt), End: deref(r.EndsAt), Due: r.DueAt,
			DeliveryID: r.DeliveryID, ContentID: r.ContentID, Withdrawn: r.Withdrawn,
		}, nil
	})
}

// PutShiftNotice writes a notice; one that was withdrawn takes place after all.
func (tx *Tx) PutShiftNotice(ctx context.Context, n ShiftNotice) error {
	return tx.q.PutShiftNotice(ctx, query.PutShiftNoticeParams{
		Schedule: n.Schedule, UserID: n.User, What: n.What, At: n.At, StartsAt: bound(n.Start), EndsAt: bound(n.End), DueAt: n.Due,
		DeliveryID: n.DeliveryID, ContentID: n.ContentID,
	})
}

// WithdrawShiftNotice notes that a notice was not told, since its shift is none any more.
func (tx *Tx) WithdrawShiftNotice(ctx context.Context, deliveryID uuid.UUID) error {
	return tx.q.WithdrawShiftNotice(ctx, deliveryID)
}

// keepNotices is how long a notice about a shift is kept after the shift.
const keepNotices = 90 * 24 * time.Hour

// PurgeNotices removes notices about shifts that are long over.
func (s *Store) PurgeNotices(ctx context.Context, limit int) error {
	_, err := s.q.PurgeShiftNotices(ctx, keepNotices, int32(min(limit, 10_000))) //nolint:gosec // bounded on this line
	return err
}

// bound is the edge of a turn: nil where it has none.
func bound(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
