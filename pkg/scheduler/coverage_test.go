package scheduler_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/oncall"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// A gap ahead is told of once, by whichever replica sees it, and the alert resolves when somebody covers it.
func TestCoverageGapIsTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	_, _, other := w.replica("two")
	var now time.Time
	w.tx(func(tx *store.Tx) error { now = tx.Now().UTC().Truncate(time.Minute); return nil })
	look := func() {
		t.Helper()
		w.step("coverage")
		if _, err := other.Coverage(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.step("settle")
	}
	state := func() string {
		return value[string](w, "select coalesce(string_agg(state || ' ' || count, ', ' order by id), '') from incident where key like '%coverage_gap:primary'")
	}
	look()
	if got := state(); got != "" {
		t.Errorf("all is covered, and there is %s", got)
	}

	layer := &w.file.Schedules[0].Layers[0]
	layer.End = now.Add(8 * 24 * time.Hour)
	look()
	if got := state(); got != "" {
		t.Errorf("the gap is more than seven days ahead, and there is %s", got)
	}
	layer.End = now.Add(48 * time.Hour)
	w.file.Schedules[0].Name, w.file.Schedules[0].Owner = "Primary", "cho"
	look()
	look()
	if got := state(); got != "open 1" {
		t.Errorf("a gap in two days is told of as %q", got)
	}
	title := value[string](w, "select title from incident where key like '%coverage_gap:primary'")
	if want := "Nobody is on call for Primary from " + layer.End.Format("Mon 2006-01-02 15:04"); !strings.HasPrefix(title, want) {
		t.Errorf("it says %q, want %q", title, want)
	}
	if got := value[string](w, "select i.topic || ' ' || (a.labels->>'schedule') || ' ' || (a.labels->>'owner') from incident i join alert a on a.incident_id = i.id where key like '%coverage_gap:primary'"); got != "alert.coverage_gap.warning._tocsin primary cho" {
		t.Errorf("it is %s", got)
	}

	// An override that keeps gaps covers nothing.
	put := func(o store.Override) {
		o.ID, o.Schedule, o.User, o.Author = store.NewID(), "primary", "cho", "Cho"
		w.tx(func(tx *store.Tx) error { return tx.AddOverride(t.Context(), o) })
	}
	put(store.Override{Start: now, End: now.Add(30 * 24 * time.Hour)})
	look()
	if got := state(); got != "open 1" {
		t.Errorf("an override that keeps the gap makes it %q", got)
	}
	put(store.Override{Start: now.Add(24 * time.Hour), End: now.Add(30 * 24 * time.Hour), Add: true})
	look()
	if got := state(); got != "resolved 1" {
		t.Errorf("covered, it is %q", got)
	}

	w.file.Schedules = append(w.file.Schedules, oncall.Schedule{ID: "partial", Name: "partial", Zone: time.UTC, Partial: true})
	look()
	if n := value[int](w, "select count(*) from incident where key like '%coverage_gap:partial'"); n != 0 {
		t.Error("a gap that is meant is told of")
	}
}

// The alert about a schedule that is gone from the file resolves.
func TestCoverageGapOfARemovedSchedule(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(f *config.File) {
		f.Schedules = append(f.Schedules, oncall.Schedule{ID: "empty", Name: "empty", Zone: time.UTC})
	})
	w.step("coverage")
	w.step("settle")
	if got := value[string](w, "select state || ': ' || title from incident where key like '%coverage_gap:empty'"); got != "open: Nobody is on call for empty now, without an end" {
		t.Errorf("told: %s", got)
	}
	w.file.Schedules = w.file.Schedules[:1]
	w.step("coverage")
	w.step("settle")
	if got := value[string](w, "select state from incident where key like '%coverage_gap:empty'"); got != "resolved" {
		t.Errorf("the schedule is gone, and the alert is %s", got)
	}
}
