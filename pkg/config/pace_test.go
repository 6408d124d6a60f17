package config_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/pace"
)

func TestParseRate(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]pace.Rule{
		"off":     {},
		"1/s":     {Count: 1, Per: time.Second},
		"20/m":    {Count: 20, Per: time.Minute},
		"1000/h":  {Count: 1000, Per: time.Hour},
		"5/d":     {Count: 5, Per: 24 * time.Hour},
		"5/10s":   {Count: 5, Per: 10 * time.Second},
		"5/1m30s": {Count: 5, Per: 90 * time.Second},
		"1/10ms":  {Count: 1, Per: 10 * time.Millisecond},
		"1/1d":    {Count: 1, Per: 24 * time.Hour},
	} {
		if got, err := config.ParseRate(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "1", "/", "/s", "1/", "0/s", "-1/s", "1.5/s", "1001/s", "one/s", "1/w", "1/x", "1/ss", "1/ms", "1/5", "1/9ms", "1/0s", "1/-1s", "1/25h", "1/s/s", "1/ s", "OFF",
		"99999999999999999999/s",
	} {
		if got, err := config.ParseRate(text); err == nil || got != (pace.Rule{}) || strings.Contains(err.Error(), "strconv") {
			t.Errorf("%q was taken as %+v, or its error is no sentence: %v", text, got, err)
		}
	}
}

