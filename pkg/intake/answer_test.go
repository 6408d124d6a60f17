package intake_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/intake"
	"github.com/tocsin-oncall/tocsin/pkg/message"
	"github.com/tocsin-oncall/tocsin/pkg/store"
	"github.com/tocsin-oncall/tocsin/pkg/store/storetest"
)

func TestAcknowledgementWithdrawsTheEscalationInItsOwnTransaction(t *testing.T) { // D9
	t.Parallel()
	w := newWorld(t, nil)
	r := w.accept(disk("critical"))
	steps := w.steps(r.IncidentID)
	if a := w.acknowledge(r.IncidentID); !a.Changed || a.Incident.State != message.Acknowledged {
		t.Fatalf("%+v", a)
	}
	if n := one[int](w, "select count(*) from escalation where state = 'due'"); n != 0 {
		t.Errorf("%d steps are still due", n)
	}
	for _, d := range w.deliveries(r.IncidentID, delivery.Page) {
		if d.State != delivery.Canceled || d.Reason != "acknowledged" {
			t.Errorf("page %s: %s %s", d.Notifier, d.State, d.Reason)
		}
	}
	// All three were written by one transaction.
	if n := one[int](w, `select count(distinct xmin::text) from (select xmin from incident where id = $1 union all
		select xmin from escalation where incident_id = $1 and state = 'withdrawn' union all select xmin from delivery where incident_id = $1 and kind = 'page') x`, r.IncidentID); n != 1 {
		t.Errorf("written by %d transactions", n)
	}
	// A replica that saw the step as due a moment ago comes too late.
	storetest.MoveClock(t, w.url, time.Hour)
	fired, err := w.in.Escalate(t.Context(), r.IncidentID, steps[1].ID)
	if err != nil || fired {
		t.Errorf("the step fired: %t, %v", fired, err)
	}
	events := w.deliveries(r.IncidentID, delivery.Event)
	if len(events) != 2 {
		t.Errorf("a webhook is told of the change: %v", kinds(events))
	}
}

