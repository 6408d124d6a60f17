package worker

import (
	"context"
	"runtime/debug"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
)

// The search for a person's account: how long one may take, and how long it rests after one to which the chat gave no answer. That says
// nothing of the person, so nothing dies of it; a page that waits longer than its bound is overdue, and its escalation goes on without it.
const (
	findTimeout = 4 * time.Second
	findRest    = time.Second // at first; it grows with the delivery's age
	findRests   = time.Minute // the longest
)

// find looks for the account of a person who is to be called and has none that this replica knows: it may have been linked a moment
// ago, through another one, or the chat may know it by the person's e-mail address. Found, the delivery goes back and is prepared anew;
// else there is nowhere to send.
func (w *Worker) find(j *job) {
	step := j.Unreachable(j.missing.Reason, j.missing.Sentence)
	found, err := w.found(j)
	switch {
	case found:
		step = j.GiveBack(0, "")
	case w.questions.Err() != nil: // it was cut by a stop: another replica looks
		step = j.GiveBack(0, "")
	case err != nil:
		w.o.Log.Warn("whose account it is could not be asked", zap.String("delivery", j.ID.String()), zap.String("notifier", j.Notifier), zap.String("user", j.missing.UserID), zap.Error(err))
		sentence := "The chat does not say which account is theirs (" + w.o.Redact(err.Error()) + "): it is asked again. " + j.missing.Sentence
		step = j.Queued(j.facts, min(max(findRest, j.Now.Sub(j.CreatedAt)/2), findRests), "", j.missing.Reason, sentence)
	}
	w.settle([]delivery.Step{step}, map[uuid.UUID]*job{j.ID: j})
	w.poke()
}

func (w *Worker) found(j *job) (ok bool, err error) {
	defer func() {
		if p := recover(); p != nil { // a fault of ours: nobody was found
			w.o.Log.Error("a look-up panicked", zap.String("notifier", j.Notifier), zap.Any("panic", p), zap.ByteString("stack", debug.Stack()))
			ok = false
		}
	}()
	ctx, cancel := context.WithTimeout(w.questions, findTimeout)
	defer cancel()
	return w.o.Find(ctx, j.Notifier, j.missing.UserID)
}
