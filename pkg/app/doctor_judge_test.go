package app

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

func TestJudgeServer(t *testing.T) {
	t.Parallel()
	good := store.ServerFacts{Version: 160002, VersionText: "16.2", Encoding: "UTF8", Commit: "on", Fsync: true, Role: "tocsin", AheadMaxMore: time.Millisecond}
	for name, c := range map[string]struct {
		change func(*store.ServerFacts)
		check  string
		level  provider.Level
		text   string
	}{
		"old":           {func(f *store.ServerFacts) { f.Version, f.VersionText = 130011, "13.11" }, "server", provider.Bad, "needs 14"},
		"oldest":        {func(f *store.ServerFacts) { f.Version, f.VersionText = 140000, "14.0" }, "server", provider.OK, "14.0"},
		"a standby":     {func(f *store.ServerFacts) { f.Standby, f.ReadOnly = true, true }, "writes", provider.Bad, "standby"},
		"latin":         {func(f *store.ServerFacts) { f.Encoding = "LATIN1" }, "encoding", provider.Bad, "LATIN1"},
		"a plain role":  {func(*store.ServerFacts) {}, "role", provider.OK, "no superuser"},
		"2 s are well":  {func(f *store.ServerFacts) { f.Ahead = 2 * time.Second }, "clock", provider.OK, "2s ahead of"},
		"3 s are not":   {func(f *store.ServerFacts) { f.Ahead = -3 * time.Second }, "clock", provider.Warn, "3s behind"},
		"3 s, slowly":   {func(f *store.ServerFacts) { f.Ahead, f.AheadMaxMore = 3*time.Second, 2*time.Second }, "clock", provider.OK, "3s ahead"},
		"in step":       {func(f *store.ServerFacts) { f.Ahead = 20 * time.Millisecond }, "clock", provider.OK, "in step"},
		"no fsync":      {func(f *store.ServerFacts) { f.Fsync = false }, "commits", provider.Warn, "fsync is off"},
		"asynchronous":  {func(f *store.ServerFacts) { f.Commit = "off" }, "commits", provider.Warn, "synchronous_commit is off"},
		"alone":         {func(*store.ServerFacts) {}, "commits", provider.OK, "since the last backup"},
		"local":         {func(f *store.ServerFacts) { f.Commit, f.Standbys = "local", "ANY 1 (a, b)" }, "commits", provider.Warn, "not waited for"},
		"local, alone":  {func(f *store.ServerFacts) { f.Commit = "local" }, "commits", provider.OK, "since the last backup"},
		"with standbys": {func(f *store.ServerFacts) { f.Standbys = "ANY 1 (a, b)" }, "commits", provider.OK, "waits for ANY 1 (a, b)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := good
			c.change(&f)
			got := find(t, Diagnosis{Checks: judgeServer(f)}, "database", c.check)
			if got.Level != c.level || !strings.Contains(got.Text, c.text) || (got.Fix == "") != (c.level == provider.OK) {
				t.Errorf("%+v", got)
			}
		})
	}
	for _, c := range judgeServer(good) {
		if c.Level != provider.OK {
			t.Errorf("of a good server: %+v", c)
		}
	}
}

