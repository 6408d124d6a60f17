package worker

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

const (
	restEvery    = time.Second      // how late another replica may learn of a pause; begin asks the database in any case
	restDenied   = 15 * time.Minute // a destination that refuses for good is tried again after it
	breakerFirst = 30 * time.Second // until an account in trouble is asked for the first time
	breakerLook  = time.Minute      // how often what waits for an account looks by itself; the breaker's end brings it forward
	probeTimeout = 15 * time.Second
	probeTrust   = 10 * time.Minute // how long after a probe has closed a breaker another probe's word alone does not
)

// rests is what this replica knows of pauses, breakers and moved chats. It spares claims that begin would turn away; what
// is allowed is decided there.
type rests struct {
	mu    sync.Mutex
	keys  map[string]rest
	moved map[store.MovedChat]string // without MovedTo
	asked time.Time                  // before it was asked for
}

type rest struct {
	store.Pause
	end time.Time // by the local monotonic clock; zero: open
}

func newRests() *rests { return &rests{keys: map[string]rest{}, moved: map[store.MovedChat]string{}} }

// get is the pause of a key, with what is left of it.
func (r *rests) get(key string) (store.Pause, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, ok := r.keys[key]
	if !ok || p.Scope != store.ScopeAccount && !time.Now().Before(p.end) {
		return store.Pause{}, false
	}
	p.Left = time.Until(p.end)
	return p.Pause, true
}

// since says that all of it was asked for after a time.
func (r *rests) since(t time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked.After(t)
}

// to is where a chat has moved to, or itself.
func (r *rests) to(account, address string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for range 5 { // a chat moves once; a circle must not hold anybody up
		next, ok := r.moved[store.MovedChat{Account: account, Address: address}]
		if !ok {
			break
		}
		address = next
	}
	return address
}

// readRests learns what rests now, on whichever replica it was found.
func (w *Worker) readRests(ctx context.Context) error {
	asked := time.Now()
	pauses, err := w.o.Store.WorkPauses(ctx)
	if err != nil {
		return err
	}
	moved, err := w.o.Store.MovedChats(ctx)
	if err != nil {
		return err
	}
	now := time.Now()
	keys := make(map[string]rest, len(pauses))
	for _, p := range pauses {
		keys[p.Key] = rest{p, now.Add(p.Left)}
	}
	chats := make(map[store.MovedChat]string, len(moved))
	for _, m := range moved {
		chats[store.MovedChat{Account: m.Account, Address: m.Address}] = m.MovedTo
	}
	w.rests.mu.Lock()
	if asked.After(w.rests.asked) { // else somebody else knows better by now
		w.rests.keys, w.rests.moved, w.rests.asked = keys, chats, asked
	}
	w.rests.mu.Unlock()
	w.showRests(pauses)
	return nil
}

// showRests sets the gauges.
func (w *Worker) showRests(pauses []store.Pause) {
	f := w.o.File()
	for name, n := range f.Notifiers {
		open, resting := 0.0, 0.0
		for _, p := range pauses {
			switch {
			case p.Key == breakerKey(f, n):
				open = 1
			case p.Account == n.Account() && p.Scope == store.ScopeDestination:
				resting++
			}
		}
		w.o.Metrics.BreakerOpen.WithLabelValues(name).Set(open)
		w.o.Metrics.Pauses.WithLabelValues(name).Set(resting)
	}
}

// breakerKey names the breaker of a notifier's account. A new file is a new try: what was wrong may be mended by it.
func breakerKey(f *config.File, n config.Notifier) string { return n.Account() + "@" + f.Checksum }

// lookUpKey names the pause of an account's look-ups.
func lookUpKey(n config.Notifier) string { return n.Account() + "/look_up" }

// restLoop keeps the knowledge fresh and asks accounts in trouble, until the worker stops.
func (w *Worker) restLoop() {
	t := time.NewTicker(restEvery)
	defer t.Stop()
	failing := false
	for {
		ctx, cancel := w.write()
		err := w.readRests(ctx)
		cancel()
		if err != nil && !failing {
			w.o.Log.Warn("pauses were not read; begin asks the database for each call", zap.Error(err))
		}
		if failing = err != nil; !failing {
			w.probe()
		}
		select {
		case <-w.stopping:
			return
		case <-t.C:
		}
	}
}

// keptBack is the step of a delivery whose account or destination rests; nil: it may go. What was known before the claim is
// asked for again: a person's word, a probe or a trial may have brought the delivery forward, and the pause is over.
func (w *Worker) keptBack(j *job) *delivery.Step {
	step := w.kept(j)
	if step == nil || w.rests.since(j.asked) {
		return step
	}
	ctx, cancel := w.write()
	defer cancel()
	if err := w.readRests(ctx); err != nil {
		w.o.Log.Warn("pauses were not read, giving back", zap.String("delivery", j.ID.String()), zap.Error(err))
		s := j.GiveBack(retryPause, j.Reason)
		return &s
	}
	return w.kept(j)
}

