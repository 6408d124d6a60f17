package scheduler_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/ical"
	"github.com/tocsin-oncall/tocsin/pkg/oncall"
	"github.com/tocsin-oncall/tocsin/pkg/plan"
	"github.com/tocsin-oncall/tocsin/pkg/scheduler"
	"github.com/tocsin-oncall/tocsin/pkg/store"
	"github.com/tocsin-oncall/tocsin/pkg/store/storetest"
)

// rota is a world whose schedule "primary" is a calendar above the rotation of ana, and the far side that keeps the calendar.
type rota struct {
	*world
	answer atomic.Pointer[func(http.ResponseWriter)]
	calls  atomic.Int64
}

func newRota(t *testing.T) *rota {
	t.Helper()
	r := &rota{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		r.calls.Add(1)
		(*r.answer.Load())(w)
	}))
	t.Cleanup(s.Close)
	r.world = newWorld(t, func(f *config.File) {
		f.Calendars = map[string]config.Calendar{"c1": {URL: s.URL + "/s3cr3t.ics", Zone: time.UTC}}
		f.Schedules[0].Layers = append(f.Schedules[0].Layers, oncall.Layer{Name: "calendar", Calendar: "c1"})
		f.Schedules[0].Name, f.Schedules[0].Owner = "Primary", "ana"
		f.Users[1].Email = "cho@example.com"
	})
	return r
}

// says has the far side keep a calendar with these events: "hours from now, hours long, who is invited".
func (r *rota) says(events ...string) {
	r.t.Helper()
	var b strings.Builder
	b.WriteString("BEGIN:VCALENDAR\r\n")
	for i, e := range events {
		var from, long int
		var who string
		if _, err := fmt.Sscanf(e, "%d %d %s", &from, &long, &who); err != nil {
			r.t.Fatal(err)
		}
		start := value[time.Time](r.world, "select date_trunc('hour', pg_catalog.now())").UTC().Add(time.Duration(from) * time.Hour)
		fmt.Fprintf(&b, "BEGIN:VEVENT\r\nUID:%d\r\nSUMMARY:Rota\r\nDTSTART:%s\r\nDURATION:PT%dH\r\nATTENDEE:mailto:%s\r\nEND:VEVENT\r\n", i, start.Format("20060102T150405Z"), long, who)
	}
	b.WriteString("END:VCALENDAR\r\n")
	r.sends(http.StatusOK, b.String())
}

func (r *rota) sends(status int, body string) {
	f := func(w http.ResponseWriter) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}
	r.answer.Store(&f)
}

// fetch lets time pass and every job have its turn.
func (r *rota) fetch(later time.Duration) {
	r.t.Helper()
	if later > 0 {
		storetest.MoveClock(r.t, r.url, later)
	}
	r.step("calendars")
	r.step("settle")
}

