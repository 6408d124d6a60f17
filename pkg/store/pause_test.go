package store_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// The breaker of most tests, as the worker names it: an account and the checksum of a file.
const breaker = "slack:0123@sum"

func (s *site) rest(reason string, length time.Duration) {
	s.t.Helper()
	p := store.Pause{Key: room, Scope: store.ScopeDestination, Account: "slack:0123", Notifier: ops, Destination: "C0123", Reason: reason, Sentence: "Because of " + reason}
	if err := s.Rest(s.ctx(), p, length); err != nil {
		s.t.Fatal(err)
	}
}

// trip opens the breaker, and says whether this did it.
func (s *site) trip(reason string) bool {
	s.t.Helper()
	opened, err := s.OpenBreaker(s.ctx(), store.Pause{Key: breaker, Account: "slack:0123", Notifier: ops, Checksum: "sum", Reason: reason, Code: "token_revoked"}, 30*time.Second)
	if err != nil {
		s.t.Fatal(err)
	}
	return opened
}

// pauses are those that rest, by key.
func (s *site) pauses() map[string]store.Pause {
	s.t.Helper()
	all, err := s.Pauses(s.ctx())
	if err != nil {
		s.t.Fatal(err)
	}
	work, err := s.WorkPauses(s.ctx())
	if err != nil || len(work) != len(all) {
		s.t.Fatalf("%d pauses, the worker sees %d: %v", len(all), len(work), err)
	}
	out := map[string]store.Pause{}
	for _, p := range all {
		out[p.Key] = p
	}
	return out
}

// about says that a length of time is the one that is wanted, less what the test itself has taken.
func about(got, want time.Duration) bool { return got <= want && got > want-20*time.Second }

// Of two reasons to rest the later end counts, whichever came first; a rest that is over begins anew.
func TestLaterEndOfARestWins(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.rest("paused", time.Minute)
	first := s.pauses()[room]
	if !about(first.Left, time.Minute) || first.Reason != "paused" || first.Scope != store.ScopeDestination || first.Destination != "C0123" || first.Account != "slack:0123" || first.Notifier != ops {
		t.Errorf("%s", pretty(first))
	}
	s.rest("rate_limited", time.Second)
	if p := s.pauses()[room]; p.Reason != "paused" || !p.Until.Equal(first.Until) {
		t.Errorf("a shorter one took its place: %s", pretty(p))
	}
	s.rest("rate_limited", time.Hour)
	if p := s.pauses()[room]; p.Reason != "rate_limited" || !about(p.Left, time.Hour) || !p.Since.Equal(first.Since) {
		t.Errorf("a longer one did not: %s", pretty(p))
	}
	s.move(time.Hour)
	if n := len(s.pauses()); n != 0 {
		t.Errorf("%d rests after their end", n)
	}
	s.rest("paused", time.Second)
	if p := s.pauses()[room]; p.Since.Sub(first.Since) < time.Hour || p.Reason != "paused" || !about(p.Left, time.Second) {
		t.Errorf("it did not begin anew: %s", pretty(p))
	}
}

// Whoever finds an account in trouble opens its breaker; one of two that find it at once has done it, and is the one who
// tells of it.
func TestBreakerOpensOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	tx, err := connect(t, s.url).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// Somebody has written the row and will take it back: both wait for that.
	if _, err := tx.Exec(t.Context(), "insert into pause (key, scope, account, notifier, reason, since, probe_at) values ($1, 'account', 'a', 'n', 'r', now(), now())", breaker); err != nil {
		t.Fatal(err)
	}
	var calls []*call[bool]
	for n := range 2 {
		calls = append(calls, async(t, func() (bool, error) {
			return s.OpenBreaker(t.Context(), store.Pause{Key: breaker, Account: "slack:0123", Notifier: ops, Reason: "account:token_revoked"}, time.Minute)
		}))
		s.blocked(n + 1)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if a, b := calls[0].wait(), calls[1].wait(); a == b {
		t.Errorf("opened by the first: %t, by the second: %t", a, b)
	}
	p := s.pauses()[breaker]
	if p.Scope != store.ScopeAccount || !p.Until.IsZero() || p.Trial != uuid.Nil || p.Reason != "account:token_revoked" || !near(p.ProbeAt, p.Since.Add(time.Minute)) {
		t.Errorf("%s", pretty(p))
	}
	s.move(100 * time.Hour)
	if p := s.pauses()[breaker]; p.Scope != store.ScopeAccount {
		t.Error("a breaker is over by time")
	}
	if s.trip("account:other") || s.pauses()[breaker].Reason != "account:token_revoked" {
		t.Error("opened once more")
	}
}

