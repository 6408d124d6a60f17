package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// Notify rings the listeners of a channel. It is a statement of its own: inside the accepting transaction it would
// make all commits of the database wait for each other.
func (s *Store) Notify(ctx context.Context, channel, payload string) error {
	return s.q.Notify(ctx, channel, payload)
}

// Listen hears a channel on a connection of its own, which it takes from url: a pooler between would lose it. It calls
// ready each time that it listens (anew), since what was rung before is lost, and hear for each payload. It returns
// when ctx ends; a lost connection is taken up again after pause.
func Listen(ctx context.Context, url, channel string, pause time.Duration, ready func(), hear func(payload string), lost func(error)) {
	for ctx.Err() == nil {
		err := listen(ctx, url, channel, ready, hear)
		if ctx.Err() != nil {
			return
		}
		lost(plain(err))
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

func listen(ctx context.Context, url, channel string, ready func(), hear func(string)) error {
	c, err := pgx.ParseConfig(url)
	if err != nil {
		return err
	}
	c.ConnectTimeout = connectTimeout
	conn, err := pgx.ConnectConfig(ctx, c)
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closing)
	}()
	if _, err := conn.Exec(ctx, "listen "+pgx.Identifier{channel}.Sanitize()); err != nil {
		return err
	}
	ready()
	for {
		// A half-open connection says nothing for ever: look at it now and then.
		wait, cancel := context.WithTimeout(ctx, listenCheck)
		n, err := conn.WaitForNotification(wait)
		cancel()
		switch {
		case err == nil:
			hear(n.Payload)
		case ctx.Err() != nil:
			return ctx.Err()
		case wait.Err() != nil && !conn.IsClosed():
			check, cancel := context.WithTimeout(ctx, connectTimeout)
			err := conn.Ping(check)
			cancel()
			if err != nil {
				return err
			}
		default:
			return err
		}
	}
}

// listenCheck is how often a silent listening connection is asked whether it still lives.
const listenCheck = 15 * time.Second