func TestJudgeConnectionsAndReplicas(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		most, used, each, running int
		want                      provider.Level
	}{
		"room for one":              {97, 10, 25, 0, provider.OK},
		"three run":                 {97, 60, 25, 3, provider.OK},
		"four would not all fit":    {97, 60, 25, 4, provider.Warn},
		"not even one":              {20, 1, 25, 0, provider.Warn},
		"others take the room":      {97, 80, 25, 0, provider.Warn},
		"the one that runs has its": {97, 80, 25, 1, provider.OK},
	} {
		if got := judgeConnections(store.Connections{Most: c.most, Used: c.used}, c.each, c.running); got.Level != c.want || (got.Fix == "") != (c.want == provider.OK) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	f := &config.File{Checksum: "abc"}
	for name, c := range map[string]struct {
		replicas []store.SeenReplica
		want     provider.Level
		text     string
	}{
		"none":            {nil, provider.Warn, "none runs"},
		"one long silent": {[]store.SeenReplica{{ID: "a", Checksum: "abc", Silent: time.Hour}}, provider.Warn, "none runs"},
		"one":             {[]store.SeenReplica{{ID: "a", Checksum: "abc"}}, provider.OK, "1 runs, all with this file"},
		"another file":    {[]store.SeenReplica{{ID: "a", Checksum: "abc"}, {ID: "b", Checksum: "def"}}, provider.Warn, "2 run, of which 1 runs with another file than this one: b"},
	} {
		if got := judgeReplicas(c.replicas, f); len(got) != 1 || got[0].Level != c.want || !strings.Contains(got[0].Text, c.text) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestJudgeTokens(t *testing.T) {
	t.Parallel()
	live := func(scopes ...string) []store.Token { return []store.Token{{Name: "t", Scopes: scopes}} }
	for name, c := range map[string]struct {
		file config.File
		live []store.Token
		want provider.Level
		text string
	}{
		"none":                 {config.File{}, nil, provider.Bad, "no API token"},
		"nobody may operate":   {config.File{}, live("ingest"), provider.Warn, "acknowledge or decide"},
		"nobody may send":      {config.File{Server: config.Server{Tokens: []config.Token{{Name: "t", Scopes: []string{"operate"}}}}}, nil, provider.Warn, "send alerts"},
		"both":                 {config.File{Server: config.Server{Tokens: []config.Token{{Name: "t", Scopes: []string{"operate"}}}}}, live("ingest"), provider.OK, "2 tokens"},
		"an administrator's":   {config.File{}, live("admin"), provider.OK, "1 token"},
		"a source's counts":    {config.File{Sources: map[string]config.Source{"am": {Token: "x"}}}, live("operate"), provider.OK, "2 tokens"},
		"a source's alone":     {config.File{Sources: map[string]config.Source{"am": {Token: "x"}}}, nil, provider.Warn, "acknowledge or decide"},
		"a source without one": {config.File{Sources: map[string]config.Source{"am": {}}}, nil, provider.Bad, "no API token"},
	} {
		if got := judgeTokens(&c.file, c.live, "f.yaml"); len(got) != 1 || got[0].Level != c.want || !strings.Contains(got[0].Text, c.text) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestJudgePauses(t *testing.T) {
	t.Parallel()
	f, _, err := config.Parse("f", []byte("server: {public_url: \"http://127.0.0.1\"}\ndatabase: {url: postgres://h/x}\n"+twoSlacks), func(n string) (string, bool) { return "xoxb-token", n == "TOKEN" })
	if err != nil {
		t.Fatal(err)
	}
	account, since := f.Notifiers["ops"].Account(), time.Date(2026, 1, 5, 9, 0, 0, 0, time.Local)
	breaker := store.Pause{Key: account + "@" + f.Checksum, Scope: store.ScopeAccount, Account: account, Notifier: "ops", Reason: "account:token_revoked", Sentence: "reinstall the app, then send again",
		Since: since, ProbeAt: since.Add(time.Minute)}
	older := breaker
	older.Key = account + "@older"
	gone := store.Pause{Key: "x", Scope: store.ScopeAccount, Account: "slack:0", Notifier: "removed", Reason: "account:invalid_auth"}
	rest := store.Pause{Scope: store.ScopeDestination, Account: account, Notifier: "other", Destination: "C1", Reason: "rate_limited", Until: since.Add(30 * time.Second)}
	looks := store.Pause{Scope: store.ScopeLookUp, Account: account, Notifier: "ops", Reason: "rate_limited", Until: since}
	for name, c := range map[string]struct {
		pauses []store.Pause
		want   []Check
	}{
		"none": {nil, []Check{{"stored", "pauses", provider.OK, "nothing rests, and no breaker is open", ""}}},
		"a breaker keeps back both": {[]store.Pause{breaker, older}, []Check{{"ops", "breaker", provider.Bad,
			"nothing goes out with the credentials of ops, other since 2026-01-05 09:00:00: account:token_revoked; asked again at 2026-01-05 09:01:00", "reinstall the app"}}},
		"a destination": {[]store.Pause{rest}, []Check{{"other", "pause", provider.Warn, "C1 rests until 2026-01-05 09:00:30: rate_limited", "nothing: it goes on by itself"}}},
		"look-ups":      {[]store.Pause{looks}, []Check{{"ops", "look-ups", provider.Warn, "they rest until 2026-01-05 09:00:00: rate_limited", "nothing: they go on by themselves"}}},
		"a notifier that the file does not have": {[]store.Pause{gone}, []Check{{"stored", "breaker", provider.Bad,
			"nothing goes out with the credentials of removed since " + instant(time.Time{}) + ": account:invalid_auth; asked again at " + instant(time.Time{}), "mend the credentials"}}},
	} {
		if got := judgePauses(c.pauses, f); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
}
