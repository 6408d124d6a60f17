package worker

import (
	"context"
	"runtime/debug"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
)

// findTimeout bounds the search for a person's account, findFor how long one that can't be made is tried again: a page that is held up
// for longer is better off with the next way.
const (
	findTimeout = 4 * time.Second
	findFor     = 5 * time.Second
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
		if j.Now.Sub(j.CreatedAt) < findFor {
			step = j.GiveBack(time.Second, "")
		}
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
