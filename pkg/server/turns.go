package server

import (
	"context"
	"time"
)

// turnWait is how long an alert may wait for its turn: well below the shortest timeout that a source is known to have.
const turnWait = time.Second

// maxAtOnce is how many incidents of one message may be written at once.
const maxAtOnce = 8

// turns is how many alerts may be taken at once: most of the database's connections, so that answers of people and the
// scheduler find one also in a storm.
func turns(connections int) int { return max(connections*3/4, 1) }

// turn lets an alert in when fewer than that are being taken, and refuses it with a 503 when none of them is done soon.
//
// In a storm the database takes only so many alerts a second. If all were let in, they would stand in line for its
// connections until their sources give up and send again: then the line holds nothing but requests whose sources have
// left, each breaks off a transaction and with it a connection, and next to nothing is taken any more. Who is refused at
// once comes again, and finds room.
func (s *Server) turn(ctx context.Context) (leave func(), err error) {
	leave = func() { <-s.turns }
	select {
	case s.turns <- struct{}{}:
		return leave, nil
	default:
	}
	t := time.NewTimer(turnWait)
	defer t.Stop()
	select {
	case s.turns <- struct{}{}:
		return leave, nil
	case <-t.C:
	case <-ctx.Done():
	}
	return nil, comeAgain("more alerts come in at this moment than the database takes: send it again")
}

// moreTurns takes up to most turns more, as far as nobody else needs them: a message with a thousand incidents is not done
// within its sender's patience one by one.
func (s *Server) moreTurns(most int) (got int, leave func()) {
	for ; got < most; got++ {
		select {
		case s.turns <- struct{}{}:
			continue
		default:
		}
		break
	}
	return got, func() {
		for range got {
			<-s.turns
		}
	}
}
