package app

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

var lettersDesc = prometheus.NewDesc("tocsin_dead_letters", "Dead deliveries that wait for a decision, at most the first 100,000 are counted.", []string{"state", "reason"}, nil)

// letterReasons are the label's values: a reason's word before the colon, and other for all that is not here. A provider's codes must not
// make label sets.
var letterReasons = []string{
	"account", "card_dead", "destination", "dns", "doubt", "lifetime_over", "no_linked_account", "nobody_on_call", "notifier_off", "notifier_removed", "payload",
	"refused", "reset", "retries_used_up", "slack", "takeover", "telegram", "timeout", "tls", "webhook", "other",
}

var deadStates = []delivery.State{delivery.Rejected, delivery.Unreachable, delivery.Held, delivery.Exhausted, delivery.Expired}

// letters reads the dead letter box's gauges when they are asked for, as queue does.
type letters struct {
	read func(context.Context) ([]store.DeadLetter, error)

	mu   sync.Mutex
	last []store.DeadLetter
	at   time.Time
}

func (l *letters) Describe(c chan<- *prometheus.Desc) { c <- lettersDesc }

func (l *letters) Collect(c chan<- prometheus.Metric) {
	rows, ok := l.rows()
	if !ok {
		return
	}
	type label struct{ state, reason string }
	counts := map[label]int{}
	for _, s := range deadStates {
		for _, r := range letterReasons {
			counts[label{string(s), r}] = 0
		}
	}
	for _, r := range rows {
		word, _, _ := strings.Cut(r.Reason, ":")
		if !slices.Contains(letterReasons, word) {
			word = "other"
		}
		counts[label{r.State, word}] += r.Count
	}
	for k, n := range counts {
		c <- prometheus.MustNewConstMetric(lettersDesc, prometheus.GaugeValue, float64(n), k.state, k.reason)
	}
}

func (l *letters) rows() ([]store.DeadLetter, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.at.IsZero() && time.Since(l.at) < queueMemory {
		return l.last, true
	}
	ctx, cancel := context.WithTimeout(context.Background(), queueTimeout)
	defer cancel()
	rows, err := l.read(ctx)
	if err != nil {
		return nil, false
	}
	l.last, l.at = rows, time.Now()
	return rows, true
}
