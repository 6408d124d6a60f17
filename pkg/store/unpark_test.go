package store_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// dm is the notifier of pages: the lane of cards is another one, so that each is claimed when a test wants it.
const dm = "slack-dm"

// unpark does what follows the commit of a card's attempt.
func (s *site) unpark(inc store.Incident, cards ...uuid.UUID) []string {
	s.t.Helper()
	got, err := s.Unpark(s.ctx(), []uuid.UUID{inc.ID}, cards)
	if err != nil {
		s.t.Fatal(err)
	}
	return got
}

// waiting says that a page still waits for the card: it has its bound and is not due.
func (s *site) waiting(id uuid.UUID) bool {
	s.t.Helper()
	r := s.row(id)
	if now := get[time.Time](s, "select clock_timestamp()"); r.WaitUntil == nil == r.NextAt.After(now) {
		s.t.Errorf("the page neither waits nor is due: %s", pretty(r))
	}
	return r.WaitUntil != nil
}

func TestAPageWaitsForItsBoundAtMost(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	inc := s.incident("k")
	s.add(inc, delivery.Card)
	id := s.add(inc, delivery.Page, via(dm), waits(5*time.Second))
	lane := store.Lane{Notifier: dm, Free: 1}
	r := s.row(id)
	if r.Reason != "waiting_for_card" || r.WaitUntil == nil || !near(*r.WaitUntil, *r.NextAt) || r.NextAt.Sub(r.CreatedAt).Round(time.Second) != 5*time.Second {
		t.Errorf("added as %s", pretty(r))
	}
	if got := s.claim(alpha, lane); len(got) != 0 {
		t.Fatal("claimed before its bound")
	}
	s.move(6 * time.Second)
	got := s.claim(alpha, lane)
	if len(got) != 1 {
		t.Fatal("not claimed at its bound")
	}
	// The card is still not there, and the page goes without its link.
	around, err := s.Around(t.Context(), got)
	if err != nil {
		t.Fatal(err)
	}
	if c := around.Cards[inc.ID]; len(c) != 1 || c[0].Over || !c[0].Reference.IsZero() {
		t.Errorf("around it are %s", pretty(c))
	}
	if v := got[0].Judge(delivery.Facts{Now: got[0].Now, HasCard: true, Policy: delivery.DefaultPolicy(delivery.Page)}); v.Step != nil {
		t.Errorf("it is judged as %s", pretty(v.Step.Change()))
	}
}

