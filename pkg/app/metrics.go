package app

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// surface counts what happens on the HTTP surface. It is the server's Metrics.
type surface struct {
	http      *prometheus.HistogramVec
	decisions *prometheus.CounterVec
	alerts    *prometheus.CounterVec
	unrouted  prometheus.Counter
	purged    *prometheus.CounterVec
}

// newSurface registers the surface's metrics, with every label set that is known from the start.
func newSurface(r prometheus.Registerer, f *config.File) *surface {
	p := promauto.With(r)
	m := &surface{
		http: p.NewHistogramVec(prometheus.HistogramOpts{Name: "tocsin_http_seconds", Help: "How long HTTP requests took.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 14)}, []string{"handler", "method", "status"}),
		decisions: p.NewCounterVec(prometheus.CounterOpts{Name: "tocsin_decisions_total", Help: "People's decisions on deliveries."}, []string{"action"}),
		alerts:    p.NewCounterVec(prometheus.CounterOpts{Name: "tocsin_alerts_total", Help: "Alerts accepted, re-sends included."}, []string{"source"}),
		unrouted:  p.NewCounter(prometheus.CounterOpts{Name: "tocsin_unrouted_total", Help: "Accepted alerts that no route and no notify takes."}),
	}
	m.purged = p.NewCounterVec(prometheus.CounterOpts{Name: "tocsin_purged_total", Help: "Rows that were removed since the file's retention keeps them no longer."}, []string{"what"})
	store.Purged{}.Each(func(what string, _ int) { m.purged.WithLabelValues(what) })
	for _, a := range []string{api.ActionAssumeDelivered, api.ActionCancel, api.ActionSendAgain} {
		m.decisions.WithLabelValues(a)
	}
	for _, s := range []string{"native", "alertmanager", "prometheus", "grafana"} {
		m.alerts.WithLabelValues(s)
	}
	m.sources(f)
	return m
}

// sources makes the label sets of the file's sources.
func (m *surface) sources(f *config.File) {
	for s := range f.Sources {
		m.alerts.WithLabelValues(s)
	}
}

func (m *surface) HTTPServed(handler, method string, status int, took time.Duration) {
	switch method {
	case "GET", "POST", "DELETE", "HEAD", "PUT", "PATCH", "OPTIONS":
	default:
		method = "other" // a stranger must not be able to make label sets
	}
	m.http.WithLabelValues(handler, method, strconv.Itoa(status)).Observe(took.Seconds())
}

func (m *surface) DecisionMade(action string) { m.DecisionsMade(action, 1) }

// DecisionsMade counts those of a decision on many.
func (m *surface) DecisionsMade(action string, n int) {
	m.decisions.WithLabelValues(action).Add(float64(n))
}

func (m *surface) AlertsTaken(source string, alerts int, unrouted bool) {
	m.alerts.WithLabelValues(source).Add(float64(alerts))
	if unrouted {
		m.unrouted.Inc()
	}
}

// Purged counts what a sweep has removed.
func (m *surface) Purged(p store.Purged) {
	p.Each(func(what string, rows int) { m.purged.WithLabelValues(what).Add(float64(rows)) })
}

// registerProcess adds what every process has, and what is known of the file.
func registerProcess(r prometheus.Registerer, file func() *config.File, gaps func() int) (info *prometheus.GaugeVec, wrong, restart prometheus.Gauge) {
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	p := promauto.With(r)
	info = p.NewGaugeVec(prometheus.GaugeOpts{Name: "tocsin_file_info", Help: "1, with the checksum of the file in force."}, []string{"checksum"})
	info.WithLabelValues(file().Checksum).Set(1)
	wrong = p.NewGauge(prometheus.GaugeOpts{Name: "tocsin_file_error", Help: "1 while the file on disk is wrong and the old one is kept."})
	restart = p.NewGauge(prometheus.GaugeOpts{Name: "tocsin_file_restart", Help: "1 while the file in force has settings that only a restart takes: addresses to listen on, the database."})
	p.NewGaugeFunc(prometheus.GaugeOpts{Name: "tocsin_oncall_gaps", Help: "Schedules in which nobody is on call now, but for those whose gaps are meant."}, func() float64 { return float64(gaps()) })
	return info, wrong, restart
}

const (
	queueMemory  = 5 * time.Second // several scrapers ask the database once
	queueTimeout = 2 * time.Second
)

var (
	waitingDesc = prometheus.NewDesc("tocsin_deliveries_waiting", "Deliveries that wait for a worker, at most the first 100,000 are counted.", []string{"notifier", "kind"}, nil)
	oldestDesc  = prometheus.NewDesc("tocsin_oldest_due_seconds", "How long the oldest due delivery is due.", []string{"kind"}, nil)
)

// queue reads the gauges of what waits when they are asked for. While the database does not answer there are none: a
// stale number would look like calm.
type queue struct {
	file func() *config.File
	read func(context.Context) ([]store.Waiting, error)

	mu   sync.Mutex
	last []store.Waiting
	at   time.Time
}

func (q *queue) Describe(c chan<- *prometheus.Desc) {
	c <- waitingDesc
	c <- oldestDesc
}

func (q *queue) Collect(c chan<- prometheus.Metric) {
	rows, ok := q.rows()
	if !ok {
		return
	}
	type lane struct{ notifier, kind string }
	waiting, oldest := map[lane]int{}, map[string]time.Duration{}
	for _, k := range delivery.Kinds {
		oldest[string(k)] = 0
		for n := range q.file().Notifiers {
			waiting[lane{n, string(k)}] = 0
		}
	}
	for _, w := range rows {
		waiting[lane{w.Notifier, string(w.Kind)}] = w.Count
		oldest[string(w.Kind)] = max(oldest[string(w.Kind)], w.Oldest)
	}
	for l, n := range waiting {
		c <- prometheus.MustNewConstMetric(waitingDesc, prometheus.GaugeValue, float64(n), l.notifier, l.kind)
	}
	for k, d := range oldest {
		c <- prometheus.MustNewConstMetric(oldestDesc, prometheus.GaugeValue, d.Seconds(), k)
	}
}

func (q *queue) rows() ([]store.Waiting, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.at.IsZero() && time.Since(q.at) < queueMemory {
		return q.last, true
	}
	ctx, cancel := context.WithTimeout(context.Background(), queueTimeout)
	defer cancel()
	rows, err := q.read(ctx)
	if err != nil {
		return nil, false
	}
	q.last, q.at = rows, time.Now()
	return rows, true
}
