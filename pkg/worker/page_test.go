package worker_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// C11: card and page together: every page carries the card's link, although its bound is far.
func TestEveryPageCarriesTheCardsLink(t *testing.T) {
	t.Parallel()
	s := newSite(t, channel("ops"), direct("dm"))
	cards := s.linker("ops")
	for n := range 17 {
		s.add(s.incident(fmt.Sprint(n)), aCard("ops"), aPage("dm", "ana", time.Hour))
	}
	s.start("first")
	s.start("second")
	s.settled()
	calls := s.desk("dm").all()
	if len(calls) != 17 {
		t.Fatalf("%d pages", len(calls))
	}
	links := map[string]bool{}
	for _, c := range calls {
		links[link(c)] = true
	}
	if len(links) != 17 || links[""] {
		t.Errorf("the pages carry the links %v", links)
	}
	if n := len(cards.all()); n != 17 {
		t.Errorf("%d cards", n)
	}
}

// C11: the card's provider hangs: the page leaves without a link when its bound is over, not before, and the time it took
// is measured from its creation.
func TestPageDoesNotWaitForAHungCard(t *testing.T) {
	t.Parallel()
	s := newSite(t, channel("ops"), direct("dm"))
	g := s.gate()
	s.desk("ops").says(g.held(took))
	ids := s.add(s.incident("a"), aCard("ops"), aPage("dm", "ana", 5*time.Second))
	w := s.start("first")
	s.desk("ops").called(1)
	if r := s.row(ids[1]); r.Reason != "waiting_for_card" || r.Attempts != 0 {
		t.Errorf("%+v", r)
	}
	s.move(5 * time.Second)
	s.waitFor(ids[1], delivery.Sent)
	if got := link(s.desk("dm").called(1)); got != "" {
		t.Errorf("it carries %q", got)
	}
	if n, sum := observed(t, w.metrics.PageSeconds); n != 1 || sum < 5 || sum > 5+patience.Seconds() {
		t.Errorf("tocsin_page_seconds: %d pages, %v s", n, sum)
	}
}

// A way that is to be tried later is measured from then on: a second contact is not late because it is the second.
func TestPageForLaterIsMeasuredFromItsTime(t *testing.T) {
	t.Parallel()
	s := newSite(t, direct("dm"))
	s.change(func(f *config.File) {
		f.Users = []config.User{{ID: "ana", Name: "Ana", Contacts: []config.Contact{{Via: "dm", Address: "U0ANA", After: time.Hour}}}}
	})
	page := aPage("dm", "ana", 0)
	page.Delay = time.Hour
	id := s.add(s.incident("a"), page)[0]
	w := s.start("first")
	s.move(time.Hour)
	s.waitFor(id, delivery.Sent)
	if n, sum := observed(t, w.metrics.PageSeconds); n != 1 || sum > patience.Seconds() {
		t.Errorf("tocsin_page_seconds: %d pages, %v s", n, sum)
	}
}

// A page that is looked at before its bound, while the card's first attempt is under way, waits on for what is left of it.
func TestPageLookedAtTooEarlyWaitsOn(t *testing.T) {
	t.Parallel()
	s := newSite(t, channel("ops"), direct("dm"))
	g := s.gate()
	s.desk("ops").says(g.held(took))
	ids := s.add(s.incident("a"), aCard("ops"), aPage("dm", "ana", time.Hour))
	s.start("first")
	s.desk("ops").called(1)
	before := s.row(ids[1]).Version
	s.exec("update delivery set next_at = clock_timestamp() where id = $1", ids[1])
	s.until("the look", func() bool { r := s.row(ids[1]); return r.Version > before && !r.Leased })
	if r := s.row(ids[1]); r.State != "pending" || r.Reason != "waiting_for_card" || r.Attempts != 0 || *r.DueIn < 3000 {
		t.Errorf("%+v", r)
	}
	g.open()
	s.waitFor(ids[1], delivery.Sent)
}

// tocsin_page_seconds is from accepted to the first call: a page that is tried again is no second page.
func TestPageSecondsCountsAPageOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t, direct("dm"))
	s.desk("dm").says(func(_ context.Context, n int, c provider.Call) delivery.Result {
		if n < 3 {
			return refused
		}
		return took(n, c)
	})
	id := s.add(s.incident("a"), aPage("dm", "ana", 0))[0]
	w := s.start("first")
	s.waitFor(id, delivery.Sent)
	if n, _ := observed(t, w.metrics.PageSeconds); n != 1 || len(s.attempts(id)) != 3 {
		t.Errorf("%d pages are counted, %d attempts", n, len(s.attempts(id)))
	}
}

