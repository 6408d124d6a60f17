// Package worker takes due deliveries to their providers, in four steps: claim, prepare, begin with the call after it,
// and finish. Each step works on a batch; nothing is held while something else could go on.
//
// What a crash leaves behind at each step: after claim, a lease that runs out and the row goes back without doubt;
// after begin, an open attempt that the next owner closes as unknown; after the call, the same, with an effect that
// nobody recorded. The policy of the kind decides what follows. Nothing is lost, and what may have happened says so.
package worker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/plan"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// The worker's own bounds. Times that people may set stand in the file.
const (
	claimPause = 2 * time.Millisecond // least time between two claims
	// What comes one by one in quick succession is gathered for a moment: a claim for each costs the database more than a source's alert.
	claimFew      = 50                    // a claim that took fewer has emptied the queue
	claimGather   = 20 * time.Millisecond // least time between it and the next one
	claimMost     = 500                   // most rows of one claim, begin or finish
	fullScanEvery = 2 * time.Second       // how long a row committed late can hide behind a watermark
	lowMargin     = 20 * time.Millisecond
	callGrace     = time.Second            // what a call may take beyond its timeout
	retryPause    = 200 * time.Millisecond // between tries to reach the database
	retryPauseMax = 2 * time.Second
	writeTimeout  = 20 * time.Second // of one write to the database
	linkTimeout   = time.Second      // of looking up a card's link for a page
	recordGrace   = 30 * time.Second // how long a stopping worker goes on trying to record known answers
)

// Options wire a Worker.
type Options struct {
	ID       string // the replica's name, kept on attempts
	Store    *store.Store
	File     func() *config.File
	Provider func(notifier string) (provider.Provider, bool)
	Accounts func() []plan.Account // linked chat accounts
	// Find looks for a user's account with a notifier; true: Accounts has it now. An error: it can't be known now. Nil: there is no
	// other place to look.
	Find func(ctx context.Context, notifier, userID string) (bool, error)
	Dead func() // called after a delivery died or a breaker opened: its self-alert is due
	// HandOver gives the one whom a page's target means by now a page of their own: the page is bound to somebody else. It is
	// called before the page's next attempt begins. May be nil.
	HandOver func(ctx context.Context, incident, page uuid.UUID) error
	Redact   func(string) string // puts ${NAME} in place of secrets: an address may be one; nil: there are none
	Log      *zap.Logger
	Metrics  *Metrics
}

// Worker runs the deliveries of the notifiers that its file knows.
type Worker struct {
	o      Options
	places *places
	marks  *marks
	links  *linkCache
	rests  *rests
	scans  *scans
	mended sync.Map // breaker -> time.Time at which a probe said last that its account is well
	outrun outrun
	blind  sync.Map // notifier -> time.Time of the last look-up that a person must make possible

	wake   chan struct{}
	begins chan *job
	ends   chan *job

	stopping chan struct{} // closed by Stop: claim nothing more
	stopOnce sync.Once
	calls    context.Context // ends with the grace: cuts calls that are still in flight
	cutCalls context.CancelFunc

	questions    context.Context // ends with Stop: what only asks a provider has no effect that a stop should wait for
	cutQuestions context.CancelFunc
	jobs         sync.WaitGroup // every claimed row until its lease is given back or recorded
	aside        sync.WaitGroup // results that the database refuses, each tried beside the finish loop
	done         chan struct{}
}

// New makes a worker that does nothing before Run.
func New(o Options) *Worker {
	if o.Redact == nil {
		o.Redact = func(s string) string { return s }
	}
	if o.Find == nil {
		o.Find = func(context.Context, string, string) (bool, error) { return false, nil }
	}
	calls, cut := context.WithCancel(context.Background())
	questions, cutQuestions := context.WithCancel(calls)
	return &Worker{
		o: o, places: newPlaces(), marks: newMarks(), links: newLinkCache(), rests: newRests(), scans: newScans(),
		wake: make(chan struct{}, 1), begins: make(chan *job, claimMost), ends: make(chan *job, claimMost),
		stopping: make(chan struct{}), calls: calls, cutCalls: cut, done: make(chan struct{}),
		questions: questions, cutQuestions: cutQuestions,
	}
}

// Nudge says that rows due since oldest (the database's clock) were committed: look at once, and no later watermark
// may hide them. A zero time forgets all watermarks.
func (w *Worker) Nudge(oldest time.Time) {
	w.marks.lower(oldest)
	w.poke()
}

func (w *Worker) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Run works until Stop. It returns when every claimed delivery is recorded or given back.
func (w *Worker) Run() {
	defer close(w.done)
	defer w.cutCalls()
	var loops sync.WaitGroup
	loops.Go(w.beginLoop)
	loops.Go(w.finishLoop)
	loops.Go(w.restLoop)
	w.claimLoop()
	w.jobs.Wait() // nothing new comes: what was claimed runs out
	close(w.begins)
	close(w.ends)
	loops.Wait()
	w.aside.Wait()
}

// Stop claims nothing more, lets calls in flight finish while ctx lasts, cuts them after it, and returns when all that
// is known is recorded. A row that can't be recorded keeps its lease and is taken over as unknown.
func (w *Worker) Stop(ctx context.Context) error {
	w.stopOnce.Do(func() {
		close(w.stopping)
		w.cutQuestions()
	})
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
	}
	w.cutCalls()
	t := time.NewTimer(recordGrace)
	defer t.Stop()
	select {
	case <-w.done:
		return nil
	case <-t.C:
		return errors.New("some results could not be recorded before the end: their leases run out and they are taken over as unknown")
	}
}

// Running says that the worker still claims.
func (w *Worker) Running() bool {
	select {
	case <-w.stopping:
		return false
	case <-w.done:
		return false
	default:
		return true
	}
}

// write is the context of one write to the database: it outlives the request and the shutdown that surround it.
func (w *Worker) write() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), writeTimeout)
}

// rest waits out d, whatever else ends: who rests tries again after it.
func (w *Worker) rest(d time.Duration) { <-time.NewTimer(d).C }

// backoff is the wait before try n of reaching the database: it doubles, at most retryPauseMax.
func backoff(try int) time.Duration { return min(retryPause<<min(try, 5), retryPauseMax) }
