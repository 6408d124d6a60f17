package scheduler

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/intake"
	"github.com/tocsin-oncall/tocsin/pkg/message"
	"github.com/tocsin-oncall/tocsin/pkg/plan"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// deathKind is the head of the kinds of self-alerts about dead deliveries.
const deathKind = "delivery_"

// The labels by which a self-alert about dead deliveries finds its cause again.
const (
	labelState    = "state"
	labelNotifier = "notifier"
	labelTarget   = "target"
	labelReason   = "reason"
)

// Announce makes deaths loud. A dead row is its own outbox: it stays until the transaction that raises its self-alert
// marks it. Before that, what follows a dead page is brought on: a crash between the two brings it on again, which
// changes nothing.
func (s *Scheduler) Announce(ctx context.Context) (bool, error) {
	seen, err := s.unannounced(ctx)
	if err != nil || len(seen) == 0 {
		return false, err
	}
	defer nudge(s.escalate) // a step that was brought on is due now
	known := map[uuid.UUID]bool{}
	var own []uuid.UUID
	for _, d := range seen {
		if d.Delivery.Kind == delivery.Page && d.StepID != uuid.Nil {
			if err := s.o.Intake.Forward(ctx, d.Delivery.IncidentID, d.StepID, d.Delivery.Target); err != nil {
				return false, err
			}
		}
		known[d.Delivery.ID] = true
		if self(d) {
			own = append(own, d.Delivery.ID)
		}
	}
	// A dying self-alert raises none. It is marked apart: the other transaction locks self-alert incidents after dead
	// rows, and must not hold rows of theirs by then.
	if len(own) > 0 {
		if err := s.o.Store.InTx(ctx, func(tx *store.Tx) error { return s.markOwn(ctx, tx, own) }); err != nil {
			return false, fmt.Errorf("mark dead self-alerts: %w", err)
		}
	}
	var raised []intake.Result
	err = s.o.Store.InTx(ctx, func(tx *store.Tx) error {
		raised = nil
		dead, err := tx.UnannouncedDead(ctx, batch)
		if err != nil {
			return err
		}
		groups := map[string][]store.DeadDelivery{}
		var ids []uuid.UUID
		for _, d := range dead {
			if known[d.Delivery.ID] && !self(d) {
				alert := about(d)
				groups[alert.Key()+"\x00"+alert.Criticality] = append(groups[alert.Key()+"\x00"+alert.Criticality], d)
				ids = append(ids, d.Delivery.ID)
				if err := s.o.Intake.TellDead(ctx, tx, d); err != nil {
					return err
				}
			}
		}
		for _, key := range inOrder(groups) { // one order on all replicas: these incidents are locked
			r, err := s.o.Intake.SelfAlert(ctx, tx, about(groups[key][0]))
			if err != nil {
				return err
			}
			raised = append(raised, r)
		}
		return tx.Announced(ctx, ids...)
	})
	if err != nil {
		return false, fmt.Errorf("announce dead deliveries: %w", err)
	}
	s.o.Intake.Committed(raised...)
	return len(seen) == batch, nil
}

// markOwn marks dead deliveries of self-alerts, of which only listeners are told. They are locked anew: what another replica has marked
// meanwhile was told by it.
func (s *Scheduler) markOwn(ctx context.Context, tx *store.Tx, own []uuid.UUID) error {
	dead, err := tx.UnannouncedDead(ctx, batch)
	if err != nil {
		return err
	}
	dead = slices.DeleteFunc(dead, func(d store.DeadDelivery) bool { return !slices.Contains(own, d.Delivery.ID) })
	ids := make([]uuid.UUID, len(dead))
	for i, d := range dead {
		ids[i] = d.Delivery.ID
	}
	if err := s.o.Intake.TellDead(ctx, tx, dead...); err != nil {
		return err
	}
	return tx.Announced(ctx, ids...)
}

