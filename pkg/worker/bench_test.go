package worker_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/zap"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/plan"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
	"github.com/tocsin-oncall/tocsin/pkg/store"
	"github.com/tocsin-oncall/tocsin/pkg/store/storetest"
	"github.com/tocsin-oncall/tocsin/pkg/worker"
)

// noop is a provider whose call costs nothing: what remains is ours.
type noop struct{}

func (noop) Do(context.Context, provider.Call) delivery.Result {
	return delivery.Result{Outcome: delivery.OutcomeSent, Evidence: delivery.Answered, Duration: time.Microsecond}
}

const benchDeliveries = 100_000

// BenchmarkWorker measures deliveries through claim, begin, a no-op call and finish, each with its attempt row:
// on an empty database, and with 5 million settled deliveries and a transaction left open elsewhere.
func BenchmarkWorker(b *testing.B) {
	b.Run("quiet", func(b *testing.B) { benchWorker(b, 0, false) })
	settled := 5_000_000
	if n, err := fmt.Sscan(os.Getenv("TOCSIN_BENCH_SETTLED"), &settled); n == 0 && err != nil && os.Getenv("TOCSIN_BENCH_SETTLED") != "" {
		b.Fatalf("TOCSIN_BENCH_SETTLED is not a number: %v", err)
	}
	b.Run(fmt.Sprintf("settled=%d,open-transaction", settled), func(b *testing.B) { benchWorker(b, settled, true) })
}

func benchWorker(b *testing.B, settled int, open bool) {
	ctx := context.Background()
	url := storetest.NewPlain(b)
	s, err := store.Open(ctx, url, store.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	db, err := pgx.Connect(ctx, url)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = db.Close(ctx) }()
	content := uuid.Must(uuid.NewV7())
	exec(b, db, "insert into content (id, revision, body) values ($1, 1, '{}')", content)
	if settled > 0 {
		// Settled rows with older keys than the ones that come, as time makes them.
		exec(b, db, `insert into delivery (id, content_id, kind, priority, notifier, target, state, created_at, settled_at, attempts, applied)
			select uuid_at(now() - interval '30 days' + i * interval '400 ms'), $1, 'event', 3, 'n' || i % 8, 'url', 'sent', now(), now(), 1, 1 from generate_series(1, $2::int) i on conflict do nothing`, content, settled)
		exec(b, db, `insert into attempt (id, delivery_id, number, effect, effect_key, revision, operation, address, worker, lease_token, started_at, finished_at, outcome, evidence, closed_by)
			select d.id, d.id, 1, 1, d.id || ':1', 1, 'create', 'url', 'w', d.id, now(), now(), 'sent', 'answered', 'worker' from delivery d`)
		exec(b, db, "analyze delivery")
	}
	f := &config.File{Notifiers: map[string]config.Notifier{}, Kinds: map[delivery.Kind]delivery.Policy{}}
	f.Worker.Lease, f.Worker.Poll = time.Minute, time.Second
	for _, k := range delivery.Kinds {
		f.Kinds[k] = delivery.DefaultPolicy(k)
	}
	for i := range 8 {
		name := fmt.Sprint("n", i)
		f.Notifiers[name] = config.Notifier{Name: name, Type: "webhook", URL: "http://x", Timeout: 10 * time.Second, Concurrency: 250, Retries: delivery.DefaultRetries}
	}
	if open {
		other, err := pgx.Connect(ctx, url)
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = other.Close(ctx) }()
		tx, err := other.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		if err != nil {
			b.Fatal(err)
		}
		var n int
		if err := tx.QueryRow(ctx, "select count(*) from replica").Scan(&n); err != nil {
			b.Fatal(err)
		}
		defer func() { _ = tx.Rollback(ctx) }()
	}
	for b.Loop() {
		b.StopTimer()
		rows := make([][]any, benchDeliveries)
		now, err := s.Now(ctx)
		if err != nil {
			b.Fatal(err)
		}
		for i := range rows {
			// As they would have come in: one after the other, 20,000 a second.
			due := now.Add(time.Duration(i-benchDeliveries) * 50 * time.Microsecond)
			rows[i] = []any{store.NewID(), content, "event", 3, fmt.Sprint("n", i%8), "url", "pending", due, due}
		}
		if _, err := db.CopyFrom(ctx, pgx.Identifier{"delivery"}, []string{"id", "content_id", "kind", "priority", "notifier", "target", "state", "next_at", "created_at"}, pgx.CopyFromRows(rows)); err != nil {
			b.Fatal(err)
		}
		metrics := worker.NewMetrics(prometheus.NewRegistry())
		w := worker.New(worker.Options{
			ID: "bench", Store: s, File: func() *config.File { return f }, Provider: func(string) (provider.Provider, bool) { return noop{}, true },
			Accounts: func() []plan.Account { return nil }, Dead: func() {}, Log: zap.NewNop(), Metrics: metrics,
		})
		b.StartTimer()
		start := time.Now()
		go w.Run()
		for sent := metrics.Deliveries.WithLabelValues("event", "sent"); count(b, sent) < benchDeliveries; {
			<-time.After(5 * time.Millisecond)
		}
		b.ReportMetric(benchDeliveries/time.Since(start).Seconds(), "deliveries/s")
		stop, cancel := context.WithTimeout(ctx, 10*time.Second)
		if err := w.Stop(stop); err != nil {
			b.Fatal(err)
		}
		cancel()
	}
}

func count(tb testing.TB, c prometheus.Counter) float64 {
	tb.Helper()
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		tb.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

func exec(tb testing.TB, db *pgx.Conn, sql string, args ...any) {
	tb.Helper()
	if _, err := db.Exec(context.Background(), sql, args...); err != nil {
		tb.Fatal(err)
	}
}
