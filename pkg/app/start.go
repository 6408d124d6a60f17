package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// openTimeout bounds the first word from the database.
const openTimeout = 15 * time.Second

// checkFile refuses what can be told from a good file alone; the lease is the file's own check.
func checkFile(f *config.File, insecure bool) error {
	if insecure && !loopback(f.Server.Listen) {
		return fmt.Errorf("--insecure takes requests without tokens and server.listen %s is reachable from other machines: listen on 127.0.0.1, or make a token and leave --insecure out", f.Server.Listen)
	}
	return nil
}

// loopback says that only this machine can reach a listen address.
func loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// openStore reaches a database whose schema is this binary's.
func openStore(ctx context.Context, f *config.File, o Options) (*store.Store, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	s, err := store.Open(ctx, f.Database.URL, store.Options{MaxConnections: f.Database.MaxConnections})
	if err != nil {
		return nil, err
	}
	err = s.CheckSchema(ctx)
	var differs *store.SchemaError
	if o.Migrate && errors.As(err, &differs) && differs.Have < differs.Want {
		// Not bounded by the start's own time: a large table's migration may take longer.
		if err = store.Migrate(context.WithoutCancel(ctx), f.Database.URL); err == nil {
			err = s.CheckSchema(ctx)
		}
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}