// kept is keptBack by what is known.
func (w *Worker) kept(j *job) *delivery.Step {
	if p, ok := w.rests.get(j.breaker); ok && p.Trial != j.ID {
		s := j.Queued(j.facts, breakerLook, "", p.Reason, p.Sentence)
		return &s
	}
	if p, ok := w.rests.get(j.attempt.Queue); ok {
		reason := "paused"
		if p.Reason == "rate_limited" {
			reason = p.Reason
		}
		s := j.Queued(j.facts, p.Left, j.attempt.Queue, reason, p.Sentence)
		return &s
	}
	return nil
}

// takeTurns asks for the slots of a prepared batch, and returns the steps of those whose turn it is not.
func (w *Worker) takeTurns(batch []*job) (map[*job]delivery.Step, error) {
	var asks []store.Ask
	byID := map[[16]byte]*job{}
	for _, j := range batch {
		if b := j.notifier.Buckets(j.attempt.Address); len(b) > 0 {
			asks = append(asks, store.Ask{Delivery: j.Delivery, Queue: j.attempt.Queue, Buckets: b})
			byID[j.ID] = j
		}
	}
	if len(asks) == 0 {
		return nil, nil
	}
	ctx, cancel := w.write()
	defer cancel()
	turns, err := w.o.Store.Turns(ctx, asks)
	if err != nil {
		return nil, err
	}
	out := map[*job]delivery.Step{}
	for id, t := range turns {
		j := byID[id]
		if j.turn = t.Now; !t.Now {
			out[j] = j.Queued(j.facts, t.Wait, j.attempt.Queue, "rate_limited", "It waits for its turn: "+pacing(j.notifier)+".")
		}
	}
	return out, nil
}

// pacing says in words what a notifier's pace is.
func pacing(n config.Notifier) string {
	p := n.Pace
	switch {
	case !p.Destination.None():
		return fmt.Sprintf("the notifier's pace lets %d in %s go to one destination", p.Destination.Count, p.Destination.Per)
	case !p.Account.None():
		return fmt.Sprintf("the notifier's pace lets %d in %s go through one account", p.Account.Count, p.Account.Per)
	}
	return "its destination has a pace"
}

// noteRests writes what a batch of results says about destinations and accounts. It comes before the results themselves: once
// they stand, others of the same destination may be claimed, and none may go out while the provider has asked for rest. A
// crash between leaves the pause, and an attempt that is taken over as unknown.
func (w *Worker) noteRests(ctx context.Context, batch []*job) error {
	changed := false
	for _, j := range batch {
		r := j.result
		p := store.Pause{
			Key: j.attempt.Queue, Scope: store.ScopeDestination, Account: j.notifier.Account(), Notifier: j.Notifier, Destination: j.attempt.Address,
			Reason: r.Reason, Code: r.Code, Sentence: r.Sentence,
		}
		if r.Fault != delivery.FaultAccount {
			if err := w.tried(ctx, j); err != nil {
				return err
			}
		}
		var err error
		switch {
		case r.Evidence == delivery.NotCalled:
			continue
		case r.Fault == delivery.FaultThrottled:
			p.Sentence = "The provider has asked for rest."
			err = w.o.Store.Rest(ctx, p, max(r.RetryAfter, time.Second))
		case r.Fault == delivery.FaultDestination && j.attempt.Operation != delivery.OpEdit:
			err = w.o.Store.Rest(ctx, p, restDenied)
		case r.Fault == delivery.FaultMoved && r.MovedTo != "":
			err = w.o.Store.MoveChat(ctx, store.MovedChat{Account: p.Account, Address: j.attempt.Address, MovedTo: r.MovedTo})
		case r.Fault == delivery.FaultAccount:
			err = w.openBreaker(ctx, j, p)
		case r.Outcome == delivery.OutcomeUnknown && r.RetryAfter > 0:
			p.Reason, p.Sentence = "rate_limited", "The provider is not well and has asked for rest."
			err = w.o.Store.Rest(ctx, p, r.RetryAfter)
		default:
			continue
		}
		if err != nil {
			return err
		}
		changed = true
	}
	if changed {
		if err := w.readRests(ctx); err != nil { // begin asks the database: the result need not wait for it
			w.o.Log.Warn("pauses were not read", zap.Error(err))
		}
	}
	return nil
}

