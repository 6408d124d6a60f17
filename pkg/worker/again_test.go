package worker_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/oncall"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
)

// C15: a dead page is sent again after a hand-off: it goes to whoever is on call now, under a new key, as a new effect, and what was tried
// before stays in the history as it was. The doubt of the old effect binds nobody any more.
func TestSendAgainGoesToWhoIsOnCallNow(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer delivery.Result
		state  delivery.State
	}{
		"refused":  {archived, delivery.Rejected},
		"in doubt": {lostIt, delivery.Held},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, direct("ops"))
			onCall := func(id string) {
				s.change(func(f *config.File) {
					f.Kinds[delivery.Page] = delivery.Policy{OnUnknown: delivery.Hold}
					f.Users = []config.User{
						{ID: "ana", Name: "Ana", Contacts: []config.Contact{{Via: "ops", Address: "U0ANA"}}}, {ID: "bo", Name: "Bo", Contacts: []config.Contact{{Via: "ops", Address: "U0BO"}}},
					}
					f.Schedules = []oncall.Schedule{{ID: "primary", Zone: time.UTC, Layers: []oncall.Layer{{Users: [][]string{{id}}}}}}
				})
			}
			onCall("ana")
			d := s.desk("ops").says(func(_ context.Context, n int, call provider.Call) delivery.Result {
				if n > 1 {
					return took(n, call)
				}
				return c.answer
			})
			page := aPage("ops", "", 0)
			page.Target = "schedule:primary"
			i := s.incident("a")
			id := s.add(i, page)[0]
			s.start("first")
			s.waitFor(id, c.state)
			before := s.attempts(id)
			onCall("bo")
			s.sendAgain(i, id)
			s.waitFor(id, delivery.Sent)
			one, two := d.called(1), d.called(2)
			if one.Address != "U0ANA" || two.Address != "U0BO" || !strings.HasPrefix(two.Message.Text, "Bo, ") {
				t.Errorf("called %s, then %s: %q", one.Address, two.Address, two.Message.Text)
			}
			if one.Key == two.Key || !strings.HasSuffix(two.Key, ":2") {
				t.Errorf("the keys are %s and %s", one.Key, two.Key)
			}
			all := s.attempts(id)
			if len(before) != 1 || len(all) != 2 || all[0] != before[0] || all[1].Effect != 2 || all[1].Address != "U0BO" {
				t.Errorf("before %+v, now %+v", before, all)
			}
		})
	}
}
