package store

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"

	"github.com/tocsin-oncall/tocsin/pkg/api"
)

// ErrTokenExists is a token name that was given before. Names of revoked tokens are not given again, so that the
// audit trail keeps its meaning.
var ErrTokenExists = errors.New("a token of that name exists already, or did: choose another name")

// Token is a live API token as it is checked: its hash, never its text.
type Token struct {
	Name   string
	Hash   []byte // sha256 of the token's text
	Scopes []string
}

// AddToken stores a new API token. [ErrTokenExists] where the name is taken.
func (s *Store) AddToken(ctx context.Context, t Token) error {
	n, err := s.q.AddToken(ctx, t.Name, t.Hash, t.Scopes)
	if err != nil {
		return fmt.Errorf("store token: %w", err)
	}
	if n == 0 {
		return ErrTokenExists
	}
	return nil
}

// LiveTokens are the tokens that are not revoked.
func (s *Store) LiveTokens(ctx context.Context) ([]Token, error) {
	rows, err := s.q.LiveTokens(ctx)
	if err != nil {
		return nil, fmt.Errorf("read tokens: %w", err)
	}
	all := make([]Token, len(rows))
	for i, r := range rows {
		all[i] = Token{Name: r.Name, Hash: r.Hash, Scopes: r.Scopes}
	}
	return all, nil
}

// maxTokens bounds the list of tokens.
const maxTokens = 1000

// ListTokens are all tokens, revoked ones too, newest first.
func (s *Store) ListTokens(ctx context.Context) ([]api.Token, error) {
	rows, err := s.q.ListTokens(ctx, maxTokens)
	if err != nil {
		return nil, fmt.Errorf("list tokens: %w", err)
	}
	all := make([]api.Token, len(rows))
	for i, r := range rows {
		all[i] = api.Token{Name: r.Name, Scopes: r.Scopes, CreatedAt: r.CreatedAt.UTC(), RevokedAt: utc(r.RevokedAt)}
	}
	return all, nil
}

// RevokeToken ends a token. [ErrNotFound] where no live one has the name.
func (s *Store) RevokeToken(ctx context.Context, name string) error {
	n, err := s.q.RevokeToken(ctx, name)
	if err != nil {
		return fmt.Errorf("revoke token: %w", err)
	}
	if n == 0 {
		return ErrNotFound
	}
	return nil
}

// tokenPrefix lets scanners for leaked secrets know a token of ours.
const tokenPrefix = "tocsin_"

// MakeToken makes the text of a new API token, 256 random bits, and the hash under which it is kept.
func MakeToken() (text string, hash []byte) {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // crypto/rand never fails: it ends the process instead
	text = tokenPrefix + base64.RawURLEncoding.EncodeToString(b)
	return text, HashToken(text)
}

// HashToken is the hash of a token's text. The text is random and long, so a plain hash is enough.
func HashToken(text string) []byte {
	h := sha256.Sum256([]byte(text))
	return h[:]
}