// A card's first attempt is over by outcome, takeover or death, and not before. Around and Unpark say the same.
func TestPagesWaitForTheFirstAttemptOfTheirCard(t *testing.T) {
	t.Parallel()
	quiet := delivery.Result{Outcome: delivery.OutcomeFailed, Evidence: delivery.NotSent, Fault: delivery.FaultThrottled, Reason: "rate_limited", RetryAfter: time.Second}
	for name, c := range map[string]struct {
		until func(s *site, inc store.Incident, card uuid.UUID)
		over  bool
	}{
		"nobody has it":         {func(*site, store.Incident, uuid.UUID) {}, false},
		"it is claimed":         {func(s *site, _ store.Incident, _ uuid.UUID) { s.take(alpha) }, false},
		"its attempt is open":   {func(s *site, _ store.Incident, _ uuid.UUID) { s.begin(alpha, s.take(alpha)) }, false},
		"its lease ran out":     {func(s *site, _ store.Incident, _ uuid.UUID) { s.begin(alpha, s.take(alpha)); s.lapse() }, false},
		"it is sent":            {func(s *site, _ store.Incident, _ uuid.UUID) { s.finish(alpha, s.begin(alpha, s.take(alpha)), sent) }, true},
		"it failed":             {func(s *site, _ store.Incident, _ uuid.UUID) { s.finish(alpha, s.begin(alpha, s.take(alpha)), failed) }, true},
		"it is unknown":         {func(s *site, _ store.Incident, _ uuid.UUID) { s.finish(alpha, s.begin(alpha, s.take(alpha)), unknown) }, true},
		"it was put off by 429": {func(s *site, _ store.Incident, _ uuid.UUID) { s.finish(alpha, s.begin(alpha, s.take(alpha)), quiet) }, true},
		"it is rejected":        {func(s *site, _ store.Incident, _ uuid.UUID) { s.finish(alpha, s.begin(alpha, s.take(alpha)), refused) }, true},
		"it was taken over":     {func(s *site, _ store.Incident, _ uuid.UUID) { s.begin(alpha, s.take(alpha)); s.lapse(); s.take(beta) }, true},
		"it died without a try": {func(s *site, _ store.Incident, _ uuid.UUID) { s.settle(s.take(alpha).Unreachable("notifier_off", "")) }, true},
		"it was canceled":       {func(s *site, inc store.Incident, card uuid.UUID) { s.note(inc, card, cancel("canceled_by")) }, true},
		"its second attempt is open after a failed one": {func(s *site, _ store.Incident, card uuid.UUID) {
			s.finish(alpha, s.begin(alpha, s.take(alpha)), failed)
			s.due(card, -time.Second)
			s.begin(alpha, s.take(alpha))
		}, true},
		"its second attempt is open after a 429": {func(s *site, _ store.Incident, card uuid.UUID) {
			s.finish(alpha, s.begin(alpha, s.take(alpha)), quiet)
			s.due(card, -time.Second)
			s.begin(alpha, s.take(alpha))
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			inc := s.incident("k")
			card := s.add(inc, delivery.Card)
			c.until(s, inc, card)
			page := s.add(inc, delivery.Page, via(dm), waits(time.Hour))
			around, err := s.Around(t.Context(), []store.Claimed{{Delivery: delivery.Delivery{Kind: delivery.Page, IncidentID: inc.ID}}})
			if err != nil {
				t.Fatal(err)
			}
			if got := around.Cards[inc.ID]; len(got) != 1 || got[0].Over != c.over {
				t.Errorf("around it are %s, over: %t", pretty(got), c.over)
			}
			woken := s.unpark(inc, card)
			if s.waiting(page) == c.over || slices.Contains(woken, dm) != c.over {
				t.Errorf("the page is %s, woken %v", pretty(s.row(page)), woken)
			}
			got := s.claim(beta, store.Lane{Notifier: dm, Free: 1})
			if len(got) == 1 != c.over {
				t.Errorf("claimed %s", pretty(got))
			}
			if again := s.unpark(inc, card); slices.Contains(again, dm) && c.over {
				t.Errorf("woken once more: %v", again)
			}
		})
	}
}

// With several cards a page waits for the first one with a reference, or for the first attempts of all to be over.
func TestPagesWaitForTheFirstOfSeveralCards(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		results [3]*delivery.Result
		over    bool
	}{
		"none is over":                  {[3]*delivery.Result{}, false},
		"one has failed":                {[3]*delivery.Result{&failed}, false},
		"two have failed":               {[3]*delivery.Result{&failed, &unknown}, false},
		"two have died":                 {[3]*delivery.Result{&refused, nil, &refused}, false},
		"all have failed":               {[3]*delivery.Result{&failed, &unknown, &refused}, true},
		"one is out, the others hang":   {[3]*delivery.Result{nil, &sent, nil}, true},
		"one is out, the others failed": {[3]*delivery.Result{&failed, &refused, &sent}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			inc, other := s.incident("k"), s.incident("another")
			page := s.add(inc, delivery.Page, via(dm), waits(time.Hour))
			stranger := s.add(other, delivery.Page, via(dm), waits(time.Hour))
			s.add(other, delivery.Card, via("elsewhere"))
			var cards []uuid.UUID
			for _, r := range c.results {
				b := s.started(inc, delivery.Card)
				cards = append(cards, b.Delivery.ID)
				if r != nil {
					s.finish(alpha, b, *r)
				}
			}
			s.unpark(inc, cards...)
			if s.waiting(page) == c.over {
				t.Errorf("the page is %s", pretty(s.row(page)))
			}
			if !s.waiting(stranger) {
				t.Error("the page of another incident was brought forward")
			}
		})
	}
}

