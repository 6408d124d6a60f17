package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

const (
	aboutDatabase = "database"
	oldestServer  = 140000          // Postgres 14
	clockWarning  = 2 * time.Second // a difference of the clocks that people should know of
	silentAfter   = time.Minute     // a replica that was not heard of for so long does not count as running
)

// aboutDatabase examines the database, and then what is stored in it, where that can be read.
func (d *doctor) aboutDatabase(ctx context.Context) (all, stored []Check) {
	s, err := d.openToLook(ctx)
	if err != nil {
		return []Check{bad(aboutDatabase, "connection", "check database.url, that the server runs, and that this machine may reach it with that user and password", "%s", err)}, nil
	}
	defer s.Close()
	ctx, cancel := context.WithTimeout(ctx, storedTimeout)
	defer cancel()
	facts, err := s.ExamineServer(ctx)
	if err != nil {
		return []Check{bad(aboutDatabase, "server", "look at the server's log", "%s", err)}, nil
	}
	all = judgeServer(facts)
	schema, good := d.aboutSchema(ctx, s)
	all = append(all, schema...)
	all = append(all, d.aboutListening(ctx, s, facts))
	var replicas []store.SeenReplica
	if good {
		if replicas, err = s.SeenReplicas(ctx); err != nil {
			all = append(all, unread("replicas", err))
		}
	}
	running := slices.DeleteFunc(slices.Clone(replicas), func(r store.SeenReplica) bool { return r.Silent > silentAfter })
	all = append(all, judgeConnections(facts.Connections, d.file.Database.MaxConnections+store.WorkerConnections, len(running)))
	if good {
		stored = append(judgeReplicas(replicas, d.file), d.aboutStored(ctx, s)...)
	}
	return all, stored
}

// judgeServer says what there is to say of the server itself.
func judgeServer(f store.ServerFacts) []Check {
	var all []Check
	say := func(c Check) { all = append(all, c) }
	if f.Version < oldestServer {
		say(bad(aboutDatabase, "server", "move to Postgres 14 or later", "it is Postgres %s, and tocsin needs 14 or later", f.VersionText))
	} else {
		say(ok(aboutDatabase, "server", "Postgres %s answers", f.VersionText))
	}
	switch {
	case f.Standby:
		say(bad(aboutDatabase, "writes", "name the primary in database.url, or an address that follows it after a fail-over", "it is a standby: it takes no writes"))
	case f.ReadOnly:
		say(bad(aboutDatabase, "writes", "reset default_transaction_read_only of the role "+f.Role+" or of the database, whichever has it set", "transactions are read-only here (default_transaction_read_only)"))
	}
	if f.Encoding != "UTF8" {
		say(bad(aboutDatabase, "encoding", "make the database with encoding 'UTF8'", "it is %s: alerts with other characters would be refused", f.Encoding))
	}
	if f.Superuser {
		say(warn(aboutDatabase, "role", "make a role that only owns this database", "%s is a superuser: whoever gets hold of its password has the whole server", f.Role))
	} else {
		say(ok(aboutDatabase, "role", "%s, no superuser", f.Role))
	}
	off := f.Ahead.Abs()
	way := "ahead of"
	if f.Ahead < 0 {
		way = "behind"
	}
	switch {
	case off-f.AheadMaxMore > clockWarning:
		say(warn(aboutDatabase, "clock", "keep both machines in step (NTP); the database's clock decides", "it is %s %s this machine's", off.Round(100*time.Millisecond), way))
	case off < 100*time.Millisecond:
		say(ok(aboutDatabase, "clock", "in step with this machine's"))
	default:
		say(ok(aboutDatabase, "clock", "%s %s this machine's", off.Round(10*time.Millisecond), way))
	}
	return append(all, judgeDurability(f))
}

// judgeDurability says what a commit is worth.
func judgeDurability(f store.ServerFacts) Check {
	const check = "commits"
	switch {
	case !f.Fsync:
		return warn(aboutDatabase, check, "fsync = on, unless this is for trying things out", "fsync is off: a crash of the machine can destroy everything that was accepted")
	case f.Commit == "off":
		return warn(aboutDatabase, check, "synchronous_commit = on", "synchronous_commit is off: a crash of the server loses the last alerts that tocsin has accepted")
	case f.Standbys == "":
		return ok(aboutDatabase, check, "kept on this server's disk; the loss of its machine loses what was accepted since the last backup")
	case f.Commit == "local":
		return warn(aboutDatabase, check, "synchronous_commit = on", "synchronous_commit is local: the standbys %s are not waited for", f.Standbys)
	}
	return ok(aboutDatabase, check, "synchronous_commit is %s, waits for %s", f.Commit, f.Standbys)
}

