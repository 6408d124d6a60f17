package app

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

const (
	receiverLook = time.Second      // how soon a new file's receivers begin
	receiverTell = 15 * time.Second // how often how they stand is written, if nothing changes
	restLeast    = time.Second      // between two tries of a receiver that fails
	restMost     = 30 * time.Second
)

// receiving is a chat that is asked for what people do, instead of calling.
type receiving struct {
	notifier, kind string // socket, poll
	account        string // poll: of the credentials; socket: the same of the app's
}

// receivers runs them. What one of them says of itself is shown by `tocsin doctor` and in the metrics.
type receivers struct {
	app *App
	mu  sync.Mutex
	now map[string]store.Receiver // by notifier
}

// wanted are the receivers of a file: one per bot and per Slack app, whatever number of notifiers share it; the first by name stands for
// all of them.
func wanted(f *config.File) map[receiving]provider.Provider {
	all := map[receiving]provider.Provider{}
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(f.Notifiers)) {
		n := f.Notifiers[name]
		r := receiving{notifier: name, account: n.Account()}
		key := ""
		switch {
		case n.Off:
		case n.Type == "telegram" && n.Poll:
			r.kind, key = "poll", n.Account()
		case n.Type == "slack" && n.AppToken != "":
			r.kind, key = "socket", n.AppToken
		}
		if key != "" && !seen[key] {
			seen[key] = true
			all[r] = nil
		}
	}
	return all
}

// loop keeps the receivers of the file in force running until ctx ends.
func (r *receivers) loop(ctx context.Context) {
	type running struct {
		with provider.Provider
		stop context.CancelFunc
		done chan struct{}
	}
	current := map[receiving]running{}
	end := func(w receiving) {
		current[w].stop()
		<-current[w].done
		delete(current, w)
		r.forget(ctx, w.notifier)
	}
	t := time.NewTicker(receiverLook)
	defer t.Stop()
	told := time.Now()
	for {
		force := r.app.force.Load()
		want := wanted(force.file)
		for w := range want {
			want[w] = force.providers[w.notifier]
		}
		for w, c := range current {
			if p, still := want[w]; !still || p != c.with { // other credentials, or another address
				end(w)
			}
		}
		for w, p := range want {
			if _, runs := current[w]; runs {
				continue
			}
			own, stop := context.WithCancel(ctx)
			c := running{with: p, stop: stop, done: make(chan struct{})}
			current[w] = c
			go func() {
				defer close(c.done)
				r.run(own, w, p)
			}()
		}
		if time.Since(told) >= receiverTell {
			told = time.Now()
			r.tellAll(ctx)
		}
		select {
		case <-ctx.Done():
			for w := range maps.Keys(current) {
				end(w)
			}
			return
		case <-t.C:
		}
	}
}

func (r *receivers) run(ctx context.Context, w receiving, p provider.Provider) {
	defer func() {
		if v := recover(); v != nil { // a fault of ours must not take the process down; the file's next change begins anew
			r.stand(ctx, w, "failed", "it ended by a fault of tocsin's: please report it")
			r.app.log.Error("a receiver panicked", zap.String("notifier", w.notifier), zap.Any("panic", v), zap.Stack("stack"))
		}
	}()
	switch p := p.(type) {
	case poller:
		r.poll(ctx, w, p)
	case socketed:
		r.socket(ctx, w, p)
	}
}

// stand notes how a receiver stands, and logs what has changed.
func (r *receivers) stand(ctx context.Context, w receiving, state, detail string) {
	s := store.Receiver{Replica: r.app.id, Notifier: w.notifier, Kind: w.kind, State: state, Detail: r.app.redacted(detail)}
	r.mu.Lock()
	old, had := r.now[w.notifier]
	r.now[w.notifier] = s
	r.mu.Unlock()
	if had && old.State == state && old.Detail == s.Detail || ctx.Err() != nil {
		return
	}
	fields := []zap.Field{zap.String("notifier", w.notifier), zap.String("kind", w.kind), zap.String("state", state), zap.String("detail", s.Detail)}
	if state == "failed" {
		r.app.log.Warn("what people do in a chat does not arrive here", fields...)
	} else {
		r.app.log.Info("receiver", fields...)
	}
	r.tell(ctx, s)
}

func (r *receivers) tell(ctx context.Context, s store.Receiver) {
	ctx, cancel := context.WithTimeout(ctx, loopTimeout)
	defer cancel()
	if err := r.app.store.PutReceiver(ctx, s); err != nil {
		r.app.log.Debug("how a receiver stands was not written", zap.Error(err)) // it is written again
	}
}

func (r *receivers) tellAll(ctx context.Context) {
	for _, s := range r.standing() {
		r.tell(ctx, s)
	}
}

// standing are the receivers of this replica, by name.
func (r *receivers) standing() []store.Receiver {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []store.Receiver
	for _, name := range slices.Sorted(maps.Keys(r.now)) {
		all = append(all, r.now[name])
	}
	return all
}

func (r *receivers) forget(ctx context.Context, notifier string) {
	r.mu.Lock()
	delete(r.now, notifier)
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), loopTimeout)
	defer cancel()
	if err := r.app.store.DropReceiver(ctx, r.app.id, notifier); err != nil {
		r.app.log.Debug("a receiver's row stays until it is swept away", zap.Error(err))
	}
}

// rest waits, with jitter so that replicas don't knock in step; false: ctx has ended.
func rest(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d + rand.N(d/4+1)) //nolint:gosec // jitter, no secret
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// longer is the rest after one more failure.
func longer(d time.Duration) time.Duration { return min(max(2*d, restLeast), restMost) }

var receiverDesc = prometheus.NewDesc("tocsin_receiver", "1 for how this replica stands with a chat that it asks for what people do.", []string{"notifier", "kind", "state"}, nil)

var receiverStates = []string{"connected", "waiting", "failed"}

// Describe is a prometheus.Collector's.
func (r *receivers) Describe(c chan<- *prometheus.Desc) { c <- receiverDesc }

// Collect gives a line per receiver and state.
func (r *receivers) Collect(c chan<- prometheus.Metric) {
	now := map[string]string{}
	for _, s := range r.standing() {
		now[s.Notifier] = s.State
	}
	for w := range wanted(r.app.file()) {
		for _, state := range receiverStates {
			v := 0.0
			if now[w.notifier] == state {
				v = 1
			}
			c <- prometheus.MustNewConstMetric(receiverDesc, prometheus.GaugeValue, v, w.notifier, w.kind, state)
		}
	}
}