// A leased row is its worker's, and a backoff or a pause that came after the wait is not cut short.
func TestUnparkTouchesOnlyWhatWaits(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	inc := s.incident("k")
	card := s.started(inc, delivery.Card)
	lane := store.Lane{Notifier: dm, Free: 10}
	page := func() uuid.UUID { return s.add(inc, delivery.Page, via(dm), waits(time.Hour)) }

	untouched := map[string]uuid.UUID{"a page behind an escalation's delay": s.add(inc, delivery.Page, via("later"), later(time.Hour))}
	for name, r := range map[string]*delivery.Result{"a leased page": nil, "a page in backoff": &failed,
		"a page held off by 429": {Outcome: delivery.OutcomeFailed, Evidence: delivery.Answered, Fault: delivery.FaultThrottled, Reason: "rate_limited", RetryAfter: time.Hour}} {
		id := page()
		s.due(id, -time.Second) // its bound is over
		got := s.claim(alpha, lane)
		if len(got) != 1 {
			t.Fatalf("%s: claimed %d", name, len(got))
		}
		if b := s.begin(alpha, got[0]); r != nil {
			s.finish(alpha, b, *r)
		}
		untouched[name] = id
	}
	done := page()
	s.note(inc, done, cancel("acknowledged"))
	untouched["a settled page"] = done
	s.finish(alpha, card, sent)
	before := map[string]string{}
	for name, id := range untouched {
		before[name] = s.whole(id)
	}
	if woken := s.unpark(inc, card.Delivery.ID); len(woken) != 0 {
		t.Errorf("woken: %v", woken)
	}
	for name, id := range untouched {
		s.unchanged(id, before[name], name)
	}
}

func TestThreadsWaitForTheirCard(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		until func(s *site, card store.Begun)
		woken bool
	}{
		"out":         {func(s *site, card store.Begun) { s.finish(alpha, card, sent) }, true},
		"dead":        {func(s *site, card store.Begun) { s.finish(alpha, card, refused) }, true},
		"on its way":  {func(*site, store.Begun) {}, false},
		"in backoff":  {func(s *site, card store.Begun) { s.finish(alpha, card, failed) }, false},
		"in question": {func(s *site, card store.Begun) { s.finish(alpha, card, unknown) }, false},
	} {
		t.Run("card "+name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			inc := s.incident("k")
			card := s.started(inc, delivery.Card)
			park := func(id uuid.UUID) {
				got := s.take(beta)
				v := got.Judge(delivery.Facts{Now: got.Now})
				if got.ID != id || v.Step == nil || v.Step.Change().Reason != "waiting_for_card" {
					t.Fatalf("%s is judged as %s", pretty(got), pretty(v))
				}
				s.settle(*v.Step)
			}
			mine := s.add(inc, delivery.Thread, of(card.Delivery.ID))
			park(mine)
			strange := s.add(inc, delivery.Thread, of(store.NewID()))
			got := s.take(beta)
			s.settle(got.GiveBack(time.Hour, "waiting_for_card"))
			leased := s.add(inc, delivery.Thread, of(card.Delivery.ID))
			s.take(beta)
			c.until(s, card)
			before := s.whole(strange) + s.whole(leased)
			parked := s.whole(mine)
			woken := s.unpark(inc, card.Delivery.ID)
			if c.woken != (len(woken) == 1) {
				t.Errorf("woken: %v", woken)
			}
			if !c.woken {
				s.unchanged(mine, parked, "a thread whose card is neither out nor dead")
			} else if r := s.row(mine); !near(*r.NextAt, get[time.Time](s, "select clock_timestamp()")) || s.take(beta).ID != mine {
				t.Errorf("the thread says %s", pretty(r))
			}
			if after := s.whole(strange) + s.whole(leased); after != before {
				t.Errorf("a strange or a leased thread was touched: %s", after)
			}
		})
	}
}

