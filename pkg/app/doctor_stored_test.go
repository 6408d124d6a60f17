package app

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
	"github.com/tocsin-oncall/tocsin/pkg/redact"
	"github.com/tocsin-oncall/tocsin/pkg/store"
	"github.com/tocsin-oncall/tocsin/pkg/store/storetest"
)

// reaching is a provider that knows who can be reached.
type reaching struct {
	provider.Provider
	found map[string]provider.Reach
}

func (r reaching) Reach(_ context.Context, address string) provider.Reach { return r.found[address] }

func migrated(t *testing.T) string { return storetest.New(t) }

func TestDoctorOfWhatIsStored(t *testing.T) {
	t.Parallel()
	url := storetest.New(t)
	s, err := store.Open(t.Context(), url, store.Options{MaxConnections: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_, hash := store.MakeToken()
	if err := s.AddToken(t.Context(), store.Token{Name: "all", Hash: hash, Scopes: []string{"admin"}}); err != nil {
		t.Fatal(err)
	}
	p := &patient{t: t, url: url, env: map[string]string{"TOKEN": "xoxb-token"}, file: `
users:
  - {id: ana, name: Ana, contacts: [{via: dm}, {via: tg, address: "4711"}]}
  - {id: bo, contacts: [{via: dm, address: U1}]}
notifiers:
  dm: {type: slack, token: "${TOKEN}"}
  tg: {type: telegram, token: "${TOKEN}"}
  log: {type: log, path: /x}
routes: [{match: "#", notify: [log]}]
`}
	p.o.make = known
	d, err := p.examine()
	if err != nil {
		t.Fatal(err)
	}
	if c := find(t, d, "people", "ana dm"); c.Level != provider.Warn || !strings.Contains(c.Text, "no_linked_account") || strings.Contains(c.Fix, "send again") || c.Fix == "" {
		t.Errorf("%+v", c)
	}
	if c := find(t, d, "stored", "tokens"); c.Level != provider.OK {
		t.Errorf("%+v", c)
	}
	if c := find(t, d, "stored", "dead letters"); c.Level != provider.OK {
		t.Errorf("%+v", c)
	}
	if c := find(t, d, "stored", "replicas"); c.Level != provider.Warn {
		t.Errorf("%+v", c)
	}
	if c := find(t, d, "stored", "pauses"); c.Level != provider.OK {
		t.Errorf("%+v", c)
	}
	// Ana links her account, a replica comes, and something dies.
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	f, _, err := config.Load(p.o.Path, p.o.Env)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), `insert into account (provider, account_id, user_id, linked_at, linked_by) values ('slack', 'U9', 'ana', now(), 'test')`); err != nil {
		t.Fatal(err)
	}
	if _, err := s.OpenBreaker(t.Context(), store.Pause{Key: "k", Account: f.Notifiers["dm"].Account(), Notifier: "dm", Checksum: f.Checksum, Reason: "account:invalid_auth", Sentence: "put a valid token in"}, time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := s.Heartbeat(t.Context(), store.Replica{ID: "r", Checksum: f.Checksum, Notifiers: []string{"dm"}}); err != nil {
		t.Fatal(err)
	}
	err = s.InTx(t.Context(), func(tx *store.Tx) error {
		return tx.AddDeliveries(t.Context(), store.NewDelivery{ID: uuid.Must(uuid.NewV7()), Kind: delivery.Page, Notifier: "dm", Target: "user:ana", Desired: 1,
			Dead: &store.Dead{State: delivery.Unreachable, Reason: "nobody_on_call"}})
	})
	if err != nil {
		t.Fatal(err)
	}
	p.o.People = true
	if d, err = Doctor(t.Context(), p.o); err != nil {
		t.Fatal(err)
	}
	for _, way := range []string{"ana dm", "ana tg", "bo dm"} {
		if c := find(t, d, "people", way); c.Level != provider.OK {
			t.Errorf("%+v", c)
		}
	}
	// Each way is looked at where it leads, and whoever is on call soon is named.
	p.file += `schedules: [{id: primary, time_zone: UTC, layers: [{users: [bo]}]}, {id: nobodys, time_zone: UTC, layers: [{users: [cho]}]}]
`
	p.file = strings.Replace(p.file, "notifiers:", "  - {id: cho}\nnotifiers:", 1)
	p.o.make = func(n config.Notifier, s *redact.Set) (provider.Provider, error) {
		inner, err := known(n, s)
		return reaching{inner, map[string]provider.Reach{
			"U9": {}, "4711": {Unknown: true}, "U1": {Closed: true, Reason: "destination:user_disabled", Sentence: "U1 is deactivated in Slack: link another account, then send again"},
		}}, err
	}
	looked, err := p.examine()
	if err != nil {
		t.Fatal(err)
	}
	for way, want := range map[string]struct {
		level provider.Level
		text  string
	}{
		"ana dm": {provider.OK, "would arrive"}, "ana tg": {provider.Warn, "could not be looked at"},
		"bo dm": {provider.Warn, "user_disabled; on call within seven days"}, "cho": {provider.Bad, "no contacts; on call within seven days"},
	} {
		if c := find(t, looked, "people", way); c.Level != want.level || !strings.Contains(c.Text, want.text) || (c.Fix == "") != (c.Level == provider.OK) {
			t.Errorf("%s: %+v", way, c)
		}
	}
	if c := find(t, d, "stored", "dead letters"); c.Level != provider.Warn || !strings.HasPrefix(c.Text, "1 delivery waits") {
		t.Errorf("%+v", c)
	}
	if c := find(t, d, "dm", "breaker"); c.Level != provider.Bad || c.Fix != "put a valid token in" || !strings.Contains(c.Text, "account:invalid_auth") {
		t.Errorf("%+v", c)
	}
	if c := find(t, d, "stored", "replicas"); c.Level != provider.OK {
		t.Errorf("%+v", c)
	}
}
