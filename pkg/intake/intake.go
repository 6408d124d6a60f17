// Package intake takes alerts in, and people's answers to them. All that one alert makes is written in one transaction
// that locks the incident first, so what is accepted is committed, and nobody sees half of it.
package intake

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/message"
	"github.com/tocsin-oncall/tocsin/pkg/plan"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// SelfSource is the source of tocsin's own alerts.
const SelfSource = "_tocsin"

// DefaultReopenAfter is how long a source's re-sends open nothing after a person resolved their incident.
const DefaultReopenAfter = 4 * time.Hour

// Options set up an Intake.
type Options struct {
	Store *store.Store
	File  func() *config.File // the file in force
	// Redact takes the values of ${NAME} out of what the file says before it is stored. May be nil.
	Redact func(string) string
	Wake   func(oldest time.Time) // nudges the local worker after a commit with the oldest due time written; may be nil
	AtOnce int                    // transactions that may take alerts at the same time, [Intake.AcceptIn] not counted; 0: 15
}

// Intake is the one writer of incidents. Safe for use by many goroutines and on all replicas at once.
type Intake struct {
	store *store.Store
	file  func() *config.File
	wake  func(time.Time)

	redact func(string) string
	queue  queue
}

// New makes an Intake.
func New(o Options) *Intake {
	if o.Wake == nil {
		o.Wake = func(time.Time) {}
	}
	if o.Redact == nil {
		o.Redact = func(s string) string { return s }
	}
	if o.AtOnce == 0 {
		o.AtOnce = 15
	}
	return &Intake{store: o.Store, file: o.File, wake: o.Wake, redact: o.Redact, queue: queue{most: o.AtOnce, busy: map[string]bool{}}}
}

// Group is alerts of one source that belong to one incident.
type Group struct {
	Source    string // native, alertmanager, or a source's name
	Key       string // the incident's key; empty: derived from the first alert
	Title     string // the incident's title; empty: the alert's
	Truncated int    // alerts that the source left out of this message
	Alerts    []plan.Alert
	Clip      bool     // cut what is too long instead of refusing it: for sources that would not send it again
	Pair      bool     // several senders say the same of one alert, each a little apart from the others: Prometheus servers in pairs
	Daily     bool     // a self-alert that is announced once a day at most
	Avoid     []string // notifiers that it is not sent through while there are others
}

// Result is what an accepted group came to.
type Result struct {
	AlertID    uuid.UUID     // of the first alert; zero: nothing was stored, a resolved alert met no open incident
	IncidentID uuid.UUID     // zero: as above
	State      message.State // of the incident
	Opened     bool
	Quiet      bool // still firing after a person resolved it: no message is made before reopen_after is over
	Unrouted   bool // nothing in the file takes it
	Deliveries []Made

	wake   time.Time            // oldest due time that was written; zero: none
	alerts map[string]uuid.UUID // rows of all alerts of the group, by fingerprint
}

// Made is one delivery that was made.
type Made struct {
	ID       uuid.UUID
	Kind     delivery.Kind
	Notifier string
	Target   string
	State    delivery.State
}

// AcceptIn is Accept within a transaction of the caller, who calls Committed after the commit. The transaction may have
// locked no incident and no delivery before. Who calls it in a turn of its own, see [Intake.Alone], waits for no other alert of
// this replica.
func (i *Intake) AcceptIn(ctx context.Context, tx *store.Tx, g Group) (Result, error) {
	f := i.file()
	if err := prepare(f, &g); err != nil || len(g.Alerts) == 0 {
		return Result{}, err
	}
	r, c, err := i.accept(ctx, tx, f, g, nil)
	if err != nil || c == nil || !r.Unrouted {
		return r, err
	}
	self, err := i.SelfAlert(ctx, tx, unrouted(c.inc))
	return r.with(self), err
}

// prepare brings a group into the form that is stored, and gives it its key. It may be done again.
func prepare(f *config.File, g *Group) error {
	if err := check(f, g); err != nil || len(g.Alerts) == 0 {
		return err
	}
	if g.Key == "" {
		g.Key = plan.Key(f, g.Source, g.Alerts[0])
	}
	return nil
}

// KeyOf is the key of the incident that a group belongs to. It may be asked of a group that will be refused.
func (i *Intake) KeyOf(g Group) string {
	f := i.file()
	switch {
	case g.Key != "":
		return plan.Key(f, g.Source, plan.Alert{Key: clean(g.Key)})
	case len(g.Alerts) == 0:
		return ""
	}
	a, _ := checkAlert(f, g.Alerts[0], g.Clip)
	return plan.Key(f, g.Source, a)
}

// Committed nudges the worker. It is called after the commit of what the results tell of.
func (i *Intake) Committed(rs ...Result) {
	var all Result
	for _, r := range rs {
		all = all.with(r)
	}
	if !all.wake.IsZero() {
		i.wake(all.wake)
	}
}

// with keeps the older of two due times: a nudge names the oldest.
func (r Result) with(o Result) Result {
	if r.wake.IsZero() || !o.wake.IsZero() && o.wake.Before(r.wake) {
		r.wake = o.wake
	}
	return r
}

// reopenAfter is a source's setting.
func reopenAfter(f *config.File, source string) time.Duration {
	if s, ok := f.Sources[source]; ok && s.ReopenAfter > 0 {
		return s.ReopenAfter
	}
	return DefaultReopenAfter
}

// InputError says what a sender must change. Field is the path in its message, e.g. "labels.env" or "alerts[3].links".
type InputError struct {
	Field   string
	Message string
}

func (e *InputError) Error() string { return e.Field + ": " + e.Message }

// ErrNotFound is returned for an incident that does not exist.
var ErrNotFound = errors.New("no such incident")
