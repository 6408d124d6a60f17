package intake

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/plan"
)

// How long alerts wait to be taken.
const (
	queueWait = 4 * time.Second  // until one is on its way to the database: well below the shortest patience that a source is known to have
	takeTime  = 20 * time.Second // of one transaction; its statements have bounds of their own
	// stalled is how long no transaction may have ended before more of them are begun: the database is not busy then, but
	// something holds up those that there are.
	stalled = 100 * time.Millisecond
)

// What is taken in one transaction.
const (
	batchesAtOnce = 2   // that many are under way, unless they are held up: by more, each would take less with the same work
	batchGroups   = 32  // different incidents of one
	batchAlerts   = 200 // alerts of one
	bigGroup      = 50  // alerts of a group that is taken alone: it would keep others waiting
	mostWaiting   = 5_000

	// While one is under way, fewer than so many wait for others for a moment: with twice as many in each, a processor takes a sixth
	// more. Where none is under way nobody waits.
	gatherTo  = 9
	gatherFor = 8 * time.Millisecond
)

// BusyError says that alerts come in faster than they are taken: the sender is to send again. Nothing was written.
type BusyError struct {
	Incident bool // alerts of this incident, that is
}

func (e *BusyError) Error() string {
	if e.Incident {
		return "more alerts of this incident come in at this moment than it takes: send it again"
	}
	return "more alerts come in at this moment than the database takes: send it again"
}

// queue is where alerts wait for a transaction that takes them. While one is under way others gather, and go into the next one
// together: the more come in, the more of them share a way to the database and a commit, so that what is taken a second grows with
// what there is to take. Where none is under way, nobody waits for others to come.
//
// Alerts of one incident go one after the other, or as one group: they would wait for its row, each with a connection.
//
// In a storm the database takes only so many alerts a second. If all were let in, they would stand in line for its
// connections until their sources give up and send again: then the line holds nothing but requests whose sources have
// left, each breaks off a transaction and with it a connection, and next to nothing is taken any more. Who is refused soon
// comes again, and finds room.
type queue struct {
	most int // transactions at once, also when they are held up

	mu      sync.Mutex
	waiting []*arrival
	busy    map[string]bool // keys whose incident a transaction is about
	flights int             // transactions under way
	timed   bool            // somebody looks again soon
	ended   time.Time       // when one ended last, or the first began
}

// arrival is a group that waits, or somebody who wants to be alone with an incident.
type arrival struct {
	key   string
	came  time.Time
	group Group                           // prepared
	file  *config.File                    // by which
	alone func(ctx context.Context) error // instead of a group; called with ctx
	solo  bool                            // in a transaction of its own
	ctx   context.Context                 //nolint:containedctx // of the one who waits: what nobody waits for any more is not begun
	done  chan struct{}                   // closed: result and err are there

	result Result
	err    error
}

// wait stands in line with a and returns when it was taken.
func (i *Intake) wait(a *arrival) (Result, error) {
	q := &i.queue
	a.done, a.came = make(chan struct{}), time.Now()
	q.mu.Lock()
	if len(q.waiting) >= mostWaiting {
		q.mu.Unlock()
		return Result{}, &BusyError{}
	}
	q.waiting = append(q.waiting, a)
	i.begin()
	q.mu.Unlock()

	began := time.Now()
	look := time.NewTicker(stalled)
	defer look.Stop()
	for {
		select {
		case <-a.done:
			return a.result, a.err
		case <-look.C:
			if time.Since(began) > queueWait {
				if left, incident := q.leave(a); left {
					return Result{}, &BusyError{Incident: incident}
				}
				continue
			}
			q.mu.Lock()
			i.begin()
			q.mu.Unlock()
		case <-a.ctx.Done():
			q.leave(a)
			return Result{}, a.ctx.Err() // it may be taken all the same
		}
	}
}

