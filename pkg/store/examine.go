package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// ServerFacts are what an examination learns of the database's server and of the role that tocsin has there. No table of
// tocsin's needs to be there for it.
type ServerFacts struct {
	Version      int    // server_version_num: 160002
	VersionText  string // 16.2
	Standby      bool   // it follows another server and takes no writes
	ReadOnly     bool   // transactions of this role or database are read-only unless they say otherwise
	Encoding     string
	Commit       string // synchronous_commit
	Standbys     string // synchronous_standby_names
	Fsync        bool
	Role         string
	Superuser    bool
	Connections  Connections
	Ahead        time.Duration // how far the server's clock is ahead of this machine's
	AheadMaxMore time.Duration // how wrong Ahead can be: half of the way there and back
}

// Connections are how many the server allows and has.
type Connections struct {
	Most int // for roles that are no superusers, by the tightest of the limits that hold
	Used int // by everybody
}

// WorkerConnections is how many connections one replica has beside those of [Options], for its worker and for LISTEN.
const WorkerConnections = workerConnections + 1

// clockTries is how often the server's clock is asked: the quickest answer counts.
const clockTries = 4

// ExamineServer asks the server about itself.
func (s *Store) ExamineServer(ctx context.Context) (ServerFacts, error) {
	r, err := s.q.ExamineServer(ctx)
	if err != nil {
		return ServerFacts{}, fmt.Errorf("the server can't be asked about itself: %w", plain(err))
	}
	f := ServerFacts{
		Version: r.Version, VersionText: r.VersionText, Standby: r.Standby, ReadOnly: r.ReadOnly, Encoding: r.Encoding,
		Commit: r.SynchronousCommit, Standbys: r.SynchronousStandbys, Fsync: r.Fsync == "on", Role: r.Role, Superuser: r.Superuser,
		Connections: Connections{Most: r.MaxConnections - r.ReservedConnections, Used: r.UsedConnections},
	}
	for _, limit := range []int{r.DatabaseLimit, r.RoleLimit} {
		if limit >= 0 && !r.Superuser { // superusers are not bound by them
			f.Connections.Most = min(f.Connections.Most, limit)
		}
	}
	for i := range clockTries {
		before := time.Now()
		theirs, err := s.Now(ctx)
		took := time.Since(before)
		if err != nil {
			return ServerFacts{}, fmt.Errorf("the server's clock can't be read: %w", plain(err))
		}
		if half := took / 2; i == 0 || half < f.AheadMaxMore {
			f.Ahead, f.AheadMaxMore = theirs.Sub(before.Add(half)), half
		}
	}
	return f, nil
}

// TableFacts are what the role may do with the tables.
type TableFacts struct {
	Unreadable []string // tables it may not read
	Unwritable []string // tables it may read but not write all the ways that tocsin does
	Owner      bool     // it may make the partitions of attempts that the coming months need
}

// ExamineTables asks what the role may do with the tables. They must have been made.
func (s *Store) ExamineTables(ctx context.Context) (TableFacts, error) {
	rows, err := s.q.ExamineTables(ctx)
	if err != nil {
		return TableFacts{}, fmt.Errorf("the rights on the tables can't be read: %w", plain(err))
	}
	var f TableFacts
	for _, r := range rows {
		switch {
		case !r.MayRead:
			f.Unreadable = append(f.Unreadable, r.Name)
		case !r.MayWrite && !strings.HasPrefix(r.Name, "goose_"): // only migrations write it
			f.Unwritable = append(f.Unwritable, r.Name)
		}
		if r.Name == "attempt" {
			f.Owner = r.Owner
		}
	}
	return f, nil
}

// SeenReplica is a replica that has been heard of.
type SeenReplica struct {
	ID        string
	Checksum  string // of its file
	Version   string
	Notifiers []string
	Silent    time.Duration // since its last heartbeat
	FileError string        // why it keeps an older file than the one on its disk
	StartedAt time.Time
	SeenAt    time.Time
	ReadAt    *time.Time // when it took its file
}

// SeenReplicas are those that have been heard of, the longest running first. One that stopped as it should is not among them.
func (s *Store) SeenReplicas(ctx context.Context) ([]SeenReplica, error) {
	rows, err := s.q.ExamineReplicas(ctx)
	if err != nil {
		return nil, fmt.Errorf("read replicas: %w", plain(err))
	}
	all := make([]SeenReplica, len(rows))
	for i, r := range rows {
		all[i] = SeenReplica(r)
	}
	return all, nil
}

// ErrUnheard is a listening connection that does not hear what is rung: a pooler stands between.
var ErrUnheard = errors.New("what is rung is not heard")

// ExamineListen listens on a connection of its own, taken from url as [Listen] does, and rings through the pool. It
// returns nil once the ring is heard, [ErrUnheard] where it is not within the time, else what went wrong.
func (s *Store) ExamineListen(ctx context.Context, url, channel string, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	ready, heard, failed, closed := make(chan struct{}, 1), make(chan struct{}, 1), make(chan error, 1), make(chan struct{})
	go func() {
		defer close(closed)
		failed <- listen(ctx, url, channel, func() { ready <- struct{}{} }, func(string) {
			select {
			case heard <- struct{}{}:
			default:
			}
		})
	}()
	defer func() {
		cancel()
		<-closed // its connection
	}()
	select {
	case <-ready:
	case err := <-failed:
		return fmt.Errorf("LISTEN is not possible: %w", plain(err))
	}
	if err := s.Notify(ctx, channel, ""); err != nil {
		return fmt.Errorf("NOTIFY is not possible: %w", plain(err))
	}
	select {
	case <-heard:
		return nil
	case err := <-failed:
		if ctx.Err() != nil {
			return ErrUnheard
		}
		return fmt.Errorf("LISTEN is not possible: %w", plain(err))
	}
}

// LacksRight says that the database refused a statement because the role may not make it.
func LacksRight(err error) bool {
	var p *pgconn.PgError
	return errors.As(err, &p) && p.Code == "42501"
}
