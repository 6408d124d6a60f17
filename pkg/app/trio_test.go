package app

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/api"
)

// The notifiers that the files of this test choose from.
var trioNotifiers = map[string]string{
	"steady": `{type: webhook, url: "@/steady", timeout: 1s, retries: {delay: 50ms, max_delay: 300ms}}`,
	"once":   `{type: webhook, url: "@/once", timeout: 1s, retries: {count: 0}}`,
	"slow":   `{type: webhook, url: "@/slow", timeout: 1s, concurrency: 1, retries: {delay: 50ms, max_delay: 300ms}}`,
	"capped": `{type: webhook, url: "@/capped", timeout: 1s, retries: {count: 50, delay: 1ms, max_delay: 1h}}`,
	"partly": `{type: webhook, url: "@/partly", timeout: 1s, retries: {delay: 50ms, max_delay: 300ms}}`,
	"gone":   `{type: webhook, url: "@/gone", timeout: 1s, retries: {delay: 50ms, max_delay: 300ms}}`,
}

// trioRest is a file with these notifiers, each with a route of its own name.
func trioRest(names ...string) string {
	var b strings.Builder
	b.WriteString("notifiers:\n")
	for _, n := range names {
		fmt.Fprintf(&b, "  %s: %s\n", n, trioNotifiers[n])
	}
	b.WriteString("routes:\n")
	for _, n := range names {
		fmt.Fprintf(&b, "  - {match: \"alert.%s.#\", notify: [%s]}\n", n, n)
	}
	return b.String()
}

// TestThreeReplicas has three real processes with files of their own on one database: what people, files, signals and listeners
// do to one replica holds on all of them.
func TestThreeReplicas(t *testing.T) {
	t.Parallel()
	w := newTrio(t, trioRest("steady", "once", "slow", "capped", "partly", "gone"))
	part := func(name string, f func(*trio)) {
		t.Run(name, func(t *testing.T) {
			of := *w
			of.t = t
			f(&of)
		})
	}
	part("listeners", (*trio).listeners)
	part("lost rings", (*trio).lostRings)
	part("two operators", (*trio).twoOperators)
	part("a replica that stops", (*trio).stopping)
	part("hangups", (*trio).hangups)
	part("a wrong file", (*trio).wrongFile)
	part("a lowered cap", (*trio).loweredCap)
	part("removed notifiers", (*trio).removed)
	part("many decisions", (*trio).manyDecisions) // from here on there are replicas that have died without a word
	part("killed after the answer", (*trio).killed)
	for _, r := range w.all {
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	}
}

// A14: who listens hears what another replica takes, also with no route; goes on at any replica where it was; and one who does not
// read delays nobody.
func (w *trio) listeners() {
	t := w.t
	there, elsewhere := w.listen(1, "alert.failed.#", 0), w.listen(2, "alert.failed.#", 0)
	got := w.fire(0, "failed", "heard")
	first := there.next(api.EventAlert)
	if first.Alert == nil || first.Alert.ID != got.AlertID || first.Topic != "alert.failed.critical.load" {
		t.Errorf("heard %+v", first)
	}
	if e := elsewhere.next(api.EventAlert); e.ID != first.ID {
		t.Errorf("another replica's listener heard %+v", e)
	}
	there.cancel()
	for i := range 5 {
		w.fire(i%3, "failed", fmt.Sprint("meanwhile ", i))
	}
	again := w.listen(2, "alert.failed.#", first.ID)
	last := first.ID
	for i := range 5 {
		e := again.next(api.EventAlert)
		if e.ID <= last || e.Alert.Title != fmt.Sprint("meanwhile ", i) {
			t.Errorf("after %d came %+v", last, e)
		}
		last = e.ID
	}

	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", w.all[1].address())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.(*net.TCPConn).SetReadBuffer(16 << 10)
	fmt.Fprintf(conn, "GET /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", w.token)
	slow := bufio.NewReader(conn)
	until := func(what string) {
		t.Helper()
		_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
		for line := ""; !strings.HasPrefix(line, what); {
			if line, err = slow.ReadString('\n'); err != nil {
				t.Fatalf("waiting for %q: %v", what, err)
			}
		}
	}
	until(": listening")
	quick := w.listen(1, "alert.last.#", 0)
	one[int](t, w.db, `with made as (insert into event (at, type, topic, body) select now(), 'alert', 'alert.many.critical.load', json_build_object('detail', repeat('x', 8000)) from generate_series(1, 3000) returning 1) select count(*) from made`)
	w.fire(0, "last", "behind many")
	if e := quick.next(api.EventAlert); e.Topic != "alert.last.critical.load" {
		t.Errorf("the quick one heard %+v", e)
	}
	until("event: dropped")
}

