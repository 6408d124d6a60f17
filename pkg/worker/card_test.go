package worker_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/card"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/message"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// linker is a desk that names a link to each object it made.
type linker struct {
	*desk
	looked atomic.Int64
	find   func(ctx context.Context, r delivery.Reference) string // nil: at once
}

func (l *linker) Link(ctx context.Context, r delivery.Reference) string {
	l.looked.Add(1)
	if l.find != nil {
		return l.find(ctx, r)
	}
	return "https://chat.example.com/" + r.TS
}

func (s *site) linker(notifier string) *linker {
	l := &linker{desk: newDesk(s.t)}
	s.provide(notifier, l)
	return l
}

// link is the card's link that a page carries; empty: none.
func link(c provider.Call) string {
	for _, l := range c.Message.Links {
		if l.Title == "Open the card" {
			return l.URL
		}
	}
	return ""
}

// C7: acknowledged while a create is unknown: the next one has the same key and is made yellow already.
func TestAckDuringAnUnknownCreate(t *testing.T) {
	t.Parallel()
	s := newSite(t, channel("ops"))
	g := s.gate()
	d := s.desk("ops").says(func(_ context.Context, n int, c provider.Call) delivery.Result {
		if n == 1 {
			g.pass()
			return lostIt
		}
		return took(n, c)
	})
	i := s.incident("a")
	id := s.add(i, aCard("ops"))[0]
	s.start("first")
	d.called(1)
	s.becomes(i, message.Acknowledged)
	g.open()
	s.waitFor(id, delivery.Sent)
	s.settled()
	calls := d.all()
	if len(calls) != 2 {
		t.Fatalf("%d calls were made", len(calls))
	}
	if calls[0].Message.State != message.Open || calls[1].Message.State != message.Acknowledged || calls[1].Operation != delivery.OpCreate || calls[1].Key != calls[0].Key {
		t.Errorf("%+v\n%+v", calls[0], calls[1])
	}
	if !strings.Contains(calls[1].Message.Footer, "repeat") {
		t.Errorf("the repeat does not say so: %q", calls[1].Message.Footer)
	}
	if r := s.row(id); r.Applied != 2 || r.Desired != 2 {
		t.Errorf("%+v", r)
	}
}

// C7: acknowledged between a create and its answer: one edit follows, for the card and for the page.
func TestAckBetweenCreateAndAnswer(t *testing.T) {
	t.Parallel()
	s := newSite(t, channel("ops"), direct("dm"))
	g := s.gate()
	first := func(_ context.Context, n int, c provider.Call) delivery.Result {
		if n == 1 {
			g.pass()
		}
		return took(n, c)
	}
	cards, pages := s.desk("ops").says(first), s.desk("dm").says(first)
	i := s.incident("a")
	ids := s.add(i, aCard("ops"), aPage("dm", "ana", 0))
	s.start("first")
	cards.called(1)
	pages.called(1)
	s.becomes(i, message.Acknowledged)
	g.open()
	s.settled()
	for _, d := range []*desk{cards, pages} {
		calls := d.all()
		if len(calls) != 2 || calls[1].Operation != delivery.OpEdit || calls[1].Message.State != message.Acknowledged || calls[1].Reference.TS != "1700000000.000001" {
			t.Errorf("%d calls: %+v", len(calls), calls)
		}
	}
	for _, id := range ids {
		if r := s.row(id); r.State != "sent" || r.Applied != 2 {
			t.Errorf("%+v", r)
		}
	}
}

// Edits in between are never sent: of many changes during one call, the next shows the last.
func TestEditsInBetweenAreNotSent(t *testing.T) {
	t.Parallel()
	s := newSite(t, channel("ops"))
	g := s.gate()
	d := s.desk("ops").says(func(_ context.Context, n int, c provider.Call) delivery.Result {
		if n == 1 {
			g.pass()
		}
		return took(n, c)
	})
	i := s.incident("a")
	id := s.add(i, aCard("ops"))[0]
	s.start("first")
	d.called(1)
	for range 5 {
		s.becomes(i, message.Open)
	}
	s.becomes(i, message.Resolved)
	g.open()
	s.settled()
	if calls := d.all(); len(calls) != 2 || calls[1].Message.State != message.Resolved {
		t.Errorf("%+v", calls)
	}
	if r := s.row(id); r.Applied != 7 {
		t.Errorf("%+v", r)
	}
}

