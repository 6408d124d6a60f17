package app

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/client"
	"github.com/tocsin-oncall/tocsin/pkg/store/storetest"
)

// A decision that sends thousands again, as fast as one may ask for, holds up no page through the same notifier.
func TestManySentAgainHoldUpNoPage(t *testing.T) {
	t.Parallel()
	const incidents, each, pages = 40, 50, 10
	receiver := newReceiver(t)
	receiver.answer("/many", http.StatusInternalServerError)
	s := serveFile(t, storetest.New(t), fmt.Sprintf(`
users: [{id: ana, name: Ana, contacts: [{via: hook, address: %q}]}]
escalations: {now: {steps: [{after: 0s, page: ["user:ana"]}]}}
notifiers: {hook: {type: webhook, url: %q, concurrency: 4, retries: {count: 0}, pace: {destination: off}}}
routes: [{match: "alert.many.#", notify: [hook]}, {match: "alert.k.#", escalate: now}]
`, receiver.url+"/page", receiver.url+"/many"))
	c, err := client.New(s.base, "")
	if err != nil {
		t.Fatal(err)
	}
	for i := range incidents {
		if _, err := c.SendAlert(t.Context(), api.Alert{Kind: "many", Criticality: "low", Job: "load", Key: fmt.Sprint("many ", i), Title: "T"}, ""); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "one of each is dead", func() bool {
		return one[bool](t, s.db, "select count(*) = $1 from delivery where state = 'exhausted' and announced_at is not null", incidents)
	})
	many := one[int](t, s.db, `with made as (insert into delivery select (jsonb_populate_record(d, jsonb_build_object('id', gen_random_uuid()))).* from delivery d, generate_series(2, $1::int)
		where d.state = 'exhausted' returning 1) select count(*) from made`, each) + incidents
	release := receiver.hold("/many") // each call takes its place until the test lets it go
	defer release()
	receiver.answer("/many", 0)
	run, err := c.DecideMany(t.Context(), api.DecideMany{Filter: api.DeadFilter{Notifier: "hook"}, Action: api.ActionSendAgain, Reason: "mended", PerSecond: 1000})
	if err != nil || run.Total != many {
		t.Fatalf("%+v, %v", run, err)
	}
	eventually(t, "hundreds wait", func() bool {
		return one[bool](t, s.db, "select count(*) > 300 from delivery where kind = 'event' and state = 'pending'")
	})
	release()
	for i := range pages {
		s.fire(fmt.Sprint(i))
	}
	eventually(t, "all pages are out", func() bool {
		return one[bool](t, s.db, "select count(*) = $1 from delivery where kind = 'page' and state = 'sent'", pages)
	})
	if left := one[int](t, s.db, "select count(*) from delivery where kind = 'event' and state = 'pending'"); left == 0 {
		t.Error("nothing waited any more: it proves nothing")
	}
	if ended, err := c.CancelDecision(t.Context(), run.ID); err == nil && ended.State != api.RunCanceled {
		t.Errorf("%+v", ended)
	}
	t.Logf("slowest page %s", time.Duration(one[float64](t, s.db, `select extract(epoch from max(a.started_at - d.created_at)) from delivery d join attempt a on a.delivery_id = d.id where d.kind = 'page'`)*float64(time.Second)).Round(time.Millisecond))
}