// openBreaker keeps back all that goes through the account of a call that it was refused for.
func (w *Worker) openBreaker(ctx context.Context, j *job, p store.Pause) error {
	// The file is the one that the call was made under: a newer one has breakers of its own.
	p.Key, p.Scope, p.Checksum, p.Destination = j.breaker, store.ScopeAccount, j.breaker[strings.LastIndexByte(j.breaker, '@')+1:], ""
	opened, err := w.o.Store.OpenBreaker(ctx, p, breakerFirst)
	if err == nil && opened {
		w.o.Log.Error("the account of a notifier refuses all calls: nothing is sent through it until it is mended", zap.String("notifier", j.Notifier),
			zap.String("reason", p.Reason), zap.String("sentence", p.Sentence))
		w.o.Dead() // its self-alert is due
	}
	return err
}

// tried closes the breaker after a trial that the account did not refuse.
func (w *Worker) tried(ctx context.Context, j *job) error {
	p, open := w.rests.get(j.breaker)
	if !open || p.Trial != j.ID || j.result.Evidence != delivery.Answered {
		return nil
	}
	return w.closeBreaker(ctx, p)
}

func (w *Worker) closeBreaker(ctx context.Context, p store.Pause) error {
	closed, waiting, err := w.o.Store.CloseBreaker(ctx, p.Key, w.sharing(p.Account))
	if err != nil {
		return err
	}
	if closed {
		w.o.Log.Info("the account of a notifier is well again", zap.String("notifier", p.Notifier), zap.Int("deliveries", waiting))
	}
	w.marks.lower(time.Time{})
	w.poke()
	return w.readRests(ctx)
}

// sharing are the notifiers that send through an account.
func (w *Worker) sharing(account string) []string {
	var names []string
	for name, n := range w.o.File().Notifiers {
		if n.Account() == account {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// probe asks accounts in trouble whose time has come. What a probe can't prove one delivery tries.
func (w *Worker) probe() {
	f := w.o.File()
	var keys []string
	for _, n := range f.Notifiers {
		if _, open := w.rests.get(breakerKey(f, n)); open {
			keys = append(keys, breakerKey(f, n))
		}
	}
	if len(keys) == 0 {
		return
	}
	ctx, cancel := w.write()
	due, err := w.o.Store.TakeProbes(ctx, keys)
	cancel()
	if err != nil {
		w.o.Log.Warn("accounts in trouble were not asked", zap.Error(err))
		return
	}
	for _, p := range due {
		if err := w.ask(p); err != nil {
			w.o.Log.Warn("an account in trouble was not asked", zap.String("notifier", p.Notifier), zap.Error(err))
		}
	}
}

func (w *Worker) ask(p store.Pause) error {
	names := w.sharing(p.Account)
	if len(names) == 0 {
		return nil
	}
	r := delivery.Result{Outcome: delivery.OutcomeUnknown, Evidence: delivery.Answered}
	if made, ok := w.o.Provider(names[0]); ok {
		if prober, can := made.(provider.Prober); can {
			ctx, cancel := context.WithTimeout(w.questions, probeTimeout)
			r = w.askSafely(ctx, prober, p)
			cancel()
		}
	}
	w.o.Log.Info("asked whether an account is well again", zap.String("notifier", names[0]), zap.String("outcome", string(r.Outcome)), zap.String("code", r.Code), zap.String("error", r.Error))
	ctx, cancel := w.write()
	defer cancel()
	switch {
	case r.Outcome == delivery.OutcomeSent:
		// A probe that says well while calls are refused would open and close the breaker for ever, each time with a new alert:
		// the second time within a while one delivery must prove it.
		if last, was := w.mended.Swap(p.Key, time.Now()); !was || time.Since(last.(time.Time)) > probeTrust {
			return w.closeBreaker(ctx, p)
		}
	case r.Fault == delivery.FaultAccount, r.Evidence != delivery.Answered, r.HTTPStatus >= 500, r.Fault == delivery.FaultThrottled:
		return nil // it is not, or nobody could say
	}
	waits, err := w.o.Store.Try(ctx, p.Key, names)
	if err == nil && !waits {
		return w.closeBreaker(ctx, p) // nobody waits: the next one tries
	}
	w.poke()
	return err
}

func (w *Worker) askSafely(ctx context.Context, prober provider.Prober, p store.Pause) (r delivery.Result) {
	defer func() {
		if v := recover(); v != nil { // a fault of ours: the breaker stays as it is
			w.o.Log.Error("a probe panicked", zap.String("notifier", p.Notifier), zap.Any("panic", v))
			r = delivery.Result{Outcome: delivery.OutcomeUnknown}
		}
	}()
	return prober.Probe(ctx, p.Code)
}
