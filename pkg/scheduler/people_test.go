package scheduler_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
	"github.com/tocsin-oncall/tocsin/pkg/provider/chattest"
	"github.com/tocsin-oncall/tocsin/pkg/provider/slack"
	"github.com/tocsin-oncall/tocsin/pkg/provider/slack/slacktest"
	"github.com/tocsin-oncall/tocsin/pkg/scheduler"
	"github.com/tocsin-oncall/tocsin/pkg/store/storetest"
)

// chatWorld is a world whose schedulers can ask a simulated Slack.
func chatWorld(t *testing.T, change func(f *config.File)) (*world, *slacktest.Server) {
	t.Helper()
	w := newWorld(t, change)
	chat := slacktest.Start(t, slacktest.Options{})
	p, err := slack.New(config.Notifier{Name: "slack-dm", Token: chat.Options().Token, APIURL: chat.APIURL(), Timeout: 5 * time.Second}, nil)
	if err != nil {
		t.Fatal(err)
	}
	w.s = w.asking(func(n string) (provider.Provider, bool) { return p, n == "slack-dm" })
	return w, chat
}

// asking is one more replica, with providers.
func (w *world) asking(p func(string) (provider.Provider, bool)) *scheduler.Scheduler {
	return scheduler.New(scheduler.Options{Store: w.st, Intake: w.in, File: func() *config.File { return w.file }, Replica: "asks", Provider: p})
}

// calls is how often a method of the chat was called.
func calls(chat *slacktest.Server, method string) (n int) {
	for _, e := range chat.Ledger() {
		if e.Method == method {
			n++
		}
	}
	return n
}

func (w *world) linkAccount(account, user string) {
	w.t.Helper()
	value[string](w, "insert into account (provider, account_id, user_id, linked_at, linked_by) values ('slack', $1, $2, now(), 'test') returning user_id", account, user)
}

func TestUserGroupFollowsTheSchedule(t *testing.T) {
	t.Parallel()
	w, chat := chatWorld(t, func(f *config.File) {
		f.UserGroups = map[string]config.UserGroup{"primary": {Notifier: "slack-dm", ID: "S0ONCALL"}}
	})
	now := value[time.Time](w, "select clock_timestamp()")
	w.file.Schedules = shifts(now, time.UTC, "ana", -100*time.Hour, "cho", 2*time.Hour)
	const update = "usergroups.users.update"

	// The group is not there: one alert, and no loop.
	for range 3 {
		w.step("user groups")
	}
	if n := calls(chat, update); n != 1 {
		t.Errorf("%d calls for a group that is not there", n)
	}
	if got := w.self("user_group_failed"); len(got) != 1 || !strings.Contains(got[0].Title, "S0ONCALL") {
		t.Errorf("%d alerts", len(got))
	}
	storetest.MoveClock(t, w.url, 11*time.Minute)
	w.step("user groups")
	if got := w.self("user_group_failed"); calls(chat, update) != 2 || len(got) != 1 || got[0].Count != 1 {
		t.Errorf("told again of the same: %+v after %d calls", got, calls(chat, update))
	}
	// Slack wants to be left alone: that long, however soon it would be tried again.
	chat.SetGroup("S0ONCALL", "U0DEE")
	chat.MustFault(chattest.Fault{Kind: chattest.Limited, Method: update, RetryAfter: "3600", Count: 1})
	storetest.MoveClock(t, w.url, 11*time.Minute)
	w.step("user groups")
	storetest.MoveClock(t, w.url, 59*time.Minute)
	w.step("user groups")
	if n := calls(chat, update); n != 3 {
		t.Errorf("%d calls while Slack wants none", n)
	}
	storetest.MoveClock(t, w.url, 2*time.Minute)
	for range 3 {
		w.step("user groups")
	}
	w.step("settle")
	if diff := cmp.Diff([]string{"U0ANA"}, chat.Group("S0ONCALL")); diff != "" || calls(chat, update) != 4 || len(w.self("user_group_failed")) != 0 {
		t.Errorf("%s after %d calls, %d alerts", diff, calls(chat, update), len(w.self("user_group_failed")))
	}
	// Only a change calls, once whoever sees it.
	storetest.MoveClock(t, w.url, 50*time.Minute)
	two := w.asking(func(n string) (provider.Provider, bool) { return nil, false })
	for range 2 {
		w.step("user groups")
		if _, err := two.Groups(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"U0CHO"}, chat.Group("S0ONCALL")); diff != "" || calls(chat, update) != 5 {
		t.Errorf("%s after %d calls", diff, calls(chat, update))
	}
	// Two changes of one group have their distance, however soon the schedule changes again, and pages have nothing to do with it.
	w.file.Schedules[0].Layers = append(w.file.Schedules[0].Layers, shifts(now, time.UTC, "ana", time.Duration(0))[0].Layers...)
	w.step("user groups")
	if n := calls(chat, update); n != 5 {
		t.Errorf("called again at once: %d calls", n)
	}
	storetest.MoveClock(t, w.url, 15*time.Second)
	w.step("user groups")
	if diff := cmp.Diff([]string{"U0ANA"}, chat.Group("S0ONCALL")); diff != "" || calls(chat, update) != 6 {
		t.Errorf("%s after %d calls", diff, calls(chat, update))
	}
	// Nobody on call: a group can't be empty, and stays.
	w.file.Schedules[0].Layers = nil
	storetest.MoveClock(t, w.url, time.Hour)
	w.step("user groups")
	if n := calls(chat, update); n != 6 || len(w.self("user_group_failed")) != 0 {
		t.Errorf("%d calls", n)
	}
}

