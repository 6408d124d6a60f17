package worker_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
)

func counted(t testing.TB, c prometheus.Counter) float64 { t.Helper(); return count(t, c) }

func retries(n config.Notifier, r delivery.Retries) config.Notifier {
	n.Retries = r
	return n
}

// doubts checks what tocsin promises of duplicates: nothing is lost, and each call that may have been a second message
// has an attempt of the same effect in doubt before it.
func doubts(t *testing.T, s *site, ids []uuid.UUID, calls []provider.Call) {
	t.Helper()
	times := map[string]int{}
	for _, c := range calls {
		times[c.Key]++
	}
	for _, id := range ids {
		key := id.String() + ":1"
		if times[key] == 0 {
			t.Errorf("%s never went out", key)
		}
		attempts := s.attempts(id)
		for n, a := range attempts {
			if n == 0 || a.Evidence == "not_called" {
				continue
			}
			earlier := attempts[n-1]
			if earlier.Outcome == "sent" || earlier.Outcome == "" {
				t.Errorf("%s was tried again after an attempt that is %q", key, earlier.Outcome)
			}
		}
	}
	s.recorded(calls...)
}

// observed is how many values a histogram has seen, and their sum.
func observed(t testing.TB, h prometheus.Histogram) (int, float64) {
	t.Helper()
	var m dto.Metric
	if err := h.Write(&m); err != nil {
		t.Fatal(err)
	}
	return int(m.GetHistogram().GetSampleCount()), m.GetHistogram().GetSampleSum() //nolint:gosec // a test's count
}

// measured is what a gauge shows.
func measured(t testing.TB, g prometheus.Gauge) float64 {
	t.Helper()
	var m dto.Metric
	if err := g.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetGauge().GetValue()
}