// The connections on which replicas hear of each other break again and again: events come all the same, in order, each once.
func (w *trio) lostRings() {
	t := w.t
	const alerts = 30
	l := w.listen(1, "alert.rung.#", 0)
	cutting, stop := context.WithCancel(t.Context())
	var cuts sync.WaitGroup
	cuts.Go(func() {
		for chaosWait(cutting, 150*time.Millisecond) {
			one[int](t, w.db, `select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = current_database() and query ilike 'listen %'`)
		}
	})
	defer cuts.Wait()
	defer stop()
	for i := range alerts {
		w.fire(i%3, "rung", fmt.Sprint(i))
	}
	for i, last := 0, int64(0); i < alerts; i++ {
		e := l.next(api.EventAlert)
		if e.ID <= last || e.Alert == nil || e.Alert.Title != fmt.Sprint(i) {
			t.Fatalf("event %d after %d is %+v", i, last, e)
		}
		last = e.ID
	}
}

// dead makes so many deliveries through the notifier once, of which each dies at its first try, and then lets the receiver take them.
func (w *trio) dead(n int, name string) []string {
	w.t.Helper()
	w.receiver.answer("/once", http.StatusInternalServerError)
	ids := make([]string, n)
	for i := range ids {
		ids[i] = w.fire(i%3, "once", fmt.Sprint(name, i)).Deliveries[0].ID
	}
	w.comes("all are dead", "select count(*) = $2 from delivery where id = any($1::uuid[]) and state = 'exhausted'", ids, n)
	w.receiver.answer("/once", http.StatusOK)
	w.receiver.answer("/once", 0)
	return ids
}

// sentAgainOnce wants each delivery sent again once and taken once.
func (w *trio) sentAgainOnce(ids []string) {
	w.t.Helper()
	w.comes("all are sent", "select count(*) = $2 from delivery where id = any($1::uuid[]) and state = 'sent' and effect = 2", ids, len(ids))
	for _, id := range ids {
		if n := w.receiver.times("/once", id+":2"); n != 1 {
			w.t.Errorf("%s was taken %d times", id, n)
		}
	}
	if n := one[int](w.t, w.db, "select count(*) from decision where delivery_id = any($1::uuid[]) and action = 'send_again'", ids); n != len(ids) {
		w.t.Errorf("%d decisions on %d deliveries", n, len(ids))
	}
}

// A10: two operators send again at once, on two replicas: one of them makes a new effect, the other is told the state.
func (w *trio) twoOperators() {
	ids := w.dead(20, "operators ")
	for _, id := range ids {
		var said [2]int
		var words [2]string
		var both sync.WaitGroup
		for i := range said {
			both.Go(func() { said[i], words[i] = w.sendAgain(i, id) })
		}
		both.Wait()
		if slices.Sort(said[:]); said != [2]int{http.StatusOK, http.StatusConflict} {
			w.t.Errorf("the two were answered %v %q", said, words)
		}
	}
	w.sentAgainOnce(ids)
	status, words := w.sendAgain(2, ids[0])
	if status != http.StatusConflict || !strings.Contains(words, "sent") {
		w.t.Errorf("a sent one: %d %s", status, words)
	}
}

// A decision on many is counted first and comes to what was counted; the replica that took it is killed meanwhile, and two runs
// over the same set decide on each delivery once.
func (w *trio) manyDecisions() {
	t := w.t
	ids := w.dead(60, "many ")
	ask := api.DecideMany{Filter: api.DeadFilter{Notifier: "once"}, Action: api.ActionSendAgain, Reason: "mended", PerSecond: 40}
	ask.DryRun = true
	counted, err := w.client(1).DecideMany(within(t), ask)
	if err != nil || counted.Total != len(ids) || counted.Refused != 0 {
		t.Fatalf("counted: %+v, %v", counted, err)
	}
	ask.DryRun = false
	var runs []string
	for slot := range 2 {
		r, err := w.client(slot).DecideMany(within(t), ask)
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, r.ID)
	}
	w.comes("a run has begun", "select bool_or(applied > 0) from bulk_run")
	w.all[0].kill()
	w.comes("both are done", "select bool_and(state = 'done' and applied + skipped = total) from bulk_run where id = any($1::uuid[])", runs)
	if n := one[int](t, w.db, "select sum(applied) from bulk_run where id = any($1::uuid[])", runs); n != counted.Total {
		t.Errorf("%d were counted and %d decided", counted.Total, n)
	}
	if err := w.all[0].start(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.comes("all are sent", "select count(*) = $2 from delivery where id = any($1::uuid[]) and state = 'sent'", ids, len(ids))
	if n := one[int](t, w.db, "select count(*) from delivery where id = any($1::uuid[]) and effect <> 2", ids); n != 0 {
		t.Errorf("%d were sent again more than once", n)
	}
}

