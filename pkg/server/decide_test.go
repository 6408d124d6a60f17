package server_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tocsin-oncall/tocsin/pkg/api"
)

// settle makes a delivery what a worker would have made of it.
func (w *world) settle(id, state, reason string, doubt bool) {
	w.t.Helper()
	conn, err := pgx.Connect(w.t.Context(), w.url)
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close(w.t.Context())
	_, err = conn.Exec(w.t.Context(), `update delivery set state = $2, reason = $3, next_at = null, wait_until = null, settled_at = now(), version = version + 1,
		doubt = case when $4 then jsonb_build_object('effect', 1, 'key', 'k', 'address', 'a', 'since', now(), 'revision', 1, 'through', 0) end where id = $1`, id, state, reason, doubt)
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) delivery(kind string) string {
	w.t.Helper()
	id := w.open()
	l := want[api.List[api.Delivery]](w, 200, "eye", "GET", "/v1/deliveries?kind="+kind+"&incident="+id, "")
	if len(l.Items) != 1 {
		w.t.Fatalf("%+v", l)
	}
	return l.Items[0].ID
}

func (w *world) decide(status int, id, action string) (api.Delivery, string) {
	w.t.Helper()
	path, body := "/v1/deliveries/"+id+"/decision", `{"action": "`+action+`", "reason": "because"}`
	if status != 200 {
		return api.Delivery{}, w.refused(status, api.ProblemConflict, "hand", "POST", path, body).Detail
	}
	return want[api.Delivery](w, 200, "hand", "POST", path, body), ""
}

// C14: a no never becomes a yes, and doubt may become a person's word.
func TestAssumeDelivered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.delivery("page")
	for _, state := range []string{"rejected", "unreachable"} {
		w.settle(id, state, "x", true)
		if _, why := w.decide(409, id, "assume_delivered"); !strings.Contains(why, state) {
			t.Errorf("%s: %q does not name the state", state, why)
		}
	}
	w.settle(id, "held", "doubt", false)
	w.decide(409, id, "assume_delivered")
	w.settle(id, "held", "doubt", true)
	d, _ := w.decide(200, id, "assume_delivered")
	if d.State != "assumed" || len(d.Decisions) != 1 || d.Decisions[0].Actor != "token:hand" || d.Decisions[0].Reason != "because" || d.Decisions[0].FromState != "held" {
		t.Errorf("%+v", d)
	}
	w.decide(409, id, "send_again")
}

func TestSendAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.delivery("page")
	w.decide(409, id, "send_again") // pending
	w.settle(id, "sent", "", false)
	if _, why := w.decide(409, id, "send_again"); !strings.Contains(why, "sent") {
		t.Errorf("%q does not name the state", why)
	}
	w.settle(id, "rejected", "slack:x", false)
	d, _ := w.decide(200, id, "send_again")
	if d.State != "pending" || d.Effect != 2 || !strings.HasSuffix(d.EffectKey, ":2") || w.rung.Load() != 1 {
		t.Errorf("%+v, rung %d", d, w.rung.Load())
	}
	w.decide(409, id, "send_again") // the second of two operators
	if n := w.count("select count(*) from decision"); n != 1 {
		t.Errorf("%d decisions are kept, want 1", n)
	}
	if n := w.count("select count(*) from audit where action = 'decision:send_again'"); n != 1 {
		t.Errorf("%d lines in the audit trail", n)
	}
}

func TestSendAgainNeedsTheNotifier(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.delivery("page")
	w.settle(id, "rejected", "notifier_removed", false)
	had := w.file.Notifiers["slack-dm"]
	delete(w.file.Notifiers, "slack-dm")
	if _, why := w.decide(409, id, "send_again"); !strings.Contains(why, "slack-dm") {
		t.Errorf("%q does not name the notifier", why)
	}
	count := func() api.DecisionRun {
		return want[api.DecisionRun](w, 200, "hand", "POST", "/v1/decisions", `{"filter": {"kind": "page"}, "action": "send_again", "dry_run": true}`)
	}
	if c := count(); c.Total != 1 || c.Refused != 1 || c.Counts[0].Why != "notifier_removed" {
		t.Errorf("counted: %+v", c)
	}
	w.file.Notifiers["slack-dm"] = had
	w.decide(200, id, "send_again")
	// During a rolling change the replica that has the notifier sends, whichever is asked.
	w.settle(id, "rejected", "slack:x", false)
	delete(w.file.Notifiers, "slack-dm")
	w.count("with made as (insert into replica (id, started_at, seen_at, checksum, notifiers) values ('another', now(), now(), 'x', '{slack-dm}') returning 1) select count(*) from made")
	if c := count(); c.Total != 1 || c.Refused != 0 {
		t.Errorf("counted where another replica has the notifier: %+v", c)
	}
	w.decide(200, id, "send_again")
}

// A card that is sent again takes up its thread.
func TestSendAgainRevivesTheThread(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	card := w.delivery("card")
	thread := want[api.List[api.Delivery]](w, 200, "eye", "GET", "/v1/deliveries?kind=thread", "").Items[0].ID
	w.settle(card, "rejected", "destination:gone", false)
	w.settle(thread, "canceled", "card_dead", false)
	w.decide(200, card, "send_again")
	if d := want[api.Delivery](w, 200, "eye", "GET", "/v1/deliveries/"+thread, ""); d.State != "pending" {
		t.Errorf("the thread is %+v", d)
	}
}

// A reason is kept, whatever is in it.
func TestOddReasonIsKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.delivery("page")
	d := want[api.Delivery](w, 200, "hand", "POST", "/v1/deliveries/"+id+"/decision", `{"action": "cancel", "reason": "a\u0000b"}`)
	if d.State != "canceled" || len(d.Decisions) != 1 || d.Decisions[0].Reason != "a\uFFFDb" {
		t.Errorf("%+v", d)
	}
}

func TestCancelPending(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.delivery("page")
	if d, _ := w.decide(200, id, "cancel"); d.State != "canceled" || d.Reason != "canceled_by" {
		t.Errorf("%+v", d)
	}
	w.decide(409, id, "cancel")
}
