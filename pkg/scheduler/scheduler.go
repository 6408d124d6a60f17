// Package scheduler does what is due without anybody asking: escalation steps, the loud word about dead deliveries,
// lifetimes, removed notifiers, the replica's heartbeat, and sweeping.
//
// Every replica runs all of it. Each job is a step that looks for what is due earlier than now, takes some of it in
// small transactions that skip what another replica has, and can be repeated after a crash at any line; an outage
// strands nothing.
package scheduler

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/intake"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// batch bounds what one step takes in one transaction.
const batch = 200

// Alive is how old the heartbeat of a replica that counts as live may be.
const Alive = intake.Alive

// Options set up a Scheduler.
type Options struct {
	Store   *store.Store
	Intake  *intake.Intake
	File    func() *config.File // the file in force
	Replica string              // this replica's id
	// FileError is why this replica keeps an older file than the one on its disk; empty: it does not. May be nil.
	FileError func() string
	Version   string                      // this binary's version
	Failed    func(job string, err error) // told of each failed step, which is tried again in its time; may be nil
	// Provider is that of a notifier of the file: for what is asked of a chat without sending. May be nil.
	Provider func(notifier string) (provider.Provider, bool)
	// Calendar fetches the text of a calendar; an error says why it could not, with no more of its address than the host. May be nil.
	Calendar func(ctx context.Context, url string) (string, error)
	// Find looks for a user's account with a notifier, and links it; true: it is linked now. An error: it can't be known now. Nil: there
	// is no other place to look.
	Find func(ctx context.Context, notifier, userID string) (bool, error)
	// Decided is told how many deliveries a decision on many was applied to. May be nil.
	Decided func(action string, deliveries int)
	// Purged is told what a sweep has removed, when it is anything. May be nil.
	Purged func(store.Purged)
}

// Scheduler runs the jobs of one replica.
type Scheduler struct {
	o                  Options
	announce, escalate chan struct{} // nudges; one that waits is enough
	exhaust, remove    chan struct{}
	linked             chan struct{}
	lapse, missed      ear

	beat     sync.Mutex   // one heartbeat at a time
	foretold *config.File // what this replica is about to take; nil: it stays as it is

	hoursOf atomic.Pointer[string] // checksum of the file by which what waits for hours was looked at

	// Checksums of the file that notices, groups and ways to people were last compared with: what an earlier file left is withdrawn.
	noticed, grouped, reached, imported string
}

// New makes a Scheduler. Nothing runs before Run, except what is called by name.
func New(o Options) *Scheduler {
	if o.FileError == nil {
		o.FileError = func() string { return "" }
	}
	if o.Find == nil {
		o.Find = func(context.Context, string, string) (bool, error) { return false, nil }
	}
	if o.Failed == nil {
		o.Failed = func(string, error) {}
	}
	if o.Decided == nil {
		o.Decided = func(string, int) {}
	}
	if o.Purged == nil {
		o.Purged = func(store.Purged) {}
	}
	return &Scheduler{o: o, announce: make(chan struct{}, 1), escalate: make(chan struct{}, 1), exhaust: make(chan struct{}, 1), remove: make(chan struct{}, 1), linked: make(chan struct{}, 1)}
}

// Nudge says that a delivery died on this replica: it is announced, and what follows it is brought on, at once.
func (s *Scheduler) Nudge() { nudge(s.announce) }

// Reloaded says that a new file is in force: a cap that was lowered holds at once, and so does the grace of what was removed.
func (s *Scheduler) Reloaded() {
	nudge(s.exhaust)
	nudge(s.remove)
}

// Linked says that an account was linked: what died for want of it is taken up at once.
func (s *Scheduler) Linked() { nudge(s.linked) }

