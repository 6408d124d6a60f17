package store_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/tocsin-oncall/tocsin/pkg/card"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/message"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// opened is what one intake got for a key.
type opened struct {
	inc     store.Incident
	created bool
}

// openLater opens the incident of a key in another goroutine.
func (s *site) openLater(key string) *call[opened] {
	return async(s.t, func() (o opened, err error) {
		err = s.InTx(s.ctx(), func(tx *store.Tx) error {
			o.inc, o.created, err = tx.OpenIncident(s.ctx(), fresh(key))
			return err
		})
		return o, err
	})
}

func resolve(inc *store.Incident, tx *store.Tx) {
	at := tx.Now()
	inc.State, inc.ResolvedAt, inc.ResolvedBy = message.Resolved, &at, "ana"
}

func TestOpenIncidentMakesOneLiveIncidentOfAKey(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	first := s.incident("k")
	if first.State != message.Open || first.Revision != 1 || first.Sequence != 0 || first.ResolvedAt != nil {
		t.Errorf("made as %s", pretty(first))
	}
	s.tx(func(tx *store.Tx) error {
		again, created, err := tx.OpenIncident(t.Context(), fresh("k"))
		if created || again.ID != first.ID {
			t.Errorf("opened again: %t, %s", created, pretty(again))
		}
		other, created, err2 := tx.OpenIncident(t.Context(), fresh("another key"))
		if !created || other.ID == first.ID {
			t.Errorf("another key: %t, %s", created, pretty(other))
		}
		resolve(&again, tx)
		return errors.Join(err, err2, tx.SaveIncident(t.Context(), again))
	})
	s.tx(func(tx *store.Tx) error {
		if _, ok, err := tx.LiveIncident(t.Context(), "k"); ok || err != nil {
			t.Errorf("a resolved incident is live: %t, %v", ok, err)
		}
		last, ok, err := tx.LastResolved(t.Context(), "k")
		if !ok || last.ID != first.ID || last.ResolvedBy != "ana" {
			t.Errorf("the last resolved one is %s", pretty(last))
		}
		next, created, err2 := tx.OpenIncident(t.Context(), fresh("k"))
		if !created || next.ID == first.ID {
			t.Errorf("after the resolve: %t, %s", created, pretty(next))
		}
		return errors.Join(err, err2)
	})
	s.tx(func(tx *store.Tx) error {
		if _, err := tx.LockIncident(t.Context(), store.NewID()); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("an incident that is not there: %v", err)
		}
		return nil
	})
}

// Two replicas get the same alert within a moment: one makes the incident, the other waits and gets it, with all that
// the first wrote.
func TestOpenIncidentRace(t *testing.T) {
	t.Parallel()
	for name, commit := range map[string]bool{"the first commits": true, "the first is rolled back": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			var first store.Incident
			var second *call[opened]
			err := s.InTx(t.Context(), func(tx *store.Tx) error {
				inc, created, err := tx.OpenIncident(t.Context(), fresh("k"))
				if err != nil || !created {
					t.Errorf("the first made nothing: %v", err)
					return err
				}
				second = s.openLater("k")
				s.blocked(1)
				inc.Count, inc.Revision, inc.Title = 7, 3, "as the first wrote it"
				first = inc
				if err := tx.SaveIncident(t.Context(), inc); err != nil || commit {
					return err
				}
				return errTakenBack
			})
			if commit && err != nil {
				t.Fatal(err)
			}
			got := second.wait()
			switch {
			case got.created == commit:
				t.Errorf("the second made one as well: %t", got.created)
			case commit && (got.inc.ID != first.ID || got.inc.Count != 7 || got.inc.Revision != 3 || got.inc.Title != first.Title):
				t.Errorf("the second got %s, not %s", pretty(got.inc), pretty(first))
			case !commit && (got.inc.ID == first.ID || got.inc.Revision != 1):
				t.Errorf("the second got %s of a rolled back transaction", pretty(got.inc))
			}
			if n := get[int](s, "select count(*) from incident"); n != 1 {
				t.Errorf("there are %d incidents", n)
			}
		})
	}
}