// A probe is asked by one replica, at growing intervals, and the time of the next is written before it is asked.
func TestProbesAreTakenOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.trip("account:token_revoked")
	take := func(keys ...string) []store.Pause {
		s.t.Helper()
		got, err := s.TakeProbes(t.Context(), keys)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := take(breaker); len(got) != 0 {
		t.Errorf("asked before its time: %s", pretty(got))
	}
	for n, next := range []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 5 * time.Minute, 5 * time.Minute} {
		s.exec("update pause set probe_at = clock_timestamp()")
		if got := take("slack:0123@another file"); len(got) != 0 {
			t.Errorf("asked by a replica that has another file: %s", pretty(got))
		}
		// Another replica is at it: it is left alone.
		tx, err := connect(t, s.url).Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), "select 1 from pause where key = $1 for update", breaker); err != nil {
			t.Fatal(err)
		}
		if got := take(breaker); len(got) != 0 {
			t.Errorf("taken from under another: %s", pretty(got))
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := take(breaker)
		if len(got) != 1 || got[0].Key != breaker || got[0].Account != "slack:0123" || got[0].Notifier != ops || got[0].Code != "token_revoked" || got[0].Scope != store.ScopeAccount {
			t.Fatalf("%s", pretty(got))
		}
		if p := s.pauses()[breaker]; !about(p.ProbeAt.Sub(get[time.Time](s, "select clock_timestamp()")), next) {
			t.Errorf("probe %d: the next one comes at %s", n+1, p.ProbeAt)
		}
		if again := take(breaker); len(again) != 0 {
			t.Errorf("taken again: %s", pretty(again))
		}
	}
}

// held are deliveries of all sorts around an account in trouble, by what they are.
func (s *site) held(inc store.Incident) map[string]uuid.UUID {
	s.t.Helper()
	out := map[string]uuid.UUID{}
	wait := func(name, reason string, k delivery.Kind, notifier string) {
		id := s.add(inc, k, via(notifier))
		c := s.claim(alpha, store.Lane{Notifier: notifier, Free: 1})[0]
		s.settle(c.Queued(delivery.Facts{Now: c.Now}, time.Minute, "", reason, ""))
		out[name] = id
	}
	wait("card", "account:token_revoked", delivery.Card, ops)
	wait("older card", "account:token_revoked", delivery.Card, "ops2")
	s.exec("update delivery set created_at = created_at - interval '1 minute' where id = $1", out["older card"])
	wait("notice", "account:missing_scope", delivery.Notice, ops)
	wait("elsewhere", "account:token_revoked", delivery.Card, "another")
	wait("throttled", "rate_limited", delivery.Card, ops)
	wait("due", "account:token_revoked", delivery.Event, ops)
	s.exec("update delivery set next_at = clock_timestamp() - interval '1 s' where id = $1", out["due"])
	out["leased"] = s.started(inc, delivery.Card, via("leasing")).Delivery.ID
	s.exec("update delivery set notifier = 'ops', reason = 'account:token_revoked' where id = $1", out["leased"])
	return out
}

func (s *site) all(ids map[string]uuid.UUID) map[string]string {
	out := map[string]string{}
	for name, id := range ids {
		out[name] = s.whole(id)
	}
	return out
}

// broughtForward are those that are due now and were not before, each with one more version and no other change.
func (s *site) broughtForward(ids map[string]uuid.UUID, before map[string]string) []string {
	s.t.Helper()
	var out []string
	for name, id := range ids {
		if s.whole(id) == before[name] {
			continue
		}
		out = append(out, name)
		if r := s.row(id); !near(*r.NextAt, get[time.Time](s, "select clock_timestamp()")) || r.State != delivery.Pending {
			s.t.Errorf("%s: %s", name, pretty(r))
		}
	}
	slices.Sort(out)
	return out
}

