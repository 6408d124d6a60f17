package worker

import (
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// finishLoop writes results: one writer, each time all that has come meanwhile.
func (w *Worker) finishLoop() {
	for {
		batch := gather(w.ends, claimMost)
		if batch == nil {
			return
		}
		for _, j := range batch {
			clean(&j.result)
		}
		w.finish(batch)
	}
}

// finish records a batch until it stands. A known answer is never thrown away: the tries go on past a shutdown's
// grace, with a deadline of their own that is Stop's.
func (w *Worker) finish(batch []*job) {
	for try := 0; len(batch) > 0; try++ {
		rest, err := w.finishOnce(batch)
		batch = rest // what was recorded has left, also where the rest failed
		if err == nil {
			try = -1
			continue
		}
		if store.Refused(err) || store.Locked(err) {
			// One row that the database refuses, or that somebody holds, must not hold up the others: each for itself.
			if len(batch) == 1 {
				w.aside.Go(func() { w.insist(batch[0]) })
				return
			}
			for _, j := range batch {
				w.finish([]*job{j})
			}
			return
		}
		w.o.Log.Warn("recording results failed, trying again", zap.Error(err), zap.Int("results", len(batch)))
		w.rest(backoff(max(try, 0)))
	}
}

// insist goes on trying to record a result that the database refuses, or whose row somebody holds, beside the loop. One
// that is refused is given up when its lease is over: whoever takes the row over calls the attempt unknown.
func (w *Worker) insist(j *job) {
	for try := 0; ; try++ {
		w.rest(backoff(try))
		rest, err := w.finishOnce([]*job{j})
		switch {
		case err == nil && len(rest) == 0:
			return
		case store.Refused(err) && time.Since(j.asked) > j.lease:
			w.o.Log.Error("a result is refused by the database, its attempt will be taken over as unknown", append(j.fields(), zap.NamedError("refusal", err))...)
			w.leave(j)
			return
		}
	}
}

// finishOnce writes a batch once and returns what must be decided again: rows on which something was noted meanwhile.
func (w *Worker) finishOnce(batch []*job) ([]*job, error) {
	ctx, cancel := w.write()
	defer cancel()
	if err := w.noteRests(ctx, batch); err != nil {
		return batch, err
	}
	in := make([]store.Finished, len(batch))
	for i, j := range batch {
		in[i] = j.finished()
	}
	done, err := w.o.Store.Finish(ctx, w.o.ID, in)
	if err != nil {
		return batch, err
	}
	var moved []*job
	written := map[*job]delivery.Step{}
	for i, j := range batch {
		if !done[j.ID] {
			moved = append(moved, j)
			continue
		}
		written[j] = in[i].Step
	}
	w.written(written)
	if len(moved) == 0 {
		return nil, nil
	}
	return w.moved(moved)
}

// written does what follows results that stand.
func (w *Worker) written(steps map[*job]delivery.Step) {
	var cards []delivery.Step
	dead, soon := false, false
	for j, s := range steps {
		w.recorded(j, s)
		dead = dead || s.To().Dead()
		soon = soon || (s.To() == delivery.Pending && s.Change().Delay == 0)
		if j.Kind == delivery.Card {
			cards = append(cards, s)
		}
		w.leave(j)
	}
	w.unpark(cards)
	if dead {
		w.o.Dead()
	}
	if soon {
		w.poke()
	}
}

// moved sorts rows that did not take their result: those still ours are decided again on what they say now, under their locks;
// for the others the lease is gone, and the answer is kept as late evidence. It returns what has neither, with the error.
func (w *Worker) moved(jobs []*job) ([]*job, error) {
	ctx, cancel := w.write()
	defer cancel()
	ids, byID := make([]uuid.UUID, len(jobs)), map[uuid.UUID]*job{}
	for i, j := range jobs {
		ids[i], byID[j.ID] = j.ID, j
	}
	done, err := w.o.Store.FinishAnew(ctx, w.o.ID, ids, func(d delivery.Delivery) (store.Finished, bool) {
		j := byID[d.ID]
		if d.Token != j.Token || d.OpenAttempt != j.attempt.ID {
			return store.Finished{}, false
		}
		j.Delivery = d
		return j.finished(), true
	})
	if err != nil {
		return jobs, err
	}
	written := map[*job]delivery.Step{}
	for id, f := range done {
		written[byID[id]] = f.Step
	}
	w.written(written)
	for i, j := range jobs {
		if _, ok := written[j]; ok {
			continue
		}
		if err := w.late(j); err != nil {
			return slices.DeleteFunc(slices.Clone(jobs[i:]), func(j *job) bool { _, ok := written[j]; return ok }), err
		}
		w.leave(j)
	}
	return nil, nil
}

// late keeps an answer whose lease is gone. Nobody is alarmed: the history explains it.
func (w *Worker) late(j *job) error {
	ctx, cancel := w.write()
	defer cancel()
	recorded, settled, err := w.o.Store.Late(ctx, w.o.ID, j.finished(), func(d delivery.Delivery, a delivery.Attempt) (delivery.Step, bool) {
		return d.Late(j.env, a, j.result.Outcome, j.result.Reference)
	})
	if err != nil {
		return err
	}
	if !recorded {
		// It stood there already: only the answer to an earlier commit was lost, and what follows a result with it.
		s := j.finished().Step
		if s.To().Dead() {
			w.o.Dead()
		}
		if j.Kind == delivery.Card {
			w.unpark([]delivery.Step{s})
		}
		return nil
	}
	w.o.Metrics.Fenced.Inc()
	w.o.Metrics.Late.WithLabelValues(string(j.result.Outcome)).Inc()
	w.o.Log.Info("answer came after its lease was lost, kept as late evidence", append(j.fields(), zap.Bool("settled", settled))...)
	if settled {
		if j.Kind == delivery.Card {
			w.unpark([]delivery.Step{j.finished().Step})
		}
		w.poke()
	}
	return nil
}

func (j *job) finished() store.Finished {
	return store.Finished{Step: j.Finish(j.env, j.attempt, j.result), Attempt: j.attempt, Result: j.result, ClosedBy: j.closedBy}
}

// unpark lets pages and threads go that wait for the first attempt of these cards. A crash before it costs them their
// bound, no more.
func (w *Worker) unpark(cards []delivery.Step) {
	var incidents, ids []uuid.UUID
	for _, s := range cards {
		if s.From().Reference.IsZero() {
			incidents, ids = append(incidents, s.From().IncidentID), append(ids, s.From().ID)
		}
	}
	if len(ids) == 0 {
		return
	}
	ctx, cancel := w.write()
	defer cancel()
	free, err := w.o.Store.Unpark(ctx, incidents, ids)
	if err != nil {
		w.o.Log.Warn("pages and threads of a card could not be brought forward, their bound does it", zap.Error(err))
		return
	}
	if len(free) > 0 {
		w.poke()
	}
}

// clean makes a result fit for a row: a provider may answer with anything.
func clean(r *delivery.Result) {
	*r = r.Proven()
	for _, s := range []*string{&r.Reason, &r.Sentence, &r.Code, &r.Error, &r.Answer, &r.Reference.Channel, &r.Reference.TS, &r.Reference.SID, &r.Reference.Permalink} {
		*s = strings.ReplaceAll(strings.ToValidUTF8(*s, "\uFFFD"), "\x00", "\uFFFD")
	}
}
