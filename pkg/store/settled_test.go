package store_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/store"
	"github.com/tocsin-oncall/tocsin/pkg/store/storetest"
)

// A long history lies in the table that the worker's queue lies in. What turns and breakers ask of it reads the few rows
// that wait, by their indexes, whatever has been settled before.
func TestTurnsDoNotReadTheHistory(t *testing.T) {
	t.Parallel()
	const history, waiting = 200_000, 20
	s := siteAt(t, storetest.NewPlain(t))
	s.exec("vacuum analyze")
	s.everyStatement() // planned while the tables are empty
	conn := s.workConn()
	all := s.statements(conn)
	s.exec(`insert into delivery (id, kind, priority, notifier, target, state, created_at, settled_at, attempts)
		select uuid_at(now() - interval '30 days' + i * interval '1 s'), 'card', 1, $1, 'channel', 'sent', now(), now(), 1 from generate_series(1, $2::int) i`, ops, history)
	wait := func(reason, queue string) {
		s.exec(`insert into delivery (id, kind, priority, notifier, target, state, reason, next_at, created_at, queue)
			select gen_random_uuid(), 'card', 1, $1, 'channel', 'pending', $2, clock_timestamp() + interval '1 minute', clock_timestamp() - i * interval '1 s', nullif($3, '')
			from generate_series(1, $4::int) i`, ops, reason, queue, waiting)
	}
	wait("rate_limited", room)
	wait("rate_limited", "slack:0123/other")
	wait("account:token_revoked", "")
	s.fill(ops, waiting, -60)

	in := func(values ...string) string { return "'{" + strings.Join(values, ",") + "}'" }
	id := store.NewID().String()
	for _, analysed := range []bool{false, true} {
		if analysed {
			s.exec("analyze delivery")
		}
		for name, c := range map[string]struct {
			args  []string
			index map[string]string // by index: what its condition must hold
			rows  float64           // as many rows of delivery are read at most
		}{
			"AheadInQueue":        {[]string{in("0"), in(room), in("1"), in(`"` + time.Now().Add(time.Hour).UTC().Format(time.RFC3339) + `"`), in(id), "300"}, map[string]string{"delivery_queue": "ROW(", "delivery_pkey": "ANY"}, waiting + 1},
			"CallNext":            {[]string{in(room), in("0")}, map[string]string{"delivery_queue": "queue", "delivery_pkey": "ANY"}, 2},
			"BringForwardWaiting": {[]string{in(ops), "null"}, map[string]string{"delivery_due": "next_at", "delivery_pkey": "ANY"}, 5 * waiting},
			"OldestWaiting":       {[]string{in(ops)}, map[string]string{"delivery_due": "notifier"}, 5 * waiting},
			"Claim":               {claimArgs(ops), map[string]string{"delivery_due": "next_at", "delivery_pkey": "ANY"}, 3 * waiting},
		} {
			plan := s.explain(conn, all[name], "analyze, buffers", c.args...)
			s.onIndexes(name, plan)
			plan.walk(func(n node) {
				if n.Relation != "delivery" || n.Type == "ModifyTable" {
					return
				}
				if want, ok := c.index[n.Index]; !ok || !strings.Contains(n.Cond, want) {
					t.Errorf("%s reads deliveries by %s (%s), analysed: %t", name, n.Index, n.Cond, analysed)
				}
			})
			if rows, blocks := reads(plan); rows > c.rows || rows == 0 {
				t.Errorf("%s read %g rows and %d blocks, analysed: %t", name, rows, blocks, analysed)
			}
		}
	}
}

// BenchmarkTurns asks for slots that are all there: what is measured is the asking. Each ask is for a destination of its
// own among many, under a rule as high as the file allows, and for the account besides.
func BenchmarkTurns(b *testing.B) {
	for _, destinations := range []int{1, 100, 10_000} {
		for _, batch := range []int{1, 20, 200} {
			b.Run(fmt.Sprintf("destinations=%d,batch=%d", destinations, batch), func(b *testing.B) { benchTurns(b, destinations, batch) })
		}
	}
}

func benchTurns(b *testing.B, destinations, batch int) {
	s := siteAt(b, storetest.NewPlain(b))
	rule := onceASecond
	rule.Count = 1000
	asks := make([]store.Ask, batch)
	next, now := 0, 0
	for b.Loop() {
		for i := range asks {
			next++
			asks[i] = ask(someone(delivery.Card, time.Now()), fmt.Sprint("slack:0123/", next%destinations), rule)
		}
		got, err := s.Turns(b.Context(), asks)
		if err != nil {
			b.Fatal(err)
		}
		for _, turn := range got {
			if turn.Now {
				now++
			}
		}
	}
	b.ReportMetric(float64(next)/b.Elapsed().Seconds(), "asks/s")
	b.ReportMetric(float64(now)/b.Elapsed().Seconds(), "turns/s")
}
