package server

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/provider/slack"
	"github.com/tocsin-oncall/tocsin/pkg/provider/telegram"
)

// slackInteraction takes a press on a button in Slack. Slack wants an answer within three seconds and does not ask
// again, so the presser is told privately when the press could not be recorded.
func (s *Server) slackInteraction(w http.ResponseWriter, r *http.Request) {
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
	got, err := slack.ParseInteraction(raw)
	if errors.Is(err, slack.ErrNoPress) {
		w.WriteHeader(http.StatusOK)
		return
	}
	if err != nil {
		writeProblem(w, problem(http.StatusBadRequest, "", s.redact(err.Error())))
		return
	}
	answer, err := s.apply(r.Context(), press{
		provider: "slack", key: "slack:" + got.Channel + ":" + got.MessageTS + ":" + got.Action + ":" + got.ActionTS + ":" + got.UserID,
		action: got.Action, incident: got.Value, account: got.UserID, name: plainName(got.UserName),
	})
	if err != nil {
		s.log.Errorw("a press was not recorded", "provider", "slack", "account", got.UserID, "incident", got.Value, "error", s.redact(err.Error()))
		answer = pressFailed
	}
	w.WriteHeader(http.StatusOK)
	to := got.ResponseURL
	if to == "" {
		to = slack.EphemeralTo(got.Channel, got.UserID)
	}
	s.whisper(notifier, to, answer)
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

// telegramUpdate takes an update of a bot. Telegram repeats what it gets no 2xx for, so a press that could not be
// recorded is simply asked for again.
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
	got, err := telegram.ParseUpdate(raw)
	if errors.Is(err, telegram.ErrNoPress) {
		w.WriteHeader(http.StatusOK)
		return
	}
	if err != nil {
		writeProblem(w, problem(http.StatusBadRequest, "", s.redact(err.Error())))
		return
	}
	name := got.FirstName
	if got.Username != "" {
		name = "@" + got.Username
	}
	// Two bots number their updates on their own: the notifier's name is part of the key.
	answer, err := s.apply(r.Context(), press{
		provider: "telegram", key: "telegram:" + notifier + ":" + strconv.FormatInt(got.UpdateID, 10),
		action: got.Action, incident: got.Value, account: strconv.FormatInt(got.UserID, 10), name: plainName(name),
	})
	if err != nil {
		s.log.Errorw("a press was not recorded", "provider", "telegram", "account", got.UserID, "incident", got.Value, "error", s.redact(err.Error()))
		writeProblem(w, problem(http.StatusServiceUnavailable, "", "the press could not be recorded: send it again"))
		return
	}
	w.WriteHeader(http.StatusOK)
	s.whisper(notifier, got.CallbackID, answer)
}