// The card's attempt ends, and its unparking passes by, while a worker that has already looked at the card is about to
// park what waits for it. Whoever parks looks again after its commit, and finds what it would have slept through.
func TestUnparkAgainAfterAPark(t *testing.T) {
	t.Parallel()
	for _, kind := range []delivery.Kind{delivery.Thread, delivery.Page} {
		for name, r := range map[string]delivery.Result{"sent": sent, "rejected": refused, "still unknown": unknown} {
			t.Run(fmt.Sprintf("%s, card %s", kind, name), func(t *testing.T) {
				t.Parallel()
				s := newSite(t)
				inc := s.incident("k")
				card := s.started(inc, delivery.Card)
				id := s.add(inc, kind, of(card.Delivery.ID), waits(map[delivery.Kind]time.Duration{delivery.Page: time.Hour}[kind]))
				s.due(id, -time.Second)
				c := s.take(beta)
				v := c.Judge(delivery.Facts{Now: c.Now, HasCard: true}) // the card is on its way: park
				if v.Step == nil || v.Step.Change().Reason != "waiting_for_card" || v.Step.Change().Delay < delivery.ThreadWait {
					t.Fatalf("it is judged as %s", pretty(v))
				}
				s.finish(alpha, card, r)
				if woken := s.unpark(inc, card.Delivery.ID); len(woken) != 0 {
					t.Fatalf("a leased row was brought forward: %v", woken)
				}
				s.settle(*v.Step)
				s.unpark(inc, card.Delivery.ID)
				due := len(s.claim(alpha)) == 1
				if want := name != "still unknown" || kind == delivery.Page; due != want {
					t.Errorf("after the park it is due: %t, not %t; it says %s", due, want, pretty(s.row(id)))
				}
			})
		}
	}
}

// Unparking takes its locks by id like everyone, however the rows lie in their table.
func TestUnparkLocksInTheOrderOfAll(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	inc := s.incident("k")
	card := s.started(inc, delivery.Card)
	var pages []uuid.UUID
	for range 3 {
		pages = append(pages, s.add(inc, delivery.Page, via(dm), waits(time.Hour)))
	}
	for _, id := range []uuid.UUID{pages[2], pages[1], pages[0]} { // rewritten one by one, the first comes to lie last
		s.exec("update delivery set wait_until = wait_until + interval '1 s', next_at = next_at + interval '1 s' where id = $1", id)
	}
	s.finish(alpha, card, sent)
	tx, err := connect(t, s.url).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	lock := func(id uuid.UUID) {
		t.Helper()
		if _, err := tx.Exec(t.Context(), "select 1 from delivery where id = $1 for update", id); err != nil {
			t.Fatal(err)
		}
	}
	lock(pages[0])
	unpark := async(t, func() ([]string, error) { return s.Unpark(t.Context(), []uuid.UUID{inc.ID}, nil) })
	s.blocked(1)
	if _, err := tx.Exec(t.Context(), "set local lock_timeout = '1s'"); err != nil {
		t.Fatal(err)
	}
	lock(pages[1]) // free: who waits for the first has not locked the others yet
	lock(pages[2])
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := unpark.wait(); len(got) != 3 {
		t.Errorf("woken: %v", got)
	}
}

// Someone settles a page while unparking waits for it: it stays settled.
func TestUnparkLooksAgainAtRowsItWaitedFor(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	inc := s.incident("k")
	card := s.started(inc, delivery.Card)
	page := s.add(inc, delivery.Page, via(dm), waits(time.Hour))
	s.finish(alpha, card, sent)
	var unpark *call[[]string]
	s.tx(func(tx *store.Tx) error {
		if err := noteIn(t.Context(), tx, inc, page, cancel("acknowledged")); err != nil {
			return err
		}
		unpark = async(t, func() ([]string, error) { return s.Unpark(t.Context(), []uuid.UUID{inc.ID}, nil) })
		s.blocked(1)
		return nil
	})
	if got := unpark.wait(); len(got) != 0 {
		t.Errorf("woken: %v", got)
	}
	s.inState(page, delivery.Canceled, "acknowledged")
}
