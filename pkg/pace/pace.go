// Package pace says when the next call to a destination may begin, so that providers need not say no.
//
// It is pure: the times of the calls that were let go come in as data, and the database keeps them, so that a pace holds
// across replicas.
package pace

import (
	"slices"
	"time"
)

// Rule lets at most Count calls begin within any span of Per. The zero value is no rule.
type Rule struct {
	Count int
	Per   time.Duration
}

// None says that the rule limits nothing.
func (r Rule) None() bool { return r.Count <= 0 || r.Per <= 0 }

// Bucket is one thing that is paced: a destination, or an account with all of its destinations.
type Bucket struct {
	Key   string // the same on all replicas
	Rules []Rule // all of them hold
}

// Leaving is the bucket for those who leave room to others that matter more: a tenth of each rule, and at least one call where
// there is more than one. Without room, whoever comes in great numbers takes every slot at the moment that it comes free.
func (b Bucket) Leaving() Bucket {
	out := Bucket{Key: b.Key, Rules: slices.Clone(b.Rules)}
	for i, r := range out.Rules {
		if r.Count > 1 {
			out.Rules[i].Count -= max(1, r.Count/10)
		}
	}
	return out
}

// keep is how many past calls must be remembered for the rules.
func (b Bucket) keep() int {
	n := 0
	for _, r := range b.Rules {
		if !r.None() {
			n = max(n, r.Count)
		}
	}
	return n
}

// Earliest is when the next call may begin, given the calls that have begun, in any order: a time not after now means at
// once.
func (b Bucket) Earliest(begun []time.Time) time.Time {
	sorted := slices.SortedFunc(slices.Values(begun), time.Time.Compare)
	var at time.Time
	for _, r := range b.Rules {
		if r.None() || len(sorted) < r.Count {
			continue
		}
		if t := sorted[len(sorted)-r.Count].Add(r.Per); t.After(at) {
			at = t
		}
	}
	return at
}

// Begin notes a call that begins at now, and forgets those that no rule asks for any more.
func (b Bucket) Begin(begun []time.Time, now time.Time) []time.Time {
	sorted := slices.SortedFunc(slices.Values(append(slices.Clone(begun), now)), time.Time.Compare)
	return sorted[max(0, len(sorted)-b.keep()):]
}

// Gap is the average time between two calls of a long queue: the slowest of the rules.
func (b Bucket) Gap() time.Duration {
	var gap time.Duration
	for _, r := range b.Rules {
		if !r.None() {
			gap = max(gap, r.Per/time.Duration(r.Count))
		}
	}
	return gap
}
