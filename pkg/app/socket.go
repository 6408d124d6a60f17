package app

import (
	"context"
	"errors"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/provider"
	"github.com/tocsin-oncall/tocsin/pkg/provider/slack"
)

// socketSlow is the rest after a refusal that a person must mend.
const socketSlow = time.Minute

// socketed is a provider that holds a connection through which people are heard.
type socketed interface {
	Socket(ctx context.Context, up func(), take func(context.Context, provider.Said) error) error
}

// socket holds a Socket Mode connection until ctx ends, and opens another one when it ends. Every replica holds its own: Slack gives each
// event to one of them.
func (r *receivers) socket(ctx context.Context, w receiving, p socketed) {
	take := func(ctx context.Context, said provider.Said) error { return r.app.server.Take(ctx, w.notifier, said) }
	pause := time.Duration(0)
	for ctx.Err() == nil {
		err := p.Socket(ctx, func() {
			pause = 0
			r.stand(ctx, w, "connected", "Socket Mode")
		}, take)
		if ctx.Err() != nil {
			return
		}
		var e *slack.SocketError
		if errors.As(err, &e) && e.Soon && pause == 0 {
			pause = restLeast // another one that ends at once is rested for
			continue
		}
		r.stand(ctx, w, "failed", err.Error())
		if pause = longer(pause); e != nil && e.Slow {
			pause = socketSlow
		}
		rest(ctx, pause)
	}
}
