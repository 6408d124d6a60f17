package worker

import (
	"bytes"
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/plan"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// job is one claimed delivery on its way through the worker.
type job struct {
	store.Claimed
	turn     bool      // it has a slot of its destination's or account's pace
	asked    time.Time // before the claim was asked for: what the local trust in the lease is measured from
	lease    time.Duration
	file     *config.File // that it was claimed under
	notifier config.Notifier
	provider provider.Provider
	env      delivery.Env
	facts    delivery.Facts
	breaker  string            // the key of its account's breaker
	looks    bool              // it is to be looked up, not made
	missing  *plan.Unreachable // whose account is not known: it is looked for
	attempt  delivery.Attempt
	call     provider.Call
	name     string        // page: of the one whom it goes to; empty: not known, or an edit
	newcomer bool          // page: its target means somebody else by now than the one whom it is bound to
	link     *linkOf       // page: whose link is still to be looked up
	planned  time.Duration // page: how long after its making this way was to be tried

	result   delivery.Result
	closedBy string
}

// claimLoop asks for rows when it is woken, when the earliest row falls due, and now and then.
func (w *Worker) claimLoop() {
	var last time.Time
	pause := claimPause
	for try := 0; ; {
		select {
		case <-w.stopping:
			return
		default:
		}
		if d := pause - time.Since(last); d > 0 {
			w.rest(d)
		}
		last = time.Now()
		f := w.o.File()
		lanes := w.places.free(f, claimMost)
		n, err := 0, error(nil)
		if len(lanes) > 0 {
			n, err = w.claim(f, lanes)
		}
		switch {
		case err != nil:
			w.o.Log.Warn("claim failed, trying again", zap.Error(err))
			w.marks.lower(time.Time{}) // the database may be another one now
			try++
			w.wait(backoff(try))
		case n > 0:
			try, pause = 0, claimPause // there may be more
			if n < claimFew {
				pause = claimGather
			}
		default:
			try = 0
			w.wait(w.idle(f, lanes))
		}
	}
}

// claim takes what is due for the free places and hands it on. It returns how many rows it took.
func (w *Worker) claim(f *config.File, lanes []store.Lane) (int, error) {
	ctx, cancel := w.write()
	defer cancel()
	w.marks.set(lanes)
	asked := time.Now()
	rows, err := w.o.Store.Claim(ctx, w.o.ID, f.Worker.Lease, lanes)
	if err != nil {
		return 0, err
	}
	w.marks.seen(rows)
	if len(rows) == 0 {
		return 0, nil
	}
	// One statement names the rows in no order. What is prepared first is begun first: by priority, then the oldest.
	slices.SortStableFunc(rows, func(a, b store.Claimed) int {
		return cmp.Or(cmp.Compare(a.Kind.Priority(), b.Kind.Priority()), a.Due.Compare(b.Due), bytes.Compare(a.ID[:], b.ID[:]))
	})
	batch := make([]*job, 0, len(rows))
	for _, r := range rows {
		w.jobs.Add(1)
		w.places.take(r.Notifier)
		batch = append(batch, &job{Claimed: r, asked: asked, lease: f.Worker.Lease, file: f, closedBy: "worker"})
	}
	go w.prepare(f, batch)
	return len(rows), nil
}

// wait sleeps until a nudge or for d.
func (w *Worker) wait(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-w.wake:
	case <-t.C:
	case <-w.stopping:
	}
}

// idle is how long there is surely nothing to do: until the earliest row of a notifier with free places falls due, at
// most the poll, with a jitter so that replicas don't poll in step. A place that is freed wakes the loop by itself.
func (w *Worker) idle(f *config.File, lanes []store.Lane) time.Duration {
	d := f.Worker.Poll
	d += time.Duration(rand.Int64N(int64(d)/5 + 1)) //nolint:gosec // jitter
	if len(lanes) == 0 {
		return d
	}
	ctx, cancel := w.write()
	defer cancel()
	names := make([]string, len(lanes))
	for i, l := range lanes {
		names[i] = l.Notifier
	}
	due, err := w.o.Store.EarliestDue(ctx, names)
	if err != nil {
		return d
	}
	// A row that is due and was not taken is locked by somebody: never spin on it.
	return min(d, max(due, 10*claimPause))
}

// leave ends a job: its place is free again and refilled at once.
func (w *Worker) leave(j *job) {
	w.places.leave(j.Notifier)
	w.jobs.Done()
	w.poke()
}
