package scheduler_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/intake"
	"github.com/tocsin-oncall/tocsin/pkg/oncall"
	"github.com/tocsin-oncall/tocsin/pkg/plan"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

func hook(events ...string) config.Notifier {
	return config.Notifier{Name: "hook", Type: "webhook", URL: "http://127.0.0.1:1", Events: events}
}

// Each death is told of once, to the listeners and to the webhooks that ask for it; but never a webhook of its own.
func TestDeathsAreTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(f *config.File) {
		f.Notifiers["hook"] = hook("delivery")
		f.Notifiers["quiet"] = hook("incident")
	})
	w.fire("k")
	w.dieAll("card", "rejected", "slack:channel_not_found")
	w.step("announce")
	w.step("announce")
	if n := value[int](w, "select count(*) from event where type = 'delivery.dead' and topic = 'alert.down.critical.web' and body->'delivery'->>'notifier' = 'ops-slack'"); n != 1 {
		t.Errorf("the death is told of %d times", n)
	}
	if n := value[int](w, "select count(*) from delivery where kind = 'event' and notifier = 'hook' and incident_id is null"); n != 1 {
		t.Errorf("the webhook gets it %d times", n)
	}
	var body struct {
		Type      string
		Timestamp time.Time
		Data      struct {
			Delivery struct{ State, Reason string }
		}
	}
	if err := json.Unmarshal([]byte(value[string](w, "select c.body::text from content c join delivery d on d.content_id = c.id where d.notifier = 'hook'")), &body); err != nil {
		t.Fatal(err)
	}
	if body.Type != "delivery.dead" || body.Timestamp.IsZero() || body.Data.Delivery.State != "rejected" || body.Data.Delivery.Reason != "slack:channel_not_found" {
		t.Errorf("it gets %+v", body)
	}
	w.dieAll("event", "expired", "lifetime_over")
	w.step("announce")
	if n := value[int](w, "select count(*) from event where type = 'delivery.dead' and topic = 'delivery.expired.hook'"); n != 1 {
		t.Errorf("the listeners are told %d times of the webhook's own death", n)
	}
	if n := value[int](w, "select count(*) from delivery where kind = 'event' and notifier = 'hook'"); n != 1 {
		t.Errorf("the webhook is told of its own death: %d", n)
	}
}

// A change of who is on call is told of once, by whichever replica sees it, and not by one with an older file.
func TestOnCallIsTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(f *config.File) { f.Notifiers["hook"] = hook("oncall") })
	_, _, other := w.replica("two")
	told := func() int { return value[int](w, "select count(*) from event where type = 'oncall.changed'") }
	w.step("on call")
	if told() != 0 {
		t.Error("nobody had been told of anybody, and there is a change")
	}
	layer := &w.file.Schedules[0].Layers[0]
	layer.Users = [][]string{{"cho"}}
	w.step("on call")
	if _, err := other.OnCall(t.Context()); err != nil {
		t.Fatal(err)
	}
	if told() != 1 {
		t.Errorf("the change is told of %d times", told())
	}
	if got := value[string](w, "select (body->'oncall'->'before'->0->>'id') || ' ' || (body->'oncall'->'users'->0->>'name') || ' ' || topic from event where type = 'oncall.changed'"); got != "ana Cho oncall.primary" {
		t.Errorf("told: %s", got)
	}
	if n := value[int](w, "select count(*) from delivery where notifier = 'hook' and kind = 'event'"); n != 1 {
		t.Errorf("the webhook gets it %d times", n)
	}
	override := store.Override{ID: store.NewID(), Schedule: "primary", User: "ana", Author: "Ana"}
	w.tx(func(tx *store.Tx) error {
		override.Start, override.End = tx.Now(), tx.Now().Add(time.Hour)
		return tx.AddOverride(t.Context(), override)
	})
	w.step("on call")
	if got := value[string](w, "select (body->'oncall'->'users'->0->>'id') || ' ' || (body->'oncall'->>'layer') from event where type = 'oncall.changed' order by id desc limit 1"); told() != 2 || got != "ana override" {
		t.Errorf("an override is told of as %q, %d changes", got, told())
	}
	w.tx(func(tx *store.Tx) error {
		_, err := tx.EndOverride(t.Context(), "primary", override.ID, "Ana")
		return err
	})
	w.step("on call")
	if told() != 3 {
		t.Errorf("its end is told of: %d changes", told())
	}
	w.sql(`insert into replica (id, started_at, seen_at, checksum, notifiers, read_at) values ('newer', now(), now(), 'newer file', '{}', now())`)
	layer.Users = [][]string{{"ana"}}
	w.step("on call")
	if told() != 3 {
		t.Error("a replica with an older file spoke")
	}
	w.sql(`delete from replica`)
	w.file.Schedules = append(w.file.Schedules[:0], oncall.Schedule{ID: "another", Zone: time.UTC})
	w.step("on call")
	if got := value[string](w, "select string_agg(schedule, ' ') from oncall_told"); got != "another" {
		t.Errorf("kept are %s", got)
	}
}

// An escalation rests since Ana, who is on call, has quiet hours. Cho, who has none, comes on call: it looks again at once. Where whoever comes
// has them too, it rests on and says so once.
func TestAnEscalationThatRestsLooksAgainWhenSomebodyElseComesOnCall(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	now := value[time.Time](w, "select clock_timestamp()").UTC()
	minute := func(d time.Duration) int { at := now.Add(d); return at.Hour()*60 + at.Minute() }
	quiet := &oncall.Window{Days: [7]bool{true, true, true, true, true, true, true}, From: minute(-time.Hour), Until: minute(3 * time.Hour), Zone: time.UTC}
	w.file.Users[0].Quiet = quiet
	w.file.Users = append(w.file.Users, config.User{ID: "dee", Name: "Dee", Quiet: quiet, Contacts: []config.Contact{{Via: "slack-dm", Address: "U0DEE"}}})
	w.step("on call")
	r, err := w.in.Accept(t.Context(), intake.Group{Source: "native", Key: "low", Alerts: []plan.Alert{{Kind: "down", Criticality: "warning", Job: "web", Firing: true, Title: "Down"}}})
	if err != nil {
		t.Fatal(err)
	}
	look := func(user string) []string {
		w.file.Schedules[0].Layers[0].Users = [][]string{{user}}
		w.step("on call")
		w.step("escalate")
		return w.pages(r.IncidentID)
	}
	if pages := append(look("dee"), look("ana")...); len(pages) != 0 {
		t.Errorf("paged in quiet hours: %v", pages)
	}
	if pages := look("cho"); len(pages) != 1 || pages[0] != "slack-dm schedule:primary pending waiting_for_card" {
		t.Errorf("paged %v", pages)
	}
	if n := value[int](w, "select count(*) from timeline where type = 'quiet_hours'"); n != 3 { // Ana, Dee, Ana
		t.Errorf("%d lines about quiet hours", n)
	}
}
