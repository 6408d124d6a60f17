package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tocsin-oncall/tocsin/pkg/store/internal/query"
)

// LinkCode is a one-time code by which a person links a chat account, with the button press that asked for it. Only
// the code's hash is kept.
type LinkCode struct {
	Hash      []byte // sha256 of the code's text
	Provider  string // slack, telegram
	AccountID string
	Account   string // the name the chat showed
	Press     Press
}

// Press is a press on a message's button that waits until its presser is known.
type Press struct {
	Action     string `json:"action"` // ack, resolve; empty: something was written
	IncidentID string `json:"incident_id"`
	Notifier   string `json:"notifier,omitempty"` // through which its owner is told what became of it
	To         string `json:"to,omitempty"`       // what a provider's Whisper takes; empty: they can't be told
}

// AddLinkCode keeps a code for ttl.
func (tx *Tx) AddLinkCode(ctx context.Context, c LinkCode, ttl time.Duration) error {
	press, err := json.Marshal(c.Press)
	if err != nil {
		return fmt.Errorf("encode press: %w", err)
	}
	if err := tx.q.AddLinkCode(ctx, query.AddLinkCodeParams{Hash: c.Hash, Provider: c.Provider, AccountID: c.AccountID, Account: c.Account, Press: press, Ttl: ttl}); err != nil {
		return fmt.Errorf("store link code: %w", err)
	}
	return nil
}

// ReadLinkCode looks at a code without using it. [ErrNotFound] where it is unknown, used or too old.
func (s *Store) ReadLinkCode(ctx context.Context, hash []byte) (LinkCode, error) {
	row, err := s.q.ReadLinkCode(ctx, hash)
	if err != nil {
		return LinkCode{}, readError("read link code", err)
	}
	return linkCode(row)
}

// TakeLinkCode uses a code up. [ErrNotFound] where it is unknown, used or too old.
func (tx *Tx) TakeLinkCode(ctx context.Context, hash []byte) (LinkCode, error) {
	row, err := tx.q.TakeLinkCode(ctx, hash)
	if err != nil {
		return LinkCode{}, readError("use link code", err)
	}
	return linkCode(row)
}

func linkCode(row query.LinkCode) (LinkCode, error) {
	c := LinkCode{Hash: row.Hash, Provider: row.Provider, AccountID: row.AccountID, Account: row.Account}
	if len(row.Press) > 0 {
		if err := json.Unmarshal(row.Press, &c.Press); err != nil {
			return LinkCode{}, fmt.Errorf("read the press of a link code: %w", err)
		}
	}
	return c, nil
}

// PutAccount links a chat account to a user, whoever it belonged to before.
func (tx *Tx) PutAccount(ctx context.Context, provider, accountID, userID, by string) error {
	err := tx.q.PutAccount(ctx, query.PutAccountParams{Provider: provider, AccountID: accountID, UserID: userID, LinkedBy: by})
	if err != nil {
		return fmt.Errorf("link account: %w", err)
	}
	return nil
}

// AccountUser is the id of the user that a chat account is linked to; false where it is linked to none.
func (s *Store) AccountUser(ctx context.Context, provider, accountID string) (string, bool, error) {
	user, err := s.q.AccountUser(ctx, provider, accountID)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("read account: %w", err)
	}
	return user, true, nil
}

// RemoveAccount unlinks a user's chat account. [ErrNotFound] where it is not linked to them.
func (tx *Tx) RemoveAccount(ctx context.Context, provider, accountID, userID string) error {
	n, err := tx.q.RemoveAccount(ctx, provider, accountID, userID)
	if err != nil {
		return fmt.Errorf("unlink account: %w", err)
	}
	if n == 0 {
		return ErrNotFound
	}
	return nil
}

// TakeLinkCodesOf uses up all codes that a chat account was shown, and gives those that are not too old: their presses wait.
func (tx *Tx) TakeLinkCodesOf(ctx context.Context, provider, accountID string) ([]LinkCode, error) {
	rows, err := tx.q.TakeLinkCodesOf(ctx, provider, accountID)
	if err != nil {
		return nil, fmt.Errorf("use the codes of an account: %w", err)
	}
	var live []LinkCode
	for _, r := range rows {
		c, err := linkCode(r)
		if err != nil {
			return nil, err
		}
		if r.ExpiresAt.After(tx.now) {
			live = append(live, c)
		}
	}
	return live, nil
}

// AddInvitation keeps a code for ttl by which a chat account becomes that of a user.
func (tx *Tx) AddInvitation(ctx context.Context, hash []byte, userID, by string, ttl time.Duration) error {
	if err := tx.q.AddInvitation(ctx, query.AddInvitationParams{Hash: hash, UserID: userID, MadeBy: by, Ttl: ttl}); err != nil {
		return fmt.Errorf("store an invitation: %w", err)
	}
	return nil
}

// TakeInvitation uses a code up and says for whom it was made, and by whom. [ErrNotFound] where it is unknown, used or too old.
func (tx *Tx) TakeInvitation(ctx context.Context, hash []byte) (userID, by string, err error) {
	row, err := tx.q.TakeInvitation(ctx, hash)
	if err != nil {
		return "", "", readError("use an invitation", err)
	}
	return row.UserID, row.MadeBy, nil
}

// UnlinkedPage is a page of an open incident that died because its person had no linked account.
type UnlinkedPage struct {
	ID, IncidentID   uuid.UUID
	Notifier, Target string
}

// UnlinkedPages are the newest of them, not locked.
func (s *Store) UnlinkedPages(ctx context.Context, limit int) ([]UnlinkedPage, error) {
	rows, err := s.q.UnlinkedPages(ctx, int32(min(limit, 10_000))) //nolint:gosec // bounded on this line
	if err != nil {
		return nil, fmt.Errorf("look for pages without an account: %w", err)
	}
	return convert(rows, func(r query.UnlinkedPagesRow) (UnlinkedPage, error) {
		return UnlinkedPage{ID: r.ID, IncidentID: r.IncidentID, Notifier: r.Notifier, Target: r.Target}, nil
	})
}
