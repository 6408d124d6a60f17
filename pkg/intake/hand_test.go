package intake_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/card"
	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/oncall"
)

// onCall puts somebody on call by themselves.
func onCall(id string) func(*config.File) {
	return func(f *config.File) {
		f.Schedules = []oncall.Schedule{{ID: "primary", Zone: time.UTC, Layers: []oncall.Layer{{Name: "all", Users: [][]string{{id}}}}}}
	}
}

// inDoubt makes a page's last attempt one that may have arrived, at an address.
func (w *world) inDoubt(id uuid.UUID, address string) {
	w.t.Helper()
	w.exec(`update delivery set attempts = 1, tries = 1, reason = 'timeout', wait_until = null, next_at = clock_timestamp() + interval '10 seconds',
		doubt = jsonb_build_object('effect', 1, 'key', id || ':1', 'address', $2::text, 'since', clock_timestamp(), 'revision', 1, 'through', 1) where id = $1`, id, address)
}

// The second half of the rule about bound pages: each newcomer gets one of their own, and the bound one goes on.
func TestAHandOffWhileAPageIsInDoubt(t *testing.T) { // C16
	t.Parallel()
	w := newWorld(t, func(f *config.File) {
		f.Users = append(f.Users, config.User{ID: "bo", Name: "Bo", Contacts: []config.Contact{{Via: "slack-dm", Address: "U0BO"}}})
		f.Schedules[0].Layers = nil
		onCall("ana")(f)
	})
	r := w.accept(disk("critical"))
	page := w.deliveries(r.IncidentID, delivery.Page)[0]
	over := func(id uuid.UUID) {
		t.Helper()
		if err := w.in.HandOver(t.Context(), r.IncidentID, id); err != nil {
			t.Fatal(err)
		}
	}
	pages := func() (out []string) {
		for _, d := range w.deliveries(r.IncidentID, delivery.Page) {
			if d.Notifier == "slack-dm" {
				out = append(out, fmt.Sprintf("%s %s %s doubt=%t", d.Target, d.State, d.Reason, d.Doubt != nil))
			}
		}
		return out
	}
	one := []string{"schedule:primary pending timeout doubt=true"}
	two := append(slices.Clone(one), "schedule:primary pending handed_over doubt=false")

	onCall("bo")(w.file)
	over(page.ID) // nothing is in doubt: the page itself goes to the newcomer
	if got := pages(); len(got) != 1 {
		t.Fatalf("%q", got)
	}
	w.inDoubt(page.ID, "U0ANA")
	before := w.steps(r.IncidentID)
	over(page.ID)
	over(page.ID) // a crash before the next attempt asks again
	if diff := cmp.Diff(two, pages()); diff != "" {
		t.Fatal(diff)
	}
	if !slices.Contains(w.timeline(r.IncidentID), card.EntryHandedOver) {
		t.Error("the timeline does not say so")
	}
	if diff := cmp.Diff(before, w.steps(r.IncidentID)); diff != "" {
		t.Errorf("the escalation moved: %s", diff)
	}
	// The next newcomer is who the page of the one before goes to: it is bound to nobody.
	onCall("cho")(w.file)
	over(page.ID)
	if diff := cmp.Diff(two, pages()); diff != "" {
		t.Fatal(diff)
	}
	// Once that is bound too, there is a third; and whichever page asks, there is one.
	second := w.deliveries(r.IncidentID, delivery.Page)
	w.inDoubt(second[len(second)-1].ID, "U0BO")
	over(second[len(second)-1].ID)
	over(page.ID)
	if got := pages(); len(got) != 3 || got[2] != two[1] {
		t.Errorf("%q", got)
	}
	// All of them end with an answer, in its own transaction.
	w.acknowledge(r.IncidentID)
	for _, d := range w.deliveries(r.IncidentID, delivery.Page) {
		if d.State != delivery.Canceled {
			t.Errorf("a page is %s after the answer", d.State)
		}
	}
	over(page.ID)
	if got := pages(); len(got) != 3 {
		t.Errorf("handed over after the answer: %q", got)
	}
}

// The newcomer has theirs: however often the bound page is tried again, there is no second one, also when theirs is out or bound by now.
func TestANewcomerGetsOnePage(t *testing.T) { // C16
	t.Parallel()
	for name, then := range map[string]string{
		"sent":     "update delivery set state = 'sent', next_at = null, settled_at = clock_timestamp(), applied = desired, reference = '{\"channel\": \"D1\", \"ts\": \"1.1\"}' where reason = 'handed_over'",
		"rejected": "update delivery set state = 'rejected', next_at = null, settled_at = clock_timestamp() where reason = 'handed_over'",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(f *config.File) {
				f.Users = append(f.Users, config.User{ID: "bo", Name: "Bo", Contacts: []config.Contact{{Via: "slack-dm", Address: "U0BO"}}})
				onCall("ana")(f)
			})
			id := w.accept(disk("critical")).IncidentID
			page := w.deliveries(id, delivery.Page)[0]
			w.inDoubt(page.ID, "U0ANA")
			onCall("bo")(w.file)
			for range 3 {
				if err := w.in.HandOver(t.Context(), id, page.ID); err != nil {
					t.Fatal(err)
				}
				w.exec(then)
			}
			if n := one[int](w, "select count(*) from delivery where kind = 'page' and notifier = 'slack-dm'"); n != 2 {
				t.Errorf("%d pages, want the bound one and Bo's", n)
			}
		})
	}
}
