package worker

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"go.uber.org/zap"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
)

// Metrics are the worker's counters. Every label set is there from the start, at zero, so that a rate over the first
// event is right.
type Metrics struct {
	Attempts       *prometheus.CounterVec // notifier, kind, outcome
	AttemptSeconds *prometheus.HistogramVec
	Deliveries     *prometheus.CounterVec // kind, state
	PageSeconds    prometheus.Histogram   // accepted to call, the wait for the card included
	Retries        prometheus.Counter
	GaveUp         prometheus.Counter
	Takeovers      prometheus.Counter
	Fenced         prometheus.Counter
	Late           *prometheus.CounterVec // outcome
	Unlisted       *prometheus.CounterVec // provider
	Reconciled     *prometheus.CounterVec // result
	BreakerOpen    *prometheus.GaugeVec   // notifier
	Pauses         *prometheus.GaugeVec   // notifier
}

// NewMetrics registers the worker's metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	f := promauto.With(r)
	m := &Metrics{
		Attempts:       f.NewCounterVec(prometheus.CounterOpts{Name: "tocsin_attempts_total", Help: "Provider calls by what came of them."}, []string{"notifier", "kind", "outcome"}),
		AttemptSeconds: f.NewHistogramVec(prometheus.HistogramOpts{Name: "tocsin_attempt_seconds", Help: "How long provider calls took.", Buckets: prometheus.ExponentialBuckets(0.005, 2, 14)}, []string{"notifier", "kind"}),
		Deliveries:     f.NewCounterVec(prometheus.CounterOpts{Name: "tocsin_deliveries_total", Help: "Deliveries that came to a state in which no worker acts."}, []string{"kind", "state"}),
		PageSeconds:    f.NewHistogram(prometheus.HistogramOpts{Name: "tocsin_page_seconds", Help: "From the acceptance of an alert to the first call of its page, the wait for the card included.", Buckets: prometheus.ExponentialBuckets(0.005, 2, 16)}),
		Retries:        f.NewCounter(prometheus.CounterOpts{Name: "tocsin_retries_total", Help: "Attempts after which the delivery is tried again."}),
		GaveUp:         f.NewCounter(prometheus.CounterOpts{Name: "tocsin_gave_up_total", Help: "Deliveries that died and wait for a person's decision."}),
		Takeovers:      f.NewCounter(prometheus.CounterOpts{Name: "tocsin_takeovers_total", Help: "Leases that ran out over an open attempt and were taken over."}),
		Fenced:         f.NewCounter(prometheus.CounterOpts{Name: "tocsin_fenced_writes_total", Help: "Writes that changed nothing because their lease was gone."}),
		Late:           f.NewCounterVec(prometheus.CounterOpts{Name: "tocsin_late_answers_total", Help: "Answers that came after their lease was lost, kept as late evidence."}, []string{"outcome"}),
		Unlisted:       f.NewCounterVec(prometheus.CounterOpts{Name: "tocsin_unlisted_codes_total", Help: "Provider codes that no table knows."}, []string{"provider"}),
	}
	m.Reconciled = f.NewCounterVec(prometheus.CounterOpts{Name: "tocsin_reconciled_total", Help: "Look-ups of effects in doubt by what they came to: found, absent, incomplete, blind."}, []string{"result"})
	m.BreakerOpen = f.NewGaugeVec(prometheus.GaugeOpts{Name: "tocsin_breaker_open", Help: "1 while the notifier's account refuses all calls and nothing is sent through it."}, []string{"notifier"})
	m.Pauses = f.NewGaugeVec(prometheus.GaugeOpts{Name: "tocsin_pauses", Help: "Destinations of the notifier's account that nothing is sent to for now."}, []string{"notifier"})
	for _, r := range []string{"found", "absent", "incomplete", "blind"} {
		m.Reconciled.WithLabelValues(r)
	}
	for _, k := range delivery.Kinds {
		for _, s := range delivery.States {
			if s.Settled() {
				m.Deliveries.WithLabelValues(string(k), string(s))
			}
		}
	}
	for _, o := range outcomes {
		m.Late.WithLabelValues(o)
	}
	for _, p := range []string{"slack", "telegram", "webhook", "log"} {
		m.Unlisted.WithLabelValues(p)
	}
	return m
}

