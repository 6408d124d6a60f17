// Command tocsin is an on-call pager: it turns alerts into messages that the on-call engineer gets, and keeps turning
// until someone answers. One binary is the server, its development environment and the operator's command line.
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	_ "time/tzdata" // schedules name time zones; a bare container has none
)

// garbagePercent lets the heap, which is a few megabytes, grow to five times of it between two collections instead of twice: the most
// alerts taken a second grow by an eighth. GOGC says otherwise.
const garbagePercent = 400

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbagePercent)
	}
	os.Exit(start())
}

func start() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// After the first signal the default handling is back: a second one ends the process at once.
	context.AfterFunc(ctx, stop)
	return execute(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.LookupEnv)
}
