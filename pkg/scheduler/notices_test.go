package scheduler_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tocsin-oncall/tocsin/pkg/card"
	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/oncall"
	"github.com/tocsin-oncall/tocsin/pkg/scheduler"
	"github.com/tocsin-oncall/tocsin/pkg/store/storetest"
)

// shifts puts people on call one after the other: each {user, hours from now at which they begin}.
func shifts(now time.Time, zone *time.Location, turns ...any) []oncall.Schedule {
	s := oncall.Schedule{ID: "primary", Name: "Primary", Zone: zone}
	for i := 0; i < len(turns); i += 2 {
		start := now.Add(turns[i+1].(time.Duration)).In(zone)
		s.Layers = append(s.Layers, oncall.Layer{Name: fmt.Sprint(i), Users: [][]string{{turns[i].(string)}}, Start: start})
	}
	return []oncall.Schedule{s}
}

// noticeWorld is a world whose database's clock shows a whole minute.
func noticeWorld(t *testing.T, n config.Notices) (*world, time.Time) {
	t.Helper()
	w := newWorld(t, func(f *config.File) { f.Notices = map[string]config.Notices{"primary": n} })
	return w, value[time.Time](w, "select date_trunc('minute', clock_timestamp())").UTC()
}

// notices are the deliveries of notices, in the order of their making, with when they are due in whole minutes from a time on.
func (w *world) notices(since time.Time) []string {
	w.t.Helper()
	return strings.Fields(strings.ReplaceAll(value[string](w, fmt.Sprintf(`select coalesce(string_agg(d.target || ' ' || n.what || ' ' || d.state || ' ' ||
		round(extract(epoch from n.due_at - %s)/60)::text, ',' order by n.due_at, d.id), '') from delivery d join shift_notice n on n.content_id = d.content_id where d.kind = 'notice'`,
		"'"+since.Format(time.RFC3339)+"'::timestamptz")), " ", "_") + ",")
}

func wants(t *testing.T, w *world, since time.Time, want ...string) {
	t.Helper()
	got := slices.DeleteFunc(strings.Split(strings.Join(w.notices(since), ""), ","), func(s string) bool { return s == "" })
	if diff := cmp.Diff(strings.Join(want, "\n"), strings.Join(got, "\n")); diff != "" {
		t.Error(diff)
	}
}

