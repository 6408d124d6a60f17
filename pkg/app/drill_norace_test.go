//go:build !race

package app

import "time"

// slowed is a bound on something that a machine does at its own speed.
func slowed(d time.Duration) time.Duration { return d }