// A page waits for the card's first attempt, not for the card: when that fails it leaves at once, without a link.
func TestPageLeavesWhenTheCardsFirstAttemptIsOver(t *testing.T) {
	t.Parallel()
	bad := map[string]delivery.Result{
		"refused": refused, "unknown": lostIt,
		"throttled": {Outcome: delivery.OutcomeFailed, Evidence: delivery.Answered, Fault: delivery.FaultThrottled, Reason: "rate_limited", RetryAfter: time.Hour},
		"account":   {Outcome: delivery.OutcomeFailed, Evidence: delivery.Answered, Fault: delivery.FaultAccount, Reason: "account:token_revoked"},
		"rejected":  {Outcome: delivery.OutcomeFailed, Evidence: delivery.Answered, Fault: delivery.FaultDestination, Reason: "destination:is_archived"},
	}
	for name, r := range bad {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dm := direct("dm")
			dm.Token = "another" // a breaker is for the account
			s := newSite(t, retries(channel("ops"), slow), dm)
			s.desk("ops").says(always(r))
			ids := s.add(s.incident("a"), aCard("ops"), aPage("dm", "ana", time.Hour))
			s.start("first")
			s.waitFor(ids[1], delivery.Sent)
			if got := link(s.desk("dm").called(1)); got != "" {
				t.Errorf("it carries %q", got)
			}
		})
	}
}

// The card's first attempt is over by takeover too.
func TestPageLeavesWhenTheCardIsTakenOver(t *testing.T) {
	t.Parallel()
	s := newSite(t, channel("ops"), direct("dm"))
	g := s.gate()
	s.desk("ops").says(g.held(took))
	ids := s.add(s.incident("a"), aCard("ops"), aPage("dm", "ana", 24*time.Hour))
	first := s.start("first")
	s.desk("ops").called(1)
	first.kill()
	s.lapse()
	s.start("second")
	s.waitFor(ids[1], delivery.Sent)
	if r := s.row(ids[0]); r.State != "pending" || r.Tries != 1 {
		t.Errorf("the card: %+v", r)
	}
}

// With several cards a page waits for the first with a reference, however the others stand.
func TestPageTakesTheFirstCardThatIsOut(t *testing.T) {
	t.Parallel()
	s := newSite(t, channel("hung"), channel("ops"), direct("dm"))
	g := s.gate()
	s.desk("hung").says(g.held(took))
	s.linker("ops")
	ids := s.add(s.incident("a"), aCard("hung"), aCard("ops"), aPage("dm", "ana", time.Hour))
	s.start("first")
	s.waitFor(ids[2], delivery.Sent)
	if got := link(s.desk("dm").called(1)); got == "" {
		t.Error("the page carries no link")
	}
}

// A link that does not come, or a fault of ours while it is looked up, costs the page no more than its bound.
func TestLinkThatDoesNotCome(t *testing.T) {
	t.Parallel()
	for name, find := range map[string]func(context.Context, delivery.Reference) string{
		"never": func(ctx context.Context, _ delivery.Reference) string {
			<-ctx.Done()
			return ""
		},
		"panic": func(context.Context, delivery.Reference) string { panic("no such link") },
		"none":  func(context.Context, delivery.Reference) string { return "" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, channel("ops"), direct("dm"))
			s.linker("ops").find = find
			ids := s.add(s.incident("a"), aCard("ops"), aPage("dm", "ana", time.Hour))
			s.start("first")
			s.waitFor(ids[1], delivery.Sent)
			if got := link(s.desk("dm").called(1)); got != "" {
				t.Errorf("it carries %q", got)
			}
		})
	}
}

// A link is looked up once, however many pages carry it.
func TestLinkIsLookedUpOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t, channel("ops"), direct("dm"))
	l := s.linker("ops")
	i := s.incident("a")
	card := s.add(i, aCard("ops"))[0]
	s.start("first")
	s.waitFor(card, delivery.Sent)
	s.waitFor(s.add(i, aPage("dm", "ana", 0))[0], delivery.Sent)
	var pages []store.NewDelivery
	for range 5 {
		pages = append(pages, aPage("dm", "bo", 0))
	}
	for _, id := range s.add(i, pages...) {
		s.waitFor(id, delivery.Sent)
	}
	if n := l.looked.Load(); n != 1 {
		t.Errorf("it was looked up %d times", n)
	}
	for _, c := range s.desk("dm").all() {
		if link(c) == "" {
			t.Errorf("a page carries no link: %+v", c)
		}
	}
}