// An account that is well again takes along exactly those that wait for it.
func TestCloseBreakerBringsForwardWhoWaits(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	inc := s.incident("k")
	s.trip("account:token_revoked")
	ids := s.held(inc)
	before := s.all(ids)
	closed, n, err := s.CloseBreaker(t.Context(), breaker, []string{ops, "ops2"})
	if err != nil || !closed || n != 3 {
		t.Errorf("closed: %t, %d waited, %v", closed, n, err)
	}
	if got := s.broughtForward(ids, before); !slices.Equal(got, []string{"card", "notice", "older card"}) {
		t.Errorf("%v were brought forward", got)
	}
	if len(s.pauses()) != 0 {
		t.Error("it is open")
	}
	// Once more, by another replica that asked at the same time: nothing is left to do.
	before = s.all(ids)
	closed, n, err = s.CloseBreaker(t.Context(), breaker, []string{ops, "ops2"})
	if err != nil || closed || n != 0 || len(s.broughtForward(ids, before)) != 0 {
		t.Errorf("closed: %t, %d waited, %v", closed, n, err)
	}
}

// A pause of a destination is none of a breaker's business, whatever its key.
func TestCloseBreakerClosesBreakersOnly(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.rest("paused", time.Minute)
	if closed, _, err := s.CloseBreaker(t.Context(), room, nil); err != nil || closed || len(s.pauses()) != 1 {
		t.Errorf("closed: %t, %v", closed, err)
	}
}

// Where a probe proves nothing, the first of those that wait tries, and no other: begin lets it through while the breaker
// stays open. Its failure ends the trial.
func TestOneDeliveryTries(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	inc := s.incident("k")
	names := []string{ops, "ops2"}
	if waits, err := s.Try(t.Context(), breaker, names); err != nil || waits {
		t.Errorf("somebody waits: %t, %v", waits, err)
	}
	ids := s.held(inc)
	// The breaker was closed meanwhile: nobody is sent ahead.
	before := s.all(ids)
	if waits, err := s.Try(t.Context(), breaker, names); err != nil || waits || len(s.broughtForward(ids, before)) != 0 {
		t.Errorf("without a breaker: %t, %v", waits, err)
	}
	s.trip("account:token_revoked")
	if waits, err := s.Try(t.Context(), breaker, names); err != nil || !waits {
		t.Fatalf("nobody waits: %t, %v", waits, err)
	}
	if got := s.broughtForward(ids, before); !slices.Equal(got, []string{"older card"}) {
		t.Errorf("%v were brought forward", got)
	}
	if p := s.pauses()[breaker]; p.Trial != ids["older card"] {
		t.Errorf("%s", pretty(p))
	}
	s.exec("update delivery set next_at = clock_timestamp() - interval '1 s' where next_at is not null and lease_token is null")
	for _, c := range s.claim(alpha, store.Lane{Notifier: ops, Free: 10}, store.Lane{Notifier: "ops2", Free: 10}) {
		in := intent(c)
		in.Breaker, in.Attempt.Queue = breaker, room
		b, ok := s.try(alpha, in)[c.ID]
		if ok != (c.ID == ids["older card"]) {
			t.Errorf("%s: begun %t", c.ID, ok)
		}
		if !ok {
			s.settle(c.GiveBack(time.Minute, ""))
			continue
		}
		// Its answer to begin was lost, and meanwhile the trial is over: it has begun all the same.
		if !s.trip("account:missing_scope") {
			t.Error("the end of the trial is no news")
		}
		s.rest("rate_limited", time.Minute)
		if again, ok := s.try(alpha, in)[c.ID]; !ok || again.Attempt.ID != b.Attempt.ID || again.Attempt.Number != 1 {
			t.Errorf("begin sent again: %t, %s", ok, pretty(again))
		}
	}
	if p := s.pauses()[breaker]; p.Trial != uuid.Nil || p.Reason != "account:missing_scope" {
		t.Errorf("%s", pretty(p))
	}
	if s.trip("account:other") {
		t.Error("opened once more")
	}
}

