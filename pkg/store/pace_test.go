package store_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/pace"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// The destination of most tests, and the rule of a chat.
const room = "slack:0123/C0123"

var onceASecond = pace.Rule{Count: 1, Per: time.Second}

// ask is what a worker asks of a delivery before it calls.
func ask(d delivery.Delivery, queue string, rules ...pace.Rule) store.Ask {
	a := store.Ask{Delivery: d, Queue: queue}
	if len(rules) > 0 {
		a.Buckets = []pace.Bucket{{Key: queue, Rules: rules}}
	}
	return a
}

// turns asks, and returns the answers in the order of the asks.
func (s *site) turns(asks ...store.Ask) []store.Turn {
	s.t.Helper()
	got, err := s.Turns(s.ctx(), asks)
	if err != nil {
		s.t.Fatal(err)
	}
	if len(got) != len(asks) {
		s.t.Fatalf("%d of %d got an answer", len(got), len(asks))
	}
	out := make([]store.Turn, len(asks))
	for i, a := range asks {
		out[i] = got[a.Delivery.ID]
	}
	return out
}

// goes and waits check one answer: the wait is what is asked for, less what the test itself has taken.
func goes(t testing.TB, what string, turn store.Turn) {
	t.Helper()
	if !turn.Now {
		t.Errorf("%s waits %s", what, turn.Wait)
	}
}

func staysFor(t testing.TB, what string, turn store.Turn, wait time.Duration) {
	t.Helper()
	if turn.Now || turn.Wait > wait || turn.Wait <= 0 || turn.Wait < wait-20*time.Second {
		t.Errorf("%s: now %t, wait %s, not %s", what, turn.Now, turn.Wait, wait)
	}
}

// queued gives a claimed delivery back to wait for its destination.
func (s *site) queued(c store.Claimed, queue string, delay time.Duration) {
	s.t.Helper()
	s.settle(c.Queued(delivery.Facts{Now: c.Now, Policy: delivery.DefaultPolicy(c.Kind)}, delay, queue, "rate_limited", "It waits for its turn."))
}

func (s *site) queue(id uuid.UUID) string {
	s.t.Helper()
	return get[string](s, "select coalesce(queue, '-') from delivery where id = $1", id)
}

// someone is a delivery that need not lie in the database: its worker has claimed it, so nobody waits for it.
func someone(k delivery.Kind, created time.Time) delivery.Delivery {
	return delivery.Delivery{ID: store.NewID(), Kind: k, CreatedAt: created}
}

// Two replicas ask for the last slot of a destination in the same moment: one has it, the other waits for the next.
func TestTwoReplicasAskForOneSlot(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	other := open(t, s.url)
	now := get[time.Time](s, "select clock_timestamp()")
	s.turns(ask(someone(delivery.Card, now), room, onceASecond)) // the row is there
	s.move(time.Second)
	tx, err := connect(t, s.url).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "select 1 from pace for update"); err != nil {
		t.Fatal(err)
	}
	var asked []*call[store.Turn]
	for _, replica := range []*store.Store{s.Store, other} {
		d := someone(delivery.Card, now)
		asked = append(asked, async(t, func() (store.Turn, error) {
			got, err := replica.Turns(t.Context(), []store.Ask{ask(d, room, onceASecond)})
			return got[d.ID], err
		}))
		s.blocked(len(asked))
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	a, b := asked[0].wait(), asked[1].wait()
	if a.Now == b.Now {
		t.Fatalf("%+v and %+v", a, b)
	}
	if b.Now {
		b = a
	}
	staysFor(t, "the second", b, time.Second)
}

