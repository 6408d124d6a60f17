package worker

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// gather takes one job and all that have come meanwhile: no timer, a batch is what waits when the writer is free.
func gather(from <-chan *job, most int) []*job {
	j, ok := <-from
	if !ok {
		return nil
	}
	batch := []*job{j}
	for len(batch) < most {
		select {
		case j, ok := <-from:
			if !ok {
				return batch
			}
			batch = append(batch, j)
		default:
			return batch
		}
	}
	return batch
}

// beginLoop records the attempts of prepared jobs and starts their calls.
func (w *Worker) beginLoop() {
	for {
		batch := gather(w.begins, claimMost)
		if batch == nil {
			return
		}
		select {
		case <-w.stopping: // claimed, not begun: back without doubt
			w.giveBack(batch, 0, "shutdown")
		default:
			w.begin(batch)
		}
	}
}

// begin commits the batch's attempts, then lets each be called. A crash between leaves open attempts without a call: the
// next owner calls them unknown, since it can't know.
func (w *Worker) begin(batch []*job) {
	for try := 0; ; try++ {
		// After a lost answer the attempts may stand there: begin again says so. Without trust in the lease nothing may
		// be called any more; what may have been begun is closed by the takeover.
		batch = w.known(w.trusted(batch))
		if len(batch) == 0 {
			return
		}
		begun, err := w.beginOnce(batch)
		if err != nil {
			w.o.Log.Warn("recording attempts failed, trying again", zap.Error(err), zap.Int("attempts", len(batch)))
			w.rest(backoff(try))
			continue
		}
		var moved []*job
		for _, j := range batch {
			b, ok := begun[j.ID]
			if !ok {
				moved = append(moved, j)
				continue
			}
			if j.Kind == delivery.Page && !j.Called && b.Attempt.Operation == delivery.OpCreate {
				w.o.Metrics.PageSeconds.Observe(max(0, (b.Attempt.StartedAt.Sub(j.CreatedAt) - j.planned).Seconds()))
			}
			j.Delivery, j.attempt = b.Delivery, b.Attempt
			go w.run(j)
		}
		if len(moved) > 0 {
			// Something was noted between claim and begin, or the lease is gone, or the destination rests since a moment:
			// look at the row anew.
			for _, j := range moved {
				w.outrun.note(j.ID)
			}
			go func() {
				ctx, cancel := w.write()
				defer cancel()
				if err := w.readRests(ctx); err != nil {
					w.o.Log.Warn("pauses were not read", zap.Error(err))
				}
				w.giveBack(moved, 0, "")
			}()
		}
		return
	}
}

func (w *Worker) beginOnce(batch []*job) (map[uuid.UUID]store.Begun, error) {
	ctx, cancel := w.write()
	defer cancel()
	in := make([]store.Begun, len(batch))
	for i, j := range batch {
		in[i] = store.Begun{Delivery: j.Delivery, Attempt: j.attempt, Breaker: j.breaker, Raised: j.turn || w.outrun.lately(j.ID)}
	}
	return w.o.Store.Begin(ctx, w.o.ID, in)
}

// trusted keeps the jobs whose lease surely outlasts a call begun now; the others are left to run out.
func (w *Worker) trusted(batch []*job) []*job {
	kept := batch[:0]
	for _, j := range batch {
		if j.trust() {
			kept = append(kept, j)
			continue
		}
		w.o.Log.Warn("lease too short for a call, leaving it to run out", zap.String("delivery", j.ID.String()))
		w.leave(j)
	}
	return kept
}

// known keeps the jobs whose notifier is what it was when they were prepared: nothing is begun through one that a new file has
// removed since, or with credentials that it has replaced. The others go back: what has changed is prepared anew at once; what
// is gone another replica may know, and in time it ends.
func (w *Worker) known(batch []*job) []*job {
	f := w.o.File()
	var gone, changed []*job
	kept := batch[:0]
	for _, j := range batch {
		switch _, ok := f.Notifiers[j.Notifier]; {
		case !ok:
			gone = append(gone, j)
		case !w.current(j):
			changed = append(changed, j)
		default:
			kept = append(kept, j)
		}
	}
	if len(gone) > 0 {
		go w.giveBack(gone, f.Worker.Poll, "")
	}
	if len(changed) > 0 {
		go w.giveBack(changed, 0, "")
	}
	return kept
}

// current says that a job's notifier is in the file in force as it is in the file that the job was claimed under.
func (w *Worker) current(j *job) bool {
	f := w.o.File()
	if f == j.file {
		return true
	}
	n, ok := f.Notifiers[j.Notifier]
	return ok && reflect.DeepEqual(n, j.file.Notifiers[j.Notifier])
}

// trust says that the lease's remainder, measured by this machine's monotonic clock from before the claim was asked
// for, is longer than the call can take.
func (j *job) trust() bool {
	return time.Since(j.asked)+j.notifier.Timeout+callGrace < j.lease
}

// errCallTimeout is the cause when a call outlives all of its provider's own bounds.
var errCallTimeout = errors.New("the provider did not keep its timeout")

// run makes one call. The attempt is committed; whatever happens from here on ends in the finish loop.
func (w *Worker) run(j *job) {
	j.result = w.do(j)
	w.ends <- j
}

func (w *Worker) do(j *job) (r delivery.Result) {
	switch {
	case w.calls.Err() != nil:
		j.closedBy = "shutdown"
		return delivery.Result{Outcome: delivery.OutcomeFailed, Evidence: delivery.NotCalled, Reason: "shutdown", Error: "the replica stopped before the call"}
	case !w.current(j): // while the attempt was recorded
		return delivery.Result{Outcome: delivery.OutcomeFailed, Evidence: delivery.NotCalled, Reason: "reload", Error: "a new file came into force before the call"}
	case !j.trust():
		return delivery.Result{Outcome: delivery.OutcomeFailed, Evidence: delivery.NotCalled, Reason: "timeout", Error: "the lease's remainder is shorter than the call's timeout"}
	}
	start := time.Now()
	defer func() {
		// A fault of ours in a provider must not take the process down, and is no proof of anything.
		if p := recover(); p != nil {
			w.o.Log.Error("a provider panicked", zap.String("notifier", j.Notifier), zap.Any("panic", p), zap.ByteString("stack", debug.Stack()))
			r = delivery.Result{Outcome: delivery.OutcomeUnknown, Evidence: delivery.PossiblySent, Reason: j.notifier.Type + ":panic", Error: w.o.Redact(fmt.Sprint("panic: ", p)), Duration: time.Since(start)}
		}
	}()
	ctx, cancel := context.WithTimeoutCause(w.calls, j.notifier.Timeout+callGrace, errCallTimeout)
	defer cancel()
	r = j.provider.Do(ctx, j.call)
	if r.Duration == 0 {
		r.Duration = time.Since(start)
	}
	return r
}