// judgeConnections says whether the replicas find room. each is what one of them can take.
func judgeConnections(c store.Connections, each, running int) Check {
	const (
		check = "connections"
		fix   = "raise max_connections of the server, or lower database.max_connections"
	)
	have := fmt.Sprintf("%d allowed, %d in use; a replica takes up to %d", c.Most, c.Used, each)
	switch {
	case max(running, 1)*each > c.Most:
		return warn(aboutDatabase, check, fix, "%s, and %s would not find room", have, count(max(running, 1), "replica"))
	case running == 0 && c.Most-c.Used < each:
		return warn(aboutDatabase, check, fix, "%s, and others leave no room for one", have)
	}
	return ok(aboutDatabase, check, "%s", have)
}

// aboutSchema says whether the tables are there, are this binary's, and may be used by the role.
func (d *doctor) aboutSchema(ctx context.Context, s *store.Store) (all []Check, good bool) {
	migrate := "run `tocsin migrate --config " + d.Path + "`"
	err := s.CheckSchema(ctx)
	var differs *store.SchemaError
	switch {
	case errors.As(err, &differs) && differs.Have == 0:
		return []Check{bad(aboutDatabase, "schema", migrate, "there are no tables yet")}, false
	case errors.As(err, &differs) && differs.Have < differs.Want:
		return []Check{bad(aboutDatabase, "schema", migrate, "it is version %d, and this binary needs %d", differs.Have, differs.Want)}, false
	case errors.As(err, &differs):
		return []Check{bad(aboutDatabase, "schema", "use the newer binary", "it is version %d, newer than this binary knows (%d)", differs.Have, differs.Want)}, false
	case store.LacksRight(err):
		return []Check{bad(aboutDatabase, "rights", "use the role that ran `tocsin migrate`, or grant select, insert, update and delete on all tables", "the role may not even read the schema's version")}, false
	case err != nil:
		return []Check{bad(aboutDatabase, "schema", "look at the server's log", "%s", err)}, false
	}
	all = append(all, ok(aboutDatabase, "schema", "up to date"))
	t, err := s.ExamineTables(ctx)
	if err != nil {
		return append(all, unread("rights", err)), false
	}
	rights := judgeRights(t)
	return append(all, rights...), len(t.Unreadable) == 0
}

func judgeRights(t store.TableFacts) []Check {
	const grant = "use the role that ran `tocsin migrate`, or grant select, insert, update and delete on all tables"
	switch {
	case len(t.Unreadable) > 0:
		return []Check{bad(aboutDatabase, "rights", grant, "the role may not read %s", few(t.Unreadable))}
	case len(t.Unwritable) > 0:
		return []Check{bad(aboutDatabase, "rights", grant, "the role may not write %s", few(t.Unwritable))}
	case !t.Owner:
		return []Check{bad(aboutDatabase, "rights", "let the replicas use the role that ran `tocsin migrate`, or make them a member of it", "the role does not own the table attempt: it can't make the partitions that the coming months need, and serve would not start then")}
	}
	return []Check{ok(aboutDatabase, "rights", "the role may read and write all tables")}
}

// few names some of many.
func few(names []string) string {
	const most = 3
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// aboutListening rings and listens for it. Without it work is found by looking, which is slower and loses nothing.
func (d *doctor) aboutListening(ctx context.Context, s *store.Store, f store.ServerFacts) Check {
	const check = "wake-up"
	if f.Standby {
		return warn(aboutDatabase, check, "see above", "a standby takes no LISTEN")
	}
	err := s.ExamineListen(ctx, d.file.Database.ListenURL, "tocsin_doctor_"+randomWord(), listenTimeout)
	switch {
	case errors.Is(err, store.ErrUnheard):
		return warn(aboutDatabase, check, "name a direct address in database.listen_url: a pooler in transaction mode loses LISTEN",
			"what one replica rings is not heard by the others, which find work by looking every %s", d.file.Worker.Poll)
	case err != nil:
		return warn(aboutDatabase, check, "check database.listen_url", "%s; the replicas find work by looking every %s", err, d.file.Worker.Poll)
	}
	return ok(aboutDatabase, check, "LISTEN and NOTIFY work")
}

func unread(check string, err error) Check {
	return bad(aboutDatabase, check, "look at the server's log", "%s", err)
}

// judgeReplicas says which replicas run, and whether they run with this file.
func judgeReplicas(all []store.SeenReplica, f *config.File) []Check {
	const about, check = aboutStored, "replicas"
	var running, other []string
	for _, r := range all {
		if r.Silent > silentAfter {
			continue
		}
		running = append(running, r.ID)
		if r.Checksum != f.Checksum {
			other = append(other, r.ID)
		}
	}
	switch {
	case len(running) == 0:
		return []Check{warn(about, check, "start `tocsin serve`", "none runs: nothing would be sent")}
	case len(other) > 0:
		return []Check{warn(about, check, "restart them, or give this command the file that they have", "%s, of which %s with another file than this one: %s", runs(len(running)), runs(len(other)), few(other))}
	}
	return []Check{ok(about, check, "%s, all with this file", runs(len(running)))}
}

func runs(n int) string {
	if n == 1 {
		return "1 runs"
	}
	return fmt.Sprintf("%d run", n)
}
