//go:build race

package app

import "time"

// slowed is a bound on something that a machine does at its own speed: the race detector makes it several times as slow.
func slowed(d time.Duration) time.Duration { return 5 * d }
