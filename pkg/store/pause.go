package store

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tocsin-oncall/tocsin/pkg/store/internal/query"
)

// Scope says what a pause keeps back.
type Scope string

// The scopes.
const (
	ScopeDestination Scope = "destination" // one channel, chat or URL, for a time
	ScopeAccount     Scope = "account"     // all that goes through one set of credentials, until they are mended: a breaker
	ScopeLookUp      Scope = "look_up"     // the look-ups of an account, for a time
)

// Pause is something that nothing is sent to for a while.
type Pause struct {
	Key         string // of the destination, or of the account's breaker
	Scope       Scope
	Account     string // config.Notifier.Account: a name for the credentials that tells nothing of them
	Notifier    string // through which it was found
	Checksum    string // account: of the file that it was found with
	Destination string // as attempts name it
	Reason      string
	Code        string // the provider's own
	Sentence    string // what a person should do
	Since       time.Time
	Until       time.Time     // zero: an account, until it is mended
	ProbeAt     time.Time     // account: when it is next asked
	Trial       uuid.UUID     // account: the one delivery that may try
	Left        time.Duration // how long it lasts from the moment it was read
}

// Pauses reads all that rest now, with the database's clock.
func (s *Store) Pauses(ctx context.Context) ([]Pause, error) { return readPauses(ctx, s.q) }

// WorkPauses is Pauses for the worker, on its own connections.
func (s *Store) WorkPauses(ctx context.Context) ([]Pause, error) { return readPauses(ctx, s.w) }

func readPauses(ctx context.Context, q *query.Queries) ([]Pause, error) {
	rows, err := q.Pauses(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]Pause, len(rows))
	for i, r := range rows {
		out[i] = Pause{
			Key: r.Key, Scope: Scope(r.Scope), Account: r.Account, Notifier: r.Notifier, Destination: r.Destination, Reason: r.Reason, Code: r.Code,
			Sentence: r.Sentence, Since: r.Since, Until: deref(r.Until), ProbeAt: deref(r.ProbeAt), Trial: deref(r.Trial),
		}
		if r.Until != nil {
			out[i].Left = r.Until.Sub(r.Now)
		}
	}
	return out, nil
}

// Rest lets a destination, or the look-ups of an account, rest for a time from now by the database's clock. A later end
// wins.
func (s *Store) Rest(ctx context.Context, p Pause, length time.Duration) error {
	return s.w.Rest(ctx, query.RestParams{
		Key: p.Key, Scope: string(p.Scope), Account: p.Account, Notifier: p.Notifier, Destination: p.Destination, Reason: p.Reason, Code: p.Code,
		Sentence: p.Sentence, Length: length,
	})
}

// OpenBreaker keeps back all that goes through an account. probe is the time until it is asked for the first time. It is
// true where this call opened it, or ended its trial.
func (s *Store) OpenBreaker(ctx context.Context, p Pause, probe time.Duration) (bool, error) {
	n, err := s.w.OpenBreaker(ctx, query.OpenBreakerParams{
		Key: p.Key, Account: p.Account, Notifier: p.Notifier, Checksum: p.Checksum, Reason: p.Reason, Code: p.Code, Sentence: p.Sentence, Probe: probe,
	})
	return n > 0, err
}

// TakeProbes returns those of the breakers whose account is to be asked now, each to one replica.
func (s *Store) TakeProbes(ctx context.Context, keys []string) ([]Pause, error) {
	rows, err := s.w.TakeProbes(ctx, keys)
	if err != nil {
		return nil, err
	}
	out := make([]Pause, len(rows))
	for i, r := range rows {
		out[i] = Pause{Key: r.Key, Scope: ScopeAccount, Account: r.Account, Notifier: r.Notifier, Code: r.Code, Trial: deref(r.Trial)}
	}
	return out, nil
}

// CloseBreaker lets an account go on, and brings forward what waits for it through the named notifiers. First the breaker,
// then what waits: a crash between leaves rows that look again by themselves within a minute.
func (s *Store) CloseBreaker(ctx context.Context, key string, notifiers []string) (closed bool, waiting int, err error) {
	n, err := s.w.CloseBreaker(ctx, key)
	if err != nil {
		return false, 0, err
	}
	ids, err := s.w.BringForwardWaiting(ctx, notifiers, nil)
	return n > 0, len(ids), err
}

// TakeUpWaiting makes due what waits for an account of these notifiers: their file is a new one.
func (s *Store) TakeUpWaiting(ctx context.Context, notifiers []string) error {
	_, err := s.w.BringForwardWaiting(ctx, notifiers, nil)
	return err
}

