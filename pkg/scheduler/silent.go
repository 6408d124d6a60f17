package scheduler

import (
	"context"
	"fmt"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/intake"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

const (
	// listenFor is how long a replica must have been able to hear before it takes silence for silence. After an outage of
	// tocsin or its database every source has been silent; those that send again do so within it.
	listenFor = 2 * time.Minute
	// deafAfter is how long a step may be away before the replica counts as having been deaf: its process was frozen.
	deafAfter = time.Minute
	// forgetHeartbeat is how long no file may name a heartbeat before it is forgotten: longer than a rolling change.
	forgetHeartbeat = 15 * time.Minute
)

// ear knows since when a replica can hear its sources, as far as it can tell: the database has answered all its questions
// since. It measures by this machine's monotonic clock, and decides on nothing but whether to decide. A job has its own.
type ear struct {
	since, last time.Time
}

// heard notes a step, and says whether silence means something by now.
func (e *ear) heard(err error) bool {
	now := time.Now()
	if err != nil {
		e.since = time.Time{}
		return false
	}
	if e.since.IsZero() || now.Sub(e.last) > deafAfter {
		e.since = now
	}
	e.last = now
	return now.Sub(e.since) >= listenFor
}

// Lapse resolves alerts that hold no longer and were not sent again: the word that they are over was lost, or their
// source is. Each incident is looked at again under its lock, so replicas that see the same do it once.
func (s *Scheduler) Lapse(ctx context.Context) (bool, error) {
	ids, err := s.o.Store.LapsedIncidents(ctx, batch)
	if !s.lapse.heard(err) {
		if err != nil {
			err = fmt.Errorf("look for alerts that hold no longer: %w", err)
		}
		return false, err
	}
	var first error
	moved := false
	for _, id := range ids {
		did, err := s.o.Intake.Lapse(ctx, id)
		moved = moved || did
		if err != nil && first == nil {
			first = err // the others' time has come all the same
		}
	}
	return moved && len(ids) == batch, first
}

// Missed makes silent heartbeats loud: one alert each, which resolves when it calls again. The heartbeat's row is its
// outbox: the transaction that raises the alert marks it. What a person resolved while it stays silent is raised again after
// the time that any alert has.
func (s *Scheduler) Missed(ctx context.Context) (bool, error) {
	f := s.o.File()
	names := inOrder(f.Heartbeats)
	err := s.o.Store.InTx(ctx, func(tx *store.Tx) error { return tx.ListHeartbeats(ctx, names, forgetHeartbeat) })
	if err != nil {
		err = fmt.Errorf("list the heartbeats: %w", err)
	}
	if !s.missed.heard(err) || len(names) == 0 {
		return false, err
	}
	var watched []store.WatchedHeartbeat
	for _, name := range names {
		watched = append(watched, store.WatchedHeartbeat{Name: name, Key: intake.HeartbeatMissed(name, "").Key(), Every: f.Heartbeats[name].Every})
	}
	var raised []intake.Result
	found := 0
	err = s.o.Store.InTx(ctx, func(tx *store.Tx) error {
		raised = nil
		missed, err := tx.MissedHeartbeats(ctx, watched, intake.DefaultReopenAfter, batch)
		if err != nil {
			return err
		}
		found = len(missed)
		alerts := map[string]intake.Self{}
		about := map[string]string{}
		for _, m := range missed {
			a := silent(m, f.Heartbeats[m.Name].Every, f.Heartbeats[m.Name].Criticality)
			alerts[a.Key()], about[a.Key()] = a, m.Name
		}
		for _, key := range inOrder(alerts) { // one order on all replicas: these incidents are locked
			r, err := s.o.Intake.SelfAlert(ctx, tx, alerts[key])
			if err != nil {
				return err
			}
			raised = append(raised, r)
			if err := tx.HeartbeatAnnounced(ctx, about[key]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("announce missed heartbeats: %w", err)
	}
	s.o.Intake.Committed(raised...)
	return found == batch, nil
}

// silent is the self-alert about a heartbeat that did not call in time.
func silent(m store.MissedHeartbeat, every time.Duration, criticality string) intake.Self {
	a := intake.HeartbeatMissed(m.Name, criticality)
	a.Title = fmt.Sprintf("The heartbeat %s did not call within %s", m.Name, every)
	last := "It last called at " + m.LastAt.UTC().Format(time.RFC3339) + "."
	if !m.Called {
		last = "It has never called since the file names it, " + m.LastAt.UTC().Format(time.RFC3339) + "."
	}
	a.Text = last + "\nWhat calls it does not run, or can't reach tocsin. This alert resolves when it calls again."
	return a
}
