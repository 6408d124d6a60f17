package store_test

import (
	"bytes"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// Everyone locks deliveries by id, whatever order their batch has: two transactions, which for once have not locked the
// incident, and a finish over the same rows wait for each other, and never in a circle.
func TestLocksAreTakenInOneOrder(t *testing.T) {
	t.Parallel()
	const rows, rounds = 12, 10
	s := newSite(t)
	inc := s.incident("k")
	for range rows {
		s.add(inc, delivery.Card)
	}
	claimed := s.claim(alpha)
	slices.SortFunc(claimed, func(a, b store.Claimed) int { return bytes.Compare(b.ID[:], a.ID[:]) }) // against the order
	var batch []store.Begun
	for _, c := range claimed {
		batch = append(batch, intent(c))
	}
	begun := s.try(alpha, batch...)
	var runs [2]int
	var all sync.WaitGroup
	for w := range 2 {
		all.Go(func() {
			for r := range rounds {
				err := s.InTx(t.Context(), func(tx *store.Tx) error {
					runs[w]++
					ds, err := tx.Deliveries(t.Context(), inc.ID)
					if err != nil {
						return err
					}
					var steps []delivery.Step
					for _, d := range ds {
						if step, ok := d.Raise(2 + w + 2*r); ok {
							steps = append(steps, step)
						}
					}
					slices.Reverse(steps)
					return tx.Apply(t.Context(), steps...)
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Go(func() {
		left := begun
		for len(left) > 0 { // again and again, since the others raise their rows meanwhile
			var out []store.Finished
			var order []uuid.UUID
			for _, c := range claimed {
				if b, ok := left[c.ID]; ok {
					out, order = append(out, ended(b, failed)), append(order, c.ID)
				}
			}
			done, err := s.Finish(t.Context(), alpha, out)
			if err != nil {
				t.Error(err)
				return
			}
			now, err := s.Read(t.Context(), order...)
			if err != nil {
				t.Error(err)
				return
			}
			next := map[uuid.UUID]store.Begun{}
			for id, b := range left {
				if !done[id] {
					b.Delivery = now[id].Delivery
					next[id] = b
				}
			}
			left = next
		}
	})
	all.Wait()
	if runs != [2]int{rounds, rounds} {
		t.Errorf("the transactions ran %v times, not %d each: they met in a deadlock", runs, rounds)
	}
	if n := get[int](s, "select count(*) from delivery where desired = $1 and tries = 1 and open_attempt is null", 1+2*rounds); n != rows {
		t.Errorf("%d of %d rows have all that was written", n, rows)
	}
}

// A batch locks its rows by id before it writes any: while it waits for the first, the others are still free.
func TestBatchesLockByIDBeforeTheyWrite(t *testing.T) {
	t.Parallel()
	for name, write := range map[string]func(s *site, claimed []store.Claimed) func() (int, error){
		"begin": func(s *site, claimed []store.Claimed) func() (int, error) {
			var batch []store.Begun
			for _, c := range claimed {
				batch = append(batch, intent(c))
			}
			return func() (int, error) { got, err := s.Begin(s.ctx(), alpha, batch); return len(got), err }
		},
		"settle": func(s *site, claimed []store.Claimed) func() (int, error) {
			var batch []delivery.Step
			for _, c := range claimed {
				batch = append(batch, c.GiveBack(0, ""))
			}
			return func() (int, error) { got, err := s.Settle(s.ctx(), batch); return len(got), err }
		},
		"finish": func(s *site, claimed []store.Claimed) func() (int, error) {
			var batch []store.Finished
			for _, c := range claimed {
				batch = append(batch, ended(s.begin(alpha, c), sent))
			}
			return func() (int, error) { got, err := s.Finish(s.ctx(), alpha, batch); return len(got), err }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			inc := s.incident("k")
			for range 3 {
				s.add(inc, delivery.Event)
			}
			claimed := s.claim(alpha)
			slices.SortFunc(claimed, func(a, b store.Claimed) int { return bytes.Compare(b.ID[:], a.ID[:]) }) // against the order
			tx, err := connect(t, s.url).Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			lock := func(i int) {
				t.Helper()
				if _, err := tx.Exec(t.Context(), "select 1 from delivery where id = $1 for update nowait", claimed[i].ID); err != nil {
					t.Fatalf("row %d of the batch: %v", i, err)
				}
			}
			f := write(s, claimed)
			lock(2) // the smallest id
			batch := async(t, f)
			s.blocked(1)
			lock(1)
			lock(0)
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n := batch.wait(); n != 3 {
				t.Errorf("%d of 3 rows were written", n)
			}
		})
	}
}

// After a deadlock the transaction is run again, from its start.
func TestInTxRunsAgainAfterADeadlock(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	a, b := s.incident("a"), s.incident("b")
	var runs [2]int
	var met sync.WaitGroup
	met.Add(2)
	cross := func(i int, first, second store.Incident) *call[struct{}] {
		return async(t, func() (struct{}, error) {
			return struct{}{}, s.InTx(t.Context(), func(tx *store.Tx) error {
				if _, err := tx.LockIncident(t.Context(), first.ID); err != nil {
					return err
				}
				if runs[i]++; runs[i] == 1 {
					met.Done()
					met.Wait() // both have their first lock: now each asks for the other's
				}
				_, err := tx.LockIncident(t.Context(), second.ID)
				return err
			})
		})
	}
	x, y := cross(0, a, b), cross(1, b, a)
	x.wait()
	y.wait()
	if runs[0]+runs[1] < 3 { // both may be chosen to give way
		t.Errorf("the transactions ran %d and %d times, and met in a deadlock", runs[0], runs[1])
	}
	// Other errors are no reason to run again.
	n := 0
	if err := s.InTx(t.Context(), func(*store.Tx) error { n++; return errTakenBack }); !errors.Is(err, errTakenBack) || n != 1 {
		t.Errorf("it ran %d times: %v", n, err)
	}
}

// Steps decided on rows as they were are refused as a whole once one of them has moved.
func TestApplyOfAMovedRowIsRefusedAsAWhole(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	inc := s.incident("k")
	a, b := s.add(inc, delivery.Card), s.add(inc, delivery.Card)
	var ds []delivery.Delivery
	s.tx(func(tx *store.Tx) (err error) {
		ds, err = tx.Deliveries(t.Context(), inc.ID)
		return err
	})
	if len(ds) != 2 || bytes.Compare(ds[0].ID[:], ds[1].ID[:]) >= 0 {
		t.Fatalf("read %s, not two in the order of their ids", pretty(ds))
	}
	s.note(inc, b, raise(2))
	before := s.whole(a) + s.whole(b)
	err := s.InTx(t.Context(), func(tx *store.Tx) error {
		var steps []delivery.Step
		for _, d := range ds {
			step, _ := d.Raise(3)
			steps = append(steps, step)
		}
		return tx.Apply(t.Context(), steps...)
	})
	if !errors.Is(err, store.ErrFenced) {
		t.Errorf("it is not ErrFenced: %v", err)
	}
	if after := s.whole(a) + s.whole(b); after != before {
		t.Errorf("part of it was written: %s", after)
	}
	// Who decided on a free row does not write on one that is leased by now.
	s.claim(alpha)
	before = s.whole(a)
	err = s.InTx(t.Context(), func(tx *store.Tx) error {
		step, _ := ds[0].Raise(9)
		return tx.Apply(t.Context(), step)
	})
	if !errors.Is(err, store.ErrFenced) {
		t.Errorf("it is not ErrFenced: %v", err)
	}
	s.unchanged(a, before, "a step decided before the claim")
}
