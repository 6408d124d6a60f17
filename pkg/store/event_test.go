package store_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

func (s *site) tell(topic string) func(tx *store.Tx) error {
	return func(tx *store.Tx) error {
		tx.Tell(store.Event{Type: api.EventAlert, Topic: topic})
		return nil
	}
}

// heard numbers what is committed and gives the topics after a number.
func (s *site) heard(after int64) (topics []string, last int64) {
	s.t.Helper()
	if _, err := s.NumberEvents(s.ctx(), 1000); err != nil {
		s.t.Fatal(err)
	}
	es, err := s.EventsAfter(s.ctx(), after, 1000)
	if err != nil {
		s.t.Fatal(err)
	}
	last = after
	for _, e := range es {
		topics = append(topics, e.Topic)
		last = e.ID
	}
	return topics, last
}

// A transaction that commits late appears behind what was read meanwhile, and holds nobody up.
func TestEventsAreNumberedInTheOrderInWhichTheyAppear(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var last int64
	s.tx(func(tx *store.Tx) error {
		// What it writes itself comes with its commit; that it has an id of its own already would stall readers who wait for those.
		if _, _, err := tx.OpenIncident(t.Context(), fresh("slow")); err != nil {
			return err
		}
		tx.Tell(store.Event{Type: api.EventAlert, Topic: "slow"})
		s.tx(s.tell("quick"))
		var topics []string
		if topics, last = s.heard(0); !slices.Equal(topics, []string{"quick"}) {
			t.Errorf("heard while a transaction is open: %q", topics)
		}
		return nil
	})
	if topics, _ := s.heard(last); !slices.Equal(topics, []string{"slow"}) {
		t.Errorf("heard after its commit: %q", topics)
	}
}

// Many write, two number and read at once: each reader gets everything once, in one order.
func TestEventsUnderConcurrency(t *testing.T) {
	t.Parallel()
	const writers, each = 4, 25
	s := newSite(t)
	var writing, reading sync.WaitGroup
	for range writers {
		writing.Go(func() {
			for range each {
				if err := s.InTx(t.Context(), s.tell("x")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	read := make([][]int64, 2)
	for r := range read {
		reading.Go(func() {
			var last int64
			for len(read[r]) < writers*each {
				if _, err := s.NumberEvents(t.Context(), 7); err != nil {
					t.Error(err)
					return
				}
				es, err := s.EventsAfter(t.Context(), last, 10)
				if err != nil {
					t.Error(err)
					return
				}
				for _, e := range es {
					last = e.ID
					read[r] = append(read[r], last)
				}
			}
		})
	}
	writing.Wait()
	reading.Wait()
	if !slices.Equal(read[0], read[1]) || !slices.IsSorted(read[0]) || len(slices.Compact(read[0])) != writers*each {
		t.Errorf("read were %d and %d of %d events", len(read[0]), len(read[1]), writers*each)
	}
}

// What is told of in a transaction that is rolled back was not; old events go, but for the last.
func TestEventsRolledBackAndPurged(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	if err := s.InTx(t.Context(), func(tx *store.Tx) error {
		tx.Tell(store.Event{Type: api.EventAlert, Topic: "never"})
		return errTakenBack
	}); err == nil {
		t.Fatal("it was not rolled back")
	}
	for range 3 {
		s.tx(s.tell("x"))
	}
	if topics, _ := s.heard(0); !slices.Equal(topics, []string{"x", "x", "x"}) {
		t.Errorf("heard %q", topics)
	}
	if _, err := s.db.Exec(t.Context(), "update event set at = now() - interval '5 hours'"); err != nil {
		t.Fatal(err)
	}
	if n, err := s.PurgeEvents(t.Context(), 10); n != 2 || err != nil {
		t.Errorf("purged %d, %v", n, err)
	}
}
