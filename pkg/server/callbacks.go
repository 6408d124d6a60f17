package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/provider"
	"github.com/tocsin-oncall/tocsin/pkg/provider/slack"
	"github.com/tocsin-oncall/tocsin/pkg/provider/telegram"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

const (
	// answerWithin is how long a chat that calls waits for its answer: Slack shows an error to whoever pressed after three seconds.
	answerWithin = 900 * time.Millisecond
	// receiveTimeout bounds the one write of a chat that gives again what was not stored.
	receiveTimeout = 2 * time.Second
	// receiveFor bounds it where the chat does not: the answer does not wait for it.
	receiveFor = 10 * time.Second
	// receivePause lies between two tries to write, while the database is not there.
	receivePause = 100 * time.Millisecond
)

// slackInteraction takes a press on a button in Slack.
func (s *Server) slackInteraction(w http.ResponseWriter, r *http.Request) {
	s.slackCallback(w, r, func(raw []byte) (provider.Said, error) {
		p, err := slack.ParseInteraction(raw)
		return p.Said(), err
	})
}

// slackCommand takes what was written after /tocsin.
func (s *Server) slackCommand(w http.ResponseWriter, r *http.Request) {
	s.slackCallback(w, r, slack.ParseCommand)
}

// slackCallback checks, stores and answers. Slack wants an answer soon and does not ask again: while the database is slow or away, what
// was done is answered and stored as soon as it can be, and whoever did it is told privately when it could not.
func (s *Server) slackCallback(w http.ResponseWriter, r *http.Request, parse func([]byte) (provider.Said, error)) {
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		writeProblem(w, problem(http.StatusRequestEntityTooLarge, "", "the callback is too large"))
		return
	}
	notifier, err := s.signer(r.Header, raw)
	if err != nil {
		s.log.Warnw("a Slack callback was refused", "error", err)
		writeProblem(w, problem(http.StatusUnauthorized, "", err.Error()))
		return
	}
	said, err := parse(raw)
	if errors.Is(err, slack.ErrNoPress) {
		w.WriteHeader(http.StatusOK)
		return
	}
	if err != nil {
		writeProblem(w, problem(http.StatusBadRequest, "", s.redact(err.Error())))
		return
	}
	stored := make(chan struct{})
	s.whispers.Go(func() {
		defer close(stored)
		if err := s.keep(context.WithoutCancel(r.Context()), receiveFor, notifier, said); err != nil {
			s.whisper(notifier, said.To, answer{text: notStored})
		}
	})
	late := time.NewTimer(answerWithin)
	defer late.Stop()
	select {
	case <-stored:
	case <-late.C:
	}
	w.WriteHeader(http.StatusOK)
}

// signer is the Slack notifier whose signing secret signed the callback. Several notifiers may be one app; the one with
// a token and the first name answers for all.
func (s *Server) signer(header http.Header, raw []byte) (string, error) {
	f := s.file()
	names := make([]string, 0, len(f.Notifiers))
	for name, n := range f.Notifiers {
		if n.Type == "slack" && n.SigningSecret != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	err := errors.New("no slack notifier of the file has a signing_secret: give it one, or callbacks can't be trusted")
	for _, name := range names {
		if err = slack.VerifySignature(f.Notifiers[name].SigningSecret, header, raw, time.Now()); err == nil {
			return name, nil
		}
	}
	return "", err
}

// telegramUpdate takes an update of a bot. Telegram repeats what it gets no 2xx for, so what could not be stored is simply asked
// for again.
func (s *Server) telegramUpdate(w http.ResponseWriter, r *http.Request) {
	notifier := r.PathValue("notifier")
	n, ok := s.file().Notifiers[notifier]
	if !ok || n.Type != "telegram" {
		writeProblem(w, problem(http.StatusNotFound, "", "the file has no telegram notifier of that name"))
		return
	}
	if err := telegram.VerifySecret(r.Header, n.WebhookSecret); err != nil {
		s.log.Warnw("a Telegram callback was refused", "notifier", notifier, "error", err)
		writeProblem(w, problem(http.StatusUnauthorized, "", err.Error()))
		return
	}
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		writeProblem(w, problem(http.StatusRequestEntityTooLarge, "", "the update is too large"))
		return
	}
	said, err := telegram.Heard(n.Token, raw)
	if errors.Is(err, telegram.ErrNoPress) {
		w.WriteHeader(http.StatusOK)
		return
	}
	if err != nil {
		writeProblem(w, problem(http.StatusBadRequest, "", s.redact(err.Error())))
		return
	}
	if err := s.keep(r.Context(), answerWithin, notifier, said); err != nil {
		writeProblem(w, problem(http.StatusServiceUnavailable, "", "it could not be stored: send it again"))
		return
	}
	w.WriteHeader(http.StatusOK)
}

// Take stores what a person did in a chat, once, and applies it after it has returned. What is stored is applied by another replica
// when this one does not come to it. An error means that it is not known to be stored.
func (s *Server) Take(ctx context.Context, notifier string, said provider.Said) error {
	return s.keep(ctx, receiveTimeout, notifier, said)
}

func (s *Server) keep(ctx context.Context, bound time.Duration, notifier string, said provider.Said) error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	c, err := s.callback(notifier, said)
	if err != nil {
		return err
	}
	first, err := s.receive(ctx, c)
	if err != nil {
		s.log.Errorw("what somebody did in a chat was not stored", "notifier", notifier, "account", said.Account, "error", s.redact(err.Error()))
		return err
	}
	if first {
		s.applySoon(c)
	}
	return nil
}

// receive stores a callback, as often as it takes: a connection that broke while it was idle is not seen before it is used. Stored
// twice is stored once.
func (s *Server) receive(ctx context.Context, c store.Callback) (bool, error) {
	for {
		first, err := s.store.Receive(ctx, c, applyHold)
		if err == nil || ctx.Err() != nil {
			return first, err
		}
		pause := time.NewTimer(receivePause)
		select {
		case <-ctx.Done():
			pause.Stop()
			return false, err
		case <-pause.C:
		}
	}
}

// TakePolled is Take for what a poll has brought: all of it is stored together with how far the poll has come.
func (s *Server) TakePolled(ctx context.Context, notifier string, p store.Poll, next int64, said []provider.Said) error {
	ctx, cancel := context.WithTimeout(ctx, receiveTimeout)
	defer cancel()
	all := make([]store.Callback, len(said))
	for i, one := range said {
		var err error
		if all[i], err = s.callback(notifier, one); err != nil {
			return err
		}
	}
	fresh, err := s.store.ReceivePolled(ctx, p, next, all, applyHold)
	if err != nil {
		return err
	}
	for _, c := range fresh {
		s.applySoon(c)
	}
	return nil
}
