package app

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/tocsin-oncall/tocsin/pkg/provider/telegram"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// A bot is polled by one replica, whose turn is a lease in the database: when it dies, another one begins within pollTurn and pollLook.
const (
	pollTurn  = 8 * time.Second
	pollRenew = 2 * time.Second
	pollLook  = 2 * time.Second // between two looks at whether the turn is free
	pollSure  = 2 * time.Second // before its end the turn is not trusted any more
)

// poller is a provider that asks for what people do.
type poller interface {
	Poll(ctx context.Context, from int64) (telegram.Polled, error)
}

// poll polls a bot whenever it is this replica's turn, until ctx ends.
func (r *receivers) poll(ctx context.Context, w receiving, p poller) {
	turn := store.Poll{Account: w.account, Token: uuid.New(), Holder: r.app.id}
	pause := time.Duration(0)
	for ctx.Err() == nil {
		asked := time.Now()
		next, held, err := r.holdPoll(ctx, turn)
		switch {
		case err != nil:
			r.stand(ctx, w, "failed", "the database does not say whose turn it is: "+err.Error())
			pause = longer(pause)
			rest(ctx, pause)
		case !held:
			r.waits(ctx, w)
			rest(ctx, pollLook)
		default:
			if pause = r.turn(ctx, w, p, turn, asked, next, pause); pause > 0 {
				// The turn is kept meanwhile: another replica would fare no better, and Telegram wants one that asks.
				r.hold(ctx, turn, pause)
			}
		}
	}
	leave, cancel := context.WithTimeout(context.WithoutCancel(ctx), loopTimeout)
	defer cancel()
	if err := r.app.store.LeavePoll(leave, turn); err != nil {
		r.app.log.Debug("the turn at polling runs out by itself", zap.Error(err))
	}
}

func (r *receivers) holdPoll(ctx context.Context, turn store.Poll) (int64, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, pollRenew)
	defer cancel()
	return r.app.store.HoldPoll(ctx, turn, pollTurn)
}

func (r *receivers) waits(ctx context.Context, w receiving) {
	who, err := r.app.store.PollHolder(ctx, w.account)
	if err != nil || who == "" {
		who = "another replica"
	}
	r.stand(ctx, w, "waiting", who+" polls")
}

// hold keeps the turn for a while without asking.
func (r *receivers) hold(ctx context.Context, turn store.Poll, d time.Duration) {
	for until := time.Now().Add(d); ctx.Err() == nil && time.Now().Before(until); {
		if !rest(ctx, min(pollRenew, time.Until(until))) {
			return
		}
		if _, held, err := r.holdPoll(ctx, turn); err != nil || !held {
			return
		}
	}
}

// turn polls while the turn is this replica's, and returns how long to rest before the next try; zero: the turn is over.
func (r *receivers) turn(ctx context.Context, w receiving, p poller, turn store.Poll, asked time.Time, next int64, pause time.Duration) time.Duration {
	own, lost := context.WithCancel(ctx)
	defer lost()
	renewed := make(chan struct{})
	go func() {
		defer close(renewed)
		defer lost()
		r.renew(own, turn, asked)
	}()
	defer func() { lost(); <-renewed }()
	for own.Err() == nil {
		got, err := p.Poll(own, next)
		switch {
		case own.Err() != nil: // cut: whoever polls next gets the same
			return 0
		case err != nil:
			r.stand(ctx, w, "failed", err.Error())
			var e *telegram.PollError
			if errors.As(err, &e) && e.Rest > 0 {
				return e.Rest
			}
			return longer(pause)
		}
		r.stand(ctx, w, "connected", "it polls")
		pause = 0
		for _, why := range got.Skipped {
			r.app.log.Warn("an update of Telegram was skipped", zap.String("notifier", w.notifier), zap.String("why", why))
		}
		if got.Next == next {
			continue
		}
		if err := r.app.server.TakePolled(own, w.notifier, turn, got.Next, got.Said); err != nil {
			if errors.Is(err, store.ErrFenced) || own.Err() != nil {
				return 0
			}
			r.stand(ctx, w, "failed", "what it brought could not be stored, and is asked for again: "+err.Error())
			return longer(pause)
		}
		next = got.Next // asking from here on is what confirms all before it, and all of that is stored
	}
	return 0
}

// renew keeps the turn until it is lost, can't be kept for too long, or ctx ends. How long it is trusted is measured from before it was
// asked for.
func (r *receivers) renew(ctx context.Context, turn store.Poll, asked time.Time) {
	for rest(ctx, pollRenew) {
		now := time.Now()
		_, held, err := r.holdPoll(ctx, turn)
		switch {
		case err == nil && held:
			asked = now
		case err == nil:
			return
		case time.Since(asked) > pollTurn-pollSure-pollRenew:
			return
		}
	}
}
