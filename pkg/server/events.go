package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	topic "github.com/tocsin-oncall/tocsin/pkg/route"
)

const (
	eventsPath   = "/v1/events"
	earBeat      = 15 * time.Second // a comment, so that nobody between takes the stream for dead; the token is looked at again
	earWrite     = 10 * time.Second // longest that a listener may take to take a chunk
	earChunk     = 32 << 10         // bytes that are written at once
	maxTopics    = 20
	maxTopicSize = 500
)

func (s *Server) eventRoutes() {
	route(s, http.MethodGet, eventsPath, api.ScopeRead, "Hear what happens, as server-sent events", http.StatusOK, s.listen)
}

type eventsInput struct {
	Topic []string `query:"topic,explode" doc:"A pattern as routes have it; may be given several times. Left out: everything."`
	Last  string   `header:"Last-Event-ID" maxLength:"20" doc:"The id of the last event that was heard: what came after it is sent first."`
}

// listen streams what happens. What is wrong with the request is answered as a problem; from the first line on, the stream itself says what
// goes wrong.
func (s *Server) listen(ctx context.Context, in *eventsInput) (*huma.StreamResponse, error) {
	const doing = "listening"
	if s.stopping() {
		return nil, problem(http.StatusServiceUnavailable, api.ProblemStopping, earFull{true}.Error())
	}
	topics, err := patterns(in.Topic)
	if err != nil {
		return nil, err
	}
	var after int64
	if in.Last != "" {
		if after, err = strconv.ParseInt(in.Last, 10, 64); err != nil || after < 0 {
			p := problem(http.StatusUnprocessableEntity, "", doing+": the request is wrong")
			p.Errors = []api.ProblemItem{{Location: "header.Last-Event-ID", Message: "it is not the id of an event"}}
			return nil, p
		}
	}
	l, position, err := s.ear.join(ctx, topics)
	var full earFull
	if errors.As(err, &full) {
		return nil, huma.ErrorWithHeaders(problem(http.StatusServiceUnavailable, "", full.Error()), http.Header{"Retry-After": {"5"}})
	}
	if err != nil {
		return nil, s.fail(ctx, doing, err)
	}
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		defer s.ear.leave(l)
		r, w := humago.Unwrap(hc)
		out := &stream{w: w, rc: http.NewResponseController(w)}
		// The listener says nothing more; the server's bound on reading would end its request.
		_ = out.rc.SetReadDeadline(time.Time{})
		h := w.Header()
		h.Set("Content-Type", "text/event-stream")
		h.Set("X-Accel-Buffering", "no")
		w.WriteHeader(http.StatusOK)
		if err := out.comment("listening"); err != nil {
			return
		}
		if in.Last != "" {
			if after, err = s.catchUp(r.Context(), out, l, after, position); err != nil {
				return
			}
		}
		s.pass(r.Context(), out, l, after, r.Header.Get("Authorization"))
	}}, nil
}

func patterns(texts []string) ([]topic.Pattern, error) {
	if len(texts) == 0 {
		texts = []string{"#"}
	}
	wrong := func(i int, why string) error {
		p := problem(http.StatusUnprocessableEntity, "", "listening: the request is wrong")
		p.Errors = []api.ProblemItem{{Location: fmt.Sprintf("query.topic[%d]", i), Message: why}}
		return p
	}
	var out []topic.Pattern
	for i, t := range texts {
		if i >= maxTopics || len(t) > maxTopicSize {
			return nil, wrong(i, fmt.Sprintf("at most %d patterns of at most %d bytes each", maxTopics, maxTopicSize))
		}
		p, err := topic.ParsePattern(t)
		if err != nil {
			return nil, wrong(i, err.Error())
		}
		out = append(out, p)
	}
	return out, nil
}

// catchUp sends what came after an event that was heard, up to the position from which the ear hands on. It returns up to where
// the listener has heard: further than this replica's ear, perhaps, since another one was quicker.
func (s *Server) catchUp(ctx context.Context, out *stream, l *listener, after, position int64) (int64, error) {
	unavailable := func() (int64, error) {
		return after, out.end("unavailable", "the database does not answer: connect again with Last-Event-ID to go on")
	}
	first, last, err := s.store.EventBounds(ctx)
	if err != nil {
		return unavailable()
	}
	if after+1 < first || after > last {
		missed := word(api.EventMissed, "too_old", "some of what came after this id is not kept any more: look at the incidents and deliveries")
		if err := out.events(missed); err != nil {
			return after, err
		}
		after = min(after, last)
	}
	heardTo := after
	for after < position {
		page, err := s.ear.read(ctx, after)
		if err != nil {
			return unavailable()
		}
		var some []heard
		for _, e := range page {
			if h := of(e); e.ID <= position && l.wants(h) {
				some = append(some, h)
			}
			after = e.ID
		}
		if err := out.events(some...); err != nil {
			return after, err
		}
		if len(page) < earPage {
			break
		}
	}
	return heardTo, nil
}

// pass hands events on until the listener leaves or is dropped. What it has heard by number is not said again.
func (s *Server) pass(ctx context.Context, out *stream, l *listener, heardTo int64, token string) {
	beat := time.NewTicker(earBeat)
	defer beat.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case h, open := <-l.events:
			if !open {
				_ = out.events(l.why)
				return
			}
			some := []heard{h}
			for more := true; more && len(some) < earPage; {
				select {
				case h, open := <-l.events:
					if more = open; open {
						some = append(some, h)
					}
				default:
					more = false
				}
			}
			some = slices.DeleteFunc(some, func(h heard) bool { return h.id <= heardTo })
			err = out.events(some...)
		case <-beat.C:
			if _, p := s.admit(ctx, token, api.ScopeRead); p != nil && p.Status != http.StatusServiceUnavailable {
				_ = out.end("refused", p.Detail)
				return
			}
			err = out.comment("still here")
		}
		if err != nil {
			return
		}
	}
}

// stream writes server-sent events. An error means that the listener is gone, or takes too long.
type stream struct {
	w  http.ResponseWriter
	rc *http.ResponseController
}

func (o *stream) write(b []byte) error {
	if err := o.rc.SetWriteDeadline(time.Now().Add(earWrite)); err != nil {
		return err
	}
	if _, err := o.w.Write(b); err != nil {
		return err
	}
	return o.rc.Flush()
}

func (o *stream) comment(text string) error { return o.write([]byte(": " + text + "\n\n")) }

func (o *stream) events(all ...heard) error {
	if len(all) == 0 {
		return nil
	}
	var b bytes.Buffer
	for _, h := range all {
		if h.id > 0 {
			fmt.Fprintf(&b, "id: %d\n", h.id)
		}
		fmt.Fprintf(&b, "event: %s\ndata: %s\n\n", h.name, h.data) // JSON has no line break of its own
		if b.Len() < earChunk {
			continue
		}
		if err := o.write(b.Bytes()); err != nil {
			return err
		}
		b.Reset()
	}
	if b.Len() == 0 {
		return nil
	}
	return o.write(b.Bytes())
}

// errEnded is a stream that has said its last word.
var errEnded = errors.New("the stream is ended")

// end says why the stream ends.
func (o *stream) end(reason, detail string) error {
	_ = o.events(word(api.EventDropped, reason, detail))
	return errEnded
}

// Hear hands out live events until ctx ends.
func (s *Server) Hear(ctx context.Context) { s.ear.run(ctx) }

// Rung says that something happened here or on another replica: those who listen are told at once.
func (s *Server) Rung() { s.ear.ring() }

// HangUp ends all live streams with a word and lets nobody in any more.
func (s *Server) HangUp() { s.ear.close() }