// Try lets one delivery try an account whose breaker is open, the first in the queue. False: none waits.
func (s *Store) Try(ctx context.Context, key string, notifiers []string) (bool, error) {
	id, err := s.w.OldestWaiting(ctx, notifiers)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if n, err := s.w.SetTrial(ctx, &id, key); err != nil || n == 0 {
		return n > 0, err
	}
	_, err = s.w.BringForwardWaiting(ctx, notifiers, &id)
	return true, err
}

// LiftPause ends the pause of the destination that a delivery was last sent to through an account, unless its provider has
// asked for it. What began at the instant before, or after it, stays; a zero instant spares nothing. What waits for the destination
// follows a few seconds later.
func (tx *Tx) LiftPause(ctx context.Context, id uuid.UUID, account string, before time.Time) error {
	var began *time.Time
	if !before.IsZero() {
		began = &before
	}
	return tx.q.LiftPause(ctx, account, began, id)
}

// PurgePauses forgets rests that are over and breakers that were found with a file which no live replica has any more.
// alive is how old the heartbeat of a live replica may be.
func (s *Store) PurgePauses(ctx context.Context, alive time.Duration) error {
	if _, err := s.q.PurgePauses(ctx, alive); err != nil {
		return err
	}
	_, err := s.q.PurgePace(ctx)
	return err
}

// UnannouncedBreakers are open breakers whose self-alert is not raised yet, locked.
func (tx *Tx) UnannouncedBreakers(ctx context.Context, most int) ([]Pause, error) {
	rows, err := tx.q.UnannouncedBreakers(ctx, int32(min(most, 10_000))) //nolint:gosec // bounded on this line
	if err != nil {
		return nil, err
	}
	out := make([]Pause, len(rows))
	for i, r := range rows {
		out[i] = Pause{Key: r.Key, Scope: ScopeAccount, Account: r.Account, Notifier: r.Notifier, Reason: r.Reason, Code: r.Code, Sentence: r.Sentence, Since: r.Since}
	}
	return out, nil
}

// BreakerAnnounced notes that the self-alert of a breaker stands.
func (tx *Tx) BreakerAnnounced(ctx context.Context, key string) error {
	return tx.q.BreakerAnnounced(ctx, key)
}

// AnyBreaker says whether an account's breaker is open, with whichever file it was found.
func (tx *Tx) AnyBreaker(ctx context.Context, account string) (bool, error) {
	return tx.q.AnyBreaker(ctx, account)
}

// OverduePage is a page that is kept back longer than its bound.
type OverduePage struct {
	ID, IncidentID, StepID uuid.UUID
	Target                 string
}

// OverduePages are those whose escalation has not gone on yet.
func (s *Store) OverduePages(ctx context.Context, most int) ([]OverduePage, error) {
	rows, err := s.q.OverduePages(ctx, int32(min(most, 10_000))) //nolint:gosec // bounded on this line
	if err != nil {
		return nil, err
	}
	out := make([]OverduePage, len(rows))
	for i, r := range rows {
		out[i] = OverduePage{ID: r.ID, IncidentID: deref(r.IncidentID), StepID: deref(r.StepID), Target: r.Target}
	}
	return out, nil
}

// PassOver notes that the escalation has gone on without a page.
func (s *Store) PassOver(ctx context.Context, id uuid.UUID) error {
	_, err := s.q.PassOver(ctx, id)
	return err
}

// PassedOver is what keeps a page back that the escalation has gone on without.
type PassedOver struct{ Notifier, Reason, Sentence string }

// PassOver notes that the escalation has gone on without a page of a locked incident. False: that is noted, or nothing keeps it back.
func (tx *Tx) PassOver(ctx context.Context, id uuid.UUID) (PassedOver, bool, error) {
	rows, err := tx.q.PassOver(ctx, id)
	if err != nil || len(rows) == 0 {
		return PassedOver{}, false, err
	}
	return PassedOver(rows[0]), true, nil
}

// MovedChat is a chat that has another id by now.
type MovedChat struct{ Account, Address, MovedTo string }

// MovedChats reads all of them: there are as many as groups that became supergroups.
func (s *Store) MovedChats(ctx context.Context) ([]MovedChat, error) {
	rows, err := s.w.MovedChats(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]MovedChat, len(rows))
	for i, r := range rows {
		out[i] = MovedChat(r)
	}
	return out, nil
}

// MoveChat notes a chat's new id.
func (s *Store) MoveChat(ctx context.Context, m MovedChat) error {
	return s.w.MoveChat(ctx, m.Account, m.Address, m.MovedTo)
}
