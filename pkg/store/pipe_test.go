package store_test

import (
	"errors"
	"testing"

	"github.com/tocsin-oncall/tocsin/pkg/card"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// Statements that answer nothing are kept until one that does: it sees what they wrote, and the commit takes the last along.
func TestKeptStatementsTakePlaceInTheirOrder(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	inc := s.incident("k")
	s.tx(func(tx *store.Tx) error {
		for n := range 3 {
			if err := tx.AddDeliveries(t.Context(), store.NewDelivery{ID: store.NewID(), IncidentID: inc.ID, Kind: delivery.Event, Notifier: ops, Target: "url"}); err != nil {
				return err
			}
			ds, err := tx.Deliveries(t.Context(), inc.ID)
			if err != nil || len(ds) != n+1 {
				t.Errorf("%d deliveries after the %dth: %v", len(ds), n+1, err)
			}
		}
		return tx.AddTimeline(t.Context(), inc.ID, card.Entry{Sequence: 1, Actor: "a", Type: "note", Text: "last"})
	})
	if n := get[int](s, "select count(*) from timeline where text = 'last'"); n != 1 {
		t.Errorf("%d entries", n)
	}
}

// What is wrong with a kept statement is told at the latest by the commit, which then does not take place; and whoever
// gives up takes nothing along. The connection is good for the next.
func TestKeptStatementThatFailsTakesAllBack(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	inc := s.incident("k")
	lost := errors.New("lost")
	orphan := func(tx *store.Tx) error {
		return tx.AddTimeline(t.Context(), store.NewID(), card.Entry{Sequence: 1, Actor: "a", Type: "note", Text: "of no incident"})
	}
	for name, c := range map[string]struct {
		then func(tx *store.Tx) error
		want func(error) bool
	}{
		"at the commit": {orphan, store.Refused},
		"with the next that answers": {func(tx *store.Tx) error {
			if err := orphan(tx); err != nil {
				return err
			}
			_, err := tx.Deliveries(t.Context(), inc.ID)
			if err == nil {
				t.Error("a statement behind one that failed has an answer")
			}
			return err
		}, store.Refused},
		"given up": {func(*store.Tx) error { return lost }, func(err error) bool { return errors.Is(err, lost) }},
	} {
		err := s.InTx(t.Context(), func(tx *store.Tx) error {
			if err := tx.Audit(t.Context(), "a", "done", "o", name); err != nil {
				return err
			}
			return c.then(tx)
		})
		if !c.want(err) {
			t.Errorf("%s: %v", name, err)
		}
		s.tx(func(tx *store.Tx) error { _, err := tx.Deliveries(t.Context(), inc.ID); return err })
	}
	if n := get[int](s, "select (select count(*) from audit) + (select count(*) from timeline)"); n != 0 {
		t.Errorf("%d rows are left of what failed", n)
	}
}