func (s *Scheduler) unannounced(ctx context.Context) ([]store.DeadDelivery, error) {
	var dead []store.DeadDelivery
	err := s.o.Store.InTx(ctx, func(tx *store.Tx) error {
		var err error
		dead, err = tx.UnannouncedDead(ctx, batch)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look for dead deliveries: %w", err)
	}
	return dead, nil
}

// self says that a delivery is of a self-alert.
func self(d store.DeadDelivery) bool { return strings.HasSuffix(d.IncidentTopic, "."+plan.SelfJob) }

// about is the self-alert of a death. Nothing in it is of one death only, but for the criticality: deaths with one
// state, notifier, target and reason join one incident, and say nothing new by joining it.
func about(d store.DeadDelivery) intake.Self {
	v := d.Delivery
	criticality := d.IncidentCriticality
	if criticality == "" {
		criticality = "error"
	}
	through := v.Notifier
	if through == "" {
		through = "any notifier"
	}
	text := d.Sentence
	if text == "" {
		text = fmt.Sprintf("Deliveries to %s through %s ended as %s (%s).", v.Target, through, v.State, v.Reason)
	}
	return intake.Self{
		Kind: deathKind + string(v.State), Criticality: criticality, Daily: true,
		About: strings.Join([]string{v.Notifier, v.Target, v.Reason}, ":"),
		Title: fmt.Sprintf("Not delivered to %s through %s: %s (%s)", v.Target, through, v.State, v.Reason),
		Text: text + "\nSuch deliveries wait for a decision: `tocsin deliveries list --state dead` shows them, " +
			"`tocsin decide ID send-again` or `cancel` settles one. This alert resolves when none is left.",
		Labels: map[string]string{labelState: string(v.State), labelNotifier: v.Notifier, labelTarget: v.Target, labelReason: v.Reason},
	}
}

func inOrder[T any](m map[string]T) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// Settle resolves self-alerts whose cause is gone: no dead delivery of their group is left undecided, the incident that
// nobody answered is answered, no unrouted incident of the topic is live. Nothing is locked for those that stay.
func (s *Scheduler) Settle(ctx context.Context) (bool, error) {
	type candidate struct {
		key, why string
		still    func(*store.Tx) (bool, error)
	}
	var over []candidate
	err := s.o.Store.InTx(ctx, func(tx *store.Tx) error {
		over = nil
		live, err := tx.LiveIncidentsOf(ctx, intake.SelfSource, 10*batch)
		if err != nil {
			return err
		}
		for _, inc := range live {
			alerts, err := tx.Alerts(ctx, inc.ID, 1)
			if err != nil {
				return err
			}
			words := strings.Split(inc.Topic, ".")
			if len(alerts) == 0 || len(words) < 2 {
				continue
			}
			still, why := cause(ctx, words[1], alerts[0].Labels)
			if still == nil {
				continue // who raised it resolves it
			}
			if there, err := still(tx); err != nil {
				return err
			} else if !there {
				over = append(over, candidate{inc.Key, why, still})
			}
		}
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("look for self-alerts: %w", err)
	}
	for _, c := range over {
		if _, err := s.o.Intake.ResolveSelf(ctx, c.key, c.why, c.still); err != nil {
			return false, err
		}
	}
	return false, nil
}

// cause is how to see whether the cause of a self-alert is still there, and what to say when it is gone.
func cause(ctx context.Context, kind string, labels map[string]string) (func(*store.Tx) (bool, error), string) {
	switch {
	case strings.HasPrefix(kind, deathKind):
		return func(tx *store.Tx) (bool, error) {
			return tx.AnyDead(ctx, delivery.State(labels[labelState]), labels[labelNotifier], labels[labelTarget], labels[labelReason])
		}, "every such delivery is decided"
	case kind == intake.SelfUnrouted:
		return func(tx *store.Tx) (bool, error) { return tx.AnyUnrouted(ctx, labels["topic"]) }, "no such incident is open"
	case kind == intake.SelfNotifierBroken:
		return func(tx *store.Tx) (bool, error) { return tx.AnyBreaker(ctx, labels[labelAccount]) }, "its account is well again"
	case kind == intake.SelfReloadFailed:
		return func(tx *store.Tx) (bool, error) { return tx.AnyFileError(ctx, Alive) }, "every replica has taken its file"
	case kind == intake.SelfHeartbeat:
		return func(tx *store.Tx) (bool, error) { return tx.HeartbeatMissed(ctx, labels["heartbeat"]) }, "it called again, or the file names it no more"
	case kind == intake.SelfUnreachable:
		return func(tx *store.Tx) (bool, error) { return tx.ReachIsTold(ctx, labels[labelSchedule], labels["user"]) }, "every way is open, or they are not on call within days"
	case kind == intake.SelfUserGroup:
		return func(tx *store.Tx) (bool, error) { return tx.GroupFails(ctx, labels[labelSchedule]) }, "the group is right, or the file names it no more"
	case kind == intake.SelfCoverageGap:
		return func(tx *store.Tx) (bool, error) { return tx.GapTold(ctx, labels[labelSchedule]) }, "the next seven days are covered"
	case kind == intake.SelfCalendar:
		return func(tx *store.Tx) (bool, error) {
			return tx.CalendarIsTold(ctx, labels[labelSchedule], labels[labelLayer])
		}, "the calendar is as it should be, or the file names it no more"
	case kind == intake.SelfNobodyAnswered:
		return func(tx *store.Tx) (bool, error) {
			id, err := uuid.Parse(labels["incident"])
			if err != nil {
				return false, fmt.Errorf("a self-alert names the incident %q: %w", labels["incident"], err)
			}
			state, err := tx.IncidentState(ctx, id)
			return state == message.Open, err
		}, "somebody answered"
	}
	return nil, ""
}
