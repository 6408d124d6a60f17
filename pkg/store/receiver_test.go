package store_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// Two holders in turn: the second goes on where the first has come to, and the first, back from the dead, stores nothing more.
func TestOneReplicaPollsAtATime(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	one, two := store.Poll{Account: "telegram:a", Token: uuid.New(), Holder: "one"}, store.Poll{Account: "telegram:a", Token: uuid.New(), Holder: "two"}
	hold := func(p store.Poll, want bool, next int64) {
		t.Helper()
		got, held, err := s.HoldPoll(t.Context(), p, time.Minute)
		if err != nil || held != want || got != next {
			t.Errorf("%s: held %t, next %d, %v", p.Holder, held, got, err)
		}
	}
	callback := func(n int) store.Callback {
		return store.Callback{Key: fmt.Sprint("telegram:1:", n), Body: []byte(`{}`)}
	}
	hold(one, true, 0)
	hold(two, false, 0)
	hold(one, true, 0) // renewed
	if who, err := s.PollHolder(t.Context(), "telegram:a"); err != nil || who != "one" {
		t.Error(who, err)
	}
	fresh, err := s.ReceivePolled(t.Context(), one, 12, []store.Callback{callback(10), callback(11)}, time.Minute)
	if err != nil || len(fresh) != 2 {
		t.Fatal(fresh, err)
	}
	hold(store.Poll{Account: "telegram:b", Token: uuid.New(), Holder: "two"}, true, 0) // another bot
	s.exec("update poller set lease_until = clock_timestamp() where account = 'telegram:a'")
	if _, err := s.ReceivePolled(t.Context(), one, 13, []store.Callback{callback(12)}, time.Minute); !errors.Is(err, store.ErrFenced) {
		t.Errorf("stored after its turn: %v", err)
	}
	hold(two, true, 12)
	if _, err := s.ReceivePolled(t.Context(), one, 13, []store.Callback{callback(12)}, time.Minute); !errors.Is(err, store.ErrFenced) {
		t.Errorf("stored in another one's turn: %v", err)
	}
	// What is given again is stored once.
	if fresh, err = s.ReceivePolled(t.Context(), two, 13, []store.Callback{callback(11), callback(12)}, time.Minute); err != nil || len(fresh) != 1 || fresh[0].Key != "telegram:1:12" {
		t.Errorf("%+v, %v", fresh, err)
	}
	if n := get[int](s, "select count(*)::int from callback where key like 'telegram:1:%'"); n != 3 {
		t.Errorf("%d stored", n)
	}
	if err := s.LeavePoll(t.Context(), two); err != nil {
		t.Fatal(err)
	}
	hold(one, true, 13)
}

func TestACallbackIsAppliedOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	c := store.Callback{Key: "slack:1", Body: []byte(`{"a": 1}`)}
	for i, want := range []bool{true, false} {
		if first, err := s.Receive(t.Context(), c, time.Minute); err != nil || first != want {
			t.Errorf("stored %d: %t, %v", i, first, err)
		}
	}
	due := func(want int) {
		t.Helper()
		all, err := s.DueCallbacks(t.Context(), time.Minute, 10)
		if err != nil || len(all) != want {
			t.Fatalf("%+v, %v", all, err)
		}
	}
	due(0) // its replica is at it
	s.exec("update callback set due_at = now() - interval '1 second'")
	due(1)
	due(0) // given to one for a while
	for i, want := range []bool{true, false} {
		if err := s.InTx(t.Context(), func(tx *store.Tx) error {
			first, err := tx.Callback(t.Context(), c.Key)
			if first != want {
				t.Errorf("applied %d: %t", i, first)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	s.exec("update callback set at = now() - interval '8 days'")
	s.exec("insert into callback (key, at, body, due_at) values ('slack:2', now() - interval '8 days', '{}', now())")
	if _, err := s.Purge(t.Context(), 100); err != nil {
		t.Fatal(err)
	}
	if got := get[string](s, "select string_agg(key, ' ') from callback"); got != "slack:2" {
		t.Errorf("left: %s; what is not applied is never swept away", got)
	}
}
