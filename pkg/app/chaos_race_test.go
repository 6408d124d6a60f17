//go:build race

package app

// chaosFlags build the replicas as the test itself is built: a data race in one of them is a line of its log.
var chaosFlags = []string{"-race"}
