package store_test

import (
	"errors"
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/oncall"
	"github.com/tocsin-oncall/tocsin/pkg/store"
	"github.com/tocsin-oncall/tocsin/pkg/store/storetest"
)

func openTwo(t *testing.T) (one, two *store.Store, url string) {
	t.Helper()
	url = storetest.New(t)
	var both [2]*store.Store
	for i := range both {
		var err error
		if both[i], err = store.Open(t.Context(), url, store.Options{MaxConnections: 4}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(both[i].Close)
	}
	return both[0], both[1], url
}

// put lists, claims and puts a copy whose one event has a title.
func put(t *testing.T, s *store.Store, title string) {
	t.Helper()
	within(t, s, func(tx *store.Tx) error {
		if err := tx.ListCalendars(t.Context(), []string{"c"}); err != nil {
			return err
		}
		all, err := tx.ClaimCalendars(t.Context(), []string{"c"}, time.Minute, 10)
		if err != nil || len(all) != 1 {
			t.Fatalf("claimed %+v, %v", all, err)
		}
		ok, err := tx.PutCalendar(t.Context(), all[0], &oncall.Calendar{Events: []oncall.Event{{Start: time.Unix(0, 0).UTC(), End: time.Unix(60, 0).UTC(), Summary: title}}}, 0)
		if !ok {
			t.Error("not put")
		}
		return err
	})
}

func within(t *testing.T, s *store.Store, f func(*store.Tx) error) {
	t.Helper()
	if err := s.InTx(t.Context(), f); err != nil {
		t.Fatal(err)
	}
}

// title is that of the copy's one event, as a replica sees it; the copy itself, too.
func title(t *testing.T, s *store.Store) (string, *oncall.Calendar) {
	t.Helper()
	over, err := s.OverridesFrom(t.Context(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	c := over.Calendars["c"]
	if c == nil {
		return "", nil
	}
	return c.Events[0].Summary, c
}

// Whoever asks who is on call has the copy that is in force; it is read again only when it has become another.
func TestCopiesOfCalendars(t *testing.T) {
	t.Parallel()
	one, two, url := openTwo(t)
	if got, c := title(t, two); c != nil {
		t.Errorf("before the first: %q", got)
	}
	put(t, one, "first")
	got, first := title(t, two)
	if _, again := title(t, two); got != "first" || again != first {
		t.Errorf("%q, and it was read again: %v", got, again != first)
	}
	put(t, one, "first")
	if _, again := title(t, two); again != first {
		t.Error("the same copy was read again")
	}
	put(t, one, "second")
	if got, _ := title(t, two); got != "second" {
		t.Errorf("%q", got)
	}
	// A copy that was never committed is nobody's.
	failed := errors.New("failed")
	err := one.InTx(t.Context(), func(tx *store.Tx) error {
		all, err := tx.ClaimCalendars(t.Context(), []string{"c"}, time.Minute, 10)
		if err != nil {
			return err
		}
		if _, err := tx.PutCalendar(t.Context(), all[0], &oncall.Calendar{Events: []oncall.Event{{Summary: "third"}}}, 0); err != nil {
			return err
		}
		over, err := tx.OverridesFrom(t.Context(), time.Now())
		if err != nil || over.Calendars["c"].Events[0].Summary != "third" {
			t.Errorf("within its transaction: %+v, %v", over.Calendars, err)
		}
		return failed
	})
	if got, _ := title(t, one); got != "second" || !errors.Is(err, failed) {
		t.Errorf("%q, %v", got, err)
	}
	// One that was forgotten and comes back is another, though its number begins anew.
	storetest.MoveClock(t, url, 2*time.Hour)
	if err := one.PurgeCalendars(t.Context(), time.Hour); err != nil {
		t.Fatal(err)
	}
	put(t, one, "back")
	put(t, one, "back again")
	if got, _ := title(t, two); got != "back again" {
		t.Errorf("%q", got)
	}
	// The worker has it for whatever goes to a schedule or to one layer of it, and for nothing else.
	for target, want := range map[string]int{"schedule:primary": 1, "layer:primary/rota": 1, "user:ana": 0} {
		d := store.Claimed{Now: time.Now()}
		d.Target = target
		if a, err := one.Around(t.Context(), []store.Claimed{d}); err != nil || len(a.Overrides.Calendars) != want {
			t.Errorf("around %s: %+v, %v", target, a.Overrides, err)
		}
	}
}

// A fetch whose time was over changes nothing, whatever became of it.
func TestAFetchIsFenced(t *testing.T) {
	t.Parallel()
	one, two, url := openTwo(t)
	claim := func(s *store.Store) (all []store.Fetch) {
		within(t, s, func(tx *store.Tx) (err error) {
			if err = tx.ListCalendars(t.Context(), []string{"c"}); err == nil {
				all, err = tx.ClaimCalendars(t.Context(), []string{"c"}, time.Minute, 10)
			}
			return err
		})
		return all
	}
	late := claim(one)
	if len(late) != 1 || len(claim(two)) != 0 {
		t.Fatalf("claimed %+v", late)
	}
	storetest.MoveClock(t, url, 2*time.Minute)
	now := claim(two)
	if len(now) != 1 {
		t.Fatal("nobody goes on")
	}
	within(t, two, func(tx *store.Tx) error {
		_, err := tx.CalendarFailed(t.Context(), now[0], "answered 500", time.Hour)
		return err
	})
	within(t, one, func(tx *store.Tx) error {
		put, err := tx.PutCalendar(t.Context(), late[0], &oncall.Calendar{}, 0)
		failed, err2 := tx.CalendarFailed(t.Context(), late[0], "late", 0)
		if put || failed {
			t.Error("the late one counts")
		}
		return errors.Join(err, err2)
	})
	states, err := one.CalendarStates(t.Context())
	if err != nil || len(states) != 1 || states[0].Error != "answered 500" || states[0].Tries != 1 || states[0].FetchedAt != nil {
		t.Errorf("%+v, %v", states, err)
	}
}
