package store_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// Rule 12: every end is counted, whoever brought it about: what a transaction ends is told after its commit, once, and
// never of one that was taken back.
func TestEndsOutsideTheWorkerAreTold(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var told []string
	s.OnEnded(func(e store.Ended) {
		told = append(told, fmt.Sprintf("%s %s %s %s %s %q", e.Kind, e.Notifier, e.Target, e.State, e.Reason, e.Sentence))
	})
	inc := s.incident("a")
	page, event, other := s.add(inc, delivery.Page), s.add(inc, delivery.Event), s.add(inc, delivery.Card)
	wrong := errors.New("wrong")
	tries := 0
	end := func(result func() error) error {
		return s.InTx(s.ctx(), func(tx *store.Tx) error {
			ds, err := tx.Deliveries(s.ctx(), inc.ID)
			if err != nil {
				return err
			}
			for _, d := range ds {
				var step delivery.Step
				ok := false
				switch d.ID {
				case page:
					step, ok = d.Cancel("acknowledged")
				case event:
					step, ok = d.Expire()
				case other:
					step, ok = d.Raise(2) // no end
				}
				if !ok {
					return fmt.Errorf("%s: nothing to do", d.Kind)
				}
				if err := tx.Apply(s.ctx(), step); err != nil {
					return err
				}
			}
			dead := store.NewDelivery{ID: store.NewID(), IncidentID: inc.ID, Kind: delivery.Page, Notifier: "dm", Target: "schedule:primary",
				Dead: &store.Dead{State: delivery.Unreachable, Reason: "nobody_on_call", Sentence: "Nobody is on call."}}
			if err := tx.AddDeliveries(s.ctx(), dead, store.NewDelivery{ID: store.NewID(), IncidentID: inc.ID, Kind: delivery.Event, Notifier: ops, Target: "url"}); err != nil {
				return err
			}
			return result()
		})
	}
	if err := end(func() error { return wrong }); !errors.Is(err, wrong) || len(told) != 0 {
		t.Fatalf("%v; told %v", err, told)
	}
	if err := end(func() error { // a deadlock: the transaction is run again
		if tries++; tries == 1 {
			return &pgconn.PgError{Code: "40P01"}
		}
		return nil
	}); err != nil || tries != 2 {
		t.Fatalf("%v after %d tries", err, tries)
	}
	want := []string{
		`page ops channel canceled acknowledged ""`, `event ops channel expired lifetime_over "Its time was over before it could be sent."`,
		`page dm schedule:primary unreachable nobody_on_call "Nobody is on call."`,
	}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Error(diff)
	}
}
