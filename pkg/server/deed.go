package server

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/provider"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

const (
	applyHold    = 5 * time.Second  // after which another replica takes up what this one has not applied
	applyTimeout = 4 * time.Second  // of one application: shorter, so that two replicas do not work on one
	applyFor     = 10 * time.Minute // for so long it is tried; the database took it, so it is not at fault for longer
	applyBatch   = 50
)

// deed is what a person did in a chat, as it is stored until it is applied. A one-time code is in it as its hash only.
type deed struct {
	Provider string `json:"provider"` // slack, telegram
	Notifier string `json:"notifier"`
	provider.Said
	Code string `json:"code,omitempty"`
	key  string
}

// answer is what somebody is told.
type answer struct {
	text string
	code string // a chat that can opens a link with this code instead
}

// callback is what is stored of what a person did.
func (s *Server) callback(notifier string, said provider.Said) (store.Callback, error) {
	said.Key, said.Text = storable(said.Key), storable(said.Text)
	said.Action, said.Value, said.Command = storable(said.Action), storable(said.Value), storable(said.Command)
	said.Account, said.Name, said.To = storable(said.Account), storable(said.Name), storable(said.To)
	h := deed{Provider: s.file().Notifiers[notifier].Type, Notifier: notifier, Said: said}
	h.Name = plainName(h.Name)
	if (said.Command == "link" || said.Command == "start") && said.Text != "" {
		h.Text, h.Code = "", hex.EncodeToString(hashCode(said.Text))
	}
	if r := []rune(h.Text); len(r) > maxCommand {
		h.Text = string(r[:maxCommand])
	}
	body, err := json.Marshal(h)
	if err != nil {
		return store.Callback{}, fmt.Errorf("write a callback: %w", err)
	}
	return store.Callback{Key: said.Key, Body: body}, nil
}

// storable takes out what the database has no place for. One callback that can't be stored would stop a poll: it comes with every answer,
// before all that people do later.
func storable(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "")
}

// maxCommand bounds what is kept of a command's text.
const maxCommand = 2000

// applySoon applies a stored callback after it was answered. Where too many are under way it is left to whoever finds it due.
func (s *Server) applySoon(c store.Callback) {
	select {
	case s.places <- struct{}{}:
	default:
		return
	}
	s.whispers.Go(func() {
		defer func() { <-s.places }()
		s.applyOne(c)
	})
}

// ApplyDue applies what was stored and not applied in its time: its replica went down, or the database did not take it. It may run on
// all replicas at once.
func (s *Server) ApplyDue(ctx context.Context) error {
	due, err := s.store.DueCallbacks(ctx, applyHold, applyBatch)
	if err != nil {
		return err
	}
	for _, c := range due {
		s.applySoon(c)
	}
	return nil
}

// applyOne applies a callback and answers. Whatever changes something notes the key in the same transaction: it is applied once.
func (s *Server) applyOne(c store.Callback) {
	ctx, cancel := context.WithTimeout(context.Background(), applyTimeout)
	defer cancel()
	var h deed
	if err := json.Unmarshal(c.Body, &h); err != nil {
		s.log.Errorw("a stored callback can't be read", "key", c.Key, "error", err)
		_ = s.store.CloseCallback(ctx, c.Key, "unreadable") // else it is found again, and closed then
		return
	}
	h.key = c.Key
	a, err := s.apply(ctx, h)
	switch {
	case err == nil:
	case c.Age < applyFor:
		s.log.Warnw("what somebody did in a chat was not applied, trying again", "notifier", h.Notifier, "account", h.Account, "incident", h.Value, "error", s.redact(err.Error()))
		return
	default:
		s.log.Errorw("what somebody did in a chat is given up", "notifier", h.Notifier, "account", h.Account, "incident", h.Value, "error", s.redact(err.Error()))
		a = answer{text: givenUp}
	}
	if err := s.store.CloseCallback(ctx, c.Key, ""); err != nil {
		s.log.Warnw("a callback stays open, and is looked at again", "key", c.Key, "error", s.redact(err.Error()))
	}
	s.tell(h.Notifier, h.To, a)
}

// apply does what a person asked for, and gives the answer; an empty one: it was answered before.
func (s *Server) apply(ctx context.Context, h deed) (answer, error) {
	if h.Action != "" {
		return s.applyPress(ctx, h)
	}
	return s.applyCommand(ctx, h)
}