// onCall is who is on call now, as another replica sees it.
func (r *rota) onCall(st *store.Store) string {
	r.t.Helper()
	now, err := st.Now(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	over, err := st.OverridesFrom(r.t.Context(), now)
	if err != nil {
		r.t.Fatal(err)
	}
	s, _ := r.file.WithOverrides(over).Schedule("primary")
	shift, _ := s.At(now)
	return strings.Join(shift.Users, "+") + " " + shift.Layer
}

func (r *rota) told() string {
	return value[string](r.world, "select coalesce(string_agg(state || ' ' || count, ', ' order by id), '') from incident where key like '%calendar_failed:primary/calendar'")
}

func (r *rota) want(what, got, want string) {
	r.t.Helper()
	if got != want {
		r.t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// A calendar is fetched by one replica and counts for all; a change of it counts without a restart; what it does not cover is the layer's below.
func TestACalendarIsFetchedOnceForAll(t *testing.T) {
	t.Parallel()
	r := newRota(t)
	r.says("-1 24 cho@example.com")
	st, _, two := r.replica("two")
	_, _, three := r.replica("three")
	r.want("before the first fetch", r.onCall(st), "ana week")
	var all sync.WaitGroup
	for _, s := range []*scheduler.Scheduler{r.s, two, three} {
		all.Go(func() {
			if _, err := s.Calendars(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := r.calls.Load(); n != 1 {
		t.Errorf("%d calls", n)
	}
	r.want("one replica", r.onCall(r.st), "cho calendar")
	r.want("the other", r.onCall(st), "cho calendar")
	version := func() int { return value[int](r.world, "select version from calendar") }
	first := version()
	r.fetch(time.Minute)
	if n := r.calls.Load(); n != 1 {
		t.Errorf("%d calls within five minutes", n)
	}
	r.fetch(6 * time.Minute)
	if n := r.calls.Load(); n != 2 || version() != first {
		t.Errorf("%d calls, version %d of what says the same, it was %d", n, version(), first)
	}
	r.says("5 24 cho@example.com")
	r.fetch(6 * time.Minute)
	r.want("changed", r.onCall(st), "ana week")
	if version() == first {
		t.Error("another copy has the same version")
	}
	r.says()
	r.fetch(6 * time.Minute)
	r.want("emptied", r.onCall(st), "ana week")
	r.want("what is told", r.told(), "")

	// What no file names is forgotten, long after; what one names is not.
	r.fetch(40 * 24 * time.Hour)
	r.step("purge")
	rows := func() string { return value[string](r.world, "select coalesce(string_agg(id, ' '), '') from calendar") }
	r.want("a calendar of the file", rows(), "c1")
	delete(r.file.Calendars, "c1")
	r.file.Schedules[0].Layers = r.file.Schedules[0].Layers[:1]
	r.file.Checksum = "another"
	r.fetch(29 * 24 * time.Hour)
	r.step("purge")
	r.want("after 29 days", rows(), "c1")
	r.fetch(2 * 24 * time.Hour)
	r.step("purge")
	r.want("after 31", rows(), "")
}

// A far side that is down costs nothing: its last good copy stays in force, and is told to be old after an hour, once, to everybody and
// to the schedule's owner.
func TestTheLastGoodCopyStaysInForce(t *testing.T) {
	t.Parallel()
	r := newRota(t)
	r.says("-1 1000 cho@example.com")
	r.fetch(0)
	r.want("on call", r.onCall(r.st), "cho calendar")
	for _, bad := range []struct {
		status       int
		body, reason string
	}{
		{500, "", "answered 500"},
		{302, "", "follows no redirect"},
		{200, "<!doctype html><title>Sign in</title>", "is no calendar: it begins with"},
		{200, "BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\nUID:1\r\n", "is cut off"},
		{200, "BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\nSUMMARY:x\r\nEND:VCALENDAR\r\n", "can't be read"},
		{200, strings.Repeat("x", ical.MaxSize+1), "larger than 4 MiB"},
	} {
		r.sends(bad.status, bad.body)
		before := r.calls.Load()
		r.fetch(16 * time.Minute)
		if r.calls.Load() == before {
			t.Errorf("%s: not tried again within 16 minutes", bad.reason)
		}
		r.want(bad.reason, r.onCall(r.st), "cho calendar")
		if got := value[string](r.world, "select error from calendar"); !strings.Contains(got, bad.reason) || strings.Contains(got, "s3cr3t") {
			t.Errorf("it says %q, want %q", got, bad.reason)
		}
	}
	r.fetch(16 * time.Minute)
	r.want("told after an hour", r.told(), "open 1")
	text := value[string](r.world, "select a.text from alert a join incident i on i.id = a.incident_id where i.key like '%calendar_failed%'")
	if !strings.Contains(text, "It could not be fetched since ") || !strings.Contains(text, "is cut off") || !strings.Contains(text, "stays in force") {
		t.Errorf("it says %q", text)
	}
	r.want("labels", value[string](r.world, "select (a.labels->>'schedule') || ' ' || (a.labels->>'layer') || ' ' || (a.labels->>'owner') from alert a join incident i on i.id = a.incident_id where i.key like '%calendar_failed%'"), "primary calendar ana")
	r.want("to the owner", value[string](r.world, "select string_agg(kind || ' ' || target, ', ') from delivery where target = 'user:ana'"), "notice user:ana")
	r.says("-1 1000 cho@example.com")
	r.fetch(16 * time.Minute)
	r.want("well again", r.told(), "resolved 1")
	r.want("on call", r.onCall(r.st), "cho calendar")
	for _, table := range []string{"calendar", "alert", "incident", "content", "timeline"} {
		if n := value[int](r.world, "select count(*) from "+table+" x where x::text like '%s3cr3t%'"); n != 0 {
			t.Errorf("the address is in %s", table)
		}
	}
}

// A calendar that never came is told at once: its layer has nobody.
func TestACalendarThatNeverCame(t *testing.T) {
	t.Parallel()
	r := newRota(t)
	r.sends(http.StatusNotFound, "")
	r.fetch(0)
	r.want("told", r.told(), "open 1")
	r.want("on call", r.onCall(r.st), "ana week")
	r.says("-1 24 cho@example.com")
	r.fetch(2 * time.Minute)
	r.want("it came", r.told(), "resolved 1")
	r.want("on call", r.onCall(r.st), "cho calendar")
}

// Somebody whom the file does not know is told of while there is time, and known as soon as the file knows them.
func TestAnEventThatNamesAStranger(t *testing.T) {
	t.Parallel()
	r := newRota(t)
	r.says("-1 10 zoe@example.com", "10 10 cho@example.com", "400 10 yves@example.com")
	r.fetch(0)
	r.want("told", r.told(), "open 1")
	text := value[string](r.world, "select a.text from alert a join incident i on i.id = a.incident_id where i.key like '%calendar_failed%'")
	if !strings.Contains(text, `The event "Rota", `) || !strings.Contains(text, "puts nobody on call: zoe@example.com is no user's e-mail address in the file") || strings.Contains(text, "yves") {
		t.Errorf("it says %q", text)
	}
	r.want("on call", r.onCall(r.st), "ana week")
	r.fetch(6 * time.Minute)
	r.want("told once", r.told(), "open 1")
	g := *r.file
	g.Users = append(g.Users[:len(g.Users):len(g.Users)], config.User{ID: "zoe", Name: "Zoe", Email: "Zoe@Example.com"})
	r.file = &g
	r.fetch(0)
	r.want("known", r.told(), "resolved 1")
	r.want("on call", r.onCall(r.st), "zoe calendar")
}

// A fetch that took longer than its lease changes nothing: another has fetched since.
func TestALateFetchChangesNothing(t *testing.T) {
	t.Parallel()
	r := newRota(t)
	r.says("-1 24 cho@example.com")
	reached, goOn := make(chan bool), make(chan bool)
	var late func(http.ResponseWriter)
	first := *r.answer.Load()
	late = func(w http.ResponseWriter) {
		close(reached)
		<-goOn
		w.WriteHeader(http.StatusInternalServerError)
	}
	r.answer.Store(&late)
	_, _, other := r.replica("two")
	done := make(chan error)
	go func() {
		_, err := other.Calendars(t.Context())
		done <- err
	}()
	<-reached
	r.answer.Store(&first)
	r.fetch(3 * time.Minute)
	close(goOn)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := value[string](r.world, "select tries || ' ' || error from calendar"); got != "0 " {
		t.Errorf("the late answer counts: %q", got)
	}
	r.want("on call", r.onCall(r.st), "cho calendar")
}

// A page to a layer goes to whoever its calendar has now, though another layer is in force.
func TestAPageToALayer(t *testing.T) {
	t.Parallel()
	r := newRota(t)
	r.file.Escalations["default"] = config.Escalation{Steps: []config.Step{{Page: []string{"layer:primary/week"}}, {After: 10 * time.Minute, Page: []string{"layer:primary/calendar"}}}}
	r.says("-1 24 cho@example.com")
	r.fetch(0)
	id := r.fire("one")
	storetest.MoveClock(t, r.url, 11*time.Minute)
	r.step("escalate")
	r.want("pages", strings.Join(r.pages(id), ", "), "slack-dm layer:primary/week pending waiting_for_card, telegram-dm layer:primary/week pending, slack-dm layer:primary/calendar pending waiting_for_card")
	if lines := value[string](r.world, "select string_agg(text, '; ' order by sequence) from timeline where incident_id = $1", id); !strings.Contains(lines, "Ana (primary, layer week)") || !strings.Contains(lines, "Cho (primary, layer calendar)") {
		t.Errorf("the timeline says %s", lines)
	}
	over, err := r.st.OverridesFrom(t.Context(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Resolve(r.file.WithOverrides(over), nil, "slack-dm", "layer:primary/calendar", time.Now())
	if err != nil || p.UserID != "cho" {
		t.Errorf("%+v, %v", p, err)
	}
}
