package intake_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/intake"
	"github.com/tocsin-oncall/tocsin/pkg/oncall"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// covered adds a schedule in which nobody is on call by the layers.
func covered(f *config.File) {
	f.Schedules = append(f.Schedules, oncall.Schedule{ID: "empty", Name: "empty", Zone: time.UTC})
	f.Escalations["default"] = config.Escalation{Steps: []config.Step{{Page: []string{"schedule:primary"}}, {After: 10 * time.Minute, Page: []string{"schedule:empty"}}}}
}

// Rule 16: a step pages whoever is on call by an override, and an override that covers gaps is somebody to send to.
func TestStepsPageWhoIsOnCallByAnOverride(t *testing.T) {
	t.Parallel()
	w := newWorld(t, covered)
	var impossible *intake.ImpossibleError
	if _, err := w.in.Trial(t.Context(), "slack-dm", "schedule:empty", ana); !errors.As(err, &impossible) {
		t.Fatalf("nobody is on call, and a test says %v", err)
	}
	for schedule, add := range map[string]bool{"primary": false, "empty": true} {
		if _, err := w.in.AddOverride(t.Context(), schedule, intake.NewOverride{User: "cho", For: time.Hour, Add: add}, ana); err != nil {
			t.Fatal(err)
		}
	}
	r := w.accept(disk("critical"))
	var text string
	es, err := w.st.Timeline(t.Context(), r.IncidentID, 0, 1<<30, 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range es {
		text += e.Text + "\n"
	}
	if !strings.Contains(text, "Cho") || strings.Contains(text, "Ana Torres") {
		t.Errorf("the timeline says\n%s", text)
	}
	if got := one[string](w, "select string_agg(p->>'id', ' ') from routing, jsonb_array_elements(body->'people') p"); got != "cho cho" {
		t.Errorf("what was decided names %s", got)
	}
	if n := len(w.deliveries(r.IncidentID, delivery.Page)); n != 1 {
		t.Errorf("%d pages: Cho has one way, and Ana two", n)
	}
	if _, err := w.in.Trial(t.Context(), "slack-dm", "schedule:empty", ana); err != nil {
		t.Errorf("cho is on call, and a test says %v", err)
	}
}

// However many are made at once, the order in which they were made is one order, and their number has a bound.
func TestOverridesMadeAtOnceHaveAnOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			if _, err := w.in.AddOverride(t.Context(), "primary", intake.NewOverride{User: "cho", For: time.Hour}, ana); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := one[int](w, "select count(distinct created_at) from schedule_override"); n != 10 {
		t.Errorf("%d moments for 10 overrides", n)
	}
	w.exec(`insert into schedule_override (id, created_at, schedule, user_id, starts_at, ends_at, author)
		select gen_random_uuid(), now(), 'primary', 'cho', now(), now() + interval '1 hour', 'x' from generate_series(1, 490)`)
	var wrong *intake.InputError
	if _, err := w.in.AddOverride(t.Context(), "primary", intake.NewOverride{User: "cho", For: time.Hour}, ana); !errors.As(err, &wrong) || !strings.Contains(wrong.Message, "500 overrides") {
		t.Errorf("one more than the bound: %v", err)
	}
}

// Of a shift that has begun the rest changes hands.
func TestSwapOfAShiftThatHasBegun(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	var now time.Time
	w.tx(func(tx *store.Tx) error { now = tx.Now().UTC(); return nil })
	day := now.Truncate(time.Hour).Add(-12 * time.Hour) // no shift ends while the test runs
	w.file.Schedules = []oncall.Schedule{{ID: "primary", Zone: time.UTC, Layers: []oncall.Layer{
		{Name: "days", Users: [][]string{{"ana"}, {"cho"}}, Every: oncall.Every{N: 1, Unit: "day"}, Start: day.AddDate(0, 0, -2)},
	}}}
	if _, err := w.in.Swap(t.Context(), "primary", intake.NewSwap{User: "ana", At: now, With: "cho", WithAt: day.Add(36 * time.Hour)}, ana); err != nil {
		t.Fatal(err)
	}
	if got, want := one[string](w, "select string_agg(user_id || ' instead of ' || instead_of || ' ' || (starts_at >= $1) || ' ' || (extract(epoch from ends_at - $2)::int / 3600), ', ' order by starts_at) from schedule_override", now, day),
		"cho instead of ana true 24, ana instead of cho true 48"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	var wrong *intake.InputError
	if _, err := w.in.Swap(t.Context(), "primary", intake.NewSwap{User: "cho", At: day.Add(-12 * time.Hour), With: "ana", WithAt: day.Add(36 * time.Hour)}, ana); !errors.As(err, &wrong) || wrong.Field != "at" {
		t.Errorf("a shift that is over: %v", err)
	}
}