// A12: a replica that stops while a call is under way answers 503 and changes nothing; another one does it.
func (w *trio) stopping() {
	t := w.t
	dead := w.dead(1, "stopping ")[0]
	sent := w.fire(0, "steady", "stopping").Deliveries[0].ID
	w.comes("it is sent", "select state = 'sent' from delivery where id = $1::uuid", sent)
	release := w.receiver.hold("/slow")
	defer release()
	before := w.receiver.tried("/slow")
	for i := range 3 { // one place on each replica
		w.fire(i, "slow", fmt.Sprint("stopping ", i))
	}
	eventually(t, "each replica calls", func() bool { return w.receiver.tried("/slow") >= before+3 })
	listener := w.listen(2, "alert.failed.#", 0)
	address := w.all[2].address()
	stopped := make(chan error, 1)
	go func() { stopped <- w.all[2].stop() }()
	if e := listener.next(api.EventDropped); e.Reason != "leaving" {
		t.Errorf("the listener heard %+v", e)
	}
	resp, err := http.DefaultClient.Do(w.decision(address, dead))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("the replica that stops answers %s", resp.Status)
	}
	if !one[bool](t, w.db, "select state = 'exhausted' and effect = 1 from delivery where id = $1::uuid", dead) {
		t.Error("it has changed the delivery")
	}
	if status, words := w.sendAgain(0, dead); status != http.StatusOK {
		t.Errorf("another replica: %d %s", status, words)
	}
	release()
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	w.sentAgainOnce([]string{dead})
	if err := w.all[2].start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// decision is a request to send again at an address that no client is asked for any more.
func (w *trio) decision(address, id string) *http.Request {
	w.t.Helper()
	req, err := http.NewRequestWithContext(within(w.t), http.MethodPost, "http://"+address+"/v1/deliveries/"+id+"/decision", strings.NewReader(`{"action": "send_again", "reason": "x"}`))
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+w.token)
	req.Header.Set("Content-Type", "application/json")
	return req
}

// Signals that come faster than files are read: the last file is in force everywhere in the end.
func (w *trio) hangups() {
	rest := trioRest("steady", "once", "slow", "capped", "partly", "gone")
	var sum string
	for i := range 20 {
		for slot := range w.all {
			sum = w.write(slot, rest+fmt.Sprintf("# %d\n", i))
			w.hangup(slot)
		}
	}
	w.comes("the last file is in force everywhere", "select count(*) = 3 from replica where checksum = $1 and seen_at > clock_timestamp() - interval '10 seconds'", sum)
	l, err := w.client(0).Replicas(within(w.t))
	if err != nil || !l.SameFile {
		w.t.Errorf("%+v, %v", l.Differences, err)
	}
}

// A15: a replica whose file is wrong keeps its old one, says so to all, and raises one alert that ends when it is mended.
func (w *trio) wrongFile() {
	t := w.t
	before := w.seen(1)
	w.write(1, "notifiers: {steady: {type: wbehook}}\nroutes: [{match: \"a..b\", notify: [nobody]}]\n")
	w.hangup(1)
	eventually(t, "it is told", func() bool { return w.seen(1).FileError != "" })
	now := w.seen(1)
	for _, mistake := range []string{"wbehook", "nobody", "tocsin.yaml:"} {
		if !strings.Contains(now.FileError, mistake) {
			t.Errorf("%q is not told: %s", mistake, now.FileError)
		}
	}
	if now.Checksum != before.Checksum {
		t.Errorf("the file in force is %s, before it was %s", now.Checksum, before.Checksum)
	}
	l, err := w.client(2).Replicas(within(t))
	if err != nil || l.SameFile || len(l.Differences) == 0 {
		t.Errorf("another replica says %+v, %v", l.Differences, err)
	}
	w.comes("there is one alert", "select count(*) = 1 from incident where key like '_tocsin:reload_failed:%' and state = 'open'")
	w.roll(trioRest("steady", "once", "slow", "capped", "partly", "gone"), 0, 1, 2)
	w.comes("the alert is over", "select count(*) = 0 from incident where key like '_tocsin:reload_failed:%' and state = 'open'")
}