// Nothing begins at a destination that rests, on whichever replica; what it rests for touches no other, and what has begun
// goes on.
func TestBeginRefusesWhatRests(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.add(s.incident("k"), delivery.Card)
	c := s.take(alpha)
	in := intent(c)
	in.Breaker, in.Attempt.Queue = breaker, room
	begins := func(what string, want bool) {
		t.Helper()
		before := s.whole(c.ID)
		got := s.try(alpha, in)
		if (len(got) == 1) != want {
			t.Errorf("%s: begun %t", what, !want)
		}
		if !want {
			s.unchanged(c.ID, before, what)
		}
	}
	s.rest("rate_limited", 30*time.Second)
	begins("while it rests", false)
	s.move(30 * time.Second)
	s.exec("delete from pause")
	s.trip("account:token_revoked")
	begins("while its account is in trouble", false)
	s.exec("update pause set trial = gen_random_uuid()")
	begins("while another one tries", false)
	s.exec("update pause set key = 'slack:0123@another file'")
	if err := s.Rest(t.Context(), store.Pause{Key: "slack:0123/C9", Scope: store.ScopeDestination}, time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := s.Rest(t.Context(), store.Pause{Key: "slack:0123/look_up", Scope: store.ScopeLookUp}, time.Hour); err != nil {
		t.Fatal(err)
	}
	s.rest("paused", time.Second)
	s.move(time.Second)
	begins("after its rest", true)
	// All of it comes too late for one that has begun, whose answer was lost.
	s.rest("paused", time.Hour)
	s.trip("account:token_revoked")
	begins("sent again", true)
	if n := len(s.attempts(c.ID)); n != 1 {
		t.Errorf("%d attempts", n)
	}
}

// A person's word lifts the pause that was made for a refusal, at the place where the delivery was last sent. What the
// provider has asked for stays, and so does every other.
func TestLiftPause(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	inc := s.incident("k")
	b := s.started(inc, delivery.Card)
	lift := func() map[string]store.Pause {
		t.Helper()
		s.tx(func(tx *store.Tx) error { return tx.LiftPause(t.Context(), b.Delivery.ID, "slack:0123", time.Time{}) })
		return s.pauses()
	}
	s.rest("rate_limited", time.Hour)
	if _, there := lift()[room]; !there {
		t.Error("what the provider asked for was lifted")
	}
	s.exec("delete from pause")
	s.rest("destination:is_archived", time.Hour)
	s.trip("account:token_revoked")
	if err := s.Rest(t.Context(), store.Pause{Key: "slack:0123/C9", Scope: store.ScopeDestination, Destination: "C9", Reason: "destination:is_archived"}, time.Hour); err != nil {
		t.Fatal(err)
	}
	// The same channel id of another workspace is another channel.
	if err := s.Rest(t.Context(), store.Pause{Key: "slack:9999/C0123", Scope: store.ScopeDestination, Account: "slack:9999", Destination: "C0123", Reason: "destination:is_archived"}, time.Hour); err != nil {
		t.Fatal(err)
	}
	got := lift()
	if _, there := got[room]; there || len(got) != 3 {
		t.Errorf("%s", pretty(got))
	}
}

// A rest is forgotten when it is over, a breaker when no live replica has the file that it was found with.
func TestPurgePauses(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const alive = 30 * time.Second
	purge := func() string {
		t.Helper()
		if err := s.PurgePauses(t.Context(), alive); err != nil {
			t.Fatal(err)
		}
		return get[string](s, "select coalesce(string_agg(key, ' ' order by key), '') from pause")
	}
	beat := func() {
		t.Helper()
		if err := s.Heartbeat(t.Context(), store.Replica{ID: alpha, Checksum: "sum", Notifiers: []string{ops}}); err != nil {
			t.Fatal(err)
		}
	}
	s.trip("account:token_revoked")
	s.rest("paused", time.Hour)
	if got := purge(); got != room+" "+breaker {
		t.Errorf("%s is left of a breaker and a pause of this moment", got)
	}
	beat()
	s.move(59 * time.Minute)
	beat()
	if got := purge(); got != room+" "+breaker {
		t.Errorf("%s is left while a replica has the file", got)
	}
	s.move(time.Minute + 30*time.Second)
	beat()
	if got := purge(); got != room+" "+breaker {
		t.Errorf("%s is left of a pause that was over a moment ago", got)
	}
	s.move(time.Minute)
	beat()
	if got := purge(); got != breaker {
		t.Errorf("%s is left of a pause that is over", got)
	}
	s.move(alive + time.Second)
	other := store.Replica{ID: beta, Checksum: "another", Notifiers: []string{ops}}
	if err := s.Heartbeat(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	if got := purge(); got != "" {
		t.Errorf("%s is left without a replica that has the file", got)
	}
}

// A chat moves once more, or back; what its old id means is always the newest.
func TestMovedChats(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, m := range []store.MovedChat{{"a", "-1", "-2"}, {"a", "-1", "-2"}, {"b", "-1", "-3"}, {"a", "-1", "-4"}} {
		if err := s.MoveChat(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.MovedChats(t.Context())
	slices.SortFunc(got, func(a, b store.MovedChat) int { return strings.Compare(a.Account, b.Account) })
	if err != nil || !slices.Equal(got, []store.MovedChat{{"a", "-1", "-4"}, {"b", "-1", "-3"}}) {
		t.Errorf("%v, %v", got, err)
	}
}