var outcomes = []string{string(delivery.OutcomeSent), string(delivery.OutcomeFailed), string(delivery.OutcomeUnknown)}

// Notifiers makes the label sets of the file's notifiers.
func (m *Metrics) Notifiers(names []string) {
	for _, n := range names {
		m.BreakerOpen.WithLabelValues(n)
		m.Pauses.WithLabelValues(n)
		for _, k := range delivery.Kinds {
			m.AttemptSeconds.WithLabelValues(n, string(k))
			for _, o := range outcomes {
				m.Attempts.WithLabelValues(n, string(k), o)
			}
		}
	}
}

// recorded counts and tells a result that stands: one line per attempt, with stable keys.
func (w *Worker) recorded(j *job, s delivery.Step) {
	r, c := j.result, s.Change()
	if r.Evidence != delivery.NotCalled {
		w.o.Metrics.Attempts.WithLabelValues(j.Notifier, string(j.Kind), string(r.Outcome)).Inc()
		w.o.Metrics.AttemptSeconds.WithLabelValues(j.Notifier, string(j.Kind)).Observe(r.Duration.Seconds())
	}
	if r.Unlisted {
		w.o.Metrics.Unlisted.WithLabelValues(j.notifier.Type).Inc()
	}
	if c.State == delivery.Pending && r.Outcome != delivery.OutcomeSent {
		w.o.Metrics.Retries.Inc()
	}
	level := zap.InfoLevel
	if r.Outcome != delivery.OutcomeSent || s.To().Dead() {
		level = zap.WarnLevel
	}
	if line := w.o.Log.Check(level, "attempt"); line != nil {
		fields := append(j.fields(), zap.String("state", string(c.State)), zap.String("state_reason", c.Reason))
		if c.State == delivery.Pending {
			fields = append(fields, zap.Duration("next_in", c.Delay))
		}
		line.Write(fields...)
	}
	w.settled(s)
}

// settled counts a delivery that no worker acts on any more.
func (w *Worker) settled(s delivery.Step) {
	if !s.To().Settled() {
		return
	}
	w.o.Metrics.Ended(s.From().Kind, s.To())
	if s.To().Dead() {
		d, c := s.From(), s.Change()
		w.o.Log.Warn("delivery died", zap.String("delivery", d.ID.String()), zap.String("incident", d.IncidentID.String()), zap.String("kind", string(d.Kind)),
			zap.String("notifier", d.Notifier), zap.String("target", d.Target), zap.String("state", string(c.State)), zap.String("reason", c.Reason), zap.String("sentence", c.Sentence), zap.Int("attempts", d.Attempts))
	}
}

// Ended counts a delivery that came to a state in which no worker acts, whoever brought it there.
func (m *Metrics) Ended(k delivery.Kind, s delivery.State) {
	m.Deliveries.WithLabelValues(string(k), string(s)).Inc()
	if s.Dead() {
		m.GaveUp.Inc()
	}
}

// fields are the keys of every line about an attempt.
func (j *job) fields() []zap.Field {
	r := j.result
	return []zap.Field{
		zap.String("delivery", j.ID.String()), zap.String("incident", j.IncidentID.String()), zap.String("attempt", j.attempt.ID.String()), zap.Int("number", j.attempt.Number),
		zap.String("kind", string(j.Kind)), zap.String("notifier", j.Notifier), zap.String("target", j.Target), zap.String("address", j.attempt.Address),
		zap.String("operation", string(j.attempt.Operation)), zap.String("effect_key", j.attempt.Key), zap.Int("revision", j.attempt.Revision), zap.String("form", j.attempt.Form.String()),
		zap.String("outcome", string(r.Outcome)), zap.String("evidence", string(r.Evidence)), zap.String("phase", string(r.Phase)), zap.String("reason", r.Reason), zap.String("code", r.Code),
		zap.Int("status", r.HTTPStatus), zap.Int64("bytes", r.Bytes), zap.Duration("duration", r.Duration), zap.String("error", r.Error),
	}
}