// An alert comes while somebody resolves: after the resolve it opens a new incident; after a rollback, or an
// acknowledgement, it joins the old one.
func TestOpenIncidentAgainstAResolve(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		state  message.State
		commit bool
		joins  bool
	}{
		"resolved":            {message.Resolved, true, false},
		"resolved, taken off": {message.Resolved, false, true},
		"acknowledged":        {message.Acknowledged, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			old := s.incident("k")
			var alert *call[opened]
			err := s.InTx(t.Context(), func(tx *store.Tx) error {
				inc, err := tx.LockIncident(t.Context(), old.ID)
				if err != nil {
					return err
				}
				alert = s.openLater("k")
				s.blocked(1)
				inc.Revision++
				if resolve(&inc, tx); c.state != message.Resolved {
					inc.State, inc.ResolvedAt, inc.ResolvedBy = c.state, nil, ""
				}
				if err := tx.SaveIncident(t.Context(), inc); err != nil || c.commit {
					return err
				}
				return errTakenBack
			})
			if c.commit && err != nil {
				t.Fatal(err)
			}
			got := alert.wait()
			if got.created == c.joins || (got.inc.ID == old.ID) != c.joins {
				t.Errorf("the alert got %s, made: %t", pretty(got.inc), got.created)
			}
			if c.joins && c.commit && got.inc.Revision != old.Revision+1 {
				t.Errorf("it joined at revision %d and not at what the other wrote", got.inc.Revision)
			}
			if !c.joins && get[int](s, "select count(*) from incident where state <> 'resolved'") != 1 {
				t.Error("there is not exactly one live incident")
			}
		})
	}
}

// A resolve that waits for an alert's transaction sees what the alert wrote; one that waits for a resolve finds nothing.
func TestLiveIncidentWaitsAndLooksAgain(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.incident("k")
	type found struct {
		inc store.Incident
		ok  bool
	}
	look := func() *call[found] {
		return async(t, func() (f found, err error) {
			err = s.InTx(t.Context(), func(tx *store.Tx) error {
				f.inc, f.ok, err = tx.LiveIncident(t.Context(), "k")
				return err
			})
			return f, err
		})
	}
	var waiting *call[found]
	change := func(f func(*store.Incident, *store.Tx)) {
		s.tx(func(tx *store.Tx) error {
			inc, _, err := tx.OpenIncident(t.Context(), fresh("k"))
			if err != nil {
				return err
			}
			waiting = look()
			s.blocked(1)
			f(&inc, tx)
			return tx.SaveIncident(t.Context(), inc)
		})
	}
	change(func(inc *store.Incident, _ *store.Tx) { inc.Revision, inc.Sequence = 2, 5 })
	if got := waiting.wait(); !got.ok || got.inc.Revision != 2 || got.inc.Sequence != 5 {
		t.Errorf("it got %s, not what had been written meanwhile", pretty(got))
	}
	change(resolve)
	if got := waiting.wait(); got.ok {
		t.Errorf("it got %s, which is resolved", pretty(got))
	}
}

