package intake

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// Accept stores a group of alerts with all that follows from it. When it returns without error, everything is
// committed. An *InputError means that the sender must change something; any other error that it should send again, a *BusyError
// that it came when there was no room. Groups that come at the same time are committed together, but each as if it were alone: what
// is wrong with one is told to its sender only.
func (i *Intake) Accept(ctx context.Context, g Group) (Result, error) {
	f := i.file()
	if err := prepare(f, &g); err != nil || len(g.Alerts) == 0 {
		return Result{}, err
	}
	return i.wait(&arrival{key: g.Key, group: g, file: f, solo: len(g.Alerts) > bigGroup, ctx: ctx})
}

// unit is what came for one incident.
type unit struct {
	group   Group
	members []*arrival
	result  Result
	err     error // the sender's
	held    bool  // somebody has locked its incident
}

// take takes what was picked, in one transaction, and tells those who wait. What was not taken because of others comes back: each
// of it is tried in a transaction of its own.
func (i *Intake) take(flight []*arrival) (again []*arrival) {
	if a := flight[0]; a.alone != nil {
		a.err = guarded(func() error { return a.alone(a.ctx) })
		close(a.done)
		return nil
	}
	// The senders' contexts do not count: one who gives up would break off what others wait for.
	ctx, cancel := context.WithTimeout(context.Background(), takeTime)
	defer cancel()
	f := i.file()
	units := unitsOf(f, flight)
	err := guarded(func() error { return i.takeUnits(ctx, f, units, flight[0].solo) })
	var results []Result
	var told []*arrival
	for _, u := range units {
		for n, a := range u.members {
			switch {
			case (err != nil || u.held) && !a.solo:
				a.solo = true
				again = append(again, a)
				continue
			case err != nil:
				a.err = err
			case u.err != nil:
				a.err = u.err
			default:
				a.result = u.part(n)
				results = append(results, a.result)
			}
			told = append(told, a)
		}
	}
	i.Committed(results...)
	for _, a := range told {
		close(a.done)
	}
	return again
}

// unitsOf puts what belongs to one incident together, in the order of keys: all transactions open their incidents in the same order.
func unitsOf(f *config.File, flight []*arrival) []*unit {
	at := map[string]*unit{}
	var units []*unit
	for _, a := range flight {
		g := a.group
		var err error
		if a.file != f { // it came under another one
			err = prepare(f, &g)
		}
		if u := at[g.Key]; u != nil && err == nil && a.key == g.Key {
			u.group.Alerts = slices.Concat(u.group.Alerts, g.Alerts)
			u.members = append(u.members, a)
			continue
		}
		u := &unit{group: g, members: []*arrival{a}, err: err}
		if u.held = at[g.Key] != nil; !u.held { // by another file it is another one's incident: it waits for that one
			at[g.Key] = u
		}
		units = append(units, u)
	}
	slices.SortStableFunc(units, func(a, b *unit) int { return strings.Compare(a.group.Key, b.group.Key) })
	return units
}

// takeUnits writes what can be written now in one transaction. A crash before its commit leaves nothing, and nobody was told anything.
func (i *Intake) takeUnits(ctx context.Context, f *config.File, units []*unit, solo bool) error {
	able := slices.DeleteFunc(slices.Clone(units), func(u *unit) bool { return u.err != nil || u.held })
	if len(able) == 0 {
		return nil
	}
	in := func(fn func(tx *store.Tx, held []string) error) error {
		return i.store.InBatchTx(ctx, expected(able), fn)
	}
	if solo { // who is alone waits for the row
		in = func(fn func(tx *store.Tx, held []string) error) error {
			return i.store.InTx(ctx, func(tx *store.Tx) error { return fn(tx, nil) })
		}
	}
	return in(func(tx *store.Tx, held []string) error {
		for _, u := range able {
			u.held = slices.Contains(held, u.group.Key)
		}
		var moves []delivery.Step
		var unroutable []*unit
		var about []store.Incident
		for _, u := range able {
			if u.held {
				continue
			}
			r, c, err := i.accept(ctx, tx, f, u.group, &moves)
			if err != nil {
				return err
			}
			if u.result = r; c != nil && r.Unrouted {
				unroutable, about = append(unroutable, u), append(about, c.inc)
			}
		}
		if err := apply(ctx, tx, moves); err != nil {
			return err
		}
		// Their incidents are locked last, by everybody: all others of this transaction are locked already.
		for n, u := range unroutable {
			self, err := i.SelfAlert(ctx, tx, unrouted(about[n]))
			if err != nil {
				return err
			}
			u.result = u.result.with(self)
		}
		return nil
	})
}

// expected is what is known of the incidents beforehand.
func expected(units []*unit) []store.Expected {
	out := make([]store.Expected, len(units))
	for n, u := range units {
		out[n].Key = u.group.Key
		for _, a := range u.group.Alerts {
			if mark := a.Mark(); !slices.Contains(out[n].Fingerprints, mark) {
				out[n].Fingerprints = append(out[n].Fingerprints, mark)
			}
		}
	}
	return out
}

// part is what came of one who came with others: the incident is the same for all, and was opened by the first.
func (u *unit) part(n int) Result {
	if n == 0 {
		return u.result
	}
	r := u.result
	return Result{AlertID: r.alerts[u.members[n].group.Alerts[0].Mark()], IncidentID: r.IncidentID, State: r.State, Quiet: r.Quiet, Unrouted: r.Unrouted}
}

// guarded makes an error of a panic: here it would take the process along, and with it all that others wait for.
func guarded(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("taking alerts panicked: %v\n%s", v, debug.Stack())
		}
	}()
	return f()
}