// A page is withdrawn by an ack that comes between its claim and its attempt: its begin changes no row, nothing is called.
func TestAckBetweenClaimAndAttempt(t *testing.T) {
	t.Parallel()
	s := newSite(t, direct("dm"))
	i := s.incident("a")
	id := s.add(i, aPage("dm", "ana", 0))[0]
	prepared, on := make(chan bool, 10), s.gate()
	s.start("first", hooks{provider: func(string) {
		prepared <- true
		on.pass()
	}})
	s.comes("the preparation", prepared)
	s.becomes(i, message.Acknowledged)
	on.open()
	if r := s.row(id); r.State != "canceled" || r.Reason != "acknowledged" || r.Leased || r.Attempts != 0 {
		t.Errorf("%+v", r)
	}
	s.waitFor(s.add(s.incident("b"), aPage("dm", "bo", 0))[0], delivery.Sent) // the worker has gone on
	if calls := s.desk("dm").all(); len(calls) != 1 || calls[0].Address != "U0BO" {
		t.Errorf("%+v", calls)
	}
}

// A card is raised between its claim and its attempt: the attempt is not begun on what is old; the row is looked at anew.
func TestRaisedBetweenClaimAndAttempt(t *testing.T) {
	t.Parallel()
	s := newSite(t, channel("ops"))
	i := s.incident("a")
	id := s.add(i, aCard("ops"))[0]
	prepared, on := make(chan bool, 10), s.gate()
	s.start("first", hooks{provider: func(string) {
		prepared <- true
		on.pass()
	}})
	s.comes("the preparation", prepared)
	s.becomes(i, message.Acknowledged)
	on.open()
	s.waitFor(id, delivery.Sent)
	if calls := s.desk("ops").all(); len(calls) != 1 || calls[0].Message.State != message.Acknowledged {
		t.Errorf("%+v", calls)
	}
	if r := s.row(id); r.Attempts != 1 || r.Applied != 2 {
		t.Errorf("%+v", r)
	}
}

// An ack while a page's call is in flight is only noted: sent stays sent, anything else takes the noted end.
func TestAckDuringAPagesCall(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]delivery.Result{"refused": refused, "unknown": lostIt} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, direct("dm"))
			g := s.gate()
			d := s.desk("dm").says(g.held(func(int, provider.Call) delivery.Result { return answer }))
			i := s.incident("a")
			id := s.add(i, aPage("dm", "ana", 0))[0]
			w := s.start("first")
			d.called(1)
			s.becomes(i, message.Acknowledged)
			if r := s.row(id); r.State != "pending" || !r.Leased {
				t.Errorf("the ack moved a row whose attempt is open: %+v", r)
			}
			g.open()
			if r := s.waitFor(id, delivery.Canceled); r.Reason != "acknowledged" {
				t.Errorf("%+v", r)
			}
			if w.deaths.Load() != 0 || len(d.all()) != 1 {
				t.Errorf("%d deaths, %d calls", w.deaths.Load(), len(d.all()))
			}
		})
	}
}

// C10: a thread waits for its card, without an attempt and without counting as late; it follows at once, in order, and
// the closing reply comes last.
func TestThreadWaitsForItsCard(t *testing.T) {
	t.Parallel()
	s := newSite(t, channel("ops"))
	g := s.gate()
	d := s.desk("ops").says(func(_ context.Context, n int, c provider.Call) delivery.Result {
		if n == 1 {
			g.pass()
		}
		return took(n, c)
	})
	i := s.incident("a")
	c := aCard("ops")
	ids := s.add(i, c, aThread(c))
	s.start("first")
	d.called(1)
	s.until("the wait", func() bool { return s.row(ids[1]).Reason == "waiting_for_card" && !s.row(ids[1]).Leased })
	if r := s.row(ids[1]); r.Attempts != 0 || r.Tries != 0 || *r.DueIn > 30 {
		t.Errorf("%+v", r)
	}
	g.open()
	s.settled()
	s.becomes(i, message.Acknowledged)
	s.settled()
	s.becomes(i, message.Resolved)
	s.settled()
	var replies []provider.Call
	for _, c := range d.all() {
		if c.Operation == delivery.OpReply {
			replies = append(replies, c)
		}
	}
	if len(replies) != 3 {
		t.Fatalf("%d replies: %+v", len(replies), replies)
	}
	for n, r := range replies {
		if r.Reference.TS != "1700000000.000001" || r.Key != fmt.Sprintf("%s:1:%d", ids[1], n+1) {
			t.Errorf("reply %d: %+v", n, r)
		}
		if says := strings.Contains(fmt.Sprint(r.Message), "Resolved"); says != (n == 2) {
			t.Errorf("reply %d is %+v", n, r.Message)
		}
	}
}

