package store

import (
	"context"
	"fmt"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/oncall"
	"github.com/tocsin-oncall/tocsin/pkg/store/internal/query"
)

// Shift is a row of what oncall_now shows: one person on call in one schedule for a while.
type Shift struct {
	Schedule, Layer, UserID, UserName string
	Since                             time.Time
	Until                             *time.Time // nil: no end in sight
}

// same compares instants as instants and as the database keeps them, in microseconds.
func (a Shift) same(r query.OncallShift) bool {
	if a.Schedule != r.Schedule || a.Layer != r.Layer || a.UserID != r.UserID || a.UserName != r.UserName || !a.Since.Truncate(time.Microsecond).Equal(r.Since) {
		return false
	}
	if a.Until == nil || r.Until == nil {
		return a.Until == nil && r.Until == nil
	}
	return a.Until.Truncate(time.Microsecond).Equal(*r.Until)
}

// PutShifts makes oncall_now show the shifts that list gives and no others, which must be sorted by schedule, layer, user and
// start. It is told the database's clock and what lies over the file from then on. Nothing is written when the shifts stand there already.
func (s *Store) PutShifts(ctx context.Context, list func(now time.Time, overrides oncall.Overlay) []Shift) error {
	return s.InTx(ctx, func(tx *Tx) error {
		if err := tx.q.LockShifts(ctx); err != nil {
			return fmt.Errorf("lock shifts: %w", err)
		}
		overrides, err := tx.OverridesFrom(ctx, tx.Now()) // after the lock: what was written before is known
		if err != nil {
			return err
		}
		shifts := list(tx.Now(), overrides)
		rows, err := tx.q.ReadShifts(ctx)
		if err != nil {
			return fmt.Errorf("read shifts: %w", err)
		}
		equal := len(rows) == len(shifts)
		for i := 0; equal && i < len(rows); i++ {
			equal = shifts[i].same(rows[i])
		}
		if equal {
			return nil
		}
		if err := tx.q.DropShifts(ctx); err != nil {
			return fmt.Errorf("drop shifts: %w", err)
		}
		for _, sh := range shifts {
			if err := tx.q.AddShift(ctx, query.AddShiftParams{Schedule: sh.Schedule, Layer: sh.Layer, UserID: sh.UserID, UserName: sh.UserName, Since: sh.Since, Until: sh.Until}); err != nil {
				return fmt.Errorf("write shift: %w", err)
			}
		}
		return nil
	})
}
