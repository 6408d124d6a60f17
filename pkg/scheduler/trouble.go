package scheduler

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tocsin-oncall/tocsin/pkg/intake"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// labelAccount names the account that a self-alert about a broken notifier is about.
const labelAccount = "account"

// Trouble makes open breakers loud: one alert an account, which resolves when the account is well. The breaker's row is its
// outbox: the transaction that raises the alert marks it.
func (s *Scheduler) Trouble(ctx context.Context) (bool, error) {
	var raised []intake.Result
	found := 0
	err := s.o.Store.InTx(ctx, func(tx *store.Tx) error {
		raised = nil
		open, err := tx.UnannouncedBreakers(ctx, batch)
		if err != nil {
			return err
		}
		found = len(open)
		for _, p := range open { // by key: one order on all replicas
			r, err := s.o.Intake.SelfAlert(ctx, tx, s.broken(p))
			if err != nil {
				return err
			}
			raised = append(raised, r)
			if err := tx.BreakerAnnounced(ctx, p.Key); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("announce broken notifiers: %w", err)
	}
	s.o.Intake.Committed(raised...)
	return found == batch, nil
}

// broken is the self-alert about an account that refuses all calls. It goes through other notifiers where there are any.
func (s *Scheduler) broken(p store.Pause) intake.Self {
	names := []string{}
	for name, n := range s.o.File().Notifiers {
		if n.Account() == p.Account {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if len(names) == 0 {
		names = []string{p.Notifier}
	}
	text := p.Sentence
	if text == "" {
		text = "Its provider refuses every call (" + p.Code + ")."
	}
	return intake.Self{
		Kind: intake.SelfNotifierBroken, Criticality: "critical", About: names[0], Avoid: names,
		Title: fmt.Sprintf("Nothing goes out through %s: %s", strings.Join(names, ", "), p.Reason),
		Text: text + "\nDeliveries wait until it is mended, and leave by themselves then. `tocsin notifiers list` and `tocsin doctor` tell more. " +
			"This alert resolves when the account is well again.",
		Labels: map[string]string{labelNotifier: names[0], labelAccount: p.Account, labelReason: p.Reason},
	}
}

// PassOver lets escalations go on without pages that a pause, a breaker or a pace keeps back longer than their bound. Such a
// page stays pending.
func (s *Scheduler) PassOver(ctx context.Context) (bool, error) {
	pages, err := s.o.Store.OverduePages(ctx, batch)
	if err != nil || len(pages) == 0 {
		return false, err
	}
	defer nudge(s.escalate) // a step that was brought on is due now
	for _, p := range pages {
		if err := s.o.Intake.PassOver(ctx, p); err != nil {
			return false, err
		}
	}
	return len(pages) == batch, nil
}
