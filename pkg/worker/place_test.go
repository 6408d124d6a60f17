package worker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
)

// reader is a provider that only looks, and counts how often.
type reader struct {
	provider.Provider
	looked int
}

func (r *reader) Scan(context.Context, provider.Search) provider.Scan {
	r.looked++
	return provider.Scan{Complete: true}
}

// In an outage a doubt falls due every moment. Look-ups of one place keep a distance: who comes between waits for the next one,
// which answers for all who are due by then. Other places are not held up.
func TestLookUpsOfOnePlaceKeepADistance(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := New(Options{Log: zap.NewNop(), Metrics: NewMetrics(prometheus.NewRegistry())})
		defer w.cutCalls()
		r := &reader{}
		began := time.Now()
		// Every delivery falls due at the moment at which it asks.
		ask := func(channel string, due time.Duration) (later bool) {
			t.Helper()
			if wait := time.Until(began.Add(due)); wait > 0 {
				time.Sleep(wait) // false time
			}
			j := &job{asked: time.Now(), lease: time.Hour, provider: r, notifier: config.Notifier{Name: "ops"}}
			j.Now, j.Due = noon.Add(time.Since(began)), noon.Add(due)
			_, later = w.lookAt(j, provider.Search{Operation: delivery.OpCreate, Address: channel, Oldest: noon})
			return later
		}
		for _, c := range []struct {
			what, channel string
			due           time.Duration
			later         bool
			looked        int
		}{
			{"the first", "C1", 0, false, 1},
			{"a moment later", "C1", time.Second, true, 1},
			{"another place", "C2", time.Second, false, 2},
			{"still within the distance", "C1", scanSpace - time.Millisecond, true, 2},
			{"after it", "C1", scanSpace, false, 3},
			{"due when that one began", "C1", scanSpace - time.Millisecond, false, 3},
		} {
			if later := ask(c.channel, c.due); later != c.later || r.looked != c.looked {
				t.Errorf("%s: later %t, %d look-ups", c.what, later, r.looked)
			}
		}
	})
}