func TestButtonPressedTwiceAndByTwoPeopleOnTwoReplicas(t *testing.T) { // D11
	t.Parallel()
	w := newWorld(t, nil)
	_, other := w.replica()
	for round := range 20 {
		g := disk("critical")
		g.Key = fmt.Sprint(round)
		id := w.accept(g).IncidentID
		bo := intake.Actor{ID: "user:bo", Name: "Bo", Callback: fmt.Sprint("slack:bo:", round)}
		press := ana
		press.Callback = fmt.Sprint("slack:ana:", round)
		var all sync.WaitGroup
		answers := make([]intake.Answer, 4)
		for n, p := range []struct {
			in *intake.Intake
			by intake.Actor
		}{{w.in, press}, {other, press}, {other, bo}, {w.in, bo}} { // each press is delivered twice
			all.Go(func() {
				var err error
				if answers[n], err = p.in.Acknowledge(t.Context(), id, p.by, ""); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		changed := 0
		for _, a := range answers {
			if a.Changed {
				changed++
				continue
			}
			if who := a.Incident.AcknowledgedBy; who == "" || !strings.HasPrefix(a.Text(), who+" acknowledged it already") {
				t.Errorf("the second is told %q", a.Text())
			}
		}
		if changed != 1 {
			t.Errorf("%d acknowledgements", changed)
		}
		if n := one[int](w, "select count(*) from audit where object = $1", "incident:"+id.String()); n != 1 {
			t.Errorf("%d audit rows", n)
		}
	}
}

// A button and a new alert race on two replicas, a thousand times: the card ends with both, always.
func TestButtonAndNewAlertRace(t *testing.T) { // C8
	t.Parallel()
	const rounds, lanes = 1000, 4
	w := newWorld(t, nil)
	_, other := w.replica()
	race := func(round int) {
		first, second := disk("warning", "n", "1"), disk("warning", "n", "2")
		first.Key = fmt.Sprint(round)
		second.Key = first.Key
		r, err := w.in.Accept(t.Context(), first)
		if err != nil {
			t.Error(err)
			return
		}
		var both sync.WaitGroup
		both.Go(func() {
			if a, err := w.in.Acknowledge(t.Context(), r.IncidentID, ana, ""); err != nil || !a.Changed {
				t.Errorf("round %d: %t, %v", round, a.Changed, err)
			}
		})
		both.Go(func() {
			if _, err := other.Accept(t.Context(), second); err != nil {
				t.Error(err)
			}
		})
		both.Wait()
	}
	var all sync.WaitGroup
	for lane := range lanes {
		all.Go(func() {
			for round := lane; round < rounds && !t.Failed(); round += lanes {
				race(round)
			}
		})
	}
	all.Wait()
	// The card shows the newest content up to the revision that is wished: both say the same, and both hold both.
	const good = `select count(*) from incident i join content c on c.id = i.id
		join delivery d on d.incident_id = i.id and d.kind = 'card'
		where i.state = 'acknowledged' and i.firing = 2 and i.revision = 3 and d.desired = 3 and c.revision = 3
		and c.body ->> 'state' = 'acknowledged' and c.body ->> 'acknowledged_by' = 'Ana Torres' and jsonb_array_length(c.body -> 'alerts') = 2`
	if n := one[int](w, good); n != rounds {
		t.Errorf("%d of %d cards end with both", n, rounds)
	}
	if n := one[int](w, "select count(*) from delivery where kind = 'card'"); n != rounds {
		t.Errorf("%d cards", n)
	}
	// It was a race: either came first many times.
	late := one[int](w, "select count(*) from timeline a join timeline b using (incident_id) where a.type = 'acknowledged' and b.type = 'alert_firing' and a.sequence < b.sequence")
	t.Logf("the button came first %d times", late)
}

func TestAcknowledgementBeforeTheCardIsOut(t *testing.T) { // C7, the decision: no second card, the next attempt shows it
	t.Parallel()
	w := newWorld(t, nil)
	id := w.accept(disk("critical")).IncidentID
	w.acknowledge(id)
	card := w.deliveries(id, delivery.Card)[0]
	if card.State != delivery.Pending || card.Desired != 2 || card.Effect != 1 {
		t.Errorf("%+v", card)
	}
	if s := w.snapshot(id); s.State != message.Acknowledged || s.Revision != 2 {
		t.Errorf("the next attempt shows %s at %d", s.State, s.Revision)
	}
}

func TestAnswersToWhatIsOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	id := w.accept(disk("critical")).IncidentID
	if a := w.resolve(id); !a.Changed || a.Text() != "You resolved it." {
		t.Errorf("%+v", a)
	}
	if a := w.resolve(id); a.Changed || !strings.HasPrefix(a.Text(), "Ana Torres resolved it already, at ") {
		t.Errorf("%t %s", a.Changed, a.Text())
	}
	if a := w.acknowledge(id); a.Changed || a.Incident.State != message.Resolved {
		t.Errorf("an acknowledgement opened it again: %+v", a)
	}
	if _, err := w.in.Acknowledge(t.Context(), uuid.New(), ana, ""); !errors.Is(err, intake.ErrNotFound) {
		t.Errorf("of no incident: %v", err)
	}
	var wrong *intake.InputError
	if _, err := w.in.Resolve(t.Context(), id, intake.Actor{}, ""); !errors.As(err, &wrong) {
		t.Errorf("by nobody: %v", err)
	}
}

// An account that breaks again after it was said to be well is news, however soon.
func TestBrokenAgainIsTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	for round := range 3 {
		var r intake.Result
		w.tx(func(tx *store.Tx) error {
			var err error
			r, err = w.in.SelfAlert(t.Context(), tx, intake.Self{Kind: intake.SelfNotifierBroken, Criticality: "critical", About: "ops-slack", Title: "broken"})
			return err
		})
		if len(r.Deliveries) == 0 {
			t.Fatalf("round %d is silent", round)
		}
		if done, err := w.in.ResolveSelf(t.Context(), "_tocsin:notifier_broken:ops-slack", "it works", func(*store.Tx) (bool, error) { return false, nil }); err != nil || !done {
			t.Fatalf("%t, %v", done, err)
		}
	}
}

func TestSelfAlertIsAnnouncedOnceADay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	raise := func() intake.Result {
		var r intake.Result
		w.tx(func(tx *store.Tx) error {
			var err error
			r, err = w.in.SelfAlert(t.Context(), tx, intake.Self{Kind: "delivery_rejected", Criticality: "critical", About: "ops-slack", Title: "broken", Daily: true, Labels: map[string]string{"notifier": "ops-slack"}})
			return err
		})
		return r
	}
	settle := func() {
		done, err := w.in.ResolveSelf(t.Context(), "_tocsin:delivery_rejected:ops-slack", "it works", func(*store.Tx) (bool, error) { return false, nil })
		if err != nil || !done {
			t.Fatalf("%t, %v", done, err)
		}
	}
	if r := raise(); len(r.Deliveries) == 0 {
		t.Fatal("the first one is silent")
	}
	if r := raise(); len(r.Deliveries) != 0 || r.Opened {
		t.Errorf("the second death joins: %+v", r)
	}
	settle()
	storetest.MoveClock(t, w.url, 23*time.Hour)
	quiet := raise()
	if !quiet.Opened || len(quiet.Deliveries) != 0 {
		t.Errorf("within the day it is stored and sends nothing: %+v", quiet)
	}
	if got := w.timeline(quiet.IncidentID); len(got) != 2 || got[1] != "quiet" {
		t.Errorf("its timeline: %v", got)
	}
	storetest.MoveClock(t, w.url, 2*time.Hour)
	if r := raise(); r.Opened || len(r.Deliveries) == 0 {
		t.Errorf("after the day it is announced, though it was stored before: %+v", r)
	}
	settle()
}

// Whatever stands in a reason, an answer counts.
func TestAReasonWithOddCharactersIsKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	id := w.accept(disk("critical")).IncidentID
	const odd = "first\x00 line\nsecond\xff"
	by := intake.Actor{ID: "user:bo", Name: "Bo\x00 Lind"}
	if _, err := w.in.Acknowledge(t.Context(), id, by, odd); err != nil {
		t.Error(err)
	}
	if _, err := w.in.Snooze(t.Context(), id, by, time.Hour, odd); err != nil {
		t.Error(err)
	}
	if _, err := w.in.EscalateNow(t.Context(), id, by, odd); err != nil {
		t.Error(err)
	}
	if _, err := w.in.Reassign(t.Context(), id, by, "cho", odd); err != nil {
		t.Error(err)
	}
	if _, err := w.in.Resolve(t.Context(), id, by, odd); err != nil {
		t.Error(err)
	}
	if n := strings.Count(w.notes(id), "first\uFFFD line second\uFFFD"); n != 5 {
		t.Errorf("%d reasons are on the timeline: %s", n, w.notes(id))
	}
}