// The same where nobody has ever called that destination: there is no row yet that both could lock.
func TestTwoReplicasAskForTheFirstSlot(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	now := get[time.Time](s, "select clock_timestamp()")
	tx, err := connect(t, s.url).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "insert into pace (key) values ($1)", room); err != nil {
		t.Fatal(err)
	}
	var asked []*call[store.Turn]
	for range 2 {
		d := someone(delivery.Card, now)
		asked = append(asked, async(t, func() (store.Turn, error) {
			got, err := s.Turns(t.Context(), []store.Ask{ask(d, room, onceASecond)})
			return got[d.ID], err
		}))
		s.blocked(len(asked))
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if a, b := asked[0].wait(), asked[1].wait(); a.Now == b.Now {
		t.Errorf("%+v and %+v", a, b)
	}
}

// Three replicas ask again and again, for one destination and for one account with several: no span holds more beginnings
// than the rules let, by the database's clock, and each that was let go is one of them.
func TestRulesHoldAcrossReplicas(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.exec(`create table granted (key text, at timestamptz)`)
	s.exec(`create function grants() returns trigger language plpgsql as $$
	begin
		insert into granted select new.key, x from unnest(new.begun) x where not x = any(old.begun);
		return new;
	end $$`)
	s.exec(`create trigger grants before update on pace for each row when (new.begun is distinct from old.begun) execute function grants()`)
	rules := map[string][]pace.Rule{
		"a": {{Count: 2, Per: time.Second}, {Count: 5, Per: 10 * time.Second}},
		"b": {onceASecond},
		"":  {{Count: 3, Per: 2 * time.Second}}, // the account
	}
	var mu sync.Mutex
	granted := map[string]int{}
	var all sync.WaitGroup
	for w := range 3 {
		replica, clock := open(t, s.url), connect(t, s.url)
		all.Go(func() {
			for n := range 40 {
				to := []string{"a", "b"}[(n+w)%2]
				d := someone(delivery.Card, time.Now())
				got, err := replica.Turns(t.Context(), []store.Ask{{Delivery: d, Queue: "acc/" + to, Buckets: []pace.Bucket{
					{Key: "acc/" + to, Rules: rules[to]}, {Key: "acc/", Rules: rules[""]},
				}}})
				if err != nil {
					t.Error(err)
					return
				}
				if turn := got[d.ID]; turn.Now {
					mu.Lock()
					granted["acc/"+to]++
					granted["acc/"]++
					mu.Unlock()
				} else if turn.Wait <= 0 {
					t.Errorf("%s waits %s", to, turn.Wait)
				}
				// Time goes on while the others ask.
				if _, err := clock.Exec(t.Context(), "update clock.moved set by = by + interval '90 ms'"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	for to, rs := range rules {
		key := "acc/" + to
		if n := get[int](s, "select count(*) from granted where key = $1", key); n != granted[key] || n < 3 {
			t.Errorf("%s: %d were let go, %d beginnings are recorded", key, granted[key], n)
		}
		for _, r := range rs {
			most := get[int](s, `select max(n) from (select (select count(*) from granted h where h.key = g.key and h.at >= g.at and h.at < g.at + $2) n from granted g where key = $1) x`, key, r.Per)
			if most > r.Count {
				t.Errorf("%s: %d began within %s", key, most, r.Per)
			}
		}
	}
}

// Of one batch the highest priority goes first, then the oldest; the others learn when their turn comes.
func TestPriorityBeforeAge(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	now := get[time.Time](s, "select clock_timestamp()")
	event, old, card, page := someone(delivery.Event, now.Add(-time.Hour)), someone(delivery.Card, now.Add(-time.Minute)), someone(delivery.Card, now), someone(delivery.Page, now)
	got := s.turns(ask(event, room, onceASecond), ask(card, room, onceASecond), ask(page, room, onceASecond), ask(old, room, onceASecond))
	goes(t, "the page", got[2])
	for i, wait := range map[int]time.Duration{3: time.Second, 1: 2 * time.Second, 0: 3 * time.Second} {
		staysFor(t, fmt.Sprint("ask ", i), got[i], wait)
		if got[i].Wait < wait-time.Second+time.Millisecond {
			t.Errorf("ask %d waits %s, those before it need %s", i, got[i].Wait, wait-time.Second)
		}
	}
	// Other destinations have nothing to do with it.
	goes(t, "elsewhere", s.turns(ask(event, "slack:0123/C9", onceASecond))[0])
}

// Whatever goes through an account in great numbers, it leaves room for pages to other destinations: a page need not come back
// at the very moment that a slot comes free, and lose it to one of thousands. Of the slots, a page may have all.
func TestPagesFindRoomInAnAccount(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	through := func(k delivery.Kind, n int) store.Ask {
		a := ask(someone(k, time.Now()), fmt.Sprint("telegram:0123/", n), onceASecond)
		a.Buckets = append(a.Buckets, pace.Bucket{Key: "telegram:0123", Rules: []pace.Rule{{Count: 20, Per: time.Minute}}})
		return a
	}
	went := func(k delivery.Kind, from, to int) (n int) {
		t.Helper()
		var asks []store.Ask
		for i := from; i < to; i++ {
			asks = append(asks, through(k, i))
		}
		for _, turn := range s.turns(asks...) {
			if turn.Now {
				n++
			}
		}
		return n
	}
	if n := went(delivery.Bulk, 0, 100); n != 18 {
		t.Errorf("%d of 20 slots went to what has no hurry", n)
	}
	if n := went(delivery.Card, 100, 200); n != 0 {
		t.Errorf("%d cards took the room that is left for pages", n)
	}
	if n := went(delivery.Page, 200, 210); n != 2 {
		t.Errorf("%d pages found room", n)
	}
	s.move(time.Minute)
	if n := went(delivery.Page, 210, 240); n != 20 {
		t.Errorf("%d pages went", n)
	}
	if n := went(delivery.Card, 240, 250); n != 0 {
		t.Errorf("%d cards went beyond the rule", n)
	}
}

// Who waits in a destination's queue goes before who comes later, even though there is a slot now: the first one of those
// who sleep is called.
func TestThoseAheadGoFirst(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	inc := s.incident("k")
	first, second, late := s.add(inc, delivery.Card), s.add(inc, delivery.Card), s.add(inc, delivery.Card)
	claimed := map[uuid.UUID]store.Claimed{}
	for _, c := range s.claim(alpha) {
		claimed[c.ID] = c
	}
	s.queued(claimed[first], room, 20*time.Second)
	s.queued(claimed[second], room, 10*time.Second)
	got := s.turns(ask(claimed[late].Delivery, room, onceASecond))[0]
	staysFor(t, "the one that came later", got, 2*time.Second)
	if r := s.row(first); time.Until(*r.NextAt) > 5*time.Second {
		t.Errorf("the first in the queue sleeps until %s", r.NextAt)
	}
	if r := s.row(second); time.Until(*r.NextAt) < 5*time.Second {
		t.Error("the second was called too")
	}
	before := s.whole(first)
	s.turns(ask(claimed[late].Delivery, room, onceASecond))
	s.unchanged(first, before, "called already")

	// A page passes them all, and so does what goes elsewhere.
	page := someone(delivery.Page, time.Now())
	goes(t, "a page", s.turns(ask(page, room, onceASecond))[0])
	goes(t, "another destination", s.turns(ask(claimed[late].Delivery, "slack:0123/C9", onceASecond))[0])

	// While there is no slot nobody is called.
	s.exec("update delivery set next_at = clock_timestamp() + interval '10 s' where id = $1", first)
	sleeps := s.whole(first)
	staysFor(t, "without a slot", s.turns(ask(claimed[late].Delivery, room, onceASecond))[0], 3*time.Second)
	s.unchanged(first, sleeps, "no slot")

	// Those whom a worker has just taken are judged, and may be told to wait.
	s.exec("update delivery set next_at = clock_timestamp() where queue is not null and lease_token is null")
	s.move(time.Second)
	if n := len(s.claim(beta)); n != 2 {
		t.Fatalf("%d claimed", n)
	}
	s.unchangedQueue(first, room)
	staysFor(t, "behind those who are judged", s.turns(ask(claimed[late].Delivery, room, onceASecond))[0], 3*time.Second)

	// After a while they hold up nobody: the replica that has them may be gone.
	s.unchangedQueue(late, room)
	s.queued(claimed[late], room, 0)
	s.move(6 * time.Second)
	goes(t, "the one that came later", s.turns(ask(s.take(alpha).Delivery, room, onceASecond))[0])
}

// A call that begins tells the first of those who wait when the slot after it is free, whatever they have been told before.
func TestCallThatBeginsTellsTheNext(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	inc := s.incident("k")
	one, next, last := s.add(inc, delivery.Card), s.add(inc, delivery.Card), s.add(inc, delivery.Card)
	claimed := map[uuid.UUID]store.Claimed{}
	for _, c := range s.claim(alpha) {
		claimed[c.ID] = c
	}
	s.queued(claimed[next], room, 20*time.Second)
	s.queued(claimed[last], room, 25*time.Second)
	before := s.whole(last)
	rule := pace.Rule{Count: 1, Per: 10 * time.Second}
	goes(t, "the first", s.turns(ask(claimed[one].Delivery, room, rule))[0])
	if wait := get[float64](s, "select extract(epoch from next_at - clock_timestamp())::float8 from delivery where id = $1", next); wait > 10 || wait < 1 {
		t.Errorf("the next is due in %.1f s", wait)
	}
	s.unchanged(last, before, "it is not the next")
}

func (s *site) unchangedQueue(id uuid.UUID, want string) {
	s.t.Helper()
	if got := s.queue(id); got != want {
		s.t.Errorf("the queue is %q, not %q", got, want)
	}
}

// Without a pace, a delivery waits for those ahead and for nothing else; they are called.
func TestQueueWithoutAPace(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	inc := s.incident("k")
	first := s.add(inc, delivery.Card)
	s.queued(s.take(alpha), room, time.Minute)
	late := someone(delivery.Card, time.Now().Add(time.Hour))
	if got := s.turns(ask(late, room))[0]; got.Now || got.Wait > time.Second {
		t.Errorf("%+v", got)
	}
	if c := s.take(alpha); c.ID != first {
		t.Errorf("%s was called", c.ID)
	}
	goes(t, "the late one", s.turns(ask(late, room))[0])
}

// A delivery that is due and that nobody takes holds up nobody for long: its notifier may be unknown to all by now, or hang.
func TestWhoIsNotTakenHoldsUpNobody(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.add(s.incident("k"), delivery.Card)
	s.queued(s.take(alpha), room, 10*time.Second)
	late := someone(delivery.Card, time.Now().Add(time.Hour))
	s.move(10 * time.Second) // due since a moment
	if got := s.turns(ask(late, room, onceASecond))[0]; got.Now {
		t.Fatal("it went before the first one had a chance")
	}
	s.move(5 * time.Second)
	goes(t, "the late one", s.turns(ask(late, room, onceASecond))[0])
}

// The queue's name is on a row while it waits for its turn, and not a moment longer.
func TestQueueOfARow(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	inc := s.incident("k")
	id := s.add(inc, delivery.Card)
	c := s.take(alpha)
	s.queued(c, room, 0)
	s.unchangedQueue(id, room)
	c = s.take(alpha)
	if s.unchangedQueue(id, room); c.Queue != room {
		t.Errorf("the claim says %q", c.Queue)
	}
	in := intent(c)
	in.Attempt.Queue = room
	b := s.try(alpha, in)[id]
	if s.unchangedQueue(id, "-"); b.Delivery.Queue != "" {
		t.Errorf("begin says %q", b.Delivery.Queue)
	}
	// The provider throttles it: its place is kept.
	throttled := delivery.Result{Outcome: delivery.OutcomeFailed, Evidence: delivery.Answered, Fault: delivery.FaultThrottled, Reason: "rate_limited", RetryAfter: time.Minute}
	s.finish(alpha, b, throttled)
	s.unchangedQueue(id, room)
	if r := s.row(id); r.Tries != 0 || !near(*r.NextAt, time.Now().Add(time.Minute)) {
		t.Errorf("%s", pretty(r))
	}
	s.move(time.Minute)
	// Given back for another reason, it waits for nobody's turn.
	c = s.take(alpha)
	s.settle(c.GiveBack(0, ""))
	s.unchangedQueue(id, "-")
	// A person's cancel takes it out.
	s.queued(s.take(alpha), room, time.Minute)
	s.note(inc, id, cancel("acknowledged"))
	s.inState(id, delivery.Canceled, "acknowledged")
	s.unchangedQueue(id, "-")
}

// A takeover is no one's turn: what it takes over is in doubt and judged anew.
func TestTakeoverLeavesTheQueue(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.started(s.incident("k"), delivery.Card)
	s.exec("update delivery set queue = $1", room)
	s.lapse()
	if c := s.take(beta); c.TakenOver == nil || c.Queue != "" {
		t.Errorf("%s", pretty(c))
	}
	s.unchangedQueue(b.Delivery.ID, "-")
}

// The database's clock jumps. Forward, the slots are free. Back, nobody waits longer than a rule's span: what began in the
// time to come has begun by now.
func TestClockThatJumpsKeepsThePace(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	rule := pace.Rule{Count: 2, Per: 10 * time.Second}
	next := func() store.Turn {
		s.t.Helper()
		return s.turns(ask(someone(delivery.Card, time.Now()), room, rule))[0]
	}
	goes(t, "the first", next())
	goes(t, "the second", next())
	staysFor(t, "the third", next(), 10*time.Second)
	s.move(-time.Hour)
	staysFor(t, "an hour back", next(), 10*time.Second)
	s.move(10 * time.Second)
	goes(t, "a span after the jump back", next())
	s.move(time.Hour)
	goes(t, "forward again", next())
	goes(t, "forward again, the second", next())
	staysFor(t, "forward again, the third", next(), 10*time.Second)
}

// An answer that is lost costs its slot and nothing else, and a request that is lost costs nothing.
func TestLostTurn(t *testing.T) {
	eachFault(t, func(f *faulty, how fault) {
		d := someone(delivery.Card, time.Now())
		f.turns(ask(d, "elsewhere", onceASecond))
		f.proxy.lose(commit, how)
		if _, err := f.Turns(f.ctx(), []store.Ask{ask(d, room, onceASecond)}); err == nil || f.proxy.met() != 1 {
			f.t.Fatalf("%v, %d faults", err, f.proxy.met())
		}
		f.quiet()
		if got := f.straight.turns(ask(d, room, onceASecond))[0]; got.Now != (how == lostRequest) {
			f.t.Errorf("%+v", got)
		}
	})
}

// Nobody waits long without looking again, however long the queue or the rule: those ahead may be gone by then.
func TestLongWaitsLookAgain(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	hourly := pace.Rule{Count: 1, Per: time.Hour}
	goes(t, "the first", s.turns(ask(someone(delivery.Card, time.Now()), room, hourly))[0])
	if got := s.turns(ask(someone(delivery.Card, time.Now()), room, hourly))[0]; got.Now || got.Wait != 30*time.Second {
		t.Errorf("%+v", got)
	}
}

// What has not been called for a day is forgotten, and only that.
func TestPurgePace(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.turns(ask(someone(delivery.Card, time.Now()), "old", onceASecond))
	s.exec("insert into pace (key) values ('never')")
	s.move(25 * time.Hour)
	s.turns(ask(someone(delivery.Card, time.Now()), "new", onceASecond))
	if err := s.PurgePauses(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	if got := get[string](s, "select string_agg(key, ' ' order by key) from pace"); got != "new" {
		t.Errorf("%s is left", got)
	}
}
