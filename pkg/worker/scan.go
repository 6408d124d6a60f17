package worker

import (
	"context"
	"runtime/debug"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

const (
	scanMost   = 45 * time.Second // bound of one look-up
	scanSpace  = 3 * time.Second  // least time between two look-ups of one place: an outage leaves hundreds in doubt
	scanMargin = 5 * time.Second  // a look-up ends so long before its lease, or by three quarters of a short one
	scanRound  = 10 * time.Minute // look-ups begin at a full span of it, so that one serves all in doubt at a place
	blindFor   = 5 * time.Minute  // how long a notifier that may not look is not asked to: what was mended is noticed then
	scansMost  = 1000             // places remembered; beyond it, the memory starts anew
)

// scans remembers the last look-up of each place: in an outage many deliveries are in doubt at one, and one look-up answers
// for all that were due when it began.
type scans struct {
	mu sync.Mutex
	at map[string]*scan
}

type scan struct {
	mu     sync.Mutex // held while one is made: the others wait for its answer
	began  time.Time  // by the database's clock, rather too early than too late
	oldest time.Time
	result provider.Scan
}

func newScans() *scans { return &scans{at: map[string]*scan{}} }

func (s *scans) place(key string) *scan {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p, ok := s.at[key]; ok {
		return p
	}
	if len(s.at) >= scansMost {
		clear(s.at)
	}
	p := &scan{}
	s.at[key] = p
	return p
}

// lookUpAfter is how long after its beginning an attempt in doubt can be looked up; 0: the provider can't be asked, or said
// a moment ago that it may not be: then nothing need wait for it.
func (w *Worker) lookUpAfter(n config.Notifier, p provider.Provider, form delivery.Form) time.Duration {
	if _, ok := p.(provider.Scanner); !ok || n.WebhookURL != "" || form.NoMetadata && form.Plain {
		return 0 // of the last: it carries no mark
	}
	if at, blind := w.blind.Load(n.Name); blind && time.Since(at.(time.Time)) < blindFor {
		return 0
	}
	return n.Timeout + delivery.LookGrace
}

// search is where the effect in doubt is looked for.
func (j *job) search() provider.Search {
	return provider.Search{
		Operation: j.attempt.Operation, Address: j.call.Address, Parent: j.call.Reference, Oldest: j.Doubt.Since.Truncate(scanRound),
	}
}

// look looks for the effect in doubt of a claimed row, and writes what that changes. It takes no place: what waits for an
// answer about the past must not hold up what is to be sent.
func (w *Worker) look(j *job) {
	w.places.leave(j.Notifier)
	w.poke()
	defer func() {
		w.jobs.Done()
		w.poke()
	}()
	found, l, result := w.scan(j)
	w.o.Metrics.Reconciled.WithLabelValues(result).Inc()
	ctx, cancel := w.write()
	defer cancel()
	looked := func(d delivery.Delivery) (delivery.Step, bool) {
		if d.Token != j.Token {
			return delivery.Step{}, false
		}
		return d.Looked(j.Now.Add(time.Since(j.asked)), l), true
	}
	if l.Found.IsZero() {
		w.patiently("noting a look-up", []*job{j}, func(ctx context.Context) error {
			_, err := w.o.Store.SettleAnew(ctx, []uuid.UUID{j.ID}, looked)
			return err
		})
		return
	}
	step, adopted, err := w.o.Store.Adopt(ctx, j.ID, j.Doubt.Key, found, looked)
	if err != nil {
		// The lease runs out, and the next look-up finds the same.
		w.o.Log.Warn("what a look-up found could not be written", zap.String("delivery", j.ID.String()), zap.Error(err))
		return
	}
	if !adopted {
		w.o.Metrics.Fenced.Inc()
		return
	}
	w.o.Log.Info("found what an attempt in doubt has made", zap.String("delivery", j.ID.String()), zap.String("notifier", j.Notifier), zap.String("kind", string(j.Kind)),
		zap.String("effect_key", j.Doubt.Key), zap.String("address", j.attempt.Address))
	w.settled(step)
	if j.Kind == delivery.Card {
		w.unpark([]delivery.Step{step})
	}
}

// scan asks the provider, or takes the answer of a look-up that began when this one was due already.
func (w *Worker) scan(j *job) (found delivery.Reference, l delivery.Look, result string) {
	defer func() {
		if p := recover(); p != nil { // a fault of ours proves nothing
			w.o.Log.Error("a look-up panicked", zap.String("notifier", j.Notifier), zap.Any("panic", p), zap.ByteString("stack", debug.Stack()))
			found, l, result = delivery.Reference{}, delivery.Look{}, "incomplete"
		}
	}()
	if p, ok := w.rests.get(lookUpKey(j.notifier)); ok {
		return found, delivery.Look{RetryAfter: p.Left, Sentence: p.Sentence}, "incomplete"
	}
	s := j.search()
	r, later := w.lookAt(j, s)
	if s.Operation == delivery.OpReply && !later && r.Complete && r.Found[j.Doubt.Key].IsZero() {
		// A reply to a parent that was deleted stands in the channel, and so does one that was posted as a message of its own.
		r, later = w.lookAt(j, provider.Search{Operation: delivery.OpCreate, Address: s.Parent.Channel, Oldest: s.Oldest})
	}
	if later {
		return found, delivery.Look{RetryAfter: scanSpace}, "incomplete"
	}
	found = r.Found[j.Doubt.Key]
	l = delivery.Look{Found: found, Complete: r.Complete, Blind: r.Blind, RetryAfter: r.RetryAfter, Sentence: r.Sentence}
	switch {
	case !found.IsZero():
		result = "found"
	case r.Blind:
		result = "blind"
	case r.Complete:
		result = "absent"
	default:
		result = "incomplete"
	}
	return found, l, result
}

// lookAt is the look-up of one place, made now or by another delivery that was due when it began. later says that one was
// made a moment ago and does not cover this delivery: all that have come by then are covered by the next.
func (w *Worker) lookAt(j *job, s provider.Search) (r provider.Scan, later bool) {
	// What fell due by the database's clock is compared with it alone: this machine's may have stood still meanwhile, and an
	// answer from before the attempt would pass for one from after it.
	arrived := time.Now()
	place := w.scans.place(j.notifier.Account() + " " + string(s.Operation) + " " + s.Address + " " + s.Parent.Channel + " " + s.Parent.TS)
	place.mu.Lock()
	defer place.mu.Unlock()
	now := j.Now.Add(time.Since(j.asked))
	ahead := place.began.After(now) // the database's clock was set back
	if !place.began.Before(j.Due) && !ahead && !place.oldest.After(s.Oldest) {
		return place.result, false
	}
	if !place.began.IsZero() && !ahead && now.Sub(place.began) < scanSpace {
		return provider.Scan{}, true
	}
	end := time.Now().Add(scanMost)
	if last := j.asked.Add(j.lease - min(scanMargin, j.lease/4)); last.Before(end) {
		end = last
	}
	ctx, cancel := context.WithDeadline(w.questions, end)
	defer cancel()
	place.began, place.oldest = j.Now.Add(time.Since(arrived)), s.Oldest
	place.result = provider.Scan{}
	if scanner, ok := j.provider.(provider.Scanner); ok {
		place.result = scanner.Scan(ctx, s)
	}
	w.told(j, place.result)
	return place.result, false
}

// told lets others know what a look-up has met: rest that the provider asked for, and, once a notifier, what a person must
// mend so that look-ups are possible.
func (w *Worker) told(j *job, r provider.Scan) {
	if r.RetryAfter > 0 {
		ctx, cancel := w.write()
		defer cancel()
		p := store.Pause{
			Key: lookUpKey(j.notifier), Scope: store.ScopeLookUp, Account: j.notifier.Account(), Notifier: j.Notifier, Reason: "rate_limited", Code: r.Code,
			Sentence: "The provider has asked for rest between look-ups.",
		}
		if err := w.o.Store.Rest(ctx, p, r.RetryAfter); err != nil {
			w.o.Log.Warn("the rest between look-ups was not written", zap.Error(err))
		}
	}
	switch {
	case r.Complete:
		if _, was := w.blind.LoadAndDelete(j.Notifier); was {
			w.o.Log.Info("posts in doubt can be looked up again through a notifier", zap.String("notifier", j.Notifier))
		}
	case r.Blind:
		if _, said := w.blind.Swap(j.Notifier, time.Now()); !said {
			w.o.Log.Warn("posts in doubt can't be looked up through a notifier: they follow the policy, which can make a second message", zap.String("notifier", j.Notifier),
				zap.String("code", r.Code), zap.String("sentence", r.Sentence), zap.String("error", r.Error))
		}
	default:
		w.o.Log.Info("a look-up was not complete", zap.String("notifier", j.Notifier), zap.String("delivery", j.ID.String()), zap.String("code", r.Code), zap.String("error", r.Error))
	}
}