func TestPace(t *testing.T) {
	t.Parallel()
	perSecond := pace.Rule{Count: 1, Per: time.Second}
	perMinute := pace.Rule{Count: 20, Per: time.Minute}
	bot := pace.Rule{Count: 30, Per: time.Second}
	for name, c := range map[string]struct {
		notifier string
		want     config.Pace
	}{
		"slack's own":               {"type: slack, token: t, channel: C0", config.Pace{Destination: perSecond}},
		"a Slack webhook's":         {`type: slack, webhook_url: "https://hooks.slack.com/x"`, config.Pace{Destination: perSecond}},
		"telegram's own":            {"type: telegram, token: t", config.Pace{Destination: perSecond, Group: perMinute, Account: bot}},
		"a webhook has none":        {`type: webhook, url: "https://h/x"`, config.Pace{}},
		"a log has none":            {"type: log, path: /x", config.Pace{}},
		"off":                       {"type: telegram, token: t, pace: off", config.Pace{}},
		"off in quotes":             {`type: telegram, token: t, pace: "off"`, config.Pace{}},
		"nothing said":              {"type: slack, token: t, channel: C0, pace: {}", config.Pace{Destination: perSecond}},
		"one rule of three":         {"type: telegram, token: t, pace: {group: 10/m}", config.Pace{Destination: perSecond, Group: pace.Rule{Count: 10, Per: time.Minute}, Account: bot}},
		"one rule off":              {"type: telegram, token: t, pace: {destination: off}", config.Pace{Group: perMinute, Account: bot}},
		"all rules":                 {"type: telegram, token: t, pace: {destination: 2/s, group: 5/10s, account: 1/m}", config.Pace{Destination: pace.Rule{Count: 2, Per: time.Second}, Group: pace.Rule{Count: 5, Per: 10 * time.Second}, Account: pace.Rule{Count: 1, Per: time.Minute}}},
		"a webhook's":               {`type: webhook, url: "https://h/x", pace: {destination: 1/s, account: 5/s}`, config.Pace{Destination: perSecond, Account: pace.Rule{Count: 5, Per: time.Second}}},
		"an account without others": {"type: slack, token: t, channel: C0, pace: {account: 50/m}", config.Pace{Destination: perSecond, Account: pace.Rule{Count: 50, Per: time.Minute}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := parse(t, minimal+"notifiers: {n: {"+c.notifier+"}}\n")
			if got := f.Notifiers["n"].Pace; got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestBuckets(t *testing.T) {
	t.Parallel()
	f := parse(t, minimal+`notifiers:
  slack: {type: slack, token: t, channel: C0}
  tg: {type: telegram, token: t}
  bare: {type: telegram, token: t, pace: off}
  account: {type: webhook, url: "https://h/x", pace: {account: 5/s}}
`)
	one, twenty, thirty, five := pace.Rule{Count: 1, Per: time.Second}, pace.Rule{Count: 20, Per: time.Minute}, pace.Rule{Count: 30, Per: time.Second}, pace.Rule{Count: 5, Per: time.Second}
	for name, c := range map[string]struct {
		notifier, address string
		destination       []pace.Rule
		account           []pace.Rule
	}{
		"a Slack channel":              {"slack", "C0", []pace.Rule{one}, nil},
		"a person on Telegram":         {"tg", "4711", []pace.Rule{one}, []pace.Rule{thirty}},
		"a group on Telegram":          {"tg", "-1001234", []pace.Rule{one, twenty}, []pace.Rule{thirty}},
		"a named channel on Telegram":  {"tg", "@ops", []pace.Rule{one, twenty}, []pace.Rule{thirty}},
		"no pace":                      {"bare", "-1001234", nil, nil},
		"an account, no destination's": {"account", "https://h/x", nil, []pace.Rule{five}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := f.Notifiers[c.notifier]
			var want []pace.Bucket
			if c.destination != nil {
				want = append(want, pace.Bucket{Key: n.Queue(c.address), Rules: c.destination})
			}
			if c.account != nil {
				want = append(want, pace.Bucket{Key: n.Account(), Rules: c.account})
			}
			if got := n.Buckets(c.address); !reflect.DeepEqual(got, want) {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

// What shares credentials shares pace, pauses and breaker; the name of the credentials tells nothing of them.
func TestAccount(t *testing.T) {
	t.Parallel()
	f := parse(t, minimal+`notifiers:
  ops: {type: slack, token: "${SECRET}", channel: C0, timeout: 5s}
  dm: {type: slack, token: "${SECRET}", concurrency: 1}
  other: {type: slack, token: "${SLACK_TOKEN}", channel: C0}
  server: {type: slack, token: "${SECRET}", channel: C0, api_url: "http://127.0.0.1:1/api/"}
  hook: {type: slack, webhook_url: "https://hooks.slack.com/${SECRET}"}
  tg: {type: telegram, token: "${SECRET}"}
  audit: {type: webhook, url: "https://h/${SECRET}"}
  log: {type: log, path: /x}
`)
	account := func(name string) string { return f.Notifiers[name].Account() }
	if account("ops") != account("dm") {
		t.Error("two notifiers with one token are two accounts")
	}
	seen := map[string]string{}
	for name, n := range f.Notifiers {
		a := n.Account()
		if !strings.HasPrefix(a, n.Type+":") || len(a) != len(n.Type)+1+16 {
			t.Errorf("%s: the account is called %q", name, a)
		}
		for _, secret := range []string{"s3cr3t-value", "s3cr3t", "xoxb"} {
			if strings.Contains(a, secret) || strings.Contains(n.Queue("C1"), secret) {
				t.Errorf("%s: %q tells a secret", name, a)
			}
		}
		if had, ok := seen[a]; ok && name != "dm" && name != "ops" {
			t.Errorf("%s and %s share the account %s", had, name, a)
		}
		seen[a] = name
		if n.Queue("C1") == n.Queue("C2") || !strings.HasPrefix(n.Queue("C1"), a+"/") {
			t.Errorf("%s: queues %q, %q", name, n.Queue("C1"), n.Queue("C2"))
		}
	}
	if f.Notifiers["ops"].Queue("C1") != f.Notifiers["dm"].Queue("C1") {
		t.Error("one destination of one account has two queues")
	}
	// Fields must not run into each other.
	a, b := config.Notifier{Type: "slack", APIURL: "ab", Token: "c"}, config.Notifier{Type: "slack", APIURL: "a", Token: "bc"}
	if a.Account() == b.Account() {
		t.Error("two different credentials are one account")
	}
}

func TestAllowPrivate(t *testing.T) {
	t.Parallel()
	f := parse(t, `server: {public_url: "https://tocsin.example.com", allow_private: [10.1.2.3/16, "fd00::/8", 127.0.0.1/32, "10.9.0.0/16"]}`)
	var got []string
	for _, p := range f.Server.AllowPrivate {
		got = append(got, p.String())
	}
	if want := []string{"10.1.0.0/16", "fd00::/8", "127.0.0.1/32", "10.9.0.0/16"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if f := parse(t, minimal); f.Server.AllowPrivate != nil {
		t.Errorf("without the key: %v", f.Server.AllowPrivate)
	}
}
