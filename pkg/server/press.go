package server

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/card"
	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// Private answers: how many may be under way, and for how long one may take.
const (
	maxWhispers    = 64
	whisperTimeout = 5 * time.Second
)

// press is a press on a message's button, whatever chat it comes from.
type press struct {
	provider string // slack, telegram
	key      string // the same on every redelivery of this press
	action   string // ack, resolve, snooze, escalate
	incident string
	account  string // the chat's id of the presser
	name     string // what the chat calls the presser
}

// apply does what the button says if it is known who pressed it, and gives the private answer. An empty answer means
// that this press was answered before. An error means that nothing is known to have happened.
func (s *Server) apply(ctx context.Context, p press) (string, error) {
	id, err := uuid.Parse(p.incident)
	if err != nil || !slices.Contains([]string{card.ActionAcknowledge, card.ActionResolve, card.ActionSnooze, card.ActionEscalate}, p.action) {
		return "This button is of another version of tocsin: nothing was changed.", nil //nolint:nilerr // that is the answer
	}
	user, known, err := s.presser(ctx, p)
	if err != nil {
		return "", err
	}
	if !known {
		return s.offerLink(ctx, p)
	}
	return s.pressAs(ctx, user, p, id)
}

// presser is the user of the file whose chat account pressed: the one with that address on a contact through a
// notifier of the chat, or the one that the account was linked to.
func (s *Server) presser(ctx context.Context, p press) (config.User, bool, error) {
	f := s.file()
	for _, u := range f.Users {
		for _, c := range u.Contacts {
			if c.Address == p.account && f.Notifiers[c.Via].Type == p.provider {
				return u, true, nil
			}
		}
	}
	id, linked, err := s.store.AccountUser(ctx, p.provider, p.account)
	if err != nil || !linked {
		return config.User{}, false, err
	}
	for _, u := range f.Users {
		if u.ID == id {
			return u, true, nil
		}
	}
	return config.User{}, false, nil // the user was taken out of the file: their account is nobody's
}

// offerLink keeps the press, changes nothing else, and tells the presser how to be known.
func (s *Server) offerLink(ctx context.Context, p press) (string, error) {
	code := makeCode()
	offered := false
	err := s.store.InTx(ctx, func(tx *store.Tx) error {
		first, err := tx.Callback(ctx, p.key)
		if err != nil || !first {
			return err
		}
		offered = true
		return tx.AddLinkCode(ctx, store.LinkCode{Hash: hashCode(code), Provider: p.provider, AccountID: p.account, Account: p.name,
			Press: store.Press{Action: p.action, IncidentID: p.incident}}, linkLifetime)
	})
	if err != nil || !offered {
		return "", err
	}
	s.log.Infow("an unknown chat account pressed a button", "provider", p.provider, "account", p.account, "incident", p.incident)
	return fmt.Sprintf("tocsin does not know yet who you are, so nothing was changed. Open %s/link/%s within 15 minutes: it says how your account is linked, and then this press is applied.", s.file().Server.PublicURL, code), nil
}

// whisper gives a private answer after the callback was answered. Where too many are under way it is left out: what was
// pressed counts all the same, and the card shows it.
func (s *Server) whisper(notifier, to, text string) {
	if text == "" || to == "" {
		return
	}
	p, ok := s.providers(notifier)
	if !ok {
		return
	}
	w, ok := p.(provider.Whisperer)
	if !ok {
		return
	}
	select {
	case s.places <- struct{}{}:
	default:
		s.log.Warnw("a private answer was left out: too many are under way", "notifier", notifier)
		return
	}
	s.whispers.Go(func() {
		defer func() { <-s.places }()
		ctx, cancel := context.WithTimeout(context.Background(), whisperTimeout)
		defer cancel()
		if err := w.Whisper(ctx, to, text); err != nil {
			s.log.Warnw("a private answer did not arrive", "notifier", notifier, "error", s.redact(err.Error()))
		}
	})
}

// pressFailed is the private answer where the database did not take a press.
const pressFailed = "This could not be recorded, nothing was changed: press it again in a moment."

// plainName takes line breaks out of a name from outside and bounds it.
func plainName(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if r := []rune(s); len(r) > 80 {
		s = string(r[:80])
	}
	return s
}
