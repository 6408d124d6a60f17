package store_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/store"
	"github.com/tocsin-oncall/tocsin/pkg/store/storetest"
)

func TestExamineServer(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	f, err := s.ExamineServer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if f.Version < 140000 || !strings.HasPrefix(f.VersionText, fmt.Sprint(f.Version/10000)) || f.Standby || f.ReadOnly || f.Encoding != "UTF8" || !f.Superuser || f.Role == "" {
		t.Errorf("%+v", f)
	}
	if f.Connections.Most < 10 || f.Connections.Used < 1 || f.Commit == "" {
		t.Errorf("%+v", f)
	}
	if f.Ahead.Abs() > f.AheadMaxMore+100*time.Millisecond {
		t.Errorf("two clocks of one machine differ by %s", f.Ahead)
	}
	for _, by := range []time.Duration{-7 * time.Second, 12 * time.Second} { // 12 s forward, from 7 s back
		storetest.MoveClock(t, s.url, by)
	}
	if f, err = s.ExamineServer(t.Context()); err != nil || f.Ahead.Round(time.Second) != 5*time.Second {
		t.Errorf("a clock 5 s ahead is said to be %s ahead (%v)", f.Ahead, err)
	}
}

// as makes a role, lets it have some rights, and opens a store as that role.
func (s *site) as(t *testing.T, also string, grants ...string) *store.Store {
	t.Helper()
	name := "r_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	statements := []string{"create role " + name + " login password 'secret' " + also}
	for _, g := range grants {
		statements = append(statements, g+" to "+name)
	}
	for _, q := range statements {
		if _, err := s.db.Exec(t.Context(), q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
	t.Cleanup(func() { // roles outlive their database
		if _, err := s.db.Exec(context.WithoutCancel(t.Context()), "drop owned by "+name+"; drop role "+name); err != nil {
			t.Error(err)
		}
	})
	u, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(name, "secret")
	return open(t, u.String())
}

func TestExamineTables(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		grants []string
		want   func(store.TableFacts) bool
	}{
		"nothing but the version": {[]string{"grant select on goose_db_version"}, func(f store.TableFacts) bool {
			return slices.Contains(f.Unreadable, "delivery") && slices.Contains(f.Unreadable, "attempt") && !slices.Contains(f.Unreadable, "goose_db_version") && !f.Owner
		}},
		"reading only": {[]string{"grant select on all tables in schema public"}, func(f store.TableFacts) bool {
			return len(f.Unreadable) == 0 && slices.Contains(f.Unwritable, "delivery") && !slices.Contains(f.Unwritable, "goose_db_version")
		}},
		"no deleting": {[]string{"grant select, insert, update on all tables in schema public"}, func(f store.TableFacts) bool {
			return len(f.Unreadable) == 0 && slices.Contains(f.Unwritable, "delivery")
		}},
		"everything but the ownership": {[]string{"grant select, insert, update, delete on all tables in schema public"}, func(f store.TableFacts) bool {
			return len(f.Unreadable) == 0 && len(f.Unwritable) == 0 && !f.Owner
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			f, err := s.as(t, "", c.grants...).ExamineTables(t.Context())
			if err != nil || !c.want(f) {
				t.Errorf("%+v, %v", f, err)
			}
		})
	}
	f, err := newSite(t).ExamineTables(t.Context())
	if err != nil || len(f.Unreadable)+len(f.Unwritable) > 0 || !f.Owner {
		t.Errorf("the owner: %+v, %v", f, err)
	}
}

func TestExamineServerAsAnotherRole(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	f, err := s.as(t, "connection limit 5").ExamineServer(t.Context())
	if err != nil || f.Superuser || f.Connections.Most != 5 {
		t.Errorf("%+v, %v", f, err)
	}
	if err := s.as(t, "").CheckSchema(t.Context()); !store.LacksRight(err) {
		t.Errorf("a role without any right: %v", err)
	}
}

func TestExamineListen(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	if err := s.ExamineListen(t.Context(), s.url, "examined", time.Minute); err != nil {
		t.Errorf("the usual case: %v", err)
	}
	// A ring stays within its database, so another one is as deaf as a pooler makes a connection.
	if err := s.ExamineListen(t.Context(), storetest.NewEmpty(t), "examined", 700*time.Millisecond); !errors.Is(err, store.ErrUnheard) {
		t.Errorf("listening elsewhere: %v", err)
	}
	err := s.ExamineListen(t.Context(), "postgres://u:passw0rd@127.0.0.1:1/x", "examined", time.Minute)
	if err == nil || errors.Is(err, store.ErrUnheard) || strings.Contains(err.Error(), "passw0rd") {
		t.Errorf("listening nowhere: %v", err)
	}
}

func TestSeenReplicas(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	if err := s.Heartbeat(t.Context(), store.Replica{ID: alpha, Checksum: "abc", Version: "v1", Notifiers: []string{ops}}); err != nil {
		t.Fatal(err)
	}
	storetest.MoveClock(t, s.url, time.Hour)
	if err := s.Heartbeat(t.Context(), store.Replica{ID: beta, Checksum: "def", Notifiers: []string{}}); err != nil {
		t.Fatal(err)
	}
	all, err := s.SeenReplicas(t.Context())
	if err != nil || len(all) != 2 || all[0].ID != alpha || all[0].Checksum != "abc" || all[0].Version != "v1" || !slices.Equal(all[0].Notifiers, []string{ops}) ||
		all[0].Silent < time.Hour || all[1].ID != beta || all[1].Silent > time.Minute {
		t.Errorf("%+v, %v", all, err)
	}
}
