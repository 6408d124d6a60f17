// Package scheduler does what is due without anybody asking: escalation steps, the loud word about dead deliveries,
// lifetimes, removed notifiers, the replica's heartbeat, and sweeping.
//
// Every replica runs all of it. Each job is a step that looks for what is due earlier than now, takes some of it in
// small transactions that skip what another replica has, and can be repeated after a crash at any line; an outage
// strands nothing.
package scheduler

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/intake"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// batch bounds what one step takes in one transaction.
const batch = 200

// Alive is how old the heartbeat of a replica that counts as live may be.
const Alive = 30 * time.Second

// Options set up a Scheduler.
type Options struct {
	Store   *store.Store
	Intake  *intake.Intake
	File    func() *config.File         // the file in force
	Replica string                      // this replica's id
	Version string                      // this binary's version
	Failed  func(job string, err error) // told of each failed step, which is tried again in its time; may be nil
}

// Scheduler runs the jobs of one replica.
type Scheduler struct {
	o Options
}

// New makes a Scheduler. Nothing runs before Run, except what is called by name.
func New(o Options) *Scheduler {
	if o.Failed == nil {
		o.Failed = func(string, error) {}
	}
	return &Scheduler{o: o}
}

// Job is one kind of due work. Step does one batch and says whether it found more than that.
type Job struct {
	Name  string
	Every time.Duration
	Step  func(ctx context.Context) (more bool, err error)
}

// Jobs lists what Run runs.
func (s *Scheduler) Jobs() []Job {
	return []Job{
		{"heartbeat", 5 * time.Second, s.Heartbeat},
		{"escalate", 500 * time.Millisecond, s.Escalate},
		{"announce", 500 * time.Millisecond, s.Announce},
		{"settle", 5 * time.Second, s.Settle},
		{"expire", 2 * time.Second, s.Expire},
		{"remove", 10 * time.Second, s.Remove},
		{"partitions", time.Hour, s.Partitions},
		{"purge", 10 * time.Minute, s.Purge},
	}
}

// Run runs all jobs until ctx ends, each by its own clock: a slow one holds up no other.
func (s *Scheduler) Run(ctx context.Context) {
	var all sync.WaitGroup
	for _, j := range s.Jobs() {
		all.Go(func() { s.loop(ctx, j) })
	}
	all.Wait()
}

// loop steps at once, again while there is more, and then every so often with jitter, so that replicas don't knock in
// step.
func (s *Scheduler) loop(ctx context.Context, j Job) {
	for ctx.Err() == nil {
		more, err := j.Step(ctx)
		if err != nil && ctx.Err() == nil {
			s.o.Failed(j.Name, err)
		}
		if more && err == nil {
			continue
		}
		t := time.NewTimer(j.Every + rand.N(j.Every/5+1)) //nolint:gosec // jitter, no secret
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
	}
}

// Heartbeat says that this replica is alive and which notifiers its file knows. It is called once before the replica's
// intake opens: what is accepted for a new notifier must not look as if nobody knew it.
func (s *Scheduler) Heartbeat(ctx context.Context) (bool, error) {
	f := s.o.File()
	names := make([]string, 0, len(f.Notifiers))
	for n := range f.Notifiers {
		names = append(names, n)
	}
	return false, s.o.Store.Heartbeat(ctx, store.Replica{ID: s.o.Replica, Checksum: f.Checksum, Notifiers: names, Version: s.o.Version})
}

// Partitions makes the attempt partitions of the time to come.
func (s *Scheduler) Partitions(ctx context.Context) (bool, error) {
	return false, s.o.Store.MaintainPartitions(ctx)
}

// Purge sweeps away what only guards against repeats and is too old to.
func (s *Scheduler) Purge(ctx context.Context) (bool, error) {
	n, err := s.o.Store.Purge(ctx, 1000)
	return n >= 1000, err
}