func nudge(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Job is one kind of due work. Step does one batch and says whether it found more than that.
type Job struct {
	Name  string
	Every time.Duration
	Step  func(ctx context.Context) (more bool, err error)
	Nudge <-chan struct{} // steps before its time; may be nil
}

// Jobs lists what Run runs.
func (s *Scheduler) Jobs() []Job {
	return []Job{
		{Name: "heartbeat", Every: 5 * time.Second, Step: s.Heartbeat},
		{Name: "escalate", Every: 500 * time.Millisecond, Step: s.Escalate, Nudge: s.escalate},
		{Name: "announce", Every: 500 * time.Millisecond, Step: s.Announce, Nudge: s.announce},
		{Name: "silences", Every: time.Second, Step: s.Unsilence},
		{Name: "take up", Every: 2 * time.Second, Step: s.TakeUp, Nudge: s.linked},
		{Name: "snoozes", Every: time.Second, Step: s.Ring},
		{Name: "hours", Every: time.Second, Step: s.Open},
		{Name: "trouble", Every: 500 * time.Millisecond, Step: s.Trouble},
		{Name: "pass over", Every: 250 * time.Millisecond, Step: s.PassOver},
		{Name: "settle", Every: 5 * time.Second, Step: s.Settle},
		{Name: "expire", Every: 2 * time.Second, Step: s.Expire},
		{Name: "remove", Every: 10 * time.Second, Step: s.Remove, Nudge: s.remove},
		{Name: "exhaust", Every: time.Minute, Step: s.Exhaust, Nudge: s.exhaust},
		{Name: "lapse", Every: 2 * time.Second, Step: s.Lapse},
		{Name: "missed", Every: 2 * time.Second, Step: s.Missed},
		{Name: "decide", Every: 250 * time.Millisecond, Step: s.Decide},
		{Name: "on call", Every: 2 * time.Second, Step: s.OnCall},
		{Name: "notices", Every: 5 * time.Second, Step: s.Notices},
		{Name: "user groups", Every: 5 * time.Second, Step: s.Groups},
		{Name: "reachability", Every: 30 * time.Second, Step: s.Reachability},
		{Name: "calendars", Every: 5 * time.Second, Step: s.Calendars},
		{Name: "coverage", Every: time.Minute, Step: s.Coverage},
		{Name: "number events", Every: time.Second, Step: s.NumberEvents},
		{Name: "rested", Every: 10 * time.Second, Step: s.Rested},
		{Name: "partitions", Every: time.Hour, Step: s.Partitions},
		{Name: "purge", Every: 10 * time.Minute, Step: s.Purge},
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
		case <-j.Nudge:
			t.Stop()
		}
	}
}

// Heartbeat says that this replica is alive and which notifiers its file knows. It is called once before the replica's
// intake opens: what is accepted for a new notifier must not look as if nobody knew it.
func (s *Scheduler) Heartbeat(ctx context.Context) (bool, error) {
	s.beat.Lock() // an older heartbeat must not be written after a newer one
	defer s.beat.Unlock()
	f := s.o.File()
	if s.foretold == f {
		s.foretold = nil
	}
	names := slices.AppendSeq([]string{}, maps.Keys(f.Notifiers))
	if s.foretold != nil {
		for n := range s.foretold.Notifiers {
			if _, both := f.Notifiers[n]; !both {
				names = append(names, n)
			}
		}
	}
	slices.Sort(names)
	return false, s.o.Store.Heartbeat(ctx, store.Replica{ID: s.o.Replica, Checksum: f.Checksum, Notifiers: names, Version: s.o.Version, FileError: s.o.FileError()})
}

// Foretell says that this replica is about to take a new file: until it has, both files' notifiers count as known to it,
// so that nothing is taken for removed in between. That holds for each heartbeat from now on, until the new file is in force.
func (s *Scheduler) Foretell(ctx context.Context, next *config.File) error {
	s.beat.Lock()
	s.foretold = next
	s.beat.Unlock()
	_, err := s.Heartbeat(ctx)
	return err
}

// Partitions makes the attempt partitions of the time to come.
func (s *Scheduler) Partitions(ctx context.Context) (bool, error) {
	return false, s.o.Store.MaintainPartitions(ctx)
}

// Rested forgets pauses that are over and breakers of files that nobody has any more, so that the alert about one ends.
func (s *Scheduler) Rested(ctx context.Context) (bool, error) {
	return false, s.o.Store.PurgePauses(ctx, Alive)
}
