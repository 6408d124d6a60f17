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

// applyPress does what a button says if it is known who pressed it. An error means that nothing is known to have happened.
func (s *Server) applyPress(ctx context.Context, h deed) (answer, error) {
	id, err := uuid.Parse(h.Value)
	if err != nil || !slices.Contains([]string{card.ActionAcknowledge, card.ActionResolve, card.ActionSnooze, card.ActionEscalate}, h.Action) {
		return answer{text: "This button is of another version of tocsin: nothing was changed."}, nil //nolint:nilerr // that is the answer
	}
	user, known, err := s.person(ctx, h.Provider, h.Account)
	if err != nil {
		return answer{}, err
	}
	if !known {
		return s.offerLink(ctx, h)
	}
	text, err := s.pressAs(ctx, user, h, id)
	return answer{text: text}, err
}

// person is the user of the file whose chat account it is: the one with that address on a contact through a notifier of the chat, or
// the one that the account was linked to.
func (s *Server) person(ctx context.Context, chat, account string) (config.User, bool, error) {
	f := s.file()
	for _, u := range f.Users {
		for _, c := range u.Contacts {
			if c.Address == account && f.Notifiers[c.Via].Type == chat {
				return u, true, nil
			}
		}
	}
	id, linked, err := s.store.AccountUser(ctx, chat, account)
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
func (s *Server) offerLink(ctx context.Context, h deed) (answer, error) {
	code, offered, err := s.showCode(ctx, h, store.Press{Action: h.Action, IncidentID: h.Value})
	if err != nil || !offered {
		return answer{}, err
	}
	s.log.Infow("an unknown chat account pressed a button", "provider", h.Provider, "account", h.Account, "incident", h.Value)
	return answer{code: code, text: fmt.Sprintf("tocsin does not know yet who you are, so nothing was changed. Open %s within 15 minutes: it says how your account is linked, and then this press is applied.", s.linkURL(code))}, nil
}

// showCode makes a one-time code for an account that nobody knows. False: this callback was applied before. The one who is shown it is told
// when their account is linked, where their chat takes a second answer.
func (s *Server) showCode(ctx context.Context, h deed, p store.Press) (code string, offered bool, err error) {
	p.Notifier, p.To = h.Notifier, h.To
	code = makeCode()
	err = s.store.InTx(ctx, func(tx *store.Tx) error {
		if offered, err = tx.Callback(ctx, h.key); err != nil || !offered {
			return err
		}
		return tx.AddLinkCode(ctx, store.LinkCode{Hash: hashCode(code), Provider: h.Provider, AccountID: h.Account, Account: h.Name, Press: p}, linkLifetime)
	})
	return code, offered, err
}

func (s *Server) linkURL(code string) string { return s.file().Server.PublicURL + "/link/" + code }

// whisper answers after the callback was answered. Where too many are under way it is left out: what was asked for counts all the
// same, and the card shows it.
func (s *Server) whisper(notifier, to string, a answer) {
	select {
	case s.places <- struct{}{}:
	default:
		s.log.Warnw("a private answer was left out: too many are under way", "notifier", notifier)
		return
	}
	s.whispers.Go(func() {
		defer func() { <-s.places }()
		s.tell(notifier, to, a)
	})
}

// tell answers somebody in a chat: privately, or by a link that their chat opens.
func (s *Server) tell(notifier, to string, a answer) {
	if a.text == "" || to == "" {
		return
	}
	p, ok := s.providers(notifier)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), whisperTimeout)
	defer cancel()
	if i, ok := p.(provider.Inviter); ok && a.code != "" {
		if link := i.Invite(ctx, a.code); link != "" {
			err := i.Open(ctx, to, link)
			if err == nil {
				return
			}
			s.log.Warnw("a link was not opened, its text is told instead", "notifier", notifier, "error", s.redact(err.Error()))
		}
	}
	w, ok := p.(provider.Whisperer)
	if !ok {
		return
	}
	if err := w.Whisper(ctx, to, a.text); err != nil {
		s.log.Warnw("a private answer did not arrive", "notifier", notifier, "error", s.redact(err.Error()))
	}
}

// notStored is the private answer where the database did not take what somebody did, givenUp where it could not be applied.
const (
	notStored = "This could not be recorded, nothing was changed: do it again in a moment."
	givenUp   = "This could not be applied, nothing was changed: do it again, or by `tocsin incidents`."
)

// plainName takes line breaks out of a name from outside and bounds it.
func plainName(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if r := []rune(s); len(r) > 80 {
		s = string(r[:80])
	}
	return s
}