// C10: the card dies: its thread is closed and says so, without a call and without an alarm of its own.
func TestThreadOfACardThatDies(t *testing.T) {
	t.Parallel()
	s := newSite(t, channel("ops"))
	d := s.desk("ops").says(always(delivery.Result{Outcome: delivery.OutcomeFailed, Evidence: delivery.Answered, Fault: delivery.FaultDestination, Reason: "destination:channel_not_found", Sentence: "Invite @tocsin."}))
	c := aCard("ops")
	ids := s.add(s.incident("a"), c, aThread(c))
	w := s.start("first")
	s.waitFor(ids[0], delivery.Rejected)
	if r := s.waitFor(ids[1], delivery.Canceled); r.Reason != "card_dead" || r.Sentence == "" || r.Attempts != 0 {
		t.Errorf("%+v", r)
	}
	if w.deaths.Load() != 1 || len(d.all()) != 1 {
		t.Errorf("%d deaths, %d calls", w.deaths.Load(), len(d.all()))
	}
}

// A thread far behind is told in digests, each an effect of its own, in order.
func TestThreadFarBehindIsADigest(t *testing.T) {
	t.Parallel()
	s := newSite(t, channel("ops"))
	i := s.incident("a")
	c := aCard("ops")
	ids := s.add(i, c, aThread(c))
	for range 24 {
		s.becomes(i, message.Open)
	}
	s.start("first")
	s.settled()
	var ranges []string
	for _, a := range s.attempts(ids[1]) {
		ranges = append(ranges, fmt.Sprint(strings.TrimPrefix(a.EffectKey, ids[1].String()), " to ", a.Revision))
	}
	if got := fmt.Sprint(ranges); got != "[:1:1 to 20 :1:21 to 25]" {
		t.Errorf("replies %s", got)
	}
}

// An escalation that tells a channel which has the card shows its reply in that channel too, and in no other.
func TestReplyForTheWholeChannel(t *testing.T) {
	t.Parallel()
	s := newSite(t, channel("ops"), channel("other"))
	i := s.incident("a")
	s.tx(func(tx *store.Tx) error {
		inc, err := tx.LockIncident(s.ctx(), i.id)
		if err != nil {
			return err
		}
		return s.write(tx, i, inc, card.EntryNotified, card.NotifiedText([]string{"ops"}))
	})
	for _, name := range []string{"ops", "other"} {
		c := aCard(name)
		s.add(i, c, aThread(c))
	}
	s.start("first")
	s.settled()
	for name, want := range map[string]bool{"ops": true, "other": false} {
		told, replies := false, 0
		for _, c := range s.desk(name).all() {
			if c.Operation == delivery.OpReply {
				replies++
				told = told || c.Broadcast
			} else if c.Broadcast {
				t.Errorf("%s: a card was broadcast", name)
			}
		}
		if replies == 0 || told != want {
			t.Errorf("%s: %d replies, shown in the channel: %t", name, replies, told)
		}
	}
}

// The forced race behind C10: the card's first attempt is recorded, and its waiters brought forward, while the thread is
// claimed and about to wait for it. Whoever parks looks again: the thread does not wait for its bound.
func TestParkedWhileTheCardGoesOut(t *testing.T) {
	t.Parallel()
	n := channel("ops")
	n.Concurrency = 1
	s := newSite(t, n)
	g := s.gate()
	d := s.desk("ops").says(func(_ context.Context, n int, c provider.Call) delivery.Result {
		if n == 1 {
			g.pass()
		}
		return took(n, c)
	})
	i := s.incident("a")
	c := aCard("ops")
	card := s.add(i, c)[0]
	first := s.start("first")
	d.called(1)
	thread := s.add(i, aThread(c))[0] // the first worker's only place is taken
	looked, on := make(chan bool, 100), s.gate()
	s.start("second", hooks{accounts: func() { // what lies around the thread was read: no card yet
		looked <- true
		on.pass()
	}})
	s.comes("the second worker's look", looked)
	g.open()
	s.waitFor(card, delivery.Sent)
	first.stop() // and what follows the result has followed
	on.open()
	s.waitFor(thread, delivery.Sent)
}