func TestEachShiftIsToldOnceOnThreeReplicasAndAfterARestart(t *testing.T) { // D15
	t.Parallel()
	w, now := noticeWorld(t, config.Notices{Start: true, End: true})
	w.file.Schedules = shifts(now, time.UTC, "ana", -100*time.Hour, "cho", 2*time.Hour)
	_, _, two := w.replica("two")
	_, _, three := w.replica("three")
	var all sync.WaitGroup
	for _, s := range []*scheduler.Scheduler{w.s, two, three} {
		all.Go(func() {
			for range 3 {
				if _, err := s.Notices(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	wants(t, w, now, "user:ana_end_pending_120", "user:cho_start_pending_120")
	if n := value[int](w, "select count(*) from delivery where kind = 'notice'"); n != 2 {
		t.Errorf("%d deliveries for two notices", n)
	}
	var s card.Snapshot
	if err := json.Unmarshal([]byte(value[string](w, "select c.body::text from content c join delivery d on d.content_id = c.id where d.target = 'user:cho'")), &s); err != nil {
		t.Fatal(err)
	}
	if s.Title != "Your shift has started: Primary" || s.Text != "You are on call for Primary." {
		t.Errorf("it says %q, %q", s.Title, s.Text)
	}
	if left := value[float64](w, "select extract(epoch from expires_at - next_at)::float8 from delivery where target = 'user:cho'"); left < 3590 || left > 3610 {
		t.Errorf("it lives %v s", left)
	}
	// Another replica goes on, long after the time.
	storetest.MoveClock(t, w.url, 150*time.Minute)
	_, _, four := w.replica("four")
	if _, err := four.Notices(t.Context()); err != nil {
		t.Fatal(err)
	}
	wants(t, w, now, "user:ana_end_pending_120", "user:cho_start_pending_120")
	// C13: two days late it is expired, and nothing of it is made anew.
	storetest.MoveClock(t, w.url, 48*time.Hour)
	w.step("expire")
	w.step("notices")
	wants(t, w, now, "user:ana_end_expired_120", "user:cho_start_expired_120")
}

func TestAnEditedScheduleWithdrawsAndMovesNotices(t *testing.T) { // D15
	t.Parallel()
	w, now := noticeWorld(t, config.Notices{Start: true})
	set := func(turns ...any) {
		t.Helper()
		w.file.Schedules = shifts(now, time.UTC, turns...)
		w.step("notices")
	}
	set("ana", -100*time.Hour, "cho", 2*time.Hour)
	wants(t, w, now, "user:cho_start_pending_120")
	set("ana", -100*time.Hour, "cho", 3*time.Hour) // it moves
	wants(t, w, now, "user:cho_start_canceled_120", "user:cho_start_pending_180")
	set("ana", -100*time.Hour) // it is gone
	wants(t, w, now, "user:cho_start_canceled_120", "user:cho_start_canceled_180")
	if n := value[int](w, "select count(*) from delivery where reason = 'shift_removed'"); n != 2 {
		t.Errorf("%d say why", n)
	}
	set("ana", -100*time.Hour, "cho", 3*time.Hour) // and comes back: the withdrawn one is forgotten, a new one is there
	wants(t, w, now, "user:cho_start_canceled_120", "user:cho_start_pending_180")
	storetest.MoveClock(t, w.url, 181*time.Minute)
	w.call("slack-dm", out)
	wants(t, w, now, "user:cho_start_canceled_120", "user:cho_start_sent_180")
	for _, moved := range []time.Duration{3*time.Hour + 10*time.Minute, 2*time.Hour + 50*time.Minute, 3 * time.Hour} { // its edges move after it was told
		set("ana", -100*time.Hour, "cho", moved)
		if n := value[int](w, "select count(*) from delivery where kind = 'notice'"); n != 3 {
			t.Errorf("told again when the start moves to %s", moved)
		}
	}
	// The next shift of the same person is another one.
	set("cho", 3*time.Hour, "ana", 10*time.Hour, "cho", 20*time.Hour)
	got := strings.Join(w.notices(now), "")
	if !strings.Contains(got, "user:ana_start_pending_600") || !strings.Contains(got, "user:cho_start_pending_1200") {
		t.Errorf("the next shifts: %s", got)
	}
}

func TestNoticesWaitForQuietHoursAndAreAskedFor(t *testing.T) {
	t.Parallel()
	w, now := noticeWorld(t, config.Notices{Start: true})
	minute := func(d time.Duration) int { at := now.Add(d); return at.Hour()*60 + at.Minute() }
	quiet := func(from, until time.Duration) {
		w.file.Users[1].Quiet = &oncall.Window{Days: [7]bool{true, true, true, true, true, true, true}, From: minute(from), Until: minute(until), Zone: time.UTC}
	}
	w.file.Schedules = shifts(now, time.UTC, "ana", -100*time.Hour, "cho", 2*time.Hour)
	quiet(time.Hour, 6*time.Hour)
	w.step("notices")
	wants(t, w, now) // it would be five hours old
	quiet(time.Hour, 2*time.Hour+30*time.Minute)
	w.step("notices")
	wants(t, w, now, "user:cho_start_pending_150")
	w.file.Notices["primary"] = config.Notices{}
	w.step("notices")
	wants(t, w, now, "user:cho_start_canceled_150")
	w.file.Schedules = nil
	w.step("notices")
}

// A notice is made a day ahead, and says until when the shift is also when that changes before it is due.
func TestNoticesAreMadeADayAheadAndSayWhatHolds(t *testing.T) {
	t.Parallel()
	w, now := noticeWorld(t, config.Notices{Start: true})
	words := func() string {
		t.Helper()
		return value[string](w, "select coalesce(string_agg(c.body ->> 'text', '|'), '') from content c join delivery d on d.content_id = c.id where d.kind = 'notice'")
	}
	until := func(d time.Duration) string {
		return "You are on call for Primary until " + now.Add(d).Format("Mon 2 Jan 15:04 MST") + "."
	}
	w.file.Schedules = shifts(now, time.UTC, "ana", -100*time.Hour, "cho", 30*time.Hour, "ana", 40*time.Hour)
	w.step("notices")
	wants(t, w, now)
	storetest.MoveClock(t, w.url, 7*time.Hour)
	w.step("notices")
	wants(t, w, now, "user:cho_start_pending_1800")
	if got := words(); got != until(40*time.Hour) {
		t.Errorf("it says %q", got)
	}
	w.file.Schedules = shifts(now, time.UTC, "ana", -100*time.Hour, "cho", 30*time.Hour, "ana", 44*time.Hour)
	w.step("notices")
	wants(t, w, now, "user:cho_start_pending_1800")
	if got := words(); got != until(44*time.Hour) {
		t.Errorf("the shift is longer by now, and it says %q", got)
	}
}