// A13: a cap that a reload raises lets a delivery go on; one that it lowers ends it at once, without waiting for its next try.
func (w *trio) loweredCap() {
	t := w.t
	with := func(count int) string {
		return strings.ReplaceAll(trioRest("steady", "once", "slow", "capped", "partly", "gone"), "count: 50", fmt.Sprint("count: ", count))
	}
	w.receiver.answer("/capped", http.StatusServiceUnavailable)
	id := w.fire(0, "capped", "capped").Deliveries[0].ID
	w.comes("it has been tried often", "select tries >= 12 from delivery where id = $1::uuid", id)
	w.roll(with(60), 0, 1, 2)
	if !one[bool](t, w.db, "select state = 'pending' from delivery where id = $1::uuid", id) {
		t.Error("a raised cap has ended it")
	}
	w.roll(with(2), 0, 1, 2)
	w.comes("it is exhausted", "select state = 'exhausted' and reason = 'retries_used_up' from delivery where id = $1::uuid", id)
}

// A11: what waits for a notifier dies when no live replica's file has it any more, and not while one has. It can be sent again
// once it is back on any of them, whichever replica is asked.
func (w *trio) removed() {
	t := w.t
	w.receiver.answer("/partly", http.StatusServiceUnavailable)
	w.receiver.answer("/gone", http.StatusServiceUnavailable)
	partly, gone := w.fire(0, "partly", "partly").Deliveries[0].ID, w.fire(1, "gone", "gone").Deliveries[0].ID
	w.roll(trioRest("steady", "once", "slow", "capped"), 0, 1)
	w.roll(trioRest("steady", "once", "slow", "capped", "partly"), 2)
	l, err := w.client(0).Replicas(within(t))
	if err != nil || l.SameFile || !strings.Contains(strings.Join(l.Differences, "\n"), "the notifier partly") {
		t.Errorf("the differences are %q, %v", l.Differences, err)
	}
	w.comes("what nobody knows is dead", "select state = 'rejected' and reason = 'notifier_removed' from delivery where id = $1::uuid", gone)
	if !one[bool](t, w.db, "select state = 'pending' from delivery where id = $1::uuid", partly) {
		t.Error("what a live replica still knows has died")
	}
	tries := w.receiver.tried("/gone")
	for slot := range w.all {
		if status, words := w.sendAgain(slot, gone); status != http.StatusConflict || !strings.Contains(words, "gone is not in the file") {
			t.Errorf("replica %d: %d %s", slot, status, words)
		}
	}
	w.receiver.answer("/partly", 0)
	w.receiver.answer("/gone", 0)
	w.comes("the replica that knows it sends", "select state = 'sent' from delivery where id = $1::uuid", partly)
	if n := w.receiver.tried("/gone"); n != tries {
		t.Errorf("%d calls through a notifier that no file has", n-tries)
	}
	w.roll(trioRest("steady", "once", "slow", "capped", "partly", "gone"), 2)
	if status, words := w.sendAgain(0, gone); status != http.StatusOK {
		t.Errorf("it is back on another replica: %d %s", status, words)
	}
	w.comes("it is sent", "select state = 'sent' and effect = 2 from delivery where id = $1::uuid", gone)
}

// A3: killed right after a 202: what was accepted goes out by the others, and nothing else was accepted.
func (w *trio) killed() {
	t := w.t
	const alerts = 24
	var mu sync.Mutex
	var accepted []string
	var sending sync.WaitGroup
	c := w.client(0)
	for n := range alerts {
		sending.Go(func() {
			a, err := c.SendAlert(within(t), api.Alert{Kind: "steady", Criticality: "critical", Job: "load", Key: fmt.Sprint("killed ", n), Title: "T"}, "")
			if err != nil {
				return // no 2xx, no promise
			}
			mu.Lock()
			defer mu.Unlock()
			accepted = append(accepted, a.Deliveries[0].ID)
			if len(accepted) == alerts/3 {
				w.all[0].kill()
			}
		})
	}
	sending.Wait()
	if len(accepted) < alerts/3 {
		t.Fatalf("%d were accepted", len(accepted))
	}
	t.Logf("%d of %d were accepted", len(accepted), alerts)
	w.comes("all that was accepted is sent", "select count(*) = $2 from delivery where id = any($1::uuid[]) and state = 'sent'", accepted, len(accepted))
	for _, id := range accepted {
		n := w.receiver.times("/steady", id+":1")
		if doubt := one[int](t, w.db, "select count(*) from attempt where delivery_id = $1::uuid and outcome = 'unknown'", id); n < 1 || n > 1+doubt {
			t.Errorf("%s was taken %d times, with %d attempts in doubt", id, n, doubt)
		}
	}
}