// Nobody has linked Ana, whose e-mail address is in the file: the look finds her account and links it, before a page needs it.
func TestTheLookLinksWhomItFindsByEmail(t *testing.T) {
	t.Parallel()
	w, chat := chatWorld(t, func(f *config.File) {
		f.Notices = map[string]config.Notices{}
		for i := range f.Users {
			f.Users[i].Email, f.Users[i].Contacts = f.Users[i].ID+"@example.com", []config.Contact{{Via: "slack-dm"}}
		}
		n := f.Notifiers["slack-dm"]
		n.Token = "xoxb"
		f.Notifiers["slack-dm"] = n
	})
	now := value[time.Time](w, "select clock_timestamp()")
	w.file.Schedules = shifts(now, time.UTC, "ana", -100*time.Hour, "cho", 48*time.Hour)
	p, err := slack.New(config.Notifier{Name: "slack-dm", Token: chat.Options().Token, APIURL: chat.APIURL(), Timeout: 5 * time.Second}, nil)
	if err != nil {
		t.Fatal(err)
	}
	asked := errors.New("slack: rate_limited")
	s := scheduler.New(scheduler.Options{
		Store: w.st, Intake: w.in, File: func() *config.File { return w.file }, Replica: "finds", Provider: func(string) (provider.Provider, bool) { return p, true },
		Find: func(_ context.Context, _, user string) (bool, error) {
			if user != "ana" {
				return false, asked
			}
			w.linkAccount("U0ANA", "ana")
			return true, nil
		},
	})
	if _, err := s.Reachability(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := calls(chat, "users.info"); n != 1 || len(w.self("unreachable_soon")) != 0 {
		t.Errorf("%d accounts were looked at, alerts: %+v", n, w.self("unreachable_soon"))
	}
	if n := value[int](w, "select count(*)::int from reach where user_id = 'ana' and not closed and checked_at is not null"); n != 1 {
		t.Error("Ana's way is not known to be open")
	}
}

func TestWhoIsOnCallSoonAndCannotBeReached(t *testing.T) { // C1 before it happens
	t.Parallel()
	w, chat := chatWorld(t, func(f *config.File) {
		f.Notices = map[string]config.Notices{}
		for i := range f.Users {
			f.Users[i].Contacts = []config.Contact{{Via: "slack-dm"}}
		}
		f.Users = append(f.Users, config.User{ID: "dee", Name: "Dee", Contacts: []config.Contact{{Via: "slack-dm", Address: "U0DEE"}}}, config.User{ID: "eva", Name: "Eva"})
	})
	now := value[time.Time](w, "select clock_timestamp()")
	// Ana now, Cho in two days, Eva in three; Dee owns it.
	w.file.Schedules = shifts(now, time.UTC, "ana", -100*time.Hour, "cho", 48*time.Hour, "eva", 72*time.Hour)
	w.file.Schedules[0].Owner = "dee"
	w.linkAccount("U0ANA", "ana")
	look := func() {
		t.Helper()
		w.step("reachability")
		w.step("settle")
	}
	alerts := func() (out []string) {
		for _, inc := range w.self("unreachable_soon") {
			out = append(out, inc.Criticality+" "+inc.Title[:strings.Index(inc.Title, ", and")])
		}
		return out
	}
	look()
	look()
	want := []string{"warning Cho can't be reached at all", "warning Eva can't be reached at all"}
	if diff := cmp.Diff(want, alerts()); diff != "" {
		t.Fatal(diff)
	}
	if n := value[int](w, "select count(*) from delivery where kind = 'notice' and target = 'user:dee'"); n != 2 {
		t.Errorf("the owner is told %d times", n)
	}
	if n := value[int](w, "select count(*) from incident where key like '%unreachable_soon%'"); n != 2 {
		t.Errorf("%d incidents", n)
	}
	asked := calls(chat, "users.info")
	if asked != 1 { // nobody but Ana has an account that could be asked about
		t.Errorf("the chat was asked %d times", asked)
	}
	for _, e := range chat.Ledger() {
		if strings.HasPrefix(e.Method, "chat.") {
			t.Errorf("%s was called", e.Method)
		}
	}
	// Cho links an account and Eva gets a contact: the next look sees it, without waiting for the day to pass.
	w.linkAccount("U0CHO", "cho")
	w.file.Users[len(w.file.Users)-1].Contacts = []config.Contact{{Via: "slack-dm", Address: "U0BO"}}
	look()
	if got := alerts(); len(got) != 0 {
		t.Errorf("mended, and still there: %q", got)
	}
	// Cho leaves the workspace. Nobody looks before it is time: once a day, and an hour before the shift.
	chat.SetUser(slacktest.User{ID: "U0CHO", Deactivated: true})
	look()
	if got := alerts(); len(got) != 0 {
		t.Errorf("looked too often: %q", got)
	}
	storetest.MoveClock(t, w.url, 25*time.Hour)
	look()
	if diff := cmp.Diff([]string{"high Cho can't be reached at all"}, alerts()); diff != "" {
		t.Error(diff)
	}
	// Whoever is not on call within seven days any more is nobody's problem.
	w.file.Schedules = shifts(now, time.UTC, "ana", -100*time.Hour)
	look()
	if got := alerts(); len(got) != 0 {
		t.Errorf("still there: %q", got)
	}
}

// An open way is looked at once more an hour before the shift, so that what happened since the day's look is still told in time.
func TestWaysAreLookedAtOnceMoreBeforeTheShift(t *testing.T) {
	t.Parallel()
	w, chat := chatWorld(t, func(f *config.File) {
		f.Notices = map[string]config.Notices{}
		f.Users[1].Contacts = []config.Contact{{Via: "slack-dm", Address: "U0CHO"}}
	})
	now := value[time.Time](w, "select clock_timestamp()")
	w.file.Schedules = shifts(now, time.UTC, "cho", 10*time.Hour)
	w.step("reachability")
	chat.SetUser(slacktest.User{ID: "U0CHO", Deactivated: true})
	for _, c := range []struct {
		later time.Duration
		asked int
	}{{8*time.Hour + 50*time.Minute, 1}, {11 * time.Minute, 2}, {5 * time.Minute, 2}, {6 * time.Minute, 3}} { // a closed one every ten minutes
		storetest.MoveClock(t, w.url, c.later)
		w.step("reachability")
		if n := calls(chat, "users.info"); n != c.asked {
			t.Errorf("%s later it was asked %d times, want %d", c.later, n, c.asked)
		}
		if n := len(w.self("unreachable_soon")); n != min(c.asked-1, 1) {
			t.Errorf("%s later there are %d alerts", c.later, n)
		}
	}
}

// Whoever is on call in more than seven days is not looked at. Where the chat does not say, what was known stays.
func TestWhatIsNotKnownOfAWayChangesNothing(t *testing.T) {
	t.Parallel()
	w, chat := chatWorld(t, func(f *config.File) { f.Notices = map[string]config.Notices{} })
	now := value[time.Time](w, "select clock_timestamp()")
	w.file.Schedules = shifts(now, time.UTC, "cho", 8*24*time.Hour)
	chat.SetUser(slacktest.User{ID: "U0CHO", Deactivated: true})
	w.step("reachability")
	if n := calls(chat, "users.info"); n != 0 {
		t.Errorf("asked %d times of somebody who is on call in eight days", n)
	}
	storetest.MoveClock(t, w.url, 25*time.Hour)
	w.step("reachability")
	if got := w.self("unreachable_soon"); len(got) != 1 {
		t.Fatalf("%d alerts", len(got))
	}
	chat.SetRevoked(true)
	storetest.MoveClock(t, w.url, 11*time.Minute)
	w.step("reachability")
	w.step("settle")
	if got := w.self("unreachable_soon"); len(got) != 1 || got[0].Count != 1 {
		t.Errorf("the token is revoked, and Cho can be reached or is told of again: %+v", got)
	}
	chat.SetRevoked(false)
	chat.SetUser(slacktest.User{ID: "U0CHO"})
	storetest.MoveClock(t, w.url, 11*time.Minute)
	w.step("reachability")
	w.step("settle")
	if got := w.self("unreachable_soon"); len(got) != 0 {
		t.Errorf("mended, and still there: %+v", got)
	}
}