// Many writers of one incident, each raising its revision, sequence, snapshot and card: nothing is overwritten.
func TestWritersOfAnIncidentDoNotOverwriteEachOther(t *testing.T) {
	t.Parallel()
	const writers, rounds = 4, 8
	s := newSite(t)
	inc := s.incident("k")
	id := s.add(inc, delivery.Card)
	write := func(who string) error {
		return s.InTx(t.Context(), func(tx *store.Tx) error {
			inc, _, err := tx.OpenIncident(t.Context(), fresh("k"))
			if err != nil {
				return err
			}
			inc.Revision++
			inc.Sequence++
			inc.Count++
			if err := tx.SaveIncident(t.Context(), inc); err != nil {
				return err
			}
			if err := tx.AddTimeline(t.Context(), inc.ID, card.Entry{Sequence: inc.Sequence, Actor: who, Type: "note"}); err != nil {
				return err
			}
			body := fmt.Appendf(nil, `{"count": %d}`, inc.Count)
			if err := tx.PutContent(t.Context(), store.Content{ID: inc.ID, Revision: inc.Revision, Body: body}); err != nil {
				return err
			}
			ds, err := tx.Deliveries(t.Context(), inc.ID)
			if err != nil {
				return err
			}
			step, ok := ds[0].Raise(inc.Revision)
			if !ok {
				return fmt.Errorf("revision %d is not newer than %d", inc.Revision, ds[0].Desired)
			}
			return tx.Apply(t.Context(), step)
		})
	}
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for range rounds {
				if err := write(fmt.Sprint("writer ", w)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	const n = writers * rounds
	got := get[string](s, `select concat_ws(' ', i.revision, i.sequence, i.count, c.revision, c.body->>'count', d.desired, (select count(*) from timeline), (select max(sequence) from timeline))
		from incident i join content c on c.id = i.id join delivery d on d.incident_id = i.id where d.id = $1`, id)
	if want := fmt.Sprint(n+1, n, n, n+1, n, n+1, n, n); got != want {
		t.Errorf("after %d writes: %s, not %s", n, got, want)
	}
}

// An older snapshot, which comes late, never replaces a newer one.
func TestContentOnlyGetsNewer(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := store.NewID()
	for _, c := range []struct {
		revision int
		want     string
	}{{2, "2"}, {1, "2"}, {3, "3"}, {3, "3 again"}} {
		s.tx(func(tx *store.Tx) error {
			return tx.PutContent(t.Context(), store.Content{ID: id, Revision: c.revision, Body: fmt.Appendf(nil, `{"is": %q}`, c.want)})
		})
		if got := get[string](s, "select body->>'is' from content where id = $1", id); got != c.want && c.revision > 1 {
			t.Errorf("after revision %d it is %s, not %s", c.revision, got, c.want)
		}
	}
	if got := get[string](s, "select body->>'is' from content where id = $1", id); got != "3 again" {
		t.Errorf("it is %s", got)
	}
}

// No page appears behind an acknowledgement: whoever adds one waits for the incident and sees that it is answered.
func TestNoPageBehindAnAcknowledgement(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	inc := s.incident("k")
	early := s.add(inc, delivery.Page)
	var page *call[bool]
	s.tx(func(tx *store.Tx) error {
		got, err := tx.LockIncident(t.Context(), inc.ID)
		if err != nil {
			return err
		}
		page = async(t, func() (added bool, err error) {
			err = s.InTx(t.Context(), func(tx *store.Tx) error {
				got, err := tx.LockIncident(t.Context(), inc.ID)
				if err != nil || got.State != message.Open {
					return err
				}
				added = true
				return tx.AddDeliveries(t.Context(), store.NewDelivery{ID: store.NewID(), IncidentID: inc.ID, ContentID: inc.ID, Kind: delivery.Page, Notifier: ops, Target: "user:ana"})
			})
			return added, err
		})
		s.blocked(1)
		at := tx.Now()
		got.State, got.AcknowledgedAt, got.AcknowledgedBy = message.Acknowledged, &at, "bo"
		if err := tx.SaveIncident(t.Context(), got); err != nil {
			return err
		}
		ds, err := tx.Deliveries(t.Context(), inc.ID)
		if err != nil {
			return err
		}
		step, ok := ds[0].Answer("acknowledged", 2)
		if !ok || len(ds) != 1 || ds[0].ID != early {
			t.Errorf("the acknowledgement finds %s", pretty(ds))
		}
		return tx.Apply(t.Context(), step)
	})
	if page.wait() {
		t.Error("a page was added to an incident that was acknowledged")
	}
	s.inState(early, delivery.Canceled, "acknowledged")
}