// leave takes an arrival out that nothing was done about yet. incident: it is its incident that it waited for.
func (q *queue) leave(a *arrival) (left, incident bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	at := slices.Index(q.waiting, a)
	if at < 0 {
		return false, false
	}
	q.waiting = slices.Delete(q.waiting, at, at+1)
	return true, q.busy[a.key]
}

// begin sends off what may go. The queue is locked.
func (i *Intake) begin() {
	q := &i.queue
	for q.flights < q.most && (q.flights < batchesAtOnce || time.Since(q.ended) > stalled) {
		if q.flights > 0 && len(q.waiting) > 0 && len(q.waiting) < gatherTo {
			if wait := gatherFor - time.Since(q.waiting[0].came); wait > 0 {
				q.later(i, wait)
				return
			}
		}
		flight := q.pick()
		if len(flight) == 0 {
			return
		}
		if q.flights++; q.flights == 1 || q.flights > batchesAtOnce {
			q.ended = time.Now() // one more at a time
		}
		go i.fly(flight)
	}
}

// later looks again soon whether what waits has to go. The queue is locked.
func (q *queue) later(i *Intake, wait time.Duration) {
	if q.timed {
		return
	}
	q.timed = true
	time.AfterFunc(wait, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.timed = false
		i.begin()
	})
}

// pick takes out of the queue what goes together into the next transaction, in the order in which it came.
func (q *queue) pick() []*arrival {
	var flight []*arrival
	var groups, alerts int
	passed := map[string]bool{} // whoever comes behind one that stays, stays too
	q.waiting = slices.DeleteFunc(q.waiting, func(a *arrival) bool {
		switch {
		case a.ctx.Err() != nil:
			return true // nobody waits for it
		case q.busy[a.key] && !ours(flight, a.key) || passed[a.key]:
			return false
		}
		joins := ours(flight, a.key)
		fits := len(flight) == 0 || !a.solo && !flight[0].solo && alerts+len(a.group.Alerts) <= batchAlerts
		if joins {
			fits = fits && !slices.ContainsFunc(flight, func(o *arrival) bool { return o.key == a.key && !o.group.joins(a.group) })
		} else {
			fits = fits && groups < batchGroups
		}
		if !fits {
			passed[a.key] = true
			return false
		}
		if !joins {
			groups++
			q.busy[a.key] = true
		}
		alerts += len(a.group.Alerts)
		flight = append(flight, a)
		return true
	})
	return flight
}

func ours(flight []*arrival, key string) bool {
	return slices.ContainsFunc(flight, func(o *arrival) bool { return o.key == key })
}

// joins says that what two senders say of an incident is as if one had said it: different alerts that fire.
func (g Group) joins(o Group) bool {
	if g.Source != o.Source || g.Title != o.Title || g.Truncated != o.Truncated || g.Clip != o.Clip || g.Pair != o.Pair || g.Daily || o.Daily || len(g.Avoid)+len(o.Avoid) > 0 {
		return false
	}
	for _, a := range g.Alerts {
		if !a.Firing || slices.ContainsFunc(o.Alerts, func(b plan.Alert) bool { return !b.Firing || b.Mark() == a.Mark() }) {
			return false
		}
	}
	return true
}

// fly does what was picked, and sends off what has gathered meanwhile.
func (i *Intake) fly(flight []*arrival) {
	again := i.take(flight)
	q := &i.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, a := range flight {
		delete(q.busy, a.key)
	}
	q.waiting = append(again, q.waiting...) // they came first
	q.flights--
	q.ended = time.Now()
	i.begin()
}

// Alone runs fn when no other alert of an incident's key ([Intake.KeyOf]) is being taken on this replica, nor is while it runs. A
// *BusyError says that its turn did not come soon.
func (i *Intake) Alone(ctx context.Context, key string, fn func(ctx context.Context) error) error {
	_, err := i.wait(&arrival{key: key, alone: fn, solo: true, ctx: ctx})
	return err
}