// C12, D3: the card's provider is down for an hour while the incident is acknowledged and resolved: one card at the end,
// showing the last state, none in between.
func TestProviderDownForAnHour(t *testing.T) {
	t.Parallel()
	s := newSite(t, retries(channel("ops"), delivery.Retries{Delay: 10 * time.Minute, MaxDelay: 10 * time.Minute}), direct("dm"))
	down := func(_ context.Context, n int, c provider.Call) delivery.Result { return refused }
	d := s.desk("ops").says(down)
	i := s.incident("a")
	c := aCard("ops")
	ids := s.add(i, c, aThread(c), aPage("dm", "ana", 5*time.Second))
	s.start("first")
	for n, state := range []message.State{message.Open, message.Acknowledged, message.Open, message.Resolved} {
		d.called(n + 1)
		s.until("the wait", func() bool { r := s.row(ids[0]); return r.Tries == n+1 && !r.Leased })
		if state != message.Open {
			s.becomes(i, state)
		}
		if n < 3 {
			s.move(11 * time.Minute)
		}
	}
	d.says(nil)
	s.move(11 * time.Minute)
	s.settled()
	var creates, edits int
	var shown message.State
	for _, c := range d.all()[4:] {
		switch c.Operation {
		case delivery.OpCreate:
			creates++
			shown = c.Message.State
		case delivery.OpEdit:
			edits++
		}
	}
	if creates != 1 || edits != 0 || shown != message.Resolved {
		t.Errorf("%d cards, %d edits, showing %s", creates, edits, shown)
	}
	if got := link(s.desk("dm").called(1)); got != "" {
		t.Errorf("the page went out with %q", got)
	}
}

// A card is taken away in the chat while its incident is open: a new one is made, and the thread goes on under it.
func TestCardTakenAway(t *testing.T) {
	t.Parallel()
	s := newSite(t, channel("ops"))
	gone := false
	d := s.desk("ops").says(func(_ context.Context, n int, c provider.Call) delivery.Result {
		if c.Operation == delivery.OpEdit && !gone {
			gone = true // one worker, one edit at a time
			return delivery.Result{Outcome: delivery.OutcomeFailed, Evidence: delivery.Answered, Fault: delivery.FaultGone, Reason: "slack:message_not_found"}
		}
		return took(n, c)
	})
	i := s.incident("a")
	c := aCard("ops")
	ids := s.add(i, c, aThread(c))
	s.start("first")
	s.settled()
	s.becomes(i, message.Acknowledged)
	s.settled()
	s.becomes(i, message.Resolved)
	s.settled()
	r := s.row(ids[0])
	if r.State != "sent" || r.Effect != 2 || r.Applied != 3 {
		t.Errorf("%+v", r)
	}
	var second provider.Call
	var last string
	made := map[string]string{}
	for n, c := range d.all() {
		switch {
		case c.Operation == delivery.OpCreate && strings.HasSuffix(c.Key, ":2"):
			second = c
			made["second"] = fmt.Sprintf("1700000000.%06d", n+1)
		case c.Operation == delivery.OpReply:
			last = c.Reference.TS
		}
	}
	if second.Message.State != message.Acknowledged || last != made["second"] {
		t.Errorf("the new card shows %s; the last reply is under %s, the card is %s", second.Message.State, last, made["second"])
	}
}

// An edit that the provider refuses, its plain form too, takes nothing away: the card stays sent, and the next change is
// tried again.
func TestRefusedEditLeavesTheCardSent(t *testing.T) {
	t.Parallel()
	s := newSite(t, channel("ops"))
	d := s.desk("ops").says(func(_ context.Context, n int, c provider.Call) delivery.Result {
		if c.Operation == delivery.OpEdit && c.Message.State == message.Acknowledged {
			return delivery.Result{Outcome: delivery.OutcomeFailed, Evidence: delivery.Answered, Fault: delivery.FaultPayload, Reason: "payload:too_long", Sentence: "Report it."}
		}
		return took(n, c)
	})
	i := s.incident("a")
	id := s.add(i, aCard("ops"))[0]
	w := s.start("first")
	s.settled()
	s.becomes(i, message.Acknowledged)
	s.settled()
	if r := s.row(id); r.State != "sent" || r.Reason != "edit_failed" || r.Applied != 1 {
		t.Errorf("%+v", r)
	}
	s.becomes(i, message.Resolved)
	s.settled()
	if r := s.row(id); r.State != "sent" || r.Reason != "" || r.Applied != 3 {
		t.Errorf("%+v", r)
	}
	if n := len(d.all()); n != 4 || w.deaths.Load() != 0 {
		t.Errorf("%d calls, %d deaths", n, w.deaths.Load())
	}
}
